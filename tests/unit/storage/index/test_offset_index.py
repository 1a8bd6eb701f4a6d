"""The offset index."""

import sys
from types import FrameType
from typing import Any

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.storage.index.offset import ENTRY, OffsetIndex, open_offset_index
from tailrace.storage.index.sparse import WAITING_ENTRIES_MAX
from tailrace.testing import DiskFault, MemoryFiles

NAME = "00000000000000000100.index"


def opened(files: MemoryFiles, bytes_max: int = 100) -> OffsetIndex:
    """The index of a segment with base offset 100."""
    return open_offset_index(files, NAME, base_offset=Offset(100), bytes_max=bytes_max)


def filled(files: MemoryFiles) -> OffsetIndex:
    """Entries for 101, 110 and 150."""
    index = opened(files)
    for offset, position in ((101, 70), (110, 200), (150, 900)):
        index.append(Offset(offset), Position(position))
    return index


def test_a_new_index_has_its_full_size_rounded_down() -> None:
    """100 bytes give room for 12 entries of 8."""
    files = MemoryFiles()
    index = opened(files)
    assert len(files.content(NAME)) == 96
    assert index.entries.capacity == 12
    assert index.entries.count == 0


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, (100, 0)), (100, (100, 0)), (101, (101, 70)), (109, (101, 70)), (110, (110, 200)),
        (149, (110, 200)), (150, (150, 900)), (10**12, (150, 900)),
    ],
)  # fmt: skip
def test_lookup_gives_the_floor_entry(offset: int, found: tuple[int, int]) -> None:
    """The last entry at or below, or the start of the segment."""
    assert filled(MemoryFiles()).lookup(Offset(offset)) == found


def test_an_empty_index_leads_to_the_start_of_the_segment() -> None:
    """An offset below the first entry leads there too; one above the last entry, to the last."""
    index = opened(MemoryFiles())
    assert index.lookup(Offset(100)) == index.lookup(Offset(10**9)) == (100, 0)
    index.append(Offset(101), Position(70))
    index.append(Offset(103), Position(90))
    assert [index.lookup(Offset(offset))[1] for offset in (100, 101, 102, 103, 10**9)] == [
        0, 70, 70, 90, 90,
    ]  # fmt: skip


def test_every_entry_is_there_by_its_number() -> None:
    """Offset from the base and position, in the order of appending."""
    index = filled(MemoryFiles())
    assert [index.entries.entry(number) for number in range(3)] == [(1, 70), (10, 200), (50, 900)]


def written(files: MemoryFiles) -> list[tuple[int, ...]]:
    """The entries in the file, without the zeros behind them."""
    return [each for each in ENTRY.iter_unpack(files.content(NAME)) if any(each)]


def long(files: MemoryFiles, count: int) -> OffsetIndex:
    """Entries for 101, 102, ... at positions 10, 20, ..."""
    index = opened(files, bytes_max=8 * 100)
    for number in range(1, count + 1):
        index.append(Offset(100 + number), Position(10 * number))
    return index


def test_entries_are_written_together() -> None:
    """The file gets none until as many wait as are written in one call."""
    files = MemoryFiles()
    index = long(files, WAITING_ENTRIES_MAX - 1)
    assert written(files) == []
    index.append(Offset(500), Position(5000))
    assert len(written(files)) == WAITING_ENTRIES_MAX


@pytest.mark.parametrize("count", [1, WAITING_ENTRIES_MAX, WAITING_ENTRIES_MAX + 5])
def test_entries_that_wait_are_found(count: int) -> None:
    """By offset and by position, whether an entry is in the file or waits."""
    index = long(MemoryFiles(), count)
    for number in range(1, count + 1):
        assert index.lookup(Offset(100 + number)) == (100 + number, 10 * number)
        assert index.first_from(Position(10 * number - 1)) == (100 + number, 10 * number)


@pytest.mark.parametrize("count", [1, WAITING_ENTRIES_MAX + 5])
def test_a_flush_writes_the_entries_that_wait(count: int) -> None:
    """They are in the file then, once, and later entries follow them."""
    files = MemoryFiles()
    index = long(files, count)
    index.entries.write_all()
    assert len(written(files)) == count
    index.append(Offset(500), Position(5000))
    index.entries.trim()
    assert written(files) == [*((n, 10 * n) for n in range(1, count + 1)), (400, 5000)]


@pytest.mark.parametrize("count", [WAITING_ENTRIES_MAX - 1, WAITING_ENTRIES_MAX])
def test_entries_that_are_taken_back_are_replaced(count: int) -> None:
    """Waiting entries and written ones are replaced by the entries that are appended next."""
    files = MemoryFiles()
    index = long(files, count)
    index.entries.take_back(count - 2)
    assert index.lookup(Offset(10**6)) == (100 + count - 2, 10 * (count - 2))
    index.append(Offset(500), Position(5000))
    assert index.lookup(Offset(10**6)) == (500, 5000)
    index.entries.trim()
    assert written(files)[count - 3 :] == [(count - 2, 10 * (count - 2)), (400, 5000)]


