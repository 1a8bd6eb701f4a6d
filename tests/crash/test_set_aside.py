"""Recovery dies, or the machine loses power, at each operation while it sets segments aside."""

import contextlib
import struct
from collections.abc import Callable

import pytest

from tailrace.storage.log import Log
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.storage.builders import (
    FOLDER,
    bases,
    batch,
    filled,
    flip,
    open_at,
    path,
    records,
    stop_cleanly,
)

SIZE = len(batch(b"value 0"))
COUNT = 20


def torn_in_the_middle(files: MemoryFiles) -> int:
    """A damaged batch in the second segment, and sound ones behind it."""
    second = sorted(_bases(files))[1]
    flip(files, path(second, ".log"), SIZE + 70)
    return second + 1


def torn_at_the_end(files: MemoryFiles) -> int:
    """A part of a batch behind the last one."""
    last = max(_bases(files))
    name = path(last, ".log")
    files.overwrite(name, files.content(name) + bytes(batch(b"half"))[:40])
    return COUNT


def a_lost_tail(files: MemoryFiles) -> int:
    """The first segment ends too early, between two batches."""
    second = sorted(_bases(files))[1]
    name = path(0, ".log")
    files.overwrite(name, files.content(name)[:-SIZE])
    return second - 1


def malformed_epochs(files: MemoryFiles) -> int:
    """Together with damage: both are mended in one start."""
    files.overwrite(f"{FOLDER}/leader-epoch-checkpoint", b"0\n3\n")
    return torn_in_the_middle(files)


DAMAGES: tuple[Callable[[MemoryFiles], int], ...] = (
    torn_in_the_middle,
    torn_at_the_end,
    a_lost_tail,
    malformed_epochs,
)
"""Each returns the offset where the unbroken prefix ends."""


def _bases(files: MemoryFiles) -> list[int]:
    return [int(name[:20]) for name in files.list(FOLDER) if name.endswith(".log")]


def damaged(damage: Callable[[MemoryFiles], int]) -> tuple[MemoryFiles, int]:
    """A log of several segments, all of it on the device, with damage."""
    files = MemoryFiles()
    log = filled(files, COUNT)
    assert len(bases(log)) > 2
    stop_cleanly(log)
    end = damage(files)
    files.sync_directory(FOLDER)
    return files.crash(keep_unsynced=True), end


def lost(before: MemoryFiles, after: MemoryFiles) -> list[int]:
    """Places of batches that stood in a log before and stand nowhere now."""
    held = [
        after.content(f"{FOLDER}/{name}")
        for name in after.list(FOLDER)
        if name.endswith((".log", ".bytes"))
    ]
    pieces: list[bytes] = []
    for base in sorted(_bases(before)):
        whole = before.content(path(base, ".log"))
        while whole:
            size = 12 + struct.unpack_from(">i", whole, 8)[0]
            pieces.append(whole[:size])
            whole = whole[size:]
    return [n for n, piece in enumerate(pieces) if not any(piece in each for each in held)]


def start(files: MemoryFiles) -> Log:
    """Open the log as a broker does first."""
    return open_at(files)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_a_recovery_that_dies_anywhere_loses_no_byte(
    damage: Callable[[MemoryFiles], int], steps: Steps
) -> None:
    """The next start serves the prefix, and everything else is in the folder under other names."""
    whole, end = damaged(damage)
    start(whole).close()
    total = len(whole.operations)
    assert total > 3
    for stop_at in steps(range(total + 1)):
        files, _ = damaged(damage)
        before = files.crash(keep_unsynced=True)
        files.stop_at, files.stop_partial_bytes = stop_at, 30
        with contextlib.suppress(ProcessKilledError):
            start(files)
        for _, disk in crash_all_ways(files, seed=stop_at):
            assert not lost(before, disk), stop_at
            log = start(disk)
            assert [record.offset for record in records(log)] == list(range(end)), stop_at
            assert log.epochs.entries == ((0, 0),)
            log.close()
            assert not lost(before, disk), stop_at
