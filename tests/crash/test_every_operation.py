"""The process dies, or the machine loses power, at every single file operation of a workload."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash import workloads
from tests.crash.workloads import WORKLOADS, Broker
from tests.steps import Steps

PARTIAL_BYTES = (0, 30)
"""Bytes that are written of a write at which the process dies: none, or half a batch header."""


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.__name__)
def test_a_crash_at_any_operation_leaves_a_prefix(
    workload: Callable[[Broker], None], steps: Steps
) -> None:
    """A kill loses nothing acknowledged; a power loss leaves a prefix with all that was synced."""
    starts = workloads.Starts()
    for stop_at in steps(range(workloads.operation_count(workload) + 1)):
        for partial in PARTIAL_BYTES:
            files = MemoryFiles()
            files.stop_at, files.stop_partial_bytes = stop_at, partial
            oracle = workloads.run(workload, files)
            for is_kill, disk in workloads.crash_all_ways(files, seed=stop_at):
                workloads.check(oracle, starts.stored(disk), is_kill=is_kill)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.__name__)
def test_a_second_crash_during_recovery_ends_well(
    workload: Callable[[Broker], None], steps: Steps
) -> None:
    """Recovery can die at any of its own operations, and the next one still finds the prefix."""
    total = workloads.operation_count(workload)
    starts = workloads.Starts()
    stops = range(total // 3, total + 1, max(total // 7, 1))
    # Equal disks are tried more than once, because the operations to stop at differ.
    # The way to crash comes first, so that any six have each way among them.
    firsts = list(product(range(5), range(2), stops))
    for first in steps(range(len(firsts))):
        number, seed, stop_at = firsts[first]
        files = MemoryFiles()
        files.stop_at, files.stop_partial_bytes = stop_at, 30
        oracle = workloads.run(workload, files)
        is_kill, disk = workloads.crash_five_ways(files, seed=seed)[number]
        for is_harmless, left in _crash_in_recovery(
            disk, steps, is_kill=is_kill, seed=100 * seed + number
        ):
            workloads.check(oracle, starts.stored(left), is_kill=is_harmless)


def _crash_in_recovery(
    disk: MemoryFiles, steps: Steps, *, is_kill: bool, seed: int
) -> Iterator[tuple[bool, MemoryFiles]]:
    """Disks after a crash of the start on this one, and whether both crashes were kills."""
    again = disk.crash(keep_unsynced=True)
    workloads.stored(again)
    total = len(again.operations)
    for stop_at in steps(range(seed % 4, total, 4)):
        second = disk.crash(keep_unsynced=True)
        second.stop_at = stop_at
        with contextlib.suppress(ProcessKilledError):
            workloads.stored(second)
        for is_second_kill, third in workloads.crash_all_ways(second, seed=seed + stop_at):
            yield is_kill and is_second_kill, third
