"""Brokers of the test kit whose clients encrypt and log in, with the settings that they give."""

import asyncio

import aiokafka
import confluent_kafka
import pytest

from tailrace import Admin, Consumer, Producer
from tailrace.client.nodes import AuthenticationError
from tailrace.errors import TailraceError
from tailrace.testing import TestBroker, TestCluster
from tailrace.testing.secured import SecurityProtocol
from tests.unit.security.parties import authority
from tests.wire.clients import TIMEOUT_S, kafka

pytestmark = pytest.mark.wire

USERS = {"alice": 'a "quoted" \\ secret', "bob": "bob-secret"}


def exchanged(settings: dict[str, object]) -> list[bytes | None]:
    """Send a record with our producer, and read what is there with our consumer."""
    with Producer(settings) as producer:
        producer.send("t", b"v").result(TIMEOUT_S)
    reading = {**settings, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(reading) as consumer:
        consumer.subscribe(["t"])
        found: list[bytes | None] = []
        while not found:
            found = [each.value for each in consumer.poll(1)]
        return found


@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_of_all_makers_take_the_settings(security: SecurityProtocol) -> None:
    """Ours, librdkafka, kafka-python and aiokafka write with the settings as they are given."""
    with TestBroker(security=security) as broker:
        assert exchanged(broker.client_settings()) == [b"v"]
        producer = confluent_kafka.Producer(broker.client_settings("librdkafka"))
        producer.produce("t", b"librdkafka")
        assert producer.flush(TIMEOUT_S) == 0
        python = kafka.KafkaProducer(**broker.client_settings("python"))
        python.send("t", b"kafka-python").get(TIMEOUT_S)
        python.close()

        async def send() -> None:
            settings = broker.client_settings("python")
            async with aiokafka.AIOKafkaProducer(**settings) as of_asyncio:
                await of_asyncio.send_and_wait("t", b"aiokafka")

        asyncio.run(send())
        assert broker.log("t").values() == [b"v", b"librdkafka", b"kafka-python", b"aiokafka"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", USERS)
def test_every_user_logs_in_by_every_mechanism(mechanism: str, user: str) -> None:
    """Also one whose password has quotes, and after a kill and a restart."""
    with TestBroker(security="SASL_PLAINTEXT", users=USERS) as broker:
        settings = broker.client_settings(user=user, mechanism=mechanism)
        assert exchanged(settings) == [b"v"]
        broker.kill()
        broker.start()
        with Admin(settings) as admin:
            assert "t" in [each.name for each in admin.list_topics()]


def test_a_wrong_password_and_a_wrong_authority_are_refused() -> None:
    """A test of security settings can fail: a login, and the trust in a certificate."""
    with TestBroker(security="SASL_SSL", users=USERS) as broker:
        wrong = broker.client_settings(user="bob") | {
            "sasl.jaas.config": 'PlainLoginModule required username="bob" password="alice";'
        }
        with Producer(wrong) as producer, pytest.raises(AuthenticationError):
            producer.send("t", b"v").result(TIMEOUT_S)
        strange = broker.client_settings() | authority().truststore | {"max.block.ms": 2000}
        with Producer(strange) as producer, pytest.raises(TailraceError, match="certificate"):
            producer.send("t", b"v").result(TIMEOUT_S)
        with pytest.raises(ValueError, match="no user 'carol'; there are alice, bob"):
            broker.client_settings(user="carol")


def test_a_broker_that_asks_for_certificates_gives_one() -> None:
    """With ssl.client.auth the settings have a certificate; without it nobody is let in."""
    with TestBroker(security="SSL", ssl_client_auth="required") as broker:
        settings = broker.client_settings()
        assert exchanged(settings) == [b"v"]
        nameless = {
            name: text for name, text in settings.items() if not name.startswith("ssl.keystore")
        }
        with (
            Producer(nameless, max_block_ms=2000) as producer,
            pytest.raises(TailraceError),
        ):
            producer.send("t", b"v").result(TIMEOUT_S)


@pytest.mark.parametrize(
    ("security", "users", "said"),
    [("TLS", None, "it is one of PLAINTEXT, SSL"), ("SSL", {"a": "b"}, "nobody logs in")],
)
def test_security_that_there_is_not_is_refused(
    security: str, users: dict[str, str] | None, said: str
) -> None:
    """The error says which there are."""
    with pytest.raises(ValueError, match=said):
        TestBroker(security=security, users=users)  # type: ignore[arg-type]


@pytest.mark.parametrize("security", ["SSL", "SASL_SSL"])
def test_the_brokers_of_a_cluster_reach_each_other_likewise(security: SecurityProtocol) -> None:
    """Records are replicated over encrypted connections, and survive a leader."""
    with TestCluster(security=security) as cluster:
        cluster.create_topic("t", replicas=[[1, 2, 3]], configs={"min.insync.replicas": 2})
        settings = cluster.client_settings()
        with Producer(settings) as producer:
            producer.send("t", b"one").result(TIMEOUT_S)
            cluster.kill(1)
            producer.send("t", b"two").result(TIMEOUT_S)
        assert cluster.log("t").values() == [b"one", b"two"]
