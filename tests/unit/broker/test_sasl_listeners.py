"""Listeners that ask for a login: who gets in, what is said, and when a session ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.client.nodes import Credentials
from tailrace.client.nodes.oauth import OAuthToken, first_message, unsecured_token
from tailrace.errors import ConfigError
from tailrace.model import ANONYMOUS, Principal
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tailrace.security.scram import salted_password
from tailrace.server.dispatch import Dispatch
from tailrace.testing import Outside, Peer, Watchdog
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.tls_peers import encrypted, showing
from tests.unit.security.parties import authority, party

MODULES = "org.apache.kafka.common.security"
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://memory:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f"{PREFIX}plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_alice="secret" user_bob="bob-secret";',
    f"{PREFIX}oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule "
    "required;",
}
ALICE = b"\0alice\0secret"
BOB = b"\0bob\0bob-secret"
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED

Serving = tuple[RunningBroker, list[Caller]]


@asynccontextmanager
async def serving(outside: Outside, **settings: str) -> AsyncIterator[Serving]:
    """A broker whose clients log in, and who sends requests that reach a handler."""
    callers: list[Caller] = []

    def noting(dispatch: Dispatch) -> Dispatch:
        def note(frame: memoryview, caller: Caller, *more: object) -> object:
            callers.append(caller)
            return dispatch(frame, caller, *more)  # type: ignore[arg-type]

        return note  # type: ignore[return-value]

    dotted = {name.replace("__", "-").replace("_", "."): text for name, text in settings.items()}
    async with running(outside, {**SETTINGS, **dotted}, wrap_dispatch=noting) as broker:
        yield broker, callers


async def shake_hands(
    peer: Peer, mechanism: str = "PLAIN", *, version: int = 1
) -> SaslHandshakeResponse:
    return await peer.ask(
        ApiKey.SASL_HANDSHAKE,
        SaslHandshakeRequest(mechanism=mechanism),
        SaslHandshakeResponse,
        version=version,
    )


async def give(peer: Peer, token: bytes, *, version: int = 2) -> SaslAuthenticateResponse:
    return await peer.ask(
        ApiKey.SASL_AUTHENTICATE,
        SaslAuthenticateRequest(auth_bytes=token),
        SaslAuthenticateResponse,
        version=version,
    )


async def log_in(
    peer: Peer, token: bytes = ALICE, mechanism: str = "PLAIN"
) -> SaslAuthenticateResponse:
    """A login by one token, from the handshake on."""
    assert (await shake_hands(peer, mechanism)).error_code == ErrorCode.NONE
    return await give(peer, token)


async def log_in_scram(peer: Peer, name: str, password: str) -> SaslAuthenticateResponse:
    """A login by SCRAM with our client's messages."""
    await shake_hands(peer, "SCRAM-SHA-256")
    tokens = Credentials(mechanism="SCRAM-SHA-256", username=name, password=password).tokens("b")
    first = next(tokens)
    assert isinstance(first, bytes)
    last = tokens.send((await give(peer, first)).auth_bytes)
    assert isinstance(last, bytes)
    answer = await give(peer, last)
    if not answer.error_code:
        with pytest.raises(StopIteration):
            tokens.send(answer.auth_bytes)
    return answer


async def metadata(peer: Peer) -> MetadataResponse:
    return await peer.ask(ApiKey.METADATA, MetadataRequest(topics=()), MetadataResponse)


async def versions(peer: Peer, *, version: int = 4, software: str = "tests") -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    return await peer.ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse, version=version)


def raw(token: bytes) -> bytes:
    """A token as it follows a SaslHandshake of version 0."""
    return len(token).to_bytes(4, "big") + token


