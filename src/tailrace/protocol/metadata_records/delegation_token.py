"""Records of type 10 of `__cluster_metadata`: delegation tokens (KIP-48)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord:
    """A token; its secret is computed from its id. Times are in milliseconds since 1970."""

    record_type: ClassVar[int] = 10
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    owner: str = wire("string")
    """The user that it stands for."""
    requester: str = wire("string")
    """The user that asked for it."""
    renewers: tuple[str, ...] = wire_array("string")
    """Users that may renew it."""
    issue_timestamp: int = wire("int64")
    """Time at which it was issued."""
    max_timestamp: int = wire("int64")
    """Time behind which it cannot be renewed."""
    expiration_timestamp: int = wire("int64")
    """Time at which it expires."""
    token_id: str = wire("string")
    """The token."""
