"""AlterReplicaLogDirs (34): which log directory of a broker partitions are to be in.

v2   flexible
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDir:
    """What one directory is to have."""

    path: str = wire("string")
    """The directory, as DescribeLogDirs names it."""
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire_array(AlterReplicaLogDirTopic)
    """The partitions that are to be there, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    """Move partitions to these directories."""

    flexible_since: ClassVar[int] = 2

    dirs: tuple[AlterReplicaLogDir, ...] = wire_array(AlterReplicaLogDir)
    """The partitions, by directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    """What became of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0 if it is there or on its way, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    """What became of the partitions of one topic."""

    topic_name: str = wire("string")
    """The topic."""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire_array(
        AlterReplicaLogDirPartitionResult
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    """Which moves have begun."""

    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """How long the client is held back by a quota."""
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire_array(AlterReplicaLogDirTopicResult)
    """The outcome, by topic and partition."""
