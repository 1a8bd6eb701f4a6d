"""Answers that contradict their requests: what a caller gets of them, and what is kept."""

import tracemalloc
from typing import Any
from uuid import UUID

import pytest

from tailrace.client import RemoteFatalError
from tailrace.client.admin import (
    IncompleteAnswerError,
    NewTopic,
    OffsetAt,
    OperationTimeoutError,
    Outcomes,
    Place,
)
from tailrace.client.admin.topics import PARTITIONS_MAX
from tailrace.client.calls import Ask
from tailrace.client.errors import MESSAGE_CHARACTERS_MAX, UnreachableBrokerError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import create_topics as creating
from tailrace.protocol.messages import describe_topic_partitions as pages
from tailrace.protocol.messages import describe_user_scram_credentials as users
from tailrace.protocol.messages import list_offsets as listing
from tailrace.protocol.messages import offset_fetch
from tests.unit.client.admin.calls import outcome_of
from tests.unit.client.admin.stage import ask, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_users_that_nobody_asked_about_are_left_out() -> None:
    """A user that the answer lacks has an error, and one that it has besides is no item."""
    result = users.DescribeUserScramCredentialsResult
    answer = users.DescribeUserScramCredentialsResponse(
        results=(result(user="alice"), result(user="mallory"))
    )
    found, _ = on_stage(
        ask("describe_user_scram_credentials", ["alice", "bob"]),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answer),
    )
    assert [*found] == ["alice", "bob"]
    assert found.result("alice") == ()
    with pytest.raises(IncompleteAnswerError, match="left bob out"):
        found.result("bob")


def fetched(group: str, *numbers: int, code: int = 0) -> Message:
    """Committed offsets of a group for partitions of `t`; the last partition has the code."""
    part = offset_fetch.OffsetFetchResponsePartitions
    topic = offset_fetch.OffsetFetchResponseTopics(
        name="t",
        partitions=tuple(
            part(
                partition_index=each,
                committed_offset=4,
                error_code=code if each == numbers[-1] else 0,
            )
            for each in numbers
        ),
    )
    told = offset_fetch.OffsetFetchResponseGroup(group_id=group, topics=(topic,))
    return offset_fetch.OffsetFetchResponse(groups=(told,))


def test_offsets_of_another_group_are_not_those_of_the_group() -> None:
    """The offsets of the group that was asked for are missing, and that is told."""
    with pytest.raises(IncompleteAnswerError, match="the offsets of group g"):
        on_stage(ask("list_group_offsets", "g"), (ApiKey.OFFSET_FETCH, fetched("other", 0)))


def test_offsets_that_nobody_asked_about_are_left_out() -> None:
    """Neither the offset of another partition nor its error counts."""
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    found, at = on_stage(
        ask("list_group_offsets", "g", [T0]), (ApiKey.OFFSET_FETCH, fetched("g", 0, 1, code=code))
    )
    assert [*found] == [T0]
    assert len(at.asked) == 1


def test_a_log_without_ends_resets_no_offset() -> None:
    """A leader that tells -1 for an end of a log is refused, and nothing is committed."""

    def ends(_: object, body: Any) -> Message:
        part = listing.ListOffsetsPartitionResponse(partition_index=0, offset=-1)
        assert body.topics[0].name == "t"
        topic = listing.ListOffsetsTopicResponse(name="t", partitions=(part,))
        return listing.ListOffsetsResponse(topics=(topic,))

    def never(*_: object) -> Message:
        raise AssertionError("an offset was committed")

    found, _ = on_stage(
        ask("reset_group_offsets", "g", [T0], to=OffsetAt(Place.LATEST)),
        (ApiKey.OFFSET_FETCH, fetched("g", 0)),
        (ApiKey.LIST_OFFSETS, ends),
        (ApiKey.OFFSET_COMMIT, never),
    )
    with pytest.raises(IncompleteAnswerError, match="t-0: the leader has given no end of its log"):
        found.result(T0)


def test_topics_by_name_keep_their_results_where_those_by_id_fail() -> None:
    """Each topic has its own outcome, although two requests are needed."""
    named = pages.DescribeTopicPartitionsResponse(
        topics=(pages.DescribeTopicPartitionsResponseTopic(name="t"),)
    )
    gone = UnreachableBrokerError("b:9092 is gone", address="b:9092")

    def answer(asked: Ask) -> Any:
        body = asked.body
        assert isinstance(body, pages.DescribeTopicPartitionsRequest)
        return named if body.topics else gone

    found, _ = outcome_of("describe_topics", answer)
    assert isinstance(found, Outcomes)
    assert found.result("t").name == "t"
    assert isinstance(found[UUID(int=7)], OperationTimeoutError)


def endless(name: str, count: int) -> Any:
    """Pages of so many partitions of a topic, each with the cursor of the next one."""
    part = pages.DescribeTopicPartitionsResponsePartition(partition_index=0)
    told = pages.DescribeTopicPartitionsResponseTopic(name=name, partitions=(part,) * count)

    def answer(asked: Ask) -> Message:
        body = asked.body
        assert isinstance(body, pages.DescribeTopicPartitionsRequest)
        number = 0 if body.cursor is None else body.cursor.partition_index
        after = pages.Cursor(topic_name="t", partition_index=number + 1)
        return pages.DescribeTopicPartitionsResponse(topics=(told,), next_cursor=after)

    return answer


@pytest.mark.parametrize("operation", ["list_topics", "describe_topics"])
def test_pages_without_an_end_are_given_up(operation: str) -> None:
    """A broker that tells ever more partitions is told as one, before memory is full."""
    found, seconds = outcome_of(operation, endless("t", PARTITIONS_MAX // 4), seconds=0.001)
    assert seconds < 1
    error = found["t"] if isinstance(found, Outcomes) else found
    assert isinstance(error, IncompleteAnswerError)
    assert "does not end; is it a broker of Kafka?" in str(error)


def test_topics_that_nobody_asked_about_take_no_memory() -> None:
    """Pages of other topics are not kept, and do not go on without an end either."""
    answer = endless("other", PARTITIONS_MAX // 4)
    tracemalloc.start()
    try:
        found, _ = outcome_of("describe_topics", answer, seconds=0.001)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(found, Outcomes)
    assert set(found.errors) == set(found) == {"t", UUID(int=7)}
    # The second half of the call lists all topics, and keeps those of three pages.
    assert peak < 8 * 4 * PARTITIONS_MAX // 2


def test_a_long_message_of_a_broker_is_cut() -> None:
    """An error's sentence stays readable, and its memory small."""
    result = creating.CreatableTopicResult(
        name="t", error_code=ErrorCode.POLICY_VIOLATION, error_message="no" * 15_000
    )
    answer = creating.CreateTopicsResponse(topics=(result,))
    found, _ = on_stage(ask("create_topics", [NewTopic("t")]), (ApiKey.CREATE_TOPICS, answer))
    assert isinstance(found["t"], RemoteFatalError)
    assert len(str(found["t"])) < MESSAGE_CHARACTERS_MAX + 200