@pytest.mark.parametrize("asks_versions", [False, True])
async def test_a_client_logs_in_and_has_its_name(outside: Outside, *, asks_versions: bool) -> None:
    """After its login each request of a client has its name, and before none reaches a handler."""
    async with serving(outside) as (broker, callers):
        peer = connect(outside, broker)
        if asks_versions:
            assert (await versions(peer)).error_code == ErrorCode.NONE
            assert [each.principal for each in callers] == [ANONYMOUS]
            callers.clear()
        shaken = await shake_hands(peer)
        assert shaken.mechanisms == ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
        answer = await give(peer, ALICE)
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b"")
        assert answer.session_lifetime_ms == 0
        assert callers == []
        assert (await metadata(peer)).brokers
        assert [each.principal for each in callers] == [Principal("User", "alice")]


async def test_tokens_alone_follow_the_old_handshake(outside: Outside) -> None:
    """After SaslHandshake v0 tokens come with their size alone, however short they are."""
    async with serving(outside) as (broker, callers):
        peer = connect(outside, broker)
        await shake_hands(peer, version=0)
        peer.send_bytes(raw(ALICE))
        assert await peer.read_frame() == b""
        assert (await metadata(peer)).brokers
        assert callers[-1].principal.name == "alice"
        # A refusal is a token, which the client answers with one byte.
        peer = connect(outside, broker)
        await shake_hands(peer, "OAUTHBEARER", version=0)
        peer.send_bytes(raw(first_message(OAuthToken(value="e30.e30."))))
        assert await peer.read_frame() == b'{"status":"invalid_token"}'
        peer.send_bytes(raw(b"\x01"))
        assert await peer.is_closed()
        # An empty token is one, too.
        peer = connect(outside, broker)
        await shake_hands(peer, version=0)
        peer.send_bytes(raw(b""))
        assert await peer.is_closed()


@pytest.mark.parametrize("asks_versions", [False, True])
async def test_nothing_else_comes_before_a_login(outside: Outside, *, asks_versions: bool) -> None:
    """Another request ends the connection, without an answer, and reaches no handler."""
    async with serving(outside) as (broker, callers):
        peer = connect(outside, broker)
        if asks_versions:
            await versions(peer)
            callers.clear()
        peer.send(ApiKey.METADATA, MetadataRequest(topics=()))
        assert await peer.is_closed()
        assert callers == []


@pytest.mark.parametrize("version", range(5))
async def test_versions_are_asked_for_once(outside: Outside, version: int) -> None:
    """ApiVersions is answered once in each version; a second one ends the connection."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        assert (await versions(peer, version=version)).error_code == ErrorCode.NONE
        peer.send(ApiKey.API_VERSIONS, ApiVersionsRequest(), version=0)
        assert await peer.is_closed()


async def test_versions_are_asked_for_again_after_an_error(outside: Outside) -> None:
    """A client whose version or name is refused may ask again, and log in."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        # Key 18 in version 99, with a client id and tags.
        head = b"\0\x12\0\x63\0\0\0\x07\0\x01c\0"
        peer.send_bytes(raw(head))
        assert (await peer.read_frame())[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
        assert (await versions(peer, software="a b")).error_code == ErrorCode.INVALID_REQUEST
        assert (await versions(peer)).error_code == ErrorCode.NONE
        assert (await log_in(peer)).error_code == ErrorCode.NONE


async def test_an_unknown_mechanism_is_answered_with_those_that_there_are(outside: Outside) -> None:
    """The client learns which mechanisms there are, and the connection ends."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        answer = await shake_hands(peer, "SCRAM-SHA-512")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
        assert await peer.is_closed()


@pytest.mark.parametrize("delay_ms", [0, 100, 2500])
async def test_a_refusal_comes_after_the_delay(outside: Outside, delay_ms: int) -> None:
    """A wrong password is answered after the delay, with what follows unread, and then closed."""
    delay = {"connection_failed_authentication_delay_ms": str(delay_ms)}
    async with serving(outside, **delay) as (broker, callers):
        peer = connect(outside, broker)
        await shake_hands(peer)
        began = outside.loop.time()
        peer.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=ALICE + b"x"))
        answer = await give(peer, ALICE)
        assert outside.loop.time() - began == pytest.approx(delay_ms / 1000, abs=0.01)
        assert answer.error_code == FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await peer.is_closed()
        assert callers == []


async def test_a_client_that_leaves_before_its_refusal(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection ends with the delay, and nobody is to be told."""
    delay = {"connection_failed_authentication_delay_ms": "5000"}
    async with serving(outside, **delay) as (broker, _):
        peer = connect(outside, broker)
        await shake_hands(peer)
        peer.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=ALICE + b"x"))
        await outside.pass_time(0.1)
        peer.socket.close()
        await outside.pass_time(5)
        assert broker.statistics().server.connection_count == 0
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_request_that_is_too_large_ends_the_connection(outside: Outside) -> None:
    """Only before a login no frame is larger than `sasl.server.max.receive.size`."""
    async with serving(outside, sasl_server_max_receive_size="1000") as (broker, _):
        peer = connect(outside, broker)
        await shake_hands(peer)
        peer.send_bytes((1001).to_bytes(4, "big"))
        assert await peer.is_closed()
        peer = connect(outside, broker)
        await log_in(peer)
        request = MetadataRequest(topics=())
        peer.send(ApiKey.METADATA, request)
        await peer.read_frame()
        await create_topic(peer, "t" * 249)
        assert (await produce(peer, "t" * 249, batch(bytes(2000)))).error_code == 0


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        (ApiKey.METADATA, MetadataRequest(topics=())),
        (ApiKey.API_VERSIONS, ApiVersionsRequest()),
        (ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN")),
    ],
)
async def test_only_tokens_follow_a_handshake(
    outside: Outside, key: ApiKey, request_: object
) -> None:
    """Between the handshake and the last token any other request ends the connection."""
    async with serving(outside) as (broker, callers):
        peer = connect(outside, broker)
        await shake_hands(peer)
        peer.send(key, request_, version=0)  # type: ignore[arg-type]
        assert await peer.is_closed()
        assert callers == []


