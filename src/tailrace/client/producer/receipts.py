"""What a caller holds of a record that was sent: where it went, or why it did not.

A receipt is two words, the batch and the record's place in it. What became of the record is known
by the batch, once for all records in it.

Invariant: a receipt ends exactly once, by the latest when the producer is closed.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tailrace.client.producer.batch import Outcome

Header = tuple[str, bytes | None]


class ProducerRecord(NamedTuple):
    """A record before it is sent; as interceptors see it."""

    topic: str
    value: object = None
    key: object = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970-01-01 UTC; None for the time of sending."""
    partition: int | None = None
    """None leaves the choice to the partitioner."""


class RecordMetadata(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    """-1 where none was chosen."""
    offset: int
    """-1 with `acks=0`, and where the broker had the record already and does not know its place."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC: the record's own, or the broker's if the topic has
    `message.timestamp.type=LogAppendTime`; -1 if neither is known."""


class Waiting(Protocol):
    """How a face waits for an outcome: by moving the producer's bytes, or on the event loop."""

    def wait(self, outcome: "Outcome", timeout_s: float | None) -> bool:
        """Whether the outcome was there before the time was up."""
        ...

    def call_back(self, outcome: "Outcome", index: int, callback: "DeliveryCallback") -> None:
        """Have a callback called with the outcome, at once if it is there."""
        ...

    def awaiting(self, outcome: "Outcome") -> Generator[object, None, None]:
        """Give way to the event loop until the outcome is there."""
        ...

    def forked(self) -> None:
        """This process is a child of the one where the producer was made: wait for nothing."""
        ...


class Receipt:
    """The outcome of one record, now or later.

    `result()` waits and returns a `RecordMetadata`, or raises what became of the record instead.
    Awaiting the receipt of an `AsyncProducer` does the same. Dropping a receipt drops nothing.
    """

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: "Outcome", index: int) -> None:
        self._outcome = outcome
        self._index = index

    def done(self) -> bool:
        """Whether it has ended, in success or not."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most `timeout` seconds and return where the record is.

        Raises:
            TimeoutError: the time was up; the record is still on its way.
            ProducerError: it was not written, or nobody can know; the class says which.
        """
        if not self._outcome.is_done and not self._outcome.waiting.wait(self._outcome, timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the record is still on its way")
        return self._outcome.metadata_of(self._index)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as `result` does, and return what it would raise of the record, or None."""
        if not self._outcome.is_done and not self._outcome.waiting.wait(self._outcome, timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the record is still on its way")
        return self._outcome.error_of(self._index)

    def add_done_callback(self, callback: "DeliveryCallback") -> None:
        """Have `callback(metadata, error)` called once it ends; at once if it has ended.

        Called by the producer's own thread, or by the event loop of an `AsyncProducer`, one at a
        time and without blocking. If the record has ended already, a `Producer` calls it here and
        now. Whatever it raises is logged.
        """
        self._outcome.waiting.call_back(self._outcome, self._index, callback)

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self._outcome.partition.topic

    @property
    def partition(self) -> int:
        """The partition it was sent to; -1 if none could be chosen."""
        return self._outcome.partition.partition

    @property
    def offset(self) -> int:
        """The record's offset; see `result`, which this calls."""
        return self.result().offset

    @property
    def timestamp(self) -> int:
        """The record's timestamp in milliseconds; see `result`, which this calls."""
        return self.result().timestamp

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if not self._outcome.is_done:
            yield from self._outcome.waiting.awaiting(self._outcome)
        return self._outcome.metadata_of(self._index)

    def __repr__(self) -> str:
        state = "on its way"
        if self._outcome.is_done:
            error = self._outcome.error_of(self._index)
            state = str(self._outcome.metadata_of(self._index)) if error is None else repr(error)
        return f"<Receipt of {self._outcome.partition}: {state}>"


DeliveryCallback = Callable[[RecordMetadata, Exception | None], None]
