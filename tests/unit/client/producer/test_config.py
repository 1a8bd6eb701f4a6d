"""Settings of a producer: Kafka's names, defaults and rules."""

import logging
from typing import Any

import pytest

from tailrace.client.producer.config import PRODUCER_SETTINGS, ProducerConfig, parse_producer_config
from tailrace.errors import ConfigError
from tailrace.model import Acks, Codec

INT32_MAX = 2147483647

KAFKA_DEFAULTS: dict[str, object] = {
    "acks": "all",
    "buffer.memory": 33554432,
    "client.id": "",
    "compression.gzip.level": -1,
    "compression.type": "none",
    "connections.max.idle.ms": 540000,
    "delivery.timeout.ms": 120000,
    "enable.idempotence": True,
    "linger.ms": 5,
    "max.block.ms": 60000,
    "max.in.flight.requests.per.connection": 5,
    "max.request.size": 1048576,
    "metadata.max.age.ms": 300000,
    "metadata.max.idle.ms": 300000,
    "metadata.recovery.strategy": "rebootstrap",
    "partitioner.adaptive.partitioning.enable": True,
    "partitioner.availability.timeout.ms": 0,
    "partitioner.ignore.keys": False,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30000,
    "retries": INT32_MAX,
    "retry.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "sasl.login.retry.backoff.max.ms": 10000,
    "sasl.login.retry.backoff.ms": 100,
    "sasl.oauthbearer.header.urlencode": False,
    "security.protocol": "PLAINTEXT",
    "socket.connection.setup.timeout.max.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.protocol": "TLSv1.3",
    "transaction.timeout.ms": 60000,
}
"""Defaults of Kafka 4 for the settings that both producers have, except `OURS`."""

OURS = {
    "batch.size",
    "bootstrap.servers",
    "compression.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "https.ca.location",
    "partitioner",
    "sasl.jaas.config",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.mechanism",
    "sasl.oauth.token",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "ssl.cipher.suites",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "statistics.interval.ms",
    "transactional.id",
}
"""Settings with another default, or without one in Kafka, or that Kafka does not have."""


def parsed(**given: object) -> ProducerConfig:
    """Settings with a broker; names as keywords."""
    return parse_producer_config({"bootstrap_servers": "b:1"} | given)


def faults(**given: object) -> list[str]:
    """Return the faults of settings."""
    with pytest.raises(ConfigError) as raised:
        parsed(**given)
    return list(raised.value.faults)


def test_defaults_are_kafkas() -> None:
    """Defaults are those of Kafka's own producer, except for the few named here."""
    defaults = {each.name: each.default for each in PRODUCER_SETTINGS}
    assert {name: each for name, each in defaults.items() if name not in OURS} == KAFKA_DEFAULTS
    assert set(defaults) >= OURS


def test_a_config_of_defaults_means_what_they_say() -> None:
    """Without settings a producer is idempotent, waits for all replicas and compresses nothing."""
    config = parsed()
    assert config.acks is Acks.ALL
    assert config.enable_idempotence
    assert config.compression_type is Codec.NONE
    assert config.compression_level is None
    assert config.transactional_id is None
    assert [tuple(each) for each in config.bootstrap_servers] == [("b", 1)]


