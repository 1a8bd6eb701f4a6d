"""Replays into a topic that are killed while they send."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tailrace import Broker
from tailrace.client.admin import create_topic
from tailrace.model import Offset
from tailrace.records.builder import Record, records_of
from tests.kills.changes import Changes
from tests.kills.drivers import Driver, Drivers, Job, Victim, survive
from tests.kills.logs import PARTITIONS, RECORDS, record, source_of
from tests.spark.topics import batches

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

TARGETS = 4
"""Partitions of the topic that is written."""

CHANGES = 400
"""Changes to the logs of the topic and the files of the offset map while the replay runs."""

Place = tuple[int, int]
"""A partition, and an offset there."""


class Target:
    """A topic that is made for a replay, and its offset map."""

    def __init__(self, broker: Broker, data: Path, offset_map: Path) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.topic = f"{offset_map.parent.name}-{offset_map.name}"
        self.offset_map = offset_map
        self._data = data
        settings = {"retention.ms": "-1"}
        create_topic(self.bootstrap, self.topic, partition_count=TARGETS, settings=settings)

    def begin(self, driver: Driver) -> None:
        """Start the replay, or go on."""
        driver.begin(
            "replay",
            data=self._data,
            bootstrap=self.bootstrap,
            topic=self.topic,
            offset_map=self.offset_map,
        )

    def records(self) -> dict[int, list[Record]]:
        """Return the topic's records by partition."""
        return {
            number: [each for batch in found for each in records_of(batch)]
            for number, found in batches(self.bootstrap, self.topic).items()
        }

    def mapped(self) -> dict[Place, Place]:
        """Return the place of each source record in the target, by the offset map."""
        found = {}
        for path in self.offset_map.glob("topic=*/*.parquet"):
            for row in pq.ParquetFile(path).read().to_pylist():
                for step in range(row["records"]):
                    source = row["partition"], row["offset"] + step
                    found[source] = row["target_partition"], row["target_offset"] + step
        return found


def test_a_replay_sends_each_record_once_through_a_kill(
    drivers: Drivers,
    victim: Victim,
    seed: int,
    data: Path,
    broker: Broker,
    broker_data: Path,
    tmp_path: Path,
) -> None:
    """Records keep their order, key, timestamp and headers, and the offset map is right."""
    targets: dict[Path, Target] = {}

    def begin(driver: Driver, folder: Path) -> Changes:
        if folder not in targets:
            targets[folder] = Target(broker, data, folder)
        target = targets[folder]
        logs = [broker_data / f"{target.topic}-{number}" for number in range(TARGETS)]
        changes = Changes(folder, *logs, has_writes=True)
        target.begin(driver)
        return changes

    job = Job(begin=begin, moments=CHANGES)
    target = targets[survive(drivers, job, victim=victim, seed=seed, folder=tmp_path)]
    found = target.records()
    places = {
        source_of(each): (number, each.offset)
        for number, records in found.items()
        for each in records
    }
    count = sum(map(len, found.values()))
    assert count == len(places) == PARTITIONS * RECORDS
    assert target.mapped() == places
    for records in found.values():
        sources = [source_of(each) for each in records]
        for partition in range(PARTITIONS):
            offsets = [offset for number, offset in sources if number == partition]
            assert offsets == sorted(offsets)
        for each, source in zip(records, sources, strict=True):
            assert each._replace(offset=Offset(source[1])) == record(*source)
