"""Texts for timeout errors: what was waited for, the last failure, and the setting to change."""

from typing import TYPE_CHECKING

from tailrace.client.producer.queue.in_flight_batch import InFlightBatch

if TYPE_CHECKING:
    from tailrace.client.nodes import NodeError
    from tailrace.client.producer.engine import Engine
    from tailrace.client.producer.intake.record import ProducerRecord


def why_no_topic(engine: "Engine", record: "ProducerRecord", waited_s: float) -> str:
    """The text for a record whose topic or partition did not become known in time."""
    said = engine.metadata.describe_wait(
        record.topic,
        round(waited_s, 1),
        partition=record.partition,
        failure=last_failure(engine),
    )
    if engine.metadata.partition_count(record.topic) is not None:
        return f"{said}; send to an existing partition, or add partitions to the topic"
    return f"{said}; check bootstrap.servers, or raise max.block.ms"


def why_no_memory(engine: "Engine", waited_s: float) -> str:
    """The text for a record that got no memory in time."""
    incomplete = engine.accumulator.incomplete
    oldest = next(iter(incomplete.values()), None)
    why = ""
    if oldest is not None:
        age = engine.monotonic() - oldest.created_at
        why = f"; the oldest of {len(incomplete)} batches is {age:.1f} s old"
        last_error = oldest.last_error if isinstance(oldest, InFlightBatch) else None
        failure = last_error or last_failure(engine)
        if failure is not None:
            why += f" and has failed: {failure}"
    return (
        f"buffer.memory ({engine.pool.total} bytes) stayed full for {waited_s:.1f} s{why}; send "
        "more slowly, or raise buffer.memory or max.block.ms"
    )


def why_no_end(engine: "Engine", step: str) -> str:
    """The text for a step of a transaction that was not answered in time."""
    why = last_failure(engine) or "the coordinator has not answered"
    return f"{step} took longer than max.block.ms ({engine.config.max_block_ms} ms): {why}"


def last_failure(engine: "Engine") -> "NodeError | None":
    """The latest failure of a connection to a broker."""
    return engine.nodes.failure_of_any(engine.metadata.nodes)
