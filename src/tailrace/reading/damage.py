"""Finds damaged bytes in a partition's log, and the sound batches behind them.

    position   0          150        300        450        600
    bytes      | sound    | damaged  | sound    | sound    | torn
    cut                   |<-------- goes ------------------->|
    skip                  |<- goes ->|                     |<>|

A batch is sound if its frame, CRC and records hold and its offsets fit between those around it. The
walk over a file is `tailrace.storage.damage`; here its batches are judged, and what is lost is
counted: where no offset is missing between sound batches, as many records as offsets are missing,
and in a compacted log what the headers of the damaged batches say.

Decided here, and done in `tailrace.offline.repair`. Nothing is changed.

Invariant: what is not named as damage is a row of sound batches whose offsets rise.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position
from tailrace.reading.directory import unreadable
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import position_near
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.control import end_transaction_marker_or_none
from tailrace.runtime.files import File, Files
from tailrace.storage.damage import DamagedRange, batches_across_damage
from tailrace.storage.losses import CountProof, LostRecords, claimed_records, fit_records
from tailrace.values import dataclass, field, replace


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
    """Number of lost records, as far as offsets or headers tell; None if nothing does."""
    reason: str
    sound_records: int = 0
    """Number of these records in sound batches, which are lost because of damage before them."""
    unknown_ranges: int = 0
    """Damaged ranges in these bytes of which nobody knows how many records they had."""

    @property
    def lost(self) -> str:
        """The loss as records, offsets and bytes, for a sentence."""
        offsets = None if self.next_offset is None else self.next_offset - self.offset
        return lost_words(self.records, offsets, self.size_bytes)

    is_whole_file: bool = False


class EpochRun(NamedTuple):
    """Sound batches of one leader epoch in a row."""

    epoch: LeaderEpoch
    start_offset: Offset
    last_offset: Offset
    batches: int
    bases: frozenset[Offset]
    """Base offsets of the segments that they stand in."""


def lost_words(records: int | None, offsets: int | None, size_bytes: int) -> str:
    """A number of records, offsets and bytes; None for what nobody knows.

    Example:
        >>> lost_words(10, 12, 645)
        '12 offsets, 10 records, 645 bytes'
        >>> lost_words(None, None, 645)
        'an unknown number of records, 645 bytes'
    """
    words = "an unknown number of records" if records is None else _number(records, "record")
    between = "" if offsets is None else f"{_number(offsets, 'offset')}, "
    return f"{between}{words}, {_number(size_bytes, 'byte')}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
    size: int = 0
    """Bytes of the last segment, without the room for appends that preallocation makes."""
    rescued: int = 0
    """Records that stay although there is damage before them."""
    sound: int = 0
    """Records of all sound batches."""


@dataclass(slots=True)
class _Piece:
    """A range of a log file: one batch, or bytes that are none."""

    position: Position
    end: Position
    base_offset: Offset = _NONE
    last_offset: Offset = _NONE
    epoch: LeaderEpoch = NO_LEADER_EPOCH
    records: LostRecords = LostRecords()
    fault: str | None = None
    is_blank: bool = False
    """Whether these are the zeros at the end of a file."""


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
            return found
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
                        piece.records.records or 0,
                    )
        finally:
            opened.close()
    except OSError as error:
        raise unreadable(file.path, error) from error


def find_segment_damage(
    file: File, segment: SegmentFiles, *, following: Offset | None, start: Position = _FILE_START
) -> LogDamage:
    """The damage of one segment, as `find_damage` with `OnDamage.SKIP` finds it.

    `file` is the open log file, `following` the base offset of the next segment, if any, and
    `start` a position where a batch begins: nothing is looked for before it.

    Raises:
        OSError: the file cannot be read.
    """
    found = LogDamage(log_end=segment.base_offset)
    _look_into(file, segment, following, found=found, start=start)
    return found


def sound_ranges(found: LogDamage) -> Iterator[tuple[int, int]]:
    """The positions between the drops of one segment, one range more than drops.

    Example:
        >>> # drops at 150 to 300 and at 600 to 640 of 640 bytes
        >>> list(sound_ranges(found))
        [(0, 150), (300, 600), (640, 640)]
    """
    starts = [0, *(each.position + each.size_bytes for each in found.drops)]
    limits = [*(each.position for each in found.drops), found.size]
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
    found.size = segment.size
    rows: list[_Row] = []
    drops: list[Drop] = []
    lost: list[LostRecords] = []
    is_dense, sound = True, 0
    for piece, next_base in _with_next(_pieces(file, segment, following, start=start)):
        if piece.is_blank and following in {None, found.log_end}:
            found.size = piece.position  # Preallocated: a broker cuts these zeros.
            break
        if piece.fault is None:
            piece.fault = _order_fault(
                piece, segment, limits=(next_base, following), due=found.log_end
            )
        if piece.fault is not None:
            drops.append(_drop(piece, segment, found.log_end))
            lost.append(piece.records)
            continue
        count = piece.records.records or 0
        is_whole = count == piece.last_offset - piece.base_offset + 1
        if not is_whole or (sound and not drops and piece.base_offset > found.log_end):
            is_dense = False
        if drops:
            rows.append(_Row(drops, lost, piece.base_offset))
            drops, lost = [], []
        sound += count
        if found.drops or rows:
            found.rescued += count
        found.log_end = Offset(piece.last_offset + 1)
        _note_epoch(found.runs, piece, segment.base_offset)
    if drops:
        rows.append(_Row(drops, lost, following))
    found.sound += sound
    for row in rows:
        found.drops += row.counted(is_dense=is_dense and sound > 0)


def _drop(piece: _Piece, segment: SegmentFiles, offset: Offset) -> Drop:
    assert piece.fault is not None
    return Drop(
        path=segment.path,
        base_offset=segment.base_offset,
        position=piece.position,
        size_bytes=piece.end - piece.position,
        offset=offset,
        next_offset=None,
        records=None,
        reason=piece.fault,
    )


class _Row(NamedTuple):
    """Drops with no sound batch between them, and the records that each had as far as it tells."""

    drops: list[Drop]
    lost: list[LostRecords]
    next_offset: Offset | None
    """The offset of the sound batch behind them; None if there is none."""

    def counted(self, *, is_dense: bool) -> Iterator[Drop]:
        """The drops with what was lost in each, as far as anything tells."""
        end = self.next_offset
        room = None if end is None else end - self.drops[0].offset
        for drop, count in zip(
            self.drops, fit_records(self.lost, room, is_dense=is_dense), strict=True
        ):
            yield replace(drop, next_offset=end, records=count, unknown_ranges=int(count is None))


def _cut(files: Files, segments: Sequence[SegmentFiles], found: LogDamage) -> None:
    """Drop everything from the first damage on; `segments` begin with the one that has it."""
    first, later = found.drops[0], segments[1:]
    found.log_end, found.rescued = first.offset, 0
    runs = [run for run in found.runs if run.start_offset < first.offset]
    # A run that goes on behind the damage ends before it.
    found.runs = [
        run._replace(last_offset=min(run.last_offset, Offset(first.offset - 1))) for run in runs
    ]
    next_offset = later[0].base_offset if later else None
    found.drops = [
        _counted(
            files,
            segments[0],
            replace(
                first,
                size_bytes=segments[0].size - first.position,
                next_offset=next_offset,
            ),
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
        _counted(
            files,
            each,
            Drop(
                path=each.path,
                base_offset=each.base_offset,
                position=_FILE_START,
                size_bytes=each.size,
                offset=each.base_offset,
                next_offset=limit,
                records=None,
                reason=reason,
                is_whole_file=True,
            ),
        )
        for each, limit in zip(segments, limits, strict=True)
    ]


def _counted(files: Files, segment: SegmentFiles, drop: Drop) -> Drop:
    """The drop of all that stands from a position of a segment on, with its records."""
    found = LogDamage(log_end=drop.offset)
    try:
        file = files.open(segment.path, read_only=True)
        try:
            _look_into(file, segment, drop.next_offset, found=found, start=drop.position)
        finally:
            file.close()
    except OSError as error:
        raise unreadable(segment.path, error) from error
    lost = [each.records for each in found.drops if each.records is not None]
    is_known = bool(lost) or found.sound > 0 or not found.drops
    return replace(
        drop,
        records=found.sound + sum(lost) if is_known else None,
        sound_records=found.sound,
        unknown_ranges=sum(each.unknown_ranges for each in found.drops),
    )


def _with_next(pieces: Iterator[_Piece]) -> Iterator[tuple[_Piece, Offset | None]]:
    """Each piece with the base offset of the next sound one, damage between them or not."""
    held: list[_Piece] = []
    for piece in pieces:
        if piece.fault is None:
            for each in held:
                yield each, piece.base_offset
            held = []
        held.append(piece)
    for each in held:
        yield each, None


def _pieces(
    file: File,
    segment: SegmentFiles,
    following: Offset | None,
    *,
    start: Position = _FILE_START,
) -> Iterator[_Piece]:
    """The file from `start` on: batches that are sound by themselves, and the bytes between."""
    for found in batches_across_damage(
        file,
        segment.path,
        base_offset=segment.base_offset,
        size=segment.size,
        following=following,
        start=start,
    ):
        if isinstance(found, DamagedRange):
            yield _Piece(
                found.position,
                found.end,
                records=claimed_records(file, segment.path, found.claim),
                fault=found.reason,
                is_blank=found.is_blank,
            )
        else:
            position, batch = found
            yield _piece(position, batch, _fault(batch))


def _piece(position: Position, batch: Batch, fault: str | None) -> _Piece:
    # A count that the header's own offsets have no room for is damaged itself.
    records = batch.record_count if 0 <= batch.record_count <= batch.last_offset_delta + 1 else None
    return _Piece(
        position,
        Position(position + batch.size),
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        LostRecords() if records is None else LostRecords(records, CountProof.RECORDS),
        fault,
    )


def _fault(batch: Batch) -> str | None:
    """The rule that the batch breaks by itself, or None."""
    try:
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
    if next_base is not None and first != due < next_base <= last:
        return f"the batch has offsets {first} to {last}, and the next one begins at {next_base}"
    if last - segment.base_offset > INT32_MAX:
        return f"offset {last} is more than {INT32_MAX} above the segment's base"
    return None


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
