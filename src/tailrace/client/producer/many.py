"""`SendSummary`: what became of many rows that were sent at once.

Not here: how rows become batches (`columns`, `slices`), and waiting (the faces).

Invariant: every row is counted once, as acknowledged or as one of the errors.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tailrace.client.producer.errors import RejectedRecordError

if TYPE_CHECKING:
    from tailrace.client.producer.batch import ProducerBatch
    from tailrace.client.producer.engine import Parts
    from tailrace.client.producer.slices import RefusedRow


def check_columns(parts: "Parts") -> None:
    """Raises TypeError if rows cannot go as columns: something wants to see each record."""
    if parts.interceptors or parts.partitioner or parts.key_serializer or parts.value_serializer:
        raise TypeError(
            "send_many writes columns as they are; a producer with serializers, interceptors "
            "or a partitioner of its own sends record by record: use send"
        )


class SendSummary:
    """The outcome of `send_many`.

    Where `send_many` raises, the error has it as `summary`: what became of the rows until then. The
    rows of `pending_count` go on; after `flush()`, `settle()` takes their outcomes too.
    """

    def __init__(self, topic: str, progress: Callable[[int], object] | None = None) -> None:
        self.topic = topic
        self._progress = progress
        self._told_count = 0
        self.row_count = 0
        """Rows that were given."""
        self.acknowledged_count = 0
        """Of these, the ones that were written."""
        self.errors: dict[int, Exception] = {}
        """Why the others were not, by their number from 0."""
        self.offsets: dict[int, tuple[int, int]] = {}
        """First and last offset that rows went to, by partition; where brokers tell (not acks=0).
        Records of other producers may stand between them."""
        self._pending: deque[ProducerBatch] = deque()

    def raise_errors(self) -> None:
        """Raise the error of the first row that has one, if any has."""
        if self.errors:
            first = min(self.errors)
            error = self.errors[first]
            error.add_note(f"row {first}, the first of {len(self.errors)} that were not written")
            raise error

    def refuse(self, rows: "list[RefusedRow]") -> None:
        """Note rows that were not sent."""
        for each in rows:
            self.errors[each.row] = RejectedRecordError(f"row {each.row}: {each.rule}")

    def add(self, batch: "ProducerBatch") -> None:
        """Note a batch on its way."""
        self._pending.append(batch)

    @property
    def pending_count(self) -> int:
        """Rows on their way, whose outcome is not known yet."""
        return sum(batch.record_count for batch in self._pending)

    @property
    def unsent_count(self) -> int:
        """Rows that were read and are not on their way; not 0 only where `send_many` raised."""
        return self.row_count - self._ended_count - self.pending_count

    @contextmanager
    def accounting(self) -> Iterator[None]:
        """Have whatever the block raises carry the summary."""
        try:
            yield
        except BaseException as error:
            self.settle()
            # An exception of the caller's may refuse to have one more attribute.
            with suppress(Exception):
                error.summary = self  # type: ignore[attr-defined]
            raise

    def settle(self) -> bool:
        """Take the outcomes that are there; whether that is all of them."""
        while self._pending and self._pending[0].is_done:
            self._take(self._pending.popleft())
        return not self._pending

    def has_news(self) -> bool:
        """Take the outcomes that are there; whether there is any that `tell` has not told."""
        return self.settle() or self._ended_count > self._told_count

    @property
    def is_over(self) -> bool:
        """Whether each row that was added has its outcome."""
        return not self._pending

    @property
    def _ended_count(self) -> int:
        return self.acknowledged_count + len(self.errors)

    def tell(self) -> None:
        """Call `progress` with what is new; without the producer's lock."""
        new = self._ended_count - self._told_count
        self._told_count += new
        if self._progress is not None and new:
            self._progress(new)

    def _take(self, batch: "ProducerBatch") -> None:
        if batch.parts is not None:
            for _, part in batch.parts:
                self._take(part)
            return
        columns = batch.columns
        if batch.failure is not None:
            assert columns is not None, "a batch of columns keeps them until it succeeds"
            for index in range(batch.record_count):
                self.errors[columns.row_of(index)] = batch.errors.get(index, batch.failure)
            return
        self.acknowledged_count += batch.record_count
        if batch.base_offset >= 0:
            first, last = batch.base_offset, batch.base_offset + batch.record_count - 1
            known = self.offsets.get(batch.partition.partition, (first, last))
            self.offsets[batch.partition.partition] = min(known[0], first), max(known[1], last)

    def __repr__(self) -> str:
        return (
            f"<SendSummary of {self.topic}: {self.acknowledged_count} of {self.row_count} rows "
            f"written, {self.pending_count} on their way, {self.unsent_count} not sent, "
            f"{len(self.errors)} errors>"
        )
