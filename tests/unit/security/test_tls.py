"""A peer of an encrypted connection that keeps it busy without sending anything."""

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest

from tailrace.runtime.files import Buffer
from tailrace.security.errors import TlsError
from tailrace.security.listener_config import listener_tls_config
from tailrace.security.tls import (
    BARREN_BYTES_MAX,
    BARREN_FETCH_BYTES,
    CHUNK_BYTES,
    HANDSHAKE_FETCH_BYTES,
    TlsSocket,
)
from tailrace.security.tls_context import server_context
from tests.unit.security.key_updates import KeyUpdates
from tests.unit.security.parties import authority, party

PER_RECORD = 27
"""Bytes of an update of keys."""


class Flood:
    """The raw end of a server's connection whose peer sends as fast as it is read."""

    peer = "memory:1"
    is_peer_gone = False

    def __init__(self) -> None:
        self.due: Iterator[bytes] = iter(())
        self.received = b""
        """Bytes from the server."""
        self.taken_bytes = 0
        self._left = b""

    def receive_into(self, buffer: memoryview) -> int | None:
        while len(self._left) < len(buffer):
            found = next(self.due, b"")
            if not found:
                break
            self._left += found
        given, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(given)] = given
        self.taken_bytes += len(given)
        return len(given) or None

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        data = b"".join(buffers)
        self.received += data
        return len(data)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Nothing calls back here."""

    watch_writes = watch_reads

    def close(self) -> None:
        """Nothing to close."""


def accepted(raw: Flood) -> TlsSocket:
    """A server's connection before its handshake."""
    faults: list[str] = []
    config = listener_tls_config(party("broker").keystore, faults=faults)
    server, _ = server_context(config.tls, verify_mode=ssl.CERT_NONE, faults=faults)
    assert not faults
    return TlsSocket(raw, partial(server.wrap_bio, server_side=True))


@pytest.fixture
def flood(tmp_path: Path) -> tuple[TlsSocket, Flood, KeyUpdates]:
    """A server's connection after its handshake, and the keys of its client."""
    raw = Flood()
    connection = accepted(raw)
    client = ssl.create_default_context(cadata=authority().certificate)
    client.keylog_filename = str(tmp_path / "keys")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client.wrap_bio(incoming, outgoing, server_hostname="memory")
    for _ in range(2):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        raw.due = iter([outgoing.read()])
        assert connection.receive_into(memoryview(bytearray(1))) is None
        incoming.write(raw.received)
        raw.received = b""
    assert connection.is_shaken
    raw.taken_bytes = 0
    return connection, raw, KeyUpdates((tmp_path / "keys").read_text())


Given = tuple[TlsSocket, Flood, KeyUpdates]


def test_a_handshake_is_received_by_little() -> None:
    """However much a stranger sends, a step of the handshake gets no more than a record."""
    raw = Flood()
    raw.due = repeat(bytes(1000))
    connection = accepted(raw)
    assert connection.fetch()
    assert raw.taken_bytes == HANDSHAKE_FETCH_BYTES
    with pytest.raises(TlsError):
        connection.shake()


def test_some_updates_of_keys_are_answered_and_data_follows(flood: Given) -> None:
    """A client may have new keys as often as it sends something with them."""
    connection, raw, updates = flood
    buffer = memoryview(bytearray(100))
    for number in range(5):
        raw.due = iter([updates.take(500) + updates.data(b"%d" % number)])
        received = None
        while received is None:
            received = connection.receive_into(buffer)
        assert received == 1
        assert bytes(buffer[:1]) == b"%d" % number
        # One answer is enough for updates that have come together (RFC 8446, 4.6.3).
        assert raw.received
        raw.received = b""


def test_updates_of_keys_alone_end_the_connection(flood: Given) -> None:
    """They cost the broker tens of microseconds each, and the client nothing."""
    connection, raw, updates = flood
    raw.due = (updates.take(100) for _ in range(1_000_000))
    buffer = memoryview(bytearray(64 * 1024))
    calls = (connection.receive_into(buffer) for _ in range(1_000))
    with pytest.raises(TlsError, match="records without data"):
        list(calls)
    assert raw.taken_bytes <= BARREN_BYTES_MAX + CHUNK_BYTES


def test_a_call_takes_little_of_a_peer_that_sends_hardly_any_data(flood: Given) -> None:
    """A byte of data between updates of keys, now and then, does not make a call longer."""
    connection, raw, updates = flood
    raw.due = (updates.take(200) + updates.data(b"x") for _ in range(1_000_000))
    buffer = memoryview(bytearray(64 * 1024))
    for _ in range(100):
        before = raw.taken_bytes
        connection.receive_into(buffer)
        assert raw.taken_bytes - before <= 2 * BARREN_FETCH_BYTES


def test_a_call_takes_much_of_a_peer_that_sends_data(flood: Given) -> None:
    """After some records all that there is room for is received at once."""
    connection, raw, updates = flood
    raw.due = (updates.data(bytes(16 * 1024 - 1)) for _ in range(1_000_000))
    buffer = memoryview(bytearray(64 * 1024))
    sizes = [connection.receive_into(buffer) for _ in range(30)]
    assert sizes[-5:] == 5 * [len(buffer)]
    before = raw.taken_bytes
    connection.receive_into(buffer)
    assert raw.taken_bytes - before >= CHUNK_BYTES // 2
