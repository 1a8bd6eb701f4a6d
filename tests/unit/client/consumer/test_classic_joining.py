"""A member of a classic group joins, syncs, and joins again when something has changed."""

from typing import Any

import pytest

from tailrace.client.consumer.membership import MetadataWish
from tailrace.client.consumer.membership.errors import (
    FencedInstanceError,
    GroupAuthorizationError,
    GroupRefusedError,
    MalformedGroupDataError,
)
from tailrace.client.consumer.membership.subscriptions import (
    decode_assignment,
    decode_subscription,
)
from tailrace.client.nodes import AuthenticationError, UnsupportedVersionError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.client.consumer.member_stage import (
    FLIGHTS,
    LOST,
    MemberStage,
    found,
    member_of,
    partitions,
    shape,
)


def joining(stage: MemberStage) -> JoinGroupRequest:
    """The body of the JoinGroup that is due."""
    _, body = stage.expect(JoinGroupRequest)
    return body


def test_a_follower_joins_syncs_and_gets_its_assignment() -> None:
    """JoinGroup, SyncGroup without assignments, then a step to assign what the leader has given."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    assert stage.syncs(0, 1).assignments == ()
    assert stage.steps() == [("assign", partitions(0, 1))]
    assert stage.membership.assignment == frozenset(partitions(0, 1))
    assert stage.membership.identity == ("g", "m", 1, None)
    assert stage.membership.is_settled


def test_nothing_is_sent_before_the_first_poll() -> None:
    """A consumer that subscribes and never polls does not hold up its group."""
    stage = MemberStage()
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    assert stage.next() is None
    stage.poll()
    assert isinstance(stage.next(), FindCoordinatorRequest)


def test_a_member_joins_again_with_the_id_that_it_is_given() -> None:
    """MEMBER_ID_REQUIRED is no failure: the next JoinGroup has the id, at once (KIP-394)."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1", generation=-1)
    body = joining(stage)
    assert body.member_id == "m-1"
    assert body.reason == "need to re-join with the given member-id"


def test_join_group_says_how_long_the_group_may_wait() -> None:
    """Session timeout, max.poll.interval.ms as rebalance timeout, and both assignors."""
    stage = MemberStage(
        partition_assignment_strategy="range,cooperative-sticky",
        client_rack="r1",
        group_instance_id="i",
    )
    stage.subscribe()
    stage.find()
    request, body = stage.expect(JoinGroupRequest)
    assert (body.session_timeout_ms, body.rebalance_timeout_ms) == (45_000, 300_000)
    assert [each.name for each in body.protocols] == ["range", "cooperative-sticky"]
    assert body.group_instance_id == "i"
    assert request.first_version == 5
    told = decode_subscription(body.protocols[0].metadata, member_id="m")
    assert (told.topics, told.rack, told.generation) == ((FLIGHTS,), "r1", None)


@pytest.mark.parametrize(
    ("settings", "timeout_ms"),
    [
        ({"max_poll_interval_ms": 300_000}, 305_000),
        ({"max_poll_interval_ms": 1_000, "request_timeout_ms": 30_000}, 30_000),
    ],
)
def test_join_group_waits_longer_than_the_others_may_take(settings: Any, timeout_ms: int) -> None:
    """The request's time limit is max.poll.interval.ms and 5 s, at least request.timeout.ms."""
    stage = MemberStage(**settings)
    stage.subscribe()
    stage.find()
    request, _ = stage.expect(JoinGroupRequest)
    assert request.timeout_ms == timeout_ms


def test_the_leader_assigns_the_partitions_of_all_members() -> None:
    """SyncGroup of the leader has an assignment for each member."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(leader="m", members=(member_of("m"), member_of("n")))
    sent = stage.syncs(0)
    assigned = {each.member_id: decode_assignment(each.assignment) for each in sent.assignments}
    assert assigned == {"m": frozenset(partitions(0)), "n": frozenset(partitions(1))}


def test_the_leader_waits_for_the_metadata_of_all_topics_of_the_group() -> None:
    """It asks for them, and assigns when it knows them, or that they do not exist."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(leader="m", members=(member_of("m"), member_of("n", "airports", "gone")))
    assert stage.next() is None
    wish = stage.membership.wish
    assert wish == MetadataWish(frozenset({FLIGHTS, "airports", "gone"}), is_urgent=True)
    stage.know(flights=2, airports=1, missing=["gone"])
    assert {each.member_id for each in stage.syncs(0, 1).assignments} == {"m", "n"}
    assert not stage.membership.wish.is_urgent


