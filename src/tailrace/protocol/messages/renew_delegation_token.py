"""RenewDelegationToken (39): moves the time at which a token expires (KIP-48).

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationTokenRequest:
    """Renew a token."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    hmac: bytes = wire("bytes")
    """The token's secret part."""
    renew_period_ms: int = wire("int64")
    """Milliseconds that it is valid from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationTokenResponse:
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
