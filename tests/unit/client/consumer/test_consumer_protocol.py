"""A member under the consumer protocol (KIP-848): heartbeats, reconciliation, fencing, leaving."""

from itertools import pairwise
from typing import Any

import pytest

from tailrace.client.consumer.membership import MetadataWish, TopicShape
from tailrace.client.consumer.membership.errors import (
    CommitFailedError,
    FencedInstanceError,
    GroupAuthorizationError,
    GroupRefusedError,
    MalformedGroupDataError,
)
from tailrace.client.nodes import AuthenticationError, UnsupportedVersionError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.unit.client.consumer.member_stage import (
    FLIGHTS,
    IDS,
    LOST,
    MemberStage,
    partitions,
    target,
)


def stage_of(**settings: Any) -> MemberStage:
    """A stage with a member of the consumer protocol."""
    return MemberStage(is_consumer_protocol=True, **settings)


def owned(body: ConsumerGroupHeartbeatRequest) -> tuple[int, ...] | None:
    """The partitions of flights that a heartbeat reports; None: as before."""
    if body.topic_partitions is None:
        return None
    return tuple(number for each in body.topic_partitions for number in each.partitions)


def test_a_member_joins_with_all_fields_and_an_id_of_its_own() -> None:
    """Epoch 0, no owned partitions, the subscription, the rebalance timeout and the assignor."""
    stage = stage_of(group_remote_assignor="uniform", group_instance_id="i", client_rack="r")
    stage.subscribe("airports", FLIGHTS)
    stage.find()
    body = stage.beats(1, 0)
    assert len(body.member_id) == 22
    assert (body.member_epoch, owned(body)) == (0, ())
    assert body.subscribed_topic_names == ("airports", FLIGHTS)
    assert body.rebalance_timeout_ms == 300_000
    told = body.server_assignor, body.instance_id, body.rack_id, body.subscribed_topic_regex
    assert told == ("uniform", "i", "r", None)


def test_an_assignment_is_acknowledged_when_its_step_is_done() -> None:
    """The next heartbeat goes out at once and reports what the member owns; then it is stable."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(3, 0, 1)
    assert stage.next() is None
    assert stage.steps() == [("assign", partitions(0, 1))]
    body = stage.beats(3)
    assert (body.member_epoch, owned(body)) == (3, (0, 1))
    assert stage.membership.is_settled
    assert stage.membership.identity.generation == 3


def test_a_heartbeat_without_news_has_only_the_member() -> None:
    """Group, member id and epoch; the interval is the broker's."""
    stage = stage_of()
    stage.becomes_consumer_member()
    assert stage.membership.next_deadline(stage.now) == 5
    stage.passes(4.9)
    assert stage.next() is None
    stage.passes(0.2)
    body = stage.beats(1)
    assert owned(body) is None
    assert (body.subscribed_topic_names, body.rebalance_timeout_ms) == (None, -1)


def test_an_empty_assignment_is_one() -> None:
    """The hook is called, and the member is stable."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(1, assignment=Assignment())
    assert stage.steps() == [("assign", ())]
    stage.beats(1)
    assert stage.membership.is_settled


def test_an_answer_to_the_first_heartbeat_without_assignment_is_empty() -> None:
    """A broker that gives none does not make the member send heartbeats without pause."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(1)
    assert stage.next() is None


def test_partitions_are_revoked_before_the_heartbeat_that_says_so() -> None:
    """A target without some of them: revoke, report the rest, and only then may others have it."""
    stage = stage_of()
    stage.becomes_consumer_member(0, 1)
    stage.passes(5)
    stage.beats(1, 0)
    step = stage.step()
    assert (step.kind.value, step.partitions) == ("revoke", partitions(1))
    assert stage.next() is None
    assert stage.steps() == [("revoke", partitions(1)), ("assign", ())]
    assert owned(stage.beats(2)) == (0,)
    assert stage.membership.identity.generation == 2


def test_heartbeats_go_on_while_the_user_revokes() -> None:
    """Without acknowledging anything."""
    stage = stage_of()
    stage.becomes_consumer_member(0, 1)
    stage.passes(5)
    stage.beats(1, 0)
    stage.step()
    stage.passes(5)
    assert owned(stage.beats(1)) is None


