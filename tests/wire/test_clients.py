"""confluent-kafka, kafka-python and aiokafka against a real broker over a real socket."""

from itertools import pairwise

import confluent_kafka
import pytest

from tests.wire.clients import CLIENTS, TIMEOUT_S, Client, Sent

pytestmark = pytest.mark.wire

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_600_000_000_000
RECORDS = [
    Sent(
        key=None if number % 7 == 0 else b"key %d" % number,
        value=b"value %d " % number * 10,
        timestamp=FIRST_TIMESTAMP + 1000 * number,
        headers=(("number", b"%d" % number),) if number % 3 == 0 else (),
    )
    for number in range(200)
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_reads_what_it_produced(address: str, name: str, codec: str) -> None:
    """Every record comes back whole, by offset, from the start and from the middle."""
    client, topic = CLIENTS[name], f"own.{name}.{codec}"
    offsets = client.produce(address, topic, RECORDS, codec=codec, is_idempotent=False)
    assert offsets == list(range(len(RECORDS)))
    assert client.read(address, topic, 0, count=len(RECORDS)) == RECORDS
    assert client.read(address, topic, 150, count=50) == RECORDS[150:]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_finds_records_by_timestamp(address: str, name: str, codec: str) -> None:
    """A timestamp gives the first record that is at least as young, and none beyond the newest."""
    client, topic = CLIENTS[name], f"time.{name}.{codec}"
    client.produce(address, topic, RECORDS, codec=codec, is_idempotent=False)
    assert client.find(address, topic, FIRST_TIMESTAMP) == 0
    assert client.find(address, topic, FIRST_TIMESTAMP + 99_001) == 100
    assert client.find(address, topic, FIRST_TIMESTAMP + 10_000_000) is None
    found = client.find(address, topic, FIRST_TIMESTAMP + 150_000)
    assert found == 150
    assert client.read(address, topic, found, count=1) == RECORDS[150:151]


@pytest.mark.parametrize(("writer", "reader"), list(pairwise([*CLIENTS, *CLIENTS][:4])))
def test_a_client_reads_what_another_produced(address: str, writer: str, reader: str) -> None:
    """Records that one client compressed with zstd are the same to the next one."""
    topic = f"from.{writer}.to.{reader}"
    CLIENTS[writer].produce(address, topic, RECORDS, codec="zstd", is_idempotent=False)
    assert CLIENTS[reader].read(address, topic, 0, count=len(RECORDS)) == RECORDS


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
def test_an_idempotent_producer_works(
    address: str, client: Client, request: pytest.FixtureRequest
) -> None:
    """A producer that asks for an id and numbers its batches is served."""
    topic = f"idempotent.{request.node.callspec.id}"
    offsets = client.produce(address, topic, RECORDS, codec="lz4", is_idempotent=True)
    assert offsets == list(range(len(RECORDS)))


def test_a_consumer_checks_its_position_for_truncation(address: str) -> None:
    """A consumer of librdkafka asks where its leader epoch ends, and reads on: nothing was cut."""
    topic = "validated"
    CLIENTS["confluent-kafka"].produce(address, topic, RECORDS, codec="none", is_idempotent=False)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 150, leader_epoch=0)])
    messages = consumer.consume(50, TIMEOUT_S)
    consumer.close()
    assert [message.offset() for message in messages] == list(range(150, 200))
