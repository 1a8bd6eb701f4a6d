"""Streams from a broker into Parquet files that are killed while records come."""

from pathlib import Path

import pytest

from tailrace import Broker, Producer
from tailrace.client.admin import create_topic
from tests.kills.changes import Changes
from tests.kills.drivers import Driver, Drivers, Job, Victim, survive

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 3
CHUNKS = 8
CHUNK = 400
"""Records that come to each partition at a time, whenever a batch is in the sink."""

CHANGES = 240
"""Changes to the files of sink and checkpoint while the stream runs."""


class Stream:
    """A topic that is filled while a stream takes it into a directory."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.folder = folder
        self._bootstrap = broker.bootstrap_servers
        self._topic = f"{folder.parent.name}-{folder.name}"
        self._sent = 0
        create_topic(self._bootstrap, self._topic, partition_count=PARTITIONS)

    def begin(self, driver: Driver) -> Changes:
        """Start it, or go on, until all is taken that will come."""
        changes = Changes(self.folder)
        driver.begin(
            "follow",
            bootstrap=self._bootstrap,
            topic=self._topic,
            folder=self.folder,
            ends={str(number): CHUNKS * CHUNK for number in range(PARTITIONS)},
        )
        return changes

    def feed(self) -> None:
        """Send as many chunks as there were batches, and one more."""
        batches = list((self.folder / "sink" / "_spark_metadata").glob("[0-9]*"))
        if self._sent < min(CHUNKS, 1 + len(batches)):
            self._send()

    def _send(self) -> None:
        with Producer({"bootstrap.servers": self._bootstrap}) as producer:
            for number in range(self._sent * CHUNK, (self._sent + 1) * CHUNK):
                for partition in range(PARTITIONS):
                    value = b"%d of %d" % (number, partition)
                    producer.send(self._topic, value=value, partition=partition)
            producer.flush()
        self._sent += 1


def test_a_followed_stream_loses_and_doubles_nothing_after_a_kill(
    drivers: Drivers, victim: Victim, seed: int, broker: Broker, tmp_path: Path
) -> None:
    """The Parquet files that count have each record once."""
    streams: dict[Path, Stream] = {}

    def begin(driver: Driver, folder: Path) -> Changes:
        if folder not in streams:
            streams[folder] = Stream(broker, folder)
        return streams[folder].begin(driver)

    job = Job(begin=begin, moments=CHANGES, meanwhile=lambda folder: streams[folder].feed())
    folder = survive(drivers, job, victim=victim, seed=seed, folder=tmp_path)
    assert drivers.run("rows", folder=folder) == [
        [partition, offset, f"{offset} of {partition}"]
        for partition in range(PARTITIONS)
        for offset in range(CHUNKS * CHUNK)
    ]
