"""DescribeDelegationToken (41): the tokens of users (KIP-48).

v2   flexible        v3   the user that requested each (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelegationTokenOwner:
    """A user whose tokens are asked for."""

    principal_type: str = wire("string")
    """Kind of the user: `User`."""
    principal_name: str = wire("string")
    """The user's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelegationTokenRequest:
    """Show the tokens of these users."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    owners: tuple[DescribeDelegationTokenOwner, ...] | None = wire_array(
        DescribeDelegationTokenOwner, nullable_since=0
    )
    """The users; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDelegationTokenRenewer:
    """A user who may renew the token."""

    principal_type: str = wire("string")
    """Kind of the user: `User`."""
    principal_name: str = wire("string")
    """The user's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDelegationToken:
    """A token."""

    principal_type: str = wire("string")
    """Kind of the user: `User`."""
    principal_name: str = wire("string")
    """The user's name."""
    token_requester_principal_type: str = wire("string", since=3)
    """Kind of the user that requested the token: `User`."""
    token_requester_principal_name: str = wire("string", since=3)
    """Name of the user that requested the token."""
    issue_timestamp: int = wire("int64")
    """Time at which it was made, in milliseconds since 1970."""
    expiry_timestamp: int = wire("int64")
    """Time at which it expires, unless it is renewed."""
    max_timestamp: int = wire("int64")
    """Time at which it can be renewed no more."""
    token_id: str = wire("string")
    """The token's id."""
    hmac: bytes = wire("bytes")
    """The secret part."""
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire_array(
        DescribedDelegationTokenRenewer
    )
    """Users that may renew it, besides the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelegationTokenResponse:
    """The tokens."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    error_code: int = wire("int16")
    """0, or the code of the error."""
    tokens: tuple[DescribedDelegationToken, ...] = wire_array(DescribedDelegationToken)
    """The tokens, without an order."""
    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
