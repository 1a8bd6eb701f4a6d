"""A directory of Kafka with its metadata log among the partitions, as by default, in memory."""

import posixpath
from collections.abc import Iterator
from pathlib import Path

from tailrace.model import METADATA_TOPIC
from tailrace.testing import MemoryFiles

DIRECTORY = Path(__file__).parent / "golden" / "kraft" / "logs"
ROOT = "data"
METADATA_FOLDER = f"{ROOT}/{METADATA_TOPIC}-0"
METADATA_LOG = f"{METADATA_FOLDER}/{0:020d}.log"
EVENTS_LOG = f"{ROOT}/events-0/{0:020d}.log"
STRANGERS = (
    f"{METADATA_FOLDER}/something.txt",
    f"{ROOT}/notes.txt",
    f"{ROOT}/remote-log-index-cache/1_2.index",
)
"""Files that Kafka or somebody else may have there too, which the directory has not of itself."""


def kraft_directory() -> MemoryFiles:
    """Return the files that Kafka left, and `STRANGERS` with their names as content."""
    files = MemoryFiles()
    for source in sorted(DIRECTORY.rglob("*")):
        if source.is_file():
            target = f"{ROOT}/{source.relative_to(DIRECTORY).as_posix()}"
            _put(files, target, source.read_bytes())
    for path in STRANGERS:
        _put(files, path, path.encode())
    return files


def not_ours(files: MemoryFiles) -> dict[str, bytes]:
    """Every file that only others may change, by path."""
    return {
        path: files.content(path)
        for path in _paths(files, ROOT)
        if path in STRANGERS or path.endswith("/bootstrap.checkpoint")
    }


def _paths(files: MemoryFiles, folder: str) -> Iterator[str]:
    for name in files.list(folder):
        path = f"{folder}/{name}"
        if files.is_directory(path):
            yield from _paths(files, path)
        else:
            yield path


def _put(files: MemoryFiles, path: str, content: bytes) -> None:
    files.make_directory(posixpath.dirname(path))
    files.open(path, create=True).close()
    files.overwrite(path, content)
