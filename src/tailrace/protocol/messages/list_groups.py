"""ListGroups (16): the groups that a broker coordinates.

v1   throttle time                      v4   states (KIP-518)
v3   flexible                           v5   types (KIP-848)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsRequest:
    first_version, last_version, flexible_since = 0, 5, 3
    # Only groups in these states; empty: all.
    states_filter: tuple[str, ...] = wire_array("string", since=4)
    # Only groups of these types; empty: all.
    types_filter: tuple[str, ...] = wire_array("string", since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group_id: str = wire("string")
    # Kind of the group: `consumer`, or a name that other clients have chosen.
    protocol_type: str = wire("string")
    group_state: str = wire("string", since=4)
    group_type: str = wire("string", since=5)  # `classic`, `consumer` or another type of Kafka's.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResponse:
    first_version, last_version, flexible_since = 0, 5, 3
    throttle_time_ms: int = wire("int32", since=1)
    error_code: int = wire("int16")
    groups: tuple[ListedGroup, ...] = wire_array(ListedGroup)
