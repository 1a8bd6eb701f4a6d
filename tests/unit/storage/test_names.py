"""Names of files and folders."""

import pytest

from tailrace.model import TopicPartition
from tailrace.storage import names


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("flights-3", TopicPartition("flights", 3)),
        ("a.b-c-10", TopicPartition("a.b-c", 10)),
        ("x-delete-0", TopicPartition("x-delete", 0)),
        ("flights-2147483647", TopicPartition("flights", 2147483647)),
    ],
)
def test_a_partition_folder_is_split_at_the_last_dash(name: str, partition: TopicPartition) -> None:
    """Topic names may hold dashes and dots; the name comes back as it was."""
    assert names.parse_partition_directory_name(name) == partition
    assert names.partition_directory_name(partition) == name


@pytest.mark.parametrize(
    "name",
    [
        "flights", "-1", "flights-", "flights-x", "flights-03", "flights-2147483648",
        "flights-0.5f0c-delete", "flights-0.5f0c-future", "flights-0.5f0c-stray",
        "flights-\u0663", "lost+found", "my notes-1", "a/b-0", "",
    ],
)  # fmt: skip
def test_other_folders_are_no_partitions(name: str) -> None:
    """A folder counts only if its partition would get exactly this name."""
    assert names.parse_partition_directory_name(name) is None


def test_segment_names_have_twenty_digits() -> None:
    """The name is the base offset, padded; anything else in a folder is no segment."""
    assert names.segment_file_name(170, ".log") == "00000000000000000170.log"
    assert names.parse_segment_file_name("00000000000000000170.timeindex") == (170, ".timeindex")
    for name in (
        "170.log",
        "00000000000000000170.log.swap",
        "9" * 20 + ".log",
        "\u0663" * 20 + ".log",
    ):
        assert names.parse_segment_file_name(name) is None


def test_a_deleted_folder_keeps_within_255_bytes_and_is_recognised() -> None:
    """The topic is cut, the number and the id are kept."""
    name = names.delete_directory_name(TopicPartition("t" * 249, 7), "ab" * 16)
    assert len(name) == 255
    assert name.endswith("-7." + "ab" * 16 + "-delete")
    assert names.is_delete_directory_name(name)
    assert names.parse_partition_directory_name(name) is None


@pytest.mark.parametrize("name", ["to-delete", "notes.txt-delete", "flights-0-delete", "-delete"])
def test_not_everything_that_ends_in_delete_is_ours_to_delete(name: str) -> None:
    """A user's own folder in the directory stays."""
    assert not names.is_delete_directory_name(name)
