"""The small text files."""

import uuid

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import TopicPartition
from tailrace.storage import checkpoints
from tailrace.testing import DiskFault, MemoryFiles

ID = uuid.UUID("e9d76b9e-6f2a-4f5d-9d0b-1f1e1c1b1a19")


@pytest.fixture
def files() -> MemoryFiles:
    """A disk with a directory."""
    disk = MemoryFiles()
    disk.make_directory("data")
    return disk


def put(files: MemoryFiles, text: bytes) -> str:
    """A file with this text."""
    files.open("data/file", create=True)
    files.overwrite("data/file", text)
    return "data/file"


def test_an_offset_checkpoint_is_written_as_kafka_writes_it(files: MemoryFiles) -> None:
    """Version, count, sorted lines, newline at the end; and it reads back."""
    offsets = {TopicPartition("flights", 1): 5, TopicPartition("a-b.c", 0): 2**63 - 1}
    checkpoints.write_offset_checkpoint(files, "data", "file", offsets=offsets)
    assert files.content("data/file") == b"0\n2\na-b.c 0 9223372036854775807\nflights 1 5\n"
    assert checkpoints.read_offset_checkpoint(files, "data/file") == offsets


def test_missing_and_empty_checkpoints_have_no_entries(files: MemoryFiles) -> None:
    """Neither is an error, as in Kafka."""
    assert checkpoints.read_offset_checkpoint(files, "data/none") == {}
    assert checkpoints.read_epoch_checkpoint(files, put(files, b"")) == []


def test_any_white_space_separates_and_blank_lines_do_not_count(files: MemoryFiles) -> None:
    """Other line ends and runs of blanks are read."""
    name = put(files, b"0\r\n1\r\nflights \t 3  17\r\n\r\n")
    assert checkpoints.read_offset_checkpoint(files, name) == {TopicPartition("flights", 3): 17}


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n", b"0\n", b"0\n2\nflights 0 1\n", b"0\n0\nflights 0 1\n", b"0\n1\nflights 0\n",
        b"0\n1\nflights 0 x\n", b"0\n1\nflights 0 -1\n", b"0\n1\nflights -1 1\n", b"\xff",
        b"0\n1\nflights 0 1_0\n", b"0\n1\nflights 0 9223372036854775808\n", b"x\n", b"0\n\n1\n",
        b"0\n1\nflights 0 " + b"9" * 5000 + b"\n",
    ],
)  # fmt: skip
def test_malformed_checkpoints_are_located_errors(files: MemoryFiles, text: bytes) -> None:
    """Versions, counts, numbers and encodings that do not hold are refused with the path."""
    with pytest.raises(CorruptionError) as caught:
        checkpoints.read_offset_checkpoint(files, put(files, text))
    assert caught.value.path == "data/file"


def test_a_huge_file_is_refused_before_it_is_read(files: MemoryFiles) -> None:
    """The size decides, not the content."""
    files.open("data/file", create=True).resize(checkpoints.TEXT_BYTES_MAX + 1)
    with pytest.raises(CorruptionError, match="too many"):
        checkpoints.read_text(files, "data/file")


@pytest.mark.parametrize("text", [b"0\n2\n1 5\n1 6\n", b"0\n2\n2 5\n1 6\n", b"0\n2\n1 5\n2 4\n"])
def test_epochs_must_rise(files: MemoryFiles, text: bytes) -> None:
    """Neither epochs nor their offsets go back."""
    with pytest.raises(CorruptionError, match="rise"):
        checkpoints.read_epoch_checkpoint(files, put(files, text))


def test_partition_metadata_has_no_newline_at_the_end(files: MemoryFiles) -> None:
    """Byte for byte what Kafka writes; and it reads back."""
    checkpoints.write_partition_metadata(files, "data", "file", topic_id=ID)
    text = files.content("data/file")
    assert text == b"version: 0\ntopic_id: " + checkpoints.format_topic_id(ID).encode()
    assert checkpoints.read_partition_metadata(files, "data/file") == ID
    assert checkpoints.read_partition_metadata(files, "data/none") is None


@pytest.mark.parametrize(
    "text",
    [
        b"", b"version: 0", b"version: x\ntopic_id: 6ddrnm8qT12dCx8eHBsaGQ",
        b"version: -1\ntopic_id: 6ddrnm8qT12dCx8eHBsaGQ", b"version: 0\ntopic_id: 6ddrnm8q",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: 6ddr?nm8qT12dCx8eHBsaG",
    ],
)  # fmt: skip
def test_partition_metadata_that_cannot_be(files: MemoryFiles, text: bytes) -> None:
    """Missing or negative versions and ids that are short, zero or no base64 are refused."""
    with pytest.raises(CorruptionError):
        checkpoints.read_partition_metadata(files, put(files, text))


@pytest.mark.parametrize("operation", ["open", "resize", "write", "sync", "rename"])
def test_a_failed_replacement_leaves_the_old_file(files: MemoryFiles, operation: str) -> None:
    """Whatever fails, readers see the old text, also after a crash."""
    checkpoints.write_atomically(files, "data", "file", text="old")
    files.faults.append(DiskFault(operation=operation))
    with pytest.raises(OSError, match="error"):
        checkpoints.write_atomically(files, "data", "file", text="new")
    assert files.content("data/file") == b"old"
    assert files.crash().content("data/file") == b"old"
    files.faults.clear()
    checkpoints.write_atomically(files, "data", "file", text="new")
    assert files.crash().content("data/file") == b"new"
