"""The time index."""

import pytest

from tailrace.errors import CorruptionError
from tailrace.storage.index.time import ENTRY, TimeIndex, open_time_index
from tailrace.testing import MemoryFiles

NAME = "00000000000000000100.timeindex"


def opened(files: MemoryFiles, bytes_max: int = 100) -> TimeIndex:
    """The index of a segment with base offset 100."""
    return open_time_index(files, NAME, base_offset=100, bytes_max=bytes_max)


def filled(files: MemoryFiles) -> TimeIndex:
    """Entries at 1000, 2000 and 2500 ms."""
    index = opened(files)
    for entry in ((1000, 103), (2000, 110), (2500, 110)):
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


def test_only_a_larger_timestamp_makes_an_entry() -> None:
    """Equal and older ones say nothing new."""
    index = filled(MemoryFiles())
    index.maybe_append(2500, 120)
    index.maybe_append(10, 130)
    assert index.entries.count == 3
    assert index.last == (2500, 110)


def test_the_last_slot_is_kept_for_the_roll() -> None:
    """The index counts as full with one slot left, and that one can still be used."""
    index = opened(MemoryFiles(), bytes_max=24)
    seen = [index.is_full]
    index.maybe_append(1, 100)
    assert [*seen, index.is_full] == [False, True]
    index.maybe_append(2, 101)
    assert index.last == (2, 101)


def test_an_empty_index_ends_with_nothing() -> None:
    """(-1, base offset)."""
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
    index.maybe_append(0, 100)
    index.check()
