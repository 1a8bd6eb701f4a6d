"""AlterReplicaLogDirs (34): moves partitions between the log directories of a broker.

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """The partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDir:
    """The partitions to move to one directory."""

    path: str = wire("string")
    """The directory, as DescribeLogDirs names it."""
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire_array(AlterReplicaLogDirTopic)
    """The partitions to move there, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    """Move partitions to these directories."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    dirs: tuple[AlterReplicaLogDir, ...] = wire_array(AlterReplicaLogDir)
    """The partitions, by directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    """The result for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0 if the partition is in the directory or moves there; else the code of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    """The results for the partitions of one topic."""

    topic_name: str = wire("string")
    """The topic."""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire_array(
        AlterReplicaLogDirPartitionResult
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    """The result for each requested move."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire_array(AlterReplicaLogDirTopicResult)
    """The results, by topic and partition."""
