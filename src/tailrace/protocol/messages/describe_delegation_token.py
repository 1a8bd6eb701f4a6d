"""DescribeDelegationToken (41): the tokens of users (KIP-48).

v2   flexible        v3   the user that requested each (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelegationTokenOwner:
    principal_type: str = wire("string")  # Kind of the user: `User`.
    principal_name: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelegationTokenRequest:
    first_version, last_version, flexible_since = 1, 3, 2
    # The users; None: all.
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = wire_array(
        DescribeDelegationTokenOwner, nullable_since=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDelegationTokenRenewer:
    principal_type: str = wire("string")  # Kind of the user: `User`.
    principal_name: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDelegationToken:
    principal_type: str = wire("string")  # Kind of the user: `User`.
    principal_name: str = wire("string")
    token_requester_principal_type: str = wire("string", since=3)
    token_requester_principal_name: str = wire("string", since=3)
    issue_timestamp: int = wire("int64")  # Time at which it was made, in ms since 1970.
    expiry_timestamp: int = wire("int64")  # Time at which it expires, unless it is renewed.
    max_timestamp: int = wire("int64")  # Time at which it can be renewed no more.
    token_id: str = wire("string")
    hmac: bytes = wire("bytes")  # The secret part.
    # Users that may renew it, besides the owner.
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire_array(
        DescribedDelegationTokenRenewer
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelegationTokenResponse:
    first_version, last_version, flexible_since = 1, 3, 2
    error_code: int = wire("int16")
    tokens: tuple[DescribedDelegationToken, ...] = wire_array(DescribedDelegationToken)
    throttle_time_ms: int = wire("int32")
