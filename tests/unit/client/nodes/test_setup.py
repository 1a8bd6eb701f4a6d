"""Tests of a connection before its first request: versions and logins."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace

import pytest

from tailrace.client.config import ClientConfig
from tailrace.client.nodes import (
    AuthenticationError,
    Credentials,
    DisconnectedError,
    UnsupportedVersionError,
)
from tailrace.client.security import Security
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.client.nodes.stand_in import (
    METADATA,
    OFFERED,
    REFUSED,
    Asked,
    Client,
    StandIn,
    stage,
)

PASSWORD = "open, sesame"


class Gate:
    """A broker's side of SASL, written from the RFCs: who knows `PASSWORD` comes in."""

    def __init__(self, broker: StandIn, mechanism: str, *, lifetime_ms: int = 0) -> None:
        self.mechanism = mechanism
        self.lifetime_ms = lifetime_ms
        self.logins = 0
        self._first = ""
        self._challenge = ""
        broker.rules[ApiKey.SASL_HANDSHAKE] = self._shake
        broker.rules[ApiKey.SASL_AUTHENTICATE] = self._authenticate

    def _shake(self, asked: Asked) -> None:
        assert isinstance(asked.body, SaslHandshakeRequest)
        is_known = asked.body.mechanism == self.mechanism
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        asked.answer(SaslHandshakeResponse(error_code=code, mechanisms=(self.mechanism,)))

    def _authenticate(self, asked: Asked) -> None:
        assert isinstance(asked.body, SaslAuthenticateRequest)
        assert asked.body.auth_bytes is not None
        token = bytes(asked.body.auth_bytes).decode()
        if self.mechanism == "PLAIN":
            self._end(asked, token == f"\0user\0{PASSWORD}", "")
        elif token.startswith("n,,"):
            self._first = token[3:]
            nonce = self._first.split("r=")[1]
            self._challenge = f"r={nonce}more,s={base64.b64encode(b'salt').decode()},i=4096"
            asked.answer(SaslAuthenticateResponse(auth_bytes=self._challenge.encode()))
        else:
            self._check(asked, token)

    def _check(self, asked: Asked, token: str) -> None:
        name = self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        unproven, proof = token.rsplit(",p=", 1)
        salted = hashlib.pbkdf2_hmac(name, PASSWORD.encode(), b"salt", 4096)
        signed = f"{self._first},{self._challenge},{unproven}".encode()
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        signature = hmac.digest(stored, signed, name)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", name)
        final = "v=" + base64.b64encode(hmac.digest(server_key, signed, name)).decode()
        self._end(asked, hashlib.new(name, client_key).digest() == stored, final)

    def _end(self, asked: Asked, is_right: bool, final: str) -> None:  # noqa: FBT001
        if is_right:
            self.logins += 1
            asked.answer(
                SaslAuthenticateResponse(
                    auth_bytes=final.encode(), session_lifetime_ms=self.lifetime_ms
                )
            )
        else:
            asked.answer(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong password"
                )
            )
            asked.connection.close()


def as_user(mechanism: str, password: str = PASSWORD) -> Security:
    """The login of a client."""
    return Security(login=Credentials(mechanism=mechanism, username="user", password=password))


async def test_versions_are_asked_for_first(broker: StandIn, client: Client) -> None:
    """The first request is ApiVersions with the client's name; its answer makes the node ready."""
    node = await client.half_connect(broker)
    (asked,) = broker.asked
    assert isinstance(asked.body, ApiVersionsRequest)
    assert (asked.version, asked.body.client_software_name) == (4, "tailrace")
    assert not client.nodes.is_ready(node.id, client.now)
    asked.answer(ApiVersionsResponse(api_keys=OFFERED))
    await client.settle()
    assert client.nodes.is_ready(node.id, client.now)
    assert client.nodes.in_flight(node.id) == 0
    assert client.outcomes == []


def old_broker(keys: tuple[ApiVersion, ...], *, last: int) -> Callable[[Asked], None]:
    """Answer as a broker that knows ApiVersions up to `last` (KIP-511)."""

    def rule(asked: Asked) -> None:
        if asked.version <= last:
            asked.answer(ApiVersionsResponse(api_keys=OFFERED))
        else:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
            replace(asked, version=0).answer(refusal)

    return rule


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        ((ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2),), 2),
        ((), 0),
    ],
    ids=["named", "not named"],
)
async def test_an_older_broker_is_asked_in_its_own_version(
    broker: StandIn, client: Client, keys: tuple[ApiVersion, ...], last: int
) -> None:
    """A broker that refuses the newest ApiVersions is asked again in the version it names, or 0."""
    versions = []
    rule = old_broker(keys, last=last)

    def note(asked: Asked) -> None:
        versions.append(asked.version)
        rule(asked)

    broker.rules[ApiKey.API_VERSIONS] = note
    await client.become_ready(broker.node())
    assert versions == [4, last]


def test_a_client_id_that_cannot_travel_is_told() -> None:
    """A client id above 32,767 bytes ends each attempt with a failure, not with a crash."""
    with stage(ClientConfig(client_id="x" * 40_000)) as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), UnsupportedVersionError)

        outside.run(main())


