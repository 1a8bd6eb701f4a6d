"""Clients of encrypted listeners, for brokers on doubles."""

import ssl
from collections.abc import Sequence
from functools import partial
from typing import cast

from tailrace.runtime.files import Buffer
from tailrace.security.listener_config import listener_tls_config
from tailrace.security.tls import TlsSocket
from tailrace.security.tls_context import tls_context
from tailrace.testing import Outside, Peer
from tailrace.testing.network import MemorySocket
from tests.unit.security.parties import Party, authority

NO_FAULTS: list[str] = []


class TlsChannel:
    """The client's end for a `Peer`: sends at once, and waits for bytes."""

    def __init__(self, outside: Outside, socket: MemorySocket, context: ssl.SSLContext) -> None:
        self.raw = socket
        self.tls = TlsSocket(socket, partial(context.wrap_bio, server_hostname="memory"))
        self._outside = outside
        self._received = b""
        self._unsent = b""

    async def shake(self) -> None:
        """Complete the handshake."""
        while not self.tls.is_shaken:
            self._take()
            await self._outside.pass_time(0.001)

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Take all bytes, and send those for which there is no room before something comes."""
        self._unsent += b"".join(buffers)
        self._send()
        return sum(map(len, buffers))

    def _send(self) -> None:
        while self._unsent:
            taken = self.tls.send([self._unsent])
            if not taken:
                return
            self._unsent = self._unsent[taken:]

    async def receive(self, size: int) -> bytes:
        """The next bytes; fewer at the end of the stream."""
        while len(self._received) < size and self._take():
            await self._outside.pass_time(0.001)
        found, self._received = self._received[:size], self._received[size:]
        return found

    def _take(self) -> bool:
        self._send()
        buffer = bytearray(1 << 16)
        count = self.tls.receive_into(memoryview(buffer))
        self._received += buffer[: count or 0]
        return count != 0

    def close(self) -> None:
        """End the connection."""
        self.tls.close()


def client_context(**settings: str) -> ssl.SSLContext:
    """A client that trusts the authority, with settings by their names with underscores."""
    dotted = {name.replace("_", "."): text for name, text in settings.items()}
    return tls_context(
        listener_tls_config({**authority().truststore, **dotted}, faults=NO_FAULTS).tls
    )


def showing(who: Party) -> ssl.SSLContext:
    """A client that shows a certificate."""
    return client_context(ssl_keystore_certificate_chain=who.certificate, ssl_keystore_key=who.key)


async def encrypted(outside: Outside, port: int, context: ssl.SSLContext | None = None) -> Peer:
    """A connection after its handshake."""
    channel = TlsChannel(outside, outside.network.open(port), context or client_context())
    await channel.shake()
    return Peer(channel)  # type: ignore[arg-type]  # what it uses of a socket


def channel_of(peer: Peer) -> TlsChannel:
    """The connection of a client that `encrypted` has made."""
    return cast("TlsChannel", peer.socket)
