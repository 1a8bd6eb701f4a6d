"""docs/formats/log-directory.md and indexes.md say what the code does."""

import re
import uuid
from pathlib import Path

import pytest

from tailrace.cluster import bootstrap
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.model import Offset, Position, TopicPartition
from tailrace.storage import checkpoints, names
from tailrace.storage.directories import open_log_directory
from tailrace.storage.index.offset import OffsetIndex, open_offset_index
from tailrace.storage.index.time import TimeIndex, open_time_index
from tailrace.storage.snapshots import encode_snapshot
from tailrace.testing import MemoryFiles
from tests.unit.storage.producer_builders import (
    known_batch,
    known_producer,
    known_producers,
)

DOCUMENTS = Path(__file__).parents[3] / "docs" / "formats"
DIRECTORY = (DOCUMENTS / "log-directory.md").read_text()
INDEXES = (DOCUMENTS / "indexes.md").read_text()
SUFFIXES = (
    names.LOG_SUFFIX,
    names.OFFSET_INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TRANSACTION_INDEX_SUFFIX,
    names.SNAPSHOT_SUFFIX,
)
ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")


def block(language: str) -> bytes:
    """The fenced block of a language in log-directory.md."""
    [text] = re.findall(rf"```{language}\n(.*?)```", DIRECTORY, re.DOTALL)
    return str(text).encode()


def rows(first_column: str) -> list[list[str]]:
    """The cells of the table of indexes.md that begins with this column."""
    lines = INDEXES.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_column} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return found


@pytest.fixture
def files() -> MemoryFiles:
    """A disk with an empty directory."""
    disk = MemoryFiles()
    disk.make_directory("data")
    return disk


def test_meta_properties(files: MemoryFiles) -> None:
    """The block is what a new directory gets."""
    open_log_directory(files, "data", node_id=1, new_id=ID)
    assert files.content("data/meta.properties") == block("properties")


def test_checkpoints(files: MemoryFiles) -> None:
    """The blocks are what the writers write."""
    offsets = {TopicPartition("flights", 0): 84194, TopicPartition("flights", 1): 84190}
    checkpoints.write_offset_checkpoint(files, "data", "a", offsets=offsets)
    assert files.content("data/a") == block("checkpoint")
    checkpoints.write_epoch_checkpoint(files, "data", "b", entries=[(0, 0), (3, 170)])
    assert files.content("data/b") == block("epochs")


def test_partition_metadata(files: MemoryFiles) -> None:
    """The block, less the newline that Markdown needs."""
    checkpoints.write_partition_metadata(files, "data", "a", topic_id=ID)
    assert files.content("data/a") == block("metadata")[:-1]


def test_snapshot() -> None:
    """The block, in hex, is the snapshot that its sentence describes."""
    last = known_batch(last_sequence=5, last_offset=11, offset_delta=1, timestamp=1_700_000_000_000)
    producers = known_producers(
        {7: known_producer(epoch=2, batches=(last,), timestamp=last.timestamp)}
    )
    assert encode_snapshot(producers) == bytes.fromhex(block("snapshot").decode())


def test_every_name_of_the_code_is_in_the_tables() -> None:
    """Files of the directory and of a partition, and folders that are parsed as they should."""
    listed = set(re.findall(r"^\| `([^`]+)` \|", DIRECTORY, re.MULTILINE))
    segment = {names.segment_file_name(170, s) for s in SUFFIXES}
    folders = {
        names.partition_directory_name(TopicPartition("flights", 0)),
        names.delete_directory_name(TopicPartition("flights", 0), "0123456789abcdef" * 2),
        names.future_directory_name(TopicPartition("flights", 0), "0123456789abcdef" * 2),
    }
    assert listed == {
        names.LOCK, names.META_PROPERTIES, names.CLEAN_SHUTDOWN, names.RECOVERY_POINTS,
        names.LOG_START_OFFSETS, names.LEADER_EPOCHS, names.PARTITION_METADATA,
        names.HIGH_WATERMARKS, names.CLEANER_OFFSETS, names.DELETED_SUFFIX,
        names.CLEANED_SUFFIX, names.SWAP_SUFFIX, names.TEMPORARY_SUFFIX, *segment, *folders,
        names.set_aside_file_name(170, 8391), METADATA_FOLDER, bootstrap.FILE,
        "flights-0.0123456789abcdef0123456789abcdef-stray",
    }  # fmt: skip


def example_indexes(files: MemoryFiles) -> tuple[OffsetIndex, TimeIndex]:
    """The two indexes of the example, written by the code."""
    offsets = open_offset_index(files, "a", base_offset=Offset(170), bytes_max=80)
    times = open_time_index(files, "b", base_offset=Offset(170), bytes_max=80)
    for _, offset, position in rows("Bytes of `.index`"):
        offsets.append(Offset(int(offset)), Position(int(position)))
    for _, timestamp, offset in rows("Bytes of `.timeindex`"):
        times.maybe_append(int(timestamp), Offset(int(offset)))
    return offsets, times


def test_the_bytes_of_the_example(files: MemoryFiles) -> None:
    """The code writes what the tables show."""
    offsets, times = example_indexes(files)
    offsets.entries.trim()
    times.entries.trim()
    for name, column in (("a", "Bytes of `.index`"), ("b", "Bytes of `.timeindex`")):
        assert files.content(name) == bytes.fromhex("".join(row[0] for row in rows(column)))


@pytest.mark.parametrize(("asked", "answer"), rows("Asked for"))
def test_the_searches_of_the_example(files: MemoryFiles, asked: str, answer: str) -> None:
    """The code answers as the last table does."""
    offsets, times = example_indexes(files)
    kind, number = asked.split()
    if kind == "offset":
        assert answer == f"position {offsets.lookup(Offset(int(number))).position}"
    else:
        assert answer == f"offset {times.lookup(int(number)).offset}"
