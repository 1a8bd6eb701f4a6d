"""`BatchReceipt`: the result of `send_batch`, with the offset of each record or its error.

Invariant: it gets its outcome exactly once, at the latest when the producer is closed.
"""

from collections.abc import Generator

from tailrace.client.producer.outcome import BatchOutcome, RecordMetadata
from tailrace.client.producer.receipts import Receipt, receipts_of


class BatchReceipt:
    """The outcome of a batch that the program has filled, once it is there.

    `result()` waits and returns a `RecordMetadata` for each record, in their order. Awaiting the
    receipt of an `AsyncProducer` does the same. The batch is sent even if this is dropped.
    """

    __slots__ = ("_outcome", "record_count")

    def __init__(self, outcome: BatchOutcome, record_count: int) -> None:
        self._outcome = outcome
        self.record_count = record_count
        """Number of records in the batch."""

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self._outcome.partition.topic

    @property
    def partition(self) -> int:
        """The partition it was sent to."""
        return self._outcome.partition.partition

    def done(self) -> bool:
        """Return whether the batch was acknowledged or has failed."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait at most `timeout` seconds, and return the offset and timestamp of each record.

        Raises:
            TimeoutError: the time was up; the batch is still being sent.
            ProducerError: the first error of a record. A broker that refuses the batch as too
                large gets it in parts; then `receipts` says which records were written.
        """
        self._wait(timeout)
        return self._results()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as `result` does, and return the first error of a record, or None."""
        self._wait(timeout)
        errors = (self._outcome.error_of(index) for index in range(self.record_count))
        return next((error for error in errors if error is not None), None)

    def receipts(self) -> list[Receipt]:
        """The receipt of each record, in their order, as `send` returns them; does not wait."""
        return receipts_of(self._outcome, self.record_count)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        if not self._outcome.is_done:
            yield from self._outcome.waiting.awaiting(self._outcome)
        return self._results()

    def _wait(self, timeout: float | None) -> None:
        if not self._outcome.is_done and not self._outcome.waiting.wait(self._outcome, timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the batch is still on its way")

    def _results(self) -> list[RecordMetadata]:
        return [self._outcome.metadata_of(index) for index in range(self.record_count)]

    def __repr__(self) -> str:
        state = "on its way"
        if self._outcome.is_done:
            error = self.exception()
            state = "written" if error is None else repr(error)
        return (
            f"<BatchReceipt of {self.record_count} records to {self._outcome.partition}: {state}>"
        )
