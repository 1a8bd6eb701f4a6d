"""Real sockets without an event loop: connected, refused, read, written, and woken."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tailrace.runtime.network import Socket
from tailrace.runtime.polling import PollingNetwork

TIME_LIMIT_S = 20.0
"""Far more than anything here takes."""


@pytest.fixture
def network() -> Iterator[PollingNetwork]:
    """A network that is closed again."""
    network = PollingNetwork.open()
    yield network
    network.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """An open port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIME_LIMIT_S)
        yield server


def run_until(network: PollingNetwork, found: list[object]) -> None:
    """Turn until something was found."""
    for _ in range(1000):
        if found:
            return
        network.run(network.wait(TIME_LIMIT_S))
    raise AssertionError("nothing was found in a thousand turns")


def connected(network: PollingNetwork, listening: socket.socket) -> tuple[Socket, socket.socket]:
    """Both ends of a new connection."""
    found: list[Socket | OSError] = []
    network.connect("127.0.0.1", listening.getsockname()[1], found.append)
    assert found == []
    run_until(network, found)  # type: ignore[arg-type]
    (ours,) = found
    assert not isinstance(ours, OSError)
    return ours, listening.accept()[0]


def test_a_connection_carries_bytes_both_ways(
    network: PollingNetwork, listening: socket.socket
) -> None:
    """Bytes arrive in both directions, and the peer's close reads as 0."""
    ours, theirs = connected(network, listening)
    with theirs:
        assert ours.send([b"pi", b"ng"]) == 4
        assert theirs.recv(10) == b"ping"
        buffer = bytearray(10)
        assert ours.receive_into(memoryview(buffer)) is None
        news: list[object] = []
        ours.watch_reads(lambda: news.append("readable"))
        theirs.sendall(b"pong")
        run_until(network, news)
        assert ours.receive_into(memoryview(buffer)) == 4
        assert buffer[:4] == b"pong"
    news.clear()
    run_until(network, news)
    assert ours.receive_into(memoryview(buffer)) == 0
    ours.close()


def test_room_to_send_is_told_when_there_is_some(
    network: PollingNetwork, listening: socket.socket
) -> None:
    """A full connection says None, and calls back once the other side has read."""
    ours, theirs = connected(network, listening)
    with theirs:
        while ours.send([bytes(1 << 20)]) is not None:
            pass
        news: list[object] = []
        ours.watch_writes(lambda: news.append("writable"))
        assert network.wait(0) == []
        theirs.settimeout(TIME_LIMIT_S)
        while not news:
            theirs.recv(1 << 20)
            network.run(network.wait(0))
        ours.watch_writes(None)
        assert network.wait(0) == []
        ours.close()


def test_a_refused_connection_is_told(network: PollingNetwork, listening: socket.socket) -> None:
    """The callback gets the kernel's error if the port is closed."""
    port = listening.getsockname()[1]
    listening.close()
    found: list[object] = []
    network.connect("127.0.0.1", port, found.append)
    run_until(network, found)
    assert isinstance(found[0], ConnectionRefusedError)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300, "a\0b", ""])
def test_a_name_without_an_address_is_told(network: PollingNetwork, host: str) -> None:
    """A name that cannot be looked up, or cannot be one, is an error or the machine itself."""
    found: list[object] = []
    network.connect(host, 1, found.append)
    run_until(network, found)
    assert isinstance(found[0], OSError)


@pytest.mark.parametrize("port", [-1, 65_536, 1 << 40])
def test_a_port_that_cannot_be_is_told(network: PollingNetwork, port: int) -> None:
    """A number that no port has is an error like any other."""
    found: list[object] = []
    network.connect("127.0.0.1", port, found.append)
    run_until(network, found)
    assert isinstance(found[0], OSError)


@pytest.mark.parametrize("first", [0, 1])
def test_every_address_of_a_name_is_tried(
    network: PollingNetwork, listening: socket.socket, first: int
) -> None:
    """A name with several addresses leads to the one that listens, wherever the search begins."""
    found: list[object] = []
    network.connect("localhost", listening.getsockname()[1], found.append, first=first)
    run_until(network, found)
    assert not isinstance(found[0], OSError)
    found[0].close()  # type: ignore[attr-defined]


def test_an_attempt_that_was_ended_tells_nothing(
    network: PollingNetwork, listening: socket.socket
) -> None:
    """After cancel no outcome comes, before the look-up or after it."""
    found: list[object] = []
    port = listening.getsockname()[1]
    network.connect("127.0.0.1", port, found.append)()
    cancel = network.connect("127.0.0.1", port, found.append)
    network.run(network.wait(TIME_LIMIT_S))
    cancel()
    cancel()
    last: list[object] = []
    network.connect("127.0.0.1", port, last.append)
    run_until(network, last)
    assert found == []
    last[0].close()  # type: ignore[attr-defined]


def test_another_thread_wakes_the_one_that_waits(network: PollingNetwork) -> None:
    """A wait without limit ends each time another thread wakes it."""
    for _ in range(100):
        waker = threading.Thread(target=network.wake)
        waker.start()
        events = network.wait(TIME_LIMIT_S)
        assert events
        network.run(events)
        waker.join()
        assert network.wait(0) == []


def test_waking_before_the_wait_is_not_lost(network: PollingNetwork) -> None:
    """Any number of calls before a wait end that wait, and only that one."""
    for _ in range(3):
        network.wake()
    network.run(network.wait(TIME_LIMIT_S))
    assert network.wait(0) == []
    assert network.wait(-1) == []


def test_a_connection_closed_between_wait_and_run_does_no_harm(
    network: PollingNetwork, listening: socket.socket
) -> None:
    """An event of a connection that was closed before `run` calls no callback."""
    ours, theirs = connected(network, listening)
    with theirs:
        news: list[object] = []
        ours.watch_reads(lambda: news.append("readable"))
        theirs.sendall(b"x")
        events = network.wait(TIME_LIMIT_S)
        assert events
        ours.close()
        network.run(events)
        assert news == []
        assert network.wait(0) == []


def test_a_closed_network_takes_no_more_calls(network: PollingNetwork) -> None:
    """After a close, call_soon_threadsafe raises and `wake` does nothing."""
    network.close()
    network.close()
    with pytest.raises(RuntimeError, match="closed"):
        network.call_soon_threadsafe(lambda: None)
    network.wake()
