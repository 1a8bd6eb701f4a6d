"""The transaction index."""

import re
import struct
from pathlib import Path

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import Offset
from tailrace.storage.index.transaction import (
    ENTRY,
    AbortedTxn,
    TransactionIndex,
    open_transaction_index,
)
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.producer_builders import (
    aborted_txn,
)

DOCUMENT = Path(__file__).parents[4] / "docs" / "formats" / "indexes.md"
NAME = "00000000000000000000.txnindex"
FOUR = (
    aborted_txn(0, 0, 10, 11),
    aborted_txn(1, 5, 15, 13),
    aborted_txn(2, 18, 35, 25),
    aborted_txn(3, 32, 50, 40),
)


def opened(files: MemoryFiles, base_offset: int = 0) -> TransactionIndex:
    """The index of a segment."""
    return open_transaction_index(files, NAME, base_offset=Offset(base_offset))


def filled(files: MemoryFiles) -> TransactionIndex:
    """Four entries, the last two of which overlap."""
    index = opened(files)
    for entry in FOUR:
        index.append(entry)
    return index


def with_content(content: bytes) -> TransactionIndex:
    """An index over these bytes."""
    files = MemoryFiles()
    files.open(NAME, create=True)
    files.overwrite(NAME, content)
    return opened(files)


def test_there_is_no_file_before_the_first_abort() -> None:
    """Opening, asking, cutting, clearing and syncing make no file; the first entry does."""
    files = MemoryFiles()
    index = opened(files)
    index.check()
    index.truncate_to(Offset(0))
    index.clear()
    index.sync()
    assert (index.entries(), index.collect(Offset(0), Offset(100))) == ((), ([], False))
    assert not files.exists(NAME)
    index.append(FOUR[0])
    assert files.exists(NAME)


def test_the_bytes_of_an_entry() -> None:
    """Version, producer id, first, last and last stable offset, big endian, 34 bytes."""
    files = MemoryFiles()
    opened(files).append(aborted_txn(983493, 137, 299, 200))
    assert files.content(NAME) == struct.pack(">hqqqq", 0, 983493, 137, 299, 200)


def test_the_bytes_of_the_document() -> None:
    """docs/formats/indexes.md shows what the code writes."""
    found = re.findall(r"^\| `([0-9a-f ]+)` \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    rows = [(each, cells.split("|")) for each, cells in found if cells.count("|") == 3]
    assert rows
    files = MemoryFiles()
    index = opened(files, base_offset=170)
    for _, cells in rows:
        index.append(aborted_txn(*(int(cell) for cell in cells)))
    assert files.content(NAME) == bytes.fromhex("".join(each for each, _ in rows))


def test_an_entry_is_read_back_as_it_was_written() -> None:
    """Every field is read back from the bytes in the file."""
    written = aborted_txn(983493, 137, 299, 200)
    files = MemoryFiles()
    opened(files).append(written)
    [read] = opened(files).entries()
    assert read == written
    assert (read.producer_id, read.first_offset) == (983493, 137)
    assert (read.last_offset, read.last_stable_offset) == (299, 200)


def test_an_index_opened_again_goes_on_behind_its_entries() -> None:
    """Old entries stay, and new ones are appended after them."""
    files = MemoryFiles()
    filled(files).close()
    later = aborted_txn(4, 45, 60, 45)
    again = opened(files)
    again.append(later)
    assert again.entries() == (*FOUR, later)


def test_an_equal_last_offset_is_refused() -> None:
    """No two transactions end with one marker; the index is as it was."""
    index = filled(MemoryFiles())
    with pytest.raises(ValueError, match="cannot follow"):
        index.append(aborted_txn(9, 40, 50, 51))
    assert index.entries() == FOUR


def test_a_smaller_last_offset_is_refused() -> None:
    """Markers come in the order of the log, also for an index that was opened again."""
    files = MemoryFiles()
    filled(files).close()
    index = opened(files)
    with pytest.raises(ValueError, match="cannot follow"):
        index.append(aborted_txn(9, 40, 49, 51))
    assert index.entries() == FOUR


@pytest.mark.parametrize(
    ("fetch_offset", "limit_offset", "answer"),
    [
        (0, 100, (FOUR, False)), (0, 32, (FOUR[:3], True)), (0, 35, (FOUR, True)),
        (10, 35, (FOUR, True)), (11, 35, (FOUR[1:], True)), (20, 41, (FOUR[2:], False)),
        (51, 60, ((), False)),
    ],
)  # fmt: skip
def test_collect_gives_what_overlaps_and_whether_it_is_all(
    fetch_offset: int, limit_offset: int, answer: tuple[tuple[AbortedTxn, ...], bool]
) -> None:
    """Ended at or behind the fetch offset, begun before the limit; all, once the LSO reaches it."""
    found, is_complete = filled(MemoryFiles()).collect(Offset(fetch_offset), Offset(limit_offset))
    assert (tuple(found), is_complete) == answer


@pytest.mark.parametrize(
    ("offset", "kept"), [(51, 4), (50, 3), (36, 3), (35, 2), (11, 1), (10, 0), (0, 0)]
)
def test_truncate_drops_what_ended_at_or_behind_the_offset(offset: int, kept: int) -> None:
    """The entries go in memory and in the file."""
    files = MemoryFiles()
    index = filled(files)
    index.truncate_to(Offset(offset))
    assert index.entries() == FOUR[:kept]
    assert len(files.content(NAME)) == kept * ENTRY.size


def test_a_truncated_index_takes_the_dropped_entries_again() -> None:
    """The order is held against what is left."""
    index = filled(MemoryFiles())
    index.truncate_to(Offset(30))
    index.append(FOUR[2])
    assert index.entries() == FOUR[:3]


def test_a_cleared_index_is_empty_and_takes_any_entry() -> None:
    """Its file stays, without a byte."""
    files = MemoryFiles()
    index = filled(files)
    index.clear()
    assert index.entries() == ()
    assert files.content(NAME) == b""
    index.append(FOUR[0])
    assert index.entries() == FOUR[:1]


def test_an_entry_below_the_base_offset_is_damage() -> None:
    """The marker stands in the segment, so it is at or behind the base."""
    files = MemoryFiles()
    filled(files)
    opened(files, base_offset=10).check()
    with pytest.raises(CorruptionError) as caught:
        opened(files, base_offset=11).check()
    assert (caught.value.path, caught.value.position) == (NAME, 0)


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (ENTRY.pack(0, 1, 2, 3, 4) + ENTRY.pack(1, 1, 5, 6, 7), 34),
        (ENTRY.pack(256, 1, 2, 3, 4), 0),
        (ENTRY.pack(0, 1, 2, 3, 4) * 2, 34),
        (ENTRY.pack(0, 1, 4, 3, 4), 0),
        (ENTRY.pack(0, 1, 2, 3, 4) + b"\0", 34),
        (bytes(68), 34),
    ],
)
def test_what_cannot_be_an_index_is_damage(content: bytes, position: int) -> None:
    """Other versions, ends that do not rise, an end before its begin, odd lengths, zeros."""
    with pytest.raises(CorruptionError) as caught:
        with_content(content).check()
    assert (caught.value.path, caught.value.position) == (NAME, position)


