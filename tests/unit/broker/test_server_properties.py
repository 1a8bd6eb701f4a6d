"""A `server.properties` that was written for Apache Kafka: what is obeyed, ignored and refused."""

import re
from pathlib import Path

import pytest

from tailrace.broker.config import BROKER_SETTINGS, broker_config
from tailrace.broker.kraft.settings import RACK_AWARE
from tailrace.config import read_properties
from tailrace.errors import ConfigError
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER

COMBINED = """
# A node that is a broker and a controller, with the names of Kafka 4's own example.
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093

listeners=PLAINTEXT://:19092,CONTROLLER://:19093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://kafka.example.com:19092,CONTROLLER://kafka.example.com:19093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL

num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=1048576

log.dirs=/data/one,/data/two
num.partitions=3
num.recovery.threads.per.data.dir=2

offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

log.retention.hours=24
log.segment.bytes=1048576
log.retention.check.interval.ms=60000
"""

ZOOKEEPER = {"broker.id": "4", "zookeeper.connect": "localhost:2181", "log.dir": "/data"}


def test_a_file_of_kafka_is_obeyed_where_it_can_be() -> None:
    """Directories, addresses, the node's number and the rules of logs are taken as they are."""
    config = broker_config(read_properties(COMBINED))
    assert config.node_id == 7
    [listener] = config.listeners
    assert (listener.host, listener.port) == ("0.0.0.0", 19092)
    assert listener.advertised == ("kafka.example.com", 19092)
    assert config.directories == ("/data/one", "/data/two")
    assert config.topic_defaults.partition_count == 3
    assert config.topic_defaults.configs["retention.ms"] == str(24 * 3_600_000)
    assert config.frame_bytes_max == 1048576


def test_settings_without_effect_are_named() -> None:
    """Kafka's settings that this broker has not are noted, and reported as nothing it was given."""
    config = broker_config(read_properties(COMBINED))
    assert set(config.ignored) == {
        "num.network.threads", "num.io.threads", "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    }  # fmt: skip
    assert not set(config.ignored) & set(config.given)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("controller.quorum.voters", "7@a:1,8@b:1", "is not node 7 alone"),
        ("controller.quorum.voters", "8@b:1", "is not node 7 alone"),
    ],
)
def test_a_node_of_a_larger_quorum_is_refused(name: str, value: str, told: str) -> None:
    """It would make changes of the cluster that the others do not know of."""
    settings = {**read_properties(COMBINED), name: value}
    with pytest.raises(ConfigError, match=told):
        broker_config(settings)
    assert broker_config({**settings, name: ""}).node_id == 7


OF_A_CLUSTER = {
    "log.dirs": "data", "process.roles": "broker", "node.id": "7",
    "controller.quorum.bootstrap.servers": "one:9093,[::2]:9094", "broker.rack": "b",
    "inter.broker.listener.name": "INSIDE", "listeners": "INSIDE://:9092",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER", "default.replication.factor": "3",
}  # fmt: skip


def test_a_broker_of_a_cluster_names_its_controllers() -> None:
    """By addresses or as voters; what concerns other brokers has an effect with this role alone."""
    config = broker_config(OF_A_CLUSTER)
    assert config.has_controllers
    assert config.controllers == ((-1, "one", 9093), (-2, "::2", 9094))
    assert (config.inter_broker_listener, config.lifecycle.rack) == ("INSIDE", "b")
    assert config.ignored == {}
    assert config.topic_defaults.replication_factor == 3
    named = broker_config(OF_A_CLUSTER | {"controller.quorum.voters": "1@one:9093"})
    assert named.controllers[0] == (1, "one", 9093)
    alone = broker_config(
        OF_A_CLUSTER | {"process.roles": "broker,controller", "default.replication.factor": "1"}
    )
    assert not alone.has_controllers
    assert alone.controllers == ()
    assert set(alone.ignored) == {"controller.quorum.bootstrap.servers", "broker.rack"}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("controller.quorum.bootstrap.servers", "", "names the controllers, as HOST:PORT"),
        (
            "controller.quorum.bootstrap.servers",
            "one",
            "'one' is not allowed; it must be HOST:PORT",
        ),
        ("controller.quorum.voters", "one:9093", "'one:9093' is not ID@HOST:PORT"),
        ("controller.quorum.voters", "7@one:9093", "node.id 7 is none of the voters"),
        ("inter.broker.listener.name", "OUTSIDE", "OUTSIDE is none of the advertised listeners"),
        ("controller.listener.names", "", "it has the name of the controllers' listener"),
    ],
)
def test_a_broker_that_cannot_reach_its_cluster_is_told(name: str, value: str, told: str) -> None:
    """Each is one sentence that names the setting."""
    with pytest.raises(ConfigError, match=re.escape(told)):
        broker_config(OF_A_CLUSTER | {name: value})


