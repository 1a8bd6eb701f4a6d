"""Groups, offsets, topics and transactions of a cluster, asked for through its answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tailrace.client import ClusterReader, RemoteFatalError, RemoteRetriableError
from tailrace.client.admin.group_offsets import (
    alter_group_offsets,
    delete_group_offsets,
    list_group_offsets,
)
from tailrace.client.admin.groups import (
    NoSuchGroupError,
    delete_groups,
    describe_groups,
    list_groups,
)
from tailrace.client.admin.offsets import (
    CommittedOffset,
    FoundOffset,
    LogRange,
    OffsetAt,
    Place,
    find_offsets,
)
from tailrace.client.admin.transactions import (
    NoSuchTransactionError,
    abort_transaction,
    describe_transactions,
    find_hanging_transactions,
    list_transactions,
)
from tailrace.client.errors import NoSuchPartitionError, NoSuchTopicError
from tailrace.client.topics import find_or_create_topic, find_partitions, led_partitions
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.codec import encode
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import consumer_group_describe as consumers
from tailrace.protocol.messages import describe_groups as classic
from tailrace.protocol.messages import describe_producers as producers
from tailrace.protocol.messages import describe_transactions as described
from tailrace.protocol.messages import list_transactions as listed
from tailrace.protocol.messages import offset_commit, offset_delete, offset_fetch
from tailrace.protocol.messages import write_txn_markers as markers
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from tailrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tailrace.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tailrace.testing.cluster import ScriptedNode
from tailrace.testing.script import FaultKind
from tests.unit.client.reading import FLIGHTS, ReadableCluster, reader, waiting_world

HOUR_MS = 3_600_000


class Stage:
    """A cluster whose nodes answer as a test says, and the requests that they got."""

    def __init__(self, cluster: ReadableCluster, client: ClusterReader) -> None:
        self.cluster = cluster
        self.client = client
        self.asked: list[tuple[int, Any]] = []
        """Node and request, of all requests with an answer from `on`."""

    def on(self, key: ApiKey, answer: Callable[[ScriptedNode, Any], Message]) -> None:
        """Have an API answered by a function of node and request."""

        def answered(_: object, node: ScriptedNode, body: Any) -> Message:
            self.asked.append((node.id, body))
            return answer(node, body)

        self.cluster.answers[key] = answered


@contextmanager
def stage(*, nodes: int = 2) -> Iterator[Stage]:
    """A cluster with the topic `flights` of one partition, and a client."""
    with waiting_world() as (outside, network):
        cluster = ReadableCluster(outside, nodes=nodes)
        cluster.start()
        client = reader(outside, network, cluster.bootstrap)
        yield Stage(cluster, client)
        client.close()


def no_such_consumers(_: ScriptedNode, body: Any) -> Message:
    """The answer of ConsumerGroupDescribe to a group of the classic protocol."""
    found = consumers.DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id=body.group_ids[0]
    )
    return consumers.ConsumerGroupDescribeResponse(groups=(found,))


def assignment(*numbers: int) -> bytes:
    """Partitions of `flights`, as a classic group's leader encodes them."""
    out = bytearray(b"\0\1")
    topic = AssignedTopic(topic="flights", partitions=numbers)
    encode(ConsumerProtocolAssignment(assigned_partitions=(topic,)), 1, out)
    return bytes(out)


def classic_answer(state: str, *assignments: bytes) -> classic.DescribeGroupsResponse:
    """A group of consumers with a member for each assignment."""
    members = tuple(
        classic.DescribedGroupMember(
            member_id=f"m{number}", client_id="c", client_host="/h", member_assignment=each
        )
        for number, each in enumerate(assignments)
    )
    group = classic.DescribedGroup(
        group_id="g", group_state=state, protocol_type="consumer", protocol_data="range",
        members=members,
    )  # fmt: skip
    return classic.DescribeGroupsResponse(groups=(group,))