def test_a_static_leader_that_comes_back_assigns_nothing() -> None:
    """With SkipAssignment (KIP-814) its SyncGroup is empty, and it watches the group's topics."""
    stage = MemberStage(group_instance_id="i")
    stage.subscribe()
    stage.find()
    stage.joins(leader="m", members=(member_of("m"),), skip_assignment=True)
    assert stage.syncs(0, 1).assignments == ()
    stage.steps()
    stage.know(flights=3)
    assert stage.steps() == [("revoke", partitions(0, 1))]
    assert joining(stage).reason == "cached metadata has changed"


@pytest.mark.parametrize("leader", ["m", "other"])
def test_only_the_leader_watches_partition_counts(leader: str) -> None:
    """New partitions make the leader join again; a follower waits for it."""
    stage = MemberStage()
    stage.becomes_member(leader=leader, members=(member_of("m"),) if leader == "m" else ())
    stage.know(flights=3)
    assert bool(stage.steps()) == (leader == "m")
    assert isinstance(stage.next(), JoinGroupRequest) == (leader == "m")


@pytest.mark.parametrize(("rack", "joins"), [("a", True), (None, False)])
def test_racks_count_for_a_leader_that_has_one(rack: str | None, *, joins: bool) -> None:
    """Replicas in other racks make it join again if client.rack is set."""
    stage = MemberStage(client_rack=rack)
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    stage.membership.topics_changed({FLIGHTS: shape(2, "a")}, frozenset(), 0)
    stage.poll()
    stage.find()
    stage.joins(leader="m", members=(member_of("m"),))
    stage.syncs(0, 1)
    stage.steps()
    stage.membership.topics_changed({FLIGHTS: shape(2, "a")}, frozenset(), 0)
    assert not stage.steps()
    stage.membership.topics_changed({FLIGHTS: shape(2, "b")}, frozenset(), 0)
    assert bool(stage.steps()) == joins


def test_metadata_that_changes_during_a_rebalance_begins_another() -> None:
    """The leader compares the metadata of its assignment when it is stable."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(leader="m", members=(member_of("m"),))
    request, _ = stage.expect(SyncGroupRequest)
    stage.know(flights=3)
    stage.answer(request, SyncGroupResponse(assignment=b"\0\0\0\0\0\0\xff\xff\xff\xff"))
    stage.steps()
    assert isinstance(stage.next(), JoinGroupRequest)


def test_a_topic_that_comes_later_is_assigned_then() -> None:
    """A leader without the topic assigns nothing, and joins again when it exists."""
    stage = MemberStage()
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    stage.know(missing=[FLIGHTS])
    stage.poll()
    stage.find()
    stage.joins(leader="m", members=(member_of("m"),))
    stage.syncs()
    assert stage.steps() == [("assign", ())]
    stage.know(flights=1)
    stage.steps()
    assert isinstance(stage.next(), JoinGroupRequest)


def test_an_eager_member_revokes_all_before_it_joins_again() -> None:
    """JoinGroup is sent when the step is done, and names no owned partitions."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    step = stage.step()
    assert (step.kind.value, step.partitions) == ("revoke", partitions(0, 1))
    assert stage.next() is None
    assert stage.membership.assignment == frozenset(partitions(0, 1))
    stage.steps()
    assert stage.membership.assignment == frozenset()
    body = joining(stage)
    assert (body.member_id, body.reason) == ("m", "group is already rebalancing")
    assert decode_subscription(body.protocols[0].metadata, member_id="m").owned == ()


def test_a_cooperative_member_keeps_its_partitions_while_it_joins_again() -> None:
    """It names them with their generation, and revokes only what it does not get again."""
    stage = MemberStage(partition_assignment_strategy="cooperative-sticky")
    stage.becomes_member(0, 1)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert stage.steps() == []
    request, body = stage.expect(JoinGroupRequest)
    told = decode_subscription(body.protocols[0].metadata, member_id="m")
    assert (told.owned, told.generation) == (partitions(0, 1), 1)
    answer = JoinGroupResponse(
        generation_id=2, member_id="m", leader="x", protocol_name="cooperative-sticky"
    )
    stage.answer(request, answer)
    stage.syncs(1)
    assert stage.steps() == [("revoke", partitions(0)), ("assign", ())]
    assert joining(stage).reason == "need to revoke partitions and re-join"


