"""The subscription of a consumer in JoinGroup, for the leader of its group.

    v1   partitions that it owns (KIP-429)  v3   rack (KIP-881)
    v2   generation (KIP-792)

An int16 with the version precedes it. A reader takes a newer version for the newest that it knows.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import NO_VERSION, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    topic: str = wire("string", since=1)
    partitions: tuple[int, ...] = wire_array("int32", since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolSubscription:
    """The topics that a consumer subscribes to, and the partitions that it owns."""

    first_version, last_version, flexible_since = 0, 3, NO_VERSION
    topics: tuple[str, ...] = wire_array("string")
    user_data: bytes | None = wire("bytes", nullable_since=0, default=None)
    owned_partitions: tuple[TopicPartition, ...] = wire_array(TopicPartition, since=1)
    # The generation in which it got them; -1: not known.
    generation_id: int = wire("int32", since=2, default=-1)
    rack_id: str | None = wire("string", since=3, nullable_since=3, default=None)