def test_a_target_that_comes_during_a_reconciliation_follows_it() -> None:
    """The first one is acknowledged, then the second is reconciled."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(1, 0, 1)
    stage.step()
    stage.passes(5)
    stage.beats(2, 0, 1, 2)
    assert stage.steps() == [("assign", partitions(1))]
    assert owned(stage.beats(2)) == (0, 1)
    assert stage.steps() == [("assign", partitions(2))]
    assert owned(stage.beats(2)) == (0, 1, 2)


def test_the_same_target_again_changes_nothing() -> None:
    """It is in every answer to a full heartbeat."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(1, 0)
    assert stage.steps() == []
    assert stage.membership.is_settled


def test_a_target_that_changes_back_is_acknowledged_again() -> None:
    """The coordinator has to hear that the member owns what it owned before."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(1, 0, 1)
    stage.step()
    stage.passes(5)
    stage.beats(1, 0)
    assert stage.steps() == [("assign", partitions(1))]
    stage.beats(1)
    assert stage.steps() == [("revoke", partitions(1)), ("assign", ())]
    assert owned(stage.beats(1)) == (0,)


def test_a_topic_without_a_name_waits_for_metadata() -> None:
    """Its id is wished for, urgently; what has a name is assigned meanwhile."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    both = Assignment(
        topic_partitions=(
            TopicPartitions(topic_id=IDS[FLIGHTS], partitions=(0, 1)),
            TopicPartitions(topic_id=IDS["airports"], partitions=(0,)),
        )
    )
    stage.passes(5)
    stage.beats(1, assignment=both)
    assert stage.membership.wish == MetadataWish(ids=frozenset({IDS["airports"]}), is_urgent=True)
    assert stage.steps() == [("assign", partitions(1))]
    stage.beats(1)
    assert stage.next() is None
    stage.know(flights=2, airports=1)
    assert stage.steps() == [("assign", partitions(0, topic="airports"))]
    stage.beats(1)
    assert stage.membership.wish == MetadataWish()
    assert stage.membership.is_settled


def test_a_first_assignment_without_any_name_calls_no_hook() -> None:
    """Nothing is acknowledged before the metadata has come."""
    stage = stage_of()
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    stage.poll()
    stage.find()
    stage.beats(1, 0)
    assert stage.steps() == []
    assert stage.next() is None
    stage.know(flights=1)
    assert stage.steps() == [("assign", partitions(0))]


def test_the_name_of_a_deleted_topic_is_known_while_it_is_assigned() -> None:
    """Metadata without it revokes nothing; the coordinator does."""
    stage = stage_of()
    stage.becomes_consumer_member(0, 1)
    stage.know(missing=[FLIGHTS])
    stage.passes(5)
    stage.beats(1, 0)
    assert stage.steps() == [("revoke", partitions(1)), ("assign", ())]


