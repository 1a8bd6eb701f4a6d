"""The parsed options of the source, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from tailrace.model import IsolationLevel, TopicPartition
from tailrace.spark.limits import RateLimits


class PointKind(Enum):
    """Ways to name a point in a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Point(NamedTuple):
    """A position in a partition's log where a range begins or ends."""

    kind: PointKind
    value: int = 0
    """The offset, or the timestamp in milliseconds; 0 for the two ends."""


EARLIEST = Point(PointKind.EARLIEST)
LATEST = Point(PointKind.LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of what is read, for every partition."""

    option: str
    """The option that says so, for messages."""
    everywhere: Point | None = None
    """The same for all partitions; None: `of_partition` and `of_topic` name each."""
    of_partition: Mapping[TopicPartition, Point] = field(default_factory=dict)
    of_topic: Mapping[str, Point] = field(default_factory=dict)

    def point_or_none(self, partition: TopicPartition) -> Point | None:
        """The point of a partition, or None if the option forgot it."""
        return (
            self.everywhere
            or self.of_partition.get(partition)
            or self.of_topic.get(partition.topic)
        )


class Topics(NamedTuple):
    """Option `subscribe`: all partitions of these topics."""

    names: tuple[str, ...]


class Pattern(NamedTuple):
    """Option `subscribePattern`: all partitions of the topics whose whole name matches."""

    expression: str


class Partitions(NamedTuple):
    """Option `assign`: these partitions."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Topics | Pattern | Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The logs to read and the range to read of them."""

    directories: tuple[str, ...]
    """Data directories, as paths or URIs; none: there is a broker."""
    bootstrap: str | None
    """Addresses of brokers; None: there are directories."""
    selection: Selection
    starting: Bound
    ending: Bound
    starts_at_latest: bool
    """Whether a starting timestamp newer than all records gives no records instead of an error."""
    columns: tuple[str, ...]
    """The declared schema, in its order."""
    isolation: IsolationLevel
    fails_on_data_loss: bool
    corruption_report: str | None
    """The directory that gets a list of what is damaged and left out; None: damage is an error."""
    task_count_min: int
    task_records_max: int
    task_bytes_max: int
    limits: RateLimits
    """Limits of a stream's micro-batches; a batch has none."""
    client_settings: Mapping[str, str] = field(repr=False)
    """Settings of the client of brokers by Kafka's names; there may be a password among them."""
