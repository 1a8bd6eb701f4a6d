"""When the offsets of classic groups, and of those without members, expire.

The time counts from the commit, or from the moment when the last member of a group has left. A
client of an old version may have given a time of its own.
"""

from collections.abc import Iterable, Mapping

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tailrace.coordinator.groups.commits import is_consumed
from tailrace.coordinator.groups.offsets import CommittedOffset
from tailrace.coordinator.groups.records import group_tombstone
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.model import TopicPartition


class ClassicRules:
    """See `expiry.GroupRules`."""

    def __init__(self, settings: GroupSettings, groups: Mapping[str, ClassicGroup]) -> None:
        self._settings = settings
        self._groups = groups

    def ids(self) -> Iterable[str]:
        """The ids of all groups."""
        return self._groups

    def is_expired(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, *, now_ms: int
    ) -> bool:
        """Whether an offset of a group has expired; not, if there is no such group."""
        group = self._groups.get(group_id)
        since_ms = None if group is None else _idle_since_ms(group, partition.topic, committed)
        if since_ms is None:
            return False
        if committed.expire_ms != -1:
            return now_ms >= committed.expire_ms
        return now_ms - since_ms >= self._settings.retention_ms

    def tombstones(self, group_id: str) -> Iterable[CoordinatorRecord]:
        """The tombstone of a group without members, also such that are about to join."""
        group = self._groups.get(group_id)
        if group is not None and group.state is ClassicState.EMPTY and not group.pending_ids:
            yield group_tombstone(group_id)


def _idle_since_ms(group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
    """Since when nobody consumes a partition for the group; None: somebody may."""
    if group.protocol_type is None:
        return committed.commit_ms
    if group.state is ClassicState.EMPTY:
        return committed.commit_ms if group.state_since_ms == -1 else group.state_since_ms
    is_known = group.state is ClassicState.STABLE and group.subscribed_topics is not None
    return committed.commit_ms if is_known and not is_consumed(group, topic) else None
