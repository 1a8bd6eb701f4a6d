"""A kill or a power loss at every file operation of the coordinator of a partition of groups."""

import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.machine import Client, Decision, TransactionalProducer
from tailrace.coordinator.shard import Shard, ShardState, StoredBatches
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tailrace.storage.log import append_built
from tailrace.storage.verification import VerificationGuard
from tailrace.testing import MemoryFiles, Outside, ProcessKilledError, virtual_runtime
from tests.crash.workloads import ONE, Broker, Oracle, crash_all_ways
from tests.steps import Steps
from tests.unit.coordinator.groups_consumer.assigning import topic_id
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics, beating, joining
from tests.unit.storage.builders import NOW

T = TypeVar("T")
PRODUCER = TransactionalProducer(ProducerId(7), ProducerEpoch(0))


class DiskLog:
    """A coordinator's partition on a disk in memory; a record is committed when it is there."""

    partition = ONE

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.create(ONE)

    commits_at_once = False

    def wait_until_free(self) -> None:
        """No directory is moved."""

    def begin_verification(
        self, producer: TransactionalProducer, *, begins_at_zero: bool
    ) -> VerificationGuard | None:
        """The guard for a first batch; None: the transaction is open here."""
        return self._broker.log(ONE).producers.begin_verification(
            ProducerId(producer.producer_id),
            epoch=ProducerEpoch(producer.producer_epoch),
            sequence=0,
            now_ms=NOW,
            begins_at_zero=begins_at_zero,
        )

    def append(
        self,
        batch: bytearray,
        *,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> int:
        """Append a batch; returns its base offset."""
        log = self._broker.log(ONE)
        offset = log.end_offset
        append_built(
            log,
            memoryview(batch),
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
            guard=guard,
            raises_epoch=raises_epoch,
        )
        log.advance_high_watermark(log.end_offset)
        return offset

    def committed(self) -> None:
        """Put everything on the device, at once."""
        self._broker.log(ONE).sync()

    async def read(self, replay: Callable[[StoredBatches], T]) -> T:
        """The result of `replay` on all batches."""
        log = self._broker.log(ONE)
        return replay(StoredBatches(log.size, partial(log.batches, log.start_offset)))


@dataclass
class Told:
    """The answers that clients have got, and what was under way."""

    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The offset of each partition that a group was told is committed."""
    asked: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The offset that it asked for last."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The epoch of each member."""
    has_left: set[str] = field(default_factory=set)
    """Members that have asked to leave."""
    deleted: set[str] = field(default_factory=set)
    """Groups that were asked to be deleted."""
    is_ended: bool = False
    """Whether the transaction was asked to end."""


def shard_on(outside: Outside, broker: Broker) -> Shard[GroupMachine]:
    """A shard on the broker's disk, not loaded yet."""
    return Shard(
        DiskLog(broker),
        lambda: GroupMachine(
            GroupSettings(),
            MemoryTopics(a=4),
            consumer_settings=lambda _: ConsumerSettings(assignment_interval_ms=0),
            threads=outside.runtime.threads,
            chance=random.Random(1),
        ),
        GroupRecordCodec,
        clock=outside.runtime.clock,
    )


async def work(outside: Outside, broker: Broker, told: Told) -> None:
    """Groups of both kinds commit, change and end; one commit is in a transaction."""
    shard = shard_on(outside, broker)
    await shard.load()
    for offset in range(1, 4):
        await commit(shard, told, "simple", offset)
    await beat(shard, told, joining("m1"))
    await beat(shard, told, joining("m2"))
    await beat(shard, told, beating("m1", 2, "a0 a1"))
    await beat(shard, told, beating("m2", 3))
    await commit(shard, told, "g", 5, member_id="m1", epoch=told.epochs["m1"])
    await commit(shard, told, "txn", 9, producer=PRODUCER)
    told.is_ended = True
    await shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
    told.offsets["txn", TopicPartition("a", 0)] = 9
    told.has_left.add("m1")
    await beat(shard, told, beating("m1", -1))
    told.deleted.add("simple")
    await shard.run(lambda groups, _: groups.delete_group("simple"))
    await commit(shard, told, "g", 6, member_id="m2", epoch=told.epochs["m2"])


async def commit(
    shard: Shard[GroupMachine],
    told: Told,
    group_id: str,
    offset: int,
    *,
    member_id: str = "",
    epoch: int = -1,
    producer: TransactionalProducer | None = None,
) -> None:
    """Commit an offset for two partitions."""
    partitions = [TopicPartition("a", number) for number in range(2)]
    request = Commit(
        group_id=group_id,
        committer=Committer(epoch, member_id, None),
        offsets=[OffsetToCommit(each, topic_id("a"), offset, -1, "") for each in partitions],
        version=9,
        producer=producer,
    )
    told.asked |= {(group_id, each): offset for each in partitions}
    assert await shard.run(lambda groups, now: groups.commit(request, now)) == [0, 0]
    if producer is None:
        told.offsets |= {(group_id, each): offset for each in partitions}


async def beat(
    shard: Shard[GroupMachine], told: Told, request: ConsumerGroupHeartbeatRequest
) -> None:
    """Send a heartbeat."""

    def decide(groups: GroupMachine, now_ms: int) -> Decision[ConsumerGroupHeartbeatResponse]:
        return groups.consumer_heartbeat(Client("c", "127.0.0.1", 1), request, now_ms)

    answer = await shard.run(decide)
    assert answer.error_code == 0, answer
    told.epochs[request.member_id] = answer.member_epoch


async def check(outside: Outside, disk: MemoryFiles, told: Told) -> None:
    """A start finds what was acknowledged, and nothing that nobody has asked for."""
    shard = shard_on(outside, Broker(disk, Oracle()))
    await shard.load()
    assert shard.state is ShardState.ACTIVE
    machine = shard.machine
    for (group_id, partition), offset in told.offsets.items():
        found = machine.groups.offsets.of_group(group_id).get(partition)
        if found is None:
            assert group_id in told.deleted
        else:
            assert offset <= found.offset <= told.asked[group_id, partition]
    group = machine.groups.consumer("g")
    for member_id, epoch in told.epochs.items():
        if member_id not in told.has_left:
            assert group is not None
            assert group.members[member_id].epoch >= epoch
    if not told.is_ended:
        assert machine.groups.offsets.of_group("txn") == {}
    shard.stop()


def play(scenario: Callable[[Outside], Awaitable[None]]) -> None:
    """Run a scenario on virtual time."""

    async def main(outside: Outside) -> None:
        with contextlib.suppress(ProcessKilledError):
            await scenario(outside)

    with virtual_runtime() as outside:
        outside.run(main(outside))


def test_a_crash_at_any_operation_leaves_what_groups_were_told(steps: Steps) -> None:
    """All acknowledged offsets, members and epochs are loaded; a transaction is whole or not."""
    whole = MemoryFiles()
    play(lambda outside: work(outside, Broker(whole, Oracle()), Told()))
    operations = len(whole.operations)
    assert operations > 20
    for stop_at in steps(range(operations + 1)):
        files, told = MemoryFiles(), Told()
        files.stop_at, files.stop_partial_bytes = stop_at, 10

        async def crash(outside: Outside, files: MemoryFiles = files, told: Told = told) -> None:
            await work(outside, Broker(files, Oracle()), told)

        play(crash)
        for _, disk in crash_all_ways(files, seed=stop_at):
            with virtual_runtime() as outside:
                outside.run(check(outside, disk, told))