def test_a_cooperative_member_revokes_topics_that_it_does_not_want_any_more() -> None:
    """Before it joins again, and no others."""
    stage = MemberStage(partition_assignment_strategy="cooperative-sticky")
    stage.becomes_member(0)
    stage.membership.subscribe(frozenset({"airports"}), None, stage.now)
    assert stage.steps() == [("revoke", partitions(0))]
    assert joining(stage).reason == "subscription has changed"


def test_a_subscription_that_changes_while_it_joins_makes_it_join_again() -> None:
    """The assignment for the old one is not used if it has other topics."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    stage.membership.subscribe(frozenset({"airports"}), None, stage.now)
    stage.syncs(0, 1)
    assert stage.steps() == [("revoke", ())]
    assert joining(stage).reason == "received assignment does not match the current subscription"


def test_the_subscription_that_grows_makes_it_join_again() -> None:
    """With the new topics."""
    stage = MemberStage()
    stage.becomes_member()
    stage.membership.subscribe(frozenset({FLIGHTS, "airports"}), None, stage.now)
    assert stage.steps() == [("revoke", partitions(0, 1))]
    told = decode_subscription(joining(stage).protocols[0].metadata, member_id="m")
    assert told.topics == ("airports", FLIGHTS)


def test_a_user_may_ask_for_a_rebalance() -> None:
    """The reason of the user goes to the broker, with at most 255 characters."""
    stage = MemberStage()
    stage.becomes_member()
    stage.membership.request_rejoin("x" * 300, stage.now)
    stage.steps()
    assert joining(stage).reason == "x" * 255


@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
def test_an_unknown_member_joins_again_without_its_id(request_kind: type) -> None:
    """UNKNOWN_MEMBER_ID from JoinGroup or SyncGroup makes it forget the id."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m", generation=-1)
    code = ErrorCode.UNKNOWN_MEMBER_ID
    if request_kind is JoinGroupRequest:
        stage.joins(error_code=code, member_id="", generation=-1)
    else:
        stage.joins()
        stage.syncs(error_code=code)
    assert joining(stage).member_id == ""


def test_an_old_generation_in_sync_group_keeps_the_member_id() -> None:
    """ILLEGAL_GENERATION: join again with the id."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    stage.syncs(error_code=ErrorCode.ILLEGAL_GENERATION)
    assert joining(stage).member_id == "m"


def test_a_rebalance_during_sync_group_joins_again() -> None:
    """REBALANCE_IN_PROGRESS from SyncGroup: at once, with the member id."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    stage.syncs(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert joining(stage).member_id == "m"


def test_a_rebalance_that_is_not_stored_is_joined_again() -> None:
    """REBALANCE_IN_PROGRESS from JoinGroup: at once."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(stage.next(), JoinGroupRequest)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
def test_another_coordinator_is_looked_up(code: ErrorCode, request_kind: type) -> None:
    """The member joins there after a pause, with its id."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    if request_kind is JoinGroupRequest:
        stage.joins(error_code=code)
    else:
        stage.joins()
        stage.syncs(error_code=code)
    stage.find(2)
    assert stage.next() is None
    stage.passes(0.2)
    request, _ = stage.expect(JoinGroupRequest)
    assert request.node is not None
    assert request.node.id == 2**31 - 1 - 2


@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
def test_a_broken_connection_keeps_the_member_id(request_kind: type) -> None:
    """The coordinator is looked up, and the member joins again with its id."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m", generation=-1)
    if request_kind is SyncGroupRequest:
        stage.joins()
    request, _ = stage.expect(request_kind)
    stage.answer(request, LOST)
    stage.find()
    stage.passes(0.2)
    assert joining(stage).member_id == "m"


def test_a_loading_coordinator_is_asked_again() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS: the same coordinator, after retry.backoff.ms."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert stage.next() is None
    assert stage.membership.next_deadline(stage.now) == pytest.approx(0.1)
    stage.passes(0.2)
    assert isinstance(stage.next(), JoinGroupRequest)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupRefusedError, "group.max.size"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, GroupRefusedError, "session.timeout.ms"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, GroupRefusedError, "partition.assignment"),
        (ErrorCode.INVALID_GROUP_ID, GroupRefusedError, "group.id"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError, "READ"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceError, "group.instance.id"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, GroupRefusedError, "see its log"),
    ],
)
def test_a_refusal_for_good_is_an_error_with_advice(
    code: ErrorCode, kind: type[Exception], advice: str
) -> None:
    """Nothing more is sent, and the error says what to change."""
    stage = MemberStage(group_instance_id="i")
    stage.subscribe()
    stage.find()
    stage.joins(error_code=code)
    assert type(stage.membership.error) is kind
    assert advice in str(stage.membership.error)
    assert stage.next() is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, GroupRefusedError),
    ],
)
def test_a_refusal_of_sync_group_is_an_error(code: ErrorCode, kind: type[Exception]) -> None:
    """It ends the membership, like one of JoinGroup."""
    stage = MemberStage(group_instance_id="i")
    stage.subscribe()
    stage.find()
    stage.joins()
    stage.syncs(error_code=code)
    assert type(stage.membership.error) is kind


@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}], ids=["type", "name"]
)
def test_a_group_of_another_protocol_is_refused(fields: Any) -> None:
    """The answer names a type or an assignor that is not this consumer's."""
    for at_sync in (False, True):
        stage = MemberStage()
        stage.subscribe()
        stage.find()
        told: Any = {} if at_sync else fields
        stage.joins(**told)
        if at_sync:
            stage.syncs(0, **fields)
        assert isinstance(stage.membership.error, GroupRefusedError)


