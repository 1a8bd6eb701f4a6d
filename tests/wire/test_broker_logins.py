"""Real clients log in to a broker, and renew their sessions on the connection."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator

import aiokafka
import pytest
from confluent_kafka import Producer as ConfluentProducer

from tailrace import Broker, Producer
from tailrace.client.admin import Admin, ScramMechanism, ScramUpsertion
from tailrace.security.audit import AUDIT
from tests.wire.clients import TIMEOUT_S, kafka

pytestmark = pytest.mark.wire

SESSION_MS = 2000
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_alice="alice-secret";',
    "connections.max.reauth.ms": str(SESSION_MS),
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topic `t` and the user alice, who has the same password for all."""
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", settings=SETTINGS) as broker:
        at = broker.bootstrap_servers
        with Admin(
            bootstrap_servers=at, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
            sasl_username="alice", sasl_password="alice-secret",
        ) as admin:  # fmt: skip
            for mechanism in (ScramMechanism.SHA_256, ScramMechanism.SHA_512):
                upsertion = ScramUpsertion("alice", mechanism, "alice-secret")
                admin.alter_user_scram_credentials([upsertion]).results()
        yield at


def test_librdkafka_renews_its_sessions(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its producers, one for each mechanism, send through three sessions without an error."""
    errors: list[str] = []
    producers = {
        mechanism: ConfluentProducer(
            {
                "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism, "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "error_cb": lambda error: errors.append(str(error)),
            }
        )
        for mechanism in MECHANISMS
    }  # fmt: skip
    acknowledged: dict[str, list[int]] = {mechanism: [] for mechanism in MECHANISMS}
    with caplog.at_level(logging.DEBUG, AUDIT.name):
        deadline = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < deadline:
            for mechanism, producer in producers.items():
                offsets = acknowledged[mechanism]
                producer.produce(
                    "t", b"v", callback=lambda _, sent, to=offsets: to.append(sent.offset())
                )
                assert producer.flush(TIMEOUT_S) == 0
                producer.poll(0.02)
    assert errors == []
    assert all(offsets and offsets == sorted(offsets) for offsets in acknowledged.values())
    logins = [each.args for each in caplog.records if each.msg.startswith("login ")]
    # On the same connection, by its address and port.
    counts = Counter((each[0], each[2]) for each in logins if isinstance(each, tuple))
    renewed = {mechanism for (_, mechanism), count in counts.items() if count >= 3}
    assert renewed == set(MECHANISMS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_other_clients_log_in(bootstrap: str, mechanism: str) -> None:
    """Our producer, kafka-python and aiokafka send by each mechanism."""
    with Producer(
        {"sasl.mechanism": mechanism},
        bootstrap_servers=bootstrap, security_protocol="SASL_PLAINTEXT",
        sasl_username="alice", sasl_password="alice-secret",
    ) as ours:  # fmt: skip
        assert ours.send("t", b"v").result(TIMEOUT_S).offset >= 0
    login = {
        "bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism, "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }  # fmt: skip
    python = kafka.KafkaProducer(**login)
    assert python.send("t", b"v").get(TIMEOUT_S).offset >= 0
    python.close()

    async def send() -> int:
        async with aiokafka.AIOKafkaProducer(**login) as producer:
            return int((await producer.send_and_wait("t", b"v")).offset)

    assert asyncio.run(send()) >= 0
