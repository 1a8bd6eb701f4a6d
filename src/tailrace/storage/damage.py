"""Walk a log file across damage: the sound batches, and the ranges of bytes that are none.

    position   0          150        300        450        600        640
    bytes      | sound    | damaged  | sound    | sound    | zeros    |
    yields     batches    range      batches    batches    blank range

Every tool that goes on behind damage reads a log through this walk: what they make of it (cut,
skip, count, tell) is theirs. Sound means here that frame and checksum hold; whether records can be
decoded and offsets fit is for the caller, who knows what to do about it.

If a damaged batch has a plausible header whose length leads to a sound batch, to the end of the
file, or to another such header, it alone is the range. Otherwise the range ends where `resync`
finds the next batches that count. No index is needed.

Invariant: batches and ranges follow each other without a gap, from `start` to the end of the file.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.records.batch import Batch
from tailrace.records.runs import BatchRun, Field, Piece
from tailrace.runtime.files import File
from tailrace.storage.resync import Claim, find_resumption, is_sound_at, read_claim
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import walk_batches, walk_runs

PieceT = TypeVar("PieceT", bound=Piece)

_FILE_START: Final = Position(0)

NOT_WHOLE: Final = "the last batch is not whole"
"""The reason of a range in which the next batch reaches beyond the end of the file."""

_STEPS_MAX: Final = 1000
"""Steps from one damaged batch to the next by their headers, before all bytes are searched."""


class DamagedRange(NamedTuple):
    """Bytes of a log file that are no sound batch."""

    position: Position
    end: Position
    reason: str
    claim: Claim | None = None
    """The header at its start, if that is plausible and leads to the end of the range."""
    offset: Offset | None = None
    """The base offset of the batch that the first bytes seem to be; None if they are no frame."""
    is_blank: bool = False
    """Whether these are only zeros up to the end of the file, as preallocation leaves them."""
    is_frame: bool = True
    """Whether it is the frame that cannot be one, and not the checksum that is wrong."""


def batches_across_damage(
    file: File,
    path: str,
    *,
    base_offset: Offset,
    size: int,
    following: Offset | None = None,
    start: Position = _FILE_START,
) -> Iterator[tuple[Position, Batch] | DamagedRange]:
    """Every sound batch with its position, and the damaged ranges between.

    `base_offset` is that of the segment, `following` that of the next one, if any, `size` that of
    the file. `start` is a position where a batch begins: nothing before it is looked at.

    Raises:
        FileCutError: the file is shorter than `size`.
        OSError: the file cannot be read.
    """
    walk = _Walk(file, path, walk_batches, base_offset=base_offset, size=size, following=following)
    return walk.walk(start)


def runs_across_damage(
    file: File,
    path: str,
    *,
    base_offset: Offset,
    size: int,
    following: Offset | None = None,
    start: Position = _FILE_START,
) -> Iterator[tuple[Position, Piece] | DamagedRange]:
    """Walk as `batches_across_damage` does, with batches in runs; see `records.runs`."""
    walk = _Walk(file, path, walk_runs, base_offset=base_offset, size=size, following=following)
    return walk.walk(start)


class _Walk(Generic[PieceT]):
    """One walk over one file."""

    def __init__(
        self,
        file: File,
        path: str,
        read: Callable[..., Iterator[tuple[Position, PieceT]]],
        *,
        base_offset: Offset,
        size: int,
        following: Offset | None,
    ) -> None:
        self._file = file
        self._path = path
        self._read = read
        self._size = size
        self._limit_offset = Offset(base_offset + INT32_MAX + 1) if following is None else following
        self._due = base_offset
        """No batch to come begins below it. A gap is believed when the next batch has confirmed
        it, since no checksum covers an offset."""
        self._next_offset = base_offset
        """Behind the last batch, if its offset is right."""
        self._framed_until = _FILE_START
        """Up to here plausible headers lead from one damaged batch to the next."""

    def walk(self, start: Position) -> Iterator[tuple[Position, PieceT] | DamagedRange]:
        """The batches or runs from a position on, and the ranges between."""
        position = start
        while position < self._size:
            fault = CorruptionError(NOT_WHOLE)
            is_frame = True
            try:
                for at, piece in self._read(
                    self._file, self._path, start=position, limit=self._size
                ):
                    is_frame = not isinstance(piece, Batch)
                    if isinstance(piece, Batch):
                        piece.check()
                    yield at, piece
                    is_frame = True
                    self._note(piece)
                    position = Position(at + piece.size)
            except CorruptionError as error:
                fault = error
            if position < self._size:
                damaged = self._range(position, fault, is_frame=is_frame)
                yield damaged
                position = damaged.end

    def _note(self, piece: Piece) -> None:
        """Take the offsets of a batch, or of the last one of a run."""
        before, base = self._next_offset, piece.base_offset
        if isinstance(piece, BatchRun) and piece.batch_count > 1:
            base = Offset(piece.last_header[Field.BASE_OFFSET])
            before = piece.due_offset
        if base == before:
            self._due = self._next_offset = piece.next_offset
        elif base > before:
            self._due, self._next_offset = before, piece.next_offset
        elif base >= self._due:
            self._next_offset = piece.next_offset

    def _range(self, position: Position, fault: CorruptionError, *, is_frame: bool) -> DamagedRange:
        """The damage that begins at a position."""
        size, reason = self._size, fault.rule
        offset = None if fault.offset is None else Offset(fault.offset)
        if is_blank(self._file, self._path, start=position, limit=size):
            return DamagedRange(position, Position(size), "zeros", is_blank=True)
        offsets = range(self._due, max(self._limit_offset, self._due))
        claim = read_claim(self._file, position, size=size, offsets=offsets)
        if claim is not None and self._is_framed(claim, offsets):
            return DamagedRange(
                position, claim.end, reason, claim, claim.base_offset, is_frame=is_frame
            )
        end = find_resumption(
            self._file,
            self._path,
            start=Position(position + 1),
            size=size,
            offsets=offsets,
            claim=claim,
        )
        return DamagedRange(position, end, reason, None, offset, is_frame=is_frame)

    def _is_framed(self, claim: Claim, offsets: range) -> bool:
        """Whether plausible headers lead on to a sound batch, or to the end of the file."""
        if claim.end <= self._framed_until:
            return True
        at = claim
        for _ in range(_STEPS_MAX):
            end, next_offset = at.end, at.next_offset
            following = read_claim(self._file, end, size=self._size, offsets=offsets)
            if following is None:
                is_end = is_blank(self._file, self._path, start=end, limit=self._size)
            else:
                is_end = is_sound_at(self._file, self._path, following)
            if is_end:
                self._framed_until = end
                return True
            if following is None or following.base_offset < next_offset:
                return False
            at = following
        return False
