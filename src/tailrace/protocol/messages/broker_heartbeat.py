"""BrokerHeartbeat (63): a broker says to the active controller that it is alive (KIP-631).

v1   directories that have failed (KIP-858)    v2   directories without new logs (KIP-1066)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    first_version, last_version, flexible_since = 0, 2, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)  # Epoch of the broker's registration.
    current_metadata_offset: int = wire("int64")
    want_fence: bool = wire("bool")
    want_shut_down: bool = wire("bool")
    offline_log_dirs: tuple[UUID, ...] = wire_array("uuid", since=1, tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = wire_array(
        "uuid", since=2, nullable_since=2, tag=1, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse:
    first_version, last_version, flexible_since = 0, 2, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    is_caught_up: bool = wire("bool")
    is_fenced: bool = wire("bool", default=True)
    should_shut_down: bool = wire("bool")
