"""Finds damaged bytes in a partition's log, and the sound batches behind them.

    position   0          150        300        450        600
    bytes      | sound    | damaged  | sound    | sound    | torn
    cut                   |<-------- goes ------------------->|
    skip                  |<- goes ->|                     |<>|

A batch is sound if its frame, CRC and records hold and its offsets fit between those around it.
If the length of a damaged one leads to a sound batch, it alone is damaged. Otherwise the next batch
that holds is searched for, byte by byte, in format v2 and, as long as the file has no batch of v2,
in the older ones too. A batch that was found so counts only if another one could begin behind it,
or nothing follows: a batch that a producer has sent as the value of a record ends in the middle of
another. The search reads at most a few times what is left of the file, and takes the rest for
damaged then.

Decided here, and done in `tailrace.offline.repair`. Nothing is changed.

Invariant: what is not named as damage is a row of sound batches whose offsets rise.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Final, NamedTuple

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position
from tailrace.reading.directory import unreadable
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import position_near
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.control import end_transaction_marker_or_none
from tailrace.runtime.files import File, Files
from tailrace.storage.walk import WINDOW_BYTES, walk_batches
from tailrace.values import dataclass

_MAGIC = bytes([layout.MAGIC])
_ALL_FORMATS = re.compile(
    rb"(?s)(?=[\x00-\x7f].{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{7}[\x00-\x02])"
)
"""Matches the header of any format: neither its offset nor its length is negative, and the
length is not too small."""
_SEARCH_FACTOR = 4
_CODECS = 5


class OnDamage(Enum):
    """Ways to read a log with a damaged batch."""

    CUT = "cut"
    """Everything behind it in the partition, as in a broker's recovery."""
    SKIP = "skip"
    """Nothing: what is sound behind it stays, under its offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Bytes of a log file that go."""

    path: str
    base_offset: Offset
    """First offset of the segment."""
    position: Position
    size_bytes: int
    offset: Offset
    """The first offset that is lost."""
    next_offset: Offset | None
    """The first that is there again; None if it is unknown how far the lost bytes reached."""
    records: int | None
    """Number of lost records, by the headers; None if no header among these bytes is credible."""
    reason: str
    sound_records: int = 0
    """Number of these records in sound batches, which are lost because of damage before them."""
    is_whole_file: bool = False


class EpochRun(NamedTuple):
    """Sound batches of one leader epoch in a row."""

    epoch: LeaderEpoch
    start_offset: Offset
    last_offset: Offset
    batches: int
    bases: frozenset[Offset]
    """Base offsets of the segments that they stand in."""


_FIRST: Final = Offset(0)
_NONE: Final = Offset(-1)
_FILE_START: Final = Position(0)


@dataclass(slots=True, kw_only=True)
class LogDamage:
    """Damage in the log files of a partition."""

    drops: list[Drop] = field(default_factory=list)
    """In the order of the log."""
    log_end: Offset = _FIRST
    """Behind the last batch that stays."""
    runs: list[EpochRun] = field(default_factory=list)
    """The batches that stay, by leader epoch."""
    rescued: int = 0
    """Records that stay although there is damage before them."""


@dataclass(slots=True)
class _Piece:
    """A range of a log file: one batch, or bytes that are none."""

    position: Position
    end: Position
    base_offset: Offset = _NONE
    last_offset: Offset = _NONE
    epoch: LeaderEpoch = NO_LEADER_EPOCH
    records: int | None = None
    fault: str | None = None


def find_damage(files: Files, segments: Sequence[SegmentFiles], on_damage: OnDamage) -> LogDamage:
    """Every range of the log that has to go, and what stays.

    Raises:
        DirectoryError: a file cannot be read.
    """
    found = LogDamage(log_end=segments[0].base_offset if segments else _FIRST)
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

    position: Position
    end: Position
    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    records: int


def find_sound(files: Files, file: SegmentFiles, *, due: Offset) -> Iterator[SoundBatch]:
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
                    due = Offset(piece.last_offset + 1)
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


