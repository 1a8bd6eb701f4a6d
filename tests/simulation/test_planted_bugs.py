"""The simulated cluster finds bugs: each is planted, and a seed must notice it."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from tailrace.broker import following
from tailrace.broker.controller.log_writer import LogWriter
from tailrace.cluster.metadata import delta
from tailrace.model import NO_LEADER_EPOCH, Offset
from tailrace.protocol.metadata_records import PartitionChangeRecord, PartitionRecord
from tailrace.replication import follower_log
from tailrace.replication.flushes import Flushes
from tailrace.replication.partition import Partition
from tailrace.storage.log import Log
from tests.simulation import cluster
from tests.simulation.cluster import Role, play
from tests.simulation.test_cluster import SECONDS

SEEDS_MAX = 1000

Plant = Callable[[pytest.MonkeyPatch], None]


def skip_a_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower does not say the epoch of its last record, so nobody finds where it diverges."""

    def position_of(log: Log) -> follower_log.FetchPosition:
        return follower_log.FetchPosition(log.end_offset, NO_LEADER_EPOCH, log.start_offset)

    for module in (following, follower_log):
        monkeypatch.setattr(module, "position_of", position_of)


def acknowledge_before_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader answers acks=all when it has the records itself."""

    def acknowledged(self: Partition, _: Offset) -> None:
        self.check_leader()

    monkeypatch.setattr(Partition, "acknowledged", acknowledged)


def reuse_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader begins in the epoch of the one before."""
    changed = delta.changed_partition

    def changed_partition(
        before: PartitionRecord, record: PartitionChangeRecord
    ) -> PartitionRecord:
        return replace(changed(before, record), leader_epoch=before.leader_epoch)

    monkeypatch.setattr(delta, "changed_partition", changed_partition)


def forget_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `tailrace.durability=sync` answers do not wait for the device."""
    monkeypatch.setattr(Flushes, "ask_before_answer", lambda *_, **__: None)


LOSS = "are lost|other records are at|is not there|is open for ever|the log was truncated"
"""Claims about records that were acknowledged, or read, and are gone."""


class Found(NamedTuple):
    """The lives that find a bug."""

    seeds: tuple[int, ...]
    """Some that are known to find it."""
    claim: str
    """The claims that it breaks, as a pattern: whatever else fails a life finds no bug."""


BUGS: dict[Plant, Found] = {
    skip_a_truncation: Found((35,), "the replicas differ"),
    acknowledge_before_the_isr: Found((3,), LOSS),
    reuse_an_epoch: Found((1,), "lead in epoch"),
    forget_a_sync: Found((555,), LOSS),
}


def answer_before_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own controller answers when it has decided, before its records are on the device."""

    async def written(_: LogWriter, end_offset: int) -> None:
        assert end_offset > 0

    monkeypatch.setattr(LogWriter, "written", written)


OWN_BUGS: dict[Plant, Found] = {
    answer_before_the_device: Found((3,), "was created, and is gone"),
}
"""The same of our own controller."""


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 1,000 seeds finds the bug; those that did before are tried first."""
    plant(monkeypatch)
    find(BUGS[plant], "scripted")


@pytest.mark.parametrize("plant", OWN_BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_a_controller_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for the claims about our own controller."""
    plant(monkeypatch)
    find(OWN_BUGS[plant], "alone")


def test_a_life_that_fails_of_something_else_finds_no_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a bug that does not fit the code any more is not taken for one that was found."""

    async def nothing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cluster, "transact", nothing)
    monkeypatch.setattr(cluster, "produce", nothing)
    with pytest.raises(pytest.fail.Exception, match="seed 0 fails of something else"):
        find(Found((0,), LOSS), "scripted")


def find(wanted: Found, controller: Role) -> None:
    """Play seeds until one breaks a claim."""
    for seed in (*wanted.seeds, *range(SEEDS_MAX)):
        try:
            play(seed, seconds=SECONDS, controller=controller)
        except AssertionError as error:
            told = str(error).partition("\n")[0]
            if re.search(wanted.claim, told):
                return
            pytest.fail(f"seed {seed} fails of something else: {told}")
    pytest.fail(f"no seed below {SEEDS_MAX} finds it")
