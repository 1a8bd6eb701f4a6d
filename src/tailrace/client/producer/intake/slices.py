"""`plan_chunk`: groups the rows of a chunk by partition and cuts them into slices, one per batch.

A row goes to the partition in its column, else to that of its key as Kafka's clients choose it.
Rows without either go to a partition that the caller chooses: one for each slice if the whole chunk
has only such rows, else one for the whole chunk. Rows of a partition keep their order, and slices
come in the order of their first rows.

Not here: how columns are read (`columns`), and which partition a slice without one goes to.

Invariant: every row of a chunk is in exactly one slice or refused.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tailrace.client.producer.errors import RejectedRecordError
from tailrace.client.producer.intake.columns import TOO_LARGE, Chunk, RefusedRow
from tailrace.client.producer.intake.encoding import (
    BATCH_OVERHEAD,
    BATCH_SIZE_TIGHT,
    KEY_OVERHEAD,
    RECORD_OVERHEAD,
    TIMESTAMP_OVERHEAD,
    BatchFields,
    seal,
    with_room,
)
from tailrace.config.settings import INT64_MAX
from tailrace.kernels.arrays import Bools, Int64s
from tailrace.kernels.encoding import choose_partitions, cut_rows, encode_records
from tailrace.kernels.record_block import NOW
from tailrace.records.builder import RECORD_OVERHEAD_MAX
from tailrace.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


ANY_PARTITION: Final = -1
_REFUSED: Final = -2

_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """A chunk and the order in which its rows are sent."""

    chunk: Chunk
    order: Int64s
    """Row indices sorted by partition; empty if the rows keep their order."""
    sizes: Int64s
    """Upper bound of the bytes of each row's record."""
    timestamps: Int64s
    """Milliseconds of each row; empty if all have `now_ms`."""
    now_ms: int
    slices: "list[ColumnSlice]"
    refused: list[RefusedRow]


