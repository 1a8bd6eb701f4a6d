"""Which partitions a path holds: a data directory, or the folder of one partition.

Nothing is opened for writing and no lock is taken, so a broker may be at work here.
"""

import os
from dataclasses import dataclass

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.reader import SegmentFiles, list_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectory:
    """A data directory as it stood when it was listed."""

    path: str
    """Where the checkpoints are."""
    partitions: dict[TopicPartition, str]
    """The folder of each partition, in the order of their names and numbers."""


def find_partitions(files: Files, path: str) -> DataDirectory:
    """What is at `path`; for the folder of one partition, its parent with that one alone.

    Raises:
        DirectoryError: not there, not readable, or nothing that a broker would have written.
    """
    path = path.rstrip("/") or "/"
    try:
        listed = files.list(path)
        found = list_partitions(files, path)
    except OSError as error:
        raise unreadable(path, error) from error
    if names.META_PROPERTIES not in listed:
        # A folder such as lib-64 is a partition only if somebody logs to it.
        found = {each: folder for each, folder in found.items() if _has_log(files, folder)}
    if found or names.META_PROPERTIES in listed:
        return DataDirectory(path=path, partitions=dict(sorted(found.items())))
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
        DirectoryError: the folder or a log file in it cannot be read.
    """
    segments = []
    try:
        listed = files.list(folder)
    except OSError as error:
        raise unreadable(folder, error) from error
    for name in listed:
        parsed = names.parse_segment_file_name(name)
        if parsed is None or parsed[1] != names.LOG_SUFFIX:
            continue
        path = f"{folder}/{name}"
        try:
            file = files.open(path, read_only=True)
            segments.append(SegmentFiles(base_offset=parsed[0], path=path, size=file.size()))
            file.close()
        except FileNotFoundError:
            continue  # A broker has just deleted it.
        except OSError as error:
            raise unreadable(path, error) from error
    return segments, listed


def log_start_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """The log start checkpoint; a damaged one counts as empty, as it does for a broker.

    Raises:
        DirectoryError: it cannot be read.
    """
    checkpoint = f"{path}/{names.LOG_START_OFFSETS}"
    try:
        return read_offset_checkpoint(files, checkpoint)
    except CorruptionError:
        return {}
    except OSError as error:
        raise unreadable(checkpoint, error) from error


def unreadable(path: str, error: OSError) -> DirectoryError:
    """One line for an operator."""
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return DirectoryError(f"cannot read {path}: {reason}")