def test_a_failed_entry_does_not_count() -> None:
    """A full disk leaves the index as it was, with the entries that wait."""
    files = MemoryFiles()
    index = long(files, WAITING_ENTRIES_MAX - 1)
    files.faults.append(DiskFault(operation="write"))
    with pytest.raises(OSError, match="error"):
        index.append(Offset(500), Position(5000))
    files.faults.clear()
    assert index.lookup(Offset(10**6))[0] == 100 + WAITING_ENTRIES_MAX - 1
    index.append(Offset(600), Position(6000))
    assert written(files)[-2:] == [
        (WAITING_ENTRIES_MAX - 1, 10 * (WAITING_ENTRIES_MAX - 1)), (500, 6000),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [-1, 3, 11])
def test_there_is_no_entry_beyond_those_in_use(number: int) -> None:
    """The zeros behind them are not given out."""
    with pytest.raises(AssertionError):
        filled(MemoryFiles()).entries.entry(number)


@pytest.mark.parametrize(
    ("position", "found"),
    [
        (0, (101, 70)), (70, (101, 70)), (71, (110, 200)), (200, (110, 200)), (201, (150, 900)),
        (900, (150, 900)), (901, None),
    ],
)  # fmt: skip
def test_the_first_entry_from_a_position_on(position: int, found: tuple[int, int] | None) -> None:
    """The entry bounds the offsets before a position; behind the last entry there is none."""
    assert filled(MemoryFiles()).first_from(Position(position)) == found
    assert opened(MemoryFiles()).first_from(Position(position)) is None


def test_an_append_during_a_search_by_position_gives_no_entry_before_it() -> None:
    """Between whichever two lines it happens; what is found is the new entry or nothing."""

    def found_with_an_append_before_line(number: int) -> tuple[tuple[int, int] | None, bool]:
        index = filled(MemoryFiles())
        left = number

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if "storage/index/" in frame.f_code.co_filename and event == "line":
                left -= 1
                if left == -1:
                    index.append(Offset(160), Position(1500))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            found = index.first_from(Position(1000))
        finally:
            sys.settrace(before)
        return found, left < 0

    number, has_appended, seen = 0, True, set()
    while has_appended:
        found, has_appended = found_with_an_append_before_line(number)
        seen.add(found)
        number += 1
    assert seen == {None, (160, 1500)}


def test_every_offset_of_a_long_index_finds_its_floor() -> None:
    """Binary search agrees with a scan, at and between all entries."""
    index = opened(MemoryFiles(), bytes_max=8 * 37)
    entries = [(Offset(100 + 3 * number), Position(50 * number)) for number in range(1, 38)]
    for entry in entries:
        index.append(*entry)
    for offset in range(98, 220):
        floor = max((entry for entry in entries if entry[0] <= offset), default=(100, 0))
        assert index.lookup(Offset(offset)) == floor


def test_offsets_must_rise() -> None:
    """An entry at or below the last one is a mistake of ours."""
    with pytest.raises(AssertionError):
        filled(MemoryFiles()).append(Offset(150), Position(1000))


def test_a_full_index_takes_no_more() -> None:
    """`is_full` says so first, and the segment rolls."""
    index = opened(MemoryFiles(), bytes_max=16)
    index.append(Offset(101), Position(1))
    seen = [index.is_full]
    index.append(Offset(102), Position(2))
    assert [*seen, index.is_full] == [False, True]
    with pytest.raises(AssertionError):
        index.append(Offset(103), Position(3))


def test_trimmed_and_opened_again_it_has_its_entries_and_its_room() -> None:
    """The file is as long as its entries until the segment takes writes again."""
    files = MemoryFiles()
    index = filled(files)
    index.entries.trim()
    index.entries.close()
    assert len(files.content(NAME)) == 24
    again = opened(files)
    assert (again.entries.count, again.entries.capacity) == (3, 12)
    assert again.lookup(Offset(120)) == (110, 200)
    again.append(Offset(160), Position(1000))
    assert again.lookup(Offset(160)) == (160, 1000)


def test_an_index_with_more_entries_than_room_keeps_them() -> None:
    """A smaller setting makes the index full, not shorter."""
    files = MemoryFiles()
    filled(files).entries.trim()
    again = opened(files, bytes_max=8)
    assert again.is_full
    assert again.lookup(Offset(150)) == (150, 900)


