"""A log file is read window by window: every batch, once, in its place."""

import pytest

from tailrace.errors import CorruptionError
from tailrace.storage.walk import walk_batches, walk_headers
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import batch

SIZES = (10, 300, 5000, 70, 1, 90_000, 3)


def a_file(content: bytes) -> MemoryFiles:
    """A disk with this log."""
    files = MemoryFiles()
    files.open("log", create=True).write(0, content)
    return files


@pytest.mark.parametrize("window", [61, 100, 1000, 200_000])
def test_windows_of_any_size_give_the_same_batches(window: int) -> None:
    """The window size changes nothing, also for a larger batch and for a partial last one."""
    batches = [bytes(batch(b"v" * size)) for size in SIZES]
    content = b"".join(batches)
    places = [(sum(map(len, batches[:n])), len(each)) for n, each in enumerate(batches)]
    files = a_file(content + batches[1][:-1])
    file = files.open("log")
    for function in (walk_batches, walk_headers):
        found = list(function(file, "log", start=0, limit=file.size(), window_bytes=window))
        assert [(position, each.size) for position, each in found] == places
    for _, each in walk_batches(file, "log", start=0, limit=file.size(), window_bytes=window):
        each.check()


@pytest.mark.parametrize("window", [61, 1000])
def test_damage_is_located_in_the_file(window: int) -> None:
    """The error has the position in the file, not in the window; earlier batches are returned."""
    good = bytes(batch(b"v" * 500)) * 3
    files = a_file(good + b"\xff" * 100)
    file = files.open("log")
    walking = walk_batches(file, "log", start=0, limit=file.size(), window_bytes=window)
    assert len([next(walking) for _ in range(3)]) == 3
    with pytest.raises(CorruptionError) as caught:
        next(walking)
    assert (caught.value.path, caught.value.position) == ("log", len(good))


def test_a_large_batch_is_not_taken_into_memory_before_its_checksum_holds() -> None:
    """A damaged length must not decide how much memory is taken."""
    data = bytearray(batch(b"v" * 50_000))
    data[30_000] ^= 1
    file = a_file(bytes(data)).open("log")
    with pytest.raises(CorruptionError, match="has the CRC-32C"):
        list(walk_batches(file, "log", start=0, limit=len(data), window_bytes=1000))
