"""Heartbeats of a member of a classic group, its time limits, and how it leaves."""

import pytest

from tailrace.client.consumer.membership import NEVER
from tailrace.client.consumer.membership.errors import FencedInstanceError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest
from tests.unit.client.consumer.member_stage import FLIGHTS, LOST, MemberStage, partitions


def test_a_heartbeat_is_sent_at_every_interval() -> None:
    """With member id, generation and instance id, and never two at a time."""
    stage = MemberStage(group_instance_id="i")
    stage.becomes_member()
    assert stage.membership.next_deadline(stage.now) == 3
    for _ in range(3):
        assert stage.next() is None
        stage.passes(3)
        request, body = stage.expect(HeartbeatRequest)
        sent = body.member_id, body.generation_id, body.group_instance_id
        assert sent == ("m", 1, "i")
        assert stage.next() is None
        stage.answer(request, HeartbeatResponse())


def test_heartbeats_are_sent_while_sync_group_is_not_answered() -> None:
    """The leader may take long to assign."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    stage.expect(SyncGroupRequest)
    stage.passes(3)
    stage.expect(HeartbeatRequest)


def test_no_heartbeat_is_sent_while_join_group_is_not_answered() -> None:
    """JoinGroup itself shows that the member lives."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.steps()
    stage.expect(JoinGroupRequest)
    stage.passes(60)
    assert stage.next() is None


def test_heartbeats_go_on_while_the_user_revokes() -> None:
    """A slow hook does not cost the membership."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.step()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert stage.steps() == [("revoke", partitions(0, 1))]
    stage.expect(JoinGroupRequest)


def test_a_rebalance_before_the_assignment_came_is_passed_over() -> None:
    """REBALANCE_IN_PROGRESS to a heartbeat while SyncGroup is in flight: its answer tells too."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    request, _ = stage.expect(SyncGroupRequest)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.membership.put_back(request, stage.now)
    stage.syncs(0)
    assert stage.steps() == [("assign", partitions(0))]


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.ILLEGAL_GENERATION, "m"), (ErrorCode.UNKNOWN_MEMBER_ID, "")],
)
def test_a_member_that_is_out_loses_its_partitions_and_joins_again(
    code: ErrorCode, member_id: str
) -> None:
    """An old generation keeps the member id, an unknown member does not."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(code)
    assert stage.membership.identity.member_id == ""
    assert stage.next() is None
    assert stage.steps() == [("lose", partitions(0, 1))]
    _, body = stage.expect(JoinGroupRequest)
    assert body.member_id == member_id


def test_a_cooperative_member_that_is_out_loses_all() -> None:
    """It does not own anything in the next JoinGroup."""
    stage = MemberStage(partition_assignment_strategy="cooperative-sticky")
    stage.becomes_member()
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.steps() == [("lose", partitions(0, 1))]


def test_a_fenced_member_ends() -> None:
    """FENCED_INSTANCE_ID: another consumer has the instance id; nothing is sent any more."""
    stage = MemberStage(group_instance_id="i")
    stage.becomes_member()
    stage.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(stage.membership.error, FencedInstanceError)
    stage.passes(10)
    assert stage.next() is None


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_a_refusal_of_an_earlier_generation_counts_for_nothing(code: ErrorCode) -> None:
    """The answer to a heartbeat comes after the member has a new generation."""
    stage = MemberStage(partition_assignment_strategy="cooperative-sticky")
    stage.becomes_member()
    stage.passes(3)
    late, _ = stage.expect(HeartbeatRequest)
    stage.membership.request_rejoin("again", stage.now)
    stage.joins(generation=2)
    stage.syncs(0, 1)
    stage.steps()
    stage.answer(late, HeartbeatResponse(error_code=code))
    assert stage.membership.error is None
    assert stage.membership.identity.generation == 2
    assert stage.membership.is_settled


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_member_follows_its_coordinator(code: ErrorCode) -> None:
    """It stays in its generation, and sends the next heartbeat to the new coordinator."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(code)
    stage.find(2)
    stage.passes(0.2)
    request, _ = stage.expect(HeartbeatRequest)
    assert request.node is not None
    assert request.node.id == 2**31 - 1 - 2


