"""OAUTHBEARER (RFC 7628), a broker's side: the client's first message, and what a token grants.

    n,a=IDENTITY,^Aauth=Bearer TOKEN^ANAME=VALUE^A^A       ^A is the byte 1; a=IDENTITY is optional

A token that is not valid is no error at first: the client is sent a JSON object with the status,
answers with ^A, and gets that object again with the error, as from Kafka's OAuthBearerSaslServer.

Not here: what makes a token valid; see `tokens`.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tailrace.errors import FatalError
from tailrace.security.exchange import (
    Exchange,
    Granted,
    RefusedLoginError,
    Work,
    client_error,
)

# As Kafka's OAuthBearerClientInitialResponse.
_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<identity>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"([A-Za-z0-9_]+) +([-_~+/.A-Za-z0-9]+=*)")
_ANSWER_TO_REFUSAL: Final = b"\x01"


class FirstMessage(NamedTuple):
    """The parts of a client's first message."""

    token: str
    identity: str
    """The name for which the client asks; empty: that of the token."""
    extensions: Mapping[str, str]
    """Further values by name, which nothing here uses (KIP-342)."""


class ValidToken(NamedTuple):
    """The name and the end of a token that was checked."""

    name: str
    """The user's name."""
    expires_at: float
    """Unix seconds."""
    token_id: str = ""
    """Its claim `jti`, for the log; empty: it has none."""


class InvalidTokenError(FatalError):
    """A token that grants nothing."""

    def __init__(self, reason: str, *, user: str = "", scope: str = "") -> None:
        self.reason = reason
        """Why, for the log of the broker; without the token."""
        self.user = user
        """The name in it, which may be made up."""
        self.scope = scope
        """Scopes that it lacks; the client is sent them."""
        super().__init__(reason)


class OAuthBearer:
    """The mechanism, for the tokens of one listener."""

    name: Final = "OAUTHBEARER"

    def __init__(self, check: Callable[[str], ValidToken], *, is_quick: bool = False) -> None:
        """`check` raises an InvalidTokenError; if it is not quick, it is called on a thread."""
        self._check = check
        self._is_quick = is_quick

    def exchange(self, first: bytes) -> Exchange:
        """A new login; see `ServerMechanism.exchange`."""
        try:
            message = read_first_message(first)
        except ValueError as error:
            raise RefusedLoginError(str(error)) from error
        token: ValidToken | InvalidTokenError
        if self._is_quick:
            token = self._check_or_refusal(message.token)
        else:
            token = yield Work(lambda: self._check_or_refusal(message.token))
        if isinstance(token, InvalidTokenError):
            # As in Kafka: the client has to ask for the error by a second message.
            said = {"status": "insufficient_scope" if token.scope else "invalid_token"}
            if token.scope:
                said["scope"] = token.scope
            text = json.dumps(said, separators=(", ", ":"))
            answer = bytes((yield text.encode()))
            message_to_client = text if answer == _ANSWER_TO_REFUSAL else None
            raise RefusedLoginError(token.reason, user=token.user, message=message_to_client)
        if message.identity and message.identity != token.name:
            # Kafka names both; the client has signed proof of the one and has given the other.
            raise client_error(
                f"Authentication failed: Client requested an authorization id "
                f"({message.identity[:200]}) that is different from the token's principal name "
                f"({token.name})",
                user=token.name,
            )
        return Granted(token.name, expires_at=token.expires_at)

    def _check_or_refusal(self, token: str) -> ValidToken | InvalidTokenError:
        try:
            return self._check(token)
        except InvalidTokenError as error:
            return error


def read_first_message(message: bytes) -> FirstMessage:
    """Read a client's first message.

    Raises:
        ValueError: it has another form than RFC 7628, or no bearer token.
    """
    found = _FIRST.fullmatch(message)
    if found is None:
        raise ValueError("the OAUTHBEARER message has another form than RFC 7628")
    pairs = (each.partition("=") for each in found["pairs"].decode().split("\x01") if each)
    # Of a name that is there twice the last value counts, as in Kafka.
    values = {name: value for name, _, value in pairs}
    auth = _AUTH.fullmatch(values.pop("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise ValueError("the OAUTHBEARER message has no bearer token")
    identity = (found["identity"] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    return FirstMessage(auth[2], identity, values)
