"""Heartbeat (12): a member of a classic group is alive, and learns of a rebalance.

v1   throttle time                      v4   flexible
v3   static members (KIP-345)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """Keep this member in its group."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    group_id: str = wire("string")
    """The group."""
    generation_id: int = wire("int32")
    """Generation of the group."""
    member_id: str = wire("string")
    """The member."""
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The member's instance id, if it is static (KIP-345)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """Whether the member is still in its generation."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or REBALANCE_IN_PROGRESS: join again; or why it is no member."""
