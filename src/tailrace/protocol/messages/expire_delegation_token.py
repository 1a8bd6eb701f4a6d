"""ExpireDelegationToken (40): ends a token (KIP-48).

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationTokenRequest:
    """End a token."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    hmac: bytes = wire("bytes")
    """The token's secret part."""
    expiry_time_period_ms: int = wire("int64")
    """Milliseconds that it stays valid; below 0: it ends now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationTokenResponse:
    """The new time."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    error_code: int = wire("int16")
    """0, or the code of the error."""
    expiry_timestamp_ms: int = wire("int64")
    """Time at which it expires, in milliseconds since 1970."""
    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
