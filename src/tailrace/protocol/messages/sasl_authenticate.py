"""SaslAuthenticate (36): one token of a SASL mechanism in each direction.

v1   lifetime of the session (KIP-368)  v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    first_version, last_version, flexible_since = 0, 2, 2
    auth_bytes: bytes = wire("bytes")  # The token, in the mechanism's own format.


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    first_version, last_version, flexible_since = 0, 2, 2
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    auth_bytes: bytes = wire("bytes")  # The token, in the mechanism's own format.
    # Time until the client has to authenticate again; 0: never.
    session_lifetime_ms: int = wire("int64", since=1)
