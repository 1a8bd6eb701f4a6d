"""Consumer groups of confluent-kafka, kafka-python and aiokafka against a real broker."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from tailrace import Broker, Producer
from tests.wire.clients import kafka

pytestmark = pytest.mark.wire

COUNT = 300
PARTITIONS = 4
PATIENCE_S = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the broker."""
    return tmp_path_factory.mktemp("groups") / "data"


@pytest.fixture(scope="module")
def address(data: Path) -> Iterator[str]:
    """HOST:PORT of a broker with records in the partitions of topic `t`."""
    settings = {
        "num.partitions": PARTITIONS,
        "group.initial.rebalance.delay.ms": 200,
        "offsets.topic.num.partitions": 5,
    }
    with Broker(data, settings=settings) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number, key=b"%d" % number)
        yield broker.bootstrap_servers


def read_with_confluent(address: str, group: str, count: int) -> list[bytes]:
    """Subscribe, read `count` records or until none comes, commit, and leave."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(values), 0.2):
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def read_with_kafka_python(address: str, group: str, count: int) -> list[bytes]:
    """Subscribe, read `count` records, commit, and leave."""
    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10,
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == count:
            break
    consumer.commit()
    consumer.close()
    return values


def read_with_aiokafka(address: str, group: str, count: int) -> list[bytes]:
    """Subscribe, read `count` records, commit, and leave."""

    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        values = []
        async with asyncio.timeout(PATIENCE_S):
            async for message in consumer:
                values.append(message.value)
                if len(values) == count:
                    break
        await consumer.commit()
        await consumer.stop()
        return values

    return asyncio.run(read())


READERS = (read_with_confluent, read_with_kafka_python, read_with_aiokafka)
Reader = Callable[[str, str, int], list[bytes]]
EXPECTED = sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("reader", READERS)
def test_a_group_reads_every_record_once_over_two_lives(address: str, reader: Reader) -> None:
    """The second consumer goes on where the first has committed: nothing lost, nothing twice."""
    group = f"lives.{reader.__name__}"
    first = reader(address, group, COUNT // 3)
    second = reader(address, group, COUNT - len(first))
    assert sorted(first + second) == EXPECTED


def test_clients_of_different_makers_go_on_from_each_other(address: str) -> None:
    """The next client begins where the one before it has committed."""
    values: list[bytes] = []
    for reader in READERS:
        values += reader(address, "makers", COUNT // len(READERS))
    assert sorted(values) == EXPECTED


def test_partitions_are_shared_and_taken_over(address: str) -> None:
    """Two consumers have half of the partitions each; when one leaves, the other has all."""

    def consumer() -> confluent_kafka.Consumer:
        made = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "shared",
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        made.subscribe(["t"])
        return made

    def settle(*counts: int) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for each in consumers:
                each.poll(0.05)
            if sorted(len(each.assignment()) for each in consumers) == sorted(counts):
                return True
        return False

    consumers = [consumer()]
    assert settle(PARTITIONS)
    consumers.append(consumer())
    assert settle(PARTITIONS // 2, PARTITIONS // 2)
    consumers.pop().close()
    assert settle(PARTITIONS)
    consumers.pop().close()
