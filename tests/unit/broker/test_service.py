"""The messages of a node to a service manager, in virtual time, on a real socket."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.broker.listeners import with_sockets
from tailrace.broker.monitoring.health import Health
from tailrace.broker.service import Service
from tailrace.errors import ConfigError
from tailrace.runtime.service_manager import open_service_manager
from tailrace.testing import Outside


def received(socket: socket.socket) -> Iterator[str]:
    """The datagrams that are there."""
    while True:
        try:
            yield socket.recv(1000).decode()
        except BlockingIOError:
            return


async def test_the_watchdog_is_fed_while_loop_and_threads_make_progress(
    outside: Outside, tmp_path: Path
) -> None:
    """At half of its time; no more when no thread ends its work. A status is sent if it changed."""
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(variables["NOTIFY_SOCKET"])
        receiving.settimeout(0)
        health = Health()
        with closing(Service(open_service_manager(variables), health, outside.threads)) as service:
            service.start()
            await outside.pass_time(35)
            assert [*received(receiving)] == ["STATUS=it starts", *["WATCHDOG=1"] * 4]
            health.waits_for = lambda: "it recovers its logs: 3 of 40 are open"
            await outside.pass_time(4)
            health.serves()
            outside.threads.seconds_per_run = 1000.0
            await outside.pass_time(900)
            assert [*received(receiving)] == [
                "STATUS=it recovers its logs: 3 of 40 are open",
                "STATUS=it serves",
            ]
            outside.threads.seconds_per_run = 0.0
            await outside.pass_time(200)
            assert "WATCHDOG=1" in received(receiving)


def test_listeners_take_sockets_that_are_open_by_their_names() -> None:
    """In any case of letters; port 0 is the socket's, and a listener without one stays."""
    given = {"listeners": "INSIDE://10.0.0.1:0,OUTSIDE://:9094"}
    assert with_sockets(given, {"inside": ("::", 9092)}) == {
        "listeners": "INSIDE://[::]:9092,OUTSIDE://:9094"
    }
    assert with_sockets({}, {"PLAINTEXT": ("127.0.0.1", 9092)}) == {
        "listeners": "PLAINTEXT://127.0.0.1:9092"
    }
    assert with_sockets(given, {}) == given


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "tailrace.socket",
            "there is no tailrace.socket, for which the service manager has opened",
        ),
        ("outside", "OUTSIDE://:9094 has another port than the socket .* for it, 9092"),
    ],
)
def test_a_socket_for_no_listener_is_one_sentence(name: str, words: str) -> None:
    """It says what to correct in the socket unit."""
    given = {"listeners": "INSIDE://:9092,OUTSIDE://:9094"}
    with pytest.raises(ConfigError, match=words) as caught:
        with_sockets(given, {name: ("0.0.0.0", 9092)})
    assert len(caught.value.faults) == 1
