"""Groups of consumers, seen from outside: list, describe and delete them.

    group list       every broker is asked for the groups that it coordinates
    describe         ConsumerGroupDescribe for the consumer protocol (KIP-848), and DescribeGroups
                     for the classic one; a broker that lacks the first has no such groups

Not here: committed offsets (`offsets`), and members of a group.
"""

from dataclasses import dataclass
from struct import Struct

from tailrace.client.brokers import RemoteBroker
from tailrace.client.config import BrokerAddress
from tailrace.client.errors import RemoteFatalError, UnsupportedBrokerError, raise_for
from tailrace.client.metadata import ClusterReader
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.protocol.codec import decode
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.messages import consumer_group_describe
from tailrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
"""The type of a group in which the members assign the partitions."""

CONSUMER = "consumer"
"""The type of a group in which the broker does (KIP-848); also the classic consumers' protocol."""

DEAD = "Dead"
"""The state of a group that does not exist."""

EMPTY = "Empty"
"""The state of a group that has offsets and no member."""

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
    host: str
    partitions: tuple[TopicPartition, ...]
    """In order; empty for members that are no consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its members."""

    group: str
    type: str
    state: str
    assignor: str
    """Empty if the group has none at the moment."""
    coordinator: BrokerAddress
    members: tuple[GroupMember, ...]


def list_groups(cluster: ClusterReader) -> list[GroupListing]:
    """All groups of the cluster, ordered by name.

    Raises:
        UnreachableBrokerError: a broker does not answer.
        RemoteRetriableError, RemoteFatalError: a broker refuses.
    """

    def ask() -> dict[str, GroupListing]:
        found = {}
        for broker in cluster.all_brokers():
            answer = broker.request(ListGroupsRequest(), ListGroupsResponse)
            raise_for(answer.error_code, about=f"{broker.address} was asked for its groups")
            for each in answer.groups:
                found[each.group_id] = GroupListing(
                    group=each.group_id,
                    type=each.group_type.lower(),
                    state=each.group_state,
                    protocol_type=each.protocol_type,
                )
        return found

    return [group for _, group in sorted(cluster.retrying(ask).items())]


def describe_group(cluster: ClusterReader, group: str) -> GroupDescription:
    """A group and its members.

    Raises:
        NoSuchGroupError: the coordinator does not know it.
        UnreachableBrokerError: the coordinator does not answer.
        RemoteRetriableError, RemoteFatalError: the coordinator refuses.
    """

    def ask() -> GroupDescription:
        broker = cluster.coordinator(CoordinatorKeyType.GROUP, group)
        try:
            return _describe_consumers(broker, group)
        except UnsupportedBrokerError:
            return _describe_classic(broker, group)
        except RemoteFatalError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return _describe_classic(broker, group)

    return cluster.retrying(ask)


def delete_group(cluster: ClusterReader, group: str) -> None:
    """Delete a group without members, with its committed offsets.

    Raises:
        NoSuchGroupError: the coordinator does not know it.
        UnreachableBrokerError: the coordinator does not answer.
        RemoteRetriableError, RemoteFatalError: the coordinator refuses: NON_EMPTY_GROUP.
    """

    def ask() -> None:
        broker = cluster.coordinator(CoordinatorKeyType.GROUP, group)
        request = DeleteGroupsRequest(groups_names=(group,))
        for each in broker.request(request, DeleteGroupsResponse).results:
            if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise NoSuchGroupError(group)
            raise_for(each.error_code, about=f"group {group!r} at {broker.address}")

    cluster.retrying(ask)


def _describe_consumers(broker: RemoteBroker, group: str) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=(group,))
    (found,) = broker.request(request, ConsumerGroupDescribeResponse).groups
    raise_for(found.error_code, about=f"group {group!r} at {broker.address}")
    return GroupDescription(
        group=group,
        type=CONSUMER,
        state=found.group_state,
        assignor=found.assignor_name,
        coordinator=broker.address,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                host=each.client_host,
                partitions=_assigned(each),
            )
            for each in found.members
        ),
    )


def _assigned(member: consumer_group_describe.Member) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _describe_classic(broker: RemoteBroker, group: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=(group,))
    (found,) = broker.request(request, DescribeGroupsResponse).groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD:
        raise NoSuchGroupError(group)
    raise_for(found.error_code, about=f"group {group!r} at {broker.address}")
    is_of_consumers = found.protocol_type == CONSUMER
    return GroupDescription(
        group=group,
        type=CLASSIC,
        state=found.group_state,
        assignor=found.protocol_data,
        coordinator=broker.address,
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
    )


def _assignment_in(member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """The partitions that the group's leader gave a member; none while it waits for them.

    An assignment of any version begins as one of version 0 does.
    """
    data = member.member_assignment
    try:
        found, _ = decode(ConsumerProtocolAssignment, 0, memoryview(data), position=_VERSION.size)
    except MalformedMessageError:
        return ()
    return tuple(
        sorted(
            TopicPartition(topic.topic, number)
            for topic in found.assigned_partitions
            for number in topic.partitions
        )
    )