@pytest.mark.parametrize(
    ("offset", "kept"), [(151, 3), (150, 2), (111, 2), (110, 1), (102, 1), (101, 0), (0, 0)]
)
def test_truncate_keeps_the_entries_below_the_offset(offset: int, kept: int) -> None:
    """The rest are zeros again in a file of full size, and what was dropped may be appended."""
    files = MemoryFiles()
    index = filled(files)
    entries = [index.entries.entry(number) for number in range(3)]
    index.truncate_to(Offset(offset), bytes_max=100)
    assert [index.entries.entry(number) for number in range(index.entries.count)] == entries[:kept]
    assert files.content(NAME)[8 * kept :] == bytes(96 - 8 * kept)
    index.append(Offset(160), Position(1000))
    assert index.lookup(Offset(160)) == (160, 1000)


def test_a_trimmed_index_has_its_full_room_after_truncate() -> None:
    """A closed segment that takes writes again is not full."""
    index = filled(MemoryFiles())
    index.entries.trim()
    assert index.is_full
    index.truncate_to(Offset(10**9), bytes_max=100)
    assert (index.entries.count, index.entries.capacity) == (3, 12)


def test_a_search_that_is_under_way_outlives_truncate() -> None:
    """The file does not lose what an old map still shows, so no search is killed."""
    files = MemoryFiles()
    index = filled(files)
    sizes = [len(files.content(NAME))]
    index.truncate_to(Offset(0), bytes_max=100)
    assert [*sizes, len(files.content(NAME))] == [96, 96]
    assert not any(operation == "resize" for operation, _ in files.operations[-1:])


def test_a_failed_trim_leaves_the_index_usable() -> None:
    """Lookups go on, and the trim may be repeated."""
    files = MemoryFiles()
    index = filled(files)
    files.faults.append(DiskFault(operation="resize"))
    with pytest.raises(OSError, match="error"):
        index.entries.trim()
    assert index.lookup(Offset(120)) == (110, 200)
    files.faults.clear()
    index.entries.trim()
    assert len(files.content(NAME)) == 24


@pytest.mark.parametrize(
    "content",
    [
        bytes(16), b"\xff" * 8, bytes.fromhex("0000000100000000 0000000100000000"),
        bytes.fromhex("00000001 000003e8"), bytes.fromhex("00000005 00000046 00000001 00000050"),
        bytes.fromhex("00000001 00000046 0000"),
    ],
)  # fmt: skip
def test_the_ends_of_an_index_that_cannot_be(content: bytes) -> None:
    """Zeros, negative or falling entries, positions behind the log and odd lengths are found."""
    files = MemoryFiles()
    files.open(NAME, create=True)
    files.overwrite(NAME, content)
    with pytest.raises(CorruptionError) as caught:
        opened(files).check(log_size=1000)
    assert caught.value.path == NAME


def test_sound_indexes_pass_the_check() -> None:
    """Empty, a single entry at the base offset, and several."""
    opened(MemoryFiles()).check(log_size=0)
    filled(MemoryFiles()).check(log_size=901)
    other = open_offset_index(MemoryFiles(), NAME, base_offset=Offset(100), bytes_max=80)
    other.append(Offset(100), Position(0))
    other.check(log_size=1)


def rested(count: int) -> tuple[MemoryFiles, OffsetIndex]:
    """An index with entries for offsets 10, 20, …, whose file is not open."""
    files = MemoryFiles()
    index = open_offset_index(files, NAME, base_offset=Offset(0), bytes_max=8 * 1000)
    index.entries.clear(8 * 1000)
    for number in range(1, count + 1):
        index.append(Offset(10 * number), Position(100 * number))
    index.entries.rest()
    return files, index


@pytest.mark.parametrize("count", [5, 100])
def test_a_file_is_opened_when_it_is_needed(count: int) -> None:
    """Searches, appends and a trim find the entries, whether they were written or wait."""
    files, index = rested(count)
    assert index.lookup(Offset(25)).position == 200
    index.entries.rest()
    for number in range(count + 1, 2 * count + 1):
        index.append(Offset(10 * number), Position(100 * number))
    index.entries.rest()
    index.entries.trim()
    assert len(files.content(NAME)) == 8 * 2 * count
    assert index.lookup(Offset(10 * count + 15)).position == 100 * (count + 1)


def test_a_file_that_was_renamed_is_an_index_without_entries() -> None:
    """A reader of a segment that has left service then searches it from its start."""
    files, index = rested(100)
    files.rename(NAME, f"{NAME}.deleted")
    assert index.lookup(Offset(25)) == (0, 0)
    for number in range(101, 200):
        index.append(Offset(10 * number), Position(100 * number))
    index.entries.write_all()
    assert not files.exists(NAME)
    files.rename(f"{NAME}.deleted", NAME)
    assert [index.lookup(Offset(10 * each)).position // 100 for each in (1, 96, 97, 150, 199)] == [
        1, 96, 97, 150, 199,
    ]  # fmt: skip


def test_a_closed_index_opens_no_file() -> None:
    """Another one may have its name."""
    _, index = rested(100)
    index.entries.close()
    for use in (index.entries.sync, lambda: index.lookup(Offset(25))):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
