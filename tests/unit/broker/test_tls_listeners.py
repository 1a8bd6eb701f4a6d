"""Encrypted listeners of a broker: who gets in, by which name, and what breaks nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.model import ANONYMOUS, Principal
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.server.dispatch import Dispatch
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import running
from tests.unit.broker.tls_peers import encrypted, showing
from tests.unit.security.parties import authority, party

BROKER = {
    "listeners": "SSL://memory:0",
    **party("broker").keystore,
    **authority().truststore,
}
NO_FAULTS: list[str] = []


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
            peer = await encrypted(outside, broker.endpoint[1])
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
            bob = showing(party("Bob", "Data Team, North"))
            peer = await encrypted(outside, broker.endpoint[1], bob)
            await metadata(peer)
            assert callers[0].principal == Principal("User", name)

    outside.run(main())