def test_groups_of_all_brokers_are_listed() -> None:
    """Each broker knows those that it coordinates; the list is ordered."""
    with stage() as at:
        names = {1: "z", 2: "a"}
        at.on(
            ApiKey.LIST_GROUPS,
            lambda node, _: ListGroupsResponse(
                groups=(
                    ListedGroup(
                        group_id=names[node.id], protocol_type="consumer", group_state="Empty",
                        group_type="Classic",
                    ),
                )
            ),
        )  # fmt: skip
        found = at.client.do(list_groups)
        assert [(each.group, each.type, each.state) for each in found] == [
            ("a", "classic", "Empty"),
            ("z", "classic", "Empty"),
        ]


def test_a_group_of_the_consumer_protocol_is_described() -> None:
    """Members have the partitions that they own now."""
    with stage() as at:
        owned = consumers.TopicPartitions(topic_name="flights", partitions=(1, 0))
        member = consumers.Member(
            member_id="m", client_id="c", client_host="/h", member_epoch=3,
            assignment=consumers.Assignment(topic_partitions=(owned,)),
            target_assignment=consumers.Assignment(),
        )  # fmt: skip
        group = consumers.DescribedGroup(
            group_id="g", group_state="Stable", assignor_name="uniform", members=(member,)
        )
        answer = consumers.ConsumerGroupDescribeResponse(groups=(group,))
        at.on(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda *_: answer)
        found = at.client.do(describe_groups, ["g"]).result("g")
        assert (found.type, found.state, found.assignor) == ("consumer", "Stable", "uniform")
        assert found.members[0].partitions == (FLIGHTS, TopicPartition("flights", 1))


def test_a_group_of_the_classic_protocol_is_described() -> None:
    """Members have the partitions that the group's leader gave them; one may have none yet."""
    with stage() as at:
        at.on(ApiKey.CONSUMER_GROUP_DESCRIBE, no_such_consumers)
        answer = classic_answer("Stable", assignment(0), b"")
        at.on(ApiKey.DESCRIBE_GROUPS, lambda *_: answer)
        found = at.client.do(describe_groups, ["g"]).result("g")
        assert (found.type, found.assignor) == ("classic", "range")
        assert [each.partitions for each in found.members] == [(FLIGHTS,), ()]


def test_a_broker_without_the_consumer_protocol_has_classic_groups() -> None:
    """A broker that does not take ConsumerGroupDescribe is asked with DescribeGroups alone."""
    with stage() as at:
        at.cluster.versions[ApiKey.CONSUMER_GROUP_DESCRIBE] = -1
        at.on(ApiKey.DESCRIBE_GROUPS, lambda *_: classic_answer("Empty"))
        assert at.client.do(describe_groups, ["g"]).result("g").state == "Empty"


def test_a_dead_group_does_not_exist() -> None:
    """Brokers before Kafka 4 call a group that they do not know Dead."""
    with stage() as at:
        at.on(ApiKey.CONSUMER_GROUP_DESCRIBE, no_such_consumers)
        at.on(ApiKey.DESCRIBE_GROUPS, lambda *_: classic_answer("Dead"))
        with pytest.raises(NoSuchGroupError, match="'g' does not exist"):
            at.client.do(describe_groups, ["g"]).result("g")


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    """After NOT_COORDINATOR the question goes to the new one."""
    with stage() as at:

        def answer(node: ScriptedNode, _: Any) -> Message:
            error = ErrorCode.NOT_COORDINATOR
            if node.id == 2:
                error = ErrorCode.NONE
            at.cluster.coordinator_id = 2
            result = DeletableGroupResult(group_id="g", error_code=error)
            return DeleteGroupsResponse(results=(result,))

        at.on(ApiKey.DELETE_GROUPS, answer)
        at.client.do(delete_groups, ["g"]).results()
        assert [node for node, _ in at.asked] == [1, 2]


def test_a_group_with_members_is_not_deleted() -> None:
    """The coordinator's refusal is the error."""
    with stage() as at:
        result = DeletableGroupResult(group_id="g", error_code=ErrorCode.NON_EMPTY_GROUP)
        answer = DeleteGroupsResponse(results=(result,))
        at.on(ApiKey.DELETE_GROUPS, lambda *_: answer)
        with pytest.raises(RemoteFatalError) as raised:
            at.client.do(delete_groups, ["g"]).results()
        assert raised.value.code == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("version", [7, 9])
