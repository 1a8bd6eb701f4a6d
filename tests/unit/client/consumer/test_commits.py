"""Commits and fetches of offsets: order, retries, fatal errors, and whom they belong to."""

from typing import Any

import pytest

from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.errors import TopicAuthorizationError
from tailrace.client.consumer.membership import (
    NEVER,
    AutoCommit,
    OffsetAndMetadata,
)
from tailrace.client.consumer.membership.errors import (
    CommitFailedError,
    CommitRefusedError,
    FencedInstanceError,
    GroupAuthorizationError,
    GroupTimeoutError,
    MemberFencedError,
    RebalanceInProgressError,
    RetriableCommitError,
)
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import JoinGroupRequest
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.unit.client.consumer.commit_stage import (
    ONE,
    ZERO,
    CommitStage,
    committed,
    fetch_answer,
)
from tests.unit.client.consumer.member_stage import (
    FLIGHTS,
    GROUP,
    found,
    partitions,
)


def test_a_commit_names_the_member_and_each_offset() -> None:
    """With leader epoch and metadata, by topic."""
    stage = CommitStage(group_instance_id="i")
    airport = TopicPartition("airports", 4)
    stage.commit(offsets={ZERO: OffsetAndMetadata(5, 3, "note"), airport: OffsetAndMetadata(1)})
    body = stage.answers()
    told = body.member_id, body.generation_id_or_member_epoch, body.group_instance_id
    assert told == ("m", 1, "i")
    assert [each.name for each in body.topics] == ["airports", FLIGHTS]
    [sent] = body.topics[1].partitions
    assert (sent.committed_offset, sent.committed_leader_epoch) == (5, 3)
    assert sent.committed_metadata == "note"
    assert stage.outcome is None


def test_a_consumer_without_subscription_commits_as_no_member() -> None:
    """With generation -1 and no ids."""
    stage = CommitStage(group_instance_id="i")
    stage.assign_itself()
    stage.commit()
    body = stage.answers()
    told = body.member_id, body.generation_id_or_member_epoch, body.group_instance_id
    assert told == ("", -1, None)


