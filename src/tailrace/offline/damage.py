"""Which bytes of a partition's log are damaged, and where sound batches go on behind them.

    position   0          150        300        450        600
    bytes      | sound    | damaged  | sound    | sound    | torn
    cut                   |<-------- goes ------------------->|
    skip                  |<- goes ->|                     |<>|

A batch is sound if its frame, CRC and records hold and its offsets fit between those around it. If
the length of a damaged one leads to a sound batch, it alone is damaged. Otherwise the next header
that holds is searched for, byte by byte, in format v2; behind damage in an older format only the
lengths lead on.

Decided here, and done in `tailrace.offline.repair`. Nothing is changed.

Invariant: what is not named as damage is a row of sound batches whose offsets rise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_LEADER_EPOCH
from tailrace.offline.directory import unreadable
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.control import end_transaction_marker_or_none
from tailrace.runtime.files import File, Files
from tailrace.storage.listing import SegmentFiles
from tailrace.storage.walk import WINDOW_BYTES, walk_batches

_MAGIC = bytes([layout.MAGIC])
_CODECS = 5


class OnDamage(Enum):
    """What goes with a damaged batch."""

    CUT = "cut"
    """Everything behind it in the partition, as in a broker's recovery."""
    SKIP = "skip"
    """Nothing: what is sound behind it stays, under its offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Bytes of a log file that go."""

    path: str
    base_offset: int
    """Of the segment."""
    position: int
    size_bytes: int
    offset: int
    """The first offset that is lost."""
    next_offset: int | None
    """The first that is there again; None if nobody knows how far the lost bytes reached."""
    records: int | None
    """Lost, as far as headers tell; None if no header among these bytes can be read."""
    reason: str
    is_whole_file: bool = False


class EpochRun(NamedTuple):
    """Sound batches of one leader epoch in a row."""

    epoch: int
    start_offset: int
    last_offset: int
    batches: int
    bases: frozenset[int]
    """Base offsets of the segments that they stand in."""


@dataclass(slots=True, kw_only=True)
class LogDamage:
    """What a walk over a partition's log files has found."""

    drops: list[Drop] = field(default_factory=list)
    """In the order of the log."""
    log_end: int = 0
    """Behind the last batch that stays."""
    runs: list[EpochRun] = field(default_factory=list)
    """Of the batches that stay."""


@dataclass(slots=True)
class _Piece:
    """A range of a log file: one batch, or bytes that are none."""

    position: int
    end: int
    base_offset: int = -1
    last_offset: int = -1
    epoch: int = NO_LEADER_EPOCH
    records: int | None = None
    fault: str | None = None


def find_damage(files: Files, segments: Sequence[SegmentFiles], on_damage: OnDamage) -> LogDamage:
    """Every range of the log that has to go, and what stays.

    Raises:
        DirectoryError: a file cannot be read.
    """
    found = LogDamage(log_end=segments[0].base_offset if segments else 0)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        try:
            file = files.open(segment.path, read_only=True)
            try:
                _look_into(file, segment, following, found=found)
            finally:
                file.close()
        except OSError as error:
            raise unreadable(segment.path, error) from error
        if found.drops and on_damage is OnDamage.CUT:
            _cut(files, segments[number:], found)
            break
    return found


class SoundBatch(NamedTuple):
    """A batch that fits behind those before it, wherever it stands."""

    position: int
    end: int
    base_offset: int
    last_offset: int
    epoch: int
    records: int


def find_sound(files: Files, file: SegmentFiles, *, due: int) -> Iterator[SoundBatch]:
    """Every batch of a file that is whole and begins at or behind `due` and the ones before it.

    One by one, because a file of a gigabyte may hold ten million of them.

    Raises:
        DirectoryError: the file cannot be read.
    """
    try:
        opened = files.open(file.path, read_only=True)
        try:
            for piece, next_base in _with_next(_pieces(opened, file, None)):
                fault = piece.fault or _order_fault(piece, file, limits=(next_base, None), due=due)
                if fault is None:
                    due = piece.last_offset + 1
                    yield SoundBatch(
                        piece.position,
                        piece.end,
                        piece.base_offset,
                        piece.last_offset,
                        piece.epoch,
                        piece.records or 0,
                    )
        finally:
            opened.close()
    except OSError as error:
        raise unreadable(file.path, error) from error


def find_segment_damage(file: File, segment: SegmentFiles, *, following: int | None) -> list[Drop]:
    """Every range of one segment that has to go, as `find_damage` with `OnDamage.SKIP` finds them.

    `file` is the open log file, and `following` the base offset of the next segment, if any.

    Raises:
        OSError: the file cannot be read.
    """
    found = LogDamage(log_end=segment.base_offset)
    _look_into(file, segment, following, found=found)
    return found.drops


