"""When the offsets of consumer groups expire: some time after their commit.

Not while a member subscribes to their topic. A client of an old version may have given a time of
its own.
"""

from collections.abc import Iterable

from tailrace.coordinator.groups.consumer_group import ConsumerState
from tailrace.coordinator.groups.consumer_groups import ConsumerGroups
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.offsets import CommittedOffset
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.model import TopicPartition


class ConsumerRules:
    """See `expiry.GroupRules`."""

    def __init__(self, settings: GroupSettings, groups: ConsumerGroups) -> None:
        self._settings = settings
        self._groups = groups

    def ids(self) -> Iterable[str]:
        """The ids of all groups."""
        return self._groups.by_id

    def is_expired(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, *, now_ms: int
    ) -> bool:
        """Whether an offset of a group has expired; not, if there is no such group."""
        group = self._groups.by_id.get(group_id)
        limit_ms = committed.expire_ms
        if limit_ms == -1:
            limit_ms = committed.commit_ms + self._settings.retention_ms
        return (
            group is not None and now_ms >= limit_ms and not group.is_subscribed_to(partition.topic)
        )

    def tombstones(self, group_id: str) -> Iterable[CoordinatorRecord]:
        """The tombstones of a group without members."""
        group = self._groups.by_id.get(group_id)
        if group is None or group.state is not ConsumerState.EMPTY:
            return ()
        return consumer_group_tombstones(group)