def test_a_member_of_the_consumer_protocol_names_its_epoch() -> None:
    """In version 9 or later."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.commit()
    request, body = stage.sent()
    assert body.generation_id_or_member_epoch == 1
    assert body.member_id
    assert request.first_version == 9


@pytest.mark.parametrize("seconds", [60, None])
def test_a_commit_of_nothing_is_done(seconds: float | None) -> None:
    """In its turn, without a request."""
    stage = CommitStage()
    stage.commit(seconds, offsets={})
    assert stage.outcome is None
    assert stage.is_quiet()


def test_a_commit_of_nothing_waits_for_those_before() -> None:
    """So that its end says that they have ended."""
    stage = CommitStage()
    stage.commit()
    stage.commit(offsets={})
    assert stage.outcomes == []
    stage.answers()
    assert stage.outcomes == [None, None]


def test_a_negative_offset_is_refused() -> None:
    """With the partition, before anything is sent."""
    stage = CommitStage()
    with pytest.raises(ValueError, match="flights-0: offset -1"):
        stage.commit(offsets={ZERO: OffsetAndMetadata(-1)})


RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
]


@pytest.mark.parametrize("code", RETRIED)
def test_a_commit_with_a_deadline_is_retried(code: ErrorCode) -> None:
    """After a pause, at the same coordinator."""
    stage = CommitStage()
    stage.commit()
    stage.answers(code)
    assert stage.outcomes == []
    assert stage.is_quiet()
    stage.passes(0.2)
    stage.answers()
    assert stage.outcome is None


RELOCATED = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
]


@pytest.mark.parametrize("code", RELOCATED)
def test_a_commit_is_retried_at_the_new_coordinator(code: ErrorCode) -> None:
    """Which is looked up first."""
    stage = CommitStage()
    stage.commit()
    stage.answers(code)
    stage.finds(2)
    stage.passes(0.2)
    request, _ = stage.sent()
    assert request.node is not None
    assert request.node.id == 2**31 - 1 - 2


def test_a_commit_that_lost_its_connection_is_retried() -> None:
    """It may be stored twice, which is the same."""
    stage = CommitStage()
    stage.commit()
    stage.fails()
    stage.finds()
    stage.passes(0.2)
    stage.answers()
    assert stage.outcome is None


def test_a_commit_is_due_at_its_deadline() -> None:
    """A caller that comes at the time that it was told finds the request, and need not turn."""
    stage = CommitStage()
    stage.commit()
    stage.answers(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert stage.is_quiet()
    stage.now = stage.commits.next_deadline(stage.now)
    assert not stage.is_quiet()


def test_a_static_member_commits_only_where_its_name_is_sent() -> None:
    """A request without the name would be taken for one of another member."""
    dynamic, static = CommitStage(), CommitStage(group_instance_id="i")
    for stage, version in ((dynamic, 0), (static, 7)):
        stage.commit()
        request, _ = stage.sent()
        assert request.first_version == version


def test_a_commit_is_retried_if_the_answer_leaves_a_partition_out() -> None:
    """Nobody has said that it is stored."""
    stage = CommitStage()
    stage.commit()
    stage.fails(OffsetCommitResponse())
    stage.passes(0.2)
    stage.answers()
    assert stage.outcome is None


@pytest.mark.parametrize("code", [*RETRIED, *RELOCATED])
def test_a_commit_without_a_deadline_is_sent_once(code: ErrorCode) -> None:
    """A retriable failure is its outcome, and a RetriableError."""
    stage = CommitStage()
    stage.commit(None)
    stage.answers(code)
    assert isinstance(stage.outcome, RetriableCommitError)
    assert isinstance(stage.outcome, RetriableError)


def test_commits_without_a_deadline_fail_with_their_connection() -> None:
    """All of those in flight."""
    stage = CommitStage()
    for _ in range(100):
        stage.commit(None)
    stage.fails()
    assert [type(each) for each in stage.outcomes] == [RetriableCommitError] * 100


def test_a_commit_whose_coordinator_was_lost_elsewhere_is_retried() -> None:
    """A heartbeat has found out; the answer counts for nothing."""
    stage = CommitStage()
    stage.commit()
    request, body = stage.sent()
    stage.coordinator.mark_unknown(request.node, stage.now, why="a heartbeat found another")
    stage.finds(2)
    stage.commits.answered(request, committed(body), stage.now)
    assert stage.outcomes == []
    stage.passes(0.2)
    stage.answers()
    assert stage.outcome is None


def test_a_commit_fails_at_its_deadline_with_its_last_error() -> None:
    """A TimeoutError that says what the coordinator has answered."""
    stage = CommitStage()
    stage.commit(5)
    stage.answers(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.passes(5)
    assert stage.is_quiet()
    assert isinstance(stage.outcome, GroupTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(stage.outcome)


def test_a_commit_fails_at_its_deadline_without_a_coordinator() -> None:
    """The look-up goes on meanwhile."""
    stage = CommitStage()
    stage.heartbeat(ErrorCode.NOT_COORDINATOR)
    stage.commit(5)
    stage.fails()
    assert stage.commits.next_deadline(stage.now) < stage.now + 1
    stage.passes(5)
    stage.is_quiet()
    assert "not found" in str(stage.outcome)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, CommitRefusedError),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, CommitRefusedError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, CommitRefusedError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
    ],
)
def test_a_refused_commit_is_not_retried(code: ErrorCode, kind: type[Exception]) -> None:
    """The error names the partition and the reason; that of a topic is the one that polls raise."""
    stage = CommitStage()
    stage.commit()
    stage.answers(code)
    assert type(stage.outcome) is kind
    assert "flights-0" in str(stage.outcome)
    assert stage.is_quiet()


def test_all_topics_that_may_not_be_read_are_named() -> None:
    """Each once."""
    stage = CommitStage()
    both = {ZERO: OffsetAndMetadata(1), TopicPartition("airports", 0): OffsetAndMetadata(1)}
    stage.commit(offsets=both)
    stage.answers(*[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2)
    assert stage.outcome.topics == {FLIGHTS, "airports"}


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")],
)
def test_a_commit_of_a_member_that_is_out_fails_and_has_it_join_again(
    code: ErrorCode, member_id: str
) -> None:
    """The partitions are lost."""
    stage = CommitStage()
    stage.commit()
    stage.answers(code)
    assert isinstance(stage.outcome, CommitFailedError)
    assert stage.steps() == [("lose", partitions(0, 1))]
    _, body = stage.expect(JoinGroupRequest)
    assert body.member_id == member_id


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_refusal_of_an_earlier_generation_resets_nothing(code: ErrorCode) -> None:
    """The member has joined again since; the commit fails all the same."""
    stage = CommitStage(partition_assignment_strategy="cooperative-sticky")
    stage.commit()
    request, body = stage.sent()
    stage.membership.request_rejoin("again", stage.now)
    stage.joins(generation=2)
    stage.syncs(0, 1)
    stage.steps()
    stage.commits.answered(request, committed(body, code), stage.now)
    assert isinstance(stage.outcome, CommitFailedError)
    assert stage.membership.is_settled


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID],
)
def test_a_refusal_while_the_member_joins_anew_says_so(code: ErrorCode) -> None:
    """The generation was reset, and JoinGroup is in flight: poll, and commit again."""
    stage = CommitStage(group_instance_id="i")
    stage.commit()
    request, body = stage.sent()
    stage.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    stage.steps()
    stage.expect(JoinGroupRequest)
    stage.commits.answered(request, committed(body, code), stage.now)
    assert isinstance(stage.outcome, RebalanceInProgressError)


def test_a_commit_in_a_rebalance_has_the_member_join() -> None:
    """REBALANCE_IN_PROGRESS: not retried, but retriable after a poll."""
    stage = CommitStage()
    stage.commit()
    stage.answers(ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(stage.outcome, RebalanceInProgressError)
    stage.steps()
    _, body = stage.expect(JoinGroupRequest)
    assert body.reason == "offset commit failed since group is already rebalancing"


def test_a_fenced_member_cannot_commit() -> None:
    """FENCED_INSTANCE_ID is fatal in the present generation."""
    stage = CommitStage(group_instance_id="i")
    stage.commit(None)
    stage.answers(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(stage.outcome, FencedInstanceError)


def test_nothing_is_committed_between_two_generations() -> None:
    """While the member joins: poll, and commit again."""
    stage = CommitStage()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.steps()
    stage.expect(JoinGroupRequest)
    stage.commit()
    assert isinstance(stage.outcome, RebalanceInProgressError)


def test_nothing_is_committed_after_leaving() -> None:
    """The error says what may have happened."""
    stage = CommitStage()
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    stage.commit()
    assert isinstance(stage.outcome, CommitFailedError)
    assert "max.poll.interval.ms" in str(stage.outcome)


def test_offsets_can_be_committed_in_the_step_that_revokes() -> None:
    """The member is still in its generation."""
    stage = CommitStage()
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.step()
    stage.commit(is_before_revocation=True)
    assert stage.answers().generation_id_or_member_epoch == 1
    assert stage.outcome is None


def test_a_commit_does_not_outlive_the_ownership_of_its_partitions() -> None:
    """It waits for a retry while they go and come back: another member may have committed more."""
    stage = CommitStage()
    stage.commit()
    stage.answers(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.steps()
    stage.joins(generation=2)
    stage.syncs(0, 1)
    stage.steps()
    assert stage.is_quiet()
    assert isinstance(stage.outcome, CommitFailedError)
    assert "offset 5 of flights-0" in str(stage.outcome)


def test_a_commit_of_partitions_that_stay_outlives_a_rebalance() -> None:
    """It is sent in the new generation."""
    stage = CommitStage(partition_assignment_strategy="cooperative-sticky")
    stage.commit()
    stage.answers(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.membership.request_rejoin("again", stage.now)
    stage.joins(generation=2)
    stage.syncs(0, 1)
    stage.steps()
    stage.passes(0.2)
    assert stage.answers().generation_id_or_member_epoch == 2
    assert stage.outcome is None


def test_commits_are_sent_in_order_and_one_at_a_time() -> None:
    """A retry does not overtake a later commit, which would take the offset back."""
    stage = CommitStage()
    stage.commit(offsets={ZERO: OffsetAndMetadata(1)})
    stage.commit(offsets={ZERO: OffsetAndMetadata(2)})
    request, body = stage.sent()
    assert stage.is_quiet()
    answer = committed(body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.commits.answered(request, answer, stage.now)
    stage.passes(0.2)
    offsets = [stage.answers().topics[0].partitions[0].committed_offset for _ in range(2)]
    assert offsets == [1, 2]


def test_waiting_commits_without_a_deadline_become_one() -> None:
    """The last offset of each partition counts, and each call has its outcome in order."""
    stage = CommitStage()
    stage.commit(None, offsets={ZERO: OffsetAndMetadata(1), ONE: OffsetAndMetadata(1)})
    stage.commit(None, offsets={ZERO: OffsetAndMetadata(2)})
    body = stage.answers(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert [each.committed_offset for each in body.topics[0].partitions] == [2, 1]
    assert isinstance(stage.outcomes[0], CommitRefusedError)
    assert stage.outcomes[1] is None


def test_a_stale_epoch_fails_a_commit_of_the_user() -> None:
    """STALE_MEMBER_EPOCH under the consumer protocol."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.commit()
    stage.answers(ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(stage.outcome, CommitFailedError)


def test_a_commit_before_revocation_is_retried_with_the_new_epoch() -> None:
    """The member has not given the partitions up yet."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.commit(is_before_revocation=True)
    stage.answers(ErrorCode.STALE_MEMBER_EPOCH)
    stage.passes(5)
    stage.beats(2)
    assert stage.answers().generation_id_or_member_epoch == 2
    assert stage.outcome is None


def test_a_commit_before_revocation_does_not_wait_for_a_deleted_topic() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION would hold up the whole group."""
    stage = CommitStage()
    stage.commit(is_before_revocation=True)
    stage.answers(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert isinstance(stage.outcome, CommitRefusedError)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_a_commit_of_an_unknown_member_of_the_consumer_protocol_fails(code: ErrorCode) -> None:
    """The heartbeat finds out what it means for the member."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.commit()
    stage.answers(code)
    assert isinstance(stage.outcome, CommitFailedError)
    assert stage.membership.error is None


def test_a_group_with_members_takes_no_commit_of_others() -> None:
    """The error advises another group.id."""
    stage = CommitStage()
    stage.assign_itself()
    stage.commit()
    stage.answers(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(stage.outcome, CommitFailedError)
    assert "group.id of its own" in str(stage.outcome)


def test_a_coordinator_that_may_not_be_found_fails_all_calls() -> None:
    """With the error of the look-up."""
    stage = CommitStage()
    stage.heartbeat(ErrorCode.NOT_COORDINATOR)
    stage.assign_itself()
    stage.commit()
    stage.fetch()
    stage.fails(found(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert stage.is_quiet()
    assert [type(each) for each in stage.outcomes] == [GroupAuthorizationError] * 2


def test_closing_fails_what_has_no_outcome() -> None:
    """Each call once, and a late answer counts for nothing."""
    stage = CommitStage()
    stage.commit()
    stage.commit()
    stage.fetch()
    request, body = stage.sent()
    error = GroupTimeoutError("closed")
    stage.commits.close(error)
    assert stage.outcomes == [error] * 3
    stage.commits.answered(request, committed(body), stage.now)
    assert stage.commits.is_idle
    assert stage.commits.next_deadline(stage.now) == NEVER


def test_a_request_that_could_not_be_sent_is_made_again() -> None:
    """`put_back` of a commit, a fetch and a look-up."""
    stage = CommitStage()
    stage.heartbeat(ErrorCode.NOT_COORDINATOR)
    stage.assign_itself()
    stage.commit(None)
    stage.fetch()
    request, _ = stage.sent()
    stage.commits.put_back(request, stage.now)
    stage.finds()
    for kind in (OffsetCommitRequest, OffsetFetchRequest):
        request, body = stage.sent()
        assert isinstance(body, kind)
        stage.commits.put_back(request, stage.now)
        if kind is OffsetCommitRequest:
            stage.answers()
    stage.fetched()
    assert len(stage.outcomes) == 2


def test_a_fetch_asks_for_stable_offsets_in_the_fields_of_all_versions() -> None:
    """One group up to v7, a list of groups from v8 on, without the member of a classic group."""
    stage = CommitStage()
    stage.fetch(ZERO, ONE)
    body = stage.fetched()
    assert body.require_stable
    assert body.group_id == GROUP
    assert [(each.name, each.partition_indexes) for each in body.topics or ()] == [
        (FLIGHTS, (0, 1))
    ]
    [group] = body.groups
    assert (group.group_id, group.member_id, group.member_epoch) == (GROUP, None, -1)
    assert stage.outcome == {ZERO: OffsetAndMetadata(7, 3, "note"), ONE: None}


def test_a_fetch_of_the_consumer_protocol_names_member_and_epoch() -> None:
    """So that a member that is out gets no offsets."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.fetch()
    [group] = stage.fetched().groups
    assert group.member_id == stage.membership.identity.member_id
    assert group.member_epoch == 1


def test_an_old_broker_answers_for_one_group() -> None:
    """Up to v7 the offsets are at the top of the answer."""
    stage = CommitStage()
    stage.fetch()
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=4, metadata="")
    topic = OffsetFetchResponseTopic(name=FLIGHTS, partitions=(partition,))
    stage.fails(OffsetFetchResponse(topics=(topic,)))
    assert stage.outcome == {ZERO: OffsetAndMetadata(4)}


@pytest.mark.parametrize("offset", [-1, -9])
def test_a_partition_without_a_committed_offset_has_none(offset: int) -> None:
    """Offset -1, or any below 0."""
    stage = CommitStage()
    stage.fetch()
    stage.fetched(offset)
    assert stage.outcome == {ZERO: None}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_a_fetch_is_asked_again_of_the_new_coordinator(code: ErrorCode) -> None:
    """Which is looked up first (a consumer that gives up reads nothing ever after)."""
    stage = CommitStage()
    stage.fetch()
    stage.fetched(group_code=code)
    stage.finds(2)
    stage.passes(0.2)
    stage.fetched()
    assert stage.outcome == {ZERO: OffsetAndMetadata(7, 3, "note")}


@pytest.mark.parametrize(
    ("group_code", "code"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ],
)
def test_a_fetch_is_retried_at_the_same_coordinator(group_code: int, code: int) -> None:
    """While it loads, and while a transaction is open."""
    stage = CommitStage()
    stage.fetch()
    stage.fetched(group_code=group_code, code=code)
    assert stage.is_quiet()
    stage.passes(0.2)
    stage.fetched()
    assert stage.outcome[ZERO].offset == 7


def test_a_fetch_that_lost_its_connection_is_retried() -> None:
    """After the look-up."""
    stage = CommitStage()
    stage.fetch()
    stage.fails()
    stage.finds()
    stage.passes(0.2)
    stage.fetched()
    assert stage.outcome[ZERO].offset == 7


@pytest.mark.parametrize(
    ("group_code", "code", "kind"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0, GroupAuthorizationError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 0, CommitRefusedError),
        (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, CommitRefusedError),
        (0, ErrorCode.UNKNOWN_SERVER_ERROR, CommitRefusedError),
    ],
)
def test_a_refused_fetch_is_an_error(group_code: int, code: int, kind: type[Exception]) -> None:
    """The code may be that of the group or of a partition."""
    stage = CommitStage()
    stage.fetch()
    stage.fetched(group_code=group_code, code=code)
    assert type(stage.outcome) is kind


