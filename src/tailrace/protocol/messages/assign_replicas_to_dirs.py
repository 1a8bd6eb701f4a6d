"""AssignReplicasToDirs (73): a broker says in which directories its replicas are (KIP-858)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    partition_index: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    topic_id: UUID = wire("uuid")
    partitions: tuple[PartitionData, ...] = wire_array(PartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryData:
    id: UUID = wire("uuid")
    topics: tuple[TopicData, ...] = wire_array(TopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)  # Epoch of the broker's registration.
    directories: tuple[DirectoryData, ...] = wire_array(DirectoryData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponsePartitionData:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponseTopicData:
    topic_id: UUID = wire("uuid")
    partitions: tuple[AssignReplicasToDirsResponsePartitionData, ...] = wire_array(
        AssignReplicasToDirsResponsePartitionData
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponseDirectoryData:
    id: UUID = wire("uuid")
    topics: tuple[AssignReplicasToDirsResponseTopicData, ...] = wire_array(
        AssignReplicasToDirsResponseTopicData
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    directories: tuple[AssignReplicasToDirsResponseDirectoryData, ...] = wire_array(
        AssignReplicasToDirsResponseDirectoryData
    )
