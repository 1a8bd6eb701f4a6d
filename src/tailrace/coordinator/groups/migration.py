"""A group with members moves to the other protocol (`group.consumer.migration.policy`).

    upgrade      a classic group becomes a consumer group when a member of that protocol joins
    downgrade    a consumer group becomes a classic one when only classic members are left

The records of a change are one batch: the end of the old group, and all of the new one. The members
keep their ids, and what they have; the generation of one group is the epoch of the other.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tailrace.coordinator.deadlines import Records
from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.classic_group import (
    CONSUMER,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    group_record,
    group_tombstone,
)
from tailrace.coordinator.groups.classic_groups import ClassicGroups
from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    CurrentAssignment,
    Partitions,
    common_protocols,
)
from tailrace.coordinator.groups.consumer_records import (
    consumer_group_tombstones,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from tailrace.coordinator.groups.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.topics import Topics
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from tailrace.values import dataclass

_NEVER: Final = 0
"""The time of a target that no assignor has made, so that the next one need not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The change of an id that a consumer group takes."""

    records: Records = ()
    """The records that end the classic group of this id, and make `group`."""
    group: ConsumerGroup | None = None
    """The consumer group that the classic one becomes; None: a new one is made."""


class Migration:
    """Decides whether groups of one shard may change their protocol, and does it."""

    def __init__(self, groups: Groups, classic: ClassicGroups) -> None:
        self._groups = groups
        self._classic = classic

    def upgrade(self, group_id: str) -> Upgrade:
        """Let a consumer group take an id that no consumer group has.

        Raises:
            RefusedError: GROUP_ID_NOT_FOUND: a classic group with members stays what it is.
        """
        group = self._groups.classic(group_id)
        if group is None or group.is_simple:
            # Nothing but offsets is stored of a simple group, and these stay.
            return Upgrade()
        if group.state is ClassicState.EMPTY:
            return Upgrade(records=(group_tombstone(group_id),))
        settings = self._groups.consumer_settings(group_id)
        reason = ""
        if not settings.allows_upgrade:
            reason = "online upgrade is disabled"
        elif group.protocol_type != CONSUMER:
            reason = "the group does not use the consumer embedded protocol"
        elif len(group.members) > settings.size_max:
            reason = "the group size exceeds the consumer group maximum size"
        if reason:
            raise _not_upgraded(group_id, reason)
        upgraded = _upgraded(group, self._groups.topics)
        return Upgrade(records=(group_tombstone(group_id), *_records(upgraded)), group=upgraded)

    def can_downgrade(self, group: ConsumerGroup, left: Mapping[str, ConsumerMember]) -> bool:
        """Whether a group that only these members are left of becomes a classic one."""
        # The common protocol is what the classic group will assign by.
        return bool(
            left
            and all(each.is_classic for each in left.values())
            and self._groups.consumer_settings(group.group_id).allows_downgrade
            and len(left) <= self._groups.settings.size_max
            and common_protocols(left.values())
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        left: Mapping[str, ConsumerMember],
        *,
        now_ms: int,
        reason: str | None,
    ) -> Records:
        """The records of a classic group with these members, which takes over when they are stored.

        Each member is given with the id under which the group has its target. `reason` is that of
        the rebalance that begins then; None: all keep what they have.
        """
        found = _downgraded(group, left, topics=self._groups.topics, now_ms=now_ms)
        # The record of a classic group lacks what a restart may forget, as the protocols of its
        # members: the group is handed over, and takes over when its record is replayed.
        self._classic.expect(found, reason)
        return (*consumer_group_tombstones(group), group_record(found))

    def cancel(self, group_id: str) -> None:
        """The records of a downgrade could not be stored."""
        self._classic.clear_expected(group_id)


def _upgraded(group: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """The consumer group with the members of a classic one; what they have is their target.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND: subscriptions or assignments are not those of consumers.
    """
    epoch = group.generation
    made = ConsumerGroup(group.group_id, epoch=epoch, target_epoch=epoch)
    try:
        for member in group.members.values():
            # While a group rebalances it may have chosen no assignor.
            subscribed = member.metadata(group.protocol) or member.protocols[0][1]
            subscription = read_subscription(subscribed)
            given = read_assignment(member.assignment)
            # Data of its own assignor, which the broker cannot keep for it.
            if given.user_data:
                raise _not_upgraded(
                    group.group_id,
                    "an unsupported custom assignor is in use. Please refer to the documentation "
                    "or switch to a default assignor before re-attempting the upgrade",
                )
            has = _by_id(given, topics)
            metadata = ConsumerGroupMemberMetadataValue(
                instance_id=member.instance_id,
                rack_id=subscription.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=tuple(sorted(set(subscription.topics))),
                subscribed_topic_regex="",
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                server_assignor=None,
                classic_member_metadata=ClassicMemberMetadata(
                    session_timeout_ms=member.session_timeout_ms,
                    supported_protocols=tuple(
                        ClassicProtocol(name=name, metadata=data) for name, data in member.protocols
                    ),
                ),
            )
            current = CurrentAssignment(
                epoch=epoch,
                previous_epoch=epoch,
                assigned={each: dict.fromkeys(numbers, epoch) for each, numbers in has.items()},
            )
            # What it has is its target: the first heartbeat of the new member makes another one.
            made.put(ConsumerMember(member.member_id, metadata, current))
            made.target[member.member_id] = has
    except MalformedMessageError as error:
        # A client of protocol type `consumer` may send metadata of its own.
        reason = "the embedded consumer protocol is malformed"
        raise _not_upgraded(group.group_id, reason) from error
    return made


def _downgraded(
    group: ConsumerGroup, left: Mapping[str, ConsumerMember], *, topics: Topics, now_ms: int
) -> ClassicGroup:
    """The classic group with these members; their assignments are their targets."""
    made = ClassicGroup(
        group.group_id,
        now_ms,
        state=ClassicState.STABLE,
        previous_state=ClassicState.STABLE,
        generation=group.epoch,
        protocol_type=CONSUMER,
    )
    for member in left.values():
        made.add(_classic_member(member), CONSUMER)
    made.protocol = made.select_protocol()
    made.find_subscribed_topics()
    for old_id, member in left.items():
        classic = made.members[member.member_id]
        classic.assignment = write_assignment(
            _by_name(group.target.get(old_id, {}), topics),
            for_metadata=classic.metadata(made.protocol),
        )
    return made


def assignment_of(member: ConsumerMember, topics: Topics) -> bytes:
    """The partitions of a classic member of a consumer group, as its SyncGroup is answered."""
    classic = member.metadata.classic_member_metadata
    assert classic is not None
    has = {each: frozenset(numbers) for each, numbers in member.current.assigned.items()}
    # Its favourite: the answer to its join has named that one.
    metadata = bytes(classic.supported_protocols[0].metadata)
    return write_assignment(_by_name(has, topics), for_metadata=metadata)


def owned_partitions(
    metadata: bytes, topics: Topics
) -> tuple[tuple[str, ...], str | None, Partitions]:
    """Topics and rack of a subscription, and the partitions that the member says it owns.

    Raises:
        MalformedMessageError: the metadata is not a consumer's subscription.
    """
    subscription = read_subscription(metadata)
    # Topics that are deleted have no id any more, and nobody can own their partitions.
    owned = {}
    for each in subscription.owned_partitions:
        topic = topics.by_name(each.topic)
        if topic is not None and each.partitions:
            owned[topic.topic_id] = frozenset(each.partitions)
    return subscription.topics, subscription.rack_id, owned


def _records(group: ConsumerGroup) -> Records:
    group_id, members = group.group_id, group.members.values()
    return (
        *(member_record(group_id, each) for each in members),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, each, group.target[each]) for each in group.members),
        target_epoch_record(group_id, group.target_epoch, _NEVER),
        *(current_record(group_id, each.member_id, each.current) for each in members),
    )


def _classic_member(member: ConsumerMember) -> ClassicMember:
    metadata, classic = member.metadata, member.metadata.classic_member_metadata
    assert classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
    )


def _by_id(assignment: ConsumerProtocolAssignment, topics: Topics) -> dict[UUID, frozenset[int]]:
    found = {}
    for each in assignment.assigned_partitions:
        topic = topics.by_name(each.topic)
        if topic is not None and each.partitions:
            found[topic.topic_id] = frozenset(each.partitions)
    return found


def _by_name(partitions: Partitions, topics: Topics) -> dict[str, frozenset[int]]:
    found = {topics.by_id(topic_id): numbers for topic_id, numbers in partitions.items()}
    return {topic.name: numbers for topic, numbers in found.items() if topic is not None}


def _not_upgraded(group_id: str, reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}.",
    )
