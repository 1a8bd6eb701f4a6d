"""DeleteGroups (42): deletes groups without members, and their offsets.

v2   flexible

v1 changes when a throttled client gets its response, and no field (KIP-219).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest:
    first_version, last_version, flexible_since = 0, 2, 2
    groups_names: tuple[str, ...] = wire_array("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    group_id: str = wire("string")
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    first_version, last_version, flexible_since = 0, 2, 2
    throttle_time_ms: int = wire("int32")
    results: tuple[DeletableGroupResult, ...] = wire_array(DeletableGroupResult)
