"""The time index."""

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import Offset
from tailrace.storage.index.time import ENTRY, TimeIndex, TimestampOffset, open_time_index
from tailrace.testing import MemoryFiles

NAME = "00000000000000000100.timeindex"


def opened(files: MemoryFiles, bytes_max: int = 100) -> TimeIndex:
    """The index of a segment with base offset 100."""
    return open_time_index(files, NAME, base_offset=Offset(100), bytes_max=bytes_max)


def filled(files: MemoryFiles) -> TimeIndex:
    """Entries at 1000, 2000 and 2500 ms."""
    index = opened(files)
    for entry in ((1000, Offset(103)), (2000, Offset(110)), (2500, Offset(110))):
        index.maybe_append(*entry)
    return index


def test_room_is_rounded_down_to_entries_of_twelve() -> None:
    """100 bytes give 8 entries."""
    assert ENTRY.size == 12
    files = MemoryFiles()
    assert opened(files).entries.capacity == 8
    assert len(files.content(NAME)) == 96


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (-1, (-1, 100)), (999, (-1, 100)), (1000, (1000, 103)), (1999, (1000, 103)),
        (2000, (2000, 110)), (2499, (2000, 110)), (2500, (2500, 110)), (10**15, (2500, 110)),
    ],
)  # fmt: skip
def test_lookup_gives_the_floor_entry(timestamp: int, found: tuple[int, int]) -> None:
    """The last entry at or below, or (-1, base offset)."""
    assert filled(MemoryFiles()).lookup(timestamp) == found


def test_every_entry_is_there_by_its_number() -> None:
    """Timestamp and offset from the base, in the order of appending."""
    index = filled(MemoryFiles())
    entries = [index.entries.entry(number) for number in range(3)]
    assert entries == [(1000, 3), (2000, 10), (2500, 10)]


@pytest.mark.parametrize("number", [-1, 3, 7])
def test_there_is_no_entry_beyond_those_in_use(number: int) -> None:
    """The zeros behind them are not given out."""
    with pytest.raises(AssertionError):
        filled(MemoryFiles()).entries.entry(number)


def test_an_empty_index_finds_nothing() -> None:
    """An empty index answers (-1, base offset) to any timestamp."""
    assert opened(MemoryFiles()).lookup(100) == (-1, 100)


def test_the_last_entry_is_the_newest() -> None:
    """The last entry is the newest after each append."""
    index = opened(MemoryFiles())
    seen = [index.last]
    for entry in ((1000, Offset(103)), (2000, Offset(110))):
        index.maybe_append(*entry)
        seen.append(index.last)
    assert seen == [(-1, 100), (1000, 103), (2000, 110)]


def test_offsets_must_not_fall() -> None:
    """A younger record at a lower offset is a mistake of ours."""
    index = filled(MemoryFiles())
    with pytest.raises(AssertionError):
        index.maybe_append(3000, Offset(109))
    assert index.entries.count == 3


@pytest.mark.parametrize(("offset", "kept"), [(111, 3), (110, 1), (104, 1), (103, 0), (0, 0)])
def test_truncate_keeps_the_entries_below_the_offset(offset: int, kept: int) -> None:
    """Entries that share an offset go together; the rest are zeros in a file of full size."""
    files = MemoryFiles()
    index = filled(files)
    last = (TimestampOffset(-1, Offset(100)), (1000, 103), (2000, 110), (2500, 110))[kept]
    index.truncate_to(Offset(offset), bytes_max=100)
    assert (index.entries.count, index.last) == (kept, last)
    assert files.content(NAME)[12 * kept :] == bytes(96 - 12 * kept)


def test_only_a_change_in_whole_entries_resizes_the_file() -> None:
    """Truncation restores the room, rounded down; the same room costs no call."""
    files = MemoryFiles()
    index = opened(files, bytes_max=96)
    before = len(files.operations)
    index.truncate_to(Offset(100), bytes_max=107)
    assert len(files.operations) == before
    index.truncate_to(Offset(100), bytes_max=108)
    assert [operation for operation, _ in files.operations[before:]] == ["resize"]
    assert index.entries.capacity == 9


def test_only_a_larger_timestamp_makes_an_entry() -> None:
    """Equal and older ones say nothing new."""
    index = filled(MemoryFiles())
    index.maybe_append(2500, Offset(120))
    index.maybe_append(10, Offset(130))
    assert index.entries.count == 3
    assert index.last == (2500, 110)


def test_the_last_slot_is_kept_for_the_roll() -> None:
    """The index counts as full with one slot left, and that one can still be used."""
    index = opened(MemoryFiles(), bytes_max=24)
    seen = [index.is_full]
    index.maybe_append(1, Offset(100))
    assert [*seen, index.is_full] == [False, True]
    index.maybe_append(2, Offset(101))
    assert index.last == (2, 101)


def test_an_empty_index_ends_with_nothing() -> None:
    """The last entry of an empty index is (-1, base offset)."""
    assert opened(MemoryFiles()).last == (-1, 100)


@pytest.mark.parametrize(
    "content",
    [
        bytes(96), ENTRY.pack(2000, 5) + ENTRY.pack(1000, 6), ENTRY.pack(1000, -1),
        ENTRY.pack(-5, 1), ENTRY.pack(1000, 5) + b"\0", ENTRY.pack(7, 1) * 2,
    ],
)  # fmt: skip
def test_the_ends_of_an_index_that_cannot_be(content: bytes) -> None:
    """Zeros, falling times, negative fields and odd lengths are found."""
    files = MemoryFiles()
    files.open(NAME, create=True)
    files.overwrite(NAME, content)
    with pytest.raises(CorruptionError) as caught:
        opened(files).check()
    assert caught.value.path == NAME


def test_sound_indexes_pass_the_check() -> None:
    """Empty, one entry of time 0 at the base offset, and several."""
    opened(MemoryFiles()).check()
    filled(MemoryFiles()).check()
    index = opened(MemoryFiles())
    index.maybe_append(0, Offset(100))
    index.check()
