"""`BatchHook`: user code that is called for each batch; for tracing and custom metrics.

Called per batch, never per record, by the thread or loop that also runs delivery callbacks, one at
a time. Exceptions of a hook are logged and have no other effect. Without hooks there is no cost.

Not here: changing records (`interceptors`), and counts that are kept anyway (`metrics`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client.user_code import call_user_code
from tailrace.model import TopicPartition


class BatchInfo(NamedTuple):
    """A batch as it is in one request."""

    number: int
    """Number of the batch in this producer, from 0; the same for all attempts and for the end."""
    partition: TopicPartition
    record_count: int
    byte_count: int
    """Size of the encoded batch."""
    attempt: int
    """1 for the first attempt; 0 for a batch that was never sent."""
    base_offset: int = -1
    """Offset of the first record, once it is acknowledged and the broker has sent it."""


class BatchHook:
    """Base class for hooks; pass instances to a producer as `hooks`."""

    def on_send(self, batch: BatchInfo) -> None:
        """Called each time a batch is sent, retries included."""

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Called when a batch has its outcome; one that was never sent has attempt 0.

        A batch that is too large for its topic ends with that error; its parts are new batches.
        """


class BatchHooks:
    """All hooks of a producer; a call goes to each of them."""

    def __init__(self, hooks: Sequence[BatchHook] = ()) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def on_send(self, batch: BatchInfo) -> None:
        """Call `on_send` of all hooks."""
        for each in self._hooks:
            call_user_code(each.on_send, batch, about=f"{type(each).__name__}.on_send")

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Call `on_done` of all hooks."""
        for each in self._hooks:
            call_user_code(each.on_done, batch, error, about=f"{type(each).__name__}.on_done")
