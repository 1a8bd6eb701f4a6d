"""Retries, limits and outcomes, item by item, of every operation."""

from typing import Any

import pytest

from tailrace.client import RemoteFatalError, RemoteRetriableError, UnsupportedBrokerError
from tailrace.client.admin import (
    AsyncAdmin,
    ClosedAdminError,
    IncompleteAnswerError,
    ItemErrors,
    NewTopic,
    OperationTimeoutError,
    Outcomes,
    UnknownOutcomeError,
)
from tailrace.client.nodes import AuthenticationError
from tailrace.errors import ConfigError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import create_topics as creating
from tailrace.protocol.messages import delete_records as deleting
from tailrace.protocol.messages import list_offsets as listing
from tailrace.testing.cluster import ScriptedNode
from tailrace.testing.script import FaultKind
from tests.unit.client.admin.stage import AdminStage, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def created(**codes: int) -> creating.CreateTopicsResponse:
    """An answer with a code for each topic."""
    return creating.CreateTopicsResponse(
        topics=tuple(
            creating.CreatableTopicResult(name=name, error_code=code, num_partitions=1)
            for name, code in codes.items()
        )
    )


def all_created(_: ScriptedNode, body: Any) -> Message:
    """The answer of a broker that creates all topics."""
    return created(**{each.name: 0 for each in body.topics})


