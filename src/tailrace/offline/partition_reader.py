"""`PartitionReader`: the sound batches of one partition, with damage raised or stepped over.

    position   0          150        300        450        600
    bytes      | sound    | damaged  | sound    | sound    | torn
    raise      |--------->X
    step over  |--------->  told      |------------------->  told

Without a function to tell of damage, the first damaged batch that is wanted ends the reading with
an error. With one, the reading goes on at the next sound batch (`damage` finds it), and the
function is told what lies between, when the reading comes to it.

Not here: which records of a batch are wanted, and records as such.

Invariant: a batch that is given out has the right checksum and fits between its neighbours, and
every wanted offset is in one of them, in what is told, or was never there.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, TailraceError, UnsupportedCodecError
from tailrace.model import TopicPartition
from tailrace.offline.damage import (
    Drop,
    OnDamage,
    find_damage,
    find_segment_damage,
    sound_ranges,
)
from tailrace.offline.undecided import AbortedRecords, find_aborted, first_unstable_offset
from tailrace.offline.walk import offset_before_time
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.runtime.files import File, FileCutError, Files
from tailrace.storage.listing import SegmentFiles
from tailrace.storage.reader import LogReader, StoredBatch, StoredRun, open_log_reader
from tailrace.storage.walk import walk_runs


class Skipped(NamedTuple):
    """Offsets of a partition that cannot be read."""

    partition: TopicPartition
    file: str
    position: int
    """Bytes from the start of the file to the damage."""
    first_offset: int
    next_offset: int | None
    """The first that can be read again; None where it is unknown how far the damage reaches."""
    reason: str


TellDamage: TypeAlias = Callable[[Skipped], None]

UNREADABLE: Final = (CorruptionError, UnsupportedCodecError, DecompressedTooLargeError)
"""The errors of a batch with the right checksum that `PartitionReader.leave_out` takes."""


class _DamagedSegment(NamedTuple):
    """A segment that cannot be read from end to end."""

    files: SegmentFiles
    following: int | None
    """Base offset of the next one."""
    file: File
    drops: list[Drop]


class PartitionReader:
    """One partition's log as it stood when it was opened."""

    def __init__(
        self,
        files: Files,
        folder: str,
        partition: TopicPartition,
        *,
        tell: TellDamage | None = None,
    ) -> None:
        """Open the folder; without `tell` damage is an error.

        Raises:
            CorruptionError: a segment's end cannot be told.
            OSError: the folder is not there or may not be read.
        """
        self.tail: list[Skipped] = []
        """What is damaged behind the end of the log, where damage is stepped over."""
        self.torn: Skipped | None = None
        """A batch at the very end that is not whole: an append in progress, or a torn one."""
        self.tail_error: CorruptionError | None = None
        """What is damaged behind the end of the log, where damage is an error."""
        self._files = files
        self._folder = folder
        self._partition = partition
        self._tell = tell
        self.reader: LogReader = open_log_reader(files, folder, judge_tail=self._judge_tail)

    def pieces(self, start: int, limit: int) -> Iterator[StoredRun]:
        """The batches of a range; a run of them may reach beyond it.

        Raises:
            CorruptionError: a batch is damaged, and nobody is told of damage.
            OffsetOutOfRangeError: the range is not within the log, or not any more.
            OSError: a file cannot be read.
        """
        at = start
        while True:
            try:
                for stored in self.reader.stored_runs(at, limit):
                    yield stored
                    at = stored.piece.next_offset
            except CorruptionError as error:
                if self._tell is None and error.position is not None:
                    raise
                # Files that were exchanged are no damage for the reader: this one was there.
                damaged = self._open_damaged(error, at, limit)
                if self._tell is None and damaged is not None:
                    damaged.file.close()
                    raise _first_error(damaged.drops, at) from error
            else:
                return
            if damaged is None:
                continue
            for stored in self._sound_pieces(damaged, at, limit):
                yield stored
                at = stored.piece.next_offset
            if damaged.following is None or damaged.following >= limit:
                return
            at = max(at, damaged.following)

    def batches(self, start: int, limit: int) -> Iterator[StoredBatch]:
        """As `pieces`, batch by batch, those that hold an offset of the range."""
        for stored in self.pieces(start, limit):
            yield from stored.batches(start, limit)

    def offset_before_time(self, segment: SegmentFiles, timestamp_ms: int) -> int:
        """An offset below which no record of a segment is as young as `timestamp_ms`.

        Raises:
            OSError: the time index cannot be read.
        """
        return offset_before_time(self._files, segment, timestamp_ms)

    def leave_out(self, stored: StoredBatch, error: TailraceError) -> None:
        """Tell of a batch with the right checksum whose records cannot be read.

        Raises:
            TailraceError: the error itself, with its place, if nobody is told of damage.
        """
        batch, path, position = stored
        if self._tell is None:
            if isinstance(error, CorruptionError):
                raise error.located(path=path, position=position) from error
            raise error
        reason = error.rule if isinstance(error, CorruptionError) else str(error)
        first, limit = batch.base_offset, batch.next_offset
        self._tell(Skipped(self._partition, path, position, first, limit, reason))

    def finish(self) -> None:
        """Tell of what is behind the end of the log, once everything before it is read.

        Raises:
            CorruptionError: it is damaged, and nobody is told of damage.
        """
        if self.tail_error is not None:
            raise self.tail_error
        if self._tell is not None:
            for each in (*self.tail, *filter(None, [self.torn])):
                self._tell(each)

    def first_unstable_offset(self, start: int) -> int | None:
        """Where the oldest open transaction begins; None without one.

        Raises:
            OffsetsDeletedError: the log does not have the offset `start` any more.
            OSError: a file cannot be read.
        """
        return self.reader.settled(start, INT64_MAX, self._first_unstable)

    def find_aborted(self, start: int) -> AbortedRecords:
        """The aborted transactions with a record from an offset on.

        Raises:
            OffsetsDeletedError: the log does not have that offset any more.
            CorruptionError: a transaction index is damaged, so nobody can tell what was aborted.
            OSError: an index cannot be read.
        """
        reader, end = self.reader, self.reader.end_offset
        return reader.settled(
            start,
            end,
            lambda: find_aborted(self._files, reader.segments_between(start, end), start),
        )

    def _first_unstable(self) -> int | None:
        return first_unstable_offset(
            self._files,
            self._folder,
            self.reader.segments,
            end=self.reader.end_offset,
            steps_over_damage=self._tell is not None,
        )

    def _open_damaged(
        self, error: CorruptionError, start: int, limit: int
    ) -> "_DamagedSegment | None":
        """The segment that an error is about, with its damage; None if it was exchanged meanwhile.

        All is read from one open file, so positions mean the same throughout.

        Raises:
            CorruptionError: the error itself, if no damage is found there.
            OSError: the file cannot be read.
        """
        segments = self.reader.segments
        if not segments:
            raise error
        # A log that ends too early has a damaged length in its last segment.
        last = len(segments) - 1
        number = next((n for n, each in enumerate(segments) if each.path == error.path), last)
        segment = segments[number]
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        try:
            file = self._files.open(segment.path, read_only=True)
        except FileNotFoundError:
            return None
        try:
            try:
                drops = find_segment_damage(file, segment, following=following)
            except FileCutError:
                drops = []  # Another file by now, or one that was cut: the error says so.
            if self.reader.list_anew(start, limit):
                file.close()
                return None
            if not drops:
                raise error
        except BaseException:
            file.close()
            raise
        return _DamagedSegment(segment, following, file, drops)

    def _sound_pieces(
        self, damaged: "_DamagedSegment", start: int, limit: int
    ) -> Iterator[StoredRun]:
        """The batches between the damage, which is told in its place."""
        segment, _, file, drops = damaged
        assert self._tell is not None
        ranges = sound_ranges(drops, segment.size)
        try:
            for (first, end), drop in zip(ranges, [*drops, None], strict=True):
                for position, piece in walk_runs(file, segment.path, start=first, limit=end):
                    if piece.base_offset >= limit:
                        return
                    if piece.last_offset >= start:
                        yield StoredRun(piece, segment.path, position).since(start)
                if drop is not None and _meets(drop, start, limit):
                    self._tell(self._told(drop, start, limit))
        finally:
            file.close()

    def _judge_tail(self, last: SegmentFiles, end: int, error: CorruptionError | None) -> int:
        """An append in progress has nothing behind it; damage may have sound batches there."""
        found = find_damage(self._files, [last], OnDamage.SKIP)
        self.tail, self.tail_error, self.torn = [], None, None
        if error is None and found.log_end <= end:
            if found.drops:
                self.torn = self._told(found.drops[-1], end, None)
            return end
        if self._tell is None:
            self.tail_error = error or _first_error(found.drops, end)
            return end
        self.tail = [
            self._told(drop, drop.offset, None)
            for drop in found.drops
            if drop.offset >= found.log_end
        ]
        return found.log_end

    def _told(self, drop: Drop, start: int, limit: int | None) -> Skipped:
        ends = [each for each in (drop.next_offset, limit) if each is not None]
        return Skipped(
            self._partition,
            drop.path,
            drop.position,
            max(drop.offset, start),
            min(ends, default=None),
            drop.reason,
        )


def _first_error(drops: list[Drop], end: int) -> CorruptionError:
    """The error for the first damage at or behind the end of what can be read."""
    first = next((drop for drop in drops if drop.offset >= end), drops[-1])
    return CorruptionError(
        first.reason, path=first.path, position=first.position, offset=first.offset
    )


def _meets(drop: Drop, start: int, limit: int) -> bool:
    return drop.offset < limit and (drop.next_offset is None or drop.next_offset > start)
