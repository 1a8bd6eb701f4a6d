"""Records of type 4 of `__consumer_offsets`: the subscribed topics of a group, before Kafka 4.1.

Since then the hash in type 3 stands for them (KIP-1101).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataKey:
    """The key: the group."""

    record_type: ClassVar[int] = 4
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """A partition and the racks of its replicas."""

    partition: int = wire("int32")
    """The partition."""
    racks: tuple[str, ...] = wire_array("string")
    """Racks of its replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic, as the group knows it."""

    topic_id: UUID = wire("uuid")
    """The topic by id."""
    topic_name: str = wire("string")
    """The topic by name."""
    num_partitions: int = wire("int32")
    """Number of partitions."""
    partition_metadata: tuple[PartitionMetadata, ...] = wire_array(PartitionMetadata)
    """Its partitions; empty: no racks are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataValue:
    """The subscribed topics."""

    record_type: ClassVar[int] = 4
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topics: tuple[TopicMetadata, ...] = wire_array(TopicMetadata)
    """The topics."""
