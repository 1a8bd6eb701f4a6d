r"""A group of the classic protocol: its members and what they support, its state, its record.

                    all have left
    EMPTY <------------------------- PREPARING_REBALANCE <--.
      |                                ^        |           | a member joins, leaves,
      '-- first member joins ----------'        |           | is late, or changes
                                 all have joined|           |
                                                v           |
                     STABLE <-- assignment -- COMPLETING_REBALANCE

`rebalancing` moves it through these states; `classic_groups` has the requests. The record of a
group has the fields that Apache Kafka 4.3 fills in.

Invariant: `members` are in the order in which they joined, and every id in `static_members` is in
`members`.
"""

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from tailrace.coordinator.groups.embedded_protocol import read_subscribed_topics
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tailrace.protocol.messages.sync_group import SyncGroupResponse
from tailrace.protocol.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    import asyncio

CONSUMER = "consumer"
"""The protocol type of consumers; Connect and others have their own."""


class ClassicState(Enum):
    """State of a group; the value is Kafka's name of it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


REBALANCES_FROM = frozenset(
    {ClassicState.EMPTY, ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE}
)
"""The states from which a rebalance can begin."""


Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors, a member's favourite first, and its metadata for each."""


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """A member, and its requests that wait for the others."""

    member_id: str
    instance_id: str | None
    """`group.instance.id` of a static member (KIP-345)."""
    client_id: str
    client_host: str
    """Its address with a leading slash, as Kafka's tools show it."""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    """The assignors that it supports; `ClassicGroup.take_protocols` changes them."""
    assignment: bytes = b""
    joining: "asyncio.Future[JoinGroupResponse] | None" = None
    """The parked JoinGroup."""
    syncing: "asyncio.Future[SyncGroupResponse] | None" = None
    """The parked SyncGroup."""
    is_new: bool = False
    """Whether it waits in its first join. Its client may have gone without a LeaveGroup, and a
    member that waits sends no heartbeats, so only a time limit of its own removes it."""

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for an assignor; empty if it does not support it."""
        return dict(self.protocols).get(protocol or "", b"")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def answer_join(self, response: JoinGroupResponse) -> None:
        parked, self.joining = self.joining, None
        if parked is not None and not parked.done():
            parked.set_result(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the parked SyncGroup; returns whether there was one."""
        parked, self.syncing = self.syncing, None
        if parked is None:
            return False
        if not parked.done():
            parked.set_result(response)
        return True