def _look_into(
    file: File, segment: SegmentFiles, following: int | None, *, found: LogDamage
) -> None:
    """Add the damage of one segment."""
    found.log_end = max(found.log_end, segment.base_offset)
    waiting: list[Drop] = []
    for piece, next_base in _with_next(_pieces(file, segment, following)):
        if piece.fault is None:
            piece.fault = _order_fault(
                piece, segment, limits=(next_base, following), due=found.log_end
            )
        if piece.fault is not None:
            waiting.append(_drop(piece, segment, found.log_end))
            continue
        found.drops += _ending_at(waiting, piece.base_offset)
        waiting = []
        found.log_end = piece.last_offset + 1
        _note_epoch(found.runs, piece, segment.base_offset)
    found.drops += _ending_at(waiting, following)


def _drop(piece: _Piece, segment: SegmentFiles, offset: int) -> Drop:
    assert piece.fault is not None
    return Drop(
        path=segment.path,
        base_offset=segment.base_offset,
        position=piece.position,
        size_bytes=piece.end - piece.position,
        offset=offset,
        next_offset=None,
        records=piece.records,
        reason=piece.fault,
    )


def _ending_at(drops: list[Drop], offset: int | None) -> list[Drop]:
    return [replace(each, next_offset=offset) for each in drops]


def _cut(files: Files, segments: Sequence[SegmentFiles], found: LogDamage) -> None:
    """Have everything go from the first damage on; `segments` begin with the one that has it."""
    first, later = found.drops[0], segments[1:]
    found.log_end = first.offset
    runs = [run for run in found.runs if run.start_offset < first.offset]
    # A run that goes on behind the damage ends before it.
    found.runs = [run._replace(last_offset=min(run.last_offset, first.offset - 1)) for run in runs]
    found.drops = [
        replace(
            first,
            size_bytes=segments[0].size - first.position,
            next_offset=later[0].base_offset if later else None,
            records=_count_records(files, segments[0], first.position),
        )
    ]
    found.drops += whole_drops(files, later, reason="what is before it is lost")


def whole_drops(files: Files, segments: Sequence[SegmentFiles], *, reason: str) -> list[Drop]:
    """Segments that go as a whole.

    Raises:
        DirectoryError: a file cannot be read.
    """
    limits = [*(each.base_offset for each in segments[1:]), None][: len(segments)]
    return [
        Drop(
            path=each.path,
            base_offset=each.base_offset,
            position=0,
            size_bytes=each.size,
            offset=each.base_offset,
            next_offset=limit,
            records=_count_records(files, each, 0),
            reason=reason,
            is_whole_file=True,
        )
        for each, limit in zip(segments, limits, strict=True)
    ]


def _count_records(files: Files, segment: SegmentFiles, position: int) -> int | None:
    """Records from a position on, as far as headers tell."""
    try:
        file = files.open(segment.path, read_only=True)
        try:
            counts = [
                piece.records
                for piece in _pieces(file, segment, None, start=position)
                if piece.records is not None
            ]
        finally:
            file.close()
    except OSError as error:
        raise unreadable(segment.path, error) from error
    return sum(counts) if counts else None


def _with_next(pieces: Iterator[_Piece]) -> Iterator[tuple[_Piece, int | None]]:
    """Each piece with the base offset of the next sound one right behind it."""
    held = None
    for piece in pieces:
        if held is not None:
            yield held, piece.base_offset if piece.fault is None else None
        held = piece
    if held is not None:
        yield held, None


def _pieces(
    file: File, segment: SegmentFiles, following: int | None, *, start: int = 0
) -> Iterator[_Piece]:
    """The whole file from `start` on: batches that hold for themselves, and what is between."""
    limit_offset = segment.base_offset + INT32_MAX + 1 if following is None else following
    offsets = range(segment.base_offset, max(limit_offset, segment.base_offset))
    size = segment.size
    position = start
    while position < size:
        bad = None
        try:
            for at, batch in walk_batches(file, segment.path, start=position, limit=size):
                fault = _fault(batch)
                piece = _piece(at, batch, fault)
                if fault is not None:
                    bad = piece
                    break
                yield piece
                position = piece.end
        except CorruptionError as error:
            bad = _Piece(position, position, fault=error.rule)
        if bad is None:
            if position < size:
                bad = _Piece(position, position, fault="the last batch is not whole")
            else:
                return
        is_framed = position < bad.end < size and _holds(file, segment.path, bad.end, size=size)
        if not is_framed:
            bad.end = _next_sound(file, segment.path, start=position + 1, size=size, due=offsets)
        yield bad
        position = bad.end


