"""`DeliveryOutcome`: the result of sending records, which their receipts refer to.

An outcome is all that stays of a batch once it is done: where its records are, or their errors.
Records, encoded bytes and memory belong to the batch.

Invariant: `is_done` is set last, so a thread that reads it as True sees the complete outcome.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tailrace.client.user_code import call_each, call_user_code
from tailrace.model import NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine

_NO_ERRORS: Final[Mapping[int, Exception]] = {}
"""One for all outcomes: each record in line would take memory for its own."""


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


DeliveryCallback = Callable[[RecordMetadata, Exception | None], None]


class Waiting(Protocol):
    """Lets receipts wait for an outcome, by a thread or on an event loop."""

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

    # Not typed as a `Receipt`, whose module is above this one.
    def batched(self, receipt: Any) -> "Coroutine[Any, Any, Any]":  # noqa: ANN401
        """Suspend the task until the record is in a batch; see `Receipt.batched`."""
        ...


class DeliveryOutcome:
    """The result of sending some records; base of a batch's, and of records that get into none."""

    __slots__ = (
        "callbacks",
        "errors",
        "failure",
        "is_done",
        "is_forgotten",
        "partition",
        "waiting",
        "watchers",
    )

    def __init__(self, partition: TopicPartition, waiting: Waiting) -> None:
        self.partition = partition
        self.waiting = waiting
        self.is_done = False
        self.is_forgotten = False
        """Some of the records have no receipt, so a failure is logged."""
        self.failure: Exception | None = None
        """The error of all records, except those in `errors`."""
        self.errors: Mapping[int, Exception] = _NO_ERRORS
        """Errors of single records, by index."""
        self.callbacks: list[int | DeliveryCallback] = []
        """Index of a record, its callback, index, callback, ... A pair for each would be an object
        that the garbage collector looks at again and again."""
        self.watchers: list[Callable[[], None]] | None = None
        """Called under the producer's lock as soon as it is done; they only wake a waiter."""

    def error_of(self, index: int) -> Exception | None:
        return self.errors.get(index, self.failure)

    def result_of(self, index: int) -> RecordMetadata:
        """The record's partition, offset and timestamp; raises its error if it failed."""
        error = self.error_of(index)
        if error is not None:
            # Receipts share the error; without this, each raise would add frames to its traceback.
            raise error.with_traceback(None)
        return self.metadata_of(index)

    def metadata_of(self, index: int) -> RecordMetadata:  # noqa: ARG002 - a batch knows more
        return RecordMetadata(*self.partition, offset=-1, timestamp=-1)

    def finish(self) -> "list[DeliveryOutcome]":
        """Set `is_done` and call the watchers; returns the outcomes whose callbacks are due now."""
        # Last: `Receipt.result` reads it without a lock, and then everything else.
        self.is_done = True
        watchers, self.watchers = self.watchers, None
        for wake in watchers or ():
            wake()
        return [self]

    def add_callback(self, index: int, callback: DeliveryCallback) -> None:
        """Have a record's callback called when this is done; not done yet, under the lock."""
        self.callbacks.extend((index, callback))

    def add_watcher(self, wake: Callable[[], None]) -> None:
        if self.watchers is None:
            self.watchers = []
        self.watchers.append(wake)

    def remove_watcher(self, wake: Callable[[], None]) -> None:
        """Remove a watcher that `add_watcher` added; under the lock."""
        if self.watchers is not None and wake in self.watchers:
            self.watchers.remove(wake)

    def run_callbacks(self) -> None:
        """Call the callbacks in the order of their records; their exceptions are logged."""
        found: Any = self.callbacks
        self.callbacks = []
        indexes, callbacks = found[::2], found[1::2]
        # Callbacks that were added later come last in the list. The user expects the order of the
        # records (Kafka calls back in that order).
        if indexes != sorted(indexes):
            order = sorted(range(len(indexes)), key=indexes.__getitem__)
            indexes, callbacks = [indexes[at] for at in order], [callbacks[at] for at in order]
        call_each(zip(callbacks, *self._results(indexes), strict=False), about=self._about)

    def _results(
        self, indexes: Sequence[int]
    ) -> tuple[Iterable[RecordMetadata], Iterable[Exception | None]]:
        return map(self.metadata_of, indexes), map(self.error_of, indexes)

    def call(self, index: int, callback: DeliveryCallback) -> None:
        """Call one callback; its exception is logged."""
        metadata, error = self.metadata_of(index), self.error_of(index)
        call_user_code(callback, metadata, error, about=self._about)

    @property
    def _about(self) -> str:
        return f"on_delivery partition={self.partition}"


