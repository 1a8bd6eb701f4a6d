"""Kafka's lists of listeners: which are this broker's, and where clients of each are sent."""

import socket

import pytest

from tailrace.broker.config import BrokerConfig, broker_config
from tailrace.errors import ConfigError
from tailrace.testing import Outside
from tests.unit.broker.brokers import running

MAP = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SAFE:SSL,"
    "LOGIN:SASL_SSL"
)
NAMED = {"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": MAP}
SEVERAL = {
    **NAMED,
    "listeners": "INSIDE://:9092,OUTSIDE://one:9094,CONTROLLER://:9093",
    "advertised.listeners": "OUTSIDE://example.com:19094,INSIDE://:9092",
    "inter.broker.listener.name": "INSIDE",
}
OF_A_CLUSTER = {
    **SEVERAL,
    "listeners": "INSIDE://:9092,OUTSIDE://one:9094",
    "process.roles": "broker",
    "controller.quorum.bootstrap.servers": "c:9093",
}


def configured(settings: dict[str, str]) -> BrokerConfig:
    return broker_config({"log.dirs": "data", **settings})


def faults_of(settings: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        configured(settings)
    return list(raised.value.faults)


@pytest.mark.parametrize(
    ("listeners", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("PLAINTEXT://:9092", ("0.0.0.0", 9092)),
        ("plaintext://[::1]:0", ("::1", 0)),
        ("PLAINTEXT://:9092,CONTROLLER://:9093", ("0.0.0.0", 9092)),
        ("controller://:9093 , INSIDE://host:1", ("host", 1)),
    ],
)
def test_a_broker_listens_on_its_listener(listeners: str, address: tuple[str, int]) -> None:
    """The name of a single one does not matter; listeners of controllers are left out."""
    [found] = configured({**NAMED, "listeners": listeners}).listeners
    assert (found.host, found.port, found.advertised) == (*address, None)
    assert found.is_advertised


def test_a_broker_listens_on_several_listeners() -> None:
    """Each has its port, and by its name an advertised address; one of them is for brokers."""
    config = configured(SEVERAL)
    inside, outside = config.listeners
    assert inside == ("INSIDE", "0.0.0.0", 9092, True, ("", 9092), "PLAINTEXT")
    assert outside == ("OUTSIDE", "one", 9094, True, ("example.com", 19094), "PLAINTEXT")
    assert config.inter_broker_listener == "INSIDE"
    assert configured(OF_A_CLUSTER).listeners == config.listeners


def test_a_listener_need_not_be_advertised() -> None:
    """A list of advertised ones may leave some out; without a list all are, as in Kafka."""
    inside, outside = configured({**SEVERAL, "advertised.listeners": "INSIDE://:9092"}).listeners
    assert (inside.is_advertised, outside.is_advertised) == (True, False)
    assert all(each.is_advertised for each in configured(SEVERAL).listeners)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"listeners": "INSIDE://:1"}, "INSIDE"),
        ({"listeners": "INSIDE://:1,PLAINTEXT://:2"}, "PLAINTEXT"),
        ({"listeners": "INSIDE://:1,PLAINTEXT://:2", "inter.broker.listener.name": "inside"},
         "INSIDE"),
        ({"listeners": "INSIDE://:1,PLAINTEXT://:2", "security.inter.broker.protocol": "PLAINTEXT"},
         "PLAINTEXT"),
    ],
)  # fmt: skip
def test_brokers_use_the_listener_that_is_named(settings: dict[str, str], name: str) -> None:
    """By its name or by its protocol; PLAINTEXT if neither is given, or the only one."""
    assert configured({**NAMED, **settings}).inter_broker_listener == name


@pytest.mark.parametrize(
    ("listeners", "advertised", "address"),
    [
        ("PLAINTEXT://:9092", "", None),
        ("PLAINTEXT://:9092", "broker.example.com:9", ("broker.example.com", 9)),
        ("PLAINTEXT://:9092", "PLAINTEXT://a:1,CONTROLLER://a:2", ("a", 1)),
        ("PLAINTEXT://:9092", ":9", ("", 9)),
        ("PLAINTEXT://:9092", "PLAINTEXT://:0", ("", 0)),
        ("INSIDE://:9092", "a:1", ("a", 1)),
    ],
)
def test_clients_are_sent_to_the_listener_of_that_name(
    listeners: str, advertised: str, address: tuple[str, int] | None
) -> None:
    """An advertised address without a name is that of the only listener."""
    given = {**NAMED, "listeners": listeners, "advertised.listeners": advertised}
    [found] = configured(given).listeners
    assert found.advertised == address


