"""Why something took too long: what to look at, and the setting to change."""

from typing import TYPE_CHECKING

from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.client.nodes import NodeError, Nodes
    from tailrace.client.producer.engine import Engine
    from tailrace.client.producer.metadata import ProducerMetadata
    from tailrace.client.producer.receipts import ProducerRecord


def why_no_topic(engine: "Engine", record: "ProducerRecord", waited_s: float) -> str:
    """Nothing is known of a record's topic, or of its partition."""
    said = engine.metadata.describe_wait(
        record.topic,
        round(waited_s, 1),
        partition=record.partition,
        failure=_last_failure(engine),
    )
    if engine.metadata.partition_count(record.topic) is not None:
        return f"{said}; send to one that is there, or add partitions to the topic"
    return f"{said}; check bootstrap.servers, or raise max.block.ms"


def why_no_memory(engine: "Engine", waited_s: float) -> str:
    """There was no memory for a record."""
    incomplete = engine.accumulator.incomplete
    oldest = next(iter(incomplete), None)
    why = ""
    if oldest is not None:
        age = engine.monotonic() - oldest.created_at
        why = f"; the oldest of {len(incomplete)} batches is {age:.1f} s old"
        failure = oldest.last_error or _last_failure(engine)
        if failure is not None:
            why += f" and has failed: {failure}"
    return (
        f"buffer.memory ({engine.pool.total} bytes) stayed full for {waited_s:.1f} s{why}; send "
        "more slowly, or raise buffer.memory or max.block.ms"
    )


def why_no_end(engine: "Engine", step: str) -> str:
    """A step of a transaction has not come to its end."""
    why = _last_failure(engine) or "the coordinator has not answered"
    return f"{step} took longer than max.block.ms ({engine.config.max_block_ms} ms): {why}"


def why_not_asked(metadata: "ProducerMetadata", nodes: "Nodes", partition: TopicPartition) -> str:
    """What keeps a partition's leader from being asked, as far as is known; or nothing."""
    leader = metadata.leader(partition)
    if leader is not None:
        return str(nodes.failure(leader.node_id) or "")
    failures = [failure for each in metadata.nodes if (failure := nodes.failure(each.id))]
    # A leader that is not known is no news while nobody can be asked.
    if failures and len(failures) == len(metadata.nodes):
        return f"no broker can be reached: {failures[0]}"
    return "no broker leads it"


def _last_failure(engine: "Engine") -> "NodeError | None":
    failures = (engine.nodes.failure(each.id) for each in engine.metadata.nodes)
    return next(filter(None, failures), None)
