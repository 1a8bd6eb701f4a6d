"""`DirectoryLog`: one partition's log in a data directory, as far as it can and may be read.

Not here: which directory a partition stands in, and what was planned (`directories`).

Invariant: damage is an error, or with a list for what is skipped an entry of it; no record that can
be read is left out otherwise.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.errors import ConfigError, DirectoryError, OffsetsDeletedError
from tailrace.model import TopicPartition
from tailrace.offline.partition_reader import PartitionReader, Skipped
from tailrace.offline.undecided import AbortedRecords
from tailrace.runtime.files import DiskFiles, Files
from tailrace.storage.reader import LogReader, StoredRun


class DataDirectory(NamedTuple):
    """One of the directories."""

    files: Files
    path: str
    given: str
    """The path or URI as the user wrote it."""


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
        self._is_committed = is_committed
        self._log = PartitionReader(
            directory.files,
            self.folder,
            partition,
            tell=None if skipped is None else skipped.append,
        )
        if self._log.tail_error is not None:
            raise self._log.tail_error
        self._end_offset: int | None = None

    @property
    def reader(self) -> LogReader:
        """The segments and offsets, as they were last listed."""
        return self._log.reader

    @property
    def tail(self) -> list[Skipped]:
        """What is damaged behind the end of the log, where damage is skipped."""
        return self._log.tail

    def end_offset(self) -> int:
        """The end of what may be read: that of the log, or its last stable offset."""
        while self._end_offset is None:
            unstable = None
            try:
                if self._is_committed:
                    unstable = self._log.first_unstable_offset(self.reader.start_offset)
            except OffsetsDeletedError:
                continue  # The log begins later now, and may end the same.
            end, start = self.reader.end_offset, self.reader.start_offset
            self._end_offset = end if unstable is None else max(unstable, start)
        return self._end_offset

    def find_aborted(self, start: int) -> AbortedRecords:
        """The aborted transactions with a record from an offset on.

        Raises:
            OffsetsDeletedError: the log does not have that offset any more.
            CorruptionError: an index is damaged.
            OSError: an index cannot be read.
        """
        return self._log.find_aborted(start)

    def pieces(self, start: int, limit: int) -> Iterator[StoredRun]:
        """The batches of a range; a run of them may reach beyond it.

        Raises:
            CorruptionError: a batch is damaged and nothing may be skipped.
            OffsetOutOfRangeError: the range is not within the log, or not any more.
            OSError: a file cannot be read.
        """
        return self._log.pieces(start, limit)
