"""Heartbeat (12): a member of a classic group is alive, and learns of a rebalance.

v1   throttle time                      v4   flexible
v3   static members (KIP-345)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    first_version, last_version, flexible_since = 0, 4, 4
    group_id: str = wire("string")
    generation_id: int = wire("int32")
    member_id: str = wire("string")
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    first_version, last_version, flexible_since = 0, 4, 4
    throttle_time_ms: int = wire("int32", since=1)
    # 0, or REBALANCE_IN_PROGRESS: join again; or why it is no member.
    error_code: int = wire("int16")
