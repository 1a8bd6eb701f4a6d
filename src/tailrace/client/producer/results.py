"""Results of calls that send much: `BatchReceipt` of `send_batch`, `SendSummary` of `send_many`.

Invariant: a receipt gets its outcome exactly once, at the latest when the producer is closed. Every
row is counted once, as acknowledged or as one of the errors.
"""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tailrace.client.producer.outcome import BatchOutcome, RecordMetadata
from tailrace.client.producer.receipts import Receipt, receipts_of

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice


ERRORS_KEPT_MAX: Final = 1000
"""Most exceptions that a summary keeps: a call whose rows all fail has millions of them."""


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
        return [self._outcome.result_of(index) for index in range(self.record_count)]

    def __repr__(self) -> str:
        state = "on its way"
        if self._outcome.is_done:
            error = self.exception()
            state = "written" if error is None else repr(error)
        return (
            f"<BatchReceipt of {self.record_count} records to {self._outcome.partition}: {state}>"
        )


class SendSummary:
    """The result of `send_many`.

    If `send_many` raises, the error has this as `summary`, with the outcomes until then. The
    `pending_count` rows are still sent; after `flush()`, `settle()` counts their outcomes too.
    """

    def __init__(self, topic: str, progress: Callable[[int], object] | None = None) -> None:
        self.topic = topic
        self._progress = progress
        self._reported_count = 0
        self.row_count = 0
        """Rows that the caller gave."""
        self.acknowledged_count = 0
        """Rows that were written."""
        self.error_count = 0
        """The other rows that have an outcome: they were not written, or may not be."""
        self.failed_rows: array[int] = array("q")
        """The numbers of these rows, from 0, in the order of their outcomes: 8 bytes for each."""
        self.errors: dict[int, Exception] = {}
        """The errors of the first `ERRORS_KEPT_MAX` of them (1000), by row number."""
        self.error_kinds: Counter[str] = Counter()
        """The number of rows that failed with each class of error."""
        self._first: tuple[int, Exception] | None = None
        """The failed row with the lowest number, and its error."""
        self.offsets: dict[int, tuple[int, int]] = {}
        """First and last offset of the rows, by partition; empty with acks=0. Records of other
        producers may lie between them."""
        self._pending: deque[tuple[BatchOutcome, ColumnSlice]] = deque()

    def raise_errors(self) -> None:
        """Raise the error of the first row that failed, if any did.

        A note says how many have failed, and with which classes of errors.
        """
        if self._first is not None:
            first, error = self._first
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.error_kinds.most_common())
            error.add_note(
                f"row {first}, the first of {self.error_count:,} that were not written: {kinds}"
            )
            raise error

    def add_error(self, row: int, error: Exception) -> None:
        """Count a row that was not written, or may not be."""
        self.error_count += 1
        self.failed_rows.append(row)
        self.error_kinds[type(error).__name__] += 1
        if len(self.errors) < ERRORS_KEPT_MAX:
            self.errors[row] = error
        if self._first is None or row < self._first[0]:
            self._first = row, error

    def add(self, outcome: "BatchOutcome", rows: "ColumnSlice") -> None:
        """Add the rows of a batch that is being sent."""
        self._pending.append((outcome, rows))

    @property
    def pending_count(self) -> int:
        """Rows that are being sent and have no outcome yet."""
        return sum(rows.record_count for _, rows in self._pending)

    @property
    def unsent_count(self) -> int:
        """Rows that were read but not sent; 0 unless `send_many` raised."""
        return self.row_count - self._ended_count - self.pending_count

    @contextmanager
    def accounting(self) -> Iterator[None]:
        """Set the attribute `summary` on any exception of the block."""
        try:
            yield
        except BaseException as error:
            self.settle()
            # Also after Ctrl-C or a cancellation: what was written has to be known then as well.
            # The caller's exception may have slots and refuse a new attribute.
            with suppress(Exception):
                error.summary = self  # type: ignore[attr-defined]
            raise

    def settle(self) -> bool:
        """Count the outcomes that are there; returns whether all are."""
        # Batches end in about their order, so only the oldest one is looked at.
        while self._pending and self._pending[0][0].is_done:
            self._take(*self._pending.popleft())
        return not self._pending

    def has_news(self) -> bool:
        """Count the outcomes that are there; returns whether there are new ones, or all are."""
        return self.settle() or self._ended_count > self._reported_count

    @property
    def is_over(self) -> bool:
        """Whether all added batches have their outcome."""
        return not self._pending

    @property
    def _ended_count(self) -> int:
        return self.acknowledged_count + self.error_count

    def report(self) -> None:
        """Call `progress` with the number of new outcomes; without the producer's lock."""
        new = self._ended_count - self._reported_count
        # Before the call: if `progress` raises, these rows are not reported twice.
        self._reported_count += new
        if self._progress is not None and new:
            self._progress(new)

    def _take(self, outcome: "BatchOutcome", rows: "ColumnSlice") -> None:
        for start, record_count, part in outcome.undivided(0, rows.record_count):
            if part.failure is not None:
                for index in range(record_count):
                    error = part.errors.get(index, part.failure)
                    self.add_error(rows.row_of(start + index), error)
                continue
            self.acknowledged_count += record_count
            if part.base_offset >= 0:
                first, last = part.base_offset, part.base_offset + record_count - 1
                # Another batch for the partition may have ended before this one.
                known = self.offsets.get(part.partition.partition, (first, last))
                self.offsets[part.partition.partition] = min(known[0], first), max(known[1], last)

    def __repr__(self) -> str:
        return (
            f"<SendSummary of {self.topic}: {self.acknowledged_count} of {self.row_count} rows "
            f"written, {self.pending_count} on their way, {self.unsent_count} not sent, "
            f"{self.error_count} errors>"
        )
