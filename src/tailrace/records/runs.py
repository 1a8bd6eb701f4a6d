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
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from tailrace.kernels import RunFact, int64s, scan_run
from tailrace.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.legacy import read_all_batches

if TYPE_CHECKING:
    from array import array

_DECODED: Final = layout.CODEC_MASK | layout.TRANSACTIONAL_FLAG | layout.CONTROL_FLAG
"""Attributes of batches that are in no run whose records are decoded. LogAppendTime may be."""
_UNDECODED: Final = layout.TRANSACTIONAL_FLAG | layout.CONTROL_FLAG

RUN_BYTES: Final = 512 * 1024
"""A run ends with the batch that reaches this size: small enough for the bytes to be still in the
processor's cache when they are decoded after the check of the CRC."""

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

    __slots__ = ("_facts", "_single", "base_offset", "last_offset", "size", "view")

    def __init__(self, view: memoryview, facts: "array[int]", *, single: int = _DECODED) -> None:
        self._single = single
        self.view = view
        """The bytes of exactly these batches."""
        self.size = len(view)
        self.base_offset = Offset(int.from_bytes(view[:8]))
        """Base offset of the first batch."""
        self.last_offset = Offset(facts[RunFact.LAST_OFFSET])
        """Offset of the last record of the last batch, even if compaction has removed it."""
        # The kernel has summed these up while it had the headers in the cache.
        self._facts = facts

    @property
    def next_offset(self) -> Offset:
        """The offset after the run."""
        return Offset(self.last_offset + 1)

    @property
    def batch_count(self) -> int:
        """Number of its batches, one or more."""
        return self._facts[RunFact.BATCHES]

    @property
    def record_count(self) -> int:
        """Records of all its batches."""
        return self._facts[RunFact.RECORDS]

    @property
    def due_offset(self) -> Offset:
        """The offset after the last batch but one; of a run of one batch, its base offset."""
        return Offset(self._facts[RunFact.DUE_OFFSET])

    @property
    def is_dense(self) -> bool:
        """Whether no offset is missing between its batches, and all have the same leader epoch."""
        return self._facts[RunFact.IS_DENSE] == 1

    @property
    def has_producers(self) -> bool:
        """Whether a batch has a producer id."""
        return self._facts[RunFact.HAS_PRODUCERS] == 1

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its batches in milliseconds, or -1."""
        return self._facts[RunFact.MAX_TIMESTAMP]

    @property
    def max_timestamp_offset(self) -> Offset:
        """Last offset of the first batch that has it; -1 if none has a timestamp."""
        return Offset(self._facts[RunFact.MAX_TIMESTAMP_OFFSET])

    @property
    def first_header(self) -> Header:
        """The header of the first batch."""
        return layout.HEADER.unpack_from(self.view)

    @property
    def last_header(self) -> Header:
        """The header of the last batch."""
        return layout.HEADER.unpack_from(self.view, self._facts[RunFact.LAST_AT])

    @property
    def headers(self) -> list[Header]:
        """The headers of all batches, unpacked again at each access."""
        # Not kept: most readers of a run ask for no header.
        return [layout.HEADER.unpack_from(self.view, at) for at in self.positions]

    @property
    def positions(self) -> list[int]:
        """Position of each batch in `view`."""
        positions, at = [], 0
        while at < self.size:
            positions.append(at)
            at += layout.FRAME.unpack_from(self.view, at)[1] + layout.LOG_OVERHEAD
        return positions

    def since(self, offset: Offset) -> "BatchRun":
        """The run without the batches that end before `offset`, which it must reach."""
        if last_offset(self.first_header) >= offset:
            return self
        places = zip(self.positions, self.headers, strict=True)
        start = next(at for at, header in places if last_offset(header) >= offset)
        # The facts are sums over all batches, so the rest needs its own, at the price of its
        # checksums once more.
        rest = _scan(self.view, start, self._single)
        assert rest is not None
        return rest

    def until(self, position: int) -> "BatchRun":
        """The run of the batches before the one at `position`, which is not the first."""
        # As in `since`, at the price of its checksums once more.
        rest = _scan(self.view[:position], 0, self._single)
        assert rest is not None
        return rest

    def batches(self, start_offset: Offset, limit_offset: Offset) -> Iterator[tuple[int, Batch]]:
        """Position in the run and batch, of those that hold an offset of a range."""
        limits = pairwise([*self.positions, self.size])
        for header, (position, limit) in zip(self.headers, limits, strict=True):
            # Offsets rise within a run, so no later batch can be in the range.
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

    __slots__ = ("_batches", "_single", "_view", "position")

    def __init__(self, view: memoryview, single: int) -> None:
        self._view = view
        self._single = single
        self._batches = read_all_batches(view)
        self.position = 0
        """Position of the next piece; less than the view's size if a partial piece follows."""

    def __iter__(self) -> Iterator[tuple[int, Piece]]:
        return self

    def __next__(self) -> tuple[int, Piece]:
        """The next piece and the position where it starts."""
        position = self.position
        run = _scan(self._view, position, self._single)
        if run is not None:
            self.position = position + run.size
            return position, run
        # No run here: the slow reader says what the batch is, or what is wrong with it.
        self._batches.position = position
        found = next(self._batches)
        self.position = self._batches.position
        return found


def read_runs(view: memoryview) -> RunReader:
    """The whole batches of `view`, in runs where that can be; ends silently at a partial one.

    Raises:
        CorruptionError: from the iteration, as `read_all_batches`; it has the position.
    """
    return RunReader(view, _DECODED)


def read_undecoded_runs(view: memoryview) -> RunReader:
    """The same for a caller that decodes no records: compressed batches are in runs, too.

    Raises:
        CorruptionError: from the iteration, as `read_runs`.
    """
    return RunReader(view, _UNDECODED)


def last_offset(header: Header) -> Offset:
    """The offset of the last record of the batch, even if compaction has removed it."""
    # A call of `Offset` for each batch would cost as much as the sum.
    return header[Field.BASE_OFFSET] + header[Field.LAST_OFFSET_DELTA]  # type: ignore[return-value]


def _scan(view: memoryview, position: int, single: int) -> BatchRun | None:
    """The run at `position`; None if there is no run."""
    facts = int64s(len(RunFact))
    end = scan_run(view, position, position + RUN_BYTES, single, facts)
    if facts[RunFact.IS_DISORDERED] and facts[RunFact.BATCHES] > 1:
        # Either offset may be the wrong one, so the last batch is taken out of the run: the caller
        # then checks each of the two by itself.
        end = scan_run(view, position, position + facts[RunFact.LAST_AT], single, facts)
    return BatchRun(view[position:end], facts, single=single) if end > position else None
