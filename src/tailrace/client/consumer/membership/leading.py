"""`Leading`: the leader's part of a rebalance of a classic group.

The leader gets the subscriptions of all members, needs the metadata of all their topics, assigns
the partitions, and watches these topics until the next rebalance.
"""

from collections.abc import Callable, Mapping, Sequence

from tailrace.client.consumer.membership.assignors import (
    Assignor,
    RebalanceProtocol,
    StatelessAssignor,
    assign_ranges,
    assign_round_robin,
    racks_of,
)
from tailrace.client.consumer.membership.interface import TopicShape
from tailrace.client.consumer.membership.sticky import CooperativeStickyAssignor, StickyAssignor
from tailrace.client.consumer.membership.subscriptions import (
    decode_subscription,
    encode_assignment,
)
from tailrace.protocol.messages.join_group import JoinGroupResponse
from tailrace.protocol.messages.sync_group import SyncGroupRequestAssignment

Snapshot = Mapping[str, object]
"""The part of the metadata that an assignment depends on, by topic."""


class Leading:
    """The group of which this member is the leader, in one generation.

    Raises:
        MalformedGroupDataError: the subscription of a member cannot be read.
    """

    def __init__(self, answer: JoinGroupResponse, assignor: Assignor, *, rack: str | None) -> None:
        self._assignor = assignor
        self._rack = rack
        # A static leader that comes back: the group is stable, and nothing is assigned (KIP-814).
        self._is_assigned_already = answer.skip_assignment
        self._members = {
            each.member_id: decode_subscription(
                each.metadata, member_id=each.member_id, instance_id=each.group_instance_id
            )
            for each in answer.members
        }
        self.topics = frozenset(
            topic for member in self._members.values() for topic in member.topics
        )
        """The topics that any member subscribes to."""
        self._snapshot: Snapshot | None = None

    @property
    def has_assigned(self) -> bool:
        return self._snapshot is not None

    def is_covered(self, topics: Mapping[str, TopicShape], missing: frozenset[str]) -> bool:
        """Whether the metadata tells about every topic of the group."""
        # A topic that does not exist has no metadata: without `missing` the group would wait for
        # it.
        return self.topics <= topics.keys() | missing

    def assign(self, topics: Mapping[str, TopicShape]) -> tuple[SyncGroupRequestAssignment, ...]:
        """The assignments of all members; none for a static leader whose group keeps its own."""
        self._snapshot = self._snap(topics)
        if self._is_assigned_already:
            return ()
        subscribed = {name: shape for name, shape in topics.items() if name in self.topics}
        assignments = self._assignor.assign(racks_of(subscribed), self._members)
        return tuple(
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions)
            )
            for member_id, partitions in assignments.items()
        )

    def is_outdated(self, topics: Mapping[str, TopicShape]) -> bool:
        """Whether topics of the group have changed since the assignment."""
        return self._snapshot is not None and self._snapshot != self._snap(topics)

    def _snap(self, topics: Mapping[str, TopicShape]) -> Snapshot:
        return {
            # Racks change when replicas are moved, which matters to nobody without `client.rack`.
            name: topics[name].racks if self._rack else topics[name].partition_count
            for name in self.topics
            if name in topics
        }


def make_assignors(names: Sequence[str]) -> tuple[Assignor, ...]:
    """New assignors with these names, in their order."""
    makers: dict[str, Callable[[], Assignor]] = {
        "range": lambda: StatelessAssignor("range", assign_ranges),
        "roundrobin": lambda: StatelessAssignor("roundrobin", assign_round_robin),
        "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    return tuple(makers[name]() for name in names)


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The protocol that all assignors support; cooperative if they all do."""
    # One eager assignor is enough to make the member eager: the coordinator may choose it.
    common = frozenset(RebalanceProtocol).intersection(*(each.protocols for each in assignors))
    if RebalanceProtocol.COOPERATIVE in common:
        return RebalanceProtocol.COOPERATIVE
    return RebalanceProtocol.EAGER
