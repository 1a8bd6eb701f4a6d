"""The producer against other servers: librdkafka's mock cluster, and a broker behind TLS.

The mock cluster keeps what it is sent as it is, so a batch that librdkafka reads back is one that
it takes for valid. It writes no markers for transactions and keeps no offsets of theirs: what a
test sees of a transaction is that every step was accepted.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import confluent_kafka
import pytest

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import MetadataTimeoutError
from tailrace.client.producer.producer import Producer
from tailrace.model import TopicPartition
from tests.unit.security.certificates import BROKER, BROKER_KEY, STRANGER
from tests.wire.clients import TIMEOUT_S
from tests.wire.test_serve import serving

pytestmark = pytest.mark.wire

BROKERS = 3
PARTITIONS = 4
"""Number of partitions of the mock cluster's topic."""


@pytest.fixture
def cluster() -> Iterator[str]:
    """The addresses of a mock cluster of three brokers, with a topic `source`."""
    owner = confluent_kafka.Producer(
        {"bootstrap.servers": "none", "test.mock.num.brokers": BROKERS, "log_level": 0}
    )
    owner.produce("source", b"read by a group")
    assert owner.flush(TIMEOUT_S) == 0
    brokers = owner.list_topics(timeout=TIMEOUT_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


def read(cluster: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """`count` values of all partitions together, by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster, "group.id": "reader"})
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    while sum(map(len, found.values())) < count:
        for message in consumer.consume(count, 1):
            assert message.error() is None, message.error()
            found[message.partition()].append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_mock_cluster_takes_records(cluster: str, codec: str, *, is_idempotent: bool) -> None:
    """Records for every partition of several brokers are there, in order."""
    count = 2000
    with Producer(
        {"compression.type": codec},
        bootstrap_servers=cluster,
        enable_idempotence=is_idempotent,
        batch_size=2000,
    ) as producer:
        receipts = [
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            for number in range(count)
        ]
    assert [each.offset for each in receipts] == [n // PARTITIONS for n in range(count)]
    assert read(cluster, "t", count) == {
        place: [b"%d" % number for number in range(place, count, PARTITIONS)]
        for place in range(PARTITIONS)
    }


def test_a_mock_cluster_takes_rows_and_an_event_loop(cluster: str) -> None:
    """Single records and rows of an AsyncProducer arrive once each."""

    async def run() -> int:
        async with AsyncProducer(bootstrap_servers=cluster) as producer:
            receipts = [producer.send("t", b"%d" % number) for number in range(3000)]
            summary = await producer.send_many("t", [b"%d" % n for n in range(3000, 90_000)])
            for each in receipts:
                await each
            return summary.acknowledged_count

    assert asyncio.run(run()) == 87_000
    found = read(cluster, "t", 90_000)
    assert sorted(int(value) for values in found.values() for value in values) == [*range(90_000)]


def change_mind(producer: Producer) -> None:
    """A transaction whose block raises."""
    with producer.transaction():
        producer.send("t", b"aborted").result()
        raise ZeroDivisionError


async def change_mind_later(producer: AsyncProducer) -> None:
    """A transaction whose block raises."""
    async with producer.transaction():
        await producer.send("t", b"aborted")
        raise ZeroDivisionError


def test_transactions_on_a_mock_cluster(cluster: str) -> None:
    """Transactions are committed with a group's offsets, aborted, and committed again."""
    with Producer(bootstrap_servers=cluster, transactional_id="mover") as producer:
        with producer.transaction():
            receipts = [producer.send("t", b"%d" % number) for number in range(100)]
            offsets = {TopicPartition("source", place): 10 + place for place in range(PARTITIONS)}
            producer.send_offsets_to_transaction(offsets, "group")
        assert all(each.done() and each.exception() is None for each in receipts)
        with pytest.raises(ZeroDivisionError):
            change_mind(producer)
        with producer.transaction():
            last = producer.send("t", b"last")
        assert last.done()


def test_transactions_of_an_event_loop_on_a_mock_cluster(cluster: str) -> None:
    """The transactions of an AsyncProducer are committed and aborted too."""

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=cluster, transactional_id="mover") as producer:
            for number in range(5):
                async with producer.transaction():
                    receipt = producer.send("t", b"%d" % number)
                    await producer.send_offsets_to_transaction(
                        {TopicPartition("source", 0): number}, "group"
                    )
                assert receipt.done()
            with pytest.raises(ZeroDivisionError):
                await change_mind_later(producer)

    asyncio.run(run())


# -- TLS ----------------------------------------------------------------------------------------


class TlsProxy:
    """Speaks TLS with clients and passes what they say to a broker."""

    def __init__(self, directory: Path) -> None:
        certificate, key = directory / "broker.pem", directory / "broker.key"
        certificate.write_text(BROKER)
        key.write_text(BROKER_KEY)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.broker = "{}:{}".format(*free.getsockname())
            """Address on which the broker is to listen."""
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=context)
        )
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task]))
        self._loop.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.broker.rpartition(":")
        back_reader, back_writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass(reader, back_writer))
                tasks.create_task(_pass(back_reader, writer))
        finally:
            for each in (writer, back_writer):
                each.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends, and then end the other."""
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()


@contextmanager
def serving_tls(directory: Path) -> Iterator[str]:
    """The TLS address of a broker, which tells clients of that one only."""
    proxy = TlsProxy(directory)
    try:
        options = "--listen", proxy.broker, "--advertise", proxy.address
        with serving(directory / "data", *options):
            yield proxy.address
    finally:
        proxy.close()


def trusting(directory: Path, certificates: Sequence[str]) -> str:
    """A file with the authorities that a client trusts."""
    path = directory / "trusted.pem"
    path.write_text("".join(certificates))
    return str(path)


def test_records_go_through_tls(tmp_path: Path) -> None:
    """Both producers write through TLS what others read from the broker."""
    trusted = trusting(tmp_path, [BROKER])

    async def send(address: str) -> None:
        async with AsyncProducer(
            bootstrap_servers=address, security_protocol="SSL", ssl_truststore_location=trusted
        ) as producer:
            for number in range(1000, 2000):
                producer.send("t", b"%d" % number * 100)

    with serving_tls(tmp_path) as address:
        with Producer(
            bootstrap_servers=address, security_protocol="SSL", ssl_truststore_location=trusted
        ) as producer:
            for number in range(1000):
                producer.send("t", b"%d" % number * 100)
        asyncio.run(send(address))
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "none",
                "security.protocol": "SSL",
                "ssl.ca.location": trusted,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        while len(found) < 2000:
            for message in consumer.consume(1000, 1):
                assert message.error() is None, message.error()
                found.append(message.value())
        consumer.close()
    assert found == [b"%d" % number * 100 for number in range(2000)]


def test_a_stranger_is_not_trusted(tmp_path: Path) -> None:
    """A broker whose certificate nobody vouches for gets no records, and the error says why."""
    trusted = trusting(tmp_path, [STRANGER])
    with (
        serving_tls(tmp_path) as address,
        Producer(
            bootstrap_servers=address,
            security_protocol="SSL",
            ssl_truststore_location=trusted,
            max_block_ms=500,
        ) as producer,
    ):
        error = producer.send("t", b"secret").exception()
    assert error is not None
    assert "certificate" in str(error)


def test_plain_text_to_a_tls_port_says_so(tmp_path: Path) -> None:
    """The error of a record names the broker that does not answer as a plain one does."""
    with (
        serving_tls(tmp_path) as address,
        Producer(bootstrap_servers=address, max_block_ms=500) as producer,
    ):
        error = producer.send("t", b"x").exception()
    assert isinstance(error, MetadataTimeoutError)
    assert address in str(error)