def test_readers_meet_an_unknown_version_as_damage() -> None:
    """A search does not guess what an entry of a later version means."""
    with pytest.raises(CorruptionError, match="version 1"):
        with_content(ENTRY.pack(1, 1, 2, 3, 4)).collect(Offset(0), Offset(10))


def test_a_part_of_an_entry_is_written_over() -> None:
    """A partial entry left by a lost machine does not shift the entries after it."""
    index = with_content(ENTRY.pack(0, *FOUR[0]) + b"torn")
    assert index.entries() == FOUR[:1]
    index.append(FOUR[1])
    index.check()
    assert index.entries() == FOUR[:2]


def test_a_failed_entry_does_not_count() -> None:
    """A disk that fails halfway leaves the index as it was, and the entry may be tried again."""
    files = MemoryFiles()
    index = filled(files)
    files.faults.append(DiskFault(operation="write", partial_bytes=9))
    later = aborted_txn(4, 45, 60, 45)
    with pytest.raises(OSError, match="error"):
        index.append(later)
    assert index.entries() == FOUR
    opened(files).check()
    files.faults.clear()
    index.append(later)
    assert index.entries() == (*FOUR, later)


def test_synced_entries_survive_the_loss_of_the_machine() -> None:
    """Synced entries survive once the directory is synced for the new name, as a log does it."""
    files = MemoryFiles()
    index = opened(files)
    index.sync()
    index.append(FOUR[0])
    index.sync()
    files.sync_directory(".")
    index.append(FOUR[1])
    assert opened(files.crash()).entries() == FOUR[:1]


def test_a_reader_beside_a_broker_sees_the_index_as_it_was_opened() -> None:
    """Opened for reading only; later entries are not seen, and nothing is made."""
    files = MemoryFiles()
    assert (
        open_transaction_index(files, NAME, base_offset=Offset(0), read_only=True).entries() == ()
    )
    assert not files.exists(NAME)
    index = opened(files)
    index.append(FOUR[0])
    reader = open_transaction_index(files, NAME, base_offset=Offset(0), read_only=True)
    index.append(FOUR[1])
    assert reader.entries() == FOUR[:1]