def test_a_file_from_the_time_of_zookeeper_is_taken() -> None:
    """`broker.id` is the node's number, and what is about ZooKeeper has no effect."""
    config = broker_config(ZOOKEEPER)
    assert (config.node_id, config.ignored) == (4, {"zookeeper.connect": "localhost:2181"})
    assert broker_config(ZOOKEEPER | {"node.id": "4"}).node_id == 4


def test_two_numbers_for_one_node_are_refused() -> None:
    """Kafka 4.3 does not start with them either; its sentence is in the error."""
    told = "You must set `node.id` to the same value as `broker.id`: they are 5 and 4"
    with pytest.raises(ConfigError, match=re.escape(told)):
        broker_config(ZOOKEEPER | {"node.id": "5"})
    with pytest.raises(ConfigError, match="same value"):
        broker_config({"log.dirs": "data", "broker.id": "1", "node.id": "0"})


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_either_number_of_a_node_is_the_other_too(name: str) -> None:
    """Whichever is given is the value of both, as in Kafka."""
    config = broker_config({"log.dirs": "data", name: "7"})
    assert (config.node_id, config.broker_id) == (7, 7)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("process.role", "broker", "process.role: no such setting; did you mean process.roles?"),
        ("num.partition", "3", "num.partition: no such setting; did you mean num.partitions?"),
        ("retention.ms", "3", "it is of a topic; for all topics it is log.retention.ms"),
        ("default.replication.factor", "3", "it must be 1, because this broker is the only one"),
        ("broker.id", "-1", "broker.id: -1 is out of range (0 to 2147483647)"),
        ("connections.max.idle.ms", "0", "it must be 1 or more, or negative"),
        ("authorizer.class.name", "A", "empty, or org.apache.kafka.metadata.authorizer.Standard"),
        ("super.users", "root", "principals such as User:admin, separated by semicolons"),
    ],
)
def test_what_would_mislead_is_refused_with_advice(name: str, value: str, told: str) -> None:
    """Names that Kafka does not know either, and values that promise what is not kept."""
    with pytest.raises(ConfigError) as raised:
        broker_config({"log.dirs": "data", name: value})
    (fault,) = raised.value.faults
    assert told in fault


def test_every_setting_of_the_broker_is_on_its_page() -> None:
    """A setting that the broker takes is in docs/configuration.md, also one of a coordinator."""
    page = Path("docs/configuration.md").read_text()
    assert [each.name for each in BROKER_SETTINGS if f"| `{each.name}` |" not in page] == []


def test_the_selector_of_replicas_is_the_leader_or_by_rack() -> None:
    """A class that only Java could load is refused, with the name of the one that there is.

    A broker alone ignores it, as all that concerns other brokers.
    """
    alone = {"log.dirs": "/data", "replica.selector.class": "org.example.Selector"}
    assert "replica.selector.class" in broker_config(alone).ignored
    one_of_many = {
        "log.dirs": "/data",
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "controller.listener.names": "CONTROLLER",
    }
    assert not broker_config(one_of_many).kraft.sends_to_nearest
    given = {**one_of_many, "replica.selector.class": RACK_AWARE}
    assert broker_config(given).kraft.sends_to_nearest
    with pytest.raises(ConfigError, match=RACK_AWARE):
        broker_config({**one_of_many, "replica.selector.class": "org.example.Selector"})


def test_spaces_around_values_count_for_nothing() -> None:
    """Files that people write have them, and rights may not depend on them."""
    given = {
        "log.dirs": "/data",
        "authorizer.class.name": f" {STANDARD_AUTHORIZER} ",
        "allow.everyone.if.no.acl.found": " true ",
    }
    config = broker_config(given)
    assert config.access.has_authorizer
    assert config.access.allows_without_acls


def test_super_users_are_separated_by_semicolons() -> None:
    """The names of certificates have commas and spaces; empty parts count for nothing."""
    given = {"log.dirs": "/data", "super.users": " User:admin ;; User:CN=a, O=b;"}
    assert broker_config(given).access.super_users == {"User:admin", "User:CN=a, O=b"}
    assert broker_config({"log.dirs": "/data"}).access.super_users == frozenset()
