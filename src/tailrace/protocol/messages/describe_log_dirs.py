"""DescribeLogDirs (35): the log directories of a broker and their partitions.

v2   flexible
v3   an error of the whole request
v4   room of the volume
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribableLogDirTopic:
    topic: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest:
    first_version, last_version, flexible_since = 1, 5, 2
    # The requested partitions; None for all.
    topics: tuple[DescribableLogDirTopic, ...] | None = wire_array(
        DescribableLogDirTopic, nullable_since=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsPartition:
    partition_index: int = wire("int32")
    partition_size: int = wire("int64")  # Bytes of its log.
    # Offsets by which a copy lags its log, or a log the high watermark.
    offset_lag: int = wire("int64")
    is_future_key: bool = wire("bool")  # Whether it is a copy that will replace its log.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsTopic:
    name: str = wire("string")
    partitions: tuple[DescribeLogDirsPartition, ...] = wire_array(DescribeLogDirsPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResult:
    error_code: int = wire("int16")
    log_dir: str = wire("string")
    topics: tuple[DescribeLogDirsTopic, ...] = wire_array(DescribeLogDirsTopic)
    # Size of the volume in bytes; -1 if unknown.
    total_bytes: int = wire("int64", since=4, default=-1)
    usable_bytes: int = wire("int64", since=4, default=-1)
    is_cordoned: bool = wire("bool", since=5)  # Whether it takes no new partitions.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse:
    first_version, last_version, flexible_since = 1, 5, 2
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", since=3)
    results: tuple[DescribeLogDirsResult, ...] = wire_array(DescribeLogDirsResult)
