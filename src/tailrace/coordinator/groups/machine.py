"""The state machine of one partition of `__consumer_offsets`: groups and committed offsets."""

import random
from collections.abc import Iterable, Sequence
from functools import partial

from tailrace.coordinator.groups import commits
from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tailrace.coordinator.groups.commits import Commit, FetchedOffset
from tailrace.coordinator.groups.joining import Join, Joining
from tailrace.coordinator.groups.offsets import Offsets
from tailrace.coordinator.groups.rebalancing import Rebalances
from tailrace.coordinator.groups.records import empty_group_record, loaded_group
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.groups.syncing import Syncing
from tailrace.coordinator.machine import (
    Client,
    CoordinatorRecord,
    Decision,
    Origin,
    Propose,
)
from tailrace.coordinator.timers import Timers
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tailrace.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from tailrace.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue


class GroupMachine:
    """Groups by id, their offsets, and the deadlines of their members."""

    def __init__(self, settings: GroupSettings, *, chance: random.Random) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self._settings = settings
        self._timers = Timers()
        self._rebalances = Rebalances(settings, self._timers, self.groups.get)
        self._joining = Joining(settings, self._rebalances, chance=chance)
        self._syncing = Syncing(self._rebalances)
        self._is_live = False
        """Whether records come from requests, which have changed the groups already."""

    def join(
        self, client: Client, request: JoinGroupRequest, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Take a member into its group; see `Joining`."""
        group = self.groups.get(request.group_id)
        is_new = group is None
        if group is None:
            if request.member_id:
                unknown = ErrorCode.UNKNOWN_MEMBER_ID
                return Decision(
                    reply=JoinGroupResponse(member_id=request.member_id, error_code=unknown)
                )
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, now_ms)
        decision = self._joining.join(Join(client, request, group, now_ms))
        if not is_new or decision.records:
            return decision
        return Decision(
            reply=decision.reply, records=(empty_group_record(group),), undo=decision.undo
        )

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Decision[SyncGroupResponse]:
        """Give a member its assignment."""
        group = self.groups.get(request.group_id)
        if group is None or group.state is ClassicState.EMPTY:
            return Decision(reply=SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        return self._syncing.sync(group, request, now_ms)

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        """Begin the session of a member anew."""
        group = self.groups.get(request.group_id)
        if group is None or group.state is ClassicState.EMPTY:
            return Decision(reply=HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        return Decision(reply=self._syncing.heartbeat(group, request))

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members that go."""
        group = self.groups.get(request.group_id)
        if group is None:
            return Decision(reply=LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        return self._syncing.leave(group, request, now_ms)

    def commit(self, commit: Commit, now_ms: int) -> Decision[list[ErrorCode]]:
        """Commit offsets; a member that does so is heard of."""
        group = self.groups.get(commit.group_id)
        decision = commits.commit_offsets(self._settings, group, commit, now_ms=now_ms)
        member = None if group is None else group.members.get(commit.committer.member_id)
        if group is not None and member is not None and decision.records:
            self._rebalances.renew(group, member)
        return decision

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, is_stable: bool
    ) -> Decision[list[FetchedOffset]]:
        """What a group has committed."""
        return commits.fetch_offsets(self.offsets, group_id, partitions, is_stable=is_stable)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """Delete offsets of topics that nobody in the group consumes."""
        return commits.delete_offsets(self.offsets, self.groups.get(group_id), partitions)

    def delete_group(self, group_id: str) -> Decision[ErrorCode]:
        """Delete a group without members."""
        return commits.delete_group(self.offsets, self.groups.get(group_id))

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

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """End a producer's transaction: its offsets count, or never did."""
        self.offsets.replay_marker(producer_id, is_commit=is_commit)

    def start(self, propose: Propose) -> None:
        """Begin the sessions of all members, and look for expired offsets from now on."""
        self._is_live = True
        self._rebalances.propose = propose
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalances.renew(group, member)
        self._expire_later(propose)

    def stop(self, error: Exception) -> None:
        """Answer parked requests with `error`."""
        self._timers.clear()
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
                self._rebalances.forget(known)
                del self.groups[group_id]
        elif self._is_live and known is not None:
            self._syncing.stored(known, value.current_state_timestamp)
        else:
            self.groups[group_id] = loaded_group(group_id, value)

    def _expire_later(self, propose: Propose) -> None:
        self._timers.set(
            "expiry", self._settings.expiry_interval_ms, partial(self._expire, propose)
        )

    def _expire(self, propose: Propose) -> None:
        self._expire_later(propose)
        for group in tuple(self.groups.values()):
            propose(partial(self._expire_group, group))

    def _expire_group(self, group: ClassicGroup, now_ms: int) -> Decision[None]:
        if self.groups.get(group.group_id) is not group:
            return Decision(reply=None)
        records = commits.expire(self._settings, self.offsets, group, now_ms=now_ms)
        return Decision(reply=None, records=records)
