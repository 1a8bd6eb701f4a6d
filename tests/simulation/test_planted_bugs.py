"""The simulated cluster finds bugs: each is planted, and a seed must notice it."""

from collections.abc import Callable
from dataclasses import replace

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


BUGS: dict[Plant, tuple[int, ...]] = {
    skip_a_truncation: (35,),
    acknowledge_before_the_isr: (3,),
    reuse_an_epoch: (1,),
    forget_a_sync: (555,),
}
"""Each bug with seeds that are known to find it."""


def answer_before_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own controller answers when it has decided, before its records are on the device."""

    async def written(_: LogWriter, end_offset: int) -> None:
        assert end_offset > 0

    monkeypatch.setattr(LogWriter, "written", written)


OWN_BUGS: dict[Plant, tuple[int, ...]] = {answer_before_the_device: (3,)}
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


def find(known: tuple[int, ...], controller: Role) -> None:
    """Play seeds until one fails."""
    for seed in (*known, *range(SEEDS_MAX)):
        try:
            play(seed, seconds=SECONDS, controller=controller)
        except AssertionError:
            return
    pytest.fail(f"no seed below {SEEDS_MAX} finds it")
