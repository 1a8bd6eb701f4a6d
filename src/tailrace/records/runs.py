"""`BatchRun`: neighbouring batches that are decoded by one call.

Producers send 16 KB batches by default, and Python's work for each batch takes longer than the
compiled code that decodes its records. Here bytes are cut into runs of up to `RUN_BYTES`, which
`ColumnsBuilder.append_run` decodes with one call.

Compressed batches, batches of transactions, markers, older formats and damaged batches are not part
of a run. Each of them comes as a `Batch`, as from `legacy.read_all_batches`.

Invariant: `Batch.check` holds for each batch of a run, and its offsets are larger than those of the
batch before it.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from tailrace.kernels import RECORD_SIZE_MIN
from tailrace.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tailrace.records import layout, packages
from tailrace.records.batch import Batch
from tailrace.records.legacy import read_all_batches

RUN_BYTES: Final = 512 * 1024
"""A run ends with the batch that reaches this size: small enough for the bytes to be still in the
processor's cache when they are decoded after the check of the CRC."""

_SINGLE: Final = layout.CODEC_MASK | layout.TRANSACTIONAL_FLAG | layout.CONTROL_FLAG
"""Attributes of batches that are not part of a run."""

_EMPTY_LENGTH: Final = layout.HEADER_SIZE - layout.LOG_OVERHEAD

Header: TypeAlias = tuple[
    Offset,
    int,
    LeaderEpoch,
    int,
    int,
    int,
    int,
    int,
    int,
    ProducerId,
    ProducerEpoch,
    int,
    int,
]
"""The fields of `layout.HEADER`, in their order; `Field` names them."""


class Field(IntEnum):
    """Places in a `Header`."""

    BASE_OFFSET = 0
    LENGTH = 1
    LEADER_EPOCH = 2
    MAGIC = 3
    CRC = 4
    ATTRIBUTES = 5
    LAST_OFFSET_DELTA = 6
    BASE_TIMESTAMP = 7
    MAX_TIMESTAMP = 8
    PRODUCER_ID = 9
    PRODUCER_EPOCH = 10
    BASE_SEQUENCE = 11
    RECORD_COUNT = 12


class BatchRun:
    """Batches of format v2 that follow each other without a gap of bytes."""

    __slots__ = ("base_offset", "headers", "last_offset", "size", "view")

    def __init__(self, view: memoryview, headers: list[Header]) -> None:
        self.view = view
        """The bytes of exactly these batches."""
        self.headers = headers
        self.size = len(view)
        self.base_offset, *_ = headers[0]
        """Base offset of the first batch."""
        self.last_offset = last_offset(headers[-1])
        """Offset of the last record of the last batch, even if compaction has removed it."""

    @property
    def next_offset(self) -> Offset:
        """The offset after the run."""
        return Offset(self.last_offset + 1)

    @property
    def record_count(self) -> int:
        """Records of all its batches."""
        return sum(header[Field.RECORD_COUNT] for header in self.headers)

    @property
    def positions(self) -> list[int]:
        """Position of each batch in `view`."""
        sizes = (header[Field.LENGTH] + layout.LOG_OVERHEAD for header in self.headers)
        return list(accumulate(sizes, initial=0))[:-1]

    def since(self, offset: Offset) -> "BatchRun":
        """The run without the batches that end before `offset`, which it must reach."""
        index = 0
        while last_offset(self.headers[index]) < offset:
            index += 1
        if not index:
            return self
        return BatchRun(self.view[self.positions[index] :], self.headers[index:])

    def batches(self, start_offset: Offset, limit_offset: Offset) -> Iterator[tuple[int, Batch]]:
        """Position in the run and batch, of those that hold an offset of a range."""
        limits = pairwise([*self.positions, self.size])
        for header, (position, limit) in zip(self.headers, limits, strict=True):
            if header[Field.BASE_OFFSET] >= limit_offset:
                return
            if last_offset(header) >= start_offset:
                yield position, Batch(self.view[position:limit])


Piece: TypeAlias = Batch | BatchRun


def batches_of(
    piece: Piece, start_offset: Offset, limit_offset: Offset
) -> Iterator[tuple[int, Batch]]:
    """Each batch with its position in the piece; from a run, those with an offset of the range."""
    if isinstance(piece, Batch):
        yield 0, piece
    else:
        yield from piece.batches(start_offset, limit_offset)


class RunReader:
    """Iterates over `(position, piece)`; `position` then says where the whole batches end."""

    __slots__ = ("_batches", "_view", "position")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._batches = read_all_batches(view)
        self.position = 0
        """Position of the next piece; less than the view's size if a partial piece follows."""

    def __iter__(self) -> Iterator[tuple[int, Piece]]:
        return self

    def __next__(self) -> tuple[int, Piece]:
        """The next piece and the position where it starts."""
        position = self.position
        headers, end = _scan(self._view, position)
        if headers:
            self.position = end
            return position, BatchRun(self._view[position:end], headers)
        self._batches.position = position
        found = next(self._batches)
        self.position = self._batches.position
        return found


def read_runs(view: memoryview) -> RunReader:
    """The whole batches of `view`, in runs where that can be; ends silently at a partial one.

    Raises:
        CorruptionError: from the iteration, as `read_all_batches`; it has the position.
    """
    return RunReader(view)


def last_offset(header: Header) -> Offset:
    """The offset of the last record of the batch, even if compaction has removed it."""
    # A call of `Offset` for each batch would cost as much as the sum.
    return header[Field.BASE_OFFSET] + header[Field.LAST_OFFSET_DELTA]  # type: ignore[return-value]


def _scan(view: memoryview, position: int) -> tuple[list[Header], int]:
    """The headers of the run at `position`, and where it ends; none if there is no run."""
    headers: list[Header] = []
    unpack, check, size = layout.HEADER.unpack_from, packages.crc32c.crc32c, len(view)
    limit = min(position + RUN_BYTES, size - layout.HEADER_SIZE + 1)
    next_offset = 0
    while position < limit:
        header = unpack(view, position)
        base_offset, length, _, magic, crc, attributes, delta, *_, count = header
        end = position + length + layout.LOG_OVERHEAD
        if (
            magic != layout.MAGIC
            or attributes & _SINGLE
            or length < _EMPTY_LENGTH
            or end > size
            or delta < 0
            or not 0 <= count <= (length - _EMPTY_LENGTH) // RECORD_SIZE_MIN
            or check(view[position + layout.ATTRIBUTES_POSITION : end]) != crc
        ):
            break
        if base_offset < next_offset:
            # Either offset may be the wrong one, so the batch before this one is taken out of the
            # run: the caller then checks each of the two by itself.
            if len(headers) > 1:
                position -= headers.pop()[Field.LENGTH] + layout.LOG_OVERHEAD
            break
        headers.append(header)
        next_offset = base_offset + delta + 1
        position = end
    return headers, position