def test_an_answer_about_other_groups_is_an_error() -> None:
    """The offsets of another group would be wrong."""
    stage = CommitStage()
    stage.fetch()
    other = OffsetFetchResponseGroup(group_id="other")
    stage.fails(OffsetFetchResponse(groups=(other,)))
    assert isinstance(stage.outcome, CommitRefusedError)


def test_a_fetch_with_a_stale_epoch_is_asked_again() -> None:
    """With the epoch that the next heartbeat has brought."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.fetch()
    stage.fetched(group_code=ErrorCode.STALE_MEMBER_EPOCH)
    stage.passes(5)
    stage.beats(2)
    assert stage.fetched().groups[0].member_epoch == 2
    assert stage.outcome[ZERO].offset == 7


def test_a_fetch_of_an_unknown_member_is_asked_again() -> None:
    """The heartbeat finds out, and the member joins again by itself."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.fetch()
    stage.fetched(group_code=ErrorCode.UNKNOWN_MEMBER_ID)
    stage.passes(5)
    stage.beats(2)
    assert stage.fetched().groups[0].member_epoch == 2
    assert stage.outcome[ZERO].offset == 7


def test_a_fetch_of_a_member_that_has_left_fails_and_is_not_asked_again() -> None:
    """STALE_MEMBER_EPOCH comes when the member is in the group no more."""
    stage = CommitStage(is_consumer_protocol=True)
    stage.fetch()
    request, _ = stage.sent()
    stage.membership.leave("the consumer is being closed", stage.now)
    stage.steps()
    stage.beats(-1)
    stage.commits.answered(
        request, fetch_answer(7, group_code=ErrorCode.STALE_MEMBER_EPOCH), stage.now
    )
    assert isinstance(stage.outcome, MemberFencedError)
    stage.passes(5)
    assert stage.is_quiet()


