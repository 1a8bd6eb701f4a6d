"""Load the log of a partition of groups in bulk and record by record, and compare the states."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tailrace.coordinator.groups.bulk_commits import BulkCommits
from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.coordinator.groups.consumer_group import ConsumerGroup
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.offsets import GroupOffsets
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.shard import Shard, StoredBatches
from tailrace.errors import CorruptionError
from tailrace.model import TopicPartition
from tailrace.records.batch import Batch, stamp
from tailrace.records.untaken import TakeBatches, read_untaken
from tailrace.runtime.clock import SystemClock
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import InlineThreads
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics

PARTITION = TopicPartition("__consumer_offsets", 0)


class State(NamedTuple):
    """Everything that a load makes."""

    committed: dict[str, GroupOffsets]
    pending: dict[int, dict[str, GroupOffsets]]
    groups: dict[str, ClassicGroup | ConsumerGroup]


class Loaded(NamedTuple):
    """The state, or the error that has stopped the load; and how much was taken in bulk."""

    state: State | None
    error: tuple[type[Exception], str] | None
    taken_bytes: int


class CountingBulk(BulkCommits):
    """Counts the bytes that it takes."""

    taken_bytes = 0

    def take(self, window: memoryview, position: int) -> int:
        """Take batches."""
        end = super().take(window, position)
        self.taken_bytes += end - position
        return end


def in_a_log(batches: Iterable[bytes]) -> list[bytes]:
    """The batches as they lie in a log, each behind the one before it."""
    offset, content = 0, []
    for each in batches:
        batch = bytearray(each)
        stamp(memoryview(batch), base_offset=offset, leader_epoch=0)
        content.append(bytes(batch))
        offset = Batch(memoryview(batch)).last_offset + 1
    return content


def load(
    content: Sequence[bytes],
    *,
    is_bulk: bool,
    made: Callable[[BulkCommits], object] = lambda _bulk: None,
) -> Loaded:
    """Load a log of these batches; `made` gets the reader in bulk."""
    bulk: list[CountingBulk] = []

    def make_bulk(machine: GroupMachine, size: int) -> BulkCommits | None:
        assert size == sum(map(len, content))
        if is_bulk:
            bulk.append(CountingBulk(machine))
            made(bulk[0])
            return bulk[0]
        return None

    shard = Shard(
        MemoryPartitionLog(PARTITION),
        lambda: GroupMachine(
            GroupSettings(),
            MemoryTopics(a=4),
            consumer_settings=lambda _: ConsumerSettings(),
            threads=InlineThreads(),
            chance=random.Random(1),
        ),
        GroupRecordCodec,
        clock=SystemClock(),
        make_bulk=make_bulk,
    )
    window = memoryview(b"".join(content))

    def untaken(take: TakeBatches) -> Iterator[Batch]:
        return (batch for _, batch in read_untaken(window, take))

    state, error = None, None
    try:
        machine = shard.replayed(StoredBatches(len(window), untaken))
        offsets = machine.groups.offsets
        state = State(offsets.committed, offsets.pending, machine.groups.by_id)
    except CorruptionError as found:
        error = type(found), f"{found} {found.offset}"
    return Loaded(state, error, bulk[0].taken_bytes if bulk else 0)


def check_both_ways(content: Sequence[bytes]) -> Loaded:
    """Load a log both ways, which must give the same state or the same error; returns the bulk."""
    bulk, plain = load(content, is_bulk=True), load(content, is_bulk=False)
    assert bulk.error == plain.error
    assert bulk.state == plain.state
    return bulk