async def test_a_login_that_nobody_asked_for_is_an_illegal_state(outside: Outside) -> None:
    """Without an end of sessions a second login is answered with Kafka's error."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)
        assert (await shake_hands(peer)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await give(peer, ALICE)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await metadata(peer)).brokers


REAUTH = {"connections_max_reauth_ms": "10000"}


async def test_a_session_is_renewed_on_the_connection(outside: Outside) -> None:
    """A client that logs in again in time keeps its connection, for as long again."""
    async with serving(outside, **REAUTH) as (broker, callers):
        peer = connect(outside, broker)
        for _ in range(3):
            assert (await log_in(peer)).session_lifetime_ms == 10_000
            await outside.pass_time(9)
            assert (await metadata(peer)).brokers
        assert {each.principal.name for each in callers} == {"alice"}


async def test_a_session_that_has_ended_may_still_be_renewed(outside: Outside) -> None:
    """After the end of a session a login again is the only request that is answered."""
    async with serving(outside, **REAUTH) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)
        await outside.pass_time(11)
        assert (await log_in(peer)).error_code == ErrorCode.NONE
        assert (await metadata(peer)).brokers
        await outside.pass_time(10)
        peer.send(ApiKey.METADATA, MetadataRequest(topics=()))
        assert await peer.is_closed()


async def test_a_repeated_request_ends_with_the_session(outside: Outside) -> None:
    """A producer that repeats its request is answered until its session ends, and not after."""
    async with serving(outside, **REAUTH) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)
        await create_topic(peer, "t")
        for offset in range(3):
            assert (await produce(peer, "t", batch(b"v"))).base_offset == offset
        await outside.pass_time(10)
        with pytest.raises(EOFError):
            await produce(peer, "t", batch(b"v"))


async def test_a_client_without_the_newer_version_has_a_session_too(outside: Outside) -> None:
    """A client that cannot be told of its session loses its connection at the end of it."""
    async with serving(outside, **REAUTH) as (broker, _):
        peer = connect(outside, broker)
        await shake_hands(peer)
        assert (await give(peer, ALICE, version=0)).session_lifetime_ms == 0
        assert (await metadata(peer)).brokers
        await outside.pass_time(10)
        peer.send(ApiKey.METADATA, MetadataRequest(topics=()))
        assert await peer.is_closed()


async def test_a_connection_keeps_its_mechanism(outside: Outside) -> None:
    """A login again by another mechanism ends the connection with its first token."""
    async with serving(outside, **REAUTH) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)
        await outside.pass_time(5)
        assert (await shake_hands(peer, "SCRAM-SHA-256")).error_code == ErrorCode.NONE
        peer.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"n,,n=a,r=b"))
        assert await peer.is_closed()


async def test_a_connection_keeps_its_user(outside: Outside) -> None:
    """A login again as another user is refused in Kafka's words, and ends the connection."""
    async with serving(outside, **REAUTH) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)
        await outside.pass_time(5)
        answer = await log_in(peer, BOB)
        assert answer.error_code == FAILED
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert await peer.is_closed()