def test_a_topic_that_is_made_anew_has_another_id() -> None:
    """The new id is reported, although the partition has the same name."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.membership.topics_changed(
        {FLIGHTS: TopicShape(IDS["airports"], (frozenset(),))}, frozenset(), stage.now
    )
    stage.passes(5)
    stage.beats(1, assignment=target(0, topic="airports"))
    assert stage.steps() == [("assign", ())]
    [reported] = stage.beats(1).topic_partitions or ()
    assert reported.topic_id == IDS["airports"]


def test_a_pattern_is_resolved_by_the_broker() -> None:
    """It goes as it is, in version 1 of the request, with no names."""
    stage = stage_of()
    stage.membership.subscribe(None, "fl.*", 0)
    stage.poll()
    stage.find()
    request, body = stage.expect(ConsumerGroupHeartbeatRequest)
    assert (body.subscribed_topic_regex, body.subscribed_topic_names) == ("fl.*", ())
    assert request.first_version == 1


def test_a_pattern_is_taken_back_with_an_empty_one() -> None:
    """When the user subscribes to names instead; at once, not with the next interval."""
    stage = stage_of()
    stage.membership.subscribe(None, "fl.*", 0)
    stage.poll()
    stage.find()
    stage.beats(1)
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    _, body = stage.expect(ConsumerGroupHeartbeatRequest)
    assert (body.subscribed_topic_regex, body.subscribed_topic_names) == ("", (FLIGHTS,))


def test_a_changed_subscription_is_told_at_once() -> None:
    """And nothing else."""
    stage = stage_of()
    stage.becomes_consumer_member()
    stage.membership.subscribe(frozenset({"airports"}), None, stage.now)
    body = stage.beats(1)
    assert body.subscribed_topic_names == ("airports",)
    assert (owned(body), body.rebalance_timeout_ms) == (None, -1)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    """With its own id, from epoch 0, when the step is done."""
    stage = stage_of()
    stage.becomes_consumer_member(0, 1)
    stage.passes(5)
    before = stage.beats(0, error_code=code).member_id
    assert stage.next() is None
    assert stage.membership.identity.generation == -1
    assert stage.steps() == [("lose", partitions(0, 1))]
    body = stage.beats(1)
    assert (body.member_id, body.member_epoch, owned(body)) == (before, 0, ())
    assert body.subscribed_topic_names == (FLIGHTS,)


def test_a_fenced_member_without_partitions_joins_again_at_once() -> None:
    """There is nothing to lose."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(0, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.steps() == []
    assert stage.beats(1).member_epoch == 0


