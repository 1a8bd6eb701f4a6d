"""AlterPartition (56): a leader changes the in-sync replicas of partitions (KIP-497).

v2   topics by id        v3   the broker epoch of each member (KIP-903)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    broker_id: int = wire("int32", since=3)
    broker_epoch: int = wire("int64", since=3, default=-1)  # Epoch of the broker's registration.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    partition_index: int = wire("int32")
    leader_epoch: int = wire("int32")  # Its epoch; -1: not known.
    new_isr: tuple[int, ...] = wire_array("int32", until=2)
    new_isr_with_epochs: tuple[BrokerState, ...] = wire_array(BrokerState, since=3)
    leader_recovery_state: int = wire("int8", since=1)
    partition_epoch: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    topic_id: UUID = wire("uuid", since=2)
    partitions: tuple[PartitionData, ...] = wire_array(PartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    """Change the in-sync replicas of partitions that this broker leads."""

    first_version, last_version, flexible_since = 2, 3, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)  # Epoch of the broker's registration.
    topics: tuple[TopicData, ...] = wire_array(TopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponsePartitionData:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    leader_id: int = wire("int32")  # The broker; -1: not known.
    leader_epoch: int = wire("int32")  # Its epoch; -1: not known.
    isr: tuple[int, ...] = wire_array("int32")
    leader_recovery_state: int = wire("int8", since=1)
    partition_epoch: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponseTopicData:
    topic_id: UUID = wire("uuid", since=2)
    partitions: tuple[AlterPartitionResponsePartitionData, ...] = wire_array(
        AlterPartitionResponsePartitionData
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse:
    first_version, last_version, flexible_since = 2, 3, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    topics: tuple[AlterPartitionResponseTopicData, ...] = wire_array(
        AlterPartitionResponseTopicData
    )
