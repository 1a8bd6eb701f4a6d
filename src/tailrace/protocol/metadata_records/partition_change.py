"""Records of type 5 of `__cluster_metadata`: a partition changes.

v1   log directories (KIP-858)    v2   eligible leader replicas (KIP-966)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """Changes of a partition; None: no change. The partition epoch grows by one."""

    record_type: ClassVar[int] = 5
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    partition_id: int = wire("int32", default=-1)
    """The partition."""
    topic_id: UUID = wire("uuid")
    """The topic by id."""
    isr: tuple[int, ...] | None = wire_array("int32", nullable_since=0, tag=0, default=None)
    """The replicas that are in sync."""
    leader: int = wire("int32", tag=1, default=-2)
    """The leader, whose epoch grows by one; -1: none, -2: no change."""
    replicas: tuple[int, ...] | None = wire_array("int32", nullable_since=0, tag=2, default=None)
    """Brokers that have the partition."""
    removing_replicas: tuple[int, ...] | None = wire_array(
        "int32", nullable_since=0, tag=3, default=None
    )
    """Replicas that a reassignment removes."""
    adding_replicas: tuple[int, ...] | None = wire_array(
        "int32", nullable_since=0, tag=4, default=None
    )
    """Replicas that a reassignment adds."""
    leader_recovery_state: int = wire("int8", tag=5, default=-1)
    """1: the leader recovers, 0: it has recovered, -1: no change."""
    directories: tuple[UUID, ...] | None = wire_array(
        "uuid", since=1, nullable_since=1, tag=8, default=None
    )
    """The id of the log directory of each replica."""
    eligible_leader_replicas: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=6, default=None
    )
    """Replicas that have all committed records, and are not in sync."""
    last_known_elr: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=7, default=None
    )
    """The last members of the ISR, where nobody is left in it."""