def deleted(node: ScriptedNode, body: Any, **codes: int) -> Message:
    """The answer of a leader that deletes records."""
    return deleting.DeleteRecordsResponse(
        topics=tuple(
            deleting.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    deleting.DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=each.offset,
                        error_code=codes.get("code", 0) if node.id == 1 else 0,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


async def create(at: AdminStage, admin: AsyncAdmin) -> Outcomes[str, Any]:
    """Create two topics."""
    del at
    return await admin.create_topics([NewTopic("a"), NewTopic("b")])


async def delete(at: AdminStage, admin: AsyncAdmin) -> Outcomes[TopicPartition, int]:
    """Delete records of both partitions."""
    del at
    return await admin.delete_records({T0: 5, T1: 6})


def test_each_item_has_its_outcome() -> None:
    """A topic that is refused does not harm the one that is created."""
    answer = created(a=0, b=ErrorCode.TOPIC_ALREADY_EXISTS)
    found, at = on_stage(create, (ApiKey.CREATE_TOPICS, answer))
    assert list(found) == ["a", "b"]
    assert found.result("a").partition_count == 1
    with pytest.raises(RemoteFatalError, match=r"topic b at node:\d+: a topic with that name"):
        found.results()
    assert len(at.asked) == 1


def test_several_errors_are_told_together() -> None:
    """The error has the sentences of all items, and each item's own error."""
    code = ErrorCode.POLICY_VIOLATION
    found, _ = on_stage(create, (ApiKey.CREATE_TOPICS, created(a=code, b=code)))
    with pytest.raises(ItemErrors, match=r"2 of 2 items failed: topic a .*; topic b") as caught:
        found.results()
    assert [*caught.value.errors] == ["a", "b"]


def test_only_items_with_a_retriable_error_are_asked_again() -> None:
    """The topic that was created is not in the second request."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.CREATE_TOPICS, created(a=0, b=ErrorCode.NOT_CONTROLLER), all_created)
        return create(at, admin)

    found, at = on_stage(scene)
    assert found.errors == {}
    assert [[each.name for each in body.topics] for _, body in at.asked] == [["a", "b"], ["b"]]


def test_a_quota_that_is_exceeded_is_waited_for() -> None:
    """THROTTLING_QUOTA_EXCEEDED is retried until the topic is created."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        refused = created(a=ErrorCode.THROTTLING_QUOTA_EXCEEDED, b=0)
        at.on(ApiKey.CREATE_TOPICS, refused, refused, all_created)
        return create(at, admin)

    found, at = on_stage(scene)
    assert found.errors == {}
    assert len(at.asked) == 3


def test_the_time_limit_of_the_call_ends_its_retries() -> None:
    """The item has an error with the limit and the last error; a TimeoutError too."""
    answer = created(a=0, b=ErrorCode.NOT_CONTROLLER)
    found, at = on_stage(create, (ApiKey.CREATE_TOPICS, answer), default_api_timeout_ms=5_000)
    error = found["b"]
    assert isinstance(error, OperationTimeoutError)
    assert isinstance(error, TimeoutError)
    assert "5000 ms" in str(error)
    assert "NOT_CONTROLLER" in str(error)
    assert found.result("a")
    assert at.outside.loop.time() <= 6


def test_a_call_may_have_its_own_time_limit() -> None:
    """`within` changes the limit of one call, and shares the connections."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.CREATE_TOPICS, created(a=ErrorCode.NOT_CONTROLLER))
        return await admin.within(1_000).create_topics([NewTopic("a")])

    found, at = on_stage(scene)
    assert isinstance(found["a"], OperationTimeoutError)
    assert at.outside.loop.time() < 3


def test_the_number_of_retries_can_be_limited() -> None:
    """With `retries=2` three requests are sent, and the last error is the outcome."""
    answer = created(a=ErrorCode.NOT_CONTROLLER, b=ErrorCode.NOT_CONTROLLER)
    found, at = on_stage(create, (ApiKey.CREATE_TOPICS, answer), retries=2)
    assert isinstance(found["a"], RemoteRetriableError)
    assert len(at.asked) == 3


def test_a_change_whose_answer_was_lost_is_not_repeated() -> None:
    """The topics may have been created: their outcome says so, and nothing is sent again."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.CREATE_TOPICS, all_created)
        at.cluster.script.add(ApiKey.CREATE_TOPICS, FaultKind.CUT_AFTER)
        return create(at, admin)

    found, at = on_stage(scene)
    assert isinstance(found["a"], UnknownOutcomeError)
    assert "look before you repeat it" in str(found["a"])
    assert len(at.asked) == 1


def test_a_change_that_timed_out_at_the_controller_is_not_repeated() -> None:
    """REQUEST_TIMED_OUT says that it may still be made."""
    answer = created(a=0, b=ErrorCode.REQUEST_TIMED_OUT)
    found, at = on_stage(create, (ApiKey.CREATE_TOPICS, answer))
    assert isinstance(found["b"], UnknownOutcomeError)
    assert len(at.asked) == 1


def test_a_repeatable_request_is_sent_again_after_a_lost_connection() -> None:
    """To delete records twice deletes nothing more."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DELETE_RECORDS, deleted)
        at.cluster.script.add(ApiKey.DELETE_RECORDS, FaultKind.CUT_AFTER)
        return delete(at, admin)

    found, at = on_stage(scene)
    assert found.results() == {T0: 5, T1: 6}
    assert len(at.asked) == 3


def test_a_request_without_an_answer_is_sent_again_after_its_timeout() -> None:
    """`request.timeout.ms` ends the wait for one answer, not the call."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DELETE_RECORDS, deleted)
        at.cluster.script.add(ApiKey.DELETE_RECORDS, FaultKind.LOSE_REPLY)
        return delete(at, admin)

    found, at = on_stage(scene, request_timeout_ms=2_000)
    assert found.results() == {T0: 5, T1: 6}
    assert at.outside.loop.time() < 5


def test_each_leader_is_asked_for_its_partitions() -> None:
    """One request for each leader, at the same time."""
    _, at = on_stage(delete, (ApiKey.DELETE_RECORDS, deleted))
    assert sorted(at.asked_nodes()) == [1, 2]


def test_a_leader_that_has_moved_is_found_again() -> None:
    """After NOT_LEADER_OR_FOLLOWER only that partition is asked for, at its new leader."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        def answer(node: ScriptedNode, body: Any) -> Message:
            at.cluster.move(T0, 2)
            return deleted(node, body, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

        at.on(ApiKey.DELETE_RECORDS, answer)
        return delete(at, admin)

    found, at = on_stage(scene)
    assert found.results() == {T0: 5, T1: 6}
    assert sorted(at.asked_nodes()) == [1, 2, 2]


def test_a_partition_that_does_not_exist_does_not_use_up_the_time_limit() -> None:
    """A broker may not have heard of it yet, so it is asked for some times."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DELETE_RECORDS, deleted)
        return await admin.delete_records({T1: 1, TopicPartition("gone", 0): 1})

    found, at = on_stage(scene)
    gone = found[TopicPartition("gone", 0)]
    assert isinstance(gone, RemoteRetriableError)
    assert gone.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found.result(T1) == 1
    assert at.outside.loop.time() < 10


def test_an_item_that_the_answer_lacks_has_an_error() -> None:
    """A broker that leaves an item out is told; the others have their results."""
    found, _ = on_stage(create, (ApiKey.CREATE_TOPICS, created(a=0, unasked=0)))
    assert isinstance(found["b"], IncompleteAnswerError)
    assert [*found] == ["a", "b"]


def test_an_item_that_cannot_be_encoded_does_not_harm_the_others() -> None:
    """A name that is longer than the protocol's texts fails alone."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[ApiKey.CREATE_TOPICS] = 4
        at.on(ApiKey.CREATE_TOPICS, all_created)
        return await admin.create_topics([NewTopic("a"), NewTopic("x" * 40_000)])

    found, _ = on_stage(scene)
    assert found.result("a")
    assert isinstance(found["x" * 40_000], UnsupportedBrokerError)


def test_an_api_that_the_broker_lacks_is_named_with_the_version_that_has_it() -> None:
    """One sentence: the API, and the first Apache Kafka with it."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[ApiKey.DESCRIBE_CLIENT_QUOTAS] = -1
        return await admin.describe_client_quotas()

    with pytest.raises(UnsupportedBrokerError, match=r"DescribeClientQuotas .* Kafka 2\.6 and"):
        on_stage(scene)


def test_a_special_timestamp_is_not_sent_to_a_broker_that_takes_it_for_a_time() -> None:
    """The maximal timestamp needs version 7 of ListOffsets; the other partition is answered."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[ApiKey.LIST_OFFSETS] = 6
        part = listing.ListOffsetsPartitionResponse(partition_index=1, offset=9)
        topic = listing.ListOffsetsTopicResponse(name="t", partitions=(part,))
        at.on(ApiKey.LIST_OFFSETS, listing.ListOffsetsResponse(topics=(topic,)))
        return await admin.list_offsets(
            {T0: SpecialTimestamp.MAX_TIMESTAMP, T1: SpecialTimestamp.LATEST}
        )

    found, at = on_stage(scene)
    assert isinstance(found[T0], UnsupportedBrokerError)
    assert found.result(T1).offset == 9
    assert len(at.asked) == 1


def test_no_broker_is_told_within_the_time_limit() -> None:
    """A cluster that cannot be reached ends a call with the reason."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.kill(1)
        at.cluster.kill(2)
        return await admin.describe_cluster()

    with pytest.raises(OperationTimeoutError, match="no connection"):
        on_stage(scene, default_api_timeout_ms=3_000)


def test_a_refused_login_is_not_retried() -> None:
    """The first call raises it."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        del at
        return await admin.describe_cluster()

    with pytest.raises(AuthenticationError, match="refused the login"):
        on_stage(
            scene, security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password="wrong"
        )


def test_a_closed_client_takes_no_call() -> None:
    """The error says that it was closed; closing twice is fine."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> None:
        del at
        await admin.close()
        await admin.close()
        await admin.list_topics()

    with pytest.raises(ClosedAdminError):
        on_stage(scene)


def test_a_text_is_no_list_of_items() -> None:
    """Its letters would be items."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> None:
        del at
        await admin.delete_topics("flights")

    with pytest.raises(TypeError, match="topics is a str; give a list"):
        on_stage(scene)


def test_time_limits_that_contradict_each_other_are_refused() -> None:
    """If only the limit of calls is given, it limits requests too."""
    with pytest.raises(ConfigError, match=r"at least request\.timeout\.ms"):
        AsyncAdmin(bootstrap_servers="b:1", default_api_timeout_ms=1_000, request_timeout_ms=2_000)
    with pytest.raises(ConfigError, match="retriez: no such setting"):
        AsyncAdmin({"retriez": 3}, bootstrap_servers="b:1")
