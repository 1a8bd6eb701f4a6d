"""Members of consumer groups that leave, are fenced, or are removed by an operator.

If only members of the classic protocol are left, the group may become a classic one.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from tailrace.coordinator.groups.consumer_groups import ConsumerGroups
from tailrace.coordinator.groups.consumer_records import member_tombstones
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.deadlines import Deadlines
from tailrace.coordinator.groups.group_epoch import next_epoch
from tailrace.coordinator.groups.migration import Migration
from tailrace.coordinator.groups.regexes import dropped_regexes
from tailrace.coordinator.groups.sessions import Sessions
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import CoordinatorRecord, Decision

logger = logging.getLogger(__name__)


class Removals:
    """Removes the members of one shard, and those that miss a deadline."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: Topics,
        *,
        settings: Callable[[str], ConsumerSettings],
        deadlines: Deadlines,
        migration: Migration,
    ) -> None:
        self.sessions = Sessions(deadlines, settings=settings, fence=self._fence)
        self._groups = groups
        self._topics = topics
        self._migration = migration

    def remove(
        self, group: ConsumerGroup, members: Iterable[ConsumerMember], now_ms: int
    ) -> Decision[None]:
        """The records that remove members, and the function that undoes it."""
        gone = {each.member_id: each for each in members}
        for member_id in gone:
            self.sessions.forget(group.group_id, member_id)
        left = {each: known for each, known in group.members.items() if each not in gone}
        if self._migration.can_downgrade(group, left):
            reason = "the last members of the consumer protocol have gone"
            records = self._migration.downgrade(group, left, now_ms=now_ms, reason=reason)
            for member_id in left:
                self.sessions.forget(group.group_id, member_id)
        else:
            records = self._records(group, gone.values())

        def undo(_: Exception) -> None:
            self._migration.cancel(group.group_id)
            for member in group.members.values():
                self.sessions.resume(group.group_id, member)

        return Decision(reply=None, records=records, undo=undo)

    def _records(
        self, group: ConsumerGroup, gone: Iterable[ConsumerMember]
    ) -> tuple[CoordinatorRecord, ...]:
        records: list[CoordinatorRecord] = []
        subscriptions = Counter(group.subscriptions)
        for member in gone:
            records += member_tombstones(group.group_id, member.member_id)
            subscriptions[member.subscription] -= 1
        remaining = +subscriptions
        records += dropped_regexes(group, gone, remaining)
        names = group.topics_of_all(remaining)
        records += next_epoch(group, names, self._topics, is_forced=True)[1]
        return tuple(records)

    def _fence(self, group_id: str, member_id: str, now_ms: int, *, why: str) -> Decision[None]:
        group = self._groups.by_id.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Decision(reply=None)
        logger.info(
            "member_fenced group=%s member=%s epoch=%d reason=%s",
            group_id, member_id, member.epoch, why,
        )  # fmt: skip
        return self.remove(group, [member], now_ms)
