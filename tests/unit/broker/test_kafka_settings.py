"""Every setting of Apache Kafka 4.3.1, by `kafka_settings.tsv`, held against ours.

A line of the file has: broker, topic, group, or dynamic for what can only be set while a broker
runs; the name, Kafka's type, public or internal, when it changes, and the default in quotes.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.broker.config import BROKER_SETTINGS, broker_config
from tailrace.client.admin.config import ADMIN_SETTINGS
from tailrace.client.consumer.config import CONSUMER_SETTINGS
from tailrace.client.producer.config import PRODUCER_SETTINGS
from tailrace.config.foreign import FOREIGN_OF_GROUPS, base_name, foreign_reason, foreign_settings
from tailrace.config.settings import is_secret_name
from tailrace.coordinator.groups.settings import GROUP_CONFIGS
from tailrace.errors import ConfigError
from tailrace.handlers.broker_configs import THROTTLES
from tailrace.schemas.config import REGISTRY_SETTINGS
from tailrace.storage.config import SMALL_SEGMENT, TOPIC_SETTINGS

FILE = Path(__file__).with_name("kafka_settings.tsv")
KINDS = {"boolean": "bool", "double": "float"}
"""Our words for types of Kafka's, where they differ."""


class KafkaSetting(NamedTuple):
    """A line of the file."""

    owner: str
    name: str
    type: str
    visibility: str
    mode: str
    default: str


with FILE.open(newline="") as lines:
    KAFKA = [
        KafkaSetting(*row) for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    ]
OBEYED = {each.name for each in BROKER_SETTINGS}


def of(owner: str) -> list[KafkaSetting]:
    """The settings of brokers, of topics or of groups."""
    return [each for each in KAFKA if each.owner == owner]


def test_every_setting_of_a_broker_is_obeyed_or_has_a_reason() -> None:
    """No name that Kafka has is unknown, and none is in both tables."""
    assert len(of("broker")) == 360
    for each in of("broker"):
        reason = foreign_reason(each.name)
        assert (each.name in OBEYED) != (reason is not None), each.name
        assert reason is None or reason.endswith("."), each.name


def test_what_has_no_effect_has_the_type_and_the_default_of_kafka() -> None:
    """DescribeConfigs shows both, and passes over what is internal to Kafka."""
    kafka = {each.name: each for each in of("broker")}
    for name, ours in foreign_settings().items():
        due = kafka.get(name)
        if due is None or due.visibility == "internal":
            assert (ours.kind, ours.default) == ("", None), name
        else:
            kind = due.type.lower()
            assert ours.kind == KINDS.get(kind, kind), name
            assert ours.default == (None if due.default == "null" else due.default[1:-1]), name


def test_every_setting_of_a_topic_is_obeyed() -> None:
    """Also the internal one, which tests of Kafka's give."""
    assert {each.name for each in of("topic")} == {
        each.name for each in (*TOPIC_SETTINGS, SMALL_SEGMENT)
    }


def test_every_setting_of_a_group_is_obeyed_or_has_a_reason() -> None:
    """A setting of share or streams groups is refused with it."""
    obeyed = {each.name for each in GROUP_CONFIGS}
    assert {each.name for each in of("group")} == obeyed | FOREIGN_OF_GROUPS.keys()
    assert not obeyed & FOREIGN_OF_GROUPS.keys()


def test_rates_that_exist_only_as_changes_are_known() -> None:
    """KIP-73: the two rates of copies between brokers, and that between directories."""
    assert {each.name for each in of("dynamic")} == THROTTLES.keys() | {
        "replica.alter.log.dirs.io.max.bytes.per.second"
    }


def test_passwords_of_kafka_are_secret_here() -> None:
    """A password of Kafka is declared as secret, or has the type that is never shown."""
    declared = {each.name: each for each in BROKER_SETTINGS}
    for each in of("broker"):
        if each.type == "PASSWORD":
            ours = declared.get(each.name)
            found = foreign_settings().get(each.name)
            is_hidden = found is not None and found.kind == "password"
            assert is_hidden or (ours is not None and ours.is_secret), each.name


def test_what_looks_like_a_secret_is_one() -> None:
    """No setting of a broker, of a client or of a registry is declared without `is_secret`."""
    declared = [
        *BROKER_SETTINGS, *PRODUCER_SETTINGS, *CONSUMER_SETTINGS, *ADMIN_SETTINGS,
        *REGISTRY_SETTINGS,
    ]  # fmt: skip
    secret = {each.name for each in declared if each.is_secret}
    assert {each.name for each in declared if is_secret_name(each.name)} <= secret
    assert {"basic.auth.user.info", "sasl.oauth.token", "sasl.password"} <= secret


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.inside.max.connections", "max.connections"),
        ("listener.name.inside.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.inside.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.plain.sasl.enabled.mechanisms", "sasl.enabled.mechanisms"),
        ("listener.names", "listener.names"),
        ("listener.name.inside", "listener.name.inside"),
        ("num.partitions", "num.partitions"),
    ],
)
def test_a_setting_of_a_listener_has_a_base(name: str, base: str) -> None:
    """The setting that it sets for one listener, with or without the mechanism that it is for."""
    assert base_name(name) == base


def test_settings_of_listeners_and_of_plugins_are_taken() -> None:
    """If the base is a setting of Kafka, it is noted that it has no effect."""
    names = [
        "listener.name.plaintext.ssl.keystore.location", "listener.name.x.num.network.threads",
        "listener.name.other.max.connections", "listener.name.plaintext.num.partitions",
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        "zookeeper.connect",
    ]  # fmt: skip
    config = broker_config({"log.dirs": "data"} | dict.fromkeys(names, "1"))
    assert sorted(config.ignored) == sorted(names)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("listener.name.plaintext.max.connection", "listener.name.plaintext.max.connections"),
        (
            "listener.name.inside.ssl.keystore.locaton",
            "listener.name.inside.ssl.keystore.location",
        ),
        ("listener.name.inside.plain.sasl.jass.config",
         "listener.name.inside.plain.sasl.jaas.config"),
        ("num.io.thread", "num.io.threads"),
        ("ssl.keystore.pasword", "ssl.keystore.password"),
    ],
)  # fmt: skip
def test_a_mistyped_name_gets_the_one_that_was_meant(name: str, hint: str) -> None:
    """Also one of a listener; its value, which may be a secret, is not in the error."""
    with pytest.raises(ConfigError) as raised:
        broker_config({"log.dirs": "data", name: "hunter2"})
    assert raised.value.faults == [f"{name}: no such setting; did you mean {hint}?"]
