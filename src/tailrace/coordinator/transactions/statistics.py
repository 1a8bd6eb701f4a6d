"""Transactions and their markers in numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tailrace.coordinator.statistics import StoredCount
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.coordinator.transactions.machine import TransactionMachine


@dataclass(slots=True)
class TransactionCounts:
    """Totals of all partitions since the broker's start; see `TransactionsStatistics`."""

    timed_out: StoredCount = field(default_factory=StoredCount)
    markers: int = 0
    marker_retries: int = 0
    waiting_markers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsStatistics:
    """Transactions whose partitions this broker has loaded; totals since its start."""

    by_state: Mapping[str, int]
    """Transactional ids, by the state that ListTransactions shows; read only. A state without ids
    is left out."""
    timeout_count: int
    """Transactions that were aborted because they were open for longer than their timeout."""
    marker_count: int
    """Markers that partitions have taken, a second one of the same transaction too."""
    marker_waiting_count: int
    """Partitions, counted for each transaction, that have not taken its marker yet."""
    marker_retry_count: int
    """Times that a partition could not take a marker, which is tried again later."""


def transactions_statistics(
    machines: Iterable["TransactionMachine"], counts: TransactionCounts
) -> TransactionsStatistics:
    """The totals now, and the ids of these machines; looks at each id."""
    by_state = Counter(each.status for machine in machines for each in machine)
    return TransactionsStatistics(
        by_state=MappingProxyType({status.label: count for status, count in by_state.items()}),
        timeout_count=counts.timed_out.total,
        marker_count=counts.markers,
        marker_waiting_count=counts.waiting_markers,
        marker_retry_count=counts.marker_retries,
    )
