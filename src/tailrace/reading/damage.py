"""Finds damaged bytes in a partition's log, and the sound batches after them.

    position   0          150        300        450        600
    bytes      | sound    | damaged  | sound    | sound    | torn
    cut                   |<-------- goes ------------------->|
    skip                  |<- goes ->|                     |<>|

`tailrace.storage.segment_walk` decides what damage is. Here it becomes what has to go, and what is
lost is counted (`tailrace.storage.losses`): where no offset is missing between sound batches, as
many records as offsets are missing, and in a compacted log what the headers of damaged batches say.

Decided here, and done in `tailrace.offline.repair`. Nothing is changed.

Invariant: what is not named as damage is a row of sound batches whose offsets rise.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from enum import Enum
from typing import Final, NamedTuple

from tailrace.errors import counted
from tailrace.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position
from tailrace.reading.directory import unreadable
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import position_near
from tailrace.records.runs import BatchRun, Field, Piece
from tailrace.runtime.files import File, Files
from tailrace.storage.losses import LossCount
from tailrace.storage.segment_walk import Fault, Sound, walk_segment
from tailrace.values import dataclass, field, replace


class OnDamage(Enum):
    """Ways to read a log with a damaged batch."""

    CUT = "cut"
    """Everything after it in the partition, as in a broker's recovery."""
    SKIP = "skip"
    """Nothing: what is sound after it stays, under its offsets."""


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
    """Damaged ranges in these bytes with an unknown number of records."""

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
    """Base offsets of the segments that they are in."""


def lost_words(records: int | None, offsets: int | None, size_bytes: int) -> str:
    """A number of records, offsets and bytes; None for an unknown number.

    Example:
        >>> lost_words(10, 12, 645)
        '12 offsets, 10 records, 645 bytes'
        >>> lost_words(None, None, 645)
        'an unknown number of records, 645 bytes'
    """
    words = "an unknown number of records" if records is None else counted(records, "record")
    between = "" if offsets is None else f"{counted(offsets, 'offset')}, "
    return f"{between}{words}, {counted(size_bytes, 'byte')}"


_FIRST: Final = Offset(0)
_FILE_START: Final = Position(0)


@dataclass(slots=True, kw_only=True)
class LogDamage:
    """Damage in the log files of a partition."""

    drops: list[Drop] = field(default_factory=list)
    """In the order of the log."""
    log_end: Offset = _FIRST
    """After the last batch that stays."""
    runs: list[EpochRun] = field(default_factory=list)
    """The batches that stay, by leader epoch."""
    size: int = 0
    """Bytes of the last segment, without the room for appends that preallocation makes."""
    rescued: int = 0
    """Records that stay although there is damage before them."""
    sound: int = 0
    """Records of all sound batches."""


def find_damage(files: Files, segments: Sequence[SegmentFiles], on_damage: OnDamage) -> LogDamage:
    """Every range of the log that has to go, and what stays.

    Raises:
        DirectoryError: a file cannot be read.
    """
    # Not 0: retention has deleted what was before the first segment.
    found = LogDamage(log_end=segments[0].base_offset if segments else _FIRST)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        try:
            with closing(files.open(segment.path, read_only=True)) as file:
                _look_into(file, segment, following, found=found)
        except OSError as error:
            raise unreadable(segment.path, error) from error
        # Later segments need not be looked at: they go as a whole.
        if found.drops and on_damage is OnDamage.CUT:
            _cut(files, segments[number:], found)
            return found
    return found


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
    with closing(files.open(last.path, read_only=True)) as file:
        # From an index entry on: a whole segment of a GB would be read at each look.
        near = position_near(files, last, file, offset=end)
        _look_into(file, last, None, found=found, start=near)
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
    # A gap before a segment is no damage: compaction leaves some, and so does DeleteRecords.
    found.log_end = max(found.log_end, segment.base_offset)
    found.size = segment.size
    count = LossCount(file, segment.path, due=found.log_end)
    drops: list[Drop] = []
    for each in walk_segment(
        file,
        segment.path,
        base_offset=segment.base_offset,
        size=segment.size,
        following=following,
        start=start,
        due=found.log_end,
    ):
        if isinstance(each, Sound):
            count.add_sound(each.piece)
            if found.drops or drops:
                found.rescued += each.piece.record_count
            _note_epochs(found.runs, each.piece, segment.base_offset)
        elif each.fault is Fault.PADDING:
            found.size = each.position  # A broker cuts these zeros.
        else:
            count.add_damage(each)
            drops.append(
                Drop(
                    path=segment.path,
                    base_offset=segment.base_offset,
                    position=each.position,
                    size_bytes=each.end - each.position,
                    offset=count.due,
                    next_offset=None,
                    records=None,
                    reason=each.reason,
                )
            )
    # What was lost is known only now: whether offsets are missing elsewhere decides whether each
    # missing one had a record.
    found.sound += count.sound
    found.log_end = count.due
    for drop, (records, end) in zip(drops, count.finish(following), strict=True):
        found.drops.append(
            replace(drop, next_offset=end, records=records, unknown_ranges=int(records is None))
        )


def _cut(files: Files, segments: Sequence[SegmentFiles], found: LogDamage) -> None:
    """Drop everything from the first damage on; `segments` begin with the one that has it."""
    first, later = found.drops[0], segments[1:]
    # Nothing after the damage stays, so nothing is rescued.
    found.log_end, found.rescued = first.offset, 0
    runs = [run for run in found.runs if run.start_offset < first.offset]
    # A run that continues after the damage ends before it.
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
    """The drop of everything from a position of a segment on, with its records."""
    found = LogDamage(log_end=drop.offset)
    try:
        with closing(files.open(segment.path, read_only=True)) as file:
            _look_into(file, segment, drop.next_offset, found=found, start=drop.position)
    except OSError as error:
        raise unreadable(segment.path, error) from error
    lost = [each.records for each in found.drops if each.records is not None]
    # With nothing to go by, no number is better than 0.
    is_known = bool(lost) or found.sound > 0 or not found.drops
    return replace(
        drop,
        records=found.sound + sum(lost) if is_known else None,
        sound_records=found.sound,
        unknown_ranges=sum(each.unknown_ranges for each in found.drops),
    )


def _note_epochs(runs: list[EpochRun], piece: Piece, segment_base: Offset) -> None:
    """Add the leader epochs of a batch, or of a run of them."""
    pieces: Iterator[Piece] = iter((piece,))
    if isinstance(piece, BatchRun) and not piece.is_dense:
        pieces = (batch for _, batch in piece.batches(piece.base_offset, piece.next_offset))
    for each in pieces:
        # A dense run has one epoch.
        if isinstance(each, BatchRun):
            epoch = LeaderEpoch(each.first_header[Field.LEADER_EPOCH])
            count = each.batch_count
        else:
            epoch, count = each.leader_epoch, 1
        if epoch == NO_LEADER_EPOCH:
            continue
        last = runs[-1] if runs else None
        if last is not None and last.epoch == epoch:
            runs[-1] = last._replace(
                last_offset=each.last_offset,
                batches=last.batches + count,
                bases=last.bases | {segment_base},
            )
        else:
            runs.append(
                EpochRun(
                    epoch, each.base_offset, each.last_offset, count, frozenset({segment_base})
                )
            )
