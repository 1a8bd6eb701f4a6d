"""Records as Python objects, made of many at a time.

    pieces -> block: bytes, and the places of all fields in them (`place_records`)
    block  -> records, some hundred at a time: their keys and values, and then the records

A kernel finds the fields of the records of several batches, and others make the objects of the rows
that are returned. So there is no line of Python for a single record, unless a deserializer is one,
and each byte of a key or value is copied once.

Invariant: rows are in the order of their offsets, and each belongs to a batch that was checked.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tailrace.client.consumer.errors import RecordDeserializationError
from tailrace.client.consumer.fetched import DECODE_FAULTS, FetchedPart, damaged
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.kernels import Payload, RecordFault
from tailrace.kernels.arrays import Int32s, Int64s, UInt8s
from tailrace.kernels.rows import (
    KEY_PLACE,
    PLACES_WIDTH,
    VALUE_PLACE,
    list_octets,
    list_records,
    place_records,
)
from tailrace.model import OFFSET_MAX, TimestampType, TopicPartition
from tailrace.records.checks import check_records
from tailrace.records.column_buffers import HeaderBuffers
from tailrace.records.decoding import payloads_of, readable_view
from tailrace.records.runs import BatchRun, Field, Piece

if TYPE_CHECKING:
    from tailrace.records.batch import Batch

Deserializer = Callable[[bytes], Any]
"""Turns the bytes of a key or value into what a program works with; not called for null."""

BLOCK_BYTES: Final = 1 << 20
"""Records are decoded ahead until they have this many bytes: a few ms of work at a time."""

BUFFER_BYTES_MAX: Final = 16 << 20
"""Buffers that the headers of a large batch have made larger than this are not kept."""

_TYPES: Final = tuple(TimestampType)
Headers = tuple[tuple[str, bytes | None], ...]

_NO_HEADERS: Final[Headers] = ()
_leader_epoch: Final = itemgetter(int(Field.LEADER_EPOCH))


class _Source(NamedTuple):
    """The records of neighbouring batches, in one buffer."""

    octets: memoryview
    payloads: Int64s
    """A row for each batch, as `place_records` takes them."""
    record_count: int
    """Records of all batches."""
    timestamp_types: list[TimestampType]
    """One for each batch, like `epochs`."""
    epochs: list[int]
    next_offset: int
    """The offset behind the batches."""


class RowBlock:
    """Decoded records of one partition, column by column."""

    __slots__ = (
        "count",
        "epochs",
        "headers",
        "next_offset",
        "offsets",
        "partition",
        "places",
        "source",
        "taken",
        "timestamp_types",
        "timestamps",
    )

    def __init__(self, partition: TopicPartition, source: _Source) -> None:
        """Room for all records of the source; `place` finds them."""
        self.partition = partition
        self.source = source
        self.offsets = np.empty(source.record_count, np.int64)
        self.timestamps = np.empty(source.record_count, np.int64)
        self.places = np.empty(source.record_count * PLACES_WIDTH, np.int32)
        self.next_offset = source.next_offset
        """The offset behind the batches of these rows."""
        self.count = 0
        self.taken = 0
        """Rows that were returned already."""

    def place(self, start: int, headers: HeaderBuffers) -> RecordFault | None:
        """Find the records from an offset on; `headers` is used for them, and again later.

        Returns the broken rule if a record breaks one; the block is of no use then.
        """
        octets, payloads, room, types, epochs, _ = self.source
        totals = np.zeros(1, np.int64)
        count = place_records(
            octets, payloads.reshape(-1), room, start,
            self.offsets, self.timestamps, self.places, totals,
        )  # fmt: skip
        if count < 0:
            return RecordFault(-count)
        self.count = count
        counts = payloads[:, Payload.ROWS].tolist()
        self.timestamp_types = _spread(types, counts)
        self.epochs = _spread(epochs, counts)
        self.headers: list[Headers] = [_NO_HEADERS] * count
        if totals[0]:
            headers.clear()
            status = headers.decode(octets, payloads.reshape(-1), start=start, limit=OFFSET_MAX)
            assert status == 0, "the records were sound a moment ago"
            self.headers = _headers(headers)
        return None

    def take(self, count_max: int) -> "Rows":
        """The next rows, at most so many."""
        start = self.taken
        self.taken = limit = min(self.count, start + count_max)
        return Rows(self, start, limit)

    def octets(self, which: int, start: int, count: int) -> list[bytes | None]:
        """The keys or values of rows, by the constants of `kernels.rows`; None where it is null."""
        return list_octets(self.source.octets, self.places, which=which, start=start, count=count)

    @property
    def position(self) -> int:
        """The offset after the rows that were taken."""
        if self.taken == self.count:
            return self.next_offset
        return int(self.offsets[self.taken])

    @property
    def epoch(self) -> int:
        """The leader epoch of the last row that was taken."""
        return self.epochs[self.taken - 1] if self.taken else -1


class Rows(NamedTuple):
    """A range of the rows of a block."""

    block: RowBlock
    start: int
    limit: int

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.limit - self.start

    @property
    def first_offset(self) -> int:
        """Offset of the first row."""
        return int(self.block.offsets[self.start])

    def before(self, offset: int) -> "Rows":
        """The rows with smaller offsets."""
        limit = int(self.block.offsets[: self.block.count].searchsorted(offset))
        return self._replace(limit=min(limit, self.limit))

    def records(
        self, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> list[ConsumerRecord]:
        """The rows as records.

        Raises:
            RecordDeserializationError: a deserializer failed, for the first such record.
        """
        block, part, count = self.block, slice(self.start, self.limit), self.row_count
        keys: list[Any] = block.octets(KEY_PLACE, self.start, count)
        values: list[Any] = block.octets(VALUE_PLACE, self.start, count)
        if key_deserializer is not None:
            keys = self._deserialized(keys, key_deserializer, part="key")
        if value_deserializer is not None:
            values = self._deserialized(values, value_deserializer, part="value")
        topic, partition = block.partition
        columns = (
            [topic] * count,
            [partition] * count,
            block.offsets[part].tolist(),
            block.timestamps[part].tolist(),
            block.timestamp_types[part],
            keys,
            values,
            block.headers[part],
            block.epochs[part],
        )
        is_tracked = key_deserializer is not None or value_deserializer is not None
        return list_records(ConsumerRecord, columns, is_tracked=is_tracked)

    def _deserialized(
        self, column: list[bytes | None], deserialize: Deserializer, *, part: str
    ) -> list[Any]:
        found: list[Any] = []
        try:
            found.extend(None if each is None else deserialize(each) for each in column)
        except Exception as error:
            offset = int(self.block.offsets[self.start + len(found)])
            raise RecordDeserializationError(
                self.block.partition, offset, part=part, reason=f"{type(error).__name__}: {error}"
            ) from error
        return found


class RowReader:
    """Decodes the parts of one consumer, block by block."""

    def __init__(self) -> None:
        self._headers = HeaderBuffers()

    def next_rows(self, part: FetchedPart, position: int, count_max: int) -> Rows | None:
        """The next rows of a part from `position` on; None if it has no more.

        Raises:
            DamagedRecordsError: the next batch is damaged; `next_offset` is behind it.
        """
        block = part.block
        while not isinstance(block, RowBlock) or block.taken == block.count:
            if isinstance(block, RowBlock):
                part.passed(block.next_offset)
                position = max(position, block.next_offset)
                part.block = None
            if not part.pieces:
                return None
            part.block = block = self._decode(part, position)
        return block.take(count_max)

    def _decode(self, part: FetchedPart, position: int) -> RowBlock:
        """The rows of the first run, or of the first batches that are not in a run."""
        while isinstance(first := part.pieces[0], BatchRun):
            block = self._placed(part.partition, _source_of_run(first), position)
            if block is not None:
                return block
            part.split_first()
        try:
            # If one of several batches is bad, those before it come first.
            for size_max in (BLOCK_BYTES, 0):
                source = _source_of_batches(part.pieces, size_max)
                block = self._placed(part.partition, source, position)
                if block is not None:
                    return block
            check_records(first)
        except DECODE_FAULTS as error:
            raise damaged(
                error,
                part.partition,
                place=str(part.partition),
                position=None,
                offset=first.base_offset,
                next_offset=first.next_offset,
            ) from error
        raise AssertionError("a batch has a bad record, and the walk found none")

    def _placed(self, partition: TopicPartition, source: _Source, position: int) -> RowBlock | None:
        """A block from `position` on; None if a record breaks a rule of the format."""
        if self._headers.spare_max > BUFFER_BYTES_MAX:
            self._headers = HeaderBuffers()
        block = RowBlock(partition, source)
        return block if block.place(position, self._headers) is None else None


def _source_of_run(run: BatchRun) -> _Source:
    """The batches of a run where they are."""
    payloads, count = payloads_of(run)
    types = [_TYPES[1 - each] for each in payloads[:, Payload.KEEPS_DELTAS].tolist()]
    epochs = list(map(_leader_epoch, run.headers))
    return _Source(run.view, payloads, count, types, epochs, run.next_offset)


def _source_of_batches(pieces: Iterable[Piece], size_max: int) -> _Source:
    """The first batch, and those that follow it before a run, until there are `size_max` bytes.

    Raises:
        CorruptRecordError, CorruptCompressionError, UnsupportedCodecError, OverflowError: the first
            batch cannot be read; as `RecordDecoder.append`.
    """
    views: list[memoryview] = []
    rows: list[tuple[int, ...]] = []
    batches: list[Batch] = []
    size = 0
    for each in pieces:
        if isinstance(each, BatchRun) or (batches and size >= size_max):
            break
        try:
            view = readable_view(each, collected=size)
        except DECODE_FAULTS:
            if not batches:
                raise
            break
        is_create_time = each.timestamp_type is TimestampType.CREATE_TIME
        time = each.base_timestamp if is_create_time else each.max_timestamp
        limit = size + len(view)
        rows.append((size, limit, each.record_count, each.base_offset, time, is_create_time, 0))
        views.append(view)
        batches.append(each)
        size = limit
    octets = views[0] if len(views) == 1 else memoryview(b"".join(views))
    return _Source(
        octets,
        np.array(rows, np.int64),
        sum(each.record_count for each in batches),
        [each.timestamp_type for each in batches],
        [each.leader_epoch for each in batches],
        batches[-1].next_offset,
    )


def _spread(values: list[Any], counts: Sequence[int]) -> list[Any]:
    """A value for each row from one for each batch."""
    if values and values.count(values[0]) == len(values):
        return [values[0]] * sum(counts)
    return list(chain.from_iterable(map(repeat, values, counts)))


def _headers(headers: HeaderBuffers) -> list[Headers]:
    """The headers of each row."""
    row_count, count = map(int, headers.cursors[:2])
    octets = _items(headers.key_data, headers.key_ends[: count + 1])
    names = {each: each.decode(errors="replace") for each in set(octets) if each is not None}
    values = _items(
        headers.value_data, headers.value_ends[: count + 1], headers.value_valid[:count]
    )
    pairs = list(zip(map(names.__getitem__, octets), values, strict=True))
    limits = headers.row_ends[: row_count + 1].tolist()
    return list(map(tuple, map(pairs.__getitem__, map(slice, limits, limits[1:]))))


def _items(data: UInt8s, ends: Int32s, valid: "UInt8s | None" = None) -> list[Any]:
    """The bytes of each item of a column in Arrow's layout."""
    places = np.empty((len(ends) - 1, PLACES_WIDTH), np.int32)
    places[:, KEY_PLACE] = ends[:-1]
    places[:, KEY_PLACE + 1] = np.diff(ends)
    if valid is not None:
        places[valid == 0, KEY_PLACE + 1] = -1
    return list_octets(data, places.reshape(-1), which=KEY_PLACE, start=0, count=len(places))
