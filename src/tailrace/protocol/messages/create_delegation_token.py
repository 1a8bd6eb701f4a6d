"""CreateDelegationToken (38): makes a token that logs in for a user (KIP-48).

v2   flexible        v3   for another user (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableRenewers:
    principal_type: str = wire("string")  # Kind of the user: `User`.
    principal_name: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenRequest:
    first_version, last_version, flexible_since = 1, 3, 2
    # Kind of the owner; None: the sender.
    owner_principal_type: str | None = wire("string", since=3, nullable_since=3)
    # The owner's name; None: the sender.
    owner_principal_name: str | None = wire("string", since=3, nullable_since=3)
    # Users that may renew it, besides the owner.
    renewers: tuple[CreatableRenewers, ...] = wire_array(CreatableRenewers)
    # Milliseconds in which it may be renewed; -1: the broker's limit.
    max_lifetime_ms: int = wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenResponse:
    first_version, last_version, flexible_since = 1, 3, 2
    error_code: int = wire("int16")
    principal_type: str = wire("string")  # Kind of the owner: `User`.
    principal_name: str = wire("string")
    token_requester_principal_type: str = wire("string", since=3)
    token_requester_principal_name: str = wire("string", since=3)
    issue_timestamp_ms: int = wire("int64")  # Time at which it was made; since 1970.
    expiry_timestamp_ms: int = wire("int64")  # Time at which it expires, unless it is renewed.
    max_timestamp_ms: int = wire("int64")  # Time at which it can be renewed no more.
    token_id: str = wire("string")
    hmac: bytes = wire("bytes")  # The secret part.
    throttle_time_ms: int = wire("int32")
