"""Fetched records as Python objects, made of many at a time.

    pieces -> source: the payloads of several batches, in one buffer
    source -> records, some hundred at a time

One call of a kernel makes the records that a poll returns. So there is no line of Python for a
single record, unless a deserializer is one, and each byte of a key or value is copied once.

Invariant: records are in the order of their offsets, and each belongs to a batch that was checked.
"""

from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.client.consumer.errors import RecordDeserializationError
from tailrace.client.consumer.fetched import DECODE_FAULTS, FetchedPart, damaged
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.kernels import PAYLOAD_WIDTH, Payload, RecordFault, int64s
from tailrace.kernels.rows import (
    KEY_INDEX,
    ROW_CURSOR_SIZE,
    RowCursor,
    deserialize_records,
    take_records,
)
from tailrace.model import TimestampType
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.payloads import payload_of, payloads_of, readable_view
from tailrace.records.runs import BatchRun, Piece

if TYPE_CHECKING:
    from tailrace.model import TopicPartition

Deserializer = Callable[[bytes], Any]
"""Turns the bytes of a key or value into what a program works with; not called for null."""

BLOCK_BYTES: Final = 1 << 20
"""Batches are decompressed ahead until they have this many bytes: a few ms of work at a time."""

_TYPES: Final = (TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME)


class Rows(NamedTuple):
    """Neighbouring records of one partition."""

    records: list[ConsumerRecord]
    next_offset: int
    """The offset to read on from."""


class RowSource:
    """The records of neighbouring batches, which are taken bit by bit."""

    __slots__ = ("_batches", "_cursor", "_octets", "_payloads", "_place", "_start", "next_offset")

    def __init__(
        self,
        partition: "TopicPartition",
        batches: BatchRun | list[Batch],
        *,
        octets: memoryview,
        payloads: "array[int]",
        start: int,
        next_offset: int,
    ) -> None:
        """Records from the offset `start` on; `payloads` are the places of the batches in `octets`.

        `next_offset` is the one after the batches.
        """
        self._place = tuple(partition)
        self._octets = octets
        self._payloads = payloads
        self._batches = batches
        self._start = start
        self._cursor = int64s(ROW_CURSOR_SIZE)
        self.next_offset = next_offset

    @property
    def batch(self) -> Batch:
        index = self._cursor[RowCursor.BATCH]
        if not isinstance(self._batches, BatchRun):
            return self._batches[index]
        at = PAYLOAD_WIDTH * index
        start, limit = self._payloads[at + Payload.POSITION], self._payloads[at + Payload.LIMIT]
        return Batch(self._octets[start - layout.HEADER_SIZE : limit])

    def take(self, count_max: int) -> Rows | None:
        """The next `count_max` records or fewer; None if there are no more.

        Raises:
            CorruptRecordError: a record of `batch` breaks a rule of the format.
        """
        found: list[ConsumerRecord] = []
        # One call for all records of a poll: a line of Python for each would cost more than the
        # rest.
        status = take_records(
            self._octets, self._payloads, self._cursor, self._start, count_max,
            ConsumerRecord, self._place, _TYPES, found,
        )  # fmt: skip
        if status < 0:
            # The kernel says only that a rule is broken; the walk in Python finds which, and where.
            check_records(self.batch)
            raise AssertionError(f"a batch has {RecordFault(-status)!r}, and the walk found none")
        if not found:
            return None
        # After the last record of a batch there may be a gap: compaction has removed records.
        is_over = PAYLOAD_WIDTH * self._cursor[RowCursor.BATCH] == len(self._payloads)
        return Rows(found, self.next_offset if is_over else found[-1].offset + 1)


def take_rows(part: FetchedPart, position: int, count_max: int) -> Rows | None:
    """The next records of a part from `position` on, `count_max` or fewer; None if it has no more.

    Raises:
        DamagedRecordsError: the next batch is damaged; `next_offset` is after it.
    """
    assert count_max > 0, "no records are all records, or none"
    while part.pieces:
        try:
            if part.source is None:
                part.source = _source(part, position)
            source = part.source
            rows = source.take(count_max)
        except DECODE_FAULTS as error:
            batch = part.pieces[0] if part.source is None else part.source.batch
            raise damaged(
                error,
                part.partition,
                place=str(part.partition),
                position=None,
                offset=batch.base_offset,
                next_offset=batch.next_offset,
            ) from error
        if rows is not None:
            return rows
        part.passed(source.next_offset)
        position = max(position, source.next_offset)
        # It may have begun in the middle of a batch; the next one begins a source of its own.
        part.source = None
    return None


def deserialized(
    records: list[ConsumerRecord], key: Deserializer | None, value: Deserializer | None
) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
    """The records with deserialized keys and values.

    They end before the first that a deserializer has failed on, and its error comes with them.
    """
    made, part, error = deserialize_records(ConsumerRecord, records, key, value)
    if error is None:
        return made, None
    failed = records[len(made)]
    found = RecordDeserializationError(
        failed.topic_partition,
        failed.offset,
        part="key" if part == KEY_INDEX else "value",
        reason=f"{type(error).__name__}: {error}",
    )
    found.__cause__ = error
    return made, found


def _source(part: FetchedPart, start: int) -> RowSource:
    """The first run of a part, or the first batches that are not in a run."""
    first = part.pieces[0]
    if not isinstance(first, BatchRun):
        return _source_of_batches(part.partition, part.pieces, start)
    return RowSource(
        part.partition,
        first,
        octets=first.view,
        payloads=payloads_of(first),
        start=start,
        next_offset=first.next_offset,
    )


def _source_of_batches(
    partition: "TopicPartition", pieces: Iterable[Piece], start: int
) -> RowSource:
    """The first batch, and those that follow it before a run, until there are `BLOCK_BYTES`.

    Raises:
        CorruptRecordError, CorruptCompressionError, UnsupportedCodecError, OverflowError: the first
            batch cannot be read; as `readable_view`.
    """
    views: list[memoryview] = []
    payloads = array("q")
    batches: list[Batch] = []
    size = 0
    for each in pieces:
        if isinstance(each, BatchRun) or size >= BLOCK_BYTES:
            break
        try:
            view = readable_view(each, collected=size)
        except DECODE_FAULTS:
            # The batches before a damaged one are returned first.
            if not batches:
                raise
            break
        # Payloads lie one after the other in one buffer, for which this is the list of places.
        payloads.extend(payload_of(each, size, len(view)))
        views.append(view)
        batches.append(each)
        size += len(view)
    return RowSource(
        partition,
        batches,
        octets=views[0] if len(views) == 1 else memoryview(b"".join(views)),
        payloads=payloads,
        start=start,
        next_offset=batches[-1].next_offset,
    )
