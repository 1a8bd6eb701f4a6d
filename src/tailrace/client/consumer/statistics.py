"""The figures of a consumer at one moment, from its parts."""

from types import MappingProxyType

from tailrace.client.cluster_metadata import NO_NODE
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.metrics import ConsumerStatistics, PartitionStatistics
from tailrace.client.consumer.subscription import Assigned
from tailrace.model import IsolationLevel, TopicPartition


def lags_of(engine: ConsumerEngine) -> dict[TopicPartition, int | None]:
    """Records behind the position, by partition; None while that is not known."""
    # A copy, since a thread may ask that is not the one of the event loop.
    assigned = list(engine.subscription.assigned.items())
    return {each: _lag(engine, state) for each, state in assigned}


def _lag(engine: ConsumerEngine, state: Assigned) -> int | None:
    is_committed = engine.config.isolation_level is IsolationLevel.READ_COMMITTED
    end = state.last_stable_offset if is_committed else state.high_watermark
    if end is None or state.position is None:
        return None
    return max(0, end - state.position.offset)


def statistics_of(engine: ConsumerEngine) -> ConsumerStatistics:
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
