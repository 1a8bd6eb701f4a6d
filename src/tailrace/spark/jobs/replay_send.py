"""One work item of a replay: send one range of a source partition to the target exactly once.

    source records    0 1 2 3 4 5 6 7 8 9     of the range, in the order of their offsets
    to partition 0    0   1     2 3   4       sequence numbers there: the keys decide which records
    to partition 1      0   1 2     3   5     go where, the same way each time

The range has a producer id of its own, which the manifest knows before anything is sent. Its
records have sequence numbers by their place in the range. So the target's log itself tells how far
a range came: its producer's last sequence number is that of the last record that arrived. An
attempt reads that, passes over as many records of the source, and sends the rest.

The broker takes a batch only if its sequence number is the producer's next one. That decides
between attempts that run at once, be it by speculation, as a lost executor that lives on, or as a
worker of a run that was killed: all have one producer id and the same records under the same
numbers. Who is refused, looks again at what is there. What others write into the topic does not
matter.

This holds on these conditions, which are those of Kafka's idempotent producer:

    the broker remembers a producer's numbers    Kafka from 2.5 on, as long as two attempts to
                                                 send do not lie `producer.id.expiration.ms`
                                                 (a day) apart while the older one lives on
    the log has the last batch that arrived      else it is not known how far the range came; see
                                                 `replay_resume`, which raises an error then
    the source still has what was sent           compared, record by record; another error

Invariant: of each record of a range, the target has one copy, and copies of records that go to one
partition are in the order of the source.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from tailrace.client.producer import OwnedIdentity
from tailrace.client.producer.intake.columns import chunks_of
from tailrace.client.producer.intake.slices import ColumnSlice, plan_chunk
from tailrace.errors import FatalError, RetriableError
from tailrace.kernels.arrays import Int64s
from tailrace.kernels.encoding import choose_partitions
from tailrace.model import NO_TIMESTAMP, TopicPartition
from tailrace.spark.digests import Digest
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.manifest import attempt_name
from tailrace.spark.jobs.replay_map import Moved, write_map
from tailrace.spark.jobs.replay_plan import PlannedRange, SentRange
from tailrace.spark.jobs.replay_resume import NOTHING, Arrived, Placed, find_arrived
from tailrace.spark.jobs.replay_source import COLUMNS, ReplaySource, SourceRange, read_tables
from tailrace.spark.jobs.replay_target import BrokerTarget, Target, TargetSettings
from tailrace.values import dataclass

_UNCHOSEN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """Settings of all work items of a replay."""

    source: ReplaySource
    target: TargetSettings
    offset_map: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayItem:
    """One work item: a range of a source partition."""

    planned: PlannedRange
    wanted: SourceRange


@dataclass(frozen=True, slots=True)
class StagedSend:
    """A range that is in the target, and where its part of the offset map stands for now."""

    entry: SentRange
    renamed: dict[str, str]
    """Final name by that in the staging directory; empty without records."""


def send_item(task: ReplayTask, item: ReplayItem) -> StagedSend:
    """Send what of a range is not in the target yet.

    Raises:
        CorruptionError: the source is damaged.
        FatalError: one of the conditions above does not hold, or the broker does not take a record.
        RetriableError: the broker cannot be reached, or another attempt is ahead all the time.
    """
    target = BrokerTarget(task.target)
    planned = item.planned
    try:
        walk = send_range(
            planned, lambda: read_tables(task.source, item.wanted), target,
            settings=task.target, retrying=target.retrying,
        )  # fmt: skip
    finally:
        target.close()
    name = None
    renamed = {}
    if walk.records:
        staged = attempt_name(".parquet")
        write_map(open_folder(task.offset_map), staged, planned=planned, moved=walk.moved())
        name = f"topic={planned.topic}/{planned.partition}-{planned.start:020}-{planned.limit:020}"
        name += ".parquet"
        renamed = {staged: name}
    entry = SentRange(
        topic=planned.topic, partition=planned.partition, start=planned.start, limit=planned.limit,
        records=walk.records, bytes=walk.bytes, found=walk.found, file=name,
    )  # fmt: skip
    return StagedSend(entry, renamed)


def send_range(
    planned: PlannedRange,
    read: Callable[[], Iterable[pa.Table]],
    target: Target,
    *,
    settings: TargetSettings,
    retrying: "Callable[[Callable[[], Walk]], Walk]",
) -> "Walk":
    """The walk that has seen all of a range into the target.

    `retrying` calls again, a bounded number of times, what fails in a way that may pass. It is
    called anew as long as the target gets further meanwhile.

    Raises:
        FatalError, CorruptionError, RetriableError: as `send_item`.
    """
    reached = -1
    while True:
        walk = Walk(planned, target, settings)

        def attempt() -> Walk:
            nonlocal walk
            walk = Walk(planned, target, settings)
            walk.run(read())
            return walk

        try:
            return retrying(attempt)
        except RetriableError:
            if walk.found <= reached:
                raise
            reached = walk.found


class _Lane:
    """The records of a range for one target partition."""

    def __init__(self, partition: TopicPartition, arrived: Arrived) -> None:
        self.partition = partition
        self.arrived = arrived
        self.next_sequence = arrived.next_sequence
        self.count = 0
        """Records of the source so far."""
        self.source_offsets: list[Int64s] = []
        self.placed = list(arrived.placed)
        self._digest = Digest()

    def pass_over(self, table: pa.Table, rows: Int64s) -> Int64s:
        """Take the next rows of the source; gives those that the target does not have.

        Raises:
            FatalError: the target has others in their place.
        """
        first = self.count
        self.count += len(rows)
        self.source_offsets.append(table.column("offset").to_numpy()[rows])
        missing = max(self.arrived.next_sequence - first, 0)
        if not missing:
            return rows
        there = np.isin(np.arange(first, first + len(rows)), self.arrived.sequences)
        if there.any():
            self._digest.update(table.take(pa.array(rows[there])).select(COLUMNS))
        if self.count >= self.arrived.next_sequence:
            self.check_over()
        return rows[missing:]

    def check_over(self) -> None:
        """Find that the source had all that had arrived.

        Raises:
            FatalError: it had not.
        """
        is_short = self.count < self.arrived.next_sequence
        if is_short or self._digest.hexdigest() != self.arrived.digest:
            raise FatalError(
                f"{self.partition} has records of an interrupted replay that the source does not "
                "have in this form any more, so it is not known which of them are missing; go on "
                "behind them with another offset map and startingOffsets"
            )


class Walk:
    """One way through a range, from what the target has of it to its end."""

    def __init__(self, planned: PlannedRange, target: Target, settings: TargetSettings) -> None:
        self.records = 0
        """Records of the range."""
        self.bytes = 0
        """Size of the batches that this walk sent, each time."""
        self.found = 0
        """Records that were in the target before."""
        self._planned = planned
        self._target = target
        self._settings = settings
        self._lanes: dict[int, _Lane] = {}

    def run(self, tables: Iterable[pa.Table]) -> None:
        """Send what is missing, and wait until it is acknowledged; once."""
        for number, since in self._planned.since.items():
            partition = TopicPartition(self._planned.target, number)
            self._lanes[number] = _Lane(partition, self._arrived(partition, since))
        self.found = sum(lane.next_sequence for lane in self._lanes.values())
        self._target.begin(
            OwnedIdentity(
                producer_id=self._planned.producer_id,
                producer_epoch=self._planned.producer_epoch,
                first_sequences={
                    lane.partition: lane.next_sequence for lane in self._lanes.values()
                },
            )
        )
        for table in tables:
            self._send(*self._without_arrived(table))
            self.records += len(table)
        self.bytes = self._target.settle()
        for lane in self._lanes.values():
            if lane.count < lane.arrived.next_sequence:
                lane.check_over()

    def moved(self) -> Iterator[Moved]:
        """Target offsets of the records, for each target partition that has any."""
        for number, lane in sorted(self._lanes.items()):
            if lane.count:
                targets = np.full(lane.count, -1, np.int64)
                for each in lane.placed:
                    limit = each.sequence + each.records
                    targets[each.sequence : limit] = each.offset + np.arange(each.records)
                yield Moved(number, np.concatenate(lane.source_offsets), targets)

    def _arrived(self, partition: TopicPartition, since: int) -> Arrived:
        first, end = self._target.log_range(partition)
        if end < since:
            raise FatalError(
                f"{partition} ends at offset {end}, and an interrupted replay began at {since}; "
                "it is another topic of that name now. Choose another offset map"
            )
        if end == since:
            return NOTHING
        batches = self._target.batches(partition, max(first, since), end)
        return find_arrived(
            batches, partition, start=since, limit=end, producer_id=self._planned.producer_id
        )

    def _without_arrived(self, table: pa.Table) -> tuple[pa.Table, Int64s]:
        """The rows that are not in the target, and where they go."""
        partitions = target_partitions(table.column("key"), self._planned)
        is_missing = np.ones(len(table), np.bool_)
        for number in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == number)
            is_missing[rows] = False
            is_missing[self._lanes[number].pass_over(table, rows)] = True
        if is_missing.all():
            return table, partitions
        return table.filter(pa.array(is_missing)), partitions[is_missing]

    def _send(self, table: pa.Table, partitions: Int64s) -> None:
        for chunk in chunks_of(table.select(COLUMNS)):
            rows = slice(chunk.first_row, chunk.first_row + chunk.row_count)
            plan = plan_chunk(
                chunk._replace(partitions=partitions[rows]),
                partition_count=self._planned.partition_count,
                batch_size=self._settings.batch_size,
                request_size_max=self._settings.request_size_max,
                # A record without a timestamp stays so.
                now_ms=NO_TIMESTAMP,
            )
            for refused in plan.refused:
                offset = table.column("offset")[refused.row].as_py()
                raise FatalError(
                    f"{self._planned.source}, offset {offset}: the record cannot be sent: "
                    f"{refused.error}"
                )
            for each in plan.slices:
                self._send_batch(each)

    def _send_batch(self, columns: ColumnSlice) -> None:
        assert columns.partition is not None, "each row has its partition"
        lane = self._lanes[columns.partition]
        sequence = lane.next_sequence

        def placed(first: int, offset: int, count: int) -> None:
            lane.placed.append(Placed(sequence + first, offset, count))

        self._target.send(self._planned.target, columns, placed)
        lane.next_sequence += columns.record_count


def target_partitions(keys: pa.ChunkedArray, planned: PlannedRange) -> Int64s:
    """The partition of the target for each record; the same for the same range at any time.

    The source's own, if it is kept. Else that of the key, as all Kafka clients choose it; records
    without a key go where the number of the source's partition says.
    """
    count = planned.partition_count
    if planned.keeps_partition:
        return np.full(len(keys), planned.partition, np.int64)
    partitions = np.full(len(keys), _UNCHOSEN, np.int64)
    for chunk in chunks_of({"key": keys}):
        rows = partitions[chunk.first_row : chunk.first_row + chunk.row_count]
        if len(chunk.keys.ends):
            choose_partitions(*chunk.keys, chunk.row_count, count, rows)
    partitions[partitions == _UNCHOSEN] = planned.partition % count
    return partitions
