"""Descriptors of a broker: one for each partition, as in Apache Kafka."""

import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tailrace import Admin, Broker, Producer
from tailrace.client.admin import NewTopic

pytestmark = pytest.mark.wire

COUNT = 20
WAIT_S = 60
FEW = 3
"""Indexes that a request may need just now."""


def open_in(folder: Path) -> int:
    """Files of partitions of topic t that this process has open."""
    named = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread has closed it meanwhile
            named.append(each.readlink())
    return sum(each.is_relative_to(folder) and each.parent.name[:2] == "t-" for each in named)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_partition_that_is_little_used_has_one_file_open(tmp_path: Path) -> None:
    """With its first records, with some hundred KiB after a checkpoint, and after a restart."""
    settings = {"log.flush.offset.checkpoint.interval.ms": "50", "log.initial.task.delay.ms": "0"}
    with (
        Broker(tmp_path, settings=settings) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=5000) as producer,
    ):
        admin.create_topics([NewTopic("t", COUNT)]).results()
        for _ in range(40):
            for partition in range(COUNT):
                producer.send("t", bytes(5000), partition=partition)
        producer.flush()
        give_up_at = time.monotonic() + WAIT_S
        while open_in(tmp_path) > COUNT + FEW and time.monotonic() < give_up_at:
            producer.send("t", b"", partition=0).result()
        assert open_in(tmp_path) <= COUNT + FEW
    with Broker(tmp_path):
        assert open_in(tmp_path) <= COUNT + FEW
