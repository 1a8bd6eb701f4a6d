"""Records as Python objects, made of many at a time.

A kernel writes the fields of the records of several batches into columns, each column becomes a
list by one call, and `map` makes the records of the lists. So there is no line of Python for a
single record, unless a deserializer is one.

Invariant: rows are in the order of their offsets, and each belongs to a batch that was checked.
"""

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import chain, pairwise, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.client.consumer.errors import RecordDeserializationError
from tailrace.client.consumer.fetched import DECODE_FAULTS, FetchedPart, damaged
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.kernels.arrays import Int32s, UInt8s
from tailrace.kernels.records import WANT_KEY, WANT_OFFSET, WANT_TIMESTAMP, WANT_VALUE
from tailrace.model import OFFSET_MAX, TimestampType, TopicPartition
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.column_buffers import HeaderBuffers, RowBuffers
from tailrace.records.decoding import RecordDecoder
from tailrace.records.runs import Field, Piece

Deserializer = Callable[[bytes], Any]
"""Turns the bytes of a key or value into what a program works with; not called for null."""

BLOCK_BYTES: Final = 1 << 20
"""Records are decoded ahead until they have this many bytes: a few ms of work at a time."""

BUFFER_BYTES_MAX: Final = 16 << 20
"""Buffers that a large batch has made larger than this are not kept."""

_WANTED: Final = WANT_KEY | WANT_VALUE | WANT_OFFSET | WANT_TIMESTAMP
_TYPES: Final = tuple(TimestampType)
_NO_HEADERS: Final = ()


