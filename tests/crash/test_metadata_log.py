"""Crashes at every file operation of the metadata log: starts, appends, snapshots and trims."""

import contextlib
from collections.abc import Iterator

from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.cluster.metadata_logs import LEVEL, Node, setting, value_in

VALUES = 12


def node_on(files: MemoryFiles | None) -> Node:
    """A node whose segments, snapshots and retention all come into play."""
    return Node(files, segment_bytes=400, snapshot_bytes=300, retention_bytes=900)


def work(files: MemoryFiles, told: list[int]) -> None:
    """Two starts that write values, snapshots and trims; `told` has what was acknowledged."""
    node = node_on(files)
    for start in range(2):
        log = node.open()
        if not start:
            log.append([LEVEL])
        for value in range(start * VALUES, (start + 1) * VALUES):
            log.append([setting(value)])
            told.append(value)
            log.tidy()
            node.removals.remove_due(node.clock.now_ms())
            node.clock.pause(30)
        log.close()


def stops(steps: Steps) -> Iterator[tuple[int, MemoryFiles, list[int]]]:
    """The work, killed at each of its operations."""
    whole = MemoryFiles()
    work(whole, [])
    for stop_at in steps(range(len(whole.operations) + 1)):
        for partial in (0, 30):
            files, told = MemoryFiles(), list[int]()
            files.stop_at, files.stop_partial_bytes = stop_at, partial
            with contextlib.suppress(ProcessKilledError):
                work(files, told)
            yield stop_at, files, told


def check(disk: MemoryFiles, told: list[int]) -> None:
    """Every acknowledged change is there, and at most the one under way with them."""
    log = node_on(disk).open()
    found = value_in(log.image)
    last = told[-1] if told else None
    coming = 0 if last is None else last + 1
    assert found in {last, coming}, f"{found} after {last}"
    log.append([LEVEL, setting(1000)])
    log.close()
    assert value_in(node_on(disk).open().image) == 1000


def test_a_crash_at_any_operation_loses_no_acknowledged_change(steps: Steps) -> None:
    """After a kill or a power loss the state is that of the last answer, or one change further."""
    for stop_at, files, told in stops(steps):
        for _, disk in crash_all_ways(files, seed=stop_at):
            check(disk, told)


def test_a_crash_at_any_operation_of_the_next_start_ends_well(steps: Steps) -> None:
    """A start that repairs may die too, wherever it is."""
    files, told = MemoryFiles(), list[int]()
    work(files, told)
    path = "data/__cluster_metadata-0"
    newest = max(each for each in files.list(path) if each.endswith(".log"))
    file = files.open(f"{path}/{newest}")
    file.resize(file.size() - 5)
    file.sync()
    file.close()
    again = files.crash(keep_unsynced=True)
    node_on(again).open()
    before = value_in(node_on(files.crash(keep_unsynced=True)).open().image)
    for stop_at in steps(range(len(again.operations) + 1)):
        second = files.crash(keep_unsynced=True)
        second.stop_at = stop_at
        with contextlib.suppress(ProcessKilledError):
            node_on(second).open()
        for _, disk in crash_all_ways(second, seed=stop_at):
            assert value_in(node_on(disk).open().image) == before
