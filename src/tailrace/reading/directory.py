"""Lists the partitions at a path: a data directory, or the folder of one partition.

Nothing is opened for writing and no lock is taken, so a broker may be at work here.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import TopicPartition
from tailrace.reading.listing import SegmentFiles, list_segment_files, settled
from tailrace.reading.lookup import find_end
from tailrace.reading.reader import gone, partition_folders
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage import evidence, names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.walk import walk_headers
from tailrace.values import dataclass

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectory:
    """A data directory as it stood when it was listed."""

    path: str
    """The data directory, which has the checkpoints."""
    partitions: dict[TopicPartition, str]
    """The folder of each partition, in the order of their names and numbers."""


def find_partitions(files: Files, path: str) -> DataDirectory:
    """List the data directory at `path`; if `path` is a partition's folder, only that partition.

    Raises:
        DirectoryError: not there, not readable, or nothing that a broker would have written.
    """
    path = path.rstrip("/") or "/"
    try:
        listed = files.list(path)
        found = partition_folders(files, path)
    except OSError as error:
        raise unreadable(path, error) from error
    if names.META_PROPERTIES not in listed:
        # A folder such as lib-64 is a partition only if somebody logs to it.
        found = {each: folder for each, folder in found.items() if _has_log(files, folder)}
    if found or names.META_PROPERTIES in listed:
        return DataDirectory(path=path, partitions=dict(sorted(found.items())))
    # The folder itself was named. Its parent has the checkpoints, if any.
    parent, _, name = path.rpartition("/")
    partition = names.parse_partition_directory_name(name)
    if partition is not None and _has_log(files, path):
        return DataDirectory(path=parent or ".", partitions={partition: path})
    raise DirectoryError(
        f"{path} holds no partition (a folder such as flights-0) and no {names.META_PROPERTIES}; "
        "give the directory that log.dirs names"
    )


def _has_log(files: Files, folder: str) -> bool:
    try:
        parsed = map(names.parse_segment_file_name, files.list(folder))
        return any(each is not None and each[1] == names.LOG_SUFFIX for each in parsed)
    except OSError:
        return False


def list_segments(files: Files, folder: str) -> tuple[list[SegmentFiles], list[str]]:
    """The segments of a partition in order, and the names of all files in its folder.

    Raises:
        FolderGoneError, DirectoryError: as `settled_or_gone`.
    """
    with _explaining(files, folder):
        return list_segment_files(files, folder)


def settled_or_gone(
    files: Files, folder: str, work: Callable[[Sequence[SegmentFiles], Sequence[str]], ResultT]
) -> ResultT:
    """The result of `work` as `listing.settled` gives it, with errors for an operator.

    Raises:
        FolderGoneError: the folder is not there, or not any more.
        DirectoryError: the folder or a file in it cannot be read, or files were exchanged at each
            try.
    """
    with _explaining(files, folder):
        return settled(files, folder, work)


@contextmanager
def _explaining(files: Files, folder: str) -> Iterator[None]:
    try:
        yield
    except DirectoryError:
        raise
    except OSError as error:
        if not files.is_directory(folder):
            raise gone(folder) from error
        raise unreadable(str(error.filename or folder), error) from error


def believed_log_start(
    files: Files,
    path: str,
    partition: TopicPartition,
    *,
    folder: str,
    segments: Sequence[SegmentFiles],
) -> int:
    """Log start offset for a broker: from the checkpoint in `path`, else from its files.

    Raises:
        DirectoryError: a file cannot be read.
    """
    first = segments[0].base_offset if segments else 0
    checkpoint = f"{path}/{names.LOG_START_OFFSETS}"
    try:
        noted = read_offset_checkpoint(files, checkpoint).get(partition, 0)
        # The usual cases, for which no other file is read.
        if noted <= first or not any(segment.size for segment in segments):
            return max(first, noted)
        if evidence.is_of_this_log(files, folder, noted) or find_end(files, segments) >= noted:
            return noted
    except CorruptionError:
        pass  # What the log itself says counts then.
    except OSError as error:
        raise unreadable(checkpoint, error) from error
    try:
        batch = next(_headers(files, segments), None)
        return evidence.start_by_epochs(files, folder, first_base=first, first=batch)
    except CorruptionError:
        return first
    except OSError as error:
        raise unreadable(folder, error) from error


def _headers(files: Files, segments: Sequence[SegmentFiles]) -> Iterator[Batch]:
    for segment in segments[:1]:
        with closing(files.open(segment.path, read_only=True)) as file:
            for _, batch in walk_headers(file, segment.path, start=0, limit=segment.size):
                yield batch


def unreadable(path: str, error: OSError) -> DirectoryError:
    """One line for an operator."""
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return DirectoryError(f"cannot read {path}: {reason}")
