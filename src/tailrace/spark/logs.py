"""`DirectoryLog`: one partition's log in a data directory, as far as it can and may be read.

Not here: which directory a partition stands in, and what was planned (`directories`).

Invariant: damage is an error, or with a list for what is skipped an entry of it; no record that can
be read is left out otherwise.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError, CorruptionError, DirectoryError, OffsetsDeletedError
from tailrace.model import TopicPartition
from tailrace.offline.damage import Drop, OnDamage, find_damage, find_segment_damage
from tailrace.offline.undecided import AbortedRecords, find_aborted, first_unstable_offset
from tailrace.runtime.files import DiskFiles, File, FileCutError, Files
from tailrace.spark.corruption import Skipped
from tailrace.storage.listing import SegmentFiles
from tailrace.storage.reader import LogReader, StoredRun, open_log_reader
from tailrace.storage.walk import walk_runs


class DataDirectory(NamedTuple):
    """One of the directories."""

    files: Files
    path: str
    given: str
    """As the user wrote it."""


def open_directory(given: str) -> DataDirectory:
    """The directory that a path or a URI names; nothing is read yet.

    Raises:
        ConfigError: there is no file system for the URI.
        DirectoryError: its file system cannot be opened.
    """
    if "://" not in given and not given.startswith("file:"):
        # Workers may run in another working directory than the driver.
        return DataDirectory(DiskFiles(), os.path.abspath(given), given)
    from tailrace.runtime.arrow_files import open_uri

    try:
        files, path = open_uri(given)
    except ValueError as error:
        raise ConfigError([f"path: {given} cannot be opened: {error}"]) from error
    except (OSError, ImportError) as error:
        raise DirectoryError(f"{given} cannot be opened: {error}") from error
    return DataDirectory(files, path.rstrip("/") or "/", given)


class _DamagedSegment(NamedTuple):
    """A segment that cannot be read from end to end."""

    files: SegmentFiles
    following: int | None
    """Base offset of the next one."""
    file: File
    drops: list[Drop]


class DirectoryLog:
    """One partition's log as it stood when it was first asked for."""

    def __init__(
        self,
        directory: DataDirectory,
        partition: TopicPartition,
        *,
        is_committed: bool,
        skipped: list[Skipped] | None,
    ) -> None:
        self.directory = directory
        self.folder = f"{directory.path}/{partition}"
        self.tail: list[Skipped] = []
        """What is damaged behind the end of the log."""
        self._partition = partition
        self._is_committed = is_committed
        self._skipped = skipped
        self.reader: LogReader = open_log_reader(
            directory.files,
            self.folder,
            judge_tail=self._judge_tail,
        )
        self._end_offset: int | None = None

    def end_offset(self) -> int:
        """The end of what may be read: that of the log, or its last stable offset."""
        while self._end_offset is None:
            reader = self.reader
            unstable = None
            try:
                if self._is_committed:
                    unstable = reader.settled(
                        reader.start_offset, INT64_MAX, self._first_unstable_offset
                    )
            except OffsetsDeletedError:
                continue  # The log begins later now, and may end the same.
            end = reader.end_offset
            self._end_offset = end if unstable is None else max(unstable, reader.start_offset)
        return self._end_offset

    def _first_unstable_offset(self) -> int | None:
        reader = self.reader
        return first_unstable_offset(
            self.directory.files, self.folder, reader.segments, end=reader.end_offset
        )

    def find_aborted(self, start: int) -> AbortedRecords:
        """The aborted transactions with a record from an offset on.

        Raises:
            OffsetsDeletedError: the log does not have that offset any more.
            CorruptionError: an index is damaged.
            OSError: an index cannot be read.
        """
        end = self.reader.end_offset
        return self.reader.settled(
            start,
            end,
            lambda: find_aborted(
                self.directory.files, self.reader.segments_between(start, end), start
            ),
        )

    def pieces(self, start: int, limit: int) -> Iterator[StoredRun]:
        """The batches of a range; a run of them may reach beyond it.

        Raises:
            CorruptionError: a batch is damaged and nothing may be skipped.
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
                if self._skipped is None:
                    raise
                # Of files that were exchanged the reader tells no damage: this one was there.
                damaged = self._open_damaged(error, at, limit)
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
            file = self.directory.files.open(segment.path, read_only=True)
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
        """The batches between the damage, which is reported."""
        segment, _, file, drops = damaged
        assert self._skipped is not None
        self._skipped += [
            self._told(drop, start, limit) for drop in drops if _meets(drop, start, limit)
        ]
        starts = [0, *(each.position + each.size_bytes for each in drops)]
        limits = [*(each.position for each in drops), segment.size]
        try:
            for first, end in zip(starts, limits, strict=True):
                for position, piece in walk_runs(file, segment.path, start=first, limit=end):
                    if piece.base_offset >= limit:
                        return
                    if piece.last_offset >= start:
                        yield StoredRun(piece, segment.path, position).since(start)
        finally:
            file.close()

    def _judge_tail(self, last: SegmentFiles, end: int, error: CorruptionError | None) -> int:
        """An append in progress has nothing behind it; damage may have sound batches there."""
        found = find_damage(self.directory.files, [last], OnDamage.SKIP)
        if error is None and found.log_end <= end:
            return end
        if self._skipped is None:
            if error is not None:
                raise error
            first = next(drop for drop in found.drops if drop.offset >= end)
            raise CorruptionError(
                first.reason, path=last.path, position=first.position, offset=first.offset
            )
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


def _meets(drop: Drop, start: int, limit: int) -> bool:
    return drop.offset < limit and (drop.next_offset is None or drop.next_offset > start)
