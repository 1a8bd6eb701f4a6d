"""A member under the consumer protocol in each of its states: what ends or replaces what it has."""

from collections.abc import Callable
from uuid import UUID

import pytest

from tailrace.client.consumer.membership import MetadataWish, TopicShape
from tailrace.client.consumer.membership.errors import GroupAuthorizationError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.client.consumer.member_stage import (
    FLIGHTS,
    IDS,
    MemberStage,
    partitions,
    target,
)

POLL_S = 60
HOTELS = UUID(int=3)
REFUSED = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
Steps = list[tuple[str, tuple[TopicPartition, ...]]]


def stage_of() -> MemberStage:
    """A stage with a member of the consumer protocol."""
    return MemberStage(is_consumer_protocol=True, max_poll_interval_ms=POLL_S * 1000)


def joining() -> MemberStage:
    """A member that the coordinator knows, and to which it has assigned nothing yet."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(1)
    return stage


def stable() -> MemberStage:
    """A member of two partitions."""
    stage = stage_of()
    stage.becomes_consumer_member(0, 1)
    return stage


def reconciling() -> MemberStage:
    """A member whose program is giving one of them up."""
    stage = stable()
    stage.passes(5)
    stage.beats(1, 0)
    assert stage.step().kind.value == "revoke"
    return stage


def acknowledging() -> MemberStage:
    """A member that has taken a third one, and has not said so yet."""
    stage = stable()
    stage.passes(5)
    stage.beats(1, 0, 1, 2)
    assert stage.steps() == [("assign", partitions(2))]
    return stage


STATES: dict[Callable[[], MemberStage], Steps] = {
    joining: [],
    stable: [("lose", partitions(0, 1))],
    reconciling: [("revoke", partitions(1)), ("lose", partitions(0))],
    acknowledging: [("lose", partitions(0, 1, 2))],
}
"""Makers of a member in each state, and the steps that are left where it loses all it has."""

in_each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)


def of(*topics: tuple[UUID, tuple[int, ...]]) -> Assignment:
    """An assignment of topics by their ids."""
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=each, partitions=numbers) for each, numbers in topics
        )
    )


def owned(body: ConsumerGroupHeartbeatRequest) -> dict[UUID, tuple[int, ...]] | None:
    """The partitions that a heartbeat reports; None: as before."""
    if body.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in body.topic_partitions}


@in_each_state
def test_a_refusal_for_good_ends_a_member_in_each_state(state: Callable[[], MemberStage]) -> None:
    """All is lost, a step that the program has begun is finished, and nothing is sent."""
    stage = state()
    stage.passes(5)
    stage.beats(0, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(stage.membership.error, GroupAuthorizationError)
    assert stage.steps() == STATES[state]
    stage.poll()
    stage.passes(POLL_S)
    assert stage.next() is None
    assert stage.membership.is_left


def test_a_refusal_for_good_ends_a_member_that_is_leaving() -> None:
    """While its program still revokes, and before the heartbeat that leaves: that is not sent."""
    for is_revoking in (True, False):
        stage = stable()
        stage.passes(5)
        request, _ = stage.expect(ConsumerGroupHeartbeatRequest)
        stage.membership.leave("the consumer is being closed", stage.now)
        assert stage.step().kind.value == "revoke"
        if not is_revoking:
            stage.steps()
        stage.answer(request, REFUSED)
        assert stage.steps() == ([("revoke", partitions(0, 1))] if is_revoking else [])
        assert stage.next() is None
        assert stage.membership.is_left
        assert isinstance(stage.membership.error, GroupAuthorizationError)


@in_each_state
def test_a_member_that_is_not_polled_leaves_from_each_state(
    state: Callable[[], MemberStage],
) -> None:
    """It loses what it has, and waits; the next poll joins with nothing."""
    stage = state()
    stage.passes(POLL_S)
    assert stage.beats(-1).member_epoch == -1
    assert stage.steps() == STATES[state]
    stage.passes(POLL_S)
    assert stage.next() is None
    stage.poll()
    body = stage.beats(1)
    assert (body.member_epoch, owned(body)) == (0, {})


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_member_that_is_giving_partitions_up_can_leave(*, is_begun: bool) -> None:
    """A step that the program has not begun is left out: all is revoked at once."""
    stage = stable()
    stage.passes(5)
    stage.beats(1, 0)
    if is_begun:
        stage.step()
    stage.membership.leave("the consumer is being closed", stage.now)
    at_once: Steps = [("revoke", partitions(0, 1))]
    after_the_other: Steps = [("revoke", partitions(1)), ("revoke", partitions(0))]
    assert stage.steps() == (after_the_other if is_begun else at_once)
    assert stage.beats(-1).member_epoch == -1
    assert stage.membership.is_left


def test_a_member_that_is_fenced_leaves_without_a_word() -> None:
    """When its program has noted what it has lost."""
    stage = stable()
    stage.passes(5)
    stage.beats(0, error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert stage.step().kind.value == "lose"
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.steps() == [("lose", partitions(0, 1))]
    assert stage.membership.is_left
    stage.poll()
    assert stage.next() is None


def test_a_member_that_was_not_polled_has_left_already() -> None:
    """Nothing is sent a second time, and a poll does not bring it back."""
    stage = stable()
    stage.passes(POLL_S)
    stage.beats(-1)
    stage.membership.leave("the consumer is being closed", stage.now)
    assert stage.membership.is_left
    assert stage.steps() == [("lose", partitions(0, 1))]
    stage.poll()
    assert stage.next() is None


def test_what_was_assigned_before_a_member_was_fenced_is_not_reported() -> None:
    """Not even if the program finishes that step later: the new life has what it is given."""
    stage = stable()
    stage.passes(5)
    stage.beats(1, 0, 1, 2)
    assert stage.step().kind.value == "assign"
    stage.passes(5)
    stage.beats(0, error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert stage.steps() == [("assign", partitions(2)), ("lose", partitions(0, 1, 2))]
    body = stage.beats(1, 5)
    assert (body.member_epoch, owned(body)) == (0, {})
    assert stage.steps() == [("assign", partitions(5))]
    assert owned(stage.beats(1)) == {IDS[FLIGHTS]: (5,)}


# -- topics without a name ------------------------------------------------------------------------


def nameless() -> MemberStage:
    """A member whose first assignment is of a topic that its metadata does not have."""
    stage = stage_of()
    stage.subscribe()
    stage.find()
    stage.beats(1, assignment=target(0, topic="airports"))
    assert stage.steps() == []
    assert stage.next() is None
    stage.passes(5)
    return stage


def test_a_target_replaces_one_that_waits_for_metadata() -> None:
    """A topic that waited is forgotten: it is not assigned when its name comes."""
    stage = nameless()
    stage.beats(1, 0)
    assert stage.membership.wish == MetadataWish()
    assert stage.steps() == [("assign", partitions(0))]
    assert owned(stage.beats(1)) == {IDS[FLIGHTS]: (0,)}
    assert stage.membership.is_settled
    stage.know(flights=2, airports=1)
    assert stage.steps() == []


def test_an_empty_target_replaces_one_that_waits_for_metadata() -> None:
    """It is an assignment, which is acknowledged."""
    stage = nameless()
    stage.beats(1, assignment=Assignment())
    assert stage.membership.wish == MetadataWish()
    assert stage.steps() == [("assign", ())]
    stage.beats(1)
    assert stage.membership.is_settled
    stage.know(flights=2, airports=1)
    assert stage.steps() == []


def test_a_target_without_a_name_replaces_another_one() -> None:
    """Only its own name is wished for, and only that brings something."""
    stage = nameless()
    stage.beats(1, assignment=of((HOTELS, (0,))))
    assert stage.membership.wish == MetadataWish(ids=frozenset({HOTELS}), is_urgent=True)
    stage.know(flights=2, airports=1)
    assert stage.steps() == []
    known = {FLIGHTS: TopicShape(IDS[FLIGHTS], (frozenset(),) * 2)}
    hotels = TopicShape(HOTELS, (frozenset(),))
    stage.membership.topics_changed({**known, "hotels": hotels}, frozenset(), stage.now)
    assert stage.steps() == [("assign", partitions(0, topic="hotels"))]
    assert owned(stage.beats(1)) == {HOTELS: (0,)}
    assert stage.membership.is_settled


def test_metadata_that_still_lacks_a_name_leaves_the_wish() -> None:
    """So the metadata is asked for again."""
    stage = nameless()
    wish = MetadataWish(ids=frozenset({IDS["airports"]}), is_urgent=True)
    for _ in range(2):
        assert stage.membership.wish == wish
        stage.know(flights=2)
    stage.know(flights=2, airports=1)
    assert stage.membership.wish == MetadataWish()
    assert stage.steps() == [("assign", partitions(0, topic="airports"))]


def test_a_name_that_comes_during_a_reconciliation_is_assigned_after_it() -> None:
    """A revocation is acknowledged first: others may wait for it."""
    stage = stable()
    stage.passes(5)
    stage.beats(1, assignment=target(1, 2, topic="airports"))
    assert stage.step().kind.value == "revoke"
    stage.know(flights=2, airports=3)
    assert stage.steps() == [("revoke", partitions(0, 1)), ("assign", ())]
    assert owned(stage.beats(1)) == {}
    assert stage.steps() == [("assign", partitions(1, 2, topic="airports"))]
    assert owned(stage.beats(1)) == {IDS["airports"]: (1, 2)}
    assert stage.membership.is_settled


def test_the_same_partitions_under_a_newer_target_are_acknowledged_again() -> None:
    """The rest of both has no name; the program is not called."""
    stage = stable()
    for topic in (IDS["airports"], HOTELS):
        stage.passes(5)
        stage.beats(1, assignment=of((IDS[FLIGHTS], (0, 1)), (topic, (0,))))
        assert stage.steps() == []
        assert owned(stage.beats(1)) == {IDS[FLIGHTS]: (0, 1)}
        assert stage.next() is None
        assert stage.membership.wish.ids == {topic}
