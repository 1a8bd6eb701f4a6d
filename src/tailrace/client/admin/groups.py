"""Groups of consumers, seen from outside: list, describe and delete them, and remove members.

    list        every broker is asked for the groups that it coordinates
    describe    ConsumerGroupDescribe for the consumer protocol (KIP-848), and DescribeGroups for
                the classic one; a broker that lacks the first has no such groups

Not here: committed offsets; see `group_offsets`.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any

from tailrace.client.admin.acls import operations_in
from tailrace.client.admin.cluster import brokers_of
from tailrace.client.admin.items import ItemRequest, for_each, names
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call, address_of
from tailrace.client.config import BrokerAddress
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import RemoteFatalError, UnsupportedBrokerError
from tailrace.client.routes import broker, group_coordinator
from tailrace.client.short_repr import short_repr
from tailrace.errors import FatalError, TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.codec import decode
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.messages import consumer_group_describe as modern
from tailrace.protocol.messages import describe_groups as classic
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.security.acls import AclOperation
from tailrace.values import dataclass

CLASSIC = "classic"
"""The type of a group in which the members assign the partitions."""

CONSUMER = "consumer"
"""The type of a group in which the broker does (KIP-848); also the classic consumers' protocol."""

DEAD = "Dead"
"""The state of a group that does not exist."""

EMPTY = "Empty"
"""The state of a group that has offsets and no member."""

REASON_CHARACTERS_MAX = 255
"""Kafka's limit of a reason for leaving."""

_VERSION = Struct(">h")


class NoSuchGroupError(FatalError, LookupError):
    """The coordinator does not know a group."""

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"group {group!r} does not exist: nobody has joined it, and it has committed no offset"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a list."""

    group: str
    type: str
    """`classic`, `consumer`, `share`, ...; empty from brokers before Kafka 3.8."""
    state: str
    """`Stable`, `Empty`, ...; empty from brokers before Kafka 2.6."""
    protocol_type: str
    """The kind of members: `consumer` for consumers, empty if there are only offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and what it has been given."""

    member_id: str
    instance_id: str | None
    """The name of a static member (KIP-345)."""
    client_id: str
    """The `client.id` of its client."""
    host: str
    """The address that it connects from."""
    partitions: tuple[TopicPartition, ...]
    """In order; empty for members that are no consumers."""
    target_partitions: tuple[TopicPartition, ...] | None = None
    """Its partitions after the rebalance; None in a classic group."""
    member_epoch: int | None = None
    """Its epoch; None in a classic group."""

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its members."""

    group: str
    type: str
    """`classic` or `consumer`."""
    state: str
    """`Stable`, `Empty`, ..."""
    assignor: str
    """Empty if the group has none at the moment."""
    coordinator: BrokerAddress
    """The broker that keeps it."""
    members: tuple[GroupMember, ...]
    protocol_type: str = CONSUMER
    """The kind of members: `consumer` for consumers, empty if there are only offsets."""
    authorized_operations: frozenset[AclOperation] | None = None
    """Operations that the client may do with it; None if nobody asked."""

    __repr__ = short_repr


def list_groups(
    call: Call,
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    protocol_types: Iterable[str] | None = None,
    brokers: Iterable[int] | None = None,
) -> Steps[list[GroupListing]]:
    """All groups of the cluster, ordered by name; or those in these states, of these types.

    `protocol_types=["consumer", ""]` leaves out the groups of other programs, as Kafka Connect.
    Every broker is asked, or `brokers` alone: a list without the groups of one would be no list, so
    its error is raised.

    Raises:
        UnsupportedBrokerError: a broker has no states (before Kafka 2.6), or no types (3.8).
        RemoteFatalError: a broker refuses.
        OperationTimeoutError: a broker does not answer within the time limit.
    """
    asked = ListGroupsRequest(
        states_filter=tuple(names(states, what="states")),
        # KIP-848 has types; before there was only one.
        types_filter=tuple(names(types, what="types")),
    )
    kinds = None if protocol_types is None else set(names(protocol_types, what="protocol_types"))
    request: ItemRequest[int, list[GroupListing], ListGroupsResponse] = ItemRequest(
        what="the groups of broker",
        target=broker,
        request=lambda _: asked,
        response=ListGroupsResponse,
        value=lambda _, answer: [
            GroupListing(
                group=each.group_id,
                # "Consumer" on the wire, and `consumer` in Kafka's tools and settings.
                type=each.group_type.lower(),
                state=each.group_state,
                protocol_type=each.protocol_type,
            )
            for each in answer.groups
        ],
        first_version=5 if asked.types_filter else 4 if asked.states_filter else 0,
        is_single=True,
    )
    listed = yield from for_each(call, (yield from brokers_of(call, brokers)), request)
    # A group that moves to another coordinator meanwhile may be in two lists.
    found = {each.group: each for groups in listed.complete().values() for each in groups}
    return [
        each for _, each in sorted(found.items()) if kinds is None or each.protocol_type in kinds
    ]


