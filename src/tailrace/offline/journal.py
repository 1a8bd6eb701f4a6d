"""The note that a repair is under way: `tailrace-repair.json`, beside the checkpoints.

    {"version": 1, "was_clean": true, "partitions": {"flights-0": 170}}

The number is the base offset from which on indexes, snapshots and epochs are written anew. The note
is on the device before the first change and goes after the last one. So a repair that died halfway
is completed by the next one, even where the log itself has become sound already. Apache Kafka
ignores the file.
"""

import json
from collections.abc import Mapping

from tailrace.errors import UNEXPECTED_JSON, CorruptionError, DirectoryError
from tailrace.model import TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import read_text, write_atomically
from tailrace.storage.names import parse_partition_directory_name
from tailrace.values import dataclass

FILE = "tailrace-repair.json"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The changes that a repair has begun."""

    was_clean: bool
    """Whether the directory had the mark of an orderly stop."""
    partitions: Mapping[TopicPartition, int]
    """Base offset of the first segment that is changed."""


def read_journal(files: Files, root: str) -> Journal | None:
    """Read the journal of an interrupted repair; None if there was none.

    Raises:
        DirectoryError: the file is not one of this release.
        OSError: it cannot be read.
    """
    path = f"{root}/{FILE}"
    if not files.exists(path):
        return None
    try:
        content = json.loads(read_text(files, path))
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}, not {VERSION}")
        partitions = {}
        for name, base_offset in content["partitions"].items():
            partition = parse_partition_directory_name(name)
            if partition is None or type(base_offset) is not int:
                raise ValueError(f"{str(name)[:40]!r} is no partition with an offset")
            partitions[partition] = base_offset
        return Journal(was_clean=content["was_clean"] is True, partitions=partitions)
    except (CorruptionError, *UNEXPECTED_JSON) as error:
        raise DirectoryError(
            f"{path} cannot be understood ({error}); remove it and repair again"
        ) from error


def write_journal(files: Files, root: str, journal: Journal) -> None:
    """Put the note on the device.

    Raises:
        OSError: the device refused; the old note, if any, still stands.
    """
    content = {
        "version": VERSION,
        "was_clean": journal.was_clean,
        "partitions": {str(each): base for each, base in sorted(journal.partitions.items())},
    }
    write_atomically(files, root, FILE, text=json.dumps(content) + "\n")
