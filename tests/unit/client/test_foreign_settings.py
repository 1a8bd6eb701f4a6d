"""Tests that settings of other Kafka clients are refused with their names here."""

import inspect
from collections.abc import Callable

import pytest

from tailrace.client.admin.config import ADMIN_SETTINGS, parse_admin_config
from tailrace.client.config import CLIENT_SETTINGS, parse_bootstrap, parse_client_config
from tailrace.client.consumer.config import CONSUMER_SETTINGS, parse_consumer_config
from tailrace.client.consumer.consumer import Consumer
from tailrace.client.foreign import FOREIGN_NAMES, Client, foreign_hints
from tailrace.client.producer.config import PRODUCER_SETTINGS, parse_producer_config
from tailrace.client.producer.producer import Producer
from tailrace.errors import ConfigError
from tests.wire.librdkafka import librdkafka_defaults

SETTINGS = {
    Client.PRODUCER: PRODUCER_SETTINGS,
    Client.CONSUMER: CONSUMER_SETTINGS,
    Client.ADMIN: ADMIN_SETTINGS,
    Client.READER: CLIENT_SETTINGS,
}
OURS = {client: {each.name for each in declared} for client, declared in SETTINGS.items()}
ALL_OURS = set().union(*OURS.values())
ARGUMENTS = {*inspect.signature(Producer).parameters, *inspect.signature(Consumer).parameters}
PARSERS = {
    Client.PRODUCER: parse_producer_config,
    Client.CONSUMER: parse_consumer_config,
    Client.ADMIN: parse_admin_config,
}


def fault_of(name: str, client: Client = Client.PRODUCER, value: object = "1") -> str:
    """Return the fault that a setting of that name causes."""
    with pytest.raises(ConfigError) as caught:
        PARSERS[client]({"bootstrap.servers": "localhost:9092", name: value})
    (fault,) = caught.value.faults
    return fault


def names_of_aiokafka(client: Client) -> set[str]:
    """The parameters of its client of that kind."""
    pytest.importorskip("aiokafka")
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient

    theirs = {
        Client.PRODUCER: AIOKafkaProducer,
        Client.CONSUMER: AIOKafkaConsumer,
        Client.ADMIN: AIOKafkaAdminClient,
    }
    names = set(inspect.signature(theirs[client]).parameters)
    return {each.replace("_", ".") for each in names}


def names_of_kafka_python(client: Client) -> set[str]:
    """The settings of its client of that kind."""
    kafka = pytest.importorskip("kafka")
    theirs = {
        Client.PRODUCER: kafka.KafkaProducer,
        Client.CONSUMER: kafka.KafkaConsumer,
        Client.ADMIN: kafka.KafkaAdminClient,
    }
    return {each.replace("_", ".") for each in theirs[client].DEFAULT_CONFIG}


def names_of_librdkafka(_: Client) -> set[str]:
    """The settings of the library in the package of confluent-kafka that have a value."""
    return {each.replace("_", ".") for each in librdkafka_defaults()}


@pytest.mark.parametrize(
    "names_of", [names_of_aiokafka, names_of_kafka_python, names_of_librdkafka]
)
@pytest.mark.parametrize("client", PARSERS)
def test_every_setting_of_another_client_is_taken_or_explained(
    client: Client, names_of: Callable[[Client], set[str]]
) -> None:
    """Each of its names is one of ours, or the error says which it is or that there is none."""
    unexplained = {
        name for name in names_of(client) - OURS[client] if "; it " not in fault_of(name, client)
    }
    assert not unexplained


@pytest.mark.parametrize("client", Client)
def test_a_hint_names_what_there_is(client: Client) -> None:
    """Each hint names an existing setting or argument, or whose it is, or why there is none."""
    for name, hint in foreign_hints(client, FOREIGN_NAMES - OURS[client]).items():
        if hint.startswith(("it has no counterpart: ", "it is a setting of ")):
            continue
        meant = hint.removeprefix("it is ").removeprefix("the argument ").partition(" here")[0]
        assert meant in ALL_OURS | ARGUMENTS, name


