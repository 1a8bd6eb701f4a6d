"""OAUTHBEARER (RFC 7628): bearer tokens, the function that gets them, and their SASL messages.

    fetch (a function that may block) -> TokenSource -> OAuthLogin -> SASL messages

A token is used until 80 % of its life have passed, as in Kafka; then the next login waits for a new
one, on another thread. A broker with `connections.max.reauth.ms` ends a session no later than its
token, and the connection is replaced before that (`handshake.SESSION_SHARE`): so every session
begins with a token that lasts. If no new token can be had, the old one is used until it expires.

Not here: tokens from an identity provider; see `oidc`.
"""

import asyncio
import base64
import inspect
import json
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Final

from tailrace.client.errors import AuthenticationError, DisconnectedError, NodeError
from tailrace.client.nodes.sasl import Blocking, Tokens
from tailrace.errors import RetriableError, kind_of
from tailrace.values import dataclass, field

log = logging.getLogger(__name__)

REFRESH_SHARE: Final = 0.8
"""Fraction of a token's life after which a new one is fetched (Kafka:
sasl.login.refresh.window.factor)."""

PATIENCE_S: Final = 60.0
"""Longest time for which a login waits for another one that is fetching a token."""

FAILURE_S: Final = 1.0
"""Time for which a failure stands for the next attempts: all brokers of a cluster ask at once."""

TOKEN_BYTES_MAX: Final = 512 * 1024
"""Kafka's brokers receive no larger one (`sasl.server.max.receive.size`)."""

_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthToken:
    """A bearer token, as a token function returns it."""

    value: str
    """The token, for example a JSON Web Token."""
    expires_at: float | None = None
    """When it expires, in seconds since 1970-01-01 UTC; None: what the token itself says. If it
    says nothing, a new token is asked for with each connection."""
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """SASL extensions for the broker (KIP-342), by name."""

    def __repr__(self) -> str:
        return f"OAuthToken(expires_at={self.expires_at}, extensions={dict(self.extensions)})"


TokenFunction = Callable[[], OAuthToken | str | Awaitable[OAuthToken | str]]
"""Returns a token, or is a coroutine function that does; it is called on a thread of its own."""


