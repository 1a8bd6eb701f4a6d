"""`DirectoryLog`: one partition's log in a data directory, as far as it can and may be read.

Not here: which directory a partition stands in, and what was planned (`directories`).

Invariant: damage is an error, or with a list for what is skipped an entry of it; no record that can
be read is left out otherwise.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.errors import ConfigError, CorruptionError, DirectoryError
from tailrace.model import TopicPartition
from tailrace.offline.damage import Drop, OnDamage, find_damage
from tailrace.offline.undecided import first_unstable_offset
from tailrace.runtime.files import DiskFiles, Files
from tailrace.spark.corruption import Skipped
from tailrace.storage.reader import (
    LogReader,
    SegmentFiles,
    StoredPiece,
    open_log_reader,
)
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
        if self._end_offset is None:
            self._end_offset = self.reader.end_offset
            if self._is_committed:
                segments = self.reader.segments
                unstable = first_unstable_offset(self.directory.files, self.folder, segments)
                if unstable is not None:
                    self._end_offset = max(unstable, self.reader.start_offset)
        return self._end_offset

    def pieces(self, start: int, limit: int) -> Iterator[StoredPiece]:
        """The batches of a range; a run of them may reach beyond it.

        Raises:
            CorruptionError: a batch is damaged and nothing may be skipped; or the file has
                changed, and what was there cannot be read any more.
            OffsetOutOfRangeError: the range is not within the log.
            OSError: a file cannot be read.
        """
        at = start
        try:
            for stored in self.reader.stored_pieces(start, limit):
                yield stored
                at = stored.piece.next_offset
        except CorruptionError:
            if self._skipped is None:
                raise
            segments = self.reader.segments_between(at, limit)
            drops = find_damage(self.directory.files, segments, OnDamage.SKIP).drops
            if not drops:
                raise
        else:
            return
        self._skipped += [self._told(drop, at, limit) for drop in drops if _meets(drop, at, limit)]
        for segment in segments:
            for stored in self._sound_pieces(segment, drops):
                if stored.piece.base_offset >= limit:
                    return
                if stored.piece.last_offset >= at:
                    yield stored.since(at)

    def _sound_pieces(self, segment: SegmentFiles, drops: Sequence[Drop]) -> Iterator[StoredPiece]:
        """The batches between the damage."""
        gaps = [
            (each.position, each.position + each.size_bytes)
            for each in drops
            if each.path == segment.path
        ]
        starts = [0, *(end for _, end in gaps)]
        limits = [*(position for position, _ in gaps), segment.size]
        file = self.directory.files.open(segment.path, read_only=True)
        try:
            for start, limit in zip(starts, limits, strict=True):
                for position, piece in walk_runs(file, segment.path, start=start, limit=limit):
                    yield StoredPiece(piece, segment.path, position)
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
