# cython: auto_pickle=False
"""`Receipt`: the result of sending one record: its partition and offset, or an error.

A receipt has two fields, the outcome of a batch and the record's index in it.

Invariant: a receipt gets its outcome exactly once, at the latest when the producer is closed.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import cython

from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Receipt:
    """The outcome of one record, once it is there.

    `result()` waits and returns a `RecordMetadata`, or raises the record's error. Awaiting the
    receipt of an `AsyncProducer` does the same. The record is sent even if its receipt is dropped.

    To await one record after the other costs a request to the broker for each. For many records
    await `batched()`, which returns as soon as the record is in a batch, and `flush` at the end.
    """

    if not cython.compiled:
        __slots__ = ("_index", "_outcome")

    if TYPE_CHECKING:
        _outcome: DeliveryOutcome
        _index: int

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
        return self._outcome.result_of(self._index)

    def batched(self) -> "Coroutine[Any, Any, Receipt]":
        """Wait until the record of an `AsyncProducer` is in a batch; returns the receipt.

            for value in values:
                await producer.send("flights", value).batched()
            await producer.flush()

        One request has many records then, and their number is not limited: while the buffer is
        full, this waits for room. It is `await producer.send(...)` of aiokafka. Other tasks run
        at least once for each batch. `Producer.send` waits by itself.

        Raises:
            ProducerError: the record is in no batch, or has failed already; the class says why.
            TypeError: the receipt is one of a `Producer`.
        """
        return self._outcome.waiting.batched(self)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as `result` does, and return the record's error, or None."""
        if not self._outcome.is_done and not self._outcome.waiting.wait(self._outcome, timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the record is still on its way")
        return self._outcome.error_of(self._index)

    def add_done_callback(self, callback: DeliveryCallback) -> None:
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
        # A receipt that is done is awaited without a turn of the loop, as a future that is done.
        if not self._outcome.is_done:
            yield from self._outcome.waiting.awaiting(self._outcome)
        return self._outcome.result_of(self._index)

    def __repr__(self) -> str:
        state = "on its way"
        if self._outcome.is_done:
            error = self._outcome.error_of(self._index)
            state = str(self._outcome.result_of(self._index)) if error is None else repr(error)
        return f"<Receipt of {self._outcome.partition}: {state}>"


def receipt_of(outcome: DeliveryOutcome, index: int) -> Receipt:
    """The receipt of a record, by its index in an outcome."""
    # Without a constructor, which takes twice as long (decision 48).
    made = Receipt.__new__(Receipt)
    made._outcome = outcome
    made._index = index
    return made


def receipts_of(outcome: DeliveryOutcome, count: int) -> list[Receipt]:
    """The receipts of the first `count` records of an outcome, in their order."""
    return [receipt_of(outcome, index) for index in range(count)]