def test_an_assignment_that_cannot_be_read_is_an_error() -> None:
    """Too few bytes, or others than an assignment."""
    for data in (b"", b"\0", b"\0\0\0\0\xff\xff"):
        stage = MemberStage()
        stage.subscribe()
        stage.find()
        stage.joins()
        stage.syncs(assignment=data)
        assert isinstance(stage.membership.error, MalformedGroupDataError)


def test_a_leader_names_the_member_whose_subscription_cannot_be_read() -> None:
    """And does not assign."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    broken = JoinGroupResponseMember(member_id="broken", metadata=b"{}")
    stage.joins(leader="m", members=(member_of("m"), broken))
    assert "'broken'" in str(stage.membership.error)
    assert stage.next() is None


def test_an_old_broker_refuses_static_members() -> None:
    """UnsupportedVersionError in place of an answer ends the membership."""
    stage = MemberStage(group_instance_id="i")
    stage.subscribe()
    stage.find()
    request, _ = stage.expect(JoinGroupRequest)
    stage.answer(request, UnsupportedVersionError("too old"))
    assert isinstance(stage.membership.error, UnsupportedVersionError)


def test_a_request_that_could_not_be_sent_is_made_again() -> None:
    """`put_back` of JoinGroup, SyncGroup and the look-up."""
    stage = MemberStage()
    stage.subscribe()
    for kind in (FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest):
        request, _ = stage.expect(kind)
        stage.membership.put_back(request, stage.now)
        if kind is FindCoordinatorRequest:
            stage.find()
        elif kind is JoinGroupRequest:
            stage.joins()
        elif kind is SyncGroupRequest:
            stage.syncs(0)
            stage.steps()
            stage.passes(3)
    stage.expect(HeartbeatRequest)


def test_an_answer_after_the_member_was_reset_counts_for_nothing() -> None:
    """The user unsubscribes while JoinGroup is in flight."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    request, _ = stage.expect(JoinGroupRequest)
    stage.membership.subscribe(None, None, stage.now)
    answer = JoinGroupResponse(generation_id=1, member_id="m", leader="x", protocol_name="range")
    stage.answer(request, answer)
    assert stage.next() is None
    assert stage.membership.identity.generation == -1


def test_the_coordinator_is_looked_up_again_with_growing_pauses() -> None:
    """After a retriable code, a lost connection, or an answer that names nobody."""
    stage = MemberStage()
    stage.subscribe()
    pauses = []
    for outcome in (LOST, found(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE), found(port=0)):
        request, _ = stage.expect(FindCoordinatorRequest)
        stage.answer(request, outcome)
        assert stage.next() is None
        pauses.append(stage.membership.next_deadline(stage.now) - stage.now)
        stage.passes(pauses[-1])
    assert pauses[0] < pauses[1] < pauses[2]
    stage.find()
    assert isinstance(stage.next(), JoinGroupRequest)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (found(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), GroupAuthorizationError),
        (AuthenticationError("wrong password"), AuthenticationError),
    ],
)
def test_a_coordinator_that_may_not_be_found_is_an_error(
    outcome: object, kind: type[Exception]
) -> None:
    """The user may not describe the group, or cannot log in."""
    stage = MemberStage()
    stage.subscribe()
    request, _ = stage.expect(FindCoordinatorRequest)
    stage.answer(request, outcome)
    assert isinstance(stage.membership.error, kind)
    assert stage.next() is None