@pytest.mark.parametrize(
    "listeners",
    [
        "INSIDE://127.0.0.1:9092,PLAINTEXT://[::1]:9092",
        "INSIDE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    ],
)
def test_two_listeners_may_have_the_port_of_two_stacks(listeners: str) -> None:
    """One address of IPv4 and one of IPv6, as in Kafka; and each port 0 is another one."""
    assert len(configured({**NAMED, "listeners": listeners}).listeners) == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"listeners": "LOGIN://:9092"}, "gssapi.sasl.jaas.config: GSSAPI needs Krb5LoginModule"),
        (
            {"listeners": "SAFE://:9092", "listener.name.safe.ssl.client.auth": "maybe"},
            "ssl.client.auth: 'maybe' is not one of required, requested, none",
        ),
        ({"listeners": "THERE://:9092"}, "does not say what THERE is; add THERE:PLAINTEXT"),
        ({"listeners": "SSL://:9092"}, "does not say what SSL is; add SSL:PLAINTEXT"),
        ({"listeners": "CONTROLLER://:9093"}, "no listener is for clients; add one, such as"),
        ({"listeners": "PLAINTEXT://host"}, "'host' is not HOST:PORT"),
        ({"listeners": "INSIDE://:1,INSIDE://:2"}, "INSIDE://:1, INSIDE://:2 are all INSIDE"),
        (
            {"listeners": "INSIDE://a:1,PLAINTEXT://b:1"},
            "INSIDE://a:1, PLAINTEXT://b:1 have the same port",
        ),
        (
            {"listeners": "INSIDE://127.0.0.1:1,PLAINTEXT://127.0.0.2:1"},
            "have the same port; each needs its own",
        ),
        ({"listeners": "PLAINTEXT://:1,CONTROLLER://:1"}, "have the same port"),
        ({"advertised.listeners": "nowhere"}, "advertised.listeners: 'nowhere' is not HOST:PORT"),
        ({"advertised.listeners": "0.0.0.0:9"}, "clients cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://[::]:9"}, "or leave the host out, as in :9,"),
        ({"advertised.listeners": "[0:0::0]:9"}, "clients cannot connect to 0:0::0"),
        (
            {"advertised.listeners": "PLAINTEXT://b:1,INSIDE://a:1"},
            "INSIDE://a:1 is none of the listeners, which are PLAINTEXT://:9092",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:1"},
            "PLAINTEXT://a:1, PLAINTEXT://b:1 are all PLAINTEXT",
        ),
        ({"advertised.listeners": "CONTROLLER://a:1"}, "all of them are for controllers"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAIN"},
            "'PLAINTEXT:PLAIN' is not NAME:PROTOCOL with one of PLAINTEXT",
        ),
        (
            {"listener.security.protocol.map": f"{MAP},inside:SSL"},
            "listener.security.protocol.map: INSIDE is there twice",
        ),
        (
            {"listeners": "INSIDE://:1,OUTSIDE://:2"},
            "PLAINTEXT is none of the advertised listeners, which are INSIDE, OUTSIDE",
        ),
        (
            {"inter.broker.listener.name": "OUTSIDE"},
            "inter.broker.listener.name: OUTSIDE is none of the advertised listeners",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol: SSL is none of the advertised listeners",
        ),
        (
            {
                "security.inter.broker.protocol": "PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
            },
            "only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        (
            {"listener.name.plaintext.max.connections": "0"},
            "listener.name.plaintext.max.connections: '0' is not a number of 1 to",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(changes: dict[str, str], told: str) -> None:
    """The sentence has the setting, what was given, and what to give."""
    [fault] = faults_of({**NAMED, "listeners": "PLAINTEXT://:9092", **changes})
    assert told in fault


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"listeners": SEVERAL["listeners"]}, "CONTROLLER://:9093 is named in controller.listener"),
        ({"controller.listener.names": ""}, "it has the name of the controllers' listener"),
        ({"controller.listener.names": "C"}, "does not say what C is; add C:PLAINTEXT"),
        (
            {"controller.listener.names": "LOGIN"},
            "sasl.mechanism.controller.protocol is GSSAPI, so it has the login of this node",
        ),
        ({"inter.broker.listener.name": "CONTROLLER"}, "CONTROLLER is none of the advertised"),
    ],
)
def test_a_broker_of_a_cluster_has_no_listener_of_controllers(
    changes: dict[str, str], told: str
) -> None:
    """It only names the one by which they are reached, which has to be in plain text."""
    [fault] = faults_of({**OF_A_CLUSTER, **changes})
    assert told in fault


def test_the_limit_of_a_listener_counts_where_there_is_that_listener() -> None:
    """Others are passed over, as in Kafka; the limit of all is that of listeners without one."""
    given = {
        **SEVERAL,
        "listener.name.outside.max.connections": "5",
        "listener.name.nowhere.max.connections": "x",
    }
    config = configured(given)
    assert dict(config.connection_limits.of_listeners) == {"OUTSIDE": 5}
    assert config.connection_limits.preferred == "INSIDE"
    assert set(config.ignored) == {"listener.name.nowhere.max.connections"}
    assert configured({}).connection_limits.preferred == ""


async def test_without_a_host_clients_are_sent_to_the_name_of_the_machine(outside: Outside) -> None:
    """`PLAINTEXT://:9` means so to Kafka too."""
    async with running(outside, {"advertised.listeners": ":9"}) as broker:
        assert broker.bootstrap_servers == f"{socket.gethostname()}:9"