def test_committed_offsets_are_read_in_both_forms(version: int) -> None:
    """Until version 7 the answer is about one group, later about several; -1 is no offset."""
    with stage() as at:
        at.cluster.versions[ApiKey.OFFSET_FETCH] = version
        fields = [
            {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 2},
            {"partition_index": 1, "committed_offset": -1},
        ]
        old = [offset_fetch.OffsetFetchResponsePartition(**each, metadata="") for each in fields]
        new = [offset_fetch.OffsetFetchResponsePartitions(**each, metadata="") for each in fields]
        topic = offset_fetch.OffsetFetchResponseTopic(name="flights", partitions=tuple(old))
        topics = offset_fetch.OffsetFetchResponseTopics(name="flights", partitions=tuple(new))
        group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=(topics,))
        answer = offset_fetch.OffsetFetchResponse(topics=(topic,), groups=(group,))
        at.on(ApiKey.OFFSET_FETCH, lambda *_: answer)
        assert at.client.do(list_group_offsets, "g").results() == {
            FLIGHTS: CommittedOffset(offset=7, leader_epoch=2)
        }


def test_offsets_are_committed_without_a_member() -> None:
    """The request names no member and no generation, so a group with members refuses it."""
    with stage() as at:

        def answer(*_: object) -> Message:
            part = offset_commit.OffsetCommitResponsePartition(
                partition_index=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID
            )
            topic = offset_commit.OffsetCommitResponseTopic(name="flights", partitions=(part,))
            return offset_commit.OffsetCommitResponse(topics=(topic,))

        at.on(ApiKey.OFFSET_COMMIT, answer)
        with pytest.raises(RemoteFatalError, match="for flights-0") as raised:
            at.client.do(alter_group_offsets, "g", {FLIGHTS: CommittedOffset(offset=5)}).results()
        assert raised.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        (_, request) = at.asked[0]
        assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
        assert request.topics[0].partitions[0].committed_offset == 5


def test_offsets_that_members_read_are_not_deleted() -> None:
    """The coordinator's refusal of one partition is the error."""
    with stage() as at:
        part = offset_delete.OffsetDeleteResponsePartition(
            partition_index=0, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        )
        topic = offset_delete.OffsetDeleteResponseTopic(name="flights", partitions=(part,))
        answer = offset_delete.OffsetDeleteResponse(topics=(topic,))
        at.on(ApiKey.OFFSET_DELETE, lambda *_: answer)
        with pytest.raises(RemoteFatalError, match="flights-0"):
            at.client.do(delete_group_offsets, "g", [FLIGHTS]).results()


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (OffsetAt(Place.EARLIEST), 0),
        (OffsetAt(Place.LATEST), 30),
        (OffsetAt(Place.OFFSET, 99), 99),
        (OffsetAt(Place.TIME, 12), 12),
        (OffsetAt(Place.FROM_LATEST, -40), -10),
        (OffsetAt(Place.FROM_COMMITTED, 3), 8),
    ],
)
def test_places_become_offsets(place: OffsetAt, offset: int) -> None:
    """Each kind of place in a log of 30 records, of which 5 are committed."""
    with stage() as at:
        at.cluster.flights.write(30)
        committed = {FLIGHTS: CommittedOffset(offset=5)}
        found = at.client.do(find_offsets, [FLIGHTS], at=place, committed=committed)
        assert found == {FLIGHTS: FoundOffset(offset, LogRange(0, 30))}
        assert found.result(FLIGHTS).within == min(max(offset, 0), 30)


def test_a_partition_without_a_committed_offset_is_not_shifted() -> None:
    """There is nothing to count from."""
    with stage() as at:
        assert at.client.do(find_offsets, [FLIGHTS], at=OffsetAt(Place.FROM_COMMITTED, 3)) == {}


def test_a_topic_that_does_not_exist_is_told_with_those_that_do() -> None:
    """Also if a broker might have created it, and for a partition that is not there."""
    with stage() as at:
        with pytest.raises(NoSuchTopicError, match="'fligths' does not exist; there are: flights"):
            find_partitions(at.client, "fligths")
        with pytest.raises(NoSuchTopicError):
            find_or_create_topic(at.client, "fligths")
        with pytest.raises(NoSuchPartitionError, match="no partition 3; it has 1, number 0"):
            find_partitions(at.client, "flights", [3])


def test_partitions_without_a_leader_are_told_apart() -> None:
    """So that a tool can show the others."""
    with stage() as at:
        at.cluster.create_topic("flights", partitions=2)
        at.cluster.move(FLIGHTS, -1)
        second = TopicPartition("flights", 1)
        gone = TopicPartition("gone", 0)
        assert led_partitions(at.client, [FLIGHTS, second, gone]) == {second}


def state(producer_id: int, *, start: int, at_ms: int = 0) -> producers.ProducerState:
    """A producer of a partition, with a transaction since an offset."""
    return producers.ProducerState(
        producer_id=producer_id, producer_epoch=4, last_timestamp=at_ms, coordinator_epoch=-1,
        current_txn_start_offset=start,
    )  # fmt: skip


def with_producers(at: Stage, *states: producers.ProducerState) -> None:
    """Have the leader of `flights-0` know these producers."""
    part = producers.PartitionResponse(partition_index=0, active_producers=states)
    topic = producers.TopicResponse(name="flights", partitions=(part,))
    answer = producers.DescribeProducersResponse(topics=(topic,))
    at.on(ApiKey.DESCRIBE_PRODUCERS, lambda *_: answer)


def with_transactions(at: Stage, **partitions: int) -> None:
    """Have node 1 coordinate a transaction for each producer `p1`, ... over one partition."""

    def listing(node: ScriptedNode, body: Any) -> Message:
        ids = [each for each in partitions if int(each[1:]) in body.producer_id_filters]
        states = tuple(
            listed.TransactionState(
                transactional_id=each, producer_id=int(each[1:]), transaction_state="Ongoing"
            )
            for each in ids
            if node.id == 1
        )
        return listed.ListTransactionsResponse(transaction_states=states)

    def description(_: ScriptedNode, body: Any) -> Message:
        found = tuple(
            described.TransactionState(
                transactional_id=name, transaction_state="Ongoing", producer_id=int(name[1:]),
                transaction_start_time_ms=5,
                topics=(described.TopicData(topic="flights", partitions=(partitions[name],)),),
            )
            for name in body.transactional_ids
        )  # fmt: skip
        return described.DescribeTransactionsResponse(transaction_states=found)

    at.on(ApiKey.LIST_TRANSACTIONS, listing)
    at.on(ApiKey.DESCRIBE_TRANSACTIONS, description)


def test_a_transaction_hangs_if_its_coordinator_does_not_know_it() -> None:
    """Not if the coordinator has it with that partition, nor if it is young or none is open."""
    with stage() as at:
        young = 10 * HOUR_MS - 1
        with_producers(
            at, state(1, start=10), state(2, start=20), state(3, start=30),
            state(4, start=40, at_ms=young), state(5, start=-1),
        )  # fmt: skip
        with_transactions(at, p1=0, p2=7)
        found = at.client.do(find_hanging_transactions, [FLIGHTS], now_ms=10 * HOUR_MS)
        assert [each.transaction_start_offset for each in found] == [20, 30]


def test_a_transaction_that_another_broker_may_know_is_not_said_to_hang() -> None:
    """If not every broker is asked; that of a producer which one of them knows is."""
    with stage() as at:
        with_producers(at, state(1, start=10), state(2, start=20))
        with_transactions(at, p1=7)
        for numbers, hanging in ([1], [10]), ([2], []), (None, [10, 20]):
            found = at.client.do(
                find_hanging_transactions, [FLIGHTS], now_ms=10 * HOUR_MS, brokers=numbers
            )
            assert [each.transaction_start_offset for each in found] == hanging


def test_no_coordinator_is_asked_where_no_transaction_is_old() -> None:
    """The partitions' leaders alone tell that nothing hangs."""
    with stage() as at:
        with_producers(at, state(1, start=10, at_ms=HOUR_MS))
        assert at.client.do(find_hanging_transactions, [FLIGHTS], now_ms=HOUR_MS) == []
        assert len(at.asked) == 1


def test_an_abort_writes_a_marker_for_the_producer_of_the_transaction() -> None:
    """It has the producer's id and epoch, and goes to the leader of the partition alone."""
    with stage() as at:
        with_producers(at, state(8, start=10), state(9, start=20))

        def answer(*_: object) -> Message:
            part = markers.WritableTxnMarkerPartitionResult(partition_index=0)
            topic = markers.WritableTxnMarkerTopicResult(name="flights", partitions=(part,))
            result = markers.WritableTxnMarkerResult(producer_id=9, topics=(topic,))
            return markers.WriteTxnMarkersResponse(markers=(result,))

        at.on(ApiKey.WRITE_TXN_MARKERS, answer)
        assert at.client.do(abort_transaction, FLIGHTS, 20).producer_id == 9
        ((_, request),) = [each for each in at.asked if hasattr(each[1], "markers")]
        (marker,) = request.markers
        written = (marker.producer_id, marker.producer_epoch, marker.transaction_result)
        assert written == (9, 4, False)
        assert marker.coordinator_epoch == 0


def test_an_abort_needs_a_transaction_that_begins_there() -> None:
    """The error says where those that are open begin; nothing is written."""
    with stage() as at:
        with_producers(at, state(9, start=20), state(8, start=10))
        with pytest.raises(NoSuchTransactionError, match="that are open begin at 10, 20"):
            at.client.do(abort_transaction, FLIGHTS, 15)
        with_producers(at)
        with pytest.raises(NoSuchTransactionError, match="none is open"):
            at.client.do(abort_transaction, FLIGHTS, 15)


def test_an_unknown_transactional_id_is_told() -> None:
    """The coordinator's error becomes one about the id."""
    with stage() as at:
        found = described.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id="x"
        )
        answer = described.DescribeTransactionsResponse(transaction_states=(found,))
        at.on(ApiKey.DESCRIBE_TRANSACTIONS, lambda *_: answer)
        with pytest.raises(NoSuchTransactionError, match="'x' does not exist"):
            at.client.do(describe_transactions, ["x"]).result("x")


def test_a_cluster_in_trouble_is_asked_again_and_then_given_up() -> None:
    """Retriable errors are retried for some seconds; the last one is raised."""
    with stage() as at:
        busy = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        at.on(ApiKey.LIST_GROUPS, lambda *_: busy)
        with pytest.raises(RemoteRetriableError, match="the groups of broker 1 at"):
            at.client.do(list_groups)
        assert [node for node, _ in at.asked].count(1) == 7


def test_all_transactions_are_listed_in_their_order() -> None:
    """The list has the ids of all coordinators, ordered by transactional id."""
    with stage() as at:

        def listing(node: ScriptedNode, _: Any) -> Message:
            one = listed.TransactionState(
                transactional_id=f"t{3 - node.id}", producer_id=node.id, transaction_state="Empty"
            )
            return listed.ListTransactionsResponse(transaction_states=(one,))

        at.on(ApiKey.LIST_TRANSACTIONS, listing)
        found = at.client.do(list_transactions)
        assert [(each.transactional_id, each.producer_id) for each in found] == [
            ("t1", 2),
            ("t2", 1),
        ]


def test_metadata_that_is_cut_off_is_asked_for_again() -> None:
    """A connection that breaks during administration is no error of the command."""
    with stage() as at:
        at.cluster.script.add(ApiKey.METADATA, FaultKind.CUT, times=2)
        assert find_partitions(at.client, "flights") == [FLIGHTS]
        assert replace(at.client.topics()["flights"].partitions[0], isr=()).leader == 1