def find_segment_damage(
    file: File, segment: SegmentFiles, *, following: Offset | None, start: Position = _FILE_START
) -> list[Drop]:
    """Every range of one segment that has to go, as `find_damage` with `OnDamage.SKIP` finds them.

    `file` is the open log file, `following` the base offset of the next segment, if any, and
    `start` a position where a batch begins: nothing is looked for before it.

    Raises:
        OSError: the file cannot be read.
    """
    found = LogDamage(log_end=segment.base_offset)
    _look_into(file, segment, following, found=found, start=start)
    return found.drops


def sound_ranges(drops: Sequence[Drop], size: int) -> Iterator[tuple[int, int]]:
    """The positions between the drops of a file of `size` bytes, one range more than drops.

    Example:
        >>> # drops at 150 to 300 and at 600 to 640
        >>> list(sound_ranges(drops, 640))
        [(0, 150), (300, 600), (640, 640)]
    """
    starts = [0, *(each.position + each.size_bytes for each in drops)]
    limits = [*(each.position for each in drops), size]
    yield from zip(starts, limits, strict=True)


def find_tail_damage(files: Files, last: SegmentFiles, end: Offset) -> LogDamage:
    """The damage in the last segment, looked for from near `end` on, as with `OnDamage.SKIP`.

    Raises:
        OSError: the file cannot be read.
    """
    found = LogDamage(log_end=last.base_offset)
    file = files.open(last.path, read_only=True)
    try:
        near = position_near(files, last, file, offset=end)
        _look_into(file, last, None, found=found, start=near)
    finally:
        file.close()
    return found


def _look_into(
    file: File,
    segment: SegmentFiles,
    following: Offset | None,
    *,
    found: LogDamage,
    start: Position = _FILE_START,
) -> None:
    """Add the damage of one segment from a position on, where a batch starts."""
    found.log_end = max(found.log_end, segment.base_offset)
    waiting: list[Drop] = []
    for piece, next_base in _with_next(_pieces(file, segment, following, start=start)):
        if piece.fault is None:
            piece.fault = _order_fault(
                piece, segment, limits=(next_base, following), due=found.log_end
            )
        if piece.fault is not None:
            waiting.append(_drop(piece, segment, found.log_end))
            continue
        found.drops += _ending_at(waiting, piece.base_offset)
        waiting = []
        if found.drops:
            found.rescued += piece.records or 0
        found.log_end = Offset(piece.last_offset + 1)
        _note_epoch(found.runs, piece, segment.base_offset)
    found.drops += _ending_at(waiting, following)


def _drop(piece: _Piece, segment: SegmentFiles, offset: Offset) -> Drop:
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


def _ending_at(drops: list[Drop], offset: Offset | None) -> list[Drop]:
    """Damage in a row, which has at most the records that the offsets around it leave room for."""
    if offset is None or not drops:
        return drops
    room, ended = offset - drops[0].offset, []
    for each in drops:
        records = None if each.records is None else min(each.records, room)
        room -= records or 0
        ended.append(replace(each, next_offset=offset, records=records))
    return ended


def _cut(files: Files, segments: Sequence[SegmentFiles], found: LogDamage) -> None:
    """Drop everything from the first damage on; `segments` begin with the one that has it."""
    first, later = found.drops[0], segments[1:]
    found.log_end, found.rescued = first.offset, 0
    records, sound = _count_records(files, segments[0], first.position)
    runs = [run for run in found.runs if run.start_offset < first.offset]
    # A run that goes on behind the damage ends before it.
    found.runs = [
        run._replace(last_offset=min(run.last_offset, Offset(first.offset - 1))) for run in runs
    ]
    found.drops = [
        replace(
            first,
            size_bytes=segments[0].size - first.position,
            next_offset=later[0].base_offset if later else None,
            records=records,
            sound_records=sound,
        )
    ]
    found.drops += whole_drops(files, later, reason="what is before it is lost")


