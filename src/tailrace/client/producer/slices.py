"""`plan_chunk`: the rows of a chunk, by partition, cut into batches that encode themselves.

A row goes to the partition that it names, else to that of its key as Kafka's clients choose it.
Rows without either go to one that the caller chooses: for each slice if the chunk has no others,
and else for the whole chunk, so that they stand among the others as they came. Rows of a partition
keep their order, and slices come in the order of their first rows.

Not here: how columns are read (`columns`), and which partition a slice without one goes to.

Invariant: every row of a chunk is in exactly one slice or refused.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tailrace.client.producer.columns import TOO_LARGE, Array, Chunk
from tailrace.client.producer.encoding import (
    BATCH_OVERHEAD,
    KEY_OVERHEAD,
    RECORD_OVERHEAD,
    TIMESTAMP_OVERHEAD,
    BatchFields,
    seal,
    with_room,
)
from tailrace.kernels.encoding import choose_partitions, cut_rows, encode_records
from tailrace.model import NO_TIMESTAMP
from tailrace.records.builder import RECORD_OVERHEAD_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

_ANY: Final = -1
_REFUSED: Final = -2

_BATCH_SIZE_TIGHT: Final = 1 << 20
"""Largest batch for which `RECORD_OVERHEAD` is stated."""

_NONE: Final = np.empty(0, np.int64)


class RefusedRow(NamedTuple):
    """A row that cannot be sent."""

    row: int
    """The caller's number of it."""
    rule: str
    """Why not, as half a sentence."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """A chunk and the order in which its rows are sent."""

    chunk: Chunk
    order: Array
    """Rows by partition; empty if they stay as they are."""
    sizes: Array
    """Most bytes of each row's record."""
    timestamps: Array
    """Milliseconds of each row; empty if all have `now_ms`."""
    now_ms: int
    slices: "list[ColumnSlice]"
    refused: list[RefusedRow]


class ColumnSlice(NamedTuple):
    """Rows of one partition for one batch, still where the caller has them."""

    plan: Plan
    start: int
    """Place of the first row in the plan's order."""
    record_count: int
    partition: int | None
    """None leaves the choice to the caller, for all rows of the slice."""
    size_bound: int
    """Most bytes of the batch before compression."""

    def row_of(self, index: int) -> int:
        """The caller's number of a record's row."""
        place = self.start + index
        order = self.plan.order
        return self.plan.chunk.first_row + (int(order[place]) if len(order) else place)

    def split(self, parts: int) -> "list[ColumnSlice]":
        """The same rows in `parts` slices of about as many each; in fewer if there are fewer rows.

        The records of the parts, one after the other, are those of the slice.
        """
        parts = min(parts, self.record_count)
        cuts = [self.record_count * part // parts for part in range(parts + 1)]
        places = self.start + np.arange(self.record_count)
        rows = self.plan.order[places] if len(self.plan.order) else places
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
        """The batch, at the start of `block` if there is room and else in memory of its own."""
        plan, chunk = self.plan, self.plan.chunk
        base = latest = plan.now_ms
        if len(plan.timestamps):
            stop = self.start + self.record_count
            rows = plan.order[self.start : stop] if len(plan.order) else slice(self.start, stop)
            timestamps = plan.timestamps[rows]
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

    Rows whose record alone makes a batch of more than `request_size_max` bytes are refused, and so
    are those with a partition that is not there or a timestamp before 1970. `ignores_keys` is
    Kafka's `partitioner.ignore.keys`. `choose` gives the partition of rows without one among
    others; None promises that there are none.
    """
    sizes = _sizes_of(chunk, batch_size)
    timestamps = chunk.timestamps
    if len(timestamps):
        timestamps = np.where(timestamps == NO_TIMESTAMP, now_ms, timestamps)
    refused, is_refused = _refusals(
        chunk, sizes, partition_count=partition_count, request_size_max=request_size_max
    )
    partitions, order = _NONE, _NONE
    if refused or len(chunk.partitions) or (len(chunk.keys.ends) and not ignores_keys):
        partitions = np.full(chunk.row_count, _ANY, np.int64)
        if len(chunk.partitions):
            partitions[:] = chunk.partitions
        if len(chunk.keys.ends) and not ignores_keys:
            choose_partitions(*chunk.keys, chunk.row_count, partition_count, partitions)
        unchosen = partitions == _ANY
        if unchosen.any() and not unchosen.all():
            assert choose is not None, "all rows have a partition, or none has"
            partitions[unchosen] = choose()
        partitions[is_refused] = _REFUSED
        # Two bytes are sorted by their digits, which takes a fifth of the time.
        kind = np.int16 if partition_count < 1 << 15 else np.int32
        order = np.argsort(partitions.astype(kind), kind="stable")[len(refused) :]
    plan = Plan(
        chunk=chunk, order=order, sizes=sizes, timestamps=timestamps, now_ms=now_ms,
        slices=[], refused=refused,
    )  # fmt: skip
    plan.slices.extend(_cut(plan, partitions, batch_size))
    return plan


def _sizes_of(chunk: Chunk, batch_size: int) -> Array:
    overhead = RECORD_OVERHEAD
    if len(chunk.keys.ends):
        overhead += KEY_OVERHEAD
    if len(chunk.timestamps):
        overhead += TIMESTAMP_OVERHEAD
    if batch_size > _BATCH_SIZE_TIGHT:
        overhead = RECORD_OVERHEAD_MAX
    sizes = np.full(chunk.row_count, overhead, np.int64)
    for column in (chunk.values, chunk.keys, chunk.headers):
        if len(column.ends):
            sizes += column.sizes
    return sizes


def _refusals(
    chunk: Chunk, sizes: Array, *, partition_count: int, request_size_max: int
) -> tuple[list[RefusedRow], Array]:
    """The rows that cannot be sent, each with the first reason, and a mark for each row."""
    rules: list[tuple[Array, Callable[[int], str]]] = [
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
            chunk.timestamps < NO_TIMESTAMP,
            lambda row: f"its timestamp is {chunk.timestamps[row]} ms, before 1970",
        ),
        (
            (chunk.partitions < _ANY) | (chunk.partitions >= partition_count),
            lambda row: f"its partition is {chunk.partitions[row]}, of {partition_count} from 0",
        ),
    ]
    is_refused = np.zeros(chunk.row_count, np.bool_)
    found: dict[int, str] = {}
    for broken, words in rules:
        for row in np.flatnonzero(broken).tolist():
            found.setdefault(row, words(row))
            is_refused[row] = True
    return [RefusedRow(chunk.first_row + row, found[row]) for row in sorted(found)], is_refused


def _cut(plan: Plan, partitions: Array, batch_size: int) -> list[ColumnSlice]:
    """The slices in the order of their first rows."""
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
        owners = [None if each == _ANY else each for each in partitions[rows].tolist()]
        turns = np.argsort(rows).tolist()
    starts, counts = firsts.tolist(), (stops - firsts).tolist()
    bounds = (totals[:runs] + BATCH_OVERHEAD).tolist()
    return [ColumnSlice(plan, starts[i], counts[i], owners[i], bounds[i]) for i in turns]
