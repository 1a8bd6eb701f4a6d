"""Tests that a salvage writes the records it can walk, marked as unproven, and nothing else."""

import json

import pytest

from tailrace.model import Codec
from tailrace.offline.salvage import Salvaged, salvage_records
from tailrace.records import layout
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    open_at,
    path,
    settings,
    stop_cleanly,
)

VALUES = (b"one", b"two", b"three", b"four")


def a_log(codec: Codec = Codec.NONE) -> tuple[MemoryFiles, int]:
    """Three batches of four records, offsets 0 to 11, and where the second begins."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100_000))
    stamps = [NOW, NOW + 1, NOW + 2, NOW + 3]
    append(log, batch(*VALUES, codec=codec, timestamps=stamps))
    at = log.segments.active.size
    for _ in range(2):
        append(log, batch(*VALUES, codec=codec, timestamps=stamps))
    stop_cleanly(log)
    return files, at


def change(files: MemoryFiles, position: int, data: bytes) -> None:
    """Put other bytes into the log file."""
    content = bytearray(files.content(path(0, ".log")))
    content[position : position + len(data)] = data
    files.overwrite(path(0, ".log"), bytes(content))


def salvaged(files: MemoryFiles) -> tuple[Salvaged, list[dict[str, object]]]:
    """Salvage, and return the counts and the lines of the file; the log stays as it is."""
    files.make_directory("out")
    before = files.content(path(0, ".log"))
    told = salvage_records(files, {PARTITION: FOLDER}, to="out/salvaged.jsonl")
    assert files.content(path(0, ".log")) == before
    return told, [json.loads(line) for line in files.content("out/salvaged.jsonl").splitlines()]


def test_records_of_a_batch_with_a_wrong_checksum_are_written_as_unproven() -> None:
    """All four can be walked, and one of them is not what was written: nobody can say which."""
    files, at = a_log()
    content = files.content(path(0, ".log"))
    change(files, content.index(b"two", at), b"tw0")
    told, found = salvaged(files)
    assert told == Salvaged(records=4, ranges=1, silent_ranges=0)
    assert [each["offset"] for each in found] == [4, 5, 6, 7]
    assert [each["value"] for each in found] == ["one", "tw0", "three", "four"]
    assert [each["timestamp"] for each in found] == [NOW, NOW + 1, NOW + 2, NOW + 3]
    assert all(each["unproven"] is True for each in found)
    assert (found[0]["file"], found[0]["position"]) == (path(0, ".log"), at)
    assert "CRC-32C" in str(found[0]["reason"])


def test_the_walk_ends_at_the_first_record_that_breaks_a_rule() -> None:
    """Earlier records are written; behind it the start of the next record is unknown."""
    files, at = a_log()
    content = files.content(path(0, ".log"))
    # The size of the value before its text.
    change(files, content.index(b"three", at) - 1, b"\x7f")
    told, found = salvaged(files)
    assert [each["offset"] for each in found] == [4, 5]
    assert told.records == 2


def test_sound_batches_are_not_salvaged() -> None:
    """They are in the log."""
    files, _ = a_log()
    told, found = salvaged(files)
    assert (told, found) == (Salvaged(), [])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_of_a_compressed_batch_nothing_is_taken(codec: Codec) -> None:
    """A damaged stream gives no bytes that anybody has written; the range is counted."""
    files, at = a_log(codec)
    change(files, at + layout.RECORDS_POSITION + 9, b"\x55\x55")
    told, found = salvaged(files)
    assert (told, found) == (Salvaged(records=0, ranges=0, silent_ranges=1), [])


def test_a_damaged_length_does_not_hide_the_records() -> None:
    """They are walked up to where the next sound batch begins."""
    files, at = a_log()
    change(files, at + layout.LENGTH_POSITION, b"\0\1\0\0")
    _, found = salvaged(files)
    assert [each["value"] for each in found] == ["one", "two", "three", "four"]


def test_garbage_gives_no_record() -> None:
    """Bytes that begin with no header of format v2 are passed over."""
    files, at = a_log()
    change(files, at, b"\x07" * 61)
    assert salvaged(files)[1] == []


def test_long_records_are_walked_over_windows() -> None:
    """A record of more than a window is read whole."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=50_000_000, max_message_bytes=20_000_000))
    append(log, batch(b"a", b"x" * 3_000_000, b"y" * 700_000, b"z"))
    stop_cleanly(log)
    change(files, layout.CRC_POSITION, b"\0\0\0\0")
    _, found = salvaged(files)
    assert [len(str(each["value"])) for each in found] == [1, 3_000_000, 700_000, 1]