def test_a_fetch_fails_at_its_deadline() -> None:
    """A TimeoutError."""
    stage = CommitStage()
    stage.fetch(seconds=5)
    stage.fetched(group_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.passes(5)
    assert stage.is_quiet()
    assert isinstance(stage.outcome, TimeoutError)


def test_the_same_question_is_sent_once() -> None:
    """Each call gets the answer."""
    stage = CommitStage()
    stage.fetch(ZERO, ONE)
    stage.fetch(ONE, ZERO)
    stage.fetched()
    assert stage.is_quiet()
    assert len(stage.outcomes) == 2


def test_different_questions_are_in_flight_together() -> None:
    """And none is asked about nothing."""
    stage = CommitStage()
    stage.fetch(ZERO)
    stage.fetch(ONE)
    stage.commits.fetch((), done=stage.outcomes.append, deadline=1)
    assert stage.outcomes == [{}]
    assert isinstance(stage.sent()[1], OffsetFetchRequest)
    assert isinstance(stage.sent()[1], OffsetFetchRequest)


def auto_commit(now: float = 0, **settings: Any) -> AutoCommit:
    """Commits every 5 s."""
    given = {"bootstrap_servers": "broker:9092", "group_id": GROUP, **settings}
    return AutoCommit(parse_consumer_config(given), now)


def test_offsets_are_committed_at_every_interval() -> None:
    """One commit is under way at a time."""
    auto = auto_commit()
    assert not auto.is_due(4.9)
    assert auto.is_due(5)
    auto.started(5)
    assert auto.next_deadline() == NEVER
    assert not auto.is_due(20)
    auto.finished(None, 6)
    assert auto.next_deadline() == 10


def test_a_retriable_failure_is_followed_by_an_early_commit() -> None:
    """After retry.backoff.ms; after others the interval goes on."""
    auto = auto_commit(retry_backoff_ms=100)
    auto.started(5)
    auto.finished(RetriableCommitError("lost"), 6)
    assert auto.next_deadline() == pytest.approx(6.1)
    auto.started(7)
    auto.finished(CommitFailedError("out"), 8)
    assert auto.next_deadline() == 12


def test_an_assignment_begins_the_interval_anew() -> None:
    """There is nothing to commit yet."""
    auto = auto_commit()
    auto.restart(4)
    assert auto.next_deadline() == 9


def test_nothing_is_committed_by_itself_if_that_is_off() -> None:
    """enable.auto.commit=false."""
    auto = auto_commit(enable_auto_commit=False)
    assert not auto.is_due(100)
    assert auto.next_deadline() == NEVER