class ColumnSlice(NamedTuple):
    """Rows of one partition for one batch; they refer to the caller's memory."""

    plan: Plan
    start: int
    """Index of the first row in the plan's order."""
    record_count: int
    partition: int | None
    """Partition of all rows of the slice; with None the caller chooses it."""
    size_bound: int
    """Upper bound of the batch's bytes before compression."""

    @property
    def memory(self) -> int:
        """Bytes of memory that the batch takes until it is acknowledged."""
        return self.size_bound

    def row_of(self, index: int) -> int:
        """The number of a record's row in the caller's data."""
        at = self.start + index
        order = self.plan.order
        return self.plan.chunk.first_row + (int(order[at]) if len(order) else at)

    def timestamps(self) -> Int64s:
        """The timestamps of its records, in ms."""
        plan, stop = self.plan, self.start + self.record_count
        if not len(plan.timestamps):
            return np.full(self.record_count, plan.now_ms, np.int64)
        rows = plan.order[self.start : stop] if len(plan.order) else slice(self.start, stop)
        return plan.timestamps[rows]

    def split(self, parts: int) -> "list[ColumnSlice]":
        """Split the rows into `parts` consecutive slices of about equal count.

        Returns fewer slices if there are fewer rows.
        """
        parts = min(parts, self.record_count)
        cuts = [self.record_count * part // parts for part in range(parts + 1)]
        indexes = self.start + np.arange(self.record_count)
        rows = self.plan.order[indexes] if len(self.plan.order) else indexes
        sizes = self.plan.sizes[rows]
        return [
            ColumnSlice(
                plan=self.plan,
                start=self.start + first,
                record_count=stop - first,
                partition=self.partition,
                size_bound=BATCH_OVERHEAD + int(sizes[first:stop].sum()),
            )
            for first, stop in pairwise(cuts)
        ]

    def encode(self, block: bytearray | memoryview, fields: BatchFields) -> memoryview:
        """The encoded batch, at the start of `block` if it fits there, else in new memory."""
        plan, chunk = self.plan, self.plan.chunk
        base = latest = plan.now_ms
        if len(plan.timestamps):
            timestamps = self.timestamps()
            base, latest = int(timestamps[0]), int(timestamps.max())
        view = with_room(block, self.size_bound)
        end = encode_records(
            *chunk.values, *chunk.keys, *chunk.headers,
            plan.timestamps, base, plan.order, self.start, self.record_count, view, BATCH_OVERHEAD,
        )  # fmt: skip
        assert end > 0, "the records are larger than their bound"
        return seal(
            view, end, fields=fields, count=self.record_count,
            base_timestamp=base, max_timestamp=latest,
        )  # fmt: skip


def plan_chunk(
    chunk: Chunk,
    *,
    partition_count: int,
    batch_size: int,
    request_size_max: int,
    now_ms: int,
    ignores_keys: bool = False,
    choose: "Callable[[], int] | None" = None,
) -> Plan:
    """Slices of at most `batch_size` bytes before compression, or of a single row that is larger.

    A row is refused if a batch of it alone would have more than `request_size_max` bytes, if its
    partition does not exist, or if its timestamp is one that `send` refuses. `ignores_keys` is
    Kafka's `partitioner.ignore.keys`. `choose` returns the partition for rows without one in a
    chunk that also has others; it may be None if there are no such chunks.
    """
    sizes = _sizes_of(chunk, batch_size)
    timestamps = chunk.timestamps
    if len(timestamps):
        timestamps = np.where(timestamps == NOW, now_ms, timestamps)
    # Refused rows are sorted first, and left out of the order.
    refused, is_refused = _refusals(
        chunk, sizes, partition_count=partition_count, request_size_max=request_size_max
    )
    partitions, order = _NONE, _NONE
    if refused or len(chunk.partitions) or (len(chunk.keys.ends) and not ignores_keys):
        partitions = np.full(chunk.row_count, ANY_PARTITION, np.int64)
        if len(chunk.partitions):
            partitions[:] = chunk.partitions
        if len(chunk.keys.ends) and not ignores_keys:
            choose_partitions(*chunk.keys, chunk.row_count, partition_count, partitions)
        unchosen = partitions == ANY_PARTITION
        # If no row has a partition, each slice gets one of its own when it is queued, by the load
        # at that time; one for the whole chunk would fill the batches of a single partition.
        if unchosen.any() and not unchosen.all():
            assert choose is not None, "all rows have a partition, or none has"
            partitions[unchosen] = choose()
        partitions[is_refused] = _REFUSED
        # numpy sorts 16-bit integers by radix sort, in a fifth of the time.
        kind = np.int16 if partition_count < 1 << 15 else np.int32
        order = np.argsort(partitions.astype(kind), kind="stable")[len(refused) :]
    plan = Plan(
        chunk=chunk, order=order, sizes=sizes, timestamps=timestamps, now_ms=now_ms,
        slices=[], refused=refused,
    )  # fmt: skip
    slices = _cut(plan, partitions, batch_size)
    # A record has its difference to the first timestamp of its batch.
    if len(timestamps) and int(timestamps.max()) - int(timestamps.min()) > INT64_MAX:
        slices = [part for each in slices for part in _with_close_times(each)]
        slices.sort(key=lambda each: each.row_of(0))
    plan.slices.extend(slices)
    return plan


def _with_close_times(part: ColumnSlice) -> list[ColumnSlice]:
    """Parts in which the difference of each timestamp to the first one fits 64 bits."""
    # Only hostile or broken times are so far apart; halves end at single rows at the latest.
    timestamps = part.timestamps()
    first = int(timestamps[0])
    if max(int(timestamps.max()) - first, first - int(timestamps.min())) <= INT64_MAX:
        return [part]
    return [each for half in part.split(2) for each in _with_close_times(half)]


def _sizes_of(chunk: Chunk, batch_size: int) -> Int64s:
    overhead = RECORD_OVERHEAD
    if len(chunk.keys.ends):
        overhead += KEY_OVERHEAD
    if len(chunk.timestamps):
        overhead += TIMESTAMP_OVERHEAD
    # Beyond a mebibyte the tight bounds do not hold; see `RECORD_OVERHEAD`.
    if batch_size > BATCH_SIZE_TIGHT:
        overhead = RECORD_OVERHEAD_MAX
    sizes = np.full(chunk.row_count, overhead, np.int64)
    for column in (chunk.values, chunk.keys, chunk.headers):
        if len(column.ends):
            sizes += column.sizes
    return sizes


def _refusals(
    chunk: Chunk, sizes: Int64s, *, partition_count: int, request_size_max: int
) -> tuple[list[RefusedRow], Bools]:
    """The rows that cannot be sent, each with its first reason, and a mask of all rows."""
    rules: list[tuple[Bools, Callable[[int], str]]] = [
        (
            sizes > request_size_max - BATCH_OVERHEAD,
            lambda row: (
                f"it takes up to {BATCH_OVERHEAD + sizes[row]} bytes, more than "
                f"max.request.size ({request_size_max})"
            ),
        ),
        (
            chunk.timestamps == TOO_LARGE,
            lambda _: "its timestamp, in milliseconds, does not fit 64 bits",
        ),
        (
            chunk.partitions == TOO_LARGE,
            lambda _: "its partition does not fit 64 bits",
        ),
        (
            chunk.timestamps < NOW,
            lambda row: f"its timestamp is {chunk.timestamps[row]} ms, before {NOW + 1}",
        ),
        (
            (chunk.partitions < ANY_PARTITION) | (chunk.partitions >= partition_count),
            lambda row: f"its partition is {chunk.partitions[row]}, of {partition_count} from 0",
        ),
    ]
    is_refused = np.zeros(chunk.row_count, np.bool_)
    found = {each.row: each for each in chunk.refused}
    is_refused[[row - chunk.first_row for row in found]] = True
    # Each row gets one error, of the first rule that it breaks.
    for broken, words in rules:
        for at in np.flatnonzero(broken).tolist():
            if not is_refused[at]:
                row = chunk.first_row + at
                found[row] = RefusedRow(row, RejectedRecordError(words(at)))
                is_refused[at] = True
    return [found[row] for row in sorted(found)], is_refused


def _cut(plan: Plan, partitions: Int64s, batch_size: int) -> list[ColumnSlice]:
    count = plan.chunk.row_count - len(plan.refused)
    cuts, totals = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    runs = cut_rows(
        plan.sizes, plan.order, partitions, count, batch_size - BATCH_OVERHEAD, cuts, totals
    )
    firsts, stops = cuts[:runs], cuts[1 : runs + 1]
    owners: list[int | None] = [None] * runs
    turns: list[int] | range = range(runs)
    if len(partitions):
        rows = plan.order[firsts]
        owners = [None if each == ANY_PARTITION else each for each in partitions[rows].tolist()]
        turns = np.argsort(rows).tolist()
    starts, counts = firsts.tolist(), (stops - firsts).tolist()
    bounds = (totals[:runs] + BATCH_OVERHEAD).tolist()
    return [ColumnSlice(plan, starts[i], counts[i], owners[i], bounds[i]) for i in turns]