def test_one_heartbeat_is_in_flight_at_a_time() -> None:
    """One that is not answered is not followed by another, unless the coordinator moves."""
    stage = MemberStage()
    stage.becomes_member()
    stage.passes(3)
    late, _ = stage.expect(HeartbeatRequest)
    stage.passes(3)
    assert stage.next() is None
    stage.coordinator.mark_unknown(late.node, stage.now, why="a commit found another")
    stage.find(2)
    stage.passes(0.2)
    request, _ = stage.expect(HeartbeatRequest)
    stage.answer(late, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    stage.answer(request, HeartbeatResponse())
    assert stage.membership.is_settled


def test_a_slow_coordinator_is_waited_for() -> None:
    """A heartbeat stays in flight while its coordinator is the same, and its answer counts."""
    stage = MemberStage()
    stage.becomes_member()
    stage.passes(3)
    slow, _ = stage.expect(HeartbeatRequest)
    for _ in range(20):
        stage.passes(1)
        assert stage.next() is None
    stage.answer(slow, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert stage.steps() == [("revoke", partitions(0, 1))]
    stage.expect(JoinGroupRequest)


def test_a_heartbeat_in_flight_to_a_lost_coordinator_is_given_up() -> None:
    """The coordinator that is found next gets another one, and the late answer counts for nothing.

    A second look, with the new one in flight, does not give that up.
    """
    stage = MemberStage()
    stage.becomes_member()
    stage.passes(3)
    late, _ = stage.expect(HeartbeatRequest)
    stage.coordinator.mark_unknown(late.node, stage.now, why="a commit found another")
    stage.find(2)
    stage.passes(0.2)
    request, _ = stage.expect(HeartbeatRequest)
    assert request.node != late.node
    for _ in range(5):
        stage.passes(1)
        assert stage.next() is None
    stage.answer(late, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert stage.membership.is_settled


def test_a_lost_heartbeat_is_repeated_after_a_pause() -> None:
    """A broken connection has the coordinator looked up."""
    stage = MemberStage()
    stage.becomes_member()
    stage.passes(3)
    request, _ = stage.expect(HeartbeatRequest)
    stage.answer(request, LOST)
    stage.find()
    assert stage.next() is None
    stage.passes(0.2)
    assert isinstance(stage.next(), HeartbeatRequest)


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
def test_other_codes_have_the_heartbeat_repeated(code: ErrorCode) -> None:
    """After a pause, which is shorter than the interval."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(code)
    assert stage.next() is None
    stage.passes(0.2)
    assert isinstance(stage.next(), HeartbeatRequest)


def test_a_silent_coordinator_is_looked_up_again() -> None:
    """No heartbeat was answered for session.timeout.ms."""
    stage = MemberStage(session_timeout_ms=10_000)
    stage.becomes_member()
    stage.passes(3)
    stage.expect(HeartbeatRequest)
    assert stage.membership.next_deadline(stage.now) == 10
    stage.passes(7)
    assert isinstance(stage.next(), FindCoordinatorRequest)


def test_the_session_begins_anew_with_a_found_coordinator() -> None:
    """Otherwise the new one would be given up at once."""
    stage = MemberStage(session_timeout_ms=10_000)
    stage.becomes_member()
    stage.passes(3)
    request, _ = stage.expect(HeartbeatRequest)
    stage.passes(6)
    stage.answer(request, LOST)
    stage.passes(3)
    stage.find()
    assert isinstance(stage.next(), HeartbeatRequest)


def test_a_member_that_is_not_polled_leaves() -> None:
    """After max.poll.interval.ms it sends LeaveGroup with the reason, and loses its partitions."""
    stage = MemberStage(max_poll_interval_ms=5_000)
    stage.becomes_member()
    stage.heartbeat()
    assert stage.membership.next_deadline(stage.now) == 5
    stage.passes(2)
    _, body = stage.expect(LeaveGroupRequest)
    assert [(each.member_id, each.reason) for each in body.members] == [
        ("m", "consumer poll timeout has expired.")
    ]
    assert stage.steps() == [("lose", partitions(0, 1))]
    assert stage.next() is None


def test_the_next_poll_joins_again() -> None:
    """Without the member id, which the coordinator has forgotten."""
    stage = MemberStage(max_poll_interval_ms=5_000)
    stage.becomes_member()
    stage.passes(5)
    request, _ = stage.expect(LeaveGroupRequest)
    stage.answer(request, LeaveGroupResponse())
    stage.steps()
    assert stage.next() is None
    stage.poll()
    _, body = stage.expect(JoinGroupRequest)
    assert body.member_id == ""


def test_a_static_member_that_is_not_polled_does_not_leave() -> None:
    """It only stops its heartbeats, so that it may come back within its session (KIP-345)."""
    stage = MemberStage(max_poll_interval_ms=5_000, group_instance_id="i")
    stage.becomes_member()
    stage.passes(5)
    assert stage.next() is None
    assert stage.steps() == [("lose", partitions(0, 1))]
    stage.poll()
    stage.expect(JoinGroupRequest)


def test_each_poll_begins_the_time_between_polls_anew() -> None:
    """A member that is polled stays."""
    stage = MemberStage(max_poll_interval_ms=5_000)
    stage.becomes_member()
    for _ in range(4):
        stage.heartbeat()
        stage.poll()
    assert stage.membership.is_settled


def test_polls_count_while_the_coordinator_is_not_known() -> None:
    """They keep the member from leaving when it is found."""
    stage = MemberStage(max_poll_interval_ms=5_000)
    stage.becomes_member()
    stage.heartbeat(ErrorCode.NOT_COORDINATOR)
    stage.passes(4)
    stage.poll()
    stage.passes(4)
    stage.find()
    assert isinstance(stage.next(), HeartbeatRequest)


def test_unsubscribing_revokes_and_leaves() -> None:
    """The step first, then LeaveGroup, then nothing."""
    stage = MemberStage()
    stage.becomes_member()
    stage.membership.subscribe(None, None, stage.now)
    assert stage.next() is None
    assert stage.steps() == [("revoke", partitions(0, 1))]
    request, body = stage.expect(LeaveGroupRequest)
    assert body.members[0].reason == "the consumer unsubscribed from all topics"
    stage.answer(request, LeaveGroupResponse(members=(MemberResponse(member_id="m"),)))
    assert stage.membership.is_left
    assert stage.membership.next_deadline(stage.now) == NEVER


@pytest.mark.parametrize(
    "outcome",
    [
        LeaveGroupResponse(),
        LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
        LeaveGroupResponse(members=(MemberResponse(error_code=25), MemberResponse())),
        LOST,
    ],
)
def test_leaving_ends_with_any_answer(outcome: object) -> None:
    """LeaveGroup is sent once."""
    stage = MemberStage()
    stage.becomes_member()
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    request, _ = stage.expect(LeaveGroupRequest)
    stage.answer(request, outcome)
    assert stage.membership.is_left
    assert stage.next() is None


def test_a_reason_to_leave_is_cut() -> None:
    """255 characters go to the broker."""
    stage = MemberStage()
    stage.becomes_member()
    stage.membership.leave("x" * 300, stage.now)
    stage.steps()
    _, body = stage.expect(LeaveGroupRequest)
    assert body.members[0].reason == "x" * 255
    assert body.member_id == "m"


def test_a_static_member_that_closes_does_not_leave() -> None:
    """It revokes, and is gone without LeaveGroup."""
    stage = MemberStage(group_instance_id="i")
    stage.becomes_member()
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.steps() == [("revoke", partitions(0, 1))]
    assert stage.membership.is_left
    assert stage.next() is None


def test_a_member_that_waits_to_join_leaves_too() -> None:
    """It has an id since MEMBER_ID_REQUIRED, for which the others would wait."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m", generation=-1)
    stage.expect(JoinGroupRequest)
    stage.membership.leave("the consumer is being closed", stage.now)
    _, body = stage.expect(LeaveGroupRequest)
    assert body.members[0].member_id == "m"


def test_nobody_is_told_if_the_coordinator_is_not_known() -> None:
    """The session ends it."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(ErrorCode.NOT_COORDINATOR)
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    assert stage.membership.is_left
    assert stage.next() is None


def test_leaving_in_a_rebalance_loses_the_partitions() -> None:
    """The group may have given them to others already."""
    stage = MemberStage(partition_assignment_strategy="cooperative-sticky")
    stage.becomes_member()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.expect(JoinGroupRequest)
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.steps() == [("lose", partitions(0, 1))]


def test_leaving_waits_for_the_step_that_the_user_has_taken() -> None:
    """Then what is left is given up, and a step that was not taken is not."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    step = stage.step()
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.next() is None
    assert stage.step() is step
    assert stage.steps() == [("revoke", partitions(0, 1))]
    stage.expect(LeaveGroupRequest)


def test_a_consumer_that_has_left_may_subscribe_again() -> None:
    """It joins as a new member."""
    stage = MemberStage()
    stage.becomes_member()
    stage.membership.subscribe(None, None, stage.now)
    stage.steps()
    request, _ = stage.expect(LeaveGroupRequest)
    stage.answer(request, LeaveGroupResponse())
    stage.membership.subscribe(frozenset({FLIGHTS}), None, stage.now)
    assert stage.next() is None
    stage.poll()
    _, body = stage.expect(JoinGroupRequest)
    assert body.member_id == ""


def test_the_identity_changes_before_the_hook_is_called() -> None:
    """A hook that commits in a transaction names the new generation."""
    stage = MemberStage()
    stage.becomes_member()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.steps()
    stage.joins(generation=2)
    stage.syncs(0)
    assert stage.step().kind.value == "assign"
    assert stage.membership.identity.generation == 2


def test_a_reset_drops_the_assignment_that_nobody_has_seen() -> None:
    """A heartbeat refuses the generation before the user polls; no hook sees the assignment."""
    stage = MemberStage()
    stage.subscribe()
    stage.find()
    stage.joins()
    stage.syncs(0, 1)
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.steps() == []
    stage.expect(JoinGroupRequest)


def test_a_join_that_lost_its_coordinator_is_sent_to_the_next() -> None:
    """The session ends while a heartbeat is not answered, and JoinGroup in flight is given up."""
    stage = MemberStage(
        partition_assignment_strategy="cooperative-sticky", session_timeout_ms=10_000
    )
    stage.becomes_member()
    stage.membership.request_rejoin("again", stage.now)
    request, _ = stage.expect(JoinGroupRequest)
    stage.coordinator.mark_unknown(request.node, stage.now, why="a commit found another")
    stage.find(2)
    stage.passes(0.2)
    again, _ = stage.expect(JoinGroupRequest)
    stage.answer(request, JoinGroupResponse(generation_id=7))
    assert stage.membership.identity.generation == 1
    assert again.node != request.node
