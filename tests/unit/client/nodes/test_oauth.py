"""OAUTHBEARER: tokens from functions, when they are renewed, and what is sent to the broker."""

import base64
import json
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import cast

import pytest

from tailrace.client.nodes import AuthenticationError, DisconnectedError
from tailrace.client.nodes.oauth import (
    FAILURE_S,
    OAuthLogin,
    OAuthToken,
    TokenFunction,
    TokenSource,
    expiry_of,
    first_message,
    unsecured_token,
)
from tailrace.client.nodes.sasl import Blocking
from tailrace.client.security import Security
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.unit.client.nodes.stand_in import Asked, StandIn, stage


class Clock:
    """A wall clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Issuer:
    """A token function that counts its tokens, and fails while `error` is set."""

    def __init__(self, clock: Clock, *, lifetime_s: float | None = 100.0) -> None:
        self.clock = clock
        self.lifetime_s = lifetime_s
        self.count = 0
        self.error: Exception | None = None

    def __call__(self) -> OAuthToken:
        if self.error is not None:
            raise self.error
        self.count += 1
        expires_at = None if self.lifetime_s is None else self.clock.now + self.lifetime_s
        return OAuthToken(value=f"token{self.count}", expires_at=expires_at)


def source_of(issuer: Issuer) -> TokenSource:
    """A source with the issuer's clock."""
    return TokenSource(issuer, wall=issuer.clock)


