"""The device refuses, or gives too little, at every single look at the disk.

A look is any call that changes nothing: to read, to list, to ask for a size or whether something is
there. A read that fails is no damage, so nothing may be cut, forgotten or made anew because of it.
"""

import contextlib
import errno
import os
from collections.abc import Callable

import pytest

from tailrace.errors import CorruptionError
from tailrace.testing import MemoryFiles
from tailrace.testing.files import move_content
from tests.crash import workloads
from tests.crash.workloads import WORKLOADS, Broker
from tests.steps import Steps


class FailsOnce(MemoryFiles):
    """A disk at which one look fails: the n-th."""

    def __init__(self, number: int, *, is_short: bool = False) -> None:
        super().__init__()
        self._number = number
        self._is_short = is_short

    def look(self, operation: str, path: str) -> int:
        """Let the n-th call fail, or read two bytes only; let all others through."""
        allowed = super().look(operation, path)
        if len(self.reads) - 1 != self._number:
            return allowed
        if not self._is_short:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return 2 if operation == "read" else allowed


def failing(disk: MemoryFiles, number: int, *, is_short: bool) -> FailsOnce:
    """The disk that a killed process has left, with a bad look to come."""
    after = FailsOnce(number, is_short=is_short)
    move_content(disk, after)
    return after


@pytest.mark.parametrize("is_short", [False, True], ids=["refused", "short"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.__name__)
def test_a_failing_read_at_work_loses_nothing(
    workload: Callable[[Broker], None], steps: Steps, *, is_short: bool
) -> None:
    """Any work in progress ends with an error, and the next start has what was there."""
    count = len(_healthy(workload)[0].reads)
    for number in steps(range(count)):
        files = FailsOnce(number, is_short=is_short)
        oracle = workloads.Oracle()
        with contextlib.suppress(OSError):
            workload(Broker(files, oracle))
        for is_kill, disk in workloads.crash_all_ways(files, seed=number):
            workloads.check(oracle, workloads.stored(disk), is_kill=is_kill)


@pytest.mark.parametrize("is_short", [False, True], ids=["refused", "short"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.__name__)
def test_a_failing_read_at_a_start_cuts_nothing(
    workload: Callable[[Broker], None], steps: Steps, *, is_short: bool
) -> None:
    """The start ends with an error or knows better; one on a sound device then has everything."""
    files, oracle = _healthy(workload)
    killed = files.crash(keep_unsynced=True)
    sound = killed.crash(keep_unsynced=True)
    workloads.stored(sound)
    for number in steps(range(len(sound.reads))):
        disk = failing(killed.crash(keep_unsynced=True), number, is_short=is_short)
        try:
            workloads.stored(disk)
        except OSError:
            pass
        except CorruptionError as error:
            raise AssertionError(f"look {number} was taken for damage") from error
        again = disk.crash(keep_unsynced=True)
        workloads.check(oracle, workloads.stored(again), is_kill=True)


def _healthy(workload: Callable[[Broker], None]) -> tuple[MemoryFiles, workloads.Oracle]:
    files = MemoryFiles()
    oracle = workloads.run(workload, files)
    return files, oracle
