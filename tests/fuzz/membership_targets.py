"""Fuzz targets: bytes from other members of a group, and answers of its coordinator.

Any bytes end in a value or in an error of the group, also if the member leads and assigns by them.
"""

from tailrace.client.consumer.membership.errors import GroupError, MalformedGroupDataError
from tailrace.client.consumer.membership.leading import make_assignors
from tailrace.client.consumer.membership.subscriptions import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_sticky,
    encode_subscription,
)
from tailrace.model import TopicPartition
from tailrace.protocol import codec
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tests.fuzz.engine import FuzzTarget
from tests.unit.client.consumer.member_stage import MemberStage, target

_OWNED = tuple(TopicPartition(topic, number) for topic in ("a", "b") for number in range(3))
_RACKS = {"a": (frozenset("x"), frozenset("y"), frozenset("xy")), "b": (frozenset("x"),)}


def _subscription(*topics: str, generation: int) -> bytes:
    return encode_subscription(
        MemberSubscription(
            topics=topics,
            owned=_OWNED,
            generation=generation,
            user_data=encode_sticky(_OWNED, generation),
            rack="x",
        )
    )


def _encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    codec.encode(message, version, out)
    return bytes(out)


def assign(data: bytes) -> None:
    """Lead a group in which one member says `data`; every assignor assigns each partition once."""
    told = decode_subscription(data, member_id="other")
    mine = MemberSubscription(topics=("a", "b"), owned=_OWNED[:2], generation=3, rack="y")
    for assignor in make_assignors(("range", "roundrobin", "sticky", "cooperative-sticky")):
        found = assignor.assign(_RACKS, {"mine": mine, "other": told})
        assigned = [each for share in found.values() for each in share]
        assert len(assigned) == len(set(assigned)) <= 4
        for each in found.values():
            assert decode_assignment(encode_assignment(each)) == frozenset(each)


def join(data: bytes) -> None:
    """Be answered with a JoinGroup of any bytes."""
    answer, _ = codec.decode(JoinGroupResponse, 9, memoryview(data))
    stage = MemberStage(partition_assignment_strategy="cooperative-sticky,range")
    stage.subscribe()
    stage.find()
    request = stage.membership.next_request(stage.now)
    assert request is not None
    stage.answer(request, answer)
    _live_on(stage)


def beat(data: bytes) -> None:
    """Be answered with a ConsumerGroupHeartbeat of any bytes."""
    answer, _ = codec.decode(ConsumerGroupHeartbeatResponse, 1, memoryview(data))
    stage = MemberStage(is_consumer_protocol=True)
    stage.subscribe()
    stage.find()
    request = stage.membership.next_request(stage.now)
    assert request is not None
    stage.answer(request, answer)
    _live_on(stage)


def _live_on(stage: MemberStage) -> None:
    for _ in range(4):
        stage.steps()
        stage.next()
        stage.passes(1)
    error = stage.membership.error
    assert error is None or isinstance(error, GroupError)
    stage.membership.leave("the end", stage.now)
    stage.steps()


_ANSWER = JoinGroupResponse(
    generation_id=1,
    member_id="m",
    leader="m",
    protocol_type="consumer",
    protocol_name="range",
    members=tuple(
        JoinGroupResponseMember(member_id=each, metadata=_subscription("flights", generation=1))
        for each in ("m", "n")
    ),
)
_TOLD = ConsumerGroupHeartbeatResponse(
    member_id="m", member_epoch=1, heartbeat_interval_ms=5000, assignment=target(0, 1)
)

TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="subscription of another member",
        seeds=(_subscription("a", "b", generation=3), _subscription("a", generation=9)),
        run=assign,
        refusals=(MalformedGroupDataError,),
        share=0.5,
    ),
    FuzzTarget(
        name="assignment by the leader",
        seeds=(encode_assignment(_OWNED), encode_assignment(())),
        run=decode_assignment,
        refusals=(MalformedGroupDataError,),
    ),
    FuzzTarget(
        name="answer to JoinGroup",
        seeds=(_encoded(_ANSWER, 9),),
        run=join,
        refusals=(MalformedMessageError,),
        share=0.3,
    ),
    FuzzTarget(
        name="answer to ConsumerGroupHeartbeat",
        seeds=(_encoded(_TOLD, 1),),
        run=beat,
        refusals=(MalformedMessageError,),
        share=0.3,
    ),
)
