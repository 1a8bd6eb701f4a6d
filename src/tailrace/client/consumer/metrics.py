"""The counters of a consumer and its figures at one moment, for `metrics` and `statistics`.

Not here: metrics of connections, which `ConnectionPool.statistics` has.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tailrace.client.cluster_metadata import NO_NODE
from tailrace.client.consumer.subscription import Assigned
from tailrace.client.nodes import NodesStatistics
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.consumer.engine import ConsumerEngine


# Kafka's names, without the groups of JMX.
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


def lags_of(engine: "ConsumerEngine") -> dict[TopicPartition, int | None]:
    """The lag of the position, by partition; None while that is not known."""
    # A copy, since a thread may ask that is not the one of the event loop.
    assigned = list(engine.subscription.assigned.items())
    return {each: _lag(engine, state) for each, state in assigned}


def _lag(engine: "ConsumerEngine", state: Assigned) -> int | None:
    is_committed = engine.config.isolation_level is IsolationLevel.READ_COMMITTED
    # Records of open transactions are not there yet for read_committed.
    end = state.last_stable_offset if is_committed else state.high_watermark
    if end is None or state.position is None:
        return None
    return max(0, end - state.position.offset)


def statistics_of(engine: "ConsumerEngine") -> ConsumerStatistics:
    """Everything that is counted, right now."""
    metrics = engine.metrics
    return ConsumerStatistics(
        poll_count=metrics.poll_count,
        record_count=metrics.record_count,
        fetch_count=metrics.fetch_count,
        fetched_bytes=metrics.fetched_bytes,
        error_count=metrics.error_count,
        partitions=MappingProxyType(
            {
                each: PartitionStatistics(
                    position=None if state.position is None else state.position.offset,
                    lag=_lag(engine, state),
                    buffered_bytes=sum(part.size for part in state.parts),
                    is_paused=state.is_paused,
                    waits_for=state.phase.value,
                    preferred_replica=(
                        None if state.preferred_replica == NO_NODE else state.preferred_replica
                    ),
                )
                for each, state in engine.subscription.assigned.items()
            }
        ),
        nodes=engine.nodes.statistics(),
    )
