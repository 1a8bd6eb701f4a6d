"""DeleteGroups (42): deletes groups without members, and their offsets.

v2   flexible

v1 changes when a throttled client gets its response, and no field (KIP-219).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest:
    """Delete these groups."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    groups_names: tuple[str, ...] = wire_array("string")
    """The groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    """The result for one group."""

    group_id: str = wire("string")
    """The group."""
    error_code: int = wire("int16")
    """0, or why the group was not deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    """The results for the groups."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results: tuple[DeletableGroupResult, ...] = wire_array(DeletableGroupResult)
    """The results."""