def whole_drops(files: Files, segments: Sequence[SegmentFiles], *, reason: str) -> list[Drop]:
    """Segments that go as a whole.

    Raises:
        DirectoryError: a file cannot be read.
    """
    limits = [*(each.base_offset for each in segments[1:]), None][: len(segments)]
    drops = []
    for each, limit in zip(segments, limits, strict=True):
        records, sound = _count_records(files, each, _FILE_START)
        drops.append(
            Drop(
                path=each.path,
                base_offset=each.base_offset,
                position=_FILE_START,
                size_bytes=each.size,
                offset=each.base_offset,
                next_offset=limit,
                records=records,
                reason=reason,
                sound_records=sound,
                is_whole_file=True,
            )
        )
    return drops


def _count_records(
    files: Files, segment: SegmentFiles, position: Position
) -> tuple[int | None, int]:
    """Records from a position on, as far as headers tell, and how many are in sound batches."""
    try:
        file = files.open(segment.path, read_only=True)
        try:
            counts = [
                (piece.records, piece.fault is None)
                for piece in _pieces(file, segment, None, start=position)
                if piece.records is not None
            ]
        finally:
            file.close()
    except OSError as error:
        raise unreadable(segment.path, error) from error
    if not counts:
        return None, 0
    return sum(count for count, _ in counts), sum(count for count, is_sound in counts if is_sound)


def _with_next(pieces: Iterator[_Piece]) -> Iterator[tuple[_Piece, Offset | None]]:
    """Each piece with the base offset of the next sound one right behind it."""
    held = None
    for piece in pieces:
        if held is not None:
            yield held, piece.base_offset if piece.fault is None else None
        held = piece
    if held is not None:
        yield held, None


def _pieces(
    file: File,
    segment: SegmentFiles,
    following: Offset | None,
    *,
    start: Position = _FILE_START,
) -> Iterator[_Piece]:
    """The file from `start` on: batches that are sound by themselves, and the bytes between."""
    limit_offset = segment.base_offset + INT32_MAX + 1 if following is None else following
    offsets = range(segment.base_offset, max(limit_offset, segment.base_offset))
    size = segment.size
    position = start
    has_v2 = False
    while position < size:
        bad = None
        try:
            for at, batch in walk_batches(file, segment.path, start=position, limit=size):
                fault = _fault(batch)
                piece = _piece(at, batch, fault)
                if fault is not None:
                    bad = piece
                    break
                has_v2 = has_v2 or batch.legacy is None
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
            bad.end = _next_sound(
                file,
                segment.path,
                start=Position(position + 1),
                size=size,
                due=offsets,
                takes_legacy=not has_v2,
            )
        yield bad
        position = bad.end


def _piece(position: Position, batch: Batch, fault: str | None) -> _Piece:
    # A count that the header's own offsets have no room for is damaged itself.
    records = batch.record_count if 0 <= batch.record_count <= batch.last_offset_delta + 1 else None
    return _Piece(
        position,
        Position(position + batch.size),
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        records,
        fault,
    )


def _fault(batch: Batch) -> str | None:
    """The rule that the batch breaks by itself, or None."""
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
    piece: _Piece,
    segment: SegmentFiles,
    *,
    limits: tuple[Offset | None, Offset | None],
    due: Offset,
) -> str | None:
    """Return the reason why the offsets of a batch do not fit between its neighbours, or None.

    No checksum covers a base offset, so only its neighbours can tell.
    """
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