def test_a_reconciliation_ends_when_the_member_is_fenced() -> None:
    """The step that the user has taken is finished, the others are not begun."""
    stage = stage_of()
    stage.becomes_consumer_member(0, 1)
    stage.passes(5)
    stage.beats(1, 0, 2)
    stage.step()
    stage.passes(5)
    stage.beats(0, error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert stage.steps() == [("revoke", partitions(1)), ("lose", partitions(0))]
    assert stage.beats(1).member_epoch == 0


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError, "READ"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, GroupRefusedError, "another consumer has"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceError, "its own id"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, GroupRefusedError, "group.remote.assignor"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, GroupRefusedError, "RE2"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupRefusedError, "group.max.size"),
        (ErrorCode.UNSUPPORTED_VERSION, GroupRefusedError, "classic"),
        (ErrorCode.INVALID_REQUEST, GroupRefusedError, "said by the broker"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, GroupRefusedError, "see its log"),
    ],
)
def test_a_refusal_for_good_loses_the_partitions(
    code: ErrorCode, kind: type[Exception], advice: str
) -> None:
    """The error says what to change, and nothing more is sent."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(0, error_code=code, error_message="said by the broker")
    assert type(stage.membership.error) is kind
    assert advice in str(stage.membership.error)
    assert stage.steps() == [("lose", partitions(0))]
    stage.passes(60)
    assert stage.next() is None
    assert stage.membership.is_left


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (UnsupportedVersionError("too old"), GroupRefusedError),
        (AuthenticationError("wrong password"), AuthenticationError),
    ],
)
def test_a_broker_that_cannot_answer_ends_the_membership(
    outcome: Exception, kind: type[Exception]
) -> None:
    """An old broker is named as the reason, with the setting."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    request, _ = stage.expect(ConsumerGroupHeartbeatRequest)
    stage.answer(request, outcome)
    assert isinstance(stage.membership.error, kind)


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_a_failure_is_followed_by_a_full_heartbeat_after_a_pause(code: ErrorCode) -> None:
    """The coordinator may have forgotten what it was told."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(0, error_code=code)
    assert stage.next() is None
    stage.passes(0.2)
    body = stage.beats(1)
    assert (owned(body), body.subscribed_topic_names) == ((0,), (FLIGHTS,))
    assert body.rebalance_timeout_ms == 300_000


def test_failures_in_a_row_have_growing_pauses() -> None:
    """Also while the member joins; a success begins anew."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    pauses = []
    for _ in range(3):
        stage.beats(0, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        pauses.append(stage.membership.next_deadline(stage.now) - stage.now)
        stage.passes(pauses[-1])
    assert pauses[0] < pauses[1] < pauses[2]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_member_follows_its_coordinator(code: ErrorCode) -> None:
    """A full heartbeat with the same epoch goes to the new one, at once."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(0, error_code=code)
    stage.find(2)
    request, body = stage.expect(ConsumerGroupHeartbeatRequest)
    assert (body.member_epoch, owned(body)) == (1, (0,))
    assert request.node is not None
    assert request.node.id == 2**31 - 1 - 2


def test_a_coordinator_that_refuses_all_is_not_asked_without_a_pause() -> None:
    """One that others name and that cannot load the group, as with a full disk."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(0, error_code=ErrorCode.NOT_COORDINATOR)
    stage.find()
    times = []
    for _ in range(4):
        stage.beats(0, error_code=ErrorCode.NOT_COORDINATOR)
        times.append(stage.now)
        stage.now = stage.membership.next_deadline(stage.now)
        stage.find()
    pauses = [after - before for before, after in pairwise([*times, stage.now])]
    assert all(pause > 0.05 for pause in pauses)
    assert pauses[-1] > 2 * pauses[0]


def test_a_broken_connection_has_the_coordinator_looked_up() -> None:
    """The heartbeat is repeated in full."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    request, _ = stage.expect(ConsumerGroupHeartbeatRequest)
    stage.answer(request, LOST)
    stage.find()
    stage.passes(0.2)
    assert owned(stage.beats(1)) == (0,)


def test_a_heartbeat_in_flight_to_a_lost_coordinator_is_given_up() -> None:
    """Its answer counts for nothing."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    request, _ = stage.expect(ConsumerGroupHeartbeatRequest)
    stage.coordinator.mark_unknown(request.node, stage.now, why="a commit found another")
    stage.find(2)
    stage.passes(0.2)
    stage.beats(1)
    stage.answer(request, ConsumerGroupHeartbeatResponse(member_epoch=9))
    assert stage.membership.identity.generation == 1


def test_one_heartbeat_is_in_flight_at_a_time() -> None:
    """Also when there is something to acknowledge."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.expect(ConsumerGroupHeartbeatRequest)
    stage.passes(60)
    assert stage.next() is None


def test_unsubscribing_revokes_and_leaves() -> None:
    """The last heartbeat has epoch -1."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.membership.subscribe(None, None, stage.now)
    assert stage.steps() == [("revoke", partitions(0))]
    assert stage.beats(-1).member_epoch == -1
    assert stage.membership.is_left
    assert stage.next() is None


def test_a_static_member_leaves_for_a_while() -> None:
    """With epoch -2, so that the group keeps its place."""
    stage = stage_of(group_instance_id="i")
    stage.becomes_consumer_member(0)
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.steps() == [("revoke", partitions(0))]
    assert stage.beats(-2).member_epoch == -2
    assert stage.membership.is_left


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_leaving_ends_with_any_answer(code: ErrorCode) -> None:
    """It is not repeated."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    stage.beats(0, error_code=code)
    assert stage.membership.is_left
    assert stage.membership.error is None


def test_leaving_does_not_wait_for_a_heartbeat_in_flight() -> None:
    """Its answer counts for nothing."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    late, _ = stage.expect(ConsumerGroupHeartbeatRequest)
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    leaving, body = stage.expect(ConsumerGroupHeartbeatRequest)
    assert body.member_epoch == -1
    stage.answer(late, ConsumerGroupHeartbeatResponse(member_epoch=1, assignment=target(0, 1)))
    assert stage.steps() == []
    stage.answer(leaving, LOST)
    assert stage.membership.is_left


def test_a_member_that_is_fenced_while_it_leaves_is_gone() -> None:
    """Nobody has to be told."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    request, _ = stage.expect(ConsumerGroupHeartbeatRequest)
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.step()
    answer = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    stage.answer(request, answer)
    stage.steps()
    assert stage.next() is None
    assert stage.membership.is_left


def test_nobody_is_told_if_the_coordinator_is_not_known() -> None:
    """The member is gone, and the session ends it."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(0, error_code=ErrorCode.NOT_COORDINATOR)
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    assert stage.next() is None
    assert stage.membership.is_left


def test_leaving_without_having_joined_sends_nothing() -> None:
    """Before the first poll, and after it has left."""
    stage = stage_of()
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.membership.is_left
    stage.poll()
    assert stage.next() is None


def test_a_member_that_is_not_polled_leaves_and_the_next_poll_joins_again() -> None:
    """It leaves first, loses its partitions, and waits for the poll."""
    stage = stage_of(max_poll_interval_ms=7_000)
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(1)
    assert stage.membership.next_deadline(stage.now) == 7
    stage.passes(2)
    assert stage.beats(-1).member_epoch == -1
    assert stage.steps() == [("lose", partitions(0))]
    stage.passes(60)
    assert stage.next() is None
    stage.poll()
    assert stage.beats(1).member_epoch == 0


def test_a_poll_before_the_partitions_are_lost_joins_afterwards() -> None:
    """The step comes first."""
    stage = stage_of(max_poll_interval_ms=5_000)
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(-1)
    stage.poll()
    assert stage.next() is None
    assert stage.steps() == [("lose", partitions(0))]
    assert stage.beats(1).member_epoch == 0


def test_a_request_that_could_not_be_sent_is_made_again() -> None:
    """With all fields; also the one that leaves because the user does not poll."""
    stage = stage_of(max_poll_interval_ms=5_000)
    stage.becomes_consumer_member(0)
    stage.passes(5)
    for _ in range(2):
        request, body = stage.expect(ConsumerGroupHeartbeatRequest)
        assert body.member_epoch == -1
        stage.membership.put_back(request, stage.now)
    stage.beats(-1)
    assert stage.steps() == [("lose", partitions(0))]
    stage.poll()
    request, body = stage.expect(ConsumerGroupHeartbeatRequest)
    stage.membership.put_back(request, stage.now)
    assert stage.beats(1) == body


def test_an_answer_with_an_epoch_of_a_member_that_left_counts_for_nothing() -> None:
    """It belongs to an earlier life."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(-1)
    assert stage.membership.identity.generation == 1


def test_an_assignment_that_cannot_be_is_an_error() -> None:
    """A partition with a negative number."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(1, -1)
    assert isinstance(stage.membership.error, MalformedGroupDataError)


def test_a_broker_cannot_ask_for_heartbeats_without_pause() -> None:
    """An interval of 0 or below is 10 ms."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(1, heartbeat_interval_ms=-5)
    assert stage.membership.next_deadline(stage.now) == pytest.approx(stage.now + 0.01)


def test_the_interval_follows_the_broker() -> None:
    """A changed one counts from the answer."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.passes(5)
    stage.beats(1, heartbeat_interval_ms=9_000)
    assert stage.membership.next_deadline(stage.now) == stage.now + 9


def test_a_member_asks_for_no_rebalance() -> None:
    """Under this protocol only the coordinator does."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.membership.request_rejoin("please", stage.now)
    assert stage.next() is None


def test_nothing_is_sent_before_the_first_poll() -> None:
    """And the coordinator is not looked up."""
    stage = stage_of()
    stage.membership.subscribe(frozenset({FLIGHTS}), None, 0)
    stage.know(flights=1)
    assert stage.next() is None
    stage.poll()
    assert isinstance(stage.next(), FindCoordinatorRequest)


def test_a_consumer_that_has_left_joins_again_with_the_same_id() -> None:
    """After it subscribes and polls."""
    stage = stage_of()
    stage.becomes_consumer_member(0)
    stage.membership.subscribe(None, None, stage.now)
    stage.steps()
    before = stage.beats(-1).member_id
    stage.membership.subscribe(frozenset({FLIGHTS}), None, stage.now)
    assert stage.next() is None
    stage.poll()
    body = stage.beats(1)
    assert (body.member_id, body.member_epoch) == (before, 0)


def test_a_member_that_is_out_cannot_commit() -> None:
    """And one that is in can."""
    stage = stage_of()
    assert isinstance(stage.membership.commit_fault(), CommitFailedError)
    stage.becomes_consumer_member(0)
    assert stage.membership.commit_fault() is None
