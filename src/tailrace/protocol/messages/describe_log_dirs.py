"""DescribeLogDirs (35): the log directories of a broker and their partitions.

v2   flexible
v3   an error of the whole request
v4   room of the volume
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribableLogDirTopic:
    """The requested partitions of one topic."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """The partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest:
    """Ask for the contents of the log directories."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 2

    topics: tuple[DescribableLogDirTopic, ...] | None = wire_array(
        DescribableLogDirTopic, nullable_since=0
    )
    """The requested partitions; None for all."""


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
    """Whether it is a copy that will replace its log."""


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
    """Its partitions, by topic."""
    total_bytes: int = wire("int64", since=4, default=-1)
    """Size of the volume in bytes; -1 if unknown."""
    usable_bytes: int = wire("int64", since=4, default=-1)
    """Free bytes on the volume; -1 if unknown."""
    is_cordoned: bool = wire("bool", since=5)
    """Whether it takes no new partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse:
    """The contents of the log directories."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16", since=3)
    """0, or why there is no answer."""
    results: tuple[DescribeLogDirsResult, ...] = wire_array(DescribeLogDirsResult)
    """The directories."""