def _next_sound(
    file: File,
    path: str,
    *,
    start: Position,
    size: int,
    due: range,
    takes_legacy: bool,
) -> Position:
    """Position of the next sound batch with offsets in `due`; the file's size if there is none.

    Checksums are computed over at most `_SEARCH_FACTOR` times the bytes that are left: a producer
    may have sent values that look like the headers of many large batches.
    """
    position = start
    left = _SEARCH_FACTOR * (size - start)
    while size - position >= layout.FRAME_SIZE:
        data = file.read(position, min(WINDOW_BYTES, size - position))
        # At the end of the file a header may be shorter: that of an older format.
        is_last = position + len(data) >= size or len(data) < layout.HEADER_SIZE
        limit = len(data) - (layout.FRAME_SIZE if is_last else layout.HEADER_SIZE)
        for at in _places(data, takes_legacy=takes_legacy):
            if at > limit:
                break
            found = Position(position + at)
            if not _could_be(data, at, size - found, due=due):
                continue
            end = found + layout.LOG_OVERHEAD + layout.LENGTH.unpack_from(data, at + 8)[0]
            if not _leads_on(file, end, size=size, due=due):
                continue
            left -= end - found
            if left < 0:
                return Position(size)
            if _holds(file, path, found, size=size):
                return found
        if is_last:
            break
        position = Position(position + limit + 1)
    return Position(size)


def _places(data: bytes, *, takes_legacy: bool) -> Iterator[int]:
    """Positions at which a batch header is plausible."""
    if takes_legacy:
        yield from (match.start() for match in _ALL_FORMATS.finditer(data))
        return
    at = data.find(_MAGIC, layout.MAGIC_POSITION)
    while at >= 0:
        yield at - layout.MAGIC_POSITION
        at = data.find(_MAGIC, at + 1)


def _could_be(data: bytes, at: int, room: int, *, due: range) -> bool:
    """Whether the bytes at `at` look like a header, without a look at what it covers."""
    base, length, _, magic = layout.FRAME.unpack_from(data, at)
    if base not in due or not layout.LENGTH_MIN <= length <= room - layout.LOG_OVERHEAD:
        return False
    if magic < layout.MAGIC:
        return _could_be_legacy(data, at)
    if length < layout.HEADER_SIZE - layout.LOG_OVERHEAD or len(data) - at < layout.HEADER_SIZE:
        return False
    fields = layout.HEADER.unpack_from(data, at)
    attributes, delta, count = fields[5], fields[6], fields[12]
    return bool(
        delta >= 0
        and base + delta in due
        and count >= 0
        and attributes & layout.CODEC_MASK < _CODECS
    )


def _could_be_legacy(data: bytes, at: int) -> bool:
    """Whether the sizes of key and value of a v0 or v1 entry add up to its length."""
    _, length, _, magic = layout.FRAME.unpack_from(data, at)
    sizes_at = at + layout.FRAME_SIZE + 1 + (8 if magic else 0)
    if sizes_at + 4 > len(data):
        return False
    (key_size,) = layout.LENGTH.unpack_from(data, sizes_at)
    # Offset and length are not counted by the length, and two sizes stand before key and value.
    rest = length - (sizes_at - at - layout.LOG_OVERHEAD) - 8 - max(key_size, 0)
    value_size_at = sizes_at + 4 + max(key_size, 0)
    if key_size < -1 or rest < 0:
        return False
    if value_size_at + 4 > len(data):
        return True  # In the next window; the checksum decides.
    (value_size,) = layout.LENGTH.unpack_from(data, value_size_at)
    return bool(value_size >= -1 and max(value_size, 0) == rest)


def _leads_on(file: File, end: int, *, size: int, due: range) -> bool:
    """Whether a batch could stand at `end`, or nothing does."""
    frame = file.read(end, min(layout.FRAME_SIZE, size - end))
    if len(frame) < layout.FRAME_SIZE or not any(frame):
        return True
    base, length, _, magic = layout.FRAME.unpack(frame)
    # One of the two may be damaged itself.
    is_framed = layout.LENGTH_MIN <= length <= size - end - layout.LOG_OVERHEAD
    return bool(magic <= layout.MAGIC and (base in due or is_framed))


def _holds(file: File, path: str, position: int, *, size: int) -> bool:
    """Whether a batch at `position` is sound by itself."""
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


def _note_epoch(runs: list[EpochRun], piece: _Piece, base_offset: Offset) -> None:
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
