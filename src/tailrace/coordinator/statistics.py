"""The coordinators in numbers: the partitions of their topics, their groups, their transactions.

The counts are shared by all shards of a topic, so that their totals outlast each of them: they
continue when a partition goes elsewhere and comes back. Totals are counted where a change is
decided or replayed, never while a partition is loaded. What there is now is counted when somebody
asks, so that no request pays for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.coordinator.groups.machine import GroupMachine
    from tailrace.coordinator.transactions.machine import TransactionMachine


@dataclass(slots=True)
class StoredCount:
    """A number of changes whose records are in the log."""

    total: int = 0

    # Counted when it is decided, since a replay cannot tell live records from loaded ones.
    def add(self, count: int) -> Callable[[Exception], None]:
        """Count changes that are decided; the result is the `undo` of their decision."""
        self.total += count

        def take_back(_: Exception) -> None:
            self.total -= count

        return take_back


@dataclass(slots=True)
class ShardCounts:
    """Totals since the broker's start; see `ShardsStatistics` for what they are."""

    loads: int = 0
    failed_loads: int = 0
    loaded_bytes: int = 0
    load_seconds_total: float = 0.0
    load_seconds_max: float = 0.0
    appends: int = 0
    append_seconds_total: float = 0.0
    append_seconds_max: float = 0.0
    failed_appends: int = 0
    commit_waits: int = 0
    waiting: int = 0
    commit_seconds_total: float = 0.0
    commit_seconds_max: float = 0.0

    def loaded(self, byte_count: int, seconds: float) -> None:
        self.loads += 1
        self.loaded_bytes += byte_count
        self.load_seconds_total += seconds
        self.load_seconds_max = max(self.load_seconds_max, seconds)

    def appended(self, seconds: float) -> None:
        self.appends += 1
        self.append_seconds_total += seconds
        self.append_seconds_max = max(self.append_seconds_max, seconds)

    @contextmanager
    def commit_wait(self) -> Iterator[None]:
        """Count and time a wait for a commit, however it ends."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
            self.commit_waits += 1
            seconds = loop.time() - started_s
            self.commit_seconds_total += seconds
            self.commit_seconds_max = max(self.commit_seconds_max, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsStatistics:
    """The partitions of a coordinator's topic that this broker leads; totals since its start."""

    loading_count: int
    """Partitions that are being read now; their clients have to ask again."""
    active_count: int
    """Partitions whose groups or transactions are served."""
    failed_count: int
    """Partitions that could not be read, or whose state did not follow their log; their clients are
    refused."""
    load_count: int
    """Partitions that were read to their end, counted each time."""
    load_failure_count: int
    """Partitions that could not be read, counted each time; not among `load_count`."""
    load_byte_count: int
    """Size of the logs that these loads have read, in bytes."""
    load_seconds_total: float
    """Duration of these loads, in seconds, with the time that they waited for a thread."""
    load_seconds_max: float
    """Duration of the longest, in seconds."""
    append_count: int
    """Batches appended: one for each change of groups or transactions, and markers."""
    append_seconds_total: float
    """Duration of these appends, in seconds; no other request is answered meanwhile."""
    append_seconds_max: float
    """Duration of the longest, in seconds."""
    append_failure_count: int
    """Changes that were not made, because their records could not be appended."""
    commit_wait_count: int
    """Replies that had to wait until all that they rest on was committed, and wait no more."""
    commit_waiting_count: int
    """Replies that wait so now."""
    commit_seconds_total: float
    """Duration of the waits that have ended, in seconds, timeouts among them."""
    commit_seconds_max: float
    """Duration of the longest, in seconds."""


def shards_statistics(
    counts: ShardCounts, *, loading_count: int, active_count: int, failed_count: int
) -> ShardsStatistics:
    return ShardsStatistics(
        loading_count=loading_count,
        active_count=active_count,
        failed_count=failed_count,
        load_count=counts.loads,
        load_failure_count=counts.failed_loads,
        load_byte_count=counts.loaded_bytes,
        load_seconds_total=counts.load_seconds_total,
        load_seconds_max=counts.load_seconds_max,
        append_count=counts.appends,
        append_seconds_total=counts.append_seconds_total,
        append_seconds_max=counts.append_seconds_max,
        append_failure_count=counts.failed_appends,
        commit_wait_count=counts.commit_waits,
        commit_waiting_count=counts.waiting,
        commit_seconds_total=counts.commit_seconds_total,
        commit_seconds_max=counts.commit_seconds_max,
    )


@dataclass(slots=True)
class GroupCounts:
    """Totals of all partitions since the broker's start; see `GroupsStatistics`."""

    committed: StoredCount = field(default_factory=StoredCount)
    expired: StoredCount = field(default_factory=StoredCount)
    deleted: StoredCount = field(default_factory=StoredCount)
    classic_rebalances: int = 0
    consumer_rebalances: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatistics:
    """Groups whose partitions this broker has loaded; totals since its start."""

    classic_by_state: Mapping[str, int]
    """Groups of the classic protocol, by the state that ListGroups shows; read only. A group that
    only commits offsets is one of them, a state without groups is left out."""
    consumer_by_state: Mapping[str, int]
    """The same of groups of the consumer protocol (KIP-848)."""
    offset_count: int
    """Committed offsets, one for each group and partition."""
    offset_commit_count: int
    """Offsets that were committed, counted each time, in transactions when they are sent."""
    offset_expiration_count: int
    """Offsets that were removed because nobody used them for so long."""
    offset_deletion_count: int
    """Offsets that were removed because a client, or the deletion of a group or topic, asked."""
    classic_rebalance_count: int
    """Rebalances of classic groups that were completed: the assignment of the leader is stored."""
    consumer_rebalance_count: int
    """Rebalances of consumer groups that have begun: each group epoch that is stored, also that of
    a classic group that becomes one."""


def groups_statistics(machines: Iterable["GroupMachine"], counts: GroupCounts) -> GroupsStatistics:
    """The totals now, and the groups of these machines; looks at each member of each group."""
    classic: Counter[str] = Counter()
    consumer: Counter[str] = Counter()
    offset_count = 0
    for machine in machines:
        of_classic, of_consumer = machine.groups.states()
        classic += of_classic
        consumer += of_consumer
        offset_count += sum(map(len, machine.groups.offsets.committed.values()))
    return GroupsStatistics(
        classic_by_state=MappingProxyType(dict(classic)),
        consumer_by_state=MappingProxyType(dict(consumer)),
        offset_count=offset_count,
        offset_commit_count=counts.committed.total,
        offset_expiration_count=counts.expired.total,
        offset_deletion_count=counts.deleted.total,
        classic_rebalance_count=counts.classic_rebalances,
        consumer_rebalance_count=counts.consumer_rebalances,
    )


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
