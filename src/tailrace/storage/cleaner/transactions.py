"""Transactions as a pass over the log meets them: which batches are aborted, which markers may go.

A marker may go once nothing of its transaction is left before it, and then only when the delete
horizon of its batch has passed. So one pass has to remember, for each producer, whether it has seen
data of the transaction that is open at the moment (KIP-98; CleanedTransactionMetadata in Kafka).

Invariant: batches and markers are told in the order of their offsets, and the aborted transactions
that reach into a stretch of log before its first batch.
"""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType, read_control_type
from tailrace.storage.index.transaction import AbortedTransaction


class OpenTransactions(NamedTuple):
    """Producers with data in a log before some offset, and its marker behind it."""

    aborted: frozenset[int]
    """Those whose transaction will be aborted."""
    committed: frozenset[int]


NOTHING_OPEN: Final = OpenTransactions(frozenset(), frozenset())


class MetTransactions(NamedTuple):
    """What a stretch of log does to the transactions that are open before it."""

    open: OpenTransactions
    """Those that were begun in the stretch, or were open and have data in it."""
    abort_markers: frozenset[int]
    """Producers of which the stretch has one."""
    commit_markers: frozenset[int]

    def after(self, before: OpenTransactions) -> OpenTransactions:
        """What is open behind the stretch."""
        return OpenTransactions(
            aborted=(before.aborted - self.abort_markers) | self.open.aborted,
            committed=(before.committed - self.commit_markers) | self.open.committed,
        )


class CleanedTransactions:
    """The transactions that are open at one point of a pass."""

    def __init__(self, before: OpenTransactions = NOTHING_OPEN) -> None:
        """`before` is what is open where the pass begins."""
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions of which data was met before their marker; whoever writes an index
        of them empties the list."""
        self._ahead: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data = set(before.aborted)
        """Producers whose aborted transaction, now open, has shown data."""
        self._committed = set(before.committed)
        """Producers with data of a transaction that will be committed."""
        self._abort_markers: set[int] = set()
        self._commit_markers: set[int] = set()
        """Producers of which the pass has met one."""

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Takes note of aborted transactions in the stretch of log that comes next."""
        for each in aborted:
            heapq.heappush(self._ahead, (each.first_offset, each))

    def met(self) -> MetTransactions:
        """What the pass has met so far, for a pass that began with nothing open."""
        return MetTransactions(
            OpenTransactions(frozenset(self._with_data), frozenset(self._committed)),
            frozenset(self._abort_markers),
            frozenset(self._commit_markers),
        )

    def drops(self, batch: Batch) -> bool:
        """Whether a batch has no record whose key counts: a marker, or data that was aborted.

        Raises:
            CorruptionError: as `ends_nothing`.
        """
        if batch.is_control:
            self.ends_nothing(batch)
            return True
        return self.is_aborted(batch)

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._with_data.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def ends_nothing(self, batch: Batch) -> bool:
        """Whether a control batch is of no more use: nothing of its transaction came before it.

        Raises:
            CorruptRecordError: its record breaks a rule of the format.
            CorruptionError: the transaction index, which has no checksum, says otherwise.
        """
        self._reach(batch.last_offset)
        record = next(records_of(batch), None)
        if record is None:
            return True
        match read_control_type(record.key):
            case ControlType.ABORT:
                self._abort_markers.add(batch.producer_id)
                aborted = self._aborted.pop(batch.producer_id, None)
                if aborted is not None and aborted.last_offset != batch.last_offset:
                    raise _contradiction("an abort", batch, aborted)
                if aborted is None or batch.producer_id not in self._with_data:
                    return True
                self._with_data.discard(batch.producer_id)
                self.retained.append(aborted)
                return False
            case ControlType.COMMIT:
                self._commit_markers.add(batch.producer_id)
                if batch.producer_id in self._aborted:
                    raise _contradiction("a commit", batch, self._aborted[batch.producer_id])
                if batch.producer_id in self._committed:
                    self._committed.discard(batch.producer_id)
                    return False
                return True
            case _:
                return False

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, aborted = heapq.heappop(self._ahead)
            self._aborted.setdefault(aborted.producer_id, aborted)


def _contradiction(marker: str, batch: Batch, aborted: AbortedTransaction) -> CorruptionError:
    return CorruptionError(
        f"{marker} of producer {batch.producer_id}, and the transaction index has one that began "
        f"at {aborted.first_offset} aborted at {aborted.last_offset}",
        offset=batch.base_offset,
    )
