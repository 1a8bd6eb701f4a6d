"""Kafka's lists of listeners: which one is this broker's, and where clients are sent."""

import socket

import pytest

from tailrace.broker.listeners import ListenerNames, plan_addresses
from tailrace.testing import Outside
from tests.unit.broker.brokers import running

CONTROLLERS = "CONTROLLER"
MAP = ("CONTROLLER:PLAINTEXT", "INSIDE:PLAINTEXT", "OUTSIDE:SSL")


def planned(listeners: str, advertised: str = "") -> tuple[object, object, list[str]]:
    """Return the addresses to listen on, those for clients, and the faults."""
    faults: list[str] = []
    names = ListenerNames(controllers=(CONTROLLERS,), protocols=MAP)
    _, *addresses = plan_addresses(listeners, advertised, names=names, faults=faults)
    return *addresses, faults  # type: ignore[return-value]


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
    """Names do not matter but for those of controllers, whose listeners are left out."""
    assert planned(listeners) == (address, None, [])


@pytest.mark.parametrize(
    ("advertised", "address"),
    [
        ("", None),
        ("broker.example.com:9", ("broker.example.com", 9)),
        ("PLAINTEXT://a:1,CONTROLLER://a:2", ("a", 1)),
        ("INSIDE://b:2,PLAINTEXT://a:1", ("a", 1)),
        (":9", ("", 9)),
        ("PLAINTEXT://:0", ("", 0)),
    ],
)
def test_clients_are_sent_to_the_listener_of_that_name(
    advertised: str, address: tuple[str, int] | None
) -> None:
    """The advertised address with the name of the listener counts, where there are several."""
    assert planned("PLAINTEXT://:9092", advertised)[1:] == (address, [])


@pytest.mark.parametrize(
    ("listeners", "advertised", "told"),
    [
        ("SSL://:9092", "", "listeners: 'SSL://:9092' wants encryption or a login"),
        ("OUTSIDE://:9092", "", "wants encryption or a login; only PLAINTEXT"),
        ("THERE://:9092", "", "does not say what THERE is; add THERE:PLAINTEXT"),
        ("PLAINTEXT://:1,INSIDE://:2", "", "PLAINTEXT://:1, INSIDE://:2 are 2; keep one"),
        (
            "CONTROLLER://:9093",
            "",
            "no listener is for clients; add one, such as PLAINTEXT://:9092",
        ),
        ("PLAINTEXT://host", "", "'host' is not HOST:PORT"),
        ("PLAINTEXT://:1", "nowhere", "advertised.listeners: 'nowhere' is not HOST:PORT"),
        ("PLAINTEXT://:1", "0.0.0.0:9", "clients cannot connect to 0.0.0.0"),
        ("PLAINTEXT://:1", "PLAINTEXT://[::]:9", "or leave the host out, as in :9,"),
        ("PLAINTEXT://:1", "[0:0::0]:9", "clients cannot connect to 0:0::0"),
        ("PLAINTEXT://:1", "INSIDE://a:1,INSIDE://b:1", "which of INSIDE://a:1, INSIDE://b:1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(listeners: str, advertised: str, told: str) -> None:
    """The sentence has the setting, what was given, and what to give."""
    (fault,) = planned(listeners, advertised)[2]
    assert told in fault


async def test_without_a_host_clients_are_sent_to_the_name_of_the_machine(outside: Outside) -> None:
    """`PLAINTEXT://:9` means so to Kafka too."""
    async with running(outside, {"advertised.listeners": ":9"}) as broker:
        assert broker.bootstrap_servers == f"{socket.gethostname()}:9"
