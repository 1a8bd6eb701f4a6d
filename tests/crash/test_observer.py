"""Crashes at every file operation of an observer's log: appends, cuts, snapshots of both kinds."""

import contextlib
from collections.abc import Iterator

from tailrace.cluster.metadata.snapshot_files import find_snapshots, load_snapshot
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.cluster.metadata_logs import FOLDER, setting, value_in
from tests.unit.cluster.observers import Copy, Leader, follow, install, leader_of

LAST = 40


def copy_on(files: MemoryFiles | None) -> Copy:
    """An observer whose segments, snapshots and retention all come into play."""
    return Copy(files, segment_bytes=500, snapshot_bytes=600, retention_bytes=1800)


def work(files: MemoryFiles) -> Leader:
    """Two starts that follow a leader through an election and a snapshot; returns the leader."""
    copy, leader = copy_on(files), leader_of()
    log = copy.open()
    for value in range(12):
        leader.write(setting(value))
        # What is not committed yet may be cut.
        follow(log, leader, committed=leader.end - 2)
        log.tidy()
        copy.removals.remove_due(copy.clock.now_ms())
        copy.clock.pause(30)
    leader.lose_from(leader.end - 2)
    leader.lead()
    for value in range(10, 16):
        leader.write(setting(value))
        follow(log, leader)
    for value in range(16, 30):
        leader.write(setting(value))
    install(log, leader, leader.end)
    log.close()
    log = copy.open()
    for value in range(30, LAST):
        leader.write(setting(value))
        follow(log, leader, committed=leader.end - 1)
        log.tidy()
        copy.clock.pause(60)
        copy.removals.remove_due(copy.clock.now_ms())
    follow(log, leader)
    log.close()
    return leader


def check(disk: MemoryFiles, leader: Leader) -> None:
    """The log opens, follows on to the leader's image, and so does the start after it."""
    for value in (LAST - 1, LAST):
        copy = copy_on(disk)
        log = copy.open()
        follow(log, leader)
        log.tidy()
        assert value_in(log.image) == value
        assert (log.end_offset, log.next_offset) == (leader.end, leader.end)
        # The next start is after a kill, and the leader has written meanwhile.
        log.abandon()
        for each in find_snapshots(disk, FOLDER):
            load_snapshot(disk, each)
        if value < LAST:
            leader.write(setting(LAST))
    leader.batches.pop()
    leader.end -= 1


def stops(steps: Steps) -> Iterator[tuple[int, MemoryFiles]]:
    """The work, killed at each of its operations."""
    whole = MemoryFiles()
    work(whole)
    for stop_at in steps(range(len(whole.operations) + 1)):
        for partial in (0, 30):
            files = MemoryFiles()
            files.stop_at, files.stop_partial_bytes = stop_at, partial
            with contextlib.suppress(ProcessKilledError):
                work(files)
            yield stop_at, files


def test_a_crash_at_any_operation_leaves_a_log_that_follows_on(steps: Steps) -> None:
    """After a kill or a power loss all is replayed or fetched again, and no snapshot is torn."""
    leader = work(MemoryFiles())
    for stop_at, files in stops(steps):
        for _, disk in crash_all_ways(files, seed=stop_at):
            check(disk, leader)


def test_a_crash_of_the_start_after_a_crash_ends_well(steps: Steps) -> None:
    """A start that cuts what is damaged may die too, wherever it is."""
    leader = work(MemoryFiles())
    first = MemoryFiles()
    first.stop_at = 150
    with contextlib.suppress(ProcessKilledError):
        work(first)
    [*_, (_, broken)] = crash_all_ways(first, seed=7)
    again = broken.crash(keep_unsynced=True)
    follow(copy_on(again).open(), leader)
    for stop_at in steps(range(len(again.operations) + 1)):
        second = broken.crash(keep_unsynced=True)
        second.stop_at = stop_at
        with contextlib.suppress(ProcessKilledError):
            follow(copy_on(second).open(), leader)
        for _, disk in crash_all_ways(second, seed=stop_at):
            check(disk, leader)