def describe_groups(
    call: Call, groups: Iterable[str], *, include_authorized_operations: bool = False
) -> Steps[Outcomes[str, GroupDescription]]:
    """Groups and their members, of both protocols.

    One that does not exist has a NoSuchGroupError. Repeated after a lost connection.

    Raises:
        TypeError: `groups` is no list of names.
    """
    wanted = names(groups, what="groups")
    request: ItemRequest[str, GroupDescription, modern.ConsumerGroupDescribeResponse]
    # KIP-848 and then the classic protocol, as Kafka's client does: each of the two APIs knows
    # groups of its own protocol alone.
    request = ItemRequest(
        what="group",
        target=group_coordinator,
        request=lambda batch: modern.ConsumerGroupDescribeRequest(
            group_ids=tuple(batch), include_authorized_operations=include_authorized_operations
        ),
        response=modern.ConsumerGroupDescribeResponse,
        entries=lambda answer, _: ((each.group_id, each) for each in answer.groups),
        value=lambda group, each: _consumer_group(each, _coordinator(call, group)),
    )
    described = yield from for_each(call, wanted, request)
    # Those of the classic protocol, and all groups of a broker that lacks the API.
    others = [group for group, error in described.errors.items() if _may_be_classic(error)]
    if not others:
        return described
    classics = yield from _describe_classic(
        call, others, is_authorized=include_authorized_operations
    )
    return described.merged(classics)


def delete_groups(call: Call, groups: Iterable[str]) -> Steps[Outcomes[str, None]]:
    """Delete groups without members, with their committed offsets.

    One that does not exist has a NoSuchGroupError, one with members a RemoteFatalError with
    NON_EMPTY_GROUP. Sent once: a group whose answer was lost has an UnknownOutcomeError.

    Raises:
        TypeError: `groups` is no list of names.
    """
    request: ItemRequest[str, None, DeleteGroupsResponse] = ItemRequest(
        what="group",
        target=group_coordinator,
        request=lambda batch: DeleteGroupsRequest(groups_names=tuple(batch)),
        response=DeleteGroupsResponse,
        entries=lambda answer, _: ((each.group_id, each) for each in answer.results),
        special=no_such_group,
        # A second request would report as missing what the first has deleted, or delete a group
        # that was made again.
        is_sent_once=True,
    )
    return (yield from for_each(call, names(groups, what="groups"), request))


def remove_members_from_group(
    call: Call,
    group: str,
    instance_ids: Iterable[str] | None = None,
    *,
    reason: str = "removed by an admin client",
) -> Steps[Outcomes[str, None]]:
    """Remove members of a classic group: those with these names (KIP-345), or all.

    The outcomes are by instance id, and by member id where a member has no instance id. Consumers
    that still run join again. Repeated after a lost connection: one that is gone already has
    UNKNOWN_MEMBER_ID.

    Raises:
        TypeError: `instance_ids` is no list of names.
        NoSuchGroupError: all members are to be removed, and there is no such group.
        RemoteFatalError, OperationTimeoutError: likewise, and it could not be described.
    """
    if instance_ids is None:
        # LeaveGroup cannot say "all": it names members, so they have to be known first.
        described = yield from describe_groups(call, [group])
        members = {
            each.instance_id or each.member_id: each for each in described.result(group).members
        }
        wanted = {
            # KIP-800: the reason appears in the coordinator's log.
            name: MemberIdentity(
                # A static member is named by its instance id: its member id changes with each join.
                member_id="" if each.instance_id else each.member_id,
                group_instance_id=each.instance_id,
                reason=reason[:REASON_CHARACTERS_MAX],
            )
            for name, each in members.items()
        }
    else:
        wanted = {
            each: MemberIdentity(
                member_id="", group_instance_id=each, reason=reason[:REASON_CHARACTERS_MAX]
            )
            for each in names(instance_ids, what="instance_ids")
        }
    request: ItemRequest[str, None, LeaveGroupResponse] = ItemRequest(
        what=f"group {group!r}, member",
        target=group_coordinator(group),
        request=lambda batch: LeaveGroupRequest(
            group_id=group, members=tuple(wanted[each] for each in batch)
        ),
        response=LeaveGroupResponse,
        entries=lambda answer, _: (
            (each.group_instance_id or each.member_id, each) for each in answer.members
        ),
        # Until version 2 a request has one member, without an instance id.
        first_version=3,
    )
    return (yield from for_each(call, wanted, request))


