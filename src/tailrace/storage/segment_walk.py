"""The one walk over a segment: its sound batches in runs, and the damaged bytes between them.

    position   0          150        300        450        600        640
    bytes      | sound    | damaged  | sound    | sound    | zeros    |
    yields     Sound      Damage     Sound      Sound      Damage (padding)

Verification, repair, salvage, readers and the evidence of a start are folds over it: what they do
about damage (report, cut, skip, count) is theirs, what damage is is decided here. A batch is sound
if its frame, its checksum and its records hold, and its offsets fit between those around it.

Not here: the recovery of a start (`recovery`). It wants the unbroken prefix alone, reads no records
(as Kafka), and makes no object for a batch (decision 77).

Invariant: batches and damage follow each other without a gap, from `start` to the end of the file,
and the offsets of what is sound rise.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from tailrace import kernels
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import OFFSET_MAX, Offset, Position
from tailrace.records.batch import Batch
from tailrace.records.checks import RecordTotals, check_records
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.control import end_transaction_marker_or_none
from tailrace.records.runs import BatchRun, Field, Piece, batches_of
from tailrace.runtime.files import File
from tailrace.storage.resync import Claim, find_resumption, is_sound_at, read_claim
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import walk_runs

_FILE_START: Final = Position(0)

NOT_WHOLE: Final = "the last batch is not whole"
"""The reason of damage in which the next batch reaches beyond the end of the file."""

# Steps from one damaged batch to the next by their headers, before all bytes are searched.
_STEPS_MAX: Final = 1000


class Fault(Enum):
    """The rule that damaged bytes break."""

    FRAME = "frame"
    """No header of a batch, or one whose length leads nowhere."""
    CHECKSUM = "checksum"
    RECORDS = "records"
    """The checksum holds and the records break a rule: a faulty writer, not a faulty disk."""
    MARKER = "marker"
    """The same for the record of a control batch."""
    OFFSETS = "offsets"
    """The offsets contradict those of the batches or the segment around it."""
    NOT_WHOLE = "not whole"
    """The file ends before the batch does: an append in progress, or a torn one."""
    ZEROS = "zeros"
    """Zeros up to the end of the file, where offsets are missing: lost batches."""
    PADDING = "padding"
    """Zeros up to the end of the file, and no offset is missing: preallocation leaves them."""


class Sound(NamedTuple):
    """A sound batch, or a run of them, and its position in the file."""

    position: Position
    piece: Piece
    totals: RecordTotals | DecompressedTooLargeError | None = None
    """The result of the check of a single batch's records; the error if they are larger than
    this process decompresses, which is no damage. None for a run, which the kernel checks."""

    def batches(self) -> Iterator[tuple[Position, Batch]]:
        for at, batch in batches_of(self.piece, _LOWEST, OFFSET_MAX):
            # A call of `Position` for each batch would cost more than the sum.
            yield self.position + at, batch  # type: ignore[misc]


class Damage(NamedTuple):
    """Bytes of a log file that are no sound batch."""

    position: Position
    end: Position
    fault: Fault
    reason: str
    offset: Offset | None = None
    """Base offset of the batch that the first bytes seem to be; None if they are no frame."""
    claim: Claim | None = None
    """The header at its start, if that is plausible and leads to `end`."""
    records: int | None = None
    """Records by the header of a batch whose checksum holds, if its offsets have room for them."""

    @property
    def is_hole(self) -> bool:
        """Whether sound batches may be missing here: it is not just the end of the file."""
        return self.fault not in {Fault.NOT_WHOLE, Fault.ZEROS, Fault.PADDING}


_LOWEST: Final = Offset(-INT64_MAX)

_Found: TypeAlias = Sound | Damage


def walk_segment(
    file: File,
    path: str,
    *,
    base_offset: Offset,
    size: int,
    following: Offset | None = None,
    start: Position = _FILE_START,
    due: Offset | None = None,
    reads_records: bool = True,
    stops_at_damage: bool = False,
) -> Iterator[Sound | Damage]:
    """Every sound batch, in runs where that can be, and the damage between.

    `base_offset` is that of the segment, `following` that of the next one, if any; `size` is that
    of the file. `start` is a position where a batch begins: nothing before it is looked at. No
    batch may begin below `due`, which is the base offset without it.

    Without `reads_records` frames, checksums and offsets are checked, and no batch is decompressed.
    With `stops_at_damage` the walk ends where the first damage begins, which then is not yielded:
    to find where it ends may take a search through the rest of the file.

    Raises:
        FileCutError: the file is shorter than `size`.
        OSError: the file cannot be read.
    """
    frames = _FrameWalk(file, path, base_offset=base_offset, size=size, following=following)
    offsets = _Offsets(
        base_offset if due is None else due, base_offset=base_offset, following=following
    )
    found: Iterator[_Found] = frames.walk(start, stops_at_damage=stops_at_damage)
    if reads_records:
        found = (each for framed in found for each in _with_records(framed))
    for judged in offsets.judge_all(found):
        if stops_at_damage and isinstance(judged, Damage):
            return
        yield judged


class _FrameWalk:
    """The walk that looks at frames and checksums, and steps over what is none.

    If a damaged batch has a plausible header whose length leads to a sound batch, to the end of the
    file, or to another such header, it alone is the damage. Otherwise the damage ends where
    `resync` finds the next batches that count. No index is needed.
    """

    def __init__(
        self, file: File, path: str, *, base_offset: Offset, size: int, following: Offset | None
    ) -> None:
        self._file = file
        self._path = path
        self._size = size
        self._limit_offset = Offset(base_offset + INT32_MAX + 1) if following is None else following
        # No batch to come begins below it. A gap is believed when the next batch has confirmed it.
        self._due = base_offset
        # The offset after the last batch, if its own offset is right.
        self._next_offset = base_offset
        # Up to here plausible headers lead from one damaged batch to the next.
        self._framed_until = _FILE_START

    def walk(self, start: Position, *, stops_at_damage: bool) -> Iterator[_Found]:
        """The batches or runs from a position on, and the damage between."""
        position = start
        while position < self._size:
            error = CorruptionError(NOT_WHOLE)
            fault = Fault.FRAME
            try:
                for at, piece in walk_runs(
                    self._file, self._path, start=position, limit=self._size
                ):
                    if isinstance(piece, Batch):  # The checksums of a run hold already.
                        fault = Fault.CHECKSUM
                        piece.check()
                    fault = Fault.FRAME
                    yield Sound(at, piece)
                    self._note(piece)
                    position = Position(at + piece.size)
            except CorruptionError as raised:
                error = raised
            if position < self._size:
                if stops_at_damage:
                    return
                damage = self._damage(position, error, fault)
                yield damage
                position = damage.end

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

    def _damage(self, position: Position, error: CorruptionError, fault: Fault) -> Damage:
        """The damage that begins at a position."""
        size, reason = self._size, error.rule
        offset = None if error.offset is None else Offset(error.offset)
        if is_blank(self._file, self._path, start=position, limit=size):
            return Damage(position, Position(size), Fault.ZEROS, "zeros")
        offsets = range(self._due, max(self._limit_offset, self._due))
        claim = read_claim(self._file, position, size=size, offsets=offsets)
        if claim is not None and self._is_framed(claim, offsets):
            return Damage(position, claim.end, fault, reason, claim.base_offset, claim)
        end = find_resumption(
            self._file,
            self._path,
            start=Position(position + 1),
            size=size,
            offsets=offsets,
            claim=claim,
        )
        if reason == NOT_WHOLE and end == size:
            # If sound batches follow, its length field is damaged instead.
            fault = Fault.NOT_WHOLE
        return Damage(position, end, fault, reason, offset)

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


def _with_records(found: _Found) -> Iterator[_Found]:
    """The same if the records hold, too; a run with a fault is split into its batches."""
    if isinstance(found, Damage):
        yield found
        return
    piece = found.piece
    # One call of a kernel for half a megabyte, whose bytes the checksum has brought to the cache.
    if isinstance(piece, BatchRun) and kernels.walk_run(piece.view, piece.record_count) == 1:
        yield found
        return
    for position, batch in found.batches():
        yield _checked(position, batch)


def _checked(position: Position, batch: Batch) -> _Found:
    fault = Fault.RECORDS
    try:
        totals = check_records(batch)
        if batch.is_control and batch.has_producer:
            fault = Fault.MARKER
            end_transaction_marker_or_none(batch)
    except DecompressedTooLargeError as error:
        return Sound(position, batch, error)  # A limit of ours is no damage: Kafka reads the batch.
    except (CorruptionError, UnsupportedCodecError) as error:
        reason = error.rule if isinstance(error, CorruptionError) else str(error)
        return _of_batch(position, batch, fault, reason=reason)
    if totals.last_offset_delta > batch.last_offset_delta:
        last = batch.base_offset + totals.last_offset_delta
        reason = f"the last record has offset {last}; the header ends at {batch.last_offset}"
        return _of_batch(position, batch, Fault.RECORDS, reason=reason)
    return Sound(position, batch, totals)


def _of_batch(position: Position, batch: Batch, fault: Fault, *, reason: str) -> Damage:
    end, count = Position(position + batch.size), batch.record_count
    # A count that the header's own offsets have no room for is wrong itself.
    records = count if 0 <= count <= batch.last_offset_delta + 1 else None
    return Damage(position, end, fault, reason, batch.base_offset, records=records)


class _Offsets:
    """The rules about offsets, which no checksum of a batch covers."""

    def __init__(self, due: Offset, *, base_offset: Offset, following: Offset | None) -> None:
        self._due = due
        self._base_offset = base_offset
        self._following = following

    def judge_all(self, found: Iterator[_Found]) -> Iterator[_Found]:
        """Each of these, or damage in its place; in the same order."""
        # A batch after a gap waits for the next one, and the damage between them with it.
        waiting: list[_Found] = []
        for each in found:
            if isinstance(each, Sound):
                yield from self._judge(waiting, next_base=each.piece.base_offset)
                waiting = [each]
                if self._is_after_gap(each.piece):
                    continue
            elif waiting:
                waiting.append(each)
                continue
            else:
                waiting = [each]
            yield from self._judge(waiting, next_base=None)
            waiting = []
        yield from self._judge(waiting, next_base=None)

    def _is_after_gap(self, piece: Piece) -> bool:
        """Whether the last batch of a piece begins above the offset that is due before it."""
        if isinstance(piece, BatchRun) and piece.batch_count > 1:
            return piece.last_header[Field.BASE_OFFSET] != piece.due_offset
        return piece.base_offset != self._due

    def _judge(self, waiting: list[_Found], *, next_base: Offset | None) -> Iterator[_Found]:
        """A batch or run and the damage after it; `next_base` is where the next batch begins."""
        for found in waiting:
            if isinstance(found, Damage):
                is_padding = found.fault is Fault.ZEROS and self._following in {None, self._due}
                yield found._replace(fault=Fault.PADDING) if is_padding else found
                continue
            piece = found.piece
            reason = None
            last_base = piece.base_offset
            if isinstance(piece, BatchRun):
                # Within a run offsets rise, so its two ends tell.
                reason = self._fault(last_base, last_base, next_base=None)
                last_base = Offset(piece.last_header[Field.BASE_OFFSET])
            reason = reason or self._fault(last_base, piece.last_offset, next_base=next_base)
            if reason is None:
                self._due = piece.next_offset
                yield found
            elif isinstance(piece, Batch):
                yield _of_batch(found.position, piece, Fault.OFFSETS, reason=reason)
            else:
                batches = [*found.batches()]
                bases = [*(batch.base_offset for _, batch in batches[1:]), next_base]
                for (position, batch), base in zip(batches, bases, strict=True):
                    yield from self._judge([Sound(position, batch)], next_base=base)

    def _fault(self, first: Offset, last: Offset, *, next_base: Offset | None) -> str | None:
        """Return the reason why the offsets of a batch do not fit between its neighbours, or None.

        Of two batches that contradict each other, the first is wrong only if it could have begun
        earlier: it begins above what is due, and the next one leaves it room below.
        """
        due, following = self._due, self._following
        if first < due:
            return f"the batch begins at offset {first}, where {due} or more is due"
        if following is not None and last >= following:
            return f"the batch reaches to offset {last}, and the next segment begins at {following}"
        if next_base is not None and first != due < next_base <= last:
            return (
                f"the batch has offsets {first} to {last}, and the next one begins at {next_base}"
            )
        if last - self._base_offset > INT32_MAX:
            # The indexes have 32 bits for an offset, as Kafka's `ensureOffsetInRange` checks.
            return f"offset {last} is more than {INT32_MAX} above the segment's base"
        return None