class RefusedRecordOutcome(DeliveryOutcome):
    """The outcome of a record that got into no batch."""

    __slots__ = ()

    def __init__(self, partition: TopicPartition, waiting: Waiting, error: Exception) -> None:
        super().__init__(partition, waiting)
        self.failure = error
        self.is_done = True


class Part(NamedTuple):
    """One of the batches that a batch was split into."""

    start: int
    """Index of its first record in the whole batch."""
    record_count: int
    outcome: "BatchOutcome"


class BatchOutcome(DeliveryOutcome):
    """The outcome of the records of one batch, or of the batches that it was split into."""

    __slots__ = (
        "base_offset",
        "is_awaited",
        "log_append_time",
        "parts",
        "timestamps",
        "whole",
    )

    def __init__(
        self,
        partition: TopicPartition,
        waiting: Waiting,
        *,
        whole: "BatchOutcome | None" = None,
    ) -> None:
        super().__init__(partition, waiting)
        self.is_awaited = False
        """A caller waits for it, so its batch does not linger."""
        self.base_offset = -1
        self.log_append_time = -1
        self.timestamps: Sequence[int] = ()
        """Timestamps of its records in ms, as far as they are known."""
        self.whole = whole
        """The outcome of the batch that this one was split from."""
        self.parts: Sequence[Part] = ()

    def split(self, counts: Sequence[int]) -> Sequence[Part]:
        """Set and return the parts, with these counts of records."""
        parts, start = [], 0
        for count in counts:
            outcome = BatchOutcome(self.partition, self.waiting, whole=self)
            outcome.is_forgotten = self.is_forgotten
            outcome.timestamps = self.timestamps[start : start + count]
            parts.append(Part(start, count, outcome))
            start += count
        self.parts = parts
        self.timestamps = ()
        return parts

    def finish(self) -> list[DeliveryOutcome]:
        """Set `is_done`, and also that of the batch it was split from, if all parts are done."""
        # With message.timestamp.type=LogAppendTime all records have the broker's time; their own
        # would live as long as a receipt.
        if self.log_append_time >= 0:
            self.timestamps = ()
        ended = super().finish()
        # Callbacks of the whole are due when the last part is done: their order is that of records.
        whole = self.whole
        if whole is not None and all(part.outcome.is_done for part in whole.parts):
            ended += whole.finish()
        return ended

    def undivided(self, start: int, record_count: int) -> "Iterator[Part]":
        """The outcomes that have no parts, of this batch's records.

        `start` is the number that its first record has for the caller.
        """
        if not self.parts:
            yield Part(start, record_count, self)
        for part in self.parts:
            yield from part.outcome.undivided(start + part.start, part.record_count)

    def _part_of(self, index: int) -> Part:
        # Few parts: a batch is split in two, and rarely again.
        return next(part for part in reversed(self.parts) if part.start <= index)

    def metadata_of(self, index: int) -> RecordMetadata:
        if self.parts:
            part = self._part_of(index)
            return part.outcome.metadata_of(index - part.start)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.log_append_time
        if timestamp < 0:
            timestamp = self.timestamps[index] if index < len(self.timestamps) else NO_TIMESTAMP
        return RecordMetadata(*self.partition, offset, timestamp)

    def error_of(self, index: int) -> Exception | None:
        if self.parts:
            part = self._part_of(index)
            return part.outcome.error_of(index - part.start)
        return super().error_of(index)

    def _results(
        self, indexes: Sequence[int]
    ) -> tuple[Iterable[RecordMetadata], Iterable[Exception | None]]:
        written = self.log_append_time
        has_offsets = self.base_offset >= 0 and (written >= 0 or len(self.timestamps) > 0)
        # Callbacks of a whole batch are called at once, so a Python function for each record would
        # be most of their cost.
        if not has_offsets or self.parts or self.failure is not None or self.errors:
            return super()._results(indexes)
        fields = zip(
            repeat(self.partition.topic),
            repeat(self.partition.partition),
            map(self.base_offset.__add__, indexes),
            map(self.timestamps.__getitem__, indexes) if written < 0 else repeat(written),
            strict=False,
        )
        # A call of the class ends in `tuple.__new__` too.
        known = map(tuple.__new__, repeat(RecordMetadata), fields)
        return known, repeat(None)
