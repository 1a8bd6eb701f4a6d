"""Waits of a record before it gets into a batch: for its topic, and for memory.

The error of a wait that took too long says what was waited for, the last failure of a connection,
and the setting to change.

Invariant: memory that was granted belongs to the caller, or has been given back.
"""

from typing import TYPE_CHECKING

from tailrace.client.drive.steps import Steps, Until
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    MetadataTimeoutError,
    UnknownTopicError,
)
from tailrace.client.producer.queue.batches import InFlightBatch

if TYPE_CHECKING:
    from tailrace.client.nodes import NodeError
    from tailrace.client.producer.engine import Engine
    from tailrace.client.producer.outcome import DeliveryOutcome
    from tailrace.client.producer.plugins import ProducerRecord


def topic_known(
    engine: "Engine",
    record: "ProducerRecord",
    deadline: float,
    *,
    queued: "DeliveryOutcome | None" = None,
    request: int | None = None,
) -> Steps[int]:
    """Wait until the topic has the record's partition; returns the partition count.

    Returns early if `queued` failed meanwhile, or left its queue because it is not awaited.
    `request` is what `request_update` has returned since the record was sent, if it was called.

    Raises:
        MetadataTimeoutError: at the deadline.
        UnknownTopicError: the topic has no such partition.
        ClosedProducerError, ...: waiting is vain for another reason; see `Engine.check_topic`.
    """
    topic, partition, metadata = record.topic, record.partition or 0, engine.metadata
    started, asked = engine.monotonic(), request
    metadata.add_topic(topic, started)

    def is_over() -> bool:
        nonlocal asked
        if queued is not None and queued.is_done:
            return True
        engine.check_open()
        engine.check_topic(topic)
        count = metadata.partition_count(topic)
        if count is None or partition < count:
            return count is not None
        # The partition may have been added a moment ago, so the cluster is asked once more. Kafka's
        # producer keeps asking until max.block.ms; an answer that is newer than the record and
        # has no such partition says enough.
        if asked is None:
            asked = metadata.request_update()
        elif metadata.last_answered >= asked:
            last = f"0 to {count - 1}" if count > 1 else "0 alone"
            raise UnknownTopicError(
                f"partition: topic {topic} has no partition {partition}, it has {last}; send to "
                "one of these, leave partition out, or add partitions to the topic"
            )
        return False

    if not (is_over() or (yield Until(is_over, deadline))):
        engine.check_open()
        raise MetadataTimeoutError(why_no_topic(engine, record, engine.monotonic() - started))
    return metadata.partition_count(topic) or 0


def memory_granted(
    engine: "Engine", size: int, deadline: float, *, queued: "DeliveryOutcome | None" = None
) -> Steps[int]:
    """Wait for `size` bytes of the pool and take them; returns `size`.

    Returns 0 and takes nothing if `queued` failed meanwhile.

    Raises:
        BufferExhaustedError: at the deadline.
        ClosedProducerError: the producer was closed.
    """
    started = engine.monotonic()
    answers: list[Exception | None] = []
    waiter = engine.pool.wait(size, answers.append)
    # Batches that linger hold the memory that is waited for.
    engine.accumulator.begin_flush()
    try:
        in_time = yield Until(
            lambda: bool(answers) or (queued is not None and queued.is_done), deadline
        )
    except BaseException:
        # Ctrl-C or a cancelled task may come after the grant.
        if not engine.pool.cancel(waiter) and answers == [None]:
            engine.pool.deallocate(size)
        raise
    waited = engine.monotonic() - started
    engine.metrics.bufferpool_wait_s += waited
    # The pool may have granted the memory just before the timeout.
    if not answers and engine.pool.cancel(waiter):
        if in_time:
            return 0
        engine.check_open()
        engine.metrics.buffer_exhausted_total += 1
        raise BufferExhaustedError(why_no_memory(engine, waited))
    if answers[0] is not None:
        raise answers[0]
    return size


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
    # The oldest batch holds memory for longest, so what keeps it explains the lack.
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


def last_failure(engine: "Engine") -> "NodeError | None":
    return engine.nodes.failure_of_any(engine.metadata.nodes)
