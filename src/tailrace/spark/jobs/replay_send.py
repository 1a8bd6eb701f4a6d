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
    the log has the last batch that arrived      else it is not known how far the range came;
                                                 `find_arrived` raises an error then
    the source still has what was sent           compared, record by record; another error

The log is read from where it ended before the range was sent. The last number of the range's
producer says how many of its records arrived, whatever is between them:

    since                                                    end
      │ 0-2 of P │ others │ 3-7 of P │ others ... │            next sequence number of P: 8
                            └ all that matters

If offsets are missing after the last batch of the producer, more of its batches may have been
there: compaction or retention was faster. Then nobody can tell, and it is an error.

Invariant: of each record of a range, the target has one copy, and copies of records that go to one
partition are in the order of the source.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.client.producer import OwnedIdentity
from tailrace.client.producer.intake.columns import chunks_of
from tailrace.client.producer.intake.slices import ColumnSlice, plan_chunk
from tailrace.errors import FatalError, RetriableError
from tailrace.kernels.arrays import Int64s
from tailrace.kernels.encoding import choose_partitions
from tailrace.model import NO_TIMESTAMP, TimestampType, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.schema import Column
from tailrace.spark.digests import Digest
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.manifest import attempt_name
from tailrace.spark.jobs.replay_ends import (
    COLUMNS,
    BrokerTarget,
    ReplaySource,
    SourceRange,
    Target,
    TargetSettings,
    in_milliseconds,
    read_tables,
)
from tailrace.spark.jobs.replay_plan import Moved, PlannedRange, SentRange, write_map
from tailrace.values import dataclass

_SEQUENCE: Final = Column.SEQUENCE.value


class Placed(NamedTuple):
    """Records that follow on each other in the target."""

    sequence: int
    """Sequence number of the first."""
    offset: int
    """Offset of the first."""
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Records of one range in one partition of the target."""

    next_sequence: int
    """Number of records that arrived, with those that compaction or retention took away since."""
    placed: tuple[Placed, ...]
    sequences: Int64s
    """Numbers of those that are there."""
    digest: str
    """Digest of the records that are there: `tailrace.spark.digests` over `COLUMNS`."""


NOTHING: Final = Arrived(
    next_sequence=0, placed=(), sequences=np.empty(0, np.int64), digest=Digest().hexdigest()
)


def find_arrived(
    batches: Iterable[Batch],
    partition: TopicPartition,
    *,
    start: int,
    limit: int,
    producer_id: int,
) -> Arrived:
    """Find the batches of a producer in a log from `start` to `limit`, in order.

    Raises:
        FatalError: batches are missing, so that nobody can know; or the topic has put its own
            timestamps in place of the source's.
        CorruptionError: a record of the producer breaks a rule of the format.
    """
    content = _Content()
    placed: list[Placed] = []
    next_sequence, next_offset, is_gap = 0, start, False
    for batch in batches:
        is_gap = is_gap or batch.base_offset > next_offset
        next_offset = batch.next_offset
        if batch.producer_id != producer_id:
            continue
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
            raise FatalError(
                f"topic {partition.topic!r} sets its own timestamps, so those of the source are "
                "lost; set its message.timestamp.type to CreateTime, and delete the sent records"
            )
        # What was missing before a batch of ours does not matter: sequence numbers say how many
        # came before it.
        is_gap = False
        next_sequence = batch.last_sequence + 1
        placed.append(Placed(batch.base_sequence, batch.base_offset, batch.last_offset_delta + 1))
        content.append(batch)
    # The end of the log may be cut off too, by a truncation to a new leader's log.
    if is_gap or next_offset < limit:
        raise FatalError(
            f"{partition} has lost records since offset {start}, to retention or compaction, and "
            "it is not known whether some were of an interrupted replay; let it keep all while a "
            "replay runs (retention.ms=-1, retention.bytes=-1, cleanup.policy=delete), delete "
            "the sent records, and begin again with another offset map"
        )
    return Arrived(
        next_sequence=next_sequence,
        placed=tuple(placed),
        sequences=content.sequences(),
        digest=content.hexdigest(),
    )


class _Content:
    """The records of batches, as a digest and their numbers."""

    def __init__(self) -> None:
        columns = (Column.KEY, Column.VALUE, Column.TIMESTAMP, Column.HEADERS, Column.SEQUENCE)
        self._builder = ColumnsBuilder(columns)
        self._digest = Digest()
        self._sequences: list[Int64s] = []

    def append(self, batch: Batch) -> None:
        self._builder.append(batch, start_offset=batch.base_offset, limit_offset=batch.next_offset)
        # Arrow's buffers hold 2 GiB at most; the digest does not depend on where the columns are
        # cut.
        if not self._builder.has_room:
            self._take()

    def sequences(self) -> Int64s:
        self._take()
        return np.concatenate([NOTHING.sequences, *self._sequences])

    def hexdigest(self) -> str:
        self._take()
        return self._digest.hexdigest()

    def _take(self) -> None:
        if self._builder.row_count:
            table = in_milliseconds(pa.Table.from_batches([self._builder.finish()]))
            self._sequences.append(table.column(_SEQUENCE).to_numpy())
            self._digest.update(table.select(COLUMNS))


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
    called again as long as the target gets further meanwhile.

    Raises:
        FatalError, CorruptionError, RetriableError: as `send_item`.
    """
    reached = -1
    while True:
        # A new walk each time, since the digest and the lanes of one that failed have seen a part
        # of the source.
        walk = Walk(planned, target, settings)

        def attempt() -> Walk:
            nonlocal walk
            walk = Walk(planned, target, settings)
            walk.run(read())
            return walk

        try:
            return retrying(attempt)
        except RetriableError:
            # No progress since the last look: then trying again is not enough.
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
        # Compaction may have removed some that had arrived; only those that are there are compared.
        there = np.isin(np.arange(first, first + len(rows)), self.arrived.sequences)
        if there.any():
            self._digest.update(table.take(pa.array(rows[there])).select(COLUMNS))
        if self.count >= self.arrived.next_sequence:
            self.check_over()
        return rows[missing:]

    def check_over(self) -> None:
        is_short = self.count < self.arrived.next_sequence
        if is_short or self._digest.hexdigest() != self.arrived.digest:
            raise FatalError(
                f"{self.partition} has records of an interrupted replay that the source does not "
                "have in this form any more, so it is not known which of them are missing; go on "
                "after them with another offset map and startingOffsets"
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
            # A source that is shorter than what arrived never reaches the check in `pass_over`.
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
        # Taken now: the callback comes later, when the lane has counted other batches too.
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
    # Not at random or in turn: a second attempt has to send each record to the same partition.
    partitions[partitions == _UNCHOSEN] = planned.partition % count
    return partitions
