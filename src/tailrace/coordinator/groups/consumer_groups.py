"""The consumer groups of one shard, as the records in the log make them.

A tombstone of what is not there is passed over: compaction may have removed the record before it.
"""

from collections.abc import Callable

from tailrace.coordinator.groups.consumer_group import (
    LEFT,
    NO_METADATA,
    ConsumerGroup,
    ConsumerMember,
    ResolvedRegex,
)
from tailrace.coordinator.groups.consumer_records import (
    CurrentValue,
    TargetValue,
    loaded_current,
    loaded_target,
)
from tailrace.coordinator.groups.statistics import GroupCounts
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.fields import Message
from tailrace.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tailrace.values import replace

_NO_TARGET = -1


class ConsumerGroups:
    """Consumer groups by id; `replay` alone changes them."""

    def __init__(self, *, replaces: Callable[[str], None]) -> None:
        """`replaces` is called with the id of a group before its first record makes it."""
        self.by_id: dict[str, ConsumerGroup] = {}
        self._replaces = replaces
        self._counts: GroupCounts | None = None

    def start(self, counts: GroupCounts) -> None:
        """All records are replayed: count the rebalances that begin from now on."""
        self._counts = counts

    def replay(self, record: CoordinatorRecord) -> bool:
        """Change a group by one record; returns whether it is a record of a consumer group."""
        key, value = record
        group_id = getattr(key, "group_id", None)
        if group_id is None:
            return False
        if value is None and group_id not in self.by_id:
            return True
        match key:
            case ConsumerGroupMetadataKey():
                self._replay_epoch(group_id, value)
            case ConsumerGroupPartitionMetadataKey():
                self._group(group_id).has_topic_records = value is not None
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                self._replay_member(group_id, member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self._replay_target_epoch(group_id, value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self._replay_target(group_id, member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                self._replay_current(group_id, member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=regex):
                self._replay_regex(group_id, regex, value)
            case _:
                return False
        return True

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self.by_id.get(group_id)
        if group is None:
            self._replaces(group_id)
            group = self.by_id[group_id] = ConsumerGroup(group_id)
        return group

    @staticmethod
    def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
        known = group.members.get(member_id)
        if known is not None:
            return known
        return ConsumerMember(member_id, NO_METADATA)

    def _replay_epoch(self, group_id: str, value: Message | None) -> None:
        if value is None:
            del self.by_id[group_id]
            return
        assert isinstance(value, ConsumerGroupMetadataValue)
        group = self._group(group_id)
        if self._counts is not None and value.epoch > group.epoch:
            self._counts.consumer_rebalances += 1
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(self, group_id: str, member_id: str, value: Message | None) -> None:
        group = self._group(group_id)
        if value is None:
            group.remove(member_id)
            return
        assert isinstance(value, ConsumerGroupMemberMetadataValue)
        group.put(ConsumerMember(member_id, value, self._member(group, member_id).current))

    def _replay_target_epoch(self, group_id: str, value: Message | None) -> None:
        group = self._group(group_id)
        if value is None:
            group.target_epoch, group.target_timestamp_ms = _NO_TARGET, 0
            return
        assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
        group.target_epoch = value.assignment_epoch
        group.target_timestamp_ms = value.assignment_timestamp

    def _replay_target(self, group_id: str, member_id: str, value: Message | None) -> None:
        group = self._group(group_id)
        if value is None:
            group.target.pop(member_id, None)
            return
        assert isinstance(value, TargetValue)
        group.target[member_id] = loaded_target(value)

    def _replay_current(self, group_id: str, member_id: str, value: Message | None) -> None:
        group = self._group(group_id)
        if value is None:
            if member_id in group.members:
                group.put(replace(group.members[member_id], current=LEFT))
            return
        assert isinstance(value, CurrentValue)
        group.put(replace(self._member(group, member_id), current=loaded_current(value)))

    def _replay_regex(self, group_id: str, regex: str, value: Message | None) -> None:
        group = self._group(group_id)
        if value is None:
            group.regexes.pop(regex, None)
            return
        assert isinstance(value, ConsumerGroupRegularExpressionValue)
        group.regexes[regex] = ResolvedRegex(
            frozenset(value.topics), value.version, value.timestamp
        )
