"""The deadlines of the members of consumer groups, and their removal.

    session      of every member, begins again with each of its requests
    revocation   of a member that has to give up partitions: its rebalance timeout
    join, sync   of a classic member that has to join again, or to ask for its assignment: likewise

A member that misses one is fenced: removed, as one that leaves or that an operator removes. If only
members of the classic protocol are left, the group may become a classic one.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from tailrace.coordinator.groups.consumer_records import member_tombstones
from tailrace.coordinator.groups.migration import Migration
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.subscribed_topics import dropped_regexes, next_epoch
from tailrace.coordinator.machine import CoordinatorRecord, Decision

_SESSION: Final = "consumer-session"
_REVOCATION: Final = "consumer-revocation"
_JOIN: Final = "consumer-join"
_SYNC: Final = "consumer-sync"

logger = logging.getLogger(__name__)


class Sessions:
    """The members of the consumer groups of one shard: when they are removed, and how."""

    def __init__(self, groups: Groups, migration: Migration) -> None:
        self._groups = groups
        self._deadlines = groups.deadlines
        self._migration = migration

    def renew(self, group_id: str, member: ConsumerMember) -> None:
        """Begin a new session of a member, which has just sent a request."""
        classic = member.metadata.classic_member_metadata
        if classic is None:
            timeout_ms = self._groups.consumer_settings(group_id).session_timeout_ms
            # It may have been a classic member before.
            for kind in (_JOIN, _SYNC):
                self._deadlines.cancel((kind, group_id, member.member_id))
        else:
            timeout_ms = classic.session_timeout_ms
        self._set(_SESSION, group_id, member, timeout_ms=timeout_ms, why="it sent no heartbeat")

    def expect_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """Give a member its rebalance timeout while it has to give up partitions."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = member.metadata.rebalance_timeout_ms
            why = "it did not give up its partitions"
            self._set(_REVOCATION, group_id, member, timeout_ms=timeout_ms, why=why)
        else:
            self.forget_revocation(group_id, member.member_id)

    def forget_revocation(self, group_id: str, member_id: str) -> None:
        """A member has nothing to give up."""
        self._deadlines.cancel((_REVOCATION, group_id, member_id))

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has been asked to join again."""
        # The first time counts: each heartbeat asks it again.
        if (_JOIN, group_id, member.member_id) not in self._deadlines:
            timeout_ms = member.metadata.rebalance_timeout_ms
            self._set(_JOIN, group_id, member, timeout_ms=timeout_ms, why="it did not join again")

    def has_joined(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has joined, and has to ask for its assignment."""
        self._deadlines.cancel((_JOIN, group_id, member.member_id))
        self.renew(group_id, member)
        timeout_ms = member.metadata.rebalance_timeout_ms
        why = "it did not ask for its assignment"
        self._set(_SYNC, group_id, member, timeout_ms=timeout_ms, why=why)

    def has_synced(self, group_id: str, member: ConsumerMember) -> None:
        self._deadlines.cancel((_SYNC, group_id, member.member_id))
        self.renew(group_id, member)

    def forget(self, group_id: str, member_id: str) -> None:
        for kind in (_SESSION, _REVOCATION, _JOIN, _SYNC):
            self._deadlines.cancel((kind, group_id, member_id))

    def resume(self, group_id: str, member: ConsumerMember) -> None:
        """Begin the session of a member, and the revocation that it owes."""
        self.renew(group_id, member)
        self.expect_revocation(group_id, member)

    def remove(
        self, group: ConsumerGroup, members: Iterable[ConsumerMember], now_ms: int
    ) -> Decision[None]:
        """The records that remove members, and the function that undoes it."""
        gone = {each.member_id: each for each in members}
        forgotten = gone
        for member_id in gone:
            self.forget(group.group_id, member_id)
        left = {each: known for each, known in group.members.items() if each not in gone}
        if self._migration.can_downgrade(group, left):
            forgotten = {**gone, **left}
            reason = "the last members of the consumer protocol have gone"
            records = self._migration.downgrade(group, left, now_ms=now_ms, reason=reason)
            for member_id in left:
                # The classic group has deadlines of its own, under other keys.
                self.forget(group.group_id, member_id)
        else:
            records = self._records(group, gone.values())

        def undo(_: Exception) -> None:
            self._migration.cancel(group.group_id)
            # Those alone: others that send no heartbeats would live on while this is repeated.
            for member in forgotten.values():
                self.resume(group.group_id, member)

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
        records += next_epoch(group, names, self._groups.topics, is_forced=True)[1]
        return tuple(records)

    def _fence(self, group_id: str, member_id: str, now_ms: int, *, why: str) -> Decision[None]:
        group = self._groups.consumer(group_id)
        member = None if group is None else group.members.get(member_id)
        # It has left between the deadline and this turn, or the group is gone.
        if group is None or member is None:
            return Decision(reply=None)
        logger.info(
            "member_fenced group=%s member=%s epoch=%d reason=%s",
            group_id, member_id, member.epoch, why,
        )  # fmt: skip
        return self.remove(group, [member], now_ms)

    def _set(
        self, kind: str, group_id: str, member: ConsumerMember, *, timeout_ms: int, why: str
    ) -> None:
        self._deadlines.set(
            (kind, group_id, member.member_id),
            timeout_ms,
            partial(self._fence, group_id, member.member_id, why=why),
            is_repeated=True,
        )
