"""Compactions that are killed while they read, write and exchange segments."""

import random
import shutil
from pathlib import Path

import pytest

from tailrace.model import TopicPartition
from tailrace.reading.reader import open_log_reader
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.files import DiskFiles
from tailrace.storage.log import Log
from tests.kills.changes import Changes
from tests.kills.drivers import Driver, Drivers, Job, Victim, survive
from tests.unit.spark.jobs.test_compact import content, left, transact
from tests.unit.storage.builders import NOW, append, settings
from tests.unit.storage.cleaner.houses import House

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

TOPICS = ("flights", "planes", "pilots")
BATCHES = 350
"""Batches of each topic, with ten records each."""

KEYS = 900
SEGMENT_BYTES = 12_000
MAP_BYTES = 24_000
"""Room for the keys of some segments, so that a group is read in several pieces."""

SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "segment.index.bytes": "1200",
    "index.interval.bytes": "500",
    "min.cleanable.dirty.ratio": "0",
}
CHANGES = 900
"""Changes to the files of the directory while it is compacted."""


@pytest.fixture(scope="session")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a broker leaves it, with updates, tombstones and transactions."""
    config = settings(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0,
        segment_bytes=SEGMENT_BYTES,
        segment_index_bytes=1200,
        index_interval_bytes=500,
    )
    house = House()
    chance = random.Random(1)
    for topic in TOPICS:
        log = house.open(TopicPartition(topic, 0), config)
        for number in range(BATCHES):
            append(log, updates(chance, log))
            if number % 50 == 20:
                transact(log, number, b"xyz", is_commit=chance.random() < 0.5)
    directory = tmp_path_factory.mktemp("dirty")
    for path, written in content(left(house)).items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(written)
    return directory / "data"


def updates(chance: random.Random, log: Log) -> bytearray:
    """A batch of new values for some keys, one of them in ten null."""
    builder = BatchBuilder()
    for number in range(10):
        key = b"key-%d" % chance.randrange(KEYS)
        value = None if chance.random() < 0.1 else b"value-%d" % (log.end_offset + number)
        builder.append(key, value, timestamp=NOW)
    return bytearray(builder.build())


@pytest.fixture(scope="session")
def undisturbed(
    drivers: Drivers, dirty: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[bytes]]:
    """The batches of a directory that was compacted at one go."""
    data = tmp_path_factory.mktemp("undisturbed") / "data"
    shutil.copytree(dirty, data)
    driver = drivers.running()
    begin(driver, data)
    driver.result()
    return batches(data)


def begin(driver: Driver, data: Path) -> None:
    """Start the compaction of a directory, or go on."""
    driver.begin("compact", data=data, settings=SETTINGS, now_ms=NOW, map_bytes=MAP_BYTES)


def batches(data: Path) -> dict[str, list[bytes]]:
    """All batches of all logs, as they stand in their files."""
    found = {}
    for topic in TOPICS:
        reader = open_log_reader(DiskFiles(), str(data / f"{topic}-0"))
        found[topic] = [
            bytes(batch.view) for batch in reader.batches(reader.start_offset, reader.end_offset)
        ]
    return found


def test_a_compaction_comes_to_the_same_batches_after_a_kill(
    drivers: Drivers,
    victim: Victim,
    seed: int,
    dirty: Path,
    undisturbed: dict[str, list[bytes]],
    tmp_path: Path,
) -> None:
    """The log is equal byte for byte, and no other files are left."""

    def begin_copy(driver: Driver, folder: Path) -> Changes:
        data = folder / "data"
        if not data.exists():
            shutil.copytree(dirty, data)
        changes = Changes(data)
        begin(driver, data)
        return changes

    job = Job(begin=begin_copy, moments=CHANGES)
    data = survive(drivers, job, victim=victim, seed=seed, folder=tmp_path) / "data"
    assert batches(data) == undisturbed
    unfinished = ("*-delete", "*/*.deleted", "*/*.cleaned", "*/*.swap")
    assert not [path for pattern in unfinished for path in data.glob(pattern)]