async def test_logins_of_a_connection_are_a_second_apart(outside: Outside) -> None:
    """A client that logs in again sooner than after a second is answered with Kafka's error."""
    async with serving(outside, **REAUTH) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)
        assert (await log_in(peer)).error_code == ErrorCode.NONE
        assert (await shake_hands(peer)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await metadata(peer)).brokers
        await outside.pass_time(1)
        assert (await log_in(peer)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("reauth_ms", "token_s", "session_ms"),
    [("0", 5, 5000), ("10000", 5, 5000), ("3000", 5, 3000), ("0", 10**8, 10**11)],
)
async def test_a_session_ends_with_its_token(
    outside: Outside, reauth_ms: str, token_s: int, session_ms: int
) -> None:
    """A session lasts as long as the token, and no longer than `connections.max.reauth.ms`."""
    async with serving(outside, connections_max_reauth_ms=reauth_ms) as (broker, _):
        peer = connect(outside, broker)

        def wall() -> float:
            return outside.runtime.clock.now_ms() / 1000

        token = unsecured_token({"sub": "carol"}, lifetime_s=token_s, wall=wall)
        answer = await log_in(peer, first_message(token), "OAUTHBEARER")
        assert answer.session_lifetime_ms == pytest.approx(session_ms, abs=5)
        assert (await metadata(peer)).brokers
        if session_ms <= 5000:
            await outside.pass_time(session_ms / 1000)
            peer.send(ApiKey.METADATA, MetadataRequest(topics=()))
            assert await peer.is_closed()


async def test_a_token_that_is_refused_ends_after_its_second_message(outside: Outside) -> None:
    """The status comes without an error, and with one after the client's answer."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        token = unsecured_token({"sub": "carol"}, lifetime_s=5, wall=lambda: 1.0)
        answer = await log_in(peer, first_message(token), "OAUTHBEARER")
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        answer = await give(peer, b"\x01")
        assert answer.error_code == FAILED
        assert answer.error_message == '{"status":"invalid_token"}'
        assert await peer.is_closed()


async def test_users_come_and_go_while_a_broker_runs(outside: Outside) -> None:
    """A user that is created logs in at once; one that is removed does not log in again."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        await log_in(peer)

        async def change(
            *upsertions: ScramCredentialUpsertion, deletions: tuple[str, ...] = ()
        ) -> None:
            gone = (ScramCredentialDeletion(name=each, mechanism=1) for each in deletions)
            answer = await peer.ask(
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                AlterUserScramCredentialsRequest(deletions=tuple(gone), upsertions=upsertions),
                AlterUserScramCredentialsResponse,
            )
            assert [each.error_code for each in answer.results] == [0]

        salted = salted_password("SCRAM-SHA-256", b"pw", salt=b"salt", iterations=4096)
        await change(
            ScramCredentialUpsertion(
                name="dave", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
            )
        )
        assert (await log_in_scram(connect(outside, broker), "dave", "pw")).error_code == 0
        refused = await log_in_scram(connect(outside, broker), "dave", "no")
        assert refused.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism SCRAM-SHA-256"
        )
        await change(deletions=("dave",))
        assert (await log_in_scram(connect(outside, broker), "dave", "pw")) == refused


