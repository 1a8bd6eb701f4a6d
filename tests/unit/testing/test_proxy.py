"""The proxy on real sockets: what it does to frames, and what it leaves alone."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.testing.proxy import Action, Direction, Proxy

TIMEOUT_S = 30


def frame(api: ApiKey, number: int, client_id: bytes = b"") -> bytes:
    """The start of a request, as far as the proxy reads it."""
    body = int(api).to_bytes(2, "big") + b"\0\0" + number.to_bytes(4, "big")
    body += len(client_id).to_bytes(2, "big") + client_id if client_id else b""
    return len(body).to_bytes(4, "big") + body


def answer(number: int) -> bytes:
    """The start of an answer."""
    return b"\0\0\0\x08" + number.to_bytes(4, "big") + b"body"


def exactly(end: socket.socket, count: int) -> bytes:
    """The next bytes of a connection, or fewer at its end."""
    found = b""
    while len(found) < count and (part := end.recv(count - len(found))):
        found += part
    return found


@contextmanager
def echo() -> Iterator[str]:
    """A broker that answers each request with its number."""

    def serve(end: socket.socket) -> None:
        # A client, or the proxy for it, may end the connection with a reset.
        with end, suppress(ConnectionResetError):
            while len(size := exactly(end, 4)) == 4:
                asked = exactly(end, int.from_bytes(size, "big"))
                end.sendall(answer(int.from_bytes(asked[4:8], "big")))

    def accept() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(end,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def connected() -> Iterator[tuple[Proxy, socket.socket]]:
    """A proxy before a broker, and a client of it."""
    with echo() as target, Proxy(target) as proxy:
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as client:
            yield proxy, client


def test_a_held_answer_comes_later_and_others_do_not_wait_for_it() -> None:
    """The answer to one API is held until the proxy heals; what came before it has passed."""
    with connected() as (proxy, client):
        proxy.disturb(Direction.ANSWER, Action.HOLD, {ApiKey.END_TXN})
        client.sendall(frame(ApiKey.METADATA, 1) + frame(ApiKey.END_TXN, 2))
        assert exactly(client, 12) == answer(1)
        assert proxy.wait_for_disturbed(1, timeout_s=TIMEOUT_S)
        client.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(TIMEOUT_S)
        proxy.heal()
        assert exactly(client, 12) == answer(2)


def test_a_cut_loses_what_was_held_and_resets_the_connection() -> None:
    """The client sees a reset, not an end in order; a new connection passes."""
    with connected() as (proxy, client):
        proxy.disturb(Direction.ANSWER, Action.HOLD)
        client.sendall(frame(ApiKey.METADATA, 1))
        assert proxy.wait_for_disturbed(1, timeout_s=TIMEOUT_S)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        proxy.heal()
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as again:
            again.sendall(frame(ApiKey.METADATA, 7))
            assert exactly(again, 12) == answer(7)


def test_connections_that_are_ending_can_be_cut() -> None:
    """A cut that comes while an earlier one, or a peer, ends the connections raises nothing."""
    with connected() as (proxy, _):
        host, port = proxy.address.split(":")
        for _ in range(50):
            with socket.create_connection((host, int(port)), TIMEOUT_S) as client:
                client.sendall(frame(ApiKey.METADATA, 1))
                assert exactly(client, 12) == answer(1)
                proxy.cut()
                proxy.cut()


def test_half_of_an_answer_comes_and_then_the_end() -> None:
    """A frame of 12 bytes is halved."""
    with connected() as (proxy, client):
        proxy.disturb(Direction.ANSWER, Action.HALF, {ApiKey.PRODUCE})
        client.sendall(frame(ApiKey.PRODUCE, 1))
        assert exactly(client, 12) == answer(1)[:6]


def test_a_request_that_is_cut_never_reaches_the_broker() -> None:
    """The client's connection is reset in place of an answer."""
    with connected() as (proxy, client):
        proxy.disturb(Direction.REQUEST, Action.CUT, {ApiKey.PRODUCE})
        client.sendall(frame(ApiKey.PRODUCE, 1))
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_black_hole_swallows_for_good_and_keeps_the_connection() -> None:
    """No byte arrives, also after the proxy heals, and the connection stays open."""
    with connected() as (proxy, client):
        proxy.disturb(Direction.REQUEST, Action.BLACK_HOLE)
        client.sendall(frame(ApiKey.METADATA, 1))
        assert proxy.wait_for_disturbed(1, timeout_s=TIMEOUT_S)
        proxy.heal()
        client.sendall(frame(ApiKey.METADATA, 2))
        # By then a request that went through would have been answered, as another client's is.
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as other:
            for number in range(10):
                other.sendall(frame(ApiKey.METADATA, number))
                assert exactly(other, 12) == answer(number)
        client.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)


def test_connections_are_disturbed_by_their_client_ids() -> None:
    """Frames of one client are held in both directions; those of another one pass."""
    with connected() as (proxy, client):
        for direction in Direction:
            proxy.disturb(direction, Action.HOLD, is_concerned=lambda name: name == "broker-1")
        client.sendall(frame(ApiKey.FETCH, 1, b"broker-1"))
        assert proxy.wait_for_disturbed(1, timeout_s=TIMEOUT_S)
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as other:
            other.sendall(frame(ApiKey.FETCH, 2, b"broker-2"))
            assert exactly(other, 12) == answer(2)
        client.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(TIMEOUT_S)
        proxy.heal()
        assert exactly(client, 12) == answer(1)


def test_a_broker_that_is_not_there_ends_the_connection() -> None:
    """A connection to a proxy whose target listens no more is closed."""
    with echo() as target:
        pass
    with Proxy(target) as proxy:
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as client:
            assert client.recv(1) == b""
