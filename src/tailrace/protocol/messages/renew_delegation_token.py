"""RenewDelegationToken (39): moves the time at which a token expires (KIP-48).

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationTokenRequest:
    first_version, last_version, flexible_since = 1, 2, 2
    hmac: bytes = wire("bytes")  # The token's secret part.
    renew_period_ms: int = wire("int64")  # Milliseconds that it is valid from now on.


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationTokenResponse:
    first_version, last_version, flexible_since = 1, 2, 2
    error_code: int = wire("int16")
    expiry_timestamp_ms: int = wire("int64")  # Time at which it expires; since 1970.
    throttle_time_ms: int = wire("int32")
