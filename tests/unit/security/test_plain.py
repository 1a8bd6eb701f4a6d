"""A broker's side of PLAIN."""

import pytest

from tailrace.client.nodes import Credentials
from tailrace.security.exchange import RefusedLoginError
from tailrace.security.plain import Plain
from tests.unit.security.exchanges import calls_until_refused, granted, log_in

USERS = {"alice": "alice-secret", "bob": "wörd", "empty": ""}


def test_a_user_with_the_right_password_logs_in() -> None:
    """Name and password of the settings log in, also those that are not ASCII."""
    assert granted(Plain(USERS).exchange(b"\0alice\0alice-secret")).name == "alice"
    assert granted(Plain(USERS).exchange("\0bob\0wörd".encode())).name == "bob"


def test_our_client_logs_in() -> None:
    """Our client's only token is taken."""
    client = Credentials(mechanism="PLAIN", username="bob", password="wörd").tokens("b")
    assert log_in(client, Plain(USERS).exchange)[0].name == "bob"


def test_an_identity_that_is_the_user_is_taken() -> None:
    """A client may ask for the identity that it has anyway."""
    assert granted(Plain(USERS).exchange(b"alice\0alice\0alice-secret")).name == "alice"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"bob\0alice\0alice-secret", "authorization id that is different from username"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0carol\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"bob\0carol\0x", "Authentication failed: Invalid username or password"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 100, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\xff\0\xfe", "Authentication failed: Invalid username or password"),
    ],
)
def test_the_client_is_refused_in_kafkas_words(token: bytes, message: str) -> None:
    """The client gets the messages of Kafka's PlainSaslServer."""
    with pytest.raises(RefusedLoginError) as refused:
        granted(Plain(USERS).exchange(token))
    assert message in str(refused.value.message)


def test_only_the_log_tells_whether_a_user_exists() -> None:
    """An unknown user and a wrong password differ in the reason for the operator alone."""
    refusals = []
    for token in (b"\0alice\0wrong", b"\0carol\0wrong"):
        with pytest.raises(RefusedLoginError) as refused:
            granted(Plain(USERS).exchange(token))
        refusals.append(refused.value)
    assert refusals[0].message == refusals[1].message
    assert [each.reason for each in refusals] == ["the password is wrong", "there is no such user"]


def test_an_unknown_user_costs_the_same_work() -> None:
    """The broker makes the same calls in the same order, so the time of an answer says nothing."""
    mechanism = Plain(USERS)
    known, unknown = (
        calls_until_refused(mechanism.exchange(token))
        for token in (b"\0alice\0wrong-secret", b"\0carol\0alice-secret")
    )
    assert known == unknown
    assert "compare_digest" in "".join(unknown)
