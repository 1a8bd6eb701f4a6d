"""Encrypted listeners of a broker: who gets in, by which name, and what breaks nothing."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.model import ANONYMOUS, Principal
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.runtime.files import Buffer
from tailrace.security.listener_config import listener_tls_config
from tailrace.security.tls import TlsSocket
from tailrace.security.tls_context import tls_context
from tailrace.server.dispatch import Dispatch
from tailrace.testing import Outside, Peer
from tailrace.testing.network import MemorySocket
from tests.unit.broker.brokers import running
from tests.unit.security.parties import Party, authority, party

BROKER = {
    "listeners": "SSL://memory:0",
    **party("broker").keystore,
    **authority().truststore,
}
NO_FAULTS: list[str] = []


class TlsChannel:
    """The client's end for a `Peer`: sends at once, and waits for bytes."""

    def __init__(self, outside: Outside, socket: MemorySocket, context: ssl.SSLContext) -> None:
        self.raw = socket
        self.tls = TlsSocket(socket, partial(context.wrap_bio, server_hostname="memory"))
        self._outside = outside
        self._received = b""

    async def shake(self) -> None:
        """Complete the handshake."""
        while not self.tls.is_shaken:
            self._take()
            await self._outside.pass_time(0.001)

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send bytes, as the socket does."""
        return self.tls.send(buffers)

    async def receive(self, size: int) -> bytes:
        """The next bytes; fewer at the end of the stream."""
        while len(self._received) < size and self._take():
            await self._outside.pass_time(0.001)
        found, self._received = self._received[:size], self._received[size:]
        return found

    def _take(self) -> bool:
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


async def encrypted(
    outside: Outside, broker: RunningBroker, context: ssl.SSLContext | None = None
) -> Peer:
    """A connection after its handshake."""
    channel = TlsChannel(
        outside, outside.network.open(broker.endpoint[1]), context or client_context()
    )
    await channel.shake()
    return Peer(channel)  # type: ignore[arg-type]  # what it uses of a socket


@asynccontextmanager
async def serving(
    outside: Outside, callers: list[Caller] | None = None, **settings: str
) -> AsyncIterator[RunningBroker]:
    """A broker with one encrypted listener, and who sends requests to it."""
    dotted = {name.replace("_", "."): text for name, text in settings.items()}

    def noting(dispatch: Dispatch) -> Dispatch:
        def note(frame: memoryview, caller: Caller, *more: object) -> object:
            if callers is not None:
                callers.append(caller)
            return dispatch(frame, caller, *more)  # type: ignore[arg-type]

        return note  # type: ignore[return-value]

    async with running(outside, {**BROKER, **dotted}, wrap_dispatch=noting) as broker:
        yield broker


async def metadata(peer: Peer) -> MetadataResponse:
    return await peer.ask(ApiKey.METADATA, MetadataRequest(topics=()), MetadataResponse)


def test_an_encrypted_listener_answers(outside: Outside) -> None:
    """A client that trusts the authority gets answers, and without a certificate has no name."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(outside, callers) as broker:
            peer = await encrypted(outside, broker)
            assert (await metadata(peer)).brokers[0].port == broker.endpoint[1]
            assert [each.principal for each in callers] == [ANONYMOUS]
            assert callers[0].listener == "SSL"

    outside.run(main())


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Bob,OU=Data Team\\, North"),
        ("RULE:^CN=(.*?),OU=Data.*$/$1@data/L", "bob@data"),
        ("RULE:^CN=Alice.*$/alice/,RULE:^CN=(\\w+),.*$/$1/U", "BOB"),
    ],
)
def test_a_certificate_names_the_principal(outside: Outside, rules: str, name: str) -> None:
    """The requests of a client with a certificate have its name by the rules."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(
            outside, callers, ssl_client_auth="required", ssl_principal_mapping_rules=rules
        ) as broker:
            peer = await encrypted(outside, broker, showing(party("Bob", "Data Team, North")))
            await metadata(peer)
            assert callers[0].principal == Principal("User", name)

    outside.run(main())
