"""The counters of a consumer, for `Consumer.metrics` and `Consumer.statistics`.

Not here: metrics of connections, which `Nodes.statistics` has.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tailrace.client.nodes import NodesStatistics
from tailrace.model import TopicPartition
from tailrace.values import dataclass

METRICS: Final = {
    "records-consumed-total": ("records", "Returned to the program."),
    "bytes-consumed-total": ("bytes", "Records that were received, as they were compressed."),
    "fetch-total": ("requests", "Fetch requests sent."),
    "poll-total": (
        "calls",
        "Calls of `poll` and `poll_columns`, iteration's own included.",
    ),
    "poll-error-total": ("errors", "Errors that `poll` has raised."),
    "records-lag-max": (
        "records",
        "Longest known lag of an assigned partition.",
    ),
    "assigned-partitions": ("partitions", "Assigned now."),
}
"""Unit and meaning of each metric by Kafka's name; totals first, present values last."""


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
