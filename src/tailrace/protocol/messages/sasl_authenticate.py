"""SaslAuthenticate (36): one token of a SASL mechanism in each direction.

v1   lifetime of the session (KIP-368)  v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """The client's token."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    auth_bytes: bytes = wire("bytes")
    """The token, in the mechanism's own format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """The broker's token."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    error_code: int = wire("int16")
    """0, or why the authentication failed."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    auth_bytes: bytes = wire("bytes")
    """The token, in the mechanism's own format."""
    session_lifetime_ms: int = wire("int64", since=1)
    """Time until the client has to authenticate again, in milliseconds; 0: never."""
