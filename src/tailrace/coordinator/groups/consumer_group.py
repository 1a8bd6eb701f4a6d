"""A group of the consumer protocol (KIP-848): its members, its target assignment, and who has what.

    group epoch      grows when members or their topics change, or these topics themselves
    target epoch     the group epoch that `target` was computed for; never larger than it
    member epoch     the target epoch that the member has come to

`consumer_records` replays records into it, `consumer_heartbeat` decides about it.

Invariant: everything that a restart must know is changed by replay alone, and `owners` has exactly
the partitions that members have been given and have not given up yet.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from functools import cached_property
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.protocol.records import (
    ConsumerGroupMemberMetadataValue,
)
from tailrace.values import dataclass, field

LEAVE_EPOCH: Final = -1
"""Epoch of a member that leaves."""

LEAVE_STATIC_EPOCH: Final = -2
"""Epoch of a static member that leaves and will come back."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; no topic is without partitions."""

Assigned = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was assigned (KIP-1251)."""


class MemberState(IntEnum):
    """State of a member on the way to its target; the value is Kafka's number of it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been asked to give partitions up, and has not."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up."""
    UNKNOWN = 127
    """Written by a newer Kafka."""


class ConsumerState(Enum):
    """State of a group; the value is Kafka's name of it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """Partitions that a member has."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)
    """Partitions that it has been asked to give up."""

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether the member has come to this target."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


NO_METADATA: Final = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id=None,
    subscribed_topic_regex="",
    server_assignor=None,
    classic_member_metadata=None,
)
"""A member that nothing is known of."""

LEFT: Final = CurrentAssignment(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
"""The assignment of a member that has left: none."""


class Subscription(NamedTuple):
    """The topics that a member subscribes to."""

    names: tuple[str, ...] = ()
    """Topics, in order."""
    regex: str = ""
    """A regular expression of topics; empty: none."""


@dataclass(frozen=True)
class ConsumerMember:
    """A member, as the log has it."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue
    current: CurrentAssignment = CurrentAssignment()

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic_member_metadata is not None

    @cached_property
    def subscription(self) -> Subscription:
        return Subscription(
            self.metadata.subscribed_topic_names, self.metadata.subscribed_topic_regex or ""
        )


def common_protocols(members: Iterable[ConsumerMember]) -> set[str] | None:
    """The assignors that all classic members among these support; None: there is no such member."""
    supported = [
        {protocol.name for protocol in classic.supported_protocols}
        for each in members
        if (classic := each.metadata.classic_member_metadata) is not None
    ]
    return set.intersection(*supported) if supported else None


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that matched a regular expression."""

    topics: frozenset[str]
    version: int
    """The version of the topics at which they were found."""
    timestamp_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """A group; two are equal if the log says the same of both."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    """Hash over the subscribed topics (KIP-1101)."""
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    """When the target was computed; 0: not known."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """The member id of each instance id."""
    target: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    has_topic_records: bool = False
    """Whether a Kafka before 4.1 has left a record of type 4."""
    owners: dict[UUID, dict[int, str]] = field(default_factory=dict)
    """The member that has each partition."""
    subscriptions: Counter[Subscription] = field(default_factory=Counter)
    """Number of members with each subscription: most groups of a thousand members have one."""
    topics_version: int | None = field(default=None, compare=False)
    """The version of the topics that `metadata_hash` was compared with; None: of none yet. Not from
    the log, so not compared."""

    @property
    def state(self) -> ConsumerState:
        """Its state; takes a look at each member."""
        if not self.members:
            return ConsumerState.EMPTY
        # As in Kafka a group without a target for its epoch is assigning, whatever its members do.
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        members = self.members.values()
        if all(each.current.is_reconciled(self.target_epoch) for each in members):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerMember) -> Partitions:
        """The target of a member; one that replaces a static member inherits its target."""
        found = self.target.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = self.target.get(self.static_members.get(member.instance_id, ""))
        return {} if found is None else found

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """Names of all topics of a subscription, with those that match its regular expression."""
        resolved = self.regexes.get(subscription.regex) if subscription.regex else None
        names = frozenset(subscription.names)
        return names if resolved is None else names | resolved.topics

    def topics_of_all(self, subscriptions: Iterable[Subscription]) -> frozenset[str]:
        return frozenset().union(*map(self.topics_of, subscriptions))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(each) for each in self.subscriptions)

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        return partition in self.owners.get(topic_id, ())

    def put(self, member: ConsumerMember) -> None:
        """Add a member or replace its state."""
        known = self.members.get(member.member_id)
        if known is not None:
            # First what it had: partitions that it has given up have no owner now.
            self._release(known)
            self._unsubscribe(known)
            self._forget_instance(known)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.subscriptions[member.subscription] += 1
        for parts in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in parts.items():
                owned = self.owners.setdefault(topic_id, {})
                owned.update(dict.fromkeys(partitions, member.member_id))

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        self._unsubscribe(member)
        self._forget_instance(member)

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        # A static member that has restarted is in under its new id already.
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _unsubscribe(self, member: ConsumerMember) -> None:
        self.subscriptions[member.subscription] -= 1
        if not self.subscriptions[member.subscription]:
            del self.subscriptions[member.subscription]

    def _release(self, member: ConsumerMember) -> None:
        for parts in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in parts.items():
                owned = self.owners.get(topic_id, {})
                for partition in partitions:
                    # Compaction may have left a later owner's record before this one.
                    if owned.get(partition) == member.member_id:
                        del owned[partition]
                if not owned:
                    self.owners.pop(topic_id, None)