class TokenSource:
    """The token of one client; any thread may ask for it."""

    def __init__(self, fetch: TokenFunction, *, wall: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._wall = wall
        self._lock = threading.Lock()
        """Held while a token is fetched."""
        self._token: OAuthToken | None = None
        self._refresh_at = 0.0
        self._failure: NodeError | None = None
        self._failed_at = 0.0

    def fresh(self) -> OAuthToken | None:
        """The token if there is one that need not be refreshed yet; never waits."""
        token = self._token
        return token if token is not None and self._wall() < self._refresh_at else None

    def fetch(self) -> OAuthToken:
        """The token; waits for a new one if it is old. For threads that may wait.

        Raises:
            DisconnectedError: no token could be had now; trying again may help.
            AuthenticationError: the function failed, or what it returned is no token.
        """
        # All brokers of a cluster ask at once; one of them fetches, and the others get its token.
        if not self._lock.acquire(timeout=PATIENCE_S):
            raise DisconnectedError(f"sasl.oauth.token has not returned for {PATIENCE_S:.0f} s")
        try:
            token = self.fresh()
            if token is not None:
                return token
            if self._failure is not None and 0 <= self._wall() - self._failed_at < FAILURE_S:
                raise self._failure
            return self._renew()
        finally:
            self._lock.release()

    def _renew(self) -> OAuthToken:
        try:
            token = _called(self._fetch)
            now = self._wall()
            expires_at = _checked_expiry(token, now)
        except NodeError as error:
            old = self._token
            now = self._wall()
            if old is not None and old.expires_at is not None and now < old.expires_at:
                log.warning("token_not_refreshed reason=%s", error)
                self._refresh_at = min(now + FAILURE_S, old.expires_at)
                return old
            self._failure, self._failed_at = error, now
            raise
        self._failure = None
        self._token = OAuthToken(
            value=token.value, expires_at=expires_at, extensions=token.extensions
        )
        # A token with an unknown end is not used again.
        self._refresh_at = 0.0 if expires_at is None else now + (expires_at - now) * REFRESH_SHARE
        return self._token


@dataclass(frozen=True, slots=True, eq=False)
class OAuthLogin:
    """The login with a bearer token."""

    source: TokenSource

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        return "OAUTHBEARER"

    @property
    def advice(self) -> str:
        """The settings to check when a broker refuses the login."""
        return "check the token: its issuer, audience, scope and expiry, and the broker's clock"

    def tokens(self, host: str) -> Tokens:
        """A new login; see `Login.tokens`."""
        del host
        token = self.source.fresh()
        if token is None:
            first = bytes((yield Blocking(self._fetch_first, "sasl.oauth.token")))
        else:
            first = first_message(token)
        refusal = bytes((yield first))
        if refusal:
            # RFC 7628: the broker says why, waits for this byte, and ends the login with an error.
            yield b"\x01"
            said = refusal[:200].decode(errors="replace")
            raise AuthenticationError(f"the broker refused the token: {said}; {self.advice}")

    def _fetch_first(self) -> bytes:
        return first_message(self.source.fetch())


def first_message(token: OAuthToken) -> bytes:
    """The client's first message, with the token and its extensions."""
    parts = [
        f"auth=Bearer {token.value}",
        *(f"{name}={each}" for name, each in token.extensions.items()),
    ]
    return b"n,,\x01" + "\x01".join(parts).encode() + b"\x01\x01"


def extension_fault(name: str, value: str) -> str | None:
    """The reason why this is no SASL extension; None: it is one."""
    if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
        return f"{name[:40]!r} is no name of an extension; it has letters only, and is not 'auth'"
    if not _EXTENSION_VALUE.fullmatch(value):
        return f"the value of {name} has to be printable ASCII, and not empty"
    return None


def expiry_of(token: str) -> float | None:
    """When a JSON Web Token expires by its claim `exp`, in Unix seconds; None if it says nothing.

    The signature is not checked: that is the broker's part.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        # A token that is no JSON Web Token is no error: it is opaque, and the broker asks its
        # issuer.
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires_at = claims["exp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        return None
    try:
        seconds = float(expires_at)
    except OverflowError:
        return None
    return seconds if isfinite(seconds) else None


def unsecured_token(
    claims: Mapping[str, object],
    *,
    lifetime_s: float,
    extensions: Mapping[str, str] = MappingProxyType({}),
    wall: Callable[[], float] = time.time,
) -> OAuthToken:
    """A JSON Web Token without a signature, for development: brokers have to allow it.

    It is the token of Kafka's default login module for OAUTHBEARER.
    """
    now = wall()
    # Kafka refuses a token from the future, and its own clock has no fraction of a millisecond.
    parts = ({"alg": "none"}, {**claims, "iat": int(now), "exp": now + lifetime_s})
    value = "".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") + "."
        for each in parts
    )
    return OAuthToken(value=value, expires_at=now + lifetime_s, extensions=extensions)


def _called(fetch: TokenFunction) -> OAuthToken:
    """Call the user's function; returns its result as an `OAuthToken`."""
    try:
        given = fetch()
        if inspect.isawaitable(given):
            # A loop of its own: this is a thread of its own, and the user's loop may be the one
            # that waits.
            given = asyncio.run(_awaited(given))
    except NodeError:
        raise
    # The network of the user's function: it may be back for the next connection.
    except (OSError, RetriableError) as error:
        raise DisconnectedError(
            f"sasl.oauth.token raised {error!r}; it is called again with the next connection"
        ) from error
    except Exception as error:
        raise AuthenticationError(f"sasl.oauth.token raised {error!r}") from error
    if isinstance(given, str):
        return OAuthToken(value=given)
    if not isinstance(given, OAuthToken):
        raise AuthenticationError(
            f"sasl.oauth.token returned {kind_of(given)}; it has to return a str or an OAuthToken"
        )
    return given


async def _awaited(given: Awaitable[OAuthToken | str]) -> OAuthToken | str:
    return await given


def _checked_expiry(token: OAuthToken, now: float) -> float | None:
    """When the token expires, if that is known; raises AuthenticationError if it is no token."""
    value: object = token.value
    expires_at: object = token.expires_at
    if not isinstance(value, str) or not value or len(value) > TOKEN_BYTES_MAX:
        size = f"{len(value)} characters long" if isinstance(value, str) else kind_of(value)
        raise AuthenticationError(
            f"sasl.oauth.token returned a token that is {size}; a str of 1 to {TOKEN_BYTES_MAX} "
            "is sent"
        )
    # A token with a control character could put fields of its own into the message (RFC 6750, 2.1).
    if not _TOKEN.fullmatch(value):
        raise AuthenticationError(
            "sasl.oauth.token returned a token with characters that no bearer token has; give it "
            "without 'Bearer ' and without line ends"
        )
    for name, text in token.extensions.items():
        fault = extension_fault(name, text)
        if fault:
            raise AuthenticationError(f"sasl.oauth.token returned an extension: {fault}")
    if expires_at is None:
        expires_at = expiry_of(value)
    elif isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        raise AuthenticationError(
            f"expires_at of the token is {kind_of(expires_at)}; it has to be seconds since 1970"
        )
    if expires_at is not None and expires_at <= now:
        raise AuthenticationError(
            f"sasl.oauth.token returned a token that expired {now - expires_at:.0f} s ago; check "
            "this machine's clock"
        )
    return expires_at
