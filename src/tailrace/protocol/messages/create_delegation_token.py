"""CreateDelegationToken (38): makes a token that logs in for a user (KIP-48).

v2   flexible        v3   for another user (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableRenewers:
    """A user who may renew the token."""

    principal_type: str = wire("string")
    """Kind of the user: `User`."""
    principal_name: str = wire("string")
    """The user's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenRequest:
    """Make a token."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    owner_principal_type: str | None = wire("string", since=3, nullable_since=3)
    """Kind of the owner; None: the sender."""
    owner_principal_name: str | None = wire("string", since=3, nullable_since=3)
    """The owner's name; None: the sender."""
    renewers: tuple[CreatableRenewers, ...] = wire_array(CreatableRenewers)
    """Users that may renew it, besides the owner."""
    max_lifetime_ms: int = wire("int64")
    """Milliseconds in which it may be renewed; -1: the broker's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenResponse:
    """The token."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    error_code: int = wire("int16")
    """0, or the code of the error."""
    principal_type: str = wire("string")
    """Kind of the owner: `User`."""
    principal_name: str = wire("string")
    """The owner's name."""
    token_requester_principal_type: str = wire("string", since=3)
    """Kind of the user that requested the token: `User`."""
    token_requester_principal_name: str = wire("string", since=3)
    """Name of the user that requested the token."""
    issue_timestamp_ms: int = wire("int64")
    """Time at which it was made, in milliseconds since 1970."""
    expiry_timestamp_ms: int = wire("int64")
    """Time at which it expires, unless it is renewed."""
    max_timestamp_ms: int = wire("int64")
    """Time at which it can be renewed no more."""
    token_id: str = wire("string")
    """The token's id."""
    hmac: bytes = wire("bytes")
    """The secret part."""
    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
