"""Compaction in a real session: the bytes of the broker's cleaner, also after a killed job."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.reading.reader import open_log_reader
from tailrace.runtime.files import DiskFiles
from tailrace.spark.jobs.compact import compact
from tailrace.storage.names import LOCK
from tailrace.testing import MemoryFiles
from tests.unit.spark.jobs.test_compact import (
    CHECKPOINT,
    SETTINGS,
    cleaned_by_a_broker,
    content,
    filled,
    left,
)
from tests.unit.storage.builders import NOW
from tests.unit.storage.cleaner.houses import ONE, TWO

pytestmark = pytest.mark.spark

KILLED_JOB = """
import sys
from tailrace.spark import session
from tailrace.spark.jobs.compact import compact

def wait_halfway(done, total):
    if done > total // 2:
        print("halfway", flush=True)
        sys.stdin.read()

spark = session(master="local[2]")
compact(spark, sys.argv[1], settings=dict(each.split("=") for each in sys.argv[3:]),
        now_ms=int(sys.argv[2]), progress=wait_halfway)
"""
"""Stands still once the first group of segments was exchanged."""


@pytest.fixture
def stopped() -> MemoryFiles:
    """The disk of a broker that was stopped."""
    return left(filled())


@pytest.fixture
def data(stopped: MemoryFiles, tmp_path: Path) -> Path:
    """The same on the real file system."""
    for path, written in content(stopped).items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(written)
    return tmp_path / "data"


def files_of(data: Path) -> dict[str, bytes]:
    """Every file but the lock, by its path from above the directory."""
    return {
        str(path.relative_to(data.parent)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and path.name != LOCK
    }


@pytest.mark.smoke
def test_a_directory_comes_out_as_from_a_broker(
    spark: SparkSession, stopped: MemoryFiles, data: Path
) -> None:
    """Byte for byte, with nothing left beside; progress comes to its end."""
    told: list[tuple[int, int]] = []
    summary = compact(
        spark, str(data), settings=SETTINGS, now_ms=NOW,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert files_of(data) == content(cleaned_by_a_broker(stopped))
    assert {each.partition for each in summary.partitions} == {ONE, TWO}
    assert summary.bytes_after < summary.bytes_before
    assert told[-1] == (2 * summary.bytes_before,) * 2
    assert not list(data.glob("*-delete"))


def test_a_damaged_log_is_told_with_its_place(spark: SparkSession, data: Path) -> None:
    """The error names the place of the damage, and the directory is unchanged."""
    logs = sorted(data.glob(f"{TWO}/*.log"))
    path = next(path for path in logs if path.stat().st_size)
    written = bytearray(path.read_bytes())
    written[-1] ^= 1
    path.write_bytes(written)
    before = files_of(data)
    with pytest.raises(CorruptionError, match=path.name):
        compact(spark, str(data), settings=SETTINGS, now_ms=NOW)
    assert files_of(data) == before


def test_a_directory_in_use_is_refused(spark: SparkSession, data: Path) -> None:
    """A directory whose lock another process holds is refused."""
    lock = DiskFiles().lock(str(data / LOCK))
    with pytest.raises(DirectoryError, match="in use"):
        compact(spark, str(data), settings=SETTINGS, now_ms=NOW)
    lock.release()


def test_a_job_after_a_killed_one_comes_to_the_same(
    spark: SparkSession, stopped: MemoryFiles, data: Path
) -> None:
    """The first was killed, with all its processes, between two exchanges."""
    expected = cleaned_by_a_broker(stopped)
    script = [sys.executable, "-c", KILLED_JOB, str(data), str(NOW)]
    killed = subprocess.Popen(
        script + [f"{name}={value}" for name, value in SETTINGS.items()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert killed.stdout is not None
        assert b"halfway" in killed.stdout.readline()
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
    assert list(data.glob("*-delete"))
    compact(spark, str(data), settings=SETTINGS, now_ms=NOW)
    assert not list(data.glob("*-delete"))
    assert (data.parent / CHECKPOINT).read_bytes() == expected.content(CHECKPOINT)
    for partition in (ONE, TWO):
        with_broker = open_log_reader(expected, f"data/{partition}")
        here = open_log_reader(DiskFiles(), str(data / str(partition)))
        assert here.end_offset == with_broker.end_offset
        assert [bytes(each.view) for each in here.batches(here.start_offset, here.end_offset)] == [
            bytes(each.view)
            for each in with_broker.batches(with_broker.start_offset, with_broker.end_offset)
        ]
