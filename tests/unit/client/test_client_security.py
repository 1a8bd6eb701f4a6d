"""A reader that encrypts its connections and says who it is, against a stand-in broker."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tailrace.client import AuthenticationError, ClusterReader, UnreachableBrokerError
from tailrace.errors import ConfigError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.runtime.network import Socket
from tests.unit.client.nodes.stand_in import StandIn
from tests.unit.client.nodes.test_setup import PASSWORD, Gate
from tests.unit.client.nodes.test_tls import served
from tests.unit.client.reading import FLIGHTS, offsets_answer, reader, waiting_world
from tests.unit.security import certificates


def plain(socket: Socket) -> Socket:
    """A connection as it is."""
    return socket


def range_read(
    wrap: Callable[[Socket], Socket], *, mechanism: str | None, settings: Mapping[str, object]
) -> tuple[int, int]:
    """Return the range of `flights-0` that a reader gets from a broker with security."""
    with waiting_world() as (outside, network):
        broker = StandIn(outside, wrap=wrap)
        gate = None if mechanism is None else Gate(broker, mechanism)
        broker.rules[ApiKey.METADATA] = lambda asked: asked.answer(
            MetadataResponse(
                brokers=(
                    MetadataResponseBroker(node_id=1, host="broker", port=broker.listener.port),
                ),
                topics=(
                    MetadataResponseTopic(
                        name=FLIGHTS.topic,
                        partitions=(MetadataResponsePartition(partition_index=0, leader_id=1),),
                    ),
                ),
            )
        )
        broker.rules[ApiKey.LIST_OFFSETS] = lambda asked: asked.answer(offsets_answer(7))
        client = reader(outside, network, f"broker:{broker.listener.port}", settings=settings)
        try:
            found = client.log_range(FLIGHTS)
        finally:
            client.close()
        assert gate is None or gate.logins == 1
        return found


def trusting(tmp_path: Path) -> dict[str, object]:
    """Settings of a client that trusts BROKER."""
    truststore = tmp_path / "trusted.pem"
    truststore.write_text(certificates.BROKER)
    return {"security.protocol": "SSL", "ssl.truststore.location": truststore}


def as_user(mechanism: str, password: str = PASSWORD) -> dict[str, object]:
    """Settings of a client that logs in."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "user",
        "sasl.password": password,
    }


def test_a_reader_asks_over_tls(tmp_path: Path) -> None:
    """With the broker's authority in the truststore, the records are read."""
    found = range_read(served(tmp_path), mechanism=None, settings=trusting(tmp_path))
    assert found == (7, 7)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_reader_logs_in(mechanism: str) -> None:
    """A reader with the right password may read."""
    assert range_read(plain, mechanism=mechanism, settings=as_user(mechanism)) == (7, 7)


def test_a_reader_logs_in_over_tls(tmp_path: Path) -> None:
    """A reader can use TLS and a login at once."""
    settings = as_user("SCRAM-SHA-512") | trusting(tmp_path) | {"security.protocol": "SASL_SSL"}
    assert range_read(served(tmp_path), mechanism="SCRAM-SHA-512", settings=settings) == (7, 7)


def test_a_wrong_password_is_told_at_once() -> None:
    """The error says which settings to look at, and that it is no use to try again."""
    with pytest.raises(AuthenticationError, match=r"wrong password; check sasl\.username"):
        range_read(plain, mechanism="PLAIN", settings=as_user("PLAIN", "guessed"))


def test_a_broker_that_is_not_trusted_is_told(tmp_path: Path) -> None:
    """The client sends no request to a broker whose certificate it does not trust."""
    with pytest.raises(AuthenticationError, match=r"check ssl\.truststore\.location"):
        range_read(served(tmp_path, who="STRANGER"), mechanism=None, settings=trusting(tmp_path))


def test_a_port_that_speaks_tls_is_told(tmp_path: Path) -> None:
    """Without security.protocol the error says that it may be missing."""
    with pytest.raises(UnreachableBrokerError, match=r"security\.protocol"):
        range_read(served(tmp_path), mechanism=None, settings={})


def test_files_that_cannot_be_read_are_told_before_anything_is_asked(tmp_path: Path) -> None:
    """A truststore that is not there is a fault of the settings."""
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        ClusterReader(
            "broker:1",
            settings={"security.protocol": "SSL", "ssl.truststore.location": tmp_path / "none"},
        )
