"""A broker's side of OAUTHBEARER, message by message, and against our own client."""

import pytest

from tailrace.client.nodes import AuthenticationError
from tailrace.client.nodes.oauth import OAuthLogin, OAuthToken, TokenSource
from tailrace.client.nodes.sasl import Blocking
from tailrace.security.exchange import Granted, RefusedLoginError
from tailrace.security.oauthbearer import (
    FirstMessage,
    InvalidTokenError,
    OAuthBearer,
    ValidToken,
    read_first_message,
)
from tests.unit.security.exchanges import Running, granted, log_in

REFUSAL = b'{"status":"invalid_token"}'


def check(token: str) -> ValidToken:
    """Grants the token `good` to alice."""
    if token == "scope":
        raise InvalidTokenError("it lacks a scope", user="alice", scope="r w")
    if token != "good":
        raise InvalidTokenError("it expired", user="alice")
    return ValidToken("alice", 100.0)


SERVER = OAuthBearer(check)


def first(token: str = "good", *, identity: str = "", more: str = "") -> bytes:
    """A client's first message."""
    return f"n,{identity},\x01auth=Bearer {token}\x01{more}\x01".encode()


@pytest.mark.parametrize("server", [SERVER, OAuthBearer(check, is_quick=True)])
def test_a_good_token_logs_in_until_it_expires(server: OAuthBearer) -> None:
    """The login has the name of the token, and ends with it."""
    assert granted(server.exchange(first())) == Granted("alice", expires_at=100.0)


def test_our_client_logs_in() -> None:
    """Our client's token and extensions are taken."""
    token = OAuthToken(value="good", expires_at=2e9, extensions={"traceId": "1 2"})
    client = OAuthLogin(TokenSource(lambda: token)).tokens("b")
    assert log_in(client, SERVER.exchange)[0].name == "alice"


def test_our_client_learns_the_status() -> None:
    """A token that is refused takes two messages, and our client shows the status."""
    client = OAuthLogin(TokenSource(lambda: OAuthToken(value="old", expires_at=2e9))).tokens("b")
    fetched = next(client)
    assert isinstance(fetched, Blocking)
    running = Running(SERVER.exchange(bytes(client.send(fetched.run()))))  # type: ignore[arg-type]
    answer = running.take()
    assert isinstance(answer, bytes)
    assert client.send(answer) == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        client.send(b"")


def test_a_bad_token_is_refused_after_the_clients_answer() -> None:
    """The status comes as a token first, and with the error only after the client's answer."""
    running = Running(SERVER.exchange(first("old")))
    assert running.take() == REFUSAL
    with pytest.raises(RefusedLoginError) as refused:
        running.take(b"\x01")
    assert refused.value.message == REFUSAL.decode()
    assert (refused.value.reason, refused.value.user) == ("it expired", "alice")


def test_another_answer_gets_no_status() -> None:
    """A client that answers the refusal with something else learns nothing more."""
    running = Running(SERVER.exchange(first("old")))
    running.take()
    with pytest.raises(RefusedLoginError) as refused:
        running.take(first())
    assert refused.value.message is None


def test_a_missing_scope_has_its_own_status() -> None:
    """The client is sent the scopes that are needed."""
    expected = b'{"status":"insufficient_scope", "scope":"r w"}'
    assert Running(SERVER.exchange(first("scope"))).take() == expected


@pytest.mark.parametrize("identity", ["a=alice", ""])
def test_the_identity_of_the_token_may_be_asked_for(identity: str) -> None:
    """A client may name the identity that the token has."""
    assert granted(SERVER.exchange(first(identity=identity))).name == "alice"


def test_another_identity_is_refused() -> None:
    """A client that asks for another identity than the token's learns both."""
    with pytest.raises(RefusedLoginError) as refused:
        Running(SERVER.exchange(first(identity="a=bob"))).take()
    assert "authorization id (bob) that is different" in str(refused.value.message)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"n,,\x01auth=Bearer 1.2.3\x01\x01", FirstMessage("1.2.3", "", {})),
        (b"n,,\x01auth=bEARER  a==\x01\x01", FirstMessage("a==", "", {})),
        (b"n,a=user@x,\x01b=1\x01auth=Bearer a\x01c=d=e f\t\x01\x01",
         FirstMessage("a", "user@x", {"b": "1", "c": "d=e f\t"})),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer a\x01\x01", FirstMessage("a", "a,b=", {})),
    ],
)  # fmt: skip
def test_first_messages_that_are_read(message: bytes, found: FirstMessage) -> None:
    """Kafka's first messages are read, with identity and extensions."""
    assert read_first_message(message) == found


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Bearer a\x01", b"n,\x01auth=Bearer a\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Basic a\x01\x01", b"n,,\x01auth=a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01Auth=Bearer a\x01\x01", b"n,,\x01auth=Bearer a\x01b1=c\x01\x01",
        b"n,,\x01auth=Bearer a\x01b=\x01\x01", b"n,,\x01auth=Bearer a\x01b=\x00\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01x", "n,,\x01auth=Bearer \xfc\x01\x01".encode(),
    ],
)  # fmt: skip
def test_first_messages_that_are_refused(message: bytes) -> None:
    """Other messages are refused at once, and the client learns no more than that."""
    with pytest.raises(RefusedLoginError, match="OAUTHBEARER message") as refused:
        Running(SERVER.exchange(message)).take()
    assert refused.value.message is None
