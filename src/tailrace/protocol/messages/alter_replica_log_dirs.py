"""AlterReplicaLogDirs (34): moves partitions between the log directories of a broker.

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    name: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDir:
    path: str = wire("string")  # The directory, as DescribeLogDirs names it.
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire_array(AlterReplicaLogDirTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    first_version, last_version, flexible_since = 1, 2, 2
    dirs: tuple[AlterReplicaLogDir, ...] = wire_array(AlterReplicaLogDir)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    partition_index: int = wire("int32")
    # 0 if the partition is in the directory or moves there; else the code of the error.
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire("string")
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire_array(
        AlterReplicaLogDirPartitionResult
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    first_version, last_version, flexible_since = 1, 2, 2
    throttle_time_ms: int = wire("int32")
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire_array(AlterReplicaLogDirTopicResult)