def jwt(claims: object) -> str:
    """A JSON Web Token with such claims."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()) for each in ({}, claims)]
    return b".".join([*parts, b"c2ln"]).decode().replace("=", "")


def test_a_token_is_used_until_most_of_its_life_has_passed() -> None:
    """A token is fetched once, and again after 80 % of its life."""
    issuer = Issuer(Clock())
    source = source_of(issuer)
    assert source.fresh() is None
    assert source.fetch().value == "token1"
    issuer.clock.now += 79
    assert source.fetch().value == "token1"
    assert source.fresh() is not None
    issuer.clock.now += 2
    assert source.fresh() is None
    assert source.fetch().value == "token2"


def test_an_old_token_is_used_while_no_new_one_can_be_had() -> None:
    """A function that fails costs nothing until the old token expires; then its error counts."""
    issuer = Issuer(Clock())
    source = source_of(issuer)
    source.fetch()
    issuer.error = OSError("the network is down")
    issuer.clock.now += 90
    assert source.fetch().value == "token1"
    issuer.clock.now += 11
    with pytest.raises(DisconnectedError, match="the network is down"):
        source.fetch()


def test_a_failure_stands_for_a_moment() -> None:
    """All brokers of a cluster ask at once: a function that failed is not called for each."""
    issuer = Issuer(Clock())
    issuer.error = OSError("down")
    source = source_of(issuer)
    for _ in range(3):
        with pytest.raises(DisconnectedError):
            source.fetch()
        issuer.error = None
    assert issuer.count == 0
    issuer.clock.now += FAILURE_S
    assert source.fetch().value == "token1"


def test_a_token_that_does_not_say_when_it_ends_is_used_once() -> None:
    """Without expires_at and without the claim exp, each connection gets a token of its own."""
    issuer = Issuer(Clock(), lifetime_s=None)
    source = source_of(issuer)
    assert [source.fetch().value, source.fetch().value] == ["token1", "token2"]


def test_a_json_web_token_says_when_it_expires() -> None:
    """The claim exp of a token is used where the function returns a plain text."""
    clock = Clock()
    source = TokenSource(lambda: jwt({"exp": clock.now + 10}), wall=clock)
    assert source.fetch().expires_at == clock.now + 10


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        "..",
        "a.!!.c",
        jwt([]),
        jwt({}),
        jwt({"exp": "1"}),
        jwt({"exp": True}),
        jwt({"exp": float("inf")}),
        jwt({"exp": 10**400}),
        jwt(None),
    ],
)
def test_other_texts_say_nothing_about_their_end(token: str) -> None:
    """A text that is no JSON Web Token, or has no time in exp, has no known end."""
    assert expiry_of(token) is None


async def later() -> str:
    """A token by a coroutine function."""
    return "from-a-coroutine"


def test_a_coroutine_function_is_awaited() -> None:
    """A token function may be a coroutine function; its result counts."""
    assert TokenSource(later).fetch().value == "from-a-coroutine"


def raising(error: Exception) -> TokenFunction:
    """A token function that raises."""

    def function() -> str:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising(KeyError("region")), "raised KeyError"),
        (lambda: None, "returned a NoneType"),
        (lambda: b"token", "has to return a str or an OAuthToken"),
        (lambda: "", "a token that is 0 characters long"),
        (lambda: "x" * 600_000, "a token that is 600000 characters long"),
        (lambda: "Bearer abc", "without 'Bearer '"),
        (lambda: "abc\n", "without line ends"),
        (lambda: OAuthToken(value="abc", expires_at=1.0), "expired"),
        (
            lambda: OAuthToken(value="abc", expires_at=cast("float", "soon")),
            "has to be seconds since 1970",
        ),
        (lambda: OAuthToken(value=cast("str", b"abc")), "a token that is a bytes"),
        (lambda: OAuthToken(value="abc", extensions={"auth": "x"}), "'auth' is no name"),
        (lambda: OAuthToken(value="abc", extensions={"a": "\x01"}), "printable ASCII"),
    ],
)
def test_a_function_that_gives_no_token_is_told(function: TokenFunction, said: str) -> None:
    """Each wrong result is a fatal error that names the setting and shows no token."""
    with pytest.raises(AuthenticationError, match=r"sasl\.oauth\.token|expires_at") as raised:
        TokenSource(function).fetch()
    assert said in str(raised.value)
    assert "abc" not in str(raised.value)


def test_threads_that_ask_at_once_share_one_token() -> None:
    """While a token is fetched, others wait for it, and the function is called once."""
    entered, release = threading.Event(), threading.Event()
    calls = []

    def slow() -> OAuthToken:
        calls.append(1)
        entered.set()
        assert release.wait(60)
        return OAuthToken(value="one", expires_at=2e10)

    source = TokenSource(slow)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(source.fetch().value)) for _ in range(5)
    ]
    for each in threads:
        each.start()
    assert entered.wait(60)
    release.set()
    for each in threads:
        each.join(60)
    assert (found, len(calls)) == (["one"] * 5, 1)


def test_the_first_message_is_that_of_the_standard() -> None:
    """Token and extensions are sent as RFC 7628 and KIP-342 say."""
    token = OAuthToken(value="abc", extensions={"traceId": "1", "logicalCluster": "lkc 2"})
    assert first_message(token) == (
        b"n,,\x01auth=Bearer abc\x01traceId=1\x01logicalCluster=lkc 2\x01\x01"
    )


def test_an_unsecured_token_is_kafkas() -> None:
    """It has no signature, the algorithm none, the claims, and the times of issue and expiry."""
    token = unsecured_token({"sub": "alice", "scope": ["a", "b"]}, lifetime_s=60, wall=lambda: 5.0)
    header, claims, signature = token.value.split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))) == {
        "sub": "alice", "scope": ["a", "b"], "iat": 5, "exp": 65.0,
    }  # fmt: skip
    assert (signature, token.expires_at, expiry_of(token.value)) == ("", 65.0, 65.0)


def test_an_unsecured_token_is_never_from_the_future() -> None:
    """A broker whose clock counts no fractions of a millisecond takes it at once."""
    token = unsecured_token({"sub": "alice"}, lifetime_s=60, wall=lambda: 5.0009)
    claims = token.value.split(".")[1]
    issued_at = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["iat"]
    assert issued_at * 1000 <= 5000


def test_a_token_is_not_shown() -> None:
    """The text of a token, as a log line could have it, has no value."""
    assert "secret" not in repr(OAuthToken(value="secret", expires_at=1.0))


class Gate:
    """A broker's side of OAUTHBEARER: `accepted` names the tokens that come in."""

    def __init__(
        self, broker: StandIn, accepts: Callable[[str], bool], *, lifetime_ms: int = 0
    ) -> None:
        self.accepts = accepts
        self.lifetime_ms = lifetime_ms
        self.messages: list[bytes] = []
        broker.rules[ApiKey.SASL_HANDSHAKE] = lambda asked: asked.answer(
            SaslHandshakeResponse(mechanisms=("OAUTHBEARER",))
        )
        broker.rules[ApiKey.SASL_AUTHENTICATE] = self._authenticate

    def _authenticate(self, asked: Asked) -> None:
        assert isinstance(asked.body, SaslAuthenticateRequest)
        message = bytes(asked.body.auth_bytes)
        self.messages.append(message)
        refusal = b'{"status":"invalid_token"}'
        if message == b"\x01":
            asked.answer(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=refusal.decode()
                )
            )
        elif self.accepts(message.split(b"Bearer ")[1].split(b"\x01")[0].decode()):
            asked.answer(SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms))
        else:
            asked.answer(SaslAuthenticateResponse(auth_bytes=refusal))


