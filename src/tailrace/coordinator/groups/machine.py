"""The state machine of one partition of `__consumer_offsets`: groups of both protocols, offsets.

A group without members becomes one of the other protocol with its first member; one with members
as `migration` allows. So each request is decided by the protocol that its group has now.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from tailrace.coordinator.groups import commits
from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.coordinator.groups.classic_groups import ClassicGroups
from tailrace.coordinator.groups.classic_members import ClassicMembers
from tailrace.coordinator.groups.commits import Commit, FetchedOffset, MemberAtEpoch
from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerState
from tailrace.coordinator.groups.consumer_heartbeat import ConsumerHeartbeats
from tailrace.coordinator.groups.consumer_records import replay_consumer_record
from tailrace.coordinator.groups.expiry import Expiry
from tailrace.coordinator.groups.migration import Migration
from tailrace.coordinator.groups.offsets import counted
from tailrace.coordinator.groups.sessions import Sessions
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.target_assignment import Assigning
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import Client, CoordinatorRecord, Decision, Origin, Propose
from tailrace.coordinator.statistics import GroupCounts
from tailrace.model import ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
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
from tailrace.runtime.threads import Threads


class GroupMachine:
    """Decides the requests of all groups of a shard, and replays its records."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        *,
        consumer_settings: Callable[[str], ConsumerSettings],
        threads: Threads,
        chance: random.Random,
        counts: GroupCounts | None = None,
    ) -> None:
        """`threads` compute the targets of large groups.

        `counts` is shared by the partitions of a broker; None: it is this partition's own.
        """
        groups = self.groups = Groups(
            settings=settings,
            topics=topics,
            consumer_settings=consumer_settings,
            chance=chance,
            counts=GroupCounts() if counts is None else counts,
        )
        self._classic = ClassicGroups(groups)
        self._expiry = Expiry(groups)
        migration = Migration(groups, self._classic)
        sessions = self._sessions = Sessions(groups, migration)
        assigning = self._assigning = Assigning(groups, threads)
        self._heartbeats = ConsumerHeartbeats(
            groups, sessions=sessions, migration=migration, assigning=assigning
        )
        self._classic_members = ClassicMembers(
            groups, sessions=sessions, migration=migration, assigning=assigning
        )

    def consumer_heartbeat(
        self, client: Client, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        return self._heartbeats.heartbeat(client, request, now_ms)

    def join(
        self, client: Client, request: JoinGroupRequest, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Take a member of the classic protocol into its group."""
        group = self.groups.consumer(request.group_id)
        if group is None or group.state is ConsumerState.EMPTY:
            return self._classic.join(client, request, now_ms)
        return self._classic_members.join(client, request, now_ms)

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Decision[SyncGroupResponse]:
        return self._decider(request.group_id).sync(request, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Begin a new session of a member of the classic protocol."""
        return self._decider(request.group_id).heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members that go, or that an operator removes by their instance ids."""
        return self._decider(request.group_id).leave(request, now_ms)

    def _decider(self, group_id: str) -> ClassicGroups | ClassicMembers:
        """The part that decides about members of the classic protocol in this group."""
        is_consumer = isinstance(self.groups.by_id.get(group_id), ConsumerGroup)
        return self._classic_members if is_consumer else self._classic

    def commit(self, commit: Commit, now_ms: int) -> Decision[list[ErrorCode]]:
        """Commit offsets, which counts as a heartbeat of a classic member.

        The reply has a code for each offset.
        """
        groups = self.groups
        group = groups.by_id.get(commit.group_id)
        # Two protocols, two rules for who may commit; what is committed is the same.
        if isinstance(group, ConsumerGroup):
            return self._commit_to_consumer_group(group, commit, now_ms)
        fault = commits.commit_fault(group, commit)
        if fault is not ErrorCode.NONE:
            return Decision(reply=[fault] * len(commit.offsets))
        if group is not None and commit.producer is None:
            member = group.members.get(commit.committer.member_id)
            if member is not None:
                self._classic.rebalances.renew(group, member)
        return commits.commit_offsets(
            groups.settings, commit, now_ms, count=groups.counts.committed
        )

    def _commit_to_consumer_group(
        self, group: ConsumerGroup, commit: Commit, now_ms: int
    ) -> Decision[list[ErrorCode]]:
        codes = commits.consumer_commit_codes(group, commit)
        pairs = zip(commit.offsets, codes, strict=True)
        allowed = [each for each, code in pairs if code is ErrorCode.NONE]
        decision = commits.commit_offsets(
            self.groups.settings,
            commit._replace(offsets=allowed),
            now_ms,
            count=self.groups.counts.committed,
        )
        assert isinstance(decision.reply, list)
        checked = iter(decision.reply)
        reply = [next(checked) if code is ErrorCode.NONE else code for code in codes]
        return decision._replace(reply=reply)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        fetcher: MemberAtEpoch,
        is_stable: bool,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> Decision[ErrorCode | list[FetchedOffset]]:
        """The offsets that a group has committed; a code alone refuses the request.

        `topic_ids` has those that the client names.
        """
        code = self._fetch_code(group_id, fetcher)
        if code is not ErrorCode.NONE:
            return Decision(reply=code)
        found = commits.fetch_offsets(
            self.groups.offsets, group_id, partitions,
            is_stable=is_stable, topic_ids=topic_ids or {},
        )  # fmt: skip
        return Decision(reply=found)

    def committed_partitions(
        self, group_id: str, *, fetcher: MemberAtEpoch
    ) -> Decision[ErrorCode | list[TopicPartition]]:
        """The partitions for which a group has committed; a code alone refuses the request."""
        code = self._fetch_code(group_id, fetcher)
        if code is not ErrorCode.NONE:
            return Decision(reply=code)
        return Decision(reply=list(self.groups.offsets.of_group(group_id)))

    def _fetch_code(self, group_id: str, fetcher: MemberAtEpoch) -> ErrorCode:
        # Anybody may read the offsets of a classic group.
        group = self.groups.consumer(group_id)
        return ErrorCode.NONE if group is None else commits.consumer_fetch_code(group, fetcher)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """Delete offsets of topics that nobody in the group consumes."""
        if not group_id:
            return Decision(reply=ErrorCode.INVALID_GROUP_ID)
        groups = self.groups
        decision = commits.delete_offsets(groups.offsets, groups.by_id.get(group_id), partitions)
        return counted(groups.counts.deleted, decision)

    def delete_group(self, group_id: str) -> Decision[ErrorCode | None]:
        """Delete a group without members; None: some of its offsets are left, ask again."""
        groups = self.groups
        decision = commits.delete_group(groups.offsets, groups.by_id.get(group_id))
        return counted(groups.counts.deleted, decision)

    def forget_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], *, topic_id: UUID
    ) -> Decision[ErrorCode | list[None]]:
        """Delete what a group has committed for partitions of a topic that is gone."""
        offsets = self.groups.offsets
        decision = commits.forget_offsets(offsets, group_id, partitions, topic_id=topic_id)
        return counted(self.groups.counts.deleted, decision)

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        key, value = record
        if isinstance(key, OffsetCommitKey):  # Nearly all records are commits.
            assert value is None or isinstance(value, OffsetCommitValue)
            self.groups.offsets.replay(key, value, origin)
            if value is not None and key.group not in self.groups.by_id:
                # Someone commits without being a member: a simple group.
                self.groups.by_id[key.group] = ClassicGroup(key.group, -1)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._classic.replay(key.group, value)
        else:
            replay_consumer_record(self.groups, record)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """End a producer's transaction: its offsets count, or never did."""
        self.groups.offsets.replay_marker(producer_id, is_commit=is_commit)

    def start(self, propose: Propose) -> None:
        """Begin the sessions of all members, and look for expired offsets from now on."""
        groups = self.groups
        groups.propose = propose
        groups.deadlines.start(propose)
        for group in groups.by_id.values():
            if isinstance(group, ClassicGroup):
                self._classic.start(group, propose)
            else:
                for member in group.members.values():
                    # A whole session for each: its heartbeats were refused during the load.
                    self._sessions.resume(group.group_id, member)
        self._expiry.start(propose)

    def stop(self, error: Exception) -> None:
        # First, so that nothing begins any more while the rest is ended.
        self.groups.propose = None
        self._assigning.stop()
        self.groups.deadlines.clear()
        for group in self.groups.by_id.values():
            if isinstance(group, ClassicGroup):
                self._classic.stop(group, error)