async def test_a_login_that_is_left_ends_in_time(outside: Outside) -> None:
    """Whatever comes, a connection has half a minute for it; after it, it may stay longer."""
    async with serving(outside) as (broker, _):
        silent, slow, client = [connect(outside, broker) for _ in range(3)]
        assert (await log_in(client)).error_code == ErrorCode.NONE
        await shake_hands(slow)
        slow.send_bytes((1000).to_bytes(4, "big"))
        for _ in range(37):
            with suppress(OSError):
                slow.send_bytes(b"x")
            await outside.pass_time(1)
        assert await silent.is_closed()
        assert await slow.is_closed()
        assert (await metadata(client)).brokers


async def test_tokens_without_an_end_hold_up_no_login(outside: Outside) -> None:
    """Their memory is that of the pool, no callback is long, and others log in at once."""
    pool_bytes, size = 8 * 1024 * 1024, 524_288
    limits = {
        "queued_max_request_bytes": str(pool_bytes),
        "socket_request_max_bytes": str(pool_bytes // 2),
        "message_max_bytes": str(pool_bytes // 2),
    }
    async with serving(outside, **limits) as (broker, _):
        await log_in(connect(outside, broker))
        token = memoryview(size.to_bytes(4, "big") + bytes(size - 1))

        async def begin() -> int:
            peer, sent = connect(outside, broker), 0
            await shake_hands(peer)
            with suppress(OSError):
                while sent < len(token):
                    sent += peer.socket.send([token[sent:]]) or 0
                    await outside.pass_time(0.05)
            return sent

        claimed = []
        with Watchdog(outside) as watchdog:
            beginnings = [asyncio.ensure_future(begin()) for _ in range(60)]
            for _ in range(10):
                await outside.pass_time(1)
                claimed.append(broker.statistics().server.claimed_bytes)
                begun = outside.clock.monotonic_s()
                assert (await log_in(connect(outside, broker))).error_code == ErrorCode.NONE
                assert outside.clock.monotonic_s() - begun < 0.01
        assert watchdog.findings == []
        assert pool_bytes // 2 < max(claimed) <= pool_bytes
        # Those that waited for memory got it from others that had sent all they would.
        assert [each.done() and each.result() for each in beginnings] == [len(token)] * 60


def test_a_flood_of_logins_is_counted(outside: Outside, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the first refusal with its reason, then a number, and never a password."""

    async def main() -> None:
        async with serving(outside) as (broker, _):
            for number in range(50):
                peer = connect(outside, broker)
                await log_in(peer, b"\0alice\0guess-%d" % number)
            await outside.pass_time(10)
            await log_in(connect(outside, broker), b"\0\nforged\0guess")

    with caplog.at_level(logging.INFO, "tailrace.security"):
        outside.run(main())
    first, counted, again = [
        each.getMessage() for each in caplog.records if "refused" in each.getMessage()
    ]
    assert "listener=SASL_PLAINTEXT mechanism=PLAIN user='alice' reason=the password" in first
    assert "repeated name=login_refused address=memory count=50 seconds=10" in counted
    assert r"user='\nforged' reason=there is no such user" in again
    assert "guess" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl.enabled.mechanisms": ""}, "needs a mechanism"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "'DIGEST-MD5' is not one of"),
        ({f"{PREFIX}plain.sasl.jaas.config": ""}, "PLAIN needs the users"),
        ({f"{PREFIX}plain.sasl.jaas.config": "PlainLoginModule required;"}, "it has no user"),
        ({f"{PREFIX}plain.sasl.jaas.config": "ScramLoginModule required;"},
         "PLAIN needs PlainLoginModule, and it has ScramLoginModule"),
        ({f"{PREFIX}plain.sasl.jaas.config": "PlainLoginModule"}, "there is no 'required'"),
        ({f"{PREFIX}oauthbearer.sasl.jaas.config": ""}, "jwks.endpoint.url: must be given"),
        ({"sasl.oauthbearer.expected.issuer": "x"}, "jwks.endpoint.url: must be given, since"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://idp/keys"}, "in the clear"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
          f"{PREFIX}oauthbearer.sasl.jaas.config":
              'OAuthBearerLoginModule required ssl.trustore.location="ca.pem";'},
         r"oauthbearer\.sasl\.jaas\.config: ssl\.trustore\.location"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI needs Krb5LoginModule"),
        ({f"{PREFIX}connections.max.reauth.ms": "x"}, "is not a whole number"),
        ({"sasl.server.callback.handler.class": "com.example.Handler"}, "no Java class"),
    ],
)  # fmt: skip
def test_settings_that_let_nobody_in_are_refused(settings: dict[str, str], said: str) -> None:
    """A listener whose clients could not log in, or could all, is a fault of the settings."""
    with pytest.raises(ConfigError, match=said) as refused:
        broker_config({"log.dirs": "data", **SETTINGS, **settings})
    assert "secret" not in str(refused.value)


def test_the_nearest_setting_counts() -> None:
    """A setting of a mechanism goes before its listener's, and that before the general one."""
    config = broker_config(
        {
            "log.dirs": "data",
            **SETTINGS,
            "connections.max.reauth.ms": "1000",
            f"{PREFIX}connections.max.reauth.ms": "2000",
            f"{PREFIX}scram-sha-256.connections.max.reauth.ms": "3000",
        }
    )
    found = config.listener_sasl["SASL_PLAINTEXT"].offered
    assert [each.settings.session_ms_max for each in found] == [2000, 3000, 2000]


async def test_many_logins_at_a_time(outside: Outside) -> None:
    """Logins of many connections do not wait for each other."""
    async with serving(outside) as (broker, _):
        peers = [connect(outside, broker) for _ in range(100)]
        answers = await asyncio.gather(*(log_in(each) for each in peers))
        assert {each.error_code for each in answers} == {0}


@pytest.mark.parametrize("first", [b"", b"\0", b"\x60\x81", b"\x7f\xff\0\0\0\0\0\0\xff\xff"])
async def test_bytes_that_are_no_request_end_the_connection(outside: Outside, first: bytes) -> None:
    """A first frame without the header of a request ends the connection, without an answer."""
    async with serving(outside) as (broker, callers):
        peer = connect(outside, broker)
        peer.send_bytes(raw(first))
        assert await peer.is_closed()
        assert callers == []


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
async def test_a_login_over_tls_names_the_user(outside: Outside, client_auth: str) -> None:
    """With SASL_SSL a client has the name of its login, also if it has shown a certificate."""
    settings = {
        name.replace("sasl_plaintext", "sasl_ssl"): text for name, text in SETTINGS.items()
    } | {
        "listeners": "SASL_SSL://memory:0",
        "ssl.client.auth": client_auth,
        **party("broker").keystore,
        **authority().truststore,
    }
    callers: list[Caller] = []

    def noting(dispatch: Dispatch) -> Dispatch:
        def note(frame: memoryview, caller: Caller, *more: object) -> object:
            callers.append(caller)
            return dispatch(frame, caller, *more)  # type: ignore[arg-type]

        return note  # type: ignore[return-value]

    async with running(outside, settings, wrap_dispatch=noting) as broker:
        context = None if client_auth == "none" else showing(party("Bob"))
        peer = await encrypted(outside, broker.endpoint[1], context)
        assert (await log_in(peer)).error_code == ErrorCode.NONE
        assert (await metadata(peer)).brokers
        assert [each.principal for each in callers] == [Principal("User", "alice")]


async def test_a_handshake_in_an_unknown_version_ends_the_connection(outside: Outside) -> None:
    """A SaslHandshake of a version that there is not gets no answer."""
    async with serving(outside) as (broker, _):
        peer = connect(outside, broker)
        # Key 17 in version 9, with a client id.
        peer.send_bytes(raw(b"\0\x11\0\x09\0\0\0\x07\0\x01c\0\x05PLAIN"))
        assert await peer.is_closed()