def with_tokens(
    function: TokenFunction, wall: Callable[[], float] = lambda: 1_000_000.0
) -> Security:
    """The login of a client with the tokens of a function."""
    source = TokenSource(function, wall=wall)
    return Security(login=OAuthLogin(source))


def test_a_client_logs_in_with_a_token() -> None:
    """The token of the function leads to a connection that takes requests."""
    with stage(with_tokens(lambda: "good")) as (outside, broker, client):
        gate = Gate(broker, {"good"}.__contains__)
        outside.run(client.become_ready(broker.node()))
        assert gate.messages == [b"n,,\x01auth=Bearer good\x01\x01"]


def test_a_token_that_is_refused_is_a_fatal_failure() -> None:
    """The failure has the broker's reason, after the byte that the standard asks for."""
    with stage(with_tokens(lambda: "bad")) as (outside, broker, client):
        gate = Gate(broker, {"good"}.__contains__)

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "invalid_token" in str(client.failure(node))
            assert "check the token" in str(client.failure(node))
            assert gate.messages[-1] == b"\x01"

        outside.run(main())


def test_a_broker_that_refuses_and_goes_on_is_not_trusted() -> None:
    """A broker that answers the last byte without an error does not get the client in."""
    login = OAuthLogin(TokenSource(lambda: "t")).tokens("broker")
    blocking = next(login)
    assert isinstance(blocking, Blocking)
    assert login.send(blocking.run()) == b"n,,\x01auth=Bearer t\x01\x01"
    assert login.send(b"no" * 5000) == b"\x01"
    with pytest.raises(AuthenticationError) as raised:
        login.send(b"")
    assert len(str(raised.value)) < 500


def test_a_function_that_fails_for_now_is_called_again() -> None:
    """An OSError of the function ends the attempt as disconnected, and a later one gets in."""
    fails = [OSError("no route"), None]

    def function() -> str:
        error = fails.pop(0) if fails else None
        if error is not None:
            raise error
        return "good"

    clock = Clock()
    with stage(with_tokens(function, clock)) as (outside, broker, client):
        Gate(broker, {"good"}.__contains__)

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), DisconnectedError)
            assert "no route" in str(client.failure(node))
            clock.now += FAILURE_S
            await client.become_ready(node)

        outside.run(main())


def test_a_function_that_ends_its_thread_is_told() -> None:
    """Even SystemExit of the function is an error of the login, not a wait without end."""

    def leave() -> str:
        raise SystemExit

    with stage(with_tokens(leave)) as (outside, broker, client):
        Gate(broker, {"good"}.__contains__)

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.settle()
            assert isinstance(client.failure(node), AuthenticationError)
            assert "SystemExit" in str(client.failure(node))

        outside.run(main())


def test_a_session_is_followed_by_one_with_a_new_token() -> None:
    """When the broker's session ends with the token, the next connection brings a newer one."""
    clock = Clock()
    issuer = Issuer(clock)
    with stage(with_tokens(issuer, clock)) as (outside, broker, client):
        gate = Gate(broker, lambda _: True, lifetime_ms=100_000)

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            clock.now += 85
            await client.pass_time(85)
            assert not client.nodes.is_ready(node.id, client.now)
            await client.become_ready(node)
            assert [each.split(b"Bearer ")[1][:6] for each in gate.messages] == [
                b"token1",
                b"token2",
            ]

        outside.run(main())


def test_a_function_that_does_not_return_is_named_when_the_connection_is_given_up() -> None:
    """The failure of a connection that waits for a token says what it waited for."""
    with stage(with_tokens(lambda: "good")) as (outside, broker, client):
        Gate(broker, {"good"}.__contains__)
        outside.network.run_beside = lambda *_: None  # type: ignore[method-assign]

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.pass_time(15)
            assert "setup.timeout.ms; sasl.oauth.token takes longer" in str(client.failure(node))

        outside.run(main())


def test_extensions_of_a_token_cannot_be_changed_by_default() -> None:
    """A token without extensions has an empty mapping that nobody can fill."""
    assert isinstance(OAuthToken(value="x").extensions, MappingProxyType)