def _may_be_classic(error: TailraceError) -> bool:
    if isinstance(error, RemoteFatalError):
        # UNSUPPORTED_VERSION comes from a coordinator where the new protocol is off.
        return error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(error, UnsupportedBrokerError)


def _describe_classic(
    call: Call, groups: Sequence[str], *, is_authorized: bool
) -> Steps[Outcomes[str, GroupDescription]]:
    def absent(group: str, found: classic.DescribedGroup) -> NoSuchGroupError | None:
        # Before Kafka 4 a coordinator calls a group that it does not know dead.
        is_dead = not found.error_code and found.group_state == DEAD
        return NoSuchGroupError(group) if is_dead else no_such_group(group, found)

    request: ItemRequest[str, GroupDescription, classic.DescribeGroupsResponse] = ItemRequest(
        what="group",
        target=group_coordinator,
        request=lambda batch: classic.DescribeGroupsRequest(
            groups=tuple(batch), include_authorized_operations=is_authorized
        ),
        response=classic.DescribeGroupsResponse,
        entries=lambda answer, _: ((each.group_id, each) for each in answer.groups),
        special=absent,
        value=lambda group, each: _classic_group(each, _coordinator(call, group)),
    )
    return (yield from for_each(call, groups, request))


def no_such_group(group: str, entry: Any) -> NoSuchGroupError | None:  # noqa: ANN401 - any part
    """The error of a group that its coordinator does not know."""
    is_absent = entry.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    return NoSuchGroupError(group) if is_absent else None


def _coordinator(call: Call, group: str) -> BrokerAddress:
    node = call.routes.known(group_coordinator(group))
    return BrokerAddress("", -1) if node is None else address_of(node)


def _consumer_group(found: modern.DescribedGroup, coordinator: BrokerAddress) -> GroupDescription:
    return GroupDescription(
        group=found.group_id,
        type=CONSUMER,
        state=found.group_state,
        assignor=found.assignor_name,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                host=each.client_host,
                partitions=_assigned(each.assignment),
                target_partitions=_assigned(each.target_assignment),
                member_epoch=each.member_epoch,
            )
            for each in found.members
        ),
        authorized_operations=operations_in(found.authorized_operations),
    )


def _assigned(assignment: modern.Assignment) -> tuple[TopicPartition, ...]:
    return _in_order({topic.topic_name: topic.partitions for topic in assignment.topic_partitions})


def _classic_group(found: classic.DescribedGroup, coordinator: BrokerAddress) -> GroupDescription:
    # Kafka Connect and others have groups too, whose assignments have another format.
    is_of_consumers = found.protocol_type == CONSUMER
    return GroupDescription(
        group=found.group_id,
        type=CLASSIC,
        state=found.group_state,
        assignor=found.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host,
                partitions=_assignment_in(each) if is_of_consumers else (),
            )
            for each in found.members
        ),
        protocol_type=found.protocol_type,
        authorized_operations=operations_in(found.authorized_operations),
    )


def _assignment_in(member: classic.DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """The partitions that the group's leader gave a member; none while it waits for them.

    An assignment of any version begins as one of version 0 does.
    """
    data = member.member_assignment
    try:
        # The first two bytes are the version, which is not needed: later ones only add fields at
        # the end.
        found, _ = decode(ConsumerProtocolAssignment, 0, memoryview(data), position=_VERSION.size)
    # Another program may put what it likes into an assignment.
    except MalformedMessageError:
        return ()
    return _in_order({topic.topic: topic.partitions for topic in found.assigned_partitions})


def _in_order(partitions: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic, number)
            for topic, numbers in partitions.items()
            for number in numbers
        )
    )
