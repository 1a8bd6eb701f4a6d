"""SASL mechanisms, token by token."""

import base64

import pytest

from tailrace.client.nodes import AuthenticationError, Credentials
from tailrace.client.nodes.sasl import ITERATIONS_MAX, MECHANISMS, Tokens, plain, scram
from tailrace.errors import ConfigError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def credentials(
    mechanism: str = "SCRAM-SHA-256", username: str = "user", password: str = "pencil"
) -> Credentials:
    """Return credentials; by default those of the example in RFC 7677."""
    return Credentials(mechanism=mechanism, username=username, password=password)


def started() -> Tokens:
    """The example's login after the client's first message."""
    tokens = scram(credentials(), nonce=lambda: NONCE)
    assert next(tokens) == f"n,,n=user,r={NONCE}".encode()
    return tokens


def finished() -> Tokens:
    """The example's login after the client's final message."""
    tokens = started()
    final = tokens.send(f"r={SERVER_NONCE},s={SALT},i=4096".encode())
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    return tokens


def test_the_example_of_the_standard() -> None:
    """Every message of the example in RFC 7677 is as it is printed there."""
    with pytest.raises(StopIteration):
        finished().send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "final",
    [
        b"v=" + base64.b64encode(bytes(32)),
        b"v=",
        b"x=1",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=",
    ],
)
def test_a_broker_that_does_not_know_the_password_is_found_out(final: bytes) -> None:
    """A broker whose signature is wrong or missing is not logged in to."""
    with pytest.raises(AuthenticationError, match="could not prove"):
        finished().send(final)


@pytest.mark.parametrize("stage", [started, finished])
def test_a_refusal_says_what_to_change(stage: object) -> None:
    """The broker's error comes with the settings that may cause it."""
    assert callable(stage)
    with pytest.raises(AuthenticationError, match=r"invalid-proof.*sasl\.password"):
        stage().send(b"e=invalid-proof")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff\xfe",
        b"garbage",
        b"r=,s=,i=",
        f"r={SERVER_NONCE},s={SALT}".encode(),
        f"r={SERVER_NONCE},s={SALT},i=many".encode(),
        f"r={SERVER_NONCE},s=***,i=4096".encode(),
        f"r={NONCE},s={SALT},i=4096".encode(),
        f"r=other{SERVER_NONCE},s={SALT},i=4096".encode(),
        f"r={SERVER_NONCE},s={SALT},i=4095".encode(),
        f"r={SERVER_NONCE},s={SALT},i={ITERATIONS_MAX + 1}".encode(),
        f"r={SERVER_NONCE},s={SALT},i=-4096".encode(),
    ],
)
def test_a_challenge_that_breaks_the_rules_is_refused(challenge: bytes) -> None:
    """Anything but a complete, fresh challenge with a sane number of iterations ends the login."""
    with pytest.raises(AuthenticationError):
        started().send(challenge)


def test_names_are_escaped() -> None:
    """A user name with SCRAM's own separators is sent escaped."""
    first = next(scram(credentials(username="a=b,c"), nonce=lambda: NONCE))
    assert first == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_no_two_logins_share_a_nonce() -> None:
    """Each login begins with a nonce of its own."""
    assert len({next(scram(credentials())) for _ in range(20)}) == 20


def test_plain_says_name_and_password() -> None:
    """PLAIN sends one token without an authorization id and accepts any answer."""
    tokens = plain(credentials("PLAIN", username="ü", password="pass word"))
    assert next(tokens) == "\0ü\0pass word".encode()
    with pytest.raises(StopIteration):
        tokens.send(b"")


def test_credentials_that_cannot_be_used_are_refused_at_once() -> None:
    """An unknown mechanism or a text that cannot be encoded fails before any connection."""
    with pytest.raises(ConfigError, match=r"sasl\.mechanism: GSSAPI.*PLAIN"):
        credentials("GSSAPI")
    with pytest.raises(ConfigError, match=r"sasl\.username.*sasl\.password"):
        credentials(username="\ud800", password="a\0b")


def test_a_password_is_not_shown() -> None:
    """The text of credentials, as a log line could have it, has no password."""
    assert "pencil" not in repr(credentials())
    assert set(MECHANISMS) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
