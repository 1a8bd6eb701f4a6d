"""OffsetDelete (47): removes committed offsets of a group (KIP-496)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import NO_VERSION, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    partition_index: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    name: str = wire("string")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire_array(OffsetDeleteRequestPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest:
    first_version, last_version, flexible_since = 0, 0, NO_VERSION
    group_id: str = wire("string")
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire_array(OffsetDeleteRequestTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    name: str = wire("string")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire_array(
        OffsetDeleteResponsePartition
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse:
    first_version, last_version, flexible_since = 0, 0, NO_VERSION
    error_code: int = wire("int16")
    throttle_time_ms: int = wire("int32")
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire_array(OffsetDeleteResponseTopic)