class RowBlock:
    """Decoded records of one partition, column by column."""

    __slots__ = (
        "count",
        "epochs",
        "headers",
        "keys",
        "next_offset",
        "offsets",
        "partition",
        "taken",
        "timestamp_types",
        "timestamps",
        "values",
    )

    def __init__(self, partition: TopicPartition, decoded: "_Decoded", next_offset: int) -> None:
        rows = decoded.decoder.rows
        count = self.count = rows.count
        self.partition = partition
        self.offsets = rows.offsets[:count].copy()
        self.timestamps = rows.timestamps[:count].copy()
        self.keys = _Octets(count, rows.key_ends, valid=rows.key_valid, data=rows.key_data)
        self.values = _Octets(count, rows.value_ends, valid=rows.value_valid, data=rows.value_data)
        self.headers = _headers(rows, decoded.decoder.headers)
        self.timestamp_types = _spread(decoded.timestamp_types, decoded.counts)
        self.epochs = _spread(decoded.epochs, decoded.counts)
        self.next_offset = next_offset
        """The offset behind the batches of these rows."""
        self.taken = 0
        """Rows that were returned already."""

    def take(self, count_max: int) -> "Rows":
        """The next rows, at most so many."""
        start = self.taken
        self.taken = limit = min(self.count, start + count_max)
        return Rows(self, start, limit)

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
        limit = int(self.block.offsets.searchsorted(offset))
        return self._replace(limit=min(limit, self.limit))

    def records(
        self, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> Iterator[ConsumerRecord]:
        """The rows as records.

        Raises:
            RecordDeserializationError: a deserializer failed, for the first such record.
        """
        block, part = self.block, slice(self.start, self.limit)
        keys, values = block.keys.listed(part), block.values.listed(part)
        if key_deserializer is not None:
            keys = self._deserialized(keys, key_deserializer, part="key")
        if value_deserializer is not None:
            values = self._deserialized(values, value_deserializer, part="value")
        topic, partition = block.partition
        columns = zip(
            repeat(topic, self.row_count),
            repeat(partition),
            block.offsets[part].tolist(),
            block.timestamps[part].tolist(),
            block.timestamp_types[part],
            keys,
            values,
            block.headers[part],
            block.epochs[part],
            strict=False,
        )
        # `ConsumerRecord._make` is a Python function; this is what it calls.
        return map(tuple.__new__, repeat(ConsumerRecord), columns)

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


class _Decoded:
    """The headers of the batches that a decoder has decoded, with the decoder."""

    def __init__(self, decoder: RecordDecoder) -> None:
        self.decoder = decoder
        self.counts: list[int] = []
        self.timestamp_types: list[TimestampType] = []
        self.epochs: list[int] = []

    def add(self, piece: Piece, start: int) -> bool:
        """Decode a piece from an offset on; False if one batch of a run has to be found."""
        decoder = self.decoder
        if isinstance(piece, Batch):
            rows = decoder.append(piece, start_offset=start, limit_offset=OFFSET_MAX)
            self.counts.append(rows)
            self.timestamp_types.append(piece.timestamp_type)
            self.epochs.append(piece.leader_epoch)
            return True
        headers = np.array(piece.headers, np.int64)
        counts = decoder.append_run(piece, headers, start_offset=start, limit_offset=OFFSET_MAX)
        if counts is None:
            return False
        self.counts += counts
        flags = headers[:, Field.ATTRIBUTES] & layout.LOG_APPEND_TIME_FLAG != 0
        self.timestamp_types += map(_TYPES.__getitem__, flags.tolist())
        self.epochs += headers[:, Field.LEADER_EPOCH].tolist()
        return True


class RowReader:
    """Decodes the parts of one consumer, block by block, into buffers that are used again."""

    def __init__(self) -> None:
        self._decoder = RecordDecoder(_WANTED, has_headers=True)

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
        """The rows of the first pieces, up to `BLOCK_BYTES`."""
        if self._decoder.rows.size_max > BUFFER_BYTES_MAX:
            self._decoder = RecordDecoder(_WANTED, has_headers=True)
        self._decoder.clear()
        decoded = _Decoded(self._decoder)
        next_offset = position
        index = 0
        while index < len(part.pieces) and self._decoder.byte_count < BLOCK_BYTES:
            piece = part.pieces[index]
            try:
                is_added = decoded.add(piece, position)
            except DECODE_FAULTS as error:
                if index:
                    break
                raise damaged(
                    error,
                    part.partition,
                    place=str(part.partition),
                    position=None,
                    offset=piece.base_offset,
                    next_offset=piece.next_offset,
                ) from error
            if not is_added:
                if index:
                    break
                part.split_first()
                continue
            next_offset = piece.next_offset
            index += 1
        return RowBlock(part.partition, decoded, next_offset)


def _spread(values: list[Any], counts: Sequence[int]) -> list[Any]:
    """A value for each row from one for each batch."""
    if values and values.count(values[0]) == len(values):
        return [values[0]] * sum(counts)
    return list(chain.from_iterable(map(repeat, values, counts)))


class _Octets:
    """The bytes of a column, in one piece until rows are taken.

    Objects that are made when they are wanted are still in the processor's cache then.
    """

    __slots__ = ("_data", "_ends", "_has_nulls", "_items", "_sizes", "_valid")

    def __init__(self, count: int, ends: Int32s, *, valid: UInt8s, data: UInt8s) -> None:
        self._valid = valid[:count].copy()
        self._has_nulls = not self._valid.all()
        self._ends = ends[: count + 1].copy()
        self._sizes = np.diff(self._ends)
        octets = data[: int(ends[count])].tobytes()
        self._data = BytesIO(octets)
        self._items: npt.NDArray[np.void] | None = None
        """The column as an array, if all of it is of one size, as keys and measurements often."""
        if count and self._sizes[0] and bool((self._sizes == self._sizes[0]).all()):
            # Not of `getbuffer`, for which `BytesIO` would make a copy of its own.
            self._items = np.frombuffer(octets, f"V{self._sizes[0]}")

    def listed(self, part: slice) -> list[bytes | None]:
        """The bytes of each row, None where it is null."""
        if self._items is not None:
            return self._items[part].tolist()  # type: ignore[no-any-return]
        self._data.seek(self._ends[part.start])
        # Half as long as slices, each of which would be an object of its own.
        found: list[bytes | None] = list(map(self._data.read, self._sizes[part].tolist()))
        if self._has_nulls:
            for index in np.flatnonzero(self._valid[part] == 0).tolist():
                found[index] = None
        return found


def _headers(
    rows: RowBuffers, headers: HeaderBuffers
) -> list[tuple[tuple[str, bytes | None], ...]]:
    """The headers of each row."""
    row_count, count = map(int, headers.cursors[:2])
    if not count:
        return [_NO_HEADERS] * rows.count
    octets = headers.key_data[: int(headers.key_ends[count])].tobytes()
    ends = headers.key_ends[: count + 1].tolist()
    names = [octets[start:end].decode(errors="replace") for start, end in pairwise(ends)]
    values = _Octets(count, headers.value_ends, valid=headers.value_valid, data=headers.value_data)
    pairs = list(zip(names, values.listed(slice(0, count)), strict=True))
    limits = headers.row_ends[: row_count + 1].tolist()
    return list(map(tuple, map(pairs.__getitem__, map(slice, limits, limits[1:]))))