async def test_a_broker_that_never_agrees_is_given_up(broker: StandIn, client: Client) -> None:
    """A broker that refuses every version of ApiVersions is not asked for ever."""
    broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.answer(
        ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    )
    node = broker.node()
    client.nodes.connect(node, client.now)
    await client.settle()
    assert client.nodes.failure(node.id) is not None


async def test_a_broker_that_refuses_to_name_its_versions_is_given_up(
    broker: StandIn, client: Client
) -> None:
    """An error in the answer to ApiVersions ends the connection and says which error it was."""
    broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.answer(
        ApiVersionsResponse(error_code=REFUSED)
    )
    node = broker.node()
    client.nodes.connect(node, client.now)
    await client.settle()
    assert isinstance(client.failure(node), UnsupportedVersionError)
    assert "INVALID_REQUEST" in str(client.failure(node))
    assert client.nodes.in_flight(node.id) == 0
    assert not client.nodes.is_ready(node.id, client.now)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("receive_bytes_max", [1, 1 << 20])
def test_the_right_password_is_accepted(mechanism: str, receive_bytes_max: int) -> None:
    """With each mechanism the right password leads to a connection that takes requests."""
    with stage(as_user(mechanism)) as (outside, broker, client):
        gate = Gate(broker, mechanism)
        outside.network.receive_bytes_max = receive_bytes_max

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            assert gate.logins == 1
            client.ask(node)
            await client.settle()
            broker.asked[0].answer(METADATA)
            await client.settle()
            assert client.outcomes == [METADATA]

        outside.run(main())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_a_fatal_failure(mechanism: str) -> None:
    """The failure names the settings, and stays until a login succeeds."""
    with stage(as_user(mechanism, "wrong")) as (outside, broker, client):
        Gate(broker, mechanism)

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "wrong password" in str(client.failure(node))
            assert "sasl.password" in str(client.failure(node))
            await client.pass_time(10)
            assert isinstance(client.failure(node), AuthenticationError)

        outside.run(main())


def test_a_mechanism_that_the_broker_does_not_offer_is_told() -> None:
    """The failure names what the broker offers instead."""
    with stage(as_user("PLAIN")) as (outside, broker, client):
        Gate(broker, "SCRAM-SHA-512")

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "SCRAM-SHA-512" in str(client.failure(node))

        outside.run(main())


def test_a_broker_without_logins_is_told() -> None:
    """A listener without SASL answers a handshake with an error, which names the setting."""
    with stage(as_user("PLAIN")) as (outside, broker, client):
        broker.rules[ApiKey.SASL_HANDSHAKE] = lambda asked: asked.answer(
            SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        )

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "security.protocol" in str(client.failure(node))

        outside.run(main())


def test_a_broker_that_knows_no_login_is_told() -> None:
    """No handshake is sent to a broker that would close the connection, again and again."""
    with stage(as_user("PLAIN")) as (outside, broker, client):
        few = tuple(each for each in OFFERED if each.api_key != ApiKey.SASL_HANDSHAKE)
        broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.answer(
            ApiVersionsResponse(api_keys=few)
        )

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "security.protocol" in str(client.failure(node))

        outside.run(main())


def test_a_failed_login_leaves_other_nodes_alone() -> None:
    """A request that waits at one node is answered though another node refuses the login."""
    with stage(as_user("PLAIN")) as (outside, broker, client):
        Gate(broker, "PLAIN")
        other = StandIn(outside)
        Gate(other, "SCRAM-SHA-256")

        async def main() -> None:
            node, refusing = broker.node(1), other.node(2)
            await client.become_ready(node)
            client.ask(node)
            client.nodes.connect(refusing, client.now)
            await client.settle()
            assert isinstance(client.failure(refusing), AuthenticationError)
            broker.asked[0].answer(METADATA)
            await client.settle()
            assert client.outcomes == [METADATA]

        outside.run(main())


def test_a_connection_is_replaced_before_its_session_ends() -> None:
    """A connection is closed before its session ends, when idle; the next one logs in again."""
    with stage(as_user("SCRAM-SHA-256")) as (outside, broker, client):
        gate = Gate(broker, "SCRAM-SHA-256", lifetime_ms=100_000)

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            await client.pass_time(80)
            client.ask(node)
            await client.pass_time(10)
            assert not client.nodes.is_ready(node.id, client.now)
            assert not broker.channel.is_closed
            broker.asked[0].answer(METADATA)
            await client.settle()
            assert client.outcomes == [METADATA]
            await client.become_ready(node)
            assert gate.logins == 2
            assert [channel.is_closed for channel in broker.channels] == [True, False]

        outside.run(main())


@pytest.mark.parametrize("step", range(4))
def test_a_connection_may_end_at_every_step_of_the_setup(step: int) -> None:
    """Wherever the broker hangs up, the attempt fails as disconnected and the next one succeeds."""
    with stage(as_user("SCRAM-SHA-256")) as (outside, broker, client):
        gate = Gate(broker, "SCRAM-SHA-256")
        rules = dict(broker.rules)
        seen = []

        def note(asked: Asked) -> None:
            seen.append(asked)
            if len(seen) == step + 1:
                asked.connection.close()
            else:
                rules[asked.api.key](asked)

        broker.rules = dict.fromkeys(rules, note)

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            for _ in range(20):
                await outside.pass_time(0)
            client.poll()
            assert isinstance(client.failure(node), DisconnectedError)
            await client.become_ready(node)
            assert gate.logins >= 1

        outside.run(main())
