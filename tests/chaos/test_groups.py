"""Some seconds of chaos under groups leave histories without anomalies."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.clocks import ShiftedClock
from tests.chaos.groups import run

pytestmark = pytest.mark.wire

SECONDS = 6


def test_groups_of_a_broker_that_is_killed_and_paused_read_what_they_should(
    tmp_path: Path,
) -> None:
    """No client sees an anomaly, and every group comes to the end of its topic."""
    result = run(SECONDS, 7, tmp_path)
    assert not result.faults
    assert not result.report.anomalies, "\n".join(map(str, result.report.anomalies[:5]))
    assert result.report.figures["sends ok"] > 100
    assert result.report.figures["records polled"] > 300
    assert result.counts.total() > 3


def test_the_time_of_day_of_a_process_can_be_set(tmp_path: Path) -> None:
    """It jumps in both directions while the process runs; its monotonic clock goes on."""
    clock = ShiftedClock.compile(tmp_path)
    if clock is None:
        pytest.skip("needs a C compiler: install gcc")
    program = """
import time
while input():
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment,
    ) as process:

        def read(shift_s: float) -> list[float]:
            assert process.stdin is not None
            assert process.stdout is not None
            clock.set(shift_s)
            process.stdin.write("read\n")
            process.stdin.flush()
            return list(map(float, process.stdout.readline().split()))

        (now, _, begin), (later, later_ns, _), (back, _, end) = read(0), read(7200), read(-7200)
        process.kill()
    assert 7200 <= later - now < 7230
    assert abs(later - later_ns) < 1
    assert -7200 <= back - now < -7170
    assert begin <= end < begin + 30
