"""ListGroups (16): the groups that a broker coordinates.

v1   throttle time                      v4   states (KIP-518)
v3   flexible                           v5   types (KIP-848)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsRequest:
    """Ask for the groups of this broker."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 3

    states_filter: tuple[str, ...] = wire_array("string", since=4)
    """Only groups in these states; empty: all."""
    types_filter: tuple[str, ...] = wire_array("string", since=5)
    """Only groups of these types; empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group."""

    group_id: str = wire("string")
    """The group."""
    protocol_type: str = wire("string")
    """Kind of the group: `consumer`, or a name that other clients have chosen."""
    group_state: str = wire("string", since=4)
    """State of the group, by Kafka's name."""
    group_type: str = wire("string", since=5)
    """`classic`, `consumer` or another type of Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResponse:
    """The groups of the broker."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why the list is not complete."""
    groups: tuple[ListedGroup, ...] = wire_array(ListedGroup)
    """The groups."""
