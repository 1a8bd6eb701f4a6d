"""Groups and their offsets in numbers.

Totals are counted where a change is decided or replayed, never while a partition is loaded. Groups
and offsets that there are now are counted at the call, so that no request pays for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tailrace.coordinator.statistics import StoredCount
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.coordinator.groups.machine import GroupMachine


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
    # Counted now and not kept: no request pays for a figure that is rarely asked for.
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
