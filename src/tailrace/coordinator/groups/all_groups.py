"""The state machine of `__consumer_offsets` with groups of both protocols, which share their ids.

    classic     `GroupMachine`: JoinGroup, SyncGroup, Heartbeat, and the offsets of all groups
    consumer    `ConsumerHeartbeats` on `ConsumerGroups`

A group without members becomes one of the other protocol with its first member; one with members
as `migration` allows. A consumer group can have members of the classic protocol, which
`classic_members` serves.

Invariant: no id is in both.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from tailrace.coordinator.groups.assigning import Assigning
from tailrace.coordinator.groups.classic_members import ClassicMembers
from tailrace.coordinator.groups.commits import Commit, Committer, FetchedOffset
from tailrace.coordinator.groups.consumer_expiry import ConsumerRules
from tailrace.coordinator.groups.consumer_group import ConsumerState
from tailrace.coordinator.groups.consumer_groups import ConsumerGroups
from tailrace.coordinator.groups.consumer_heartbeat import ConsumerHeartbeats
from tailrace.coordinator.groups.consumer_offsets import (
    MemberAtEpoch,
    commit_codes,
    delete_code,
    delete_group,
    fetch_code,
)
from tailrace.coordinator.groups.consumer_records import consumer_group_tombstones
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.deadlines import Deadlines
from tailrace.coordinator.groups.expiry import Expiry
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.migration import Migration
from tailrace.coordinator.groups.offsets import counted, offset_tombstone
from tailrace.coordinator.groups.removal import Removals
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.groups.statistics import GroupCounts
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import Client, CoordinatorRecord, Decision, Origin, Propose
from tailrace.model import ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tailrace.runtime.threads import Threads

_NO_MEMBER = Committer(generation=-1, member_id="", instance_id=None)


class AllGroupsMachine:
    """Groups of both protocols, and who has each id."""

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
        """`threads` compute the targets of large groups; `counts` as of `GroupMachine`."""
        self.classic = GroupMachine(settings, chance=chance, counts=counts)
        """The groups of the classic protocol, and the offsets of all groups."""
        self.consumers = ConsumerGroups(replaces=self._drop_simple)
        self.topics = topics
        self.consumer_settings = consumer_settings
        self._deadlines = Deadlines()
        self._expiry = Expiry(
            settings,
            self._deadlines,
            self.classic.offsets,
            rules=ConsumerRules(settings, self.consumers),
            count=self.classic.counts.expired,
        )
        migration = Migration(
            self.classic, topics, settings=settings, consumer_settings=consumer_settings
        )
        removals = Removals(
            self.consumers,
            topics,
            settings=consumer_settings,
            deadlines=self._deadlines,
            migration=migration,
        )
        self._assigning = Assigning(self.consumers, topics, threads, settings=consumer_settings)
        self._heartbeats = ConsumerHeartbeats(
            self.consumers,
            topics,
            settings=consumer_settings,
            removals=removals,
            migration=migration,
            assigning=self._assigning,
            chance=chance,
        )
        self._classic_members = ClassicMembers(
            topics,
            removals,
            migration,
            assigning=self._assigning,
            settings=settings,
            consumer_settings=consumer_settings,
            chance=chance,
        )

    def consumer_heartbeat(
        self, client: Client, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Take a member of the consumer protocol a step further."""
        return self._heartbeats.heartbeat(client, request, now_ms)

    def join(
        self, client: Client, request: JoinGroupRequest, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Take a member into its classic group, which may replace an empty consumer group."""
        group = self.consumers.by_id.get(request.group_id)
        if group is not None and group.state is not ConsumerState.EMPTY:
            return self._classic_members.join(group, client, request, now_ms=now_ms)
        decision = self.classic.join(client, request, now_ms)
        if group is None or not decision.records:
            return decision
        return decision._replace(records=(*consumer_group_tombstones(group), *decision.records))

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members that go, or that an operator removes by their instance ids."""
        group = self.consumers.by_id.get(request.group_id)
        if group is None:
            return self.classic.leave(request, now_ms)
        return self._classic_members.leave(group, request, now_ms)

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Decision[SyncGroupResponse]:
        """Give a member of the classic protocol its assignment."""
        group = self.consumers.by_id.get(request.group_id)
        if group is not None:
            return self._classic_members.sync(group, request)
        return self.classic.sync(request, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Begin the session of a member of the classic protocol anew."""
        group = self.consumers.by_id.get(request.group_id)
        if group is not None:
            return self._classic_members.heartbeat(group, request, now_ms)
        return self.classic.heartbeat(request)

    def commit(self, commit: Commit, now_ms: int) -> Decision[list[ErrorCode]]:
        """Commit offsets; the reply has a code for each."""
        group = self.consumers.by_id.get(commit.group_id)
        if group is None:
            return self.classic.commit(commit, now_ms)
        codes = commit_codes(
            group,
            MemberAtEpoch(commit.committer.member_id, commit.committer.generation),
            [(each.topic_id, each.partition.partition) for each in commit.offsets],
            version=commit.version,
            is_transactional=commit.producer is not None,
        )
        allowed = [
            each for each, code in zip(commit.offsets, codes, strict=True) if code is ErrorCode.NONE
        ]
        # The classic machine has no group of this id, and takes them as those of no member.
        decision = self.classic.commit(
            commit._replace(offsets=allowed, committer=_NO_MEMBER), now_ms
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
        found = self.classic.fetch_offsets(
            group_id, partitions, is_stable=is_stable, topic_ids=topic_ids
        )
        return Decision(reply=found.reply)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """Delete offsets of topics that nobody in the group subscribes to."""
        group = self.consumers.by_id.get(group_id)
        if group is None:
            return self.classic.delete_offsets(group_id, partitions)
        offsets = self.classic.offsets
        known = offsets.of_group(group_id)
        codes = [delete_code(group, each.topic) for each in partitions]
        records = [
            offset_tombstone(group_id, each)
            for each, code in zip(partitions, codes, strict=True)
            if code is ErrorCode.NONE and (each in known or offsets.is_pending(group_id, each))
        ]
        decision = Decision(reply=codes, records=tuple(records))
        return counted(self.classic.counts.deleted, decision)

    def delete_group(self, group_id: str) -> Decision[ErrorCode | None]:
        """Delete a group without members; None: some of its offsets are left, ask again."""
        group = self.consumers.by_id.get(group_id)
        if group is None:
            return self.classic.delete_group(group_id)
        return counted(self.classic.counts.deleted, delete_group(self.classic.offsets, group))

    def groups_with_offsets(self) -> tuple[str, ...]:
        """The groups of both protocols that have committed offsets, or will have."""
        return self.classic.offsets.groups()

    def committed_partitions(
        self, group_id: str, *, fetcher: MemberAtEpoch
    ) -> Decision[ErrorCode | list[TopicPartition]]:
        """The partitions for which a group has committed; a code alone refuses the request."""
        code = self._fetch_code(group_id, fetcher)
        if code is not ErrorCode.NONE:
            return Decision(reply=code)
        return Decision(reply=list(self.classic.offsets.of_group(group_id)))

    def partitions_with_offsets(self, group_id: str) -> tuple[TopicPartition, ...]:
        """The partitions for which a group has committed offsets or will have; some are twice."""
        return self.classic.offsets.all_partitions(group_id)

    def forget_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], *, topic_id: UUID
    ) -> Decision[ErrorCode | list[None]]:
        """Delete what a group has committed for partitions of a topic that is gone."""
        return self.classic.forget_offsets(group_id, partitions, topic_id=topic_id)

    def _fetch_code(self, group_id: str, fetcher: MemberAtEpoch) -> ErrorCode:
        group = self.consumers.by_id.get(group_id)
        return ErrorCode.NONE if group is None else fetch_code(group, fetcher)

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Change the state by one record."""
        if self.consumers.replay(record):
            return
        self.classic.replay(record, origin)
        group_id = getattr(record.key, "group", "")
        if group_id in self.consumers.by_id:
            # It has taken the commit for one of a group that nobody knows.
            self._drop_simple(group_id)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """End a producer's transaction: its offsets count, or never did."""
        self.classic.replay_marker(producer_id, is_commit=is_commit)

    def start(self, propose: Propose) -> None:
        """Begin the sessions of all members, and look for expired offsets from now on."""
        self.classic.start(propose)
        self.consumers.start(self.classic.counts)
        self._deadlines.start(propose)
        self._assigning.start(propose)
        self._heartbeats.start(propose)
        self._expiry.start(propose)

    def stop(self, error: Exception) -> None:
        """Answer parked requests with `error`."""
        self._assigning.stop()
        self._deadlines.clear()
        self.classic.stop(error)

    def _drop_simple(self, group_id: str) -> None:
        self.classic.groups.pop(group_id, None)
