"""Clients of all makers and an encrypted listener of ours, on real sockets."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from tailrace import Admin, AsyncProducer, Consumer, Producer
from tailrace.testing import TestBroker
from tests.unit.security.parties import authority, party

COUNT = 2000
VALUES = [b"%d" % number * 200 for number in range(COUNT)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of an authority, and of a broker and a client that it has signed."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ca.pem").write_text(authority().certificate)
    for each in ("broker", "client"):
        who = party(each)
        (folder / f"{each}.pem").write_text(who.certificate + who.key)
        (folder / f"{each}.crt").write_text(who.certificate)
        (folder / f"{each}.key").write_text(who.key)
    return folder


@pytest.fixture(scope="module")
def broker(files: Path) -> Iterator[TestBroker]:
    """A broker that asks clients for certificates."""
    with TestBroker(
        settings={
            "listener.security.protocol.map": "PLAINTEXT:SSL",
            "ssl.keystore.location": str(files / "broker.pem"),
            "ssl.truststore.location": str(files / "ca.pem"),
            "ssl.client.auth": "required",
        }
    ) as running:
        yield running


def ours(broker: TestBroker, files: Path) -> dict[str, str]:
    """The settings of Tailrace's clients."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.keystore.location": str(files / "client.pem"),
    }


def librdkafka(broker: TestBroker, files: Path) -> dict[str, str]:
    """The settings of confluent-kafka."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(files / "ca.pem"),
        "ssl.certificate.location": str(files / "client.crt"),
        "ssl.key.location": str(files / "client.key"),
    }


def test_our_clients_write_and_read(broker: TestBroker, files: Path) -> None:
    """Both producers and a consumer in a group, with certificates."""
    settings = ours(broker, files)
    broker.create_topic("ours")

    async def send() -> None:
        async with AsyncProducer(settings) as producer:
            for value in VALUES[1000:]:
                producer.send("ours", value)

    with Producer(settings) as producer:
        for value in VALUES[:1000]:
            producer.send("ours", value)
    asyncio.run(send())
    assert broker.log("ours").values() == VALUES
    found: list[bytes | None] = []
    with Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["ours"])
        while len(found) < COUNT:
            found += [each.value for each in consumer.poll(1)]
    assert found == VALUES
    with Admin(settings) as admin:
        assert "ours" in [each.name for each in admin.list_topics()]


def test_confluent_kafka_writes_and_reads(broker: TestBroker, files: Path) -> None:
    """librdkafka, whose OpenSSL is another build than Python's."""
    broker.create_topic("confluent")
    producer = confluent_kafka.Producer(librdkafka(broker, files))
    for value in VALUES:
        producer.produce("confluent", value)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**librdkafka(broker, files), "group.id": "c"})
    consumer.assign([confluent_kafka.TopicPartition("confluent", 0, 0)])
    found: list[bytes] = []
    while len(found) < COUNT:
        for message in consumer.consume(1000, 1):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    assert found == VALUES


def test_aiokafka_writes(broker: TestBroker, files: Path) -> None:
    """A client on asyncio's own TLS."""
    broker.create_topic("aiokafka")

    async def main() -> None:
        context = ssl.create_default_context(cafile=str(files / "ca.pem"))
        context.load_cert_chain(files / "client.crt", files / "client.key")
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=context,
        )
        async with producer:
            for value in VALUES:
                await producer.send("aiokafka", value)
            await producer.flush()

    asyncio.run(main())
    assert broker.log("aiokafka").values() == VALUES


def test_a_client_without_certificate_gets_an_error(broker: TestBroker, files: Path) -> None:
    """Our client says that the connection is refused in the handshake, and asks nothing."""
    settings = ours(broker, files)
    del settings["ssl.keystore.location"]
    limits = {"default.api.timeout.ms": "3000", "request.timeout.ms": "2000"}
    with Admin({**settings, **limits}) as admin, pytest.raises(Exception, match="certificate"):
        admin.list_topics()
