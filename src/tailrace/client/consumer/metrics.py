"""The counters of a consumer, for `Consumer.metrics` and `Consumer.statistics`.

Not here: metrics of connections, which `Nodes.statistics` has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.client.nodes import NodesStatistics
from tailrace.model import TopicPartition


@dataclass(slots=True)
class ConsumerMetrics:
    """Counters since the consumer was made."""

    poll_count: int = 0
    record_count: int = 0
    fetch_count: int = 0
    fetched_bytes: int = 0
    error_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """One assigned partition at one moment."""

    position: int | None
    """Offset of the next record to return; None while it is not known."""
    lag: int | None
    """Records between the position and the end of what may be read; None while not known."""
    buffered_bytes: int
    """Fetched and not returned yet."""
    is_paused: bool
    """Whether `pause` keeps its records from being returned."""
    waits_for: str
    """The reason that keeps its records from being fetched, in words; `nothing` while they are."""
    preferred_replica: int | None
    """Id of the follower that is fetched from (KIP-392); None: the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """A consumer at one moment."""

    poll_count: int
    """Calls of `poll` and `poll_columns`."""
    record_count: int
    """Records that were returned."""
    fetch_count: int
    """Fetch requests that were sent."""
    fetched_bytes: int
    """Bytes of records that were received, as they were compressed."""
    error_count: int
    """Errors that `poll` has raised."""
    partitions: Mapping[TopicPartition, PartitionStatistics]
    """The assigned partitions; read only."""
    nodes: NodesStatistics
    """Its connections."""


OnMetrics = Callable[[dict[str, float], ConsumerStatistics], Any]
"""Is called with what `metrics` and `statistics` return; for `AsyncConsumer` it may be a coroutine
function."""
