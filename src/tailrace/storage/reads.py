"""Reads over the segments of a log: bytes from an offset, offsets for timestamps, aborted ranges.

Functions without state: any thread may call them, and they read the segments as they were at the
call. The caller gives the offset up to which a reader may read (`limit_offset`, see `positions`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.model import NO_TIMESTAMP, Offset, Position
from tailrace.records.batch import Batch
from tailrace.records.untaken import TakeBatches
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.records_file import BatchPosition, LogSlice
from tailrace.storage.segment import Segment, max_timestamp_from
from tailrace.storage.segments import Segments


class ReadSlice(NamedTuple):
    """Bytes of one segment that start with the batch that has the requested offset."""

    records: LogSlice | None
    """Not read yet; may end inside a batch, which the reader drops. None if there are no bytes."""
    log_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    aborted: tuple[AbortedTxn, ...] = ()
    """The aborted transactions whose batches a read_committed consumer must drop."""
    is_first_incomplete: bool = False
    """Whether the limit ends inside the first batch, so that the bytes are of no use."""

    def read(self) -> memoryview:
        """Read all bytes now; may wait for a device.

        Raises:
            OSError: as `LogSlice.read`.
        """
        return memoryview(b"") if self.records is None else self.records.read()

    def upto(self, size: int) -> "ReadSlice":
        """The same with at most the first `size` bytes."""
        return self._replace(records=None if self.records is None else self.records.upto(size))


class _FirstBatch(NamedTuple):
    """The position of the first batch of a read."""

    segment: Segment
    following: Segment | None
    place: BatchPosition


def slice_from(
    segments: Segments,
    offset: Offset,
    *,
    limit_offset: Offset,
    bytes_max: int,
    is_first_whole: bool,
    skips_empty: bool,
    bounds_closely: bool,
) -> tuple[LogSlice | None, Offset, bool]:
    """Bytes from the batch with `offset` on, and an offset above all offsets in them.

    Also whether they end inside the first batch (Kafka's `firstEntryIncomplete`).

    With `bounds_closely` this is the lowest such offset in the offset index; that takes 4
    microseconds. A batch with `limit_offset` is left out, as are those after it. With `skips_empty`
    the slice begins at the first batch with a record, if there is one below the limit: compaction
    leaves batches without records, and librdkafka treats a response with only such batches as
    truncated, and gives up after ten of them.

    Raises:
        CorruptionError: bytes that cannot be the start of a batch.
    """
    found = _find_first(segments, offset, limit_offset=limit_offset, skips_empty=skips_empty)
    if found is None:
        return None, limit_offset, False
    segment, following, place = found
    start = place.position
    end = Position(start + (max(bytes_max, place.size) if is_first_whole else bytes_max))
    above = limit_offset
    if following is not None and following.base_offset <= limit_offset:
        end, above = min(end, segment.size), following.base_offset
    else:
        end = _bounded(segment, end, limit_offset)
    near = segment.limit_near(end) if bounds_closely else None
    records = segment.log.slice(start, max(start, end)) if end > start else None
    is_incomplete = not is_first_whole and bytes_max < place.size
    return records, above if near is None else min(near, above), is_incomplete


def _find_first(
    segments: Segments, offset: Offset, *, limit_offset: Offset, skips_empty: bool
) -> _FirstBatch | None:
    empty: _FirstBatch | None = None
    for segment, following in segments.pairs_from(offset):
        place = segment.find(offset)
        while place is not None:
            found = _FirstBatch(segment, following, place)
            if empty is not None:
                offsets = segment.log.offsets_at(place.position)
                if offsets is None or offsets[1] >= limit_offset:
                    return empty
            if not (skips_empty and segment.log.has_no_record(place)):
                return found
            # Return the last of several empty batches: it takes the reader furthest.
            empty = found
            place = segment.log.find(Offset(0), place.end)
    return empty


def _bounded(segment: Segment, end: Position, offset: Offset) -> Position:
    """The smaller of `end` and the position of the batch with `offset`."""
    # Read the size before the search: another thread may append meanwhile.
    size = segment.size
    place = segment.find(offset)
    return min(end, size if place is None else place.position)


def batches_from(segments: Segments, offset: Offset, take: TakeBatches) -> Iterator[Batch]:
    """Every batch from the one with `offset` on that `take` leaves.

    Raises:
        CorruptionError: bytes that cannot be the start of a batch.
    """
    for segment in segments.from_offset(offset):
        place = segment.find(offset)
        if place is not None:
            yield from segment.log.untaken(place.position, take)


def aborted_between(
    segments: Iterable[Segment], start_offset: Offset, limit_offset: Offset
) -> tuple[AbortedTxn, ...]:
    """The aborted transactions with a record from `start_offset` up to below `limit_offset`.

    `segments` are those from the one with `start_offset` on. A transaction is in the index of the
    segment with its marker, so later indexes are read until one shows that no more can follow.

    Raises:
        CorruptionError: a transaction index is damaged.
    """
    found: list[AbortedTxn] = []
    for segment in segments:
        aborted, is_complete = segment.transactions.collect(start_offset, limit_offset)
        found += aborted
        if is_complete:
            break
    return tuple(found)


def first_at_or_after(
    segments: Segments, timestamp: int, *, start_offset: Offset
) -> TimestampOffset | None:
    """The first record from `start_offset` on with at least `timestamp` (ms).

    Transaction markers count as records, as in Kafka.

    Raises:
        CorruptionError: the batch that holds the answer is damaged.
    """
    for segment in segments:
        found = segment.find_timestamp(timestamp, start_offset=start_offset)
        if found is not None:
            return found
    return None


def max_timestamp(segments: Segments, *, start_offset: Offset) -> int:
    """The largest timestamp of a record from `start_offset` on, in milliseconds, or -1.

    Apache Kafka uses whole segments here: after DeleteRecords it may return the offset of a deleted
    record. The offset returned here can always be read.

    Raises:
        CorruptionError: a batch on the way is damaged.
    """
    return max(
        (
            max_timestamp_from(segment, start_offset)
            for segment in segments.from_offset(start_offset)
        ),
        default=NO_TIMESTAMP,
    )