@dataclass(slots=True)
class ClassicGroup:
    """A group, with what a restart keeps and what it forgets."""

    group_id: str
    state_since_ms: int
    """When it came to its state, in milliseconds since the epoch; -1: not known."""
    state: ClassicState = ClassicState.EMPTY
    previous_state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    """None: a simple group, which only commits offsets."""
    protocol: str | None = None
    """The assignor of this generation."""
    leader_id: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """The member id of each instance id."""
    pending_ids: set[str] = field(default_factory=set)
    """Member ids that were handed out with MEMBER_ID_REQUIRED and not used yet."""
    unsynced_ids: set[str] = field(default_factory=set)
    """Members of this generation that have not sent their SyncGroup."""
    supporters: dict[str, int] = field(default_factory=dict)
    """Number of members that support each assignor: to count them for each member that joins would
    take seconds in a group of thousands."""
    subscribed_topics: frozenset[str] | None = None
    """Topics of all members; None: not known, as their metadata is not a consumer's."""
    is_joined_meanwhile: bool = False
    """Whether a new member came during the initial delay."""

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    @property
    def have_all_joined(self) -> bool:
        """Whether every member waits in a join, and no id is handed out to one that will join."""
        return not self.pending_ids and all(each.joining for each in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member may take to join again."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def is_simple(self) -> bool:
        """Whether only offsets are committed: no member was ever there."""
        return self.protocol_type is None and not self.members and not self.pending_ids

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_support(member, 1)
        self.pending_ids.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id; another member becomes the leader if it was that."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_ids.discard(member_id)
        self.unsynced_ids.discard(member_id)

    def take_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Note what a member supports from now on."""
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id; requests that wait under the old one are fenced."""
        member = self.members[old_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        member.answer_join(JoinGroupResponse(member_id=old_id, error_code=fenced))
        member.answer_sync(SyncGroupResponse(error_code=fenced))
        member.member_id = new_id
        # Its client has come back from its first join, so it is there as long as it waits now.
        member.is_new = False
        # It keeps its place in the order, so that a restart finds the members as they are.
        self.members = {each.member_id: each for each in self.members.values()}
        assert member.instance_id is not None
        self.static_members[member.instance_id] = new_id
        if old_id in self.unsynced_ids:
            self.unsynced_ids.remove(old_id)
            self.unsynced_ids.add(new_id)
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def supports(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a member with these assignors can join: all members have one in common."""
        if self.state is ClassicState.EMPTY:
            # The first member decides what the group is.
            return bool(protocol_type and names)
        # While a group whose members have all left prepares, nothing limits the next one.
        is_any = bool(names) and not self.members
        return protocol_type == self.protocol_type and (is_any or any(map(self._is_common, names)))

    def select_protocol(self) -> str:
        """The assignor with most votes among those that all members support."""
        candidates = set(filter(self._is_common, self.supporters))
        # As in Kafka: each member votes for its favourite among those that all of them support.
        votes = Counter(each.vote(candidates) for each in self.members.values())
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else choose a member that has; False if none has."""
        # A static leader may be restarting (KIP-345): somebody who is there has to assign.
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.joining is None:
            joined = next((each for each in self.members.values() if each.joining), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    def next_generation(self, now_ms: int) -> None:
        """Begin a generation: of the members that are there, or of none."""
        self.generation += 1
        self.unsynced_ids.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.move_to(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.move_to(ClassicState.EMPTY, now_ms)
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        """Read the topics of all members from their metadata, for the expiry of offsets."""
        self.subscribed_topics = None
        # Only the metadata of consumers is Kafka's; that of Connect, for one, is its own.
        if self.protocol_type == CONSUMER:
            self.subscribed_topics = read_subscribed_topics(
                each.metadata(self.protocol) for each in self.members.values()
            )

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if the member is in the group under this id and instance id, else the error."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            # Another process runs under the same instance id: the older one has to stop (KIP-345).
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joined(
        self,
        member_id: str,
        *,
        shows_members: bool,
        skips_assignment: bool = False,
        leader_id: str | None = None,
    ) -> JoinGroupResponse:
        """The answer to a JoinGroup of this generation; a leader is shown the members.

        `leader_id` is the leader that the answer names, if not the one that leads the group.
        """
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader_id or self.leader_id or "",
            skip_assignment=skips_assignment,
            member_id=member_id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(self.protocol),
                )
                for each in self.members.values()
            )
            if shows_members
            else (),
        )

    def synced(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def _count_support(self, member: ClassicMember, change: int) -> None:
        # By name: the metadata of a member that comes from a consumer group may name one twice.
        for name in dict(member.protocols):
            count = self.supporters.pop(name, 0) + change
            if count:
                self.supporters[name] = count

    def _is_common(self, name: str) -> bool:
        return self.supporters.get(name, 0) == len(self.members)


def group_record(group: ClassicGroup) -> CoordinatorRecord:
    """The group as it is, with its members and their assignments."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader_id,
            current_state_timestamp=group.state_since_ms,
            members=tuple(
                MemberMetadata(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout=each.rebalance_timeout_ms,
                    session_timeout=each.session_timeout_ms,
                    subscription=each.metadata(group.protocol),
                    assignment=each.assignment,
                )
                for each in group.members.values()
            ),
        ),
    )


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """A group whose first member has been given its id and nothing else."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=group.state_since_ms
        ),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def loaded_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: stable if it has members, else empty."""
    state = ClassicState.STABLE if value.members else ClassicState.EMPTY
    group = ClassicGroup(
        group_id,
        value.current_state_timestamp,
        state=state,
        previous_state=state,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
    )
    for each in value.members:
        known_ms = each.rebalance_timeout
        member = ClassicMember(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            # The oldest version of the record has no such field, as JoinGroup v0 had none.
            rebalance_timeout_ms=each.session_timeout if known_ms == -1 else known_ms,
            session_timeout_ms=each.session_timeout,
            # The record has the metadata for the chosen assignor alone: the member supports no
            # other until it joins again.
            protocols=((value.protocol or "", bytes(each.subscription)),),
            assignment=bytes(each.assignment),
        )
        group.add(member, value.protocol_type)
    group.leader_id = value.leader
    group.find_subscribed_topics()
    return group
