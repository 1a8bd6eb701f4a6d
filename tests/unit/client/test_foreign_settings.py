"""Tests that settings of other Kafka clients are refused with their names here."""

import ctypes
import inspect
from pathlib import Path

import pytest

from tailrace.client.config import parse_bootstrap, parse_client_config
from tailrace.client.foreign import HINTS
from tailrace.client.producer.config import PRODUCER_SETTINGS, parse_producer_config
from tailrace.client.producer.producer import Producer
from tailrace.errors import ConfigError

OURS = {each.name for each in PRODUCER_SETTINGS}
ARGUMENTS = set(inspect.signature(Producer).parameters)


def fault_of(name: str) -> str:
    """Return the fault that a setting of that name causes."""
    with pytest.raises(ConfigError) as caught:
        parse_producer_config({"bootstrap.servers": "localhost:9092", name: "1"})
    (fault,) = caught.value.faults
    return fault


def names_of_aiokafka() -> set[str]:
    """The parameters of its producer."""
    aiokafka = pytest.importorskip("aiokafka")
    names = set(inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters)
    return {each.replace("_", ".") for each in names - {"self"}}


def names_of_kafka_python() -> set[str]:
    """The settings of its producer."""
    kafka = pytest.importorskip("kafka")
    return {each.replace("_", ".") for each in kafka.KafkaProducer.DEFAULT_CONFIG}


def names_of_librdkafka() -> set[str]:
    """The settings of the library in the package of confluent-kafka that have a value."""
    package = Path(pytest.importorskip("confluent_kafka").__file__).parent
    found = list(package.with_name("confluent_kafka.libs").glob("librdkafka*"))
    if not found:
        pytest.skip("this build of confluent-kafka has librdkafka elsewhere")
    library = ctypes.CDLL(str(found[0]))
    names: set[str] = set()
    for kind in ("rd_kafka_conf", "rd_kafka_topic_conf"):
        new, dump = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_dump")
        new.restype = ctypes.c_void_p
        dump.restype = ctypes.POINTER(ctypes.c_char_p)
        dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        count = ctypes.c_size_t()
        pairs = dump(new(), ctypes.byref(count))
        names |= {pairs[place].decode().replace("_", ".") for place in range(0, count.value, 2)}
    return names


@pytest.mark.parametrize(
    "names_of", [names_of_aiokafka, names_of_kafka_python, names_of_librdkafka]
)
def test_every_setting_of_another_client_is_taken_or_explained(names_of: object) -> None:
    """Each of its names is one of ours, or the error says which it is or that there is none."""
    assert callable(names_of)
    unexplained = {name for name in names_of() - OURS if "; it " not in fault_of(name)}
    assert not unexplained


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_names_what_there_is(name: str) -> None:
    """Every hint is for an unknown name, and names an existing setting or argument."""
    assert name not in OURS
    hint = HINTS[name]
    meant = hint.removeprefix("it is ").removeprefix("the argument ").removesuffix(" here")
    is_absent = hint.startswith("it has no counterpart: ")
    assert is_absent or meant in OURS | ARGUMENTS


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
