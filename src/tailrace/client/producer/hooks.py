"""`BatchHook`: what a program of yours may be told about each batch; for tracing and own metrics.

Called per batch, never per record, by the thread or loop that also runs delivery callbacks, one at
a time. What a hook raises is logged and otherwise without effect. Without hooks it costs nothing.

Not here: changing records (`interceptors`), and counts that are kept anyway (`metrics`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.producer.user_code import call_user_code
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.client.producer.batch import ProducerBatch


class BatchInfo(NamedTuple):
    """A batch as it is in one request."""

    number: int
    """Of the producer's batches, from 0: the same each time it is sent and when it is done."""
    partition: TopicPartition
    record_count: int
    byte_count: int
    """Of the encoded batch."""
    attempt: int
    """1 for the first time it is sent."""
    base_offset: int = -1
    """Of its first record, once it is acknowledged and the broker has said so."""


def info_of(batch: "ProducerBatch") -> BatchInfo:
    """What hooks are told of a batch."""
    return BatchInfo(
        number=batch.number,
        partition=batch.partition,
        record_count=batch.record_count,
        byte_count=batch.size,
        attempt=0 if batch.number < 0 else batch.attempts + 1,
        base_offset=batch.base_offset,
    )


class BatchHook:
    """Derive from this and give it to a producer as one of its `hooks`."""

    def on_send(self, batch: BatchInfo) -> None:
        """A batch goes out; again each time it is sent again."""

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """A batch has its outcome; one that was never sent has attempt 0.

        One that was too large for its topic ends with that error, and its parts are new batches.
        """


class BatchHooks:
    """The hooks of a producer, each called in turn."""

    def __init__(self, hooks: Sequence[BatchHook] = ()) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def on_send(self, batch: BatchInfo) -> None:
        """Tell all."""
        for each in self._hooks:
            call_user_code(each.on_send, batch, about=f"{type(each).__name__}.on_send")

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Tell all."""
        for each in self._hooks:
            call_user_code(each.on_done, batch, error, about=f"{type(each).__name__}.on_done")
