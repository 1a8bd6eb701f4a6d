"""Records of type 3 of `__cluster_metadata`: a partition is created, or told whole in a snapshot.

v1   log directories (KIP-858)    v2   eligible leader replicas (KIP-966)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The whole state of a partition."""

    record_type: ClassVar[int] = 3
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    partition_id: int = wire("int32", default=-1)
    """The partition."""
    topic_id: UUID = wire("uuid")
    """The topic by id."""
    replicas: tuple[int, ...] = wire_array("int32")
    """Brokers that have the partition; the first is the preferred leader."""
    isr: tuple[int, ...] = wire_array("int32")
    """The replicas that are in sync."""
    removing_replicas: tuple[int, ...] = wire_array("int32")
    """Replicas that a reassignment removes."""
    adding_replicas: tuple[int, ...] = wire_array("int32")
    """Replicas that a reassignment adds."""
    leader: int = wire("int32", default=-1)
    """The leader; -1: none."""
    leader_recovery_state: int = wire("int8", tag=0)
    """1: the leader recovers after an unclean election; 0: it does not."""
    leader_epoch: int = wire("int32", default=-1)
    """The leader epoch; it grows with each change of the leader."""
    partition_epoch: int = wire("int32", default=-1)
    """It grows with each change of the partition."""
    directories: tuple[UUID, ...] = wire_array("uuid", since=1)
    """The id of the log directory of each replica, in the order of `replicas`."""
    eligible_leader_replicas: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=1, default=None
    )
    """Replicas that have all committed records, and are not in sync."""
    last_known_elr: tuple[int, ...] | None = wire_array(
        "int32", since=2, nullable_since=2, tag=2, default=None
    )
    """The last members of the ISR, where nobody is left in it."""
