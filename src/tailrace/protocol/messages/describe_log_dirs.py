"""DescribeLogDirs (35): what the log directories of a broker hold.

v2   flexible
v3   an error of the whole request
v4   room of the volume
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribableLogDirTopic:
    """Partitions of one topic that are asked about."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest:
    """Say what the directories hold."""

    flexible_since: ClassVar[int] = 2

    topics: tuple[DescribableLogDirTopic, ...] | None = wire_array(
        DescribableLogDirTopic, nullable_since=0
    )
    """The partitions that are asked about; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsPartition:
    """A partition in a directory."""

    partition_index: int = wire("int32")
    """The partition."""
    partition_size: int = wire("int64")
    """Bytes of its log."""
    offset_lag: int = wire("int64")
    """Offsets that a copy is behind its log, or a log behind the high watermark."""
    is_future_key: bool = wire("bool")
    """Whether it is a copy that takes the place of its log in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsTopic:
    """The partitions of a topic in a directory."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[DescribeLogDirsPartition, ...] = wire_array(DescribeLogDirsPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = wire("int16")
    """0, or why it is out of service."""
    log_dir: str = wire("string")
    """Its path."""
    topics: tuple[DescribeLogDirsTopic, ...] = wire_array(DescribeLogDirsTopic)
    """What it holds."""
    total_bytes: int = wire("int64", since=4, default=-1)
    """Size of the volume; -1 where it is not known."""
    usable_bytes: int = wire("int64", since=4, default=-1)
    """Room on the volume; -1 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse:
    """What the directories hold."""

    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """How long the client is held back by a quota."""
    error_code: int = wire("int16", since=3)
    """0, or why there is no answer."""
    results: tuple[DescribeLogDirsResult, ...] = wire_array(DescribeLogDirsResult)
    """The directories."""