def _piece(position: int, batch: Batch, fault: str | None) -> _Piece:
    records = batch.record_count if 0 <= batch.record_count <= max(batch.size, 1) * 2**10 else None
    return _Piece(
        position,
        position + batch.size,
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        records,
        fault,
    )


def _fault(batch: Batch) -> str | None:
    """What of the batch by itself does not hold."""
    try:
        batch.check()
        totals = check_records(batch)
        if batch.is_control and batch.has_producer:
            end_transaction_marker_or_none(batch)
    except DecompressedTooLargeError:
        return None  # A limit is no damage: the checksum holds, and Kafka reads the batch.
    except CorruptionError as error:
        return error.rule
    except UnsupportedCodecError as error:
        return str(error)
    if totals.last_offset_delta > batch.last_offset_delta:
        return (
            f"the last record is {totals.last_offset_delta} behind the first, where the header "
            f"says {batch.last_offset_delta}"
        )
    return None


def _order_fault(
    piece: _Piece, segment: SegmentFiles, *, limits: tuple[int | None, int | None], due: int
) -> str | None:
    """No checksum covers a base offset, so it is held against what stands around it."""
    first, last = piece.base_offset, piece.last_offset
    next_base, following = limits
    if first < due:
        return f"the batch begins at offset {first}, where {due} or more is due"
    if following is not None and last >= following:
        return f"the batch reaches to offset {last}, and the next segment begins at {following}"
    if next_base is not None and due < next_base <= last:
        return f"the batch has offsets {first} to {last}, and the next one begins at {next_base}"
    if last - segment.base_offset > INT32_MAX:
        return f"offset {last} is more than {INT32_MAX} above the segment's base"
    return None


def _next_sound(file: File, path: str, *, start: int, size: int, due: range) -> int:
    """Where the next header stands that holds, with offsets in `due`; the file's size if none."""
    position = start
    while size - position >= layout.HEADER_SIZE:
        data = file.read(position, min(WINDOW_BYTES, size - position))
        if len(data) < layout.HEADER_SIZE:
            break
        at = data.find(_MAGIC, layout.MAGIC_POSITION)
        while 0 <= at - layout.MAGIC_POSITION <= len(data) - layout.HEADER_SIZE:
            header = at - layout.MAGIC_POSITION
            end = position + header
            if _could_be(data, header, size - end, due=due) and _holds(file, path, end, size=size):
                return end
            at = data.find(_MAGIC, at + 1)
        position += len(data) - layout.HEADER_SIZE + 1
    return size


def _could_be(data: bytes, at: int, room: int, *, due: range) -> bool:
    """Whether the bytes at `at` look like a header, without a look at what it covers."""
    fields = layout.HEADER.unpack_from(data, at)
    base, length, attributes, delta, count = fields[0], fields[1], fields[5], fields[6], fields[12]
    return (
        base in due
        and layout.HEADER_SIZE - layout.LOG_OVERHEAD <= length <= room - layout.LOG_OVERHEAD
        and delta >= 0
        and base + delta in due
        and count >= 0
        and attributes & layout.CODEC_MASK < _CODECS
    )


def _holds(file: File, path: str, position: int, *, size: int) -> bool:
    """Whether a batch at `position` holds for itself."""
    frame = file.read(position, layout.FRAME_SIZE)
    if len(frame) < layout.FRAME_SIZE:
        return False
    length = layout.FRAME.unpack(frame)[1]
    end = position + int(length) + layout.LOG_OVERHEAD
    if length < layout.LENGTH_MIN or end > size:
        return False
    try:
        found = next(walk_batches(file, path, start=position, limit=end), None)
    except CorruptionError:
        return False
    return found is not None and _fault(found[1]) is None


def _note_epoch(runs: list[EpochRun], piece: _Piece, base_offset: int) -> None:
    if piece.epoch == NO_LEADER_EPOCH:
        return
    if runs and runs[-1].epoch == piece.epoch:
        last = runs[-1]
        runs[-1] = last._replace(
            last_offset=piece.last_offset,
            batches=last.batches + 1,
            bases=last.bases if base_offset in last.bases else last.bases | {base_offset},
        )
        return
    runs.append(
        EpochRun(piece.epoch, piece.base_offset, piece.last_offset, 1, frozenset({base_offset}))
    )
