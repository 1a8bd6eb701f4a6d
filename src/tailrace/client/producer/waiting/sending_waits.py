"""Waits of a record before it gets into a batch: for its topic, and for memory.

Invariant: memory that was granted belongs to the caller, or has been given back.
"""

from typing import TYPE_CHECKING

from tailrace.client.drive.steps import Steps, Until
from tailrace.client.producer.errors import BufferExhaustedError
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.waiting.explanations import why_no_memory
from tailrace.client.producer.waiting.topic_wait import TopicWait

if TYPE_CHECKING:
    from tailrace.client.producer.engine import Engine
    from tailrace.client.producer.waiting.queued_record import QueuedRecord


def topic_known(
    engine: "Engine",
    record: ProducerRecord,
    deadline: float,
    *,
    queued: "QueuedRecord | None" = None,
) -> Steps[int]:
    """Wait until the topic has the record's partition; returns the partition count.

    Returns early if `queued` failed meanwhile, or left the line because it is not awaited.

    Raises:
        MetadataTimeoutError: at the deadline.
        ClosedProducerError, UnknownTopicError, ...: waiting is vain.
    """
    request = None if queued is None else queued.request
    wait = TopicWait(engine, record, started=engine.monotonic(), request=request)

    def is_over() -> bool:
        if queued is not None and queued.is_done:
            return True
        engine.check_open()
        return wait.is_over()

    if not (is_over() or (yield Until(is_over, deadline))):
        engine.check_open()
        raise wait.timed_out(engine.monotonic())
    return engine.metadata.partition_count(record.topic) or 0


def memory_granted(
    engine: "Engine", size: int, deadline: float, *, queued: "QueuedRecord | None" = None
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
    engine.accumulator.hurry_all()
    try:
        in_time = yield Until(
            lambda: bool(answers) or (queued is not None and queued.is_done), deadline
        )
    except BaseException:
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