@pytest.mark.parametrize(("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 18)])
def test_a_level_must_be_one_of_the_codec(codec: str, level: int) -> None:
    """A level that another codec has, and this one has not, is a fault before anything is sent."""
    [fault] = faults(compression_type=codec, compression_level=level)
    assert fault.startswith(f"compression.level: {level} is no level of {codec} (1 to ")


@pytest.mark.parametrize("name", ["linger.ms", "linger_ms"])
@pytest.mark.parametrize("value", [7, "7"])
def test_names_have_dots_or_underscores_and_values_are_text_or_not(
    name: str, value: object
) -> None:
    """A setting is the same however it is written."""
    assert parsed(**{name: value}).linger_ms == 7


def test_none_leaves_a_setting_alone() -> None:
    """A setting that is None has its default."""
    assert parsed(linger_ms=None).linger_ms == 5


@pytest.mark.parametrize("value", ["a:1,b:2", ["a:1", "b:2"], ("a:1", "b:2")])
def test_servers_come_as_a_list_or_with_commas(value: object) -> None:
    """All servers are taken, in their order."""
    config = parse_producer_config({"bootstrap.servers": value})
    assert [tuple(each) for each in config.bootstrap_servers] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("value", ["", "b", "b:", "b:x", "b:70000", ":", ",", "b:1,,c"])
def test_servers_that_are_none_are_refused(value: str) -> None:
    """The fault names the setting as Kafka does."""
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers"):
        parse_producer_config({"bootstrap.servers": value})


@pytest.mark.parametrize(
    ("given", "expected"),
    [("all", Acks.ALL), ("-1", Acks.ALL), (-1, Acks.ALL), ("1", Acks.LEADER), (0, Acks.NONE)],
)
def test_acks_are_words_or_numbers(given: object, expected: Acks) -> None:
    """All ways to say how many must have a batch are understood."""
    assert parsed(acks=given, enable_idempotence=False).acks is expected


IN_THE_WAY: list[tuple[dict[str, Any], str]] = [
    ({"acks": "1"}, "acks must be all"),
    ({"acks": 0}, "acks must be all"),
    ({"retries": 0}, "retries must not be 0"),
    ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
]


@pytest.mark.parametrize(("given", "said"), IN_THE_WAY, ids=str)
def test_idempotence_that_was_asked_for_is_never_given_up(given: dict[str, Any], said: str) -> None:
    """With enable.idempotence, or a transactional.id, what contradicts it is a fault."""
    for asked in ({"enable_idempotence": True}, {"transactional_id": "x"}):
        (fault,) = faults(**given, **asked)
        assert fault.startswith("enable.idempotence")
        assert said in fault


@pytest.mark.parametrize(("given", "said"), IN_THE_WAY, ids=str)
def test_idempotence_by_default_gives_way_and_says_so(
    given: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Contradicting settings turn the default off, with a warning about the consequences."""
    with caplog.at_level(logging.WARNING):
        assert not parsed(**given).enable_idempotence
    (record,) = caplog.records
    assert "twice or out of order" in record.getMessage()
    assert said.replace("must", "would have to") in record.getMessage()


def test_without_idempotence_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """With enable.idempotence=false given, there is no warning."""
    config = parsed(acks=1, enable_idempotence=False, max_in_flight_requests_per_connection=100)
    assert (config.enable_idempotence, caplog.records) == (False, [])


def test_transactions_need_idempotence() -> None:
    """A transactional.id without idempotence is a fault."""
    (fault,) = faults(transactional_id="x", enable_idempotence=False)
    assert fault.startswith("transactional.id")


def test_the_delivery_timeout_has_room_for_a_request() -> None:
    """Too short a delivery.timeout.ms is a fault if it was given, and else made long enough."""
    (fault,) = faults(delivery_timeout_ms=30_004)
    assert fault.startswith("delivery.timeout.ms")
    assert "30005" in fault
    assert parsed(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005
    assert parsed(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    assert parsed(linger_ms=100_000).delivery_timeout_ms == 130_000
    assert parsed(linger_ms=1 << 60).delivery_timeout_ms == INT32_MAX


def test_every_fault_is_told_at_once() -> None:
    """All faults come in one error, each with its setting's name."""
    found = faults(linger_ms="soon", acks="2", retries=-1, lingerms=1)
    assert len(found) == 4
    for name in ("linger.ms", "acks", "retries", "lingerms"):
        assert any(name in each for each in found)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("lingerms", "linger.ms"), ("bootstrap_server", "bootstrap.servers"), ("ack", "acks")],
)
def test_an_unknown_name_brings_the_one_that_was_meant(given: str, meant: str) -> None:
    """A name that is nearly one says which."""
    (fault,) = faults(**{given: "1"})
    assert given.replace("_", ".") in fault
    assert meant in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch.size", -1),
        ("buffer.memory", -1),
        ("max.block.ms", "-1"),
        ("metadata.max.idle.ms", 4999),
        ("max.in.flight.requests.per.connection", 0),
        ("retries", INT32_MAX + 1),
        ("compression.type", "brotli"),
        ("security.protocol", "TLS"),
        ("enable.idempotence", "maybe"),
        ("transaction.timeout.ms", 0),
        ("linger.ms", -0.5),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: object) -> None:
    """The fault names the setting."""
    (fault,) = faults(**{name: value})
    assert fault.startswith(name)


def test_a_batch_has_room_for_a_byte() -> None:
    """With batch.size=0 each record gets a batch of its own, as in Kafka."""
    assert parsed(batch_size=0).batch_size == 1


def test_a_user_needs_a_name() -> None:
    """SASL without a user is a fault."""
    (fault,) = faults(security_protocol="SASL_SSL")
    assert fault.startswith("sasl.username")


def test_producers_have_names_of_their_own() -> None:
    """Without client.id producers are numbered, and one with transactions is named after them."""
    first, second = parsed().client_id, parsed().client_id
    assert first.startswith("producer-")
    assert first != second
    assert parsed(transactional_id="orders").client_id == "producer-orders"
    assert parsed(client_id="mine").client_id == "mine"


def test_passwords_are_never_shown() -> None:
    """Neither the settings' repr nor a fault has a password in it."""
    secret = "open-sesame"
    shown = repr(parsed(sasl_password=secret, ssl_key_password=secret, client_id="mine"))
    assert secret not in shown
    assert shown.count("***") == 2
    assert "client_id='mine'" in shown
    for each in faults(sasl_password=secret, sasl_pasword=secret, linger_ms="soon"):
        assert secret not in each


def test_settings_do_not_change() -> None:
    """A config is frozen."""
    with pytest.raises(AttributeError):
        parsed().linger_ms = 1  # type: ignore[misc]
