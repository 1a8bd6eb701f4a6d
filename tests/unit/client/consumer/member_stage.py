"""A member of a group and its commits, a scripted coordinator, and a clock that the test turns."""

import random
from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.membership import (
    ClassicMembership,
    Commits,
    ConsumerMembership,
    GroupCoordinator,
    GroupRequest,
    Membership,
    NoMembership,
    RebalanceStep,
    TopicShape,
)
from tailrace.client.consumer.membership.subscriptions import (
    MemberSubscription,
    encode_assignment,
    encode_subscription,
)
from tailrace.client.nodes import DisconnectedError
from tailrace.model import TopicPartition
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

M = TypeVar("M")

GROUP = "g"
FLIGHTS = "flights"
LOST = DisconnectedError("the connection broke")
IDS = {FLIGHTS: UUID(int=1), "airports": UUID(int=2)}


def partitions(*numbers: int, topic: str = FLIGHTS) -> tuple[TopicPartition, ...]:
    """Partitions of a topic."""
    return tuple(TopicPartition(topic, number) for number in numbers)


def shape(count: int, *racks: str, topic: str = FLIGHTS) -> TopicShape:
    """A topic with so many partitions, all of them in these racks."""
    return TopicShape(IDS[topic], (frozenset(racks),) * count)


class MemberStage:
    """One member; `now` is in seconds."""

    def __init__(self, *, is_consumer_protocol: bool = False, **settings: Any) -> None:
        self.now = 0.0
        protocol = "consumer" if is_consumer_protocol else "classic"
        given = {"bootstrap_servers": "broker:9092", "group_id": GROUP, "group_protocol": protocol}
        if not is_consumer_protocol:
            given["partition_assignment_strategy"] = "range"
        self.config = parse_consumer_config({**given, **settings})
        chance = random.Random(1)
        self.coordinator = GroupCoordinator(self.config, chance=chance)
        make = ConsumerMembership if is_consumer_protocol else ClassicMembership
        self.membership: Membership = make(self.config, self.coordinator, chance=chance)
        self.commits = Commits(self.config, self.coordinator, self.membership, chance=chance)

    def subscribe(self, *topics: str) -> None:
        """Subscribe, know the topics, and poll."""
        wanted = topics or (FLIGHTS,)
        self.membership.subscribe(frozenset(wanted), None, self.now)
        counts: Any = dict.fromkeys(wanted, 2)
        self.know(**counts)
        self.poll()

    def know(self, *, missing: Iterable[str] = (), **counts: int) -> None:
        """Give the member metadata: partition counts by topic."""
        shapes = {name: shape(count, topic=name) for name, count in counts.items()}
        self.membership.topics_changed(shapes, frozenset(missing), self.now)

    def poll(self) -> None:
        """Have the user poll."""
        self.membership.polled(self.now)

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def next(self) -> Message | None:
        """The next request of the member; None if none is due. It stays unanswered."""
        request = self.membership.next_request(self.now)
        return None if request is None else request.body

    def expect(self, kind: type[M]) -> tuple[GroupRequest, M]:
        """The next request of the member, which is of this kind."""
        request = self.membership.next_request(self.now)
        assert request is not None
        assert isinstance(request.body, kind)
        return request, request.body

    def answer(self, request: GroupRequest, outcome: Any) -> None:
        """Answer a request of the member."""
        self.membership.answered(request, outcome, self.now)

    def find(self, node_id: int = 1, **fields: Any) -> None:
        """Have the member find its coordinator."""
        request, _ = self.expect(FindCoordinatorRequest)
        self.answer(request, found(node_id, **fields))

    def joins(self, *, generation: int = 1, member_id: str = "m", **fields: Any) -> GroupRequest:
        """Answer the member's JoinGroup; as a follower, if nothing else is said."""
        request, _ = self.expect(JoinGroupRequest)
        told: dict[str, Any] = {
            "generation_id": generation,
            "member_id": member_id,
            "leader": "other",
            "protocol_type": "consumer",
            "protocol_name": self.config.partition_assignment_strategy[0],
        }
        self.answer(request, JoinGroupResponse(**told | fields))
        return request

    def syncs(self, *numbers: int, topic: str = FLIGHTS, **fields: Any) -> SyncGroupRequest:
        """Answer the member's SyncGroup with an assignment."""
        request, body = self.expect(SyncGroupRequest)
        told = {"assignment": encode_assignment(partitions(*numbers, topic=topic))}
        self.answer(request, SyncGroupResponse(**told | fields))
        return body

    def steps(self) -> list[tuple[str, tuple[TopicPartition, ...]]]:
        """Do all steps that are left; returns their kinds and partitions."""
        done = []
        while (step := self.membership.next_step()) is not None:
            done.append((step.kind.value, step.partitions))
            self.membership.step_done(step, self.now)
        return done

    def step(self) -> RebalanceStep:
        """The next step, which is not done."""
        step = self.membership.next_step()
        assert step is not None
        return step

    def becomes_member(self, *numbers: int, **fields: Any) -> None:
        """Subscribe, join and get these partitions of flights; without, the first two."""
        self.subscribe()
        self.find()
        self.joins(**fields)
        self.syncs(*(numbers or (0, 1)))
        self.steps()
        assert self.membership.is_settled

    def heartbeat(self, code: int = 0) -> None:
        """Wait for the next heartbeat, and answer it."""
        self.passes(3)
        request, _ = self.expect(HeartbeatRequest)
        self.answer(request, HeartbeatResponse(error_code=code))

    def beats(self, epoch: int = 1, *numbers: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """Answer a ConsumerGroupHeartbeat; with numbers, they are a new assignment of flights."""
        request, body = self.expect(ConsumerGroupHeartbeatRequest)
        told: dict[str, Any] = {
            "member_epoch": epoch,
            "member_id": body.member_id,
            "heartbeat_interval_ms": 5000,
        }
        if numbers:
            told["assignment"] = target(*numbers)
        self.answer(request, ConsumerGroupHeartbeatResponse(**told | fields))
        return body

    def becomes_consumer_member(self, *numbers: int) -> None:
        """Join under the consumer protocol, get these partitions, and acknowledge them."""
        self.subscribe()
        self.find()
        self.beats(1, *(numbers or (0, 1)))
        self.steps()
        self.beats(1)
        assert self.membership.is_settled

    def assign_itself(self) -> None:
        """Commit as no member."""
        self.commits.membership = NoMembership(GROUP)


def target(*numbers: int, topic: str = FLIGHTS) -> Assignment:
    """A target assignment."""
    return Assignment(topic_partitions=(TopicPartitions(topic_id=IDS[topic], partitions=numbers),))


def found(node_id: int = 1, **fields: Any) -> FindCoordinatorResponse:
    """The answer to FindCoordinator."""
    told: dict[str, Any] = {"key": GROUP, "node_id": node_id, "host": "broker", "port": 9092}
    return FindCoordinatorResponse(coordinators=(Coordinator(**told | fields),))


def member_of(
    member_id: str, *topics: str, owned: Iterable[TopicPartition] = (), **fields: Any
) -> JoinGroupResponseMember:
    """A member in the answer to a leader's JoinGroup."""
    subscription = MemberSubscription(topics=topics or (FLIGHTS,), owned=tuple(owned))
    return JoinGroupResponseMember(
        member_id=member_id, metadata=encode_subscription(subscription), **fields
    )
