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
    from tailrace.coordinator.groups.all_groups import AllGroupsMachine
    from tailrace.coordinator.groups.classic_group import ClassicState
    from tailrace.coordinator.groups.consumer_group import ConsumerState


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


def groups_statistics(
    machines: Iterable["AllGroupsMachine"], counts: GroupCounts
) -> GroupsStatistics:
    """The totals now, and the groups of these machines; looks at each member of each group."""
    classic: Counter[ClassicState] = Counter()
    consumer: Counter[ConsumerState] = Counter()
    offset_count = 0
    for machine in machines:
        classic.update(each.state for each in machine.classic.groups.values())
        consumer.update(each.state for each in machine.consumers.by_id.values())
        offset_count += sum(map(len, machine.classic.offsets.committed.values()))
    return GroupsStatistics(
        classic_by_state=MappingProxyType({state.value: count for state, count in classic.items()}),
        consumer_by_state=MappingProxyType(
            {state.value: count for state, count in consumer.items()}
        ),
        offset_count=offset_count,
        offset_commit_count=counts.committed.total,
        offset_expiration_count=counts.expired.total,
        offset_deletion_count=counts.deleted.total,
        classic_rebalance_count=counts.classic_rebalances,
        consumer_rebalance_count=counts.consumer_rebalances,
    )
