"""The assignment of a consumer in SyncGroup, from the leader of its group.

All versions are alike: they follow those of ConsumerProtocolSubscription. An int16 with
the version precedes it.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import NO_VERSION, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    topic: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolAssignment:
    """The partitions that the leader assigns to a consumer."""

    first_version, last_version, flexible_since = 0, 3, NO_VERSION
    assigned_partitions: tuple[TopicPartition, ...] = wire_array(TopicPartition)
    user_data: bytes | None = wire("bytes", nullable_since=0, default=None)
