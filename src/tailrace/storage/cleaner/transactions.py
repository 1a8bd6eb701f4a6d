"""Transactions during a pass over the log: which batches are aborted, which markers may be removed.

A marker may be removed when no data of its transaction is left before it and the delete horizon of
its batch has passed. So a pass remembers for each producer whether it has read data of the open
transaction (KIP-98; CleanedTransactionMetadata in Kafka).

Invariant: batches and markers are passed in the order of their offsets; the aborted transactions of
a range are passed before its first batch.
"""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType, read_control_type
from tailrace.storage.index.transaction import AbortedTxn


class StraddlingTransactions(NamedTuple):
    """Producers whose transaction has data before some offset and its marker after it."""

    aborted: frozenset[int]
    """Producers whose transaction ends with an abort."""
    committed: frozenset[int]


NOTHING_OPEN: Final = StraddlingTransactions(frozenset(), frozenset())


class TransactionChanges(NamedTuple):
    """Effect of a range of the log on the set of open transactions."""

    open: StraddlingTransactions
    """Transactions with data in the range that are open after it."""
    abort_markers: frozenset[int]
    """Producers with an abort marker in the range."""
    commit_markers: frozenset[int]

    def after(self, before: StraddlingTransactions) -> StraddlingTransactions:
        """The transactions that are open after the range."""
        return StraddlingTransactions(
            aborted=(before.aborted - self.abort_markers) | self.open.aborted,
            committed=(before.committed - self.commit_markers) | self.open.committed,
        )


class CleanedTransactions:
    """The transactions that are open at one point of a pass."""

    def __init__(self, before: StraddlingTransactions = NOTHING_OPEN) -> None:
        """`before` are the transactions that are open where the pass begins."""
        self.retained: list[AbortedTxn] = []
        """Aborted transactions whose marker was kept. The caller writes them to the index of the
        new segment and clears the list."""
        self._ahead: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        # Producers with data of an open transaction that will be aborted.
        self._with_data = set(before.aborted)
        # Producers with data of an open transaction that will be committed.
        self._committed = set(before.committed)
        self._abort_markers: set[int] = set()
        # Producers whose commit marker the pass has read.
        self._commit_markers: set[int] = set()

    def add_aborted(self, aborted: Iterable[AbortedTxn]) -> None:
        """Adds the aborted transactions of the next range of the log."""
        for each in aborted:
            heapq.heappush(self._ahead, (each.first_offset, each))

    def met(self) -> TransactionChanges:
        """The changes so far, for a pass that began without open transactions."""
        return TransactionChanges(
            StraddlingTransactions(frozenset(self._with_data), frozenset(self._committed)),
            frozenset(self._abort_markers),
            frozenset(self._commit_markers),
        )

    def drops(self, batch: Batch) -> bool:
        """Whether the keys of a batch are ignored: it is a marker, or its data was aborted.

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
        """Whether a control batch is not needed: its transaction has no data before it.

        Raises:
            CorruptRecordError: its record breaks a rule of the format.
            CorruptionError: the transaction index, which has no checksum, contradicts it.
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


def _contradiction(marker: str, batch: Batch, aborted: AbortedTxn) -> CorruptionError:
    return CorruptionError(
        f"{marker} marker of producer {batch.producer_id} contradicts the transaction index, where "
        f"its transaction from offset {aborted.first_offset} is aborted at {aborted.last_offset}",
        offset=batch.base_offset,
    )
