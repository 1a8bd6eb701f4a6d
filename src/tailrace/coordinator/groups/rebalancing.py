"""Rebalances of classic groups: when a join or sync phase begins and ends, and who is dropped.

    join phase   ends when all members have joined, at the latest after the longest rebalance
                 timeout: dynamic members that are late are dropped, static ones stay (KIP-345)
    sync phase   ends with the leader's assignment; a member that does not ask for its own within
                 the same time is dropped, and the group rebalances
    session      of a member ends its session timeout after its last request; it is dropped

A rebalance has one record: the assignment of its generation. A broker that starts again therefore
has the last stable generation; what was in progress is lost, and the members join again.
"""

import logging
from functools import partial
from typing import Final

from tailrace.coordinator.deadlines import Deadlines, Records
from tailrace.coordinator.groups.classic_group import (
    REBALANCES_FROM,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    group_record,
)
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.errors import counted
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import JoinGroupResponse
from tailrace.protocol.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

_JOIN_MS_MIN: Final = 1000
"""The shortest time that a join phase waits again, where members have given none."""


class Rebalances:
    """Moves the groups of one shard through their phases."""

    def __init__(self, settings: GroupSettings, deadlines: Deadlines) -> None:
        self._settings = settings
        self._deadlines = deadlines

    def begin(self, group: ClassicGroup, reason: str, now_ms: int) -> Records:
        """Begin a rebalance; one that is under way ends if this was all that it waited for."""
        if group.state in REBALANCES_FROM:
            return self.prepare(group, reason, now_ms)
        return self.end_join_if_complete(group, now_ms)

    def prepare(self, group: ClassicGroup, reason: str, now_ms: int) -> Records:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            # Their members join again; nobody has to wait for an assignment that does not count.
            self.refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced_ids.clear()
        self._deadlines.cancel(("sync", group.group_id))
        is_first = group.state is ClassicState.EMPTY
        group.is_joined_meanwhile = False
        group.move_to(ClassicState.PREPARING_REBALANCE, now_ms)
        logger.info(
            "rebalance_started group=%s generation=%d members=%d reason=%s",
            group.group_id, group.generation, len(group.members), reason,
        )  # fmt: skip
        if is_first:
            # The first join phase of an empty group waits for more members to come (KIP-134): a
            # service whose consumers start together would rebalance once for each of them.
            delay_ms = self._settings.initial_delay_ms
            self._delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            return ()
        if group.have_all_joined:
            return self._end_join(group, now_ms)
        self._end_join_later(group)
        return ()

    def end_join_if_complete(self, group: ClassicGroup, now_ms: int) -> Records:
        """End the join phase if all have joined, and it is not the first one of an empty group."""
        is_waiting = group.state is ClassicState.PREPARING_REBALANCE
        if is_waiting and group.previous_state is not ClassicState.EMPTY and group.have_all_joined:
            return self._end_join(group, now_ms)
        return ()

    def remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member and its deadline; its parked requests get UNKNOWN_MEMBER_ID."""
        self._deadlines.cancel(("session", group.group_id, member.member_id))
        member.answer_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def keep_id(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """Wait for the join of a member that was given its id (KIP-394)."""
        group.pending_ids.add(member_id)
        self._expire_in(group, member_id, session_timeout_ms)

    def forget_id(self, group: ClassicGroup, member_id: str) -> None:
        self._deadlines.cancel(("session", group.group_id, member_id))
        group.remove(member_id)

    def renew(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Begin a new session of a member, which has just sent a request."""
        self._expire_in(group, member.member_id, member.session_timeout_ms)

    def wait_for_first_join(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Drop a new member if its first join takes too long; its client may have given up."""
        self._expire_in(group, member.member_id, self._settings.first_join_timeout_ms)

    def assign(self, group: ClassicGroup) -> None:
        """Answer the parked syncs with the members' assignments, and be stable."""
        for member in group.members.values():
            if member.answer_sync(group.synced(member)):
                self.renew(group, member)

    def refuse_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Forget the assignments of a generation, and answer the parked syncs with an error."""
        for member in group.members.values():
            member.assignment = b""
            if member.answer_sync(SyncGroupResponse(error_code=code)):
                self.renew(group, member)

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        """A member has asked for its assignment."""
        group.unsynced_ids.discard(member_id)
        if not group.unsynced_ids:
            self._deadlines.cancel(("sync", group.group_id))

    def forget(self, group: ClassicGroup) -> None:
        for kind in ("join", "sync"):
            self._deadlines.cancel((kind, group.group_id))
        for member_id in (*group.members, *group.pending_ids):
            self._deadlines.cancel(("session", group.group_id, member_id))

    def _end_join(self, group: ClassicGroup, now_ms: int) -> Records:
        self._deadlines.cancel(("join", group.group_id))
        # Static members stay without joining: they may be restarting (KIP-345).
        late = [each for each in group.members.values() if not (each.joining or each.instance_id)]
        for member in late:
            self.remove(group, member)
        # Somebody has to assign. If only static members are left that have not joined, wait again.
        if group.members and not group.elect_joined_leader():
            self._end_join_later(group)
            return ()
        group.next_generation(now_ms)
        logger.info(
            "rebalance_joined group=%s generation=%d members=%d dropped=%d protocol=%s",
            group.group_id, group.generation, len(group.members), len(late), group.protocol,
        )  # fmt: skip
        if not group.members:
            # Nobody will send an assignment, which is else the record of a generation.
            return (group_record(group),)
        for member in group.members.values():
            # Only the leader assigns, so only it needs to know the others' subscriptions.
            is_leader = member.member_id == group.leader_id
            member.answer_join(group.joined(member.member_id, shows_members=is_leader))
            self.renew(group, member)
            member.is_new = False
            group.unsynced_ids.add(member.member_id)
        self._deadlines.set(
            ("sync", group.group_id),
            group.rebalance_timeout_ms,
            partial(self._end_sync, group),
        )
        return ()

    def _delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def end(now_ms: int) -> Records:
            if not (group.is_joined_meanwhile and remaining_ms):
                return self._end_join(group, now_ms)
            # Each new member makes the delay longer, up to the rebalance timeout in all: the first
            # member waits all that time.
            group.is_joined_meanwhile = False
            longer_ms = min(self._settings.initial_delay_ms, remaining_ms)
            self._delay(group, longer_ms, max(remaining_ms - delay_ms, 0))
            return ()

        self._deadlines.set(("join", group.group_id), delay_ms, end)

    def _end_join_later(self, group: ClassicGroup) -> None:
        # Members may give any timeout, and none would be an end without a pause.
        delay_ms = max(group.rebalance_timeout_ms, _JOIN_MS_MIN)
        self._deadlines.set(("join", group.group_id), delay_ms, partial(self._end_join, group))

    def _end_sync(self, group: ClassicGroup, now_ms: int) -> Records:
        late = [group.members[each] for each in group.unsynced_ids]
        for member in late:
            self.remove(group, member)
        return self.prepare(
            group, f"{counted(len(late), 'member')} did not ask for their part", now_ms
        )

    def _expire_in(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self._deadlines.set(
            ("session", group.group_id, member_id),
            timeout_ms,
            partial(self._expire, group, member_id),
        )

    def _expire(self, group: ClassicGroup, member_id: str, now_ms: int) -> Records:
        if member_id in group.pending_ids:
            group.remove(member_id)
            # It may have been all that the others waited for.
            is_waiting = group.state is ClassicState.PREPARING_REBALANCE
            return self._end_join(group, now_ms) if is_waiting and group.have_all_joined else ()
        member = group.members.get(member_id)
        # A member that waits in a request is there, though it sends no heartbeats. A new one may be
        # gone all the same: clients give up a first join, and try again with another id.
        if member is None or (not member.is_new and (member.joining or member.syncing)):
            return ()
        self.remove(group, member)
        if group.state is ClassicState.PREPARING_REBALANCE:
            return self._end_join(group, now_ms) if group.have_all_joined else ()
        return self.begin(group, f"member {member_id} sent no heartbeat", now_ms)
