"""The state machine of one partition of `__consumer_offsets`: groups and committed offsets."""

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from tailrace.coordinator.groups import commits
from tailrace.coordinator.groups.classic_expiry import ClassicRules
from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.coordinator.groups.commits import Commit, FetchedOffset
from tailrace.coordinator.groups.deadlines import Deadlines
from tailrace.coordinator.groups.expiry import Expiry
from tailrace.coordinator.groups.joining import Join, Joining
from tailrace.coordinator.groups.offsets import Offsets, counted
from tailrace.coordinator.groups.rebalancing import Rebalances
from tailrace.coordinator.groups.records import empty_group_record, loaded_group
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.groups.statistics import GroupCounts
from tailrace.coordinator.groups.syncing import Syncing, left
from tailrace.coordinator.machine import (
    Client,
    CoordinatorRecord,
    Decision,
    Origin,
    Propose,
)
from tailrace.model import ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tailrace.protocol.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


class GroupMachine:
    """Groups by id, their offsets, and the deadlines of their members."""

    def __init__(
        self, settings: GroupSettings, *, chance: random.Random, counts: GroupCounts | None = None
    ) -> None:
        """`counts` is shared by the partitions of a broker; None: it is this partition's own."""
        self.counts = GroupCounts() if counts is None else counts
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self._settings = settings
        self._deadlines = Deadlines()
        self._rebalances = Rebalances(settings, self._deadlines)
        self._joining = Joining(settings, self._rebalances, chance=chance)
        self._syncing = Syncing(self._rebalances, self.counts)
        rules = ClassicRules(settings, self.groups)
        self._expiry = Expiry(
            settings, self._deadlines, self.offsets, rules=rules, count=self.counts.expired
        )
        self._incoming: dict[str, tuple[ClassicGroup, str | None]] = {}
        self._is_live = False
        """Whether records come from requests, which have changed the groups already."""

    def join(
        self, client: Client, request: JoinGroupRequest, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Take a member into its group; see `Joining`."""
        group = self.groups.get(request.group_id)
        fault = _join_fault(self._settings, group, request)
        if fault is not ErrorCode.NONE:
            reply = JoinGroupResponse(member_id=request.member_id, error_code=fault)
            return Decision(reply=reply)
        if group is not None:
            return self._joining.join(Join(client, request, group, now_ms))
        group = self.groups[request.group_id] = ClassicGroup(request.group_id, now_ms)
        decision = self._joining.join(Join(client, request, group, now_ms))
        return Decision(
            reply=decision.reply,
            records=(empty_group_record(group),),
            undo=lambda _: self._forget(group),
        )

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Decision[SyncGroupResponse]:
        """Give a member its assignment."""
        group = self._group_or_error(request.group_id)
        if isinstance(group, ErrorCode):
            return Decision(reply=SyncGroupResponse(error_code=group))
        return self._syncing.sync(group, request, now_ms)

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        """Begin the session of a member anew."""
        group = self._group_or_error(request.group_id)
        if isinstance(group, ErrorCode):
            return Decision(reply=HeartbeatResponse(error_code=group))
        return Decision(reply=self._syncing.heartbeat(group, request))

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members that go."""
        group = self._group_or_error(request.group_id)
        if group is ErrorCode.INVALID_GROUP_ID:
            return Decision(reply=LeaveGroupResponse(error_code=group))
        if isinstance(group, ErrorCode):
            return Decision(
                reply=LeaveGroupResponse(
                    members=tuple(left(each, group) for each in request.members)
                )
            )
        return self._syncing.leave(group, request, now_ms)

    def commit(self, commit: Commit, now_ms: int) -> Decision[list[ErrorCode]]:
        """Commit offsets; a member that does so is heard of."""
        group = self.groups.get(commit.group_id)
        fault = commits.commit_fault(group, commit)
        if fault is not ErrorCode.NONE:
            return Decision(reply=[fault] * len(commit.offsets))
        member = None if group is None else group.members.get(commit.committer.member_id)
        if group is not None and member is not None and commit.producer is None:
            self._rebalances.renew(group, member)
        return commits.commit_offsets(self._settings, commit, now_ms, count=self.counts.committed)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        is_stable: bool,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> Decision[list[FetchedOffset]]:
        """The offsets that a group has committed; `topic_ids` has those that the client names."""
        return commits.fetch_offsets(
            self.offsets, group_id, partitions, is_stable=is_stable, topic_ids=topic_ids or {}
        )

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """Delete offsets of topics that nobody in the group consumes."""
        if not group_id:
            return Decision(reply=ErrorCode.INVALID_GROUP_ID)
        decision = commits.delete_offsets(self.offsets, self.groups.get(group_id), partitions)
        return counted(self.counts.deleted, decision)

    def delete_group(self, group_id: str) -> Decision[ErrorCode | None]:
        """Delete a group without members; None: some of its offsets are left, ask again."""
        decision = commits.delete_group(self.offsets, self.groups.get(group_id))
        return counted(self.counts.deleted, decision)

    def forget_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], *, topic_id: UUID
    ) -> Decision[ErrorCode | list[None]]:
        """Delete what a group has committed for partitions of a topic that is gone."""
        decision = commits.forget_offsets(self.offsets, group_id, partitions, topic_id=topic_id)
        return counted(self.counts.deleted, decision)

    def expect(self, group: ClassicGroup, rebalance_reason: str | None) -> None:
        """Take over a group that was one of the consumer protocol, when its record is stored.

        It rebalances then, if a reason is given.
        """
        self._incoming[group.group_id] = group, rebalance_reason

    def expect_no_more(self, group_id: str) -> None:
        """The record of an expected group could not be stored."""
        self._incoming.pop(group_id, None)

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Change the state by one record; those of other kinds of groups are passed over."""
        key, value = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value, origin)
            if value is not None and key.group not in self.groups:
                # Someone commits without being a member: a simple group.
                self.groups[key.group] = ClassicGroup(key.group, -1)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_group(key.group, value)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """End a producer's transaction: its offsets count, or never did."""
        self.offsets.replay_marker(producer_id, is_commit=is_commit)

    def start(self, propose: Propose) -> None:
        """Begin the sessions of all members, and look for expired offsets from now on."""
        self._is_live = True
        self._deadlines.start(propose)
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalances.renew(group, member)
            if len(group.members) > self._settings.size_max:
                reason = f"more than {self._settings.size_max} members after a restart"
                propose(partial(self._rebalance, group, reason))
        self._expiry.start(propose)

    def stop(self, error: Exception) -> None:
        """Answer parked requests with `error`."""
        self._deadlines.clear()
        for group in self.groups.values():
            for member in group.members.values():
                for parked in (member.joining, member.syncing):
                    if parked is not None and not parked.done():
                        parked.set_exception(error)
                        parked.exception()  # Nobody may be waiting: the client may have gone.

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self.groups.get(group_id)
        if value is None:
            if known is not None:
                self._forget(known)
        elif group_id in self._incoming:
            self._take_over(*self._incoming.pop(group_id))
        elif self._is_live and known is not None:
            self._syncing.stored(known, value.current_state_timestamp)
        else:
            self.groups[group_id] = loaded_group(group_id, value)

    def _take_over(self, group: ClassicGroup, rebalance_reason: str | None) -> None:
        self.groups[group.group_id] = group
        for member in group.members.values():
            self._rebalances.renew(group, member)
        if rebalance_reason is not None:
            # Nobody has joined yet, so nothing ends and nothing is written.
            records = self._rebalances.prepare(group, rebalance_reason, group.state_since_ms)
            assert not records

    def _forget(self, group: ClassicGroup) -> None:
        self._rebalances.forget(group)
        # It has members if it becomes a group of the consumer protocol: they join that one.
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            member.answer_join(JoinGroupResponse(member_id=member.member_id, error_code=code))
            member.answer_sync(SyncGroupResponse(error_code=code))
        del self.groups[group.group_id]

    def _rebalance(self, group: ClassicGroup, reason: str, now_ms: int) -> Decision[None]:
        return Decision(reply=None, records=self._rebalances.begin(group, reason, now_ms))

    def _group_or_error(self, group_id: str) -> ClassicGroup | ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self.groups.get(group_id, ErrorCode.UNKNOWN_MEMBER_ID)


def _join_fault(
    settings: GroupSettings, group: ClassicGroup | None, request: JoinGroupRequest
) -> ErrorCode:
    timeout_ms = request.session_timeout_ms
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if group is None and request.member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE
