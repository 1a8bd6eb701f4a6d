"""Scenarios of Kafka's handlers of single admin requests: who is asked, and who is asked again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tailrace.client import RemoteFatalError, UnsupportedBrokerError
from tailrace.client.admin import AsyncAdmin, IncompleteAnswerError, NoSuchTransactionError
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import consumer_group_describe as consumers
from tailrace.protocol.messages import (
    delete_groups,
    end_txn,
    init_producer_id,
    list_groups,
    offset_commit,
    offset_fetch,
)
from tailrace.protocol.messages import delete_records as deleting
from tailrace.protocol.messages import describe_groups as classic
from tailrace.protocol.messages import describe_producers as producers
from tailrace.protocol.messages import describe_transactions as described
from tailrace.protocol.messages import list_offsets as listing
from tailrace.protocol.messages import list_transactions as listed
from tailrace.protocol.messages import write_txn_markers as markers
from tailrace.testing.cluster import ScriptedCluster, ScriptedNode
from tailrace.testing.script import FaultKind
from tests.unit.client.admin.stage import AdminStage, ask, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

Answers = Callable[[ScriptedNode, Any], Message]


def produced(**codes: int) -> Answers:
    """Leaders that know producer 9, with an open transaction since offset 20; `p0` has a code."""

    def answer(_: ScriptedNode, body: Any) -> Message:
        state = producers.ProducerState(
            producer_id=9, producer_epoch=4, coordinator_epoch=2, current_txn_start_offset=20
        )
        topics = []
        for topic in body.topics:
            parts = []
            for each in topic.partition_indexes:
                code = codes.pop(f"p{each}", 0)
                parts.append(
                    producers.PartitionResponse(
                        partition_index=each,
                        error_code=code,
                        active_producers=() if code else (state,),
                    )
                )
            topics.append(producers.TopicResponse(name=topic.name, partitions=tuple(parts)))
        return producers.DescribeProducersResponse(topics=tuple(topics))

    return answer


def marked(code: int, *, producer_id: int = 9) -> Message:
    """The outcome of a marker."""
    part = markers.WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = markers.WritableTxnMarkerTopicResult(name="t", partitions=(part,))
    result = markers.WritableTxnMarkerResult(producer_id=producer_id, topics=(topic,))
    return markers.WriteTxnMarkersResponse(markers=(result,))


def abort(*answers: Message) -> tuple[Any, AdminStage]:
    """Abort the transaction of T0 at a leader that answers so."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DESCRIBE_PRODUCERS, produced())
        at.on(ApiKey.WRITE_TXN_MARKERS, *answers)
        return await admin.abort_transaction(T0, 20)

    return on_stage(scene)


def test_a_marker_is_written_again_after_retriable_errors() -> None:
    """At the leader, which is looked up anew; the marker is the same."""
    codes = (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NONE,
    )
    found, at = abort(*map(marked, codes))
    assert found.producer_id == 9
    written = [body.markers for _, body in at.asked if hasattr(body, "markers")]
    assert len(written) == 4
    assert len(set(written)) == 1
    assert written[0][0].coordinator_epoch == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_marker_that_is_refused_is_not_written_again(code: ErrorCode) -> None:
    """The refusal names the partition."""
    with pytest.raises(RemoteFatalError, match=rf"marker for t-0 at .*{code.name}"):
        abort(marked(code))


@pytest.mark.parametrize("answer", [markers.WriteTxnMarkersResponse(), marked(0, producer_id=8)])
def test_an_answer_without_the_marker_is_told(answer: Message) -> None:
    """Neither an empty answer nor one about another producer says that it was written."""
    with pytest.raises(IncompleteAnswerError, match="the marker for t-0"):
        abort(answer)


LISTS = pytest.mark.parametrize(
    ("key", "response", "method"),
    [
        (ApiKey.LIST_GROUPS, list_groups.ListGroupsResponse, "list_groups"),
        (ApiKey.LIST_TRANSACTIONS, listed.ListTransactionsResponse, "list_transactions"),
    ],
)


@LISTS
def test_a_list_without_the_part_of_one_broker_is_no_list(
    key: ApiKey, response: type[Any], method: str
) -> None:
    """The refusal of one broker is the error of the call."""

    def answer(node: ScriptedNode, _: object) -> Message:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if node.id == 2 else 0
        told: Message = response(error_code=code)
        return told

    with pytest.raises(RemoteFatalError, match="CLUSTER_AUTHORIZATION_FAILED"):
        on_stage(ask(method), (key, answer))


@LISTS
def test_a_list_is_asked_for_again_of_the_broker_that_broke_off(
    key: ApiKey, response: type[Any], method: str
) -> None:
    """The others are not asked twice."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(key, response())
        at.cluster.script.add(key, FaultKind.CUT)
        return await getattr(admin, method)()

    found, at = on_stage(scene)
    assert found == []
    assert sorted(at.asked_nodes()) == [1, 2]
    assert at.cluster.count(key) == 3


def test_transactions_are_asked_for_again_while_a_coordinator_loads() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS of one broker is waited for."""
    codes: dict[int, list[int]] = {
        1: [0],
        2: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0],
    }

    def answer(node: ScriptedNode, _: object) -> Message:
        return listed.ListTransactionsResponse(error_code=codes[node.id].pop(0))

    found, at = on_stage(ask("list_transactions"), (ApiKey.LIST_TRANSACTIONS, answer))
    assert found == []
    assert sorted(at.asked_nodes()) == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, ((), (), -1)),
        ({"producer_ids": [7]}, ((), (7,), -1)),
        ({"states": ["Ongoing"]}, (("Ongoing",), (), -1)),
        ({"open_for_ms": 5}, ((), (), 5)),
    ],
)
def test_transactions_are_listed_by_filters(options: dict[str, Any], fields: object) -> None:
    """Every broker gets the filters, and no others."""
    _, at = on_stage(
        ask("list_transactions", **options),
        (ApiKey.LIST_TRANSACTIONS, listed.ListTransactionsResponse()),
    )
    assert len(at.asked) == 2
    for _, body in at.asked:
        assert (body.state_filters, body.producer_id_filters, body.duration_filter) == fields


def test_each_committed_offset_has_its_own_outcome() -> None:
    """A partition that is refused does not harm the other, and is not asked for again."""
    part = offset_commit.OffsetCommitResponsePartition
    topic = offset_commit.OffsetCommitResponseTopic(
        name="t",
        partitions=(
            part(partition_index=0),
            part(partition_index=1, error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ),
    )
    answer = offset_commit.OffsetCommitResponse(topics=(topic,))
    found, at = on_stage(
        ask("alter_group_offsets", "g", {T0: 1, T1: 2}), (ApiKey.OFFSET_COMMIT, answer)
    )
    assert found.succeeded == {T0: None}
    assert "offset of group 'g' for t-1" in str(found[T1])
    assert len(at.asked) == 1


def test_a_partition_whose_offset_is_refused_does_not_harm_the_others() -> None:
    """The offsets of a group are listed with an error for it."""
    part = offset_fetch.OffsetFetchResponsePartitions
    topic = offset_fetch.OffsetFetchResponseTopics(
        name="t",
        partitions=(
            part(partition_index=0, committed_offset=4),
            part(partition_index=1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ),
    )
    group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=(topic,))
    found, _ = on_stage(
        ask("list_group_offsets", "g"),
        (ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchResponse(groups=(group,))),
    )
    assert found.result(T0).offset == 4
    assert isinstance(found[T1], RemoteFatalError)


def dropped(_: ScriptedNode, body: Any) -> Message:
    """The answer of a coordinator that deletes all groups."""
    result = delete_groups.DeletableGroupResult
    return delete_groups.DeleteGroupsResponse(
        results=tuple(result(group_id=each) for each in body.groups_names)
    )


def test_coordinators_of_several_groups_are_found_by_one_request() -> None:
    """One FindCoordinator has all keys (KIP-699), and the groups of a broker go in one request."""
    found, at = on_stage(ask("delete_groups", ["a", "b"]), (ApiKey.DELETE_GROUPS, dropped))
    assert found.errors == {}
    assert at.cluster.count(ApiKey.FIND_COORDINATOR) == 1
    assert [body.groups_names for _, body in at.asked] == [("a", "b")]


def test_a_classic_group_is_asked_for_again_while_it_is_loaded() -> None:
    """The error of one group is retried as that of all would be."""
    unknown = consumers.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    loading = classic.DescribedGroup(
        group_id="g", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    stable = classic.DescribedGroup(group_id="g", group_state="Stable")

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            consumers.ConsumerGroupDescribeResponse(groups=(unknown,)),
        )
        at.on(
            ApiKey.DESCRIBE_GROUPS,
            classic.DescribeGroupsResponse(groups=(loading,)),
            classic.DescribeGroupsResponse(groups=(stable,)),
        )
        return (await admin.describe_groups(["g"])).result("g")

    found, at = on_stage(scene)
    assert found.state == "Stable"
    assert len(at.asked) == 3


@pytest.mark.parametrize("is_classic", [False, True])
def test_a_group_that_may_not_be_described_has_that_error(*, is_classic: bool) -> None:
    """Under both protocols; a refusal of the first is not taken for a classic group."""
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_classic else refused
    group = consumers.DescribedGroup(group_id="g", error_code=code)
    older = classic.DescribedGroup(group_id="g", error_code=refused)
    found, at = on_stage(
        ask("describe_groups", ["g"]),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, consumers.ConsumerGroupDescribeResponse(groups=(group,))),
        (ApiKey.DESCRIBE_GROUPS, classic.DescribeGroupsResponse(groups=(older,))),
    )
    with pytest.raises(RemoteFatalError, match=r"group g at .*GROUP_AUTHORIZATION_FAILED"):
        found.result("g")
    assert len(at.asked) == 1 + is_classic


def test_producers_are_described_by_the_leaders() -> None:
    """Each leader is asked for its partitions, and tells ids, epochs and open transactions."""
    found, at = on_stage(
        ask("describe_producers", [T0, T1]), (ApiKey.DESCRIBE_PRODUCERS, produced())
    )
    (state,) = found.result(T1)
    assert (state.partition, state.producer_id, state.producer_epoch) == (T1, 9, 4)
    assert (state.coordinator_epoch, state.transaction_start_offset) == (2, 20)
    assert sorted(at.asked_nodes()) == [1, 2]


def test_producers_are_asked_for_again_where_the_leader_has_moved() -> None:
    """NOT_LEADER_OR_FOLLOWER and a lost request have the partition asked for again, alone."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DESCRIBE_PRODUCERS, produced(p0=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return (await admin.describe_producers([T0, T1])).results()

    found, at = on_stage(scene)
    assert [*found] == [T0, T1]
    assert sorted(at.asked_nodes()) == [1, 1, 2]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_producers_that_may_not_be_described_have_that_error(code: ErrorCode) -> None:
    """The other partition has its producers."""
    found, at = on_stage(
        ask("describe_producers", [T0, T1]), (ApiKey.DESCRIBE_PRODUCERS, produced(p0=code))
    )
    assert [*found.errors] == [T0]
    assert code.name in str(found[T0])
    assert len(at.asked) == 2


def test_transactions_have_their_own_outcomes() -> None:
    """One that is unknown, one that is refused, one that is loaded later, and one that is open."""
    codes: dict[str, list[int]] = {
        "gone": [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND],
        "secret": [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED],
        "late": [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, 0],
        "open": [0],
    }

    def answer(_: ScriptedNode, body: Any) -> Message:
        topic = described.TopicData(topic="t", partitions=(1, 0))
        return described.DescribeTransactionsResponse(
            transaction_states=tuple(
                described.TransactionState(
                    transactional_id=each, error_code=codes[each].pop(0), producer_id=9,
                    transaction_state="Ongoing", topics=(topic,),
                )
                for each in body.transactional_ids
            )
        )  # fmt: skip

    found, at = on_stage(
        ask("describe_transactions", [*codes]), (ApiKey.DESCRIBE_TRANSACTIONS, answer)
    )
    assert isinstance(found["gone"], NoSuchTransactionError)
    assert isinstance(found["secret"], RemoteFatalError)
    assert found.result("open").partitions == found.result("late").partitions == (T0, T1)
    assert [body.transactional_ids for _, body in at.asked][1:] == [("late",), ("late",)]


def test_a_producer_is_fenced_after_retriable_errors_and_not_after_a_refusal() -> None:
    """CONCURRENT_TRANSACTIONS and a coordinator that loads are waited for."""
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0]

    def answer(*_: object) -> Message:
        return init_producer_id.InitProducerIdResponse(
            error_code=codes.pop(0), producer_id=9, producer_epoch=3
        )

    found, at = on_stage(ask("fence_producers", ["x"]), (ApiKey.INIT_PRODUCER_ID, answer))
    assert found.result("x") == (9, 3)
    assert len(at.asked) == 3
    codes.append(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    found, at = on_stage(ask("fence_producers", ["x"]), (ApiKey.INIT_PRODUCER_ID, answer))
    assert isinstance(found["x"], RemoteFatalError)
    assert len(at.asked) == 1


def test_fencing_leaves_followers_the_time_to_copy() -> None:
    """Kafka's coordinator waits for its followers as long as the transaction timeout, no longer."""
    answer = init_producer_id.InitProducerIdResponse(producer_id=9, producer_epoch=3)
    _, at = on_stage(ask("fence_producers", ["x"]), (ApiKey.INIT_PRODUCER_ID, answer))
    [(_, request)] = at.asked
    assert isinstance(request, init_producer_id.InitProducerIdRequest)
    assert request.transaction_timeout_ms >= 30_000


def test_transactions_end_by_the_version_that_they_began_with() -> None:
    """Retriable errors are waited for; one that is not open any more is an error of its own."""
    old, new, gone = (
        PreparedTransaction("old", 7, 1),
        PreparedTransaction("new", 8, 2, 2),
        PreparedTransaction("gone", 9, 3),
    )
    codes: dict[str, list[int]] = {
        "old": [ErrorCode.CONCURRENT_TRANSACTIONS, 0],
        "new": [0],
        "gone": [ErrorCode.INVALID_PRODUCER_EPOCH],
    }

    versions = {}

    def answer(node: ScriptedNode, body: Any) -> Message:
        versions[body.transactional_id] = node.cluster.asked_version
        return end_txn.EndTxnResponse(error_code=codes[body.transactional_id].pop(0))

    found, at = on_stage(
        ask("end_transactions", [old, new, gone], commit=True), (ApiKey.END_TXN, answer)
    )
    assert found.succeeded == {old: None, new: None}
    error = found.errors[gone]
    assert isinstance(error, RemoteFatalError)
    assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(at.asked) == 4
    assert {(body.producer_id, body.producer_epoch, body.committed) for _, body in at.asked} == {
        (7, 1, True), (8, 2, True), (9, 3, True),
    }  # fmt: skip
    assert versions == {"old": 4, "gone": 4, "new": 5}


def told_offsets(_: ScriptedNode, body: Any, *, codes: dict[int, list[int]]) -> Message:
    """The answer of a leader to ListOffsets, with the next code of each partition."""
    return listing.ListOffsetsResponse(
        topics=tuple(
            listing.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    listing.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        offset=5,
                        error_code=(codes.get(each.partition_index) or [0]).pop(0),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def test_only_the_partition_whose_offset_timed_out_is_asked_for_again() -> None:
    """REQUEST_TIMED_OUT of one partition is retried: a question changes nothing."""
    codes = {0: [int(ErrorCode.REQUEST_TIMED_OUT)]}
    found, at = on_stage(
        ask("list_offsets", {T0: SpecialTimestamp.LATEST, T1: SpecialTimestamp.LATEST}),
        (ApiKey.LIST_OFFSETS, lambda node, body: told_offsets(node, body, codes=codes)),
    )
    assert found.errors == {}
    assert sorted(at.asked_nodes()) == [1, 1, 2]


def test_offsets_are_listed_by_topic_with_the_isolation_level() -> None:
    """The partitions of a leader are in one request, under their topics."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.create_topic("u", partitions=1)
        at.on(ApiKey.LIST_OFFSETS, lambda node, body: told_offsets(node, body, codes={}))
        places = dict.fromkeys((T0, T1, TopicPartition("u", 0)), SpecialTimestamp.LATEST)
        return await admin.list_offsets(places, isolation=IsolationLevel.READ_COMMITTED)

    found, at = on_stage(scene)
    assert found.errors == {}
    assert {body.isolation_level for _, body in at.asked} == {1}
    assert sorted([each.name for each in body.topics] for _, body in at.asked) == [
        ["t"],
        ["t", "u"],
    ]


def deleted(_: ScriptedNode, body: Any, *, codes: dict[int, list[int]]) -> Message:
    """The answer of a leader to DeleteRecords, with the next code of each partition."""
    result = deleting.DeleteRecordsPartitionResult
    return deleting.DeleteRecordsResponse(
        topics=tuple(
            deleting.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    result(
                        partition_index=each.partition_index,
                        low_watermark=each.offset,
                        error_code=(codes.get(each.partition_index) or [0]).pop(0),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def test_only_the_partition_whose_deletion_timed_out_is_asked_for_again() -> None:
    """REQUEST_TIMED_OUT is retried: to delete the same records twice deletes nothing more."""
    codes = {1: [int(ErrorCode.REQUEST_TIMED_OUT)]}
    found, at = on_stage(
        ask("delete_records", {T0: 1, T1: 2}),
        (ApiKey.DELETE_RECORDS, lambda node, body: deleted(node, body, codes=codes)),
    )
    assert found.results() == {T0: 1, T1: 2}
    assert sorted(at.asked_nodes()) == [1, 2, 2]


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_partition_whose_records_may_not_be_deleted_does_not_harm_the_others(
    code: ErrorCode,
) -> None:
    """It has its error, and the other one its new start."""
    codes = {0: [int(code)]}
    found, at = on_stage(
        ask("delete_records", {T0: 1, T1: 2}),
        (ApiKey.DELETE_RECORDS, lambda node, body: deleted(node, body, codes=codes)),
    )
    assert found.succeeded == {T1: 2}
    assert code.name in str(found[T0])
    assert len(at.asked) == 2


@pytest.mark.parametrize(
    ("key", "answer", "method"),
    [
        (ApiKey.DELETE_RECORDS, deleting.DeleteRecordsResponse(), "delete_records"),
        (ApiKey.LIST_OFFSETS, listing.ListOffsetsResponse(), "list_offsets"),
    ],
)
def test_a_partition_that_the_leader_leaves_out_has_an_error(
    key: ApiKey, answer: Message, method: str
) -> None:
    """It is not asked for again: the leader has answered."""
    found, at = on_stage(ask(method, {T0: 1}), (key, answer))
    with pytest.raises(IncompleteAnswerError, match=r"partition t-0: node:.* left it out of its"):
        found.result(T0)
    assert len(at.asked) == 1


def test_a_request_tells_the_broker_the_time_that_is_left() -> None:
    """The broker need not work for longer than the call lasts; a retry has less."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        codes = {0: [int(ErrorCode.REQUEST_TIMED_OUT)]}
        at.on(ApiKey.LIST_OFFSETS, lambda node, body: told_offsets(node, body, codes=codes))
        return await admin.within(5_000).list_offsets({T0: SpecialTimestamp.LATEST})

    _, at = on_stage(scene)
    first, second = (body.timeout_ms for _, body in at.asked)
    assert 4_000 < second < first <= 5_000


def test_a_partition_without_a_leader_is_waited_for() -> None:
    """The topic's metadata is asked for until it names one."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        whole = at.cluster.answers[ApiKey.METADATA]
        left = [1, 1]

        def answer(cluster: ScriptedCluster, node: ScriptedNode, body: Any) -> Message | None:
            told: Any = whole(cluster, node, body)
            if not left or not told.topics:
                return told  # type: ignore[no-any-return]
            left.pop()
            topics = tuple(
                replace(
                    topic,
                    partitions=tuple(replace(each, leader_id=-1) for each in topic.partitions),
                )
                for topic in told.topics
            )
            return replace(told, topics=topics)  # type: ignore[no-any-return]

        at.cluster.answers[ApiKey.METADATA] = answer
        at.on(ApiKey.LIST_OFFSETS, lambda node, body: told_offsets(node, body, codes={}))
        return await admin.list_offsets({T0: SpecialTimestamp.LATEST})

    found, at = on_stage(scene)
    assert found.result(T0).offset == 5
    assert at.cluster.count(ApiKey.METADATA) == 3


def test_a_group_that_no_request_can_carry_does_not_harm_the_others() -> None:
    """A name that is longer than the protocol's texts fails alone."""
    found, _ = on_stage(ask("delete_groups", ["a", "x" * 70_000]), (ApiKey.DELETE_GROUPS, dropped))
    assert found.succeeded == {"a": None}
    assert isinstance(found["x" * 70_000], UnsupportedBrokerError)


def test_a_topic_that_no_request_can_carry_does_not_harm_the_others() -> None:
    """The leaders of the others are found; its name fails alone."""
    long = TopicPartition("x" * 70_000, 0)
    found, _ = on_stage(
        ask("delete_records", {T0: 1, long: 1}),
        (ApiKey.DELETE_RECORDS, lambda node, body: deleted(node, body, codes={})),
    )
    assert found.succeeded == {T0: 1}
    assert isinstance(found[long], UnsupportedBrokerError)
