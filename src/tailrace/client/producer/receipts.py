"""`Receipt`: the result of sending one record: its partition and offset, or an error.

A receipt has two fields, the batch and the record's index in it. The batch has the outcome for all
its records.

Invariant: a receipt gets its outcome exactly once, at the latest when the producer is closed.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tailrace.client.producer.batch import DeliveryOutcome

Header = tuple[str, bytes | None]


class ProducerRecord(NamedTuple):
    """A record before it is serialized, as interceptors get it."""

    topic: str
    value: object = None
    key: object = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970-01-01 UTC; None for the time of sending."""
    partition: int | None = None
    """Number of the partition; with None the partitioner chooses it."""


class RecordMetadata(NamedTuple):
    """Partition, offset and timestamp of a record in the log."""

    topic: str
    partition: int
    """-1 if none was chosen."""
    offset: int
    """-1 with `acks=0`, and for a duplicate whose offset the broker does not know any more."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC: the record's own, or the broker's if the topic has
    `message.timestamp.type=LogAppendTime`; -1 if neither is known."""


class Waiting(Protocol):
    """Lets receipts wait for an outcome; `ThreadDriver` and `LoopDriver` implement it."""

    def wait(self, outcome: "DeliveryOutcome", timeout_s: float | None) -> bool:
        """Wait for the outcome; return False if the time is up before."""
        ...

    def call_back(
        self, outcome: "DeliveryOutcome", index: int, callback: "DeliveryCallback"
    ) -> None:
        """Have a callback called with the outcome, at once if it is there."""
        ...

    def awaiting(self, outcome: "DeliveryOutcome") -> Generator[object, None, None]:
        """Suspend the task until the outcome is there."""
        ...

    def forked(self) -> None:
        """Stop waiting, in a child process that was forked from the producer's."""
        ...


class Receipt:
    """The outcome of one record, once it is there.

    `result()` waits and returns a `RecordMetadata`, or raises the record's error. Awaiting the
    receipt of an `AsyncProducer` does the same. The record is sent even if its receipt is dropped.
    """

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: "DeliveryOutcome", index: int) -> None:
        self._outcome = outcome
        self._index = index

    def done(self) -> bool:
        """Return whether the record was acknowledged or has failed."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait at most `timeout` seconds, and return the record's partition and offset.

        Raises:
            TimeoutError: the time was up; the record is still being sent.
            ProducerError: it was not written, or may not be; the class says which.
        """
        if not self._outcome.is_done and not self._outcome.waiting.wait(self._outcome, timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the record is still on its way")
        return self._outcome.metadata_of(self._index)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as `result` does, and return the record's error, or None."""
        if not self._outcome.is_done and not self._outcome.waiting.wait(self._outcome, timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the record is still on its way")
        return self._outcome.error_of(self._index)

    def add_done_callback(self, callback: "DeliveryCallback") -> None:
        """Have `callback(metadata, error)` called when the outcome is there.

        The producer's own thread calls it, or the event loop of an `AsyncProducer`, one callback at
        a time, so it should not block. If the outcome is there already, a `Producer` calls it here
        at once. Its exceptions are logged.
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
