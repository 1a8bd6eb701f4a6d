"""Tokens from an identity provider: OAuth 2's grant of client credentials (RFC 6749, 4.4).

    POST token endpoint, grant_type=client_credentials  ->  {"access_token": ..., "expires_in": ...}

`ClientCredentials.fetch` blocks, so it runs on a thread of its own (`oauth.TokenSource`). It tries
again after errors that may pass, for `retry_backoff_max_ms` altogether, as Kafka's client does.

Invariant: whatever the endpoint sends, `fetch` ends with a token or one error, within the time
limits, and holds `BODY_BYTES_MAX` of it besides the headers. A redirect is not followed: the
request has a secret, which is for the configured address alone.
"""

import base64
import json
import math
import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from tailrace.client.errors import AuthenticationError, DisconnectedError
from tailrace.client.nodes.oauth import OAuthToken
from tailrace.security.http_request import HttpAnswer, OversizedAnswerError, http_request
from tailrace.values import dataclass, field

BODY_BYTES_MAX: Final = 256 * 1024
"""Largest answer that is read; a token has a few kilobytes."""

_RETRIABLE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_SAID_MAX: Final = 200
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The client that asks a token endpoint, and its time limits."""

    url: str
    """`sasl.oauthbearer.token.endpoint.url`; see `endpoint_fault`."""
    client_id: str
    """The client's name at the provider."""
    client_secret: str
    """Its secret."""
    scope: str = ""
    """Scopes that are asked for, with spaces between."""
    encodes_header: bool = False
    """Whether id and secret are URL-encoded in the header (`sasl.oauthbearer.header.urlencode`)."""
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """SASL extensions for the broker, by name."""
    context: ssl.SSLContext | None = None
    """Checks the endpoint's certificate; None: against the authorities of the system."""
    connect_timeout_ms: int = 10_000
    """Time for a connection to the endpoint."""
    read_timeout_ms: int = 10_000
    """Time from then to the end of its answer."""
    retry_backoff_ms: int = 100
    """Pause before the first retry; doubled for each further one."""
    retry_backoff_max_ms: int = 10_000
    """Time after which a failed fetch is not tried again."""
    sleep: Callable[[float], None] = time.sleep
    """Waits between two attempts."""

    def __repr__(self) -> str:
        return f"ClientCredentials({self.url}, {self.client_id!r})"

    def fetch(self) -> OAuthToken:
        """A new token.

        Raises:
            DisconnectedError: the endpoint cannot be reached, or cannot answer now.
            AuthenticationError: it refuses, or its answer is no token.
        """
        pause_s = self.retry_backoff_ms / 1000
        left_s = self.retry_backoff_max_ms / 1000
        while True:
            try:
                return self._ask()
            except DisconnectedError:
                if left_s <= 0:
                    raise
                self.sleep(min(pause_s, left_s))
                left_s -= max(pause_s, 0.001)
                pause_s *= 2

    def _ask(self) -> OAuthToken:
        asked_at = time.time()
        try:
            status, location, body = self._post(self.url)
        except OversizedAnswerError:
            raise AuthenticationError(
                f"the token endpoint {self.url} answers with more than {BODY_BYTES_MAX} bytes; is "
                "it a token endpoint?"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"the token endpoint {self.url} is not trusted: {error.verify_message}; give its "
                "authorities with https.ca.location"
            ) from error
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise DisconnectedError(
                f"the token endpoint {self.url} gives no answer: {reason[:_SAID_MAX]}; check "
                "sasl.oauthbearer.token.endpoint.url"
            ) from error
        # These may pass; whatever else is refused stays refused.
        if status in _RETRIABLE:
            raise DisconnectedError(f"the token endpoint {self.url} answers {_told(status, body)}")
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise AuthenticationError(
                f"the token endpoint {self.url} redirects to {location[:_SAID_MAX]!r}, which is "
                "not followed; if that is right, set sasl.oauthbearer.token.endpoint.url to it"
            )
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise AuthenticationError(
                f"the token endpoint {self.url} answers {_told(status, body)}; check the client "
                "id, the client secret and sasl.oauthbearer.scope"
            )
        try:
            value, lifetime_s = read_token(body)
        except ValueError as error:
            raise AuthenticationError(f"the token endpoint {self.url}: {error}") from error
        expires_at = None if lifetime_s is None else asked_at + lifetime_s
        return OAuthToken(value=value, expires_at=expires_at, extensions=self.extensions)

    def _post(self, url: str) -> HttpAnswer:
        grant = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {
            "Accept": "application/json",
            "Authorization": self._authorization(),
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return http_request(
            "POST", url, headers=headers, body=urlencode(grant), context=self.context,
            connect_timeout_s=self.connect_timeout_ms / 1000,
            read_timeout_s=self.read_timeout_ms / 1000, bytes_max=BODY_BYTES_MAX,
        )  # fmt: skip

    def _authorization(self) -> str:
        names = [self.client_id, self.client_secret]
        # RFC 6749 asks for it, most providers do without, and Kafka made it a setting (KIP-1025).
        if self.encodes_header:
            names = [quote_plus(each) for each in names]
        return "Basic " + base64.b64encode(":".join(names).encode()).decode()


def endpoint_fault(url: str) -> str | None:
    """The reason why this is no address of a token endpoint; None: it is one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"{url[:80]!r} is no URL: {error}"
    if (
        parts.scheme not in {"http", "https"}
        or not host
        or not (url.isascii() and url.isprintable())
    ):
        return f"{url[:80]!r} is no URL; it has to begin with https://HOST/"
    # RFC 6749, 2.3.1, asks for TLS; a test or a sidecar on this machine has none.
    if parts.scheme == "http" and host not in _LOOPBACK:
        return "the client secret would travel in the clear; http:// is for this machine alone"
    if parts.username is not None:
        return "it has a user name; give the client id and secret in their own settings"
    return None


def read_token(body: bytes) -> tuple[str, float | None]:
    """Token and lifetime in seconds, if it is given, from the answer of a token endpoint.

    Raises:
        ValueError: it is no such answer; the message does not show it, as it may have a secret.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    value = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("the answer has no access_token")
    lifetime = answer.get("expires_in")
    if lifetime is None:
        return value.strip(), None
    try:
        # Some providers send the number as text.
        seconds = math.nan if isinstance(lifetime, bool) else float(lifetime)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError("expires_in of the answer is no number of seconds")
    return value.strip(), seconds


def _told(status: int, body: bytes) -> str:
    """The status, and the reason that the answer has by RFC 6749."""
    try:
        answer = json.loads(body)
        said = [answer[name] for name in ("error", "error_description") if name in answer]
    except (ValueError, RecursionError, TypeError):
        said = []
    text = ": ".join(each for each in said if isinstance(each, str))
    return f"with status {status}" + (f": {text[:_SAID_MAX]}" if text else "")
