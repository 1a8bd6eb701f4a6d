"""DeleteRecords and readers of committed records, with other people's clients."""

import random
import warnings
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tailrace import Broker
from tailrace.model import AppendOrigin, LeaderEpoch, TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles
from tailrace.storage.config import log_config
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.recovery import open_log
from tests.wire.clients import CLIENTS, TIMEOUT_S, Sent

with warnings.catch_warnings():
    # kafka-python asks for resources in a way that newer Pythons warn of.
    warnings.simplefilter("ignore")
    import kafka

pytestmark = pytest.mark.wire

TIMESTAMP = 1_600_000_000_000
RECORDS = [Sent(key=b"k", value=b"%d" % number, timestamp=TIMESTAMP) for number in range(20)]


def delete_with_confluent(address: str, topic: str, offset: int) -> int:
    """The low watermark after confluent-kafka's delete_records."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    wanted = confluent_kafka.TopicPartition(topic, 0, offset)
    (answer,) = admin.delete_records([wanted]).values()
    return int(answer.result(TIMEOUT_S).low_watermark)


def delete_with_kafka_python(address: str, topic: str, offset: int) -> int:
    """The low watermark after kafka-python's delete_records."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)
    wanted = kafka.TopicPartition(topic, 0)
    answer = admin.delete_records({wanted: offset})[wanted]
    admin.close()
    return int(answer["low_watermark"])


@pytest.mark.parametrize("delete", [delete_with_confluent, delete_with_kafka_python])
def test_a_client_deletes_records(address: str, delete: Callable[[str, str, int], int]) -> None:
    """Earlier records are gone for every client; -1 empties the log."""
    topic, client = f"deleted.{delete.__name__}", CLIENTS["confluent-kafka"]
    client.produce(address, topic, RECORDS, codec="none", is_idempotent=False)
    assert delete(address, topic, 12) == 12
    assert client.find(address, topic, 0) == 12
    assert client.read(address, topic, 12, count=8) == RECORDS[12:]
    assert delete(address, topic, -1) == 20
    assert client.find(address, topic, 0) is None


def with_transactions(folder: Path) -> None:
    """A partition folder with one aborted, one committed and one open transaction."""
    folder.mkdir(parents=True)
    files = DiskFiles()
    log = open_log(
        PartitionFolder(
            partition=TopicPartition("t", 0),
            path=str(folder),
            files=files,
            clock=SystemClock(),
            chance=random.Random(0),
            removals=Removals(files),
        ),
        config=log_config({}),
        is_clean=False,
    )

    def write(data: bytes, origin: AppendOrigin) -> None:
        log.append(
            memoryview(bytearray(data)),
            leader_epoch=LeaderEpoch(0),
            now_ms=TIMESTAMP,
            origin=origin,
        )

    for producer_id, value in ((7, b"aborted"), (8, b"committed"), (9, b"open")):
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        builder.append(b"k", value, timestamp=TIMESTAMP)
        write(builder.build(), AppendOrigin.CLIENT)
        if value != b"open":
            marker = build_end_marker(
                producer_id,
                0,
                is_commit=value == b"committed",
                coordinator_epoch=0,
                timestamp=TIMESTAMP,
            )
            write(bytes(marker), AppendOrigin.COORDINATOR)
    log.finish()
    log.close()


def read_with_confluent(address: str, isolation: str) -> list[bytes]:
    """All values that confluent-kafka reads."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def read_with_kafka_python(address: str, isolation: str) -> list[bytes]:
    """All values that kafka-python reads."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        group_id=None,
        enable_auto_commit=False,
        isolation_level=isolation,
        consumer_timeout_ms=1500,
    )
    partition = kafka.TopicPartition("t", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = [message.value for message in consumer]
    consumer.close()
    return found


@pytest.mark.parametrize("read", [read_with_confluent, read_with_kafka_python])
def test_a_client_reads_what_was_committed(
    tmp_path: Path, read: Callable[[str, str], list[bytes]]
) -> None:
    """read_committed gets no aborted or open transaction; read_uncommitted gets everything."""
    with_transactions(tmp_path / "data" / "t-0")
    with Broker(tmp_path / "data") as broker:
        assert read(broker.bootstrap_servers, "read_committed") == [b"committed"]
        everything = read(broker.bootstrap_servers, "read_uncommitted")
        assert everything == [b"aborted", b"committed", b"open"]