@pytest.mark.parametrize(
    ("client", "name", "value", "meant"),
    [
        (Client.CONSUMER, "value.deserializer", len, "it is the argument value_deserializer here"),
        (Client.CONSUMER, "consumer_timeout_ms", 1000, "poll(timeout) returns an empty list"),
        (Client.CONSUMER, "on_commit", print, "commit() returns when the offsets are stored"),
        (Client.CONSUMER, "rebalance_timeout_ms", 1, "it is max.poll.interval.ms here"),
        (Client.CONSUMER, "fetch.wait.max.ms", 1, "it is fetch.max.wait.ms here"),
        (Client.CONSUMER, "metric.reporters", "", "metrics() returns the numbers"),
        (Client.CONSUMER, "stats_cb", print, "it is the argument on_metrics here"),
        (Client.ADMIN, "statistics.interval.ms", 1, "a setting of producers and consumers"),
        (Client.CONSUMER, "queue.buffering.max.ms", 5, "it is linger.ms here, a setting of prod"),
        (Client.CONSUMER, "acks", "all", "it is a setting of producers"),
        (Client.CONSUMER, "retries", 3, "it is a setting of producers and admin clients"),
        (Client.CONSUMER, "key_serializer", len, "it is a setting of producers"),
        (Client.CONSUMER, "error_cb", print, "poll() raises errors"),
        (Client.PRODUCER, "error_cb", print, "errors are those of receipts"),
        (Client.PRODUCER, "group.id", "g", "it is a setting of consumers"),
        (Client.PRODUCER, "max_partition_fetch_bytes", 1, "it is a setting of consumers"),
        (Client.PRODUCER, "enable.auto.offset.store", False, "it is a setting of consumers"),
        (Client.PRODUCER, "ssl_context", object(), "certificates in PEM or PKCS12"),
        (Client.ADMIN, "group_id", "g", "it is a setting of consumers"),
        (Client.ADMIN, "linger.ms", 5, "it is a setting of producers"),
    ],
)
def test_a_client_says_what_to_do_with_a_setting_of_another(
    client: Client, name: str, value: object, meant: str
) -> None:
    """The hint is for this kind of client, in both manners of names, also for a function."""
    assert meant in fault_of(name, client, value)
    assert meant in fault_of(name.replace("_", "."), client, value)


def test_a_topic_in_place_of_settings_leads_to_subscribe() -> None:
    """`Consumer("flights")`, as in kafka-python and aiokafka, says how to read a topic here."""
    with pytest.raises(TypeError, match=r"read a topic by subscribe\('flights'\)"):
        Consumer("flights")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("message.timeout.ms", "delivery.timeout.ms"),
        ("ssl.ca.location", "ssl.truststore.location"),
        ("ssl_cafile", "ssl.truststore.location"),
        ("sasl_plain_username", "sasl.username"),
        ("queue.buffering.max.messages", "buffer.memory"),
        ("key.serializer", "key_serializer"),
        ("linger.sm", "linger.ms"),
    ],
)
def test_a_foreign_name_leads_to_ours(name: str, meant: str) -> None:
    """Names that look like another setting of ours are not taken for that one."""
    assert meant in fault_of(name)


def test_readers_are_told_too() -> None:
    """A client that only reads gives the same hints as a producer."""
    with pytest.raises(ConfigError, match=r"it is ssl\.truststore\.location here"):
        parse_client_config({"bootstrap.servers": "localhost:9092", "ssl_cafile": "ca.pem"})


def test_an_address_may_have_the_protocol_of_the_client() -> None:
    """`PLAINTEXT://host:9092` is host:9092 where that is the protocol."""
    config = parse_producer_config({"bootstrap.servers": "PLAINTEXT://a:1,b:2,PLAINTEXT://[::1]:3"})
    assert config.bootstrap_servers == (("a", 1), ("b", 2), ("::1", 3))


def test_an_address_with_another_protocol_is_refused() -> None:
    """It says which of the two settings contradict each other."""
    with pytest.raises(ConfigError, match=r"is SSL, and security\.protocol is PLAINTEXT"):
        parse_producer_config({"bootstrap.servers": "SSL://a:1"})
    with pytest.raises(ConfigError, match="names the listener INTERNAL; give a:1"):
        parse_producer_config({"bootstrap.servers": "INTERNAL://a:1"})
    with pytest.raises(ConfigError, match="names the listener SSL; give a:1"):
        parse_bootstrap("SSL://a:1")
