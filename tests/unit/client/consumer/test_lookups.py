"""ListOffsets: how partitions get their beginning, and what a caller may ask about offsets."""

import asyncio
from typing import Any

import pytest

from tailrace.client.consumer import AsyncConsumer, GroupAuthorizationError, OffsetAndTimestamp
from tailrace.client.consumer.errors import (
    ConsumerTimeoutError,
    NoOffsetForPartitionError,
    TopicAuthorizationError,
)
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
)
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.testing import Outside
from tailrace.testing.script import FaultKind
from tests.unit.client.consumer.leaders import Leaders, offsets, read
from tests.unit.client.consumer.stage import T0, T1

OFFSETS = ApiKey.LIST_OFFSETS
U0 = TopicPartition("u", 0)

PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


def filled(outside: Outside, *, nodes: int = 1, partitions: int = 1) -> Leaders:
    """A cluster whose partitions have the offsets 2 to 6."""
    cluster = Leaders(outside, nodes=nodes, partitions=partitions)
    for number in range(partitions):
        log = cluster.logs[TopicPartition("t", number)]
        log.start = 2
        log.write(5)
    return cluster


def assigned(cluster: Leaders, *partitions: TopicPartition, **settings: Any) -> AsyncConsumer:
    """A consumer of these partitions."""
    consumer = cluster.consumer(**settings)
    consumer.assign(partitions or T0)
    return consumer


def timestamps(cluster: Leaders) -> list[int]:
    """The times that were asked for."""
    return [
        part.timestamp
        for each in cluster.requests(ListOffsetsRequest)
        for topic in each.body.topics
        for part in topic.partitions
    ]


async def arrived(cluster: Leaders, consumer: AsyncConsumer, count: int) -> None:
    """Poll until the leader has so many requests for offsets, and none of their answers came."""
    while len(cluster.requests(ListOffsetsRequest)) < count:
        assert await consumer.poll(0.001) == []


# -- resets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "asked", "position"),
    [("earliest", [-2], 2), ("latest", [-1], 7), ("by_duration:PT1S", None, 7)],
)
async def test_a_partition_begins_where_the_policy_says(
    outside: Outside, policy: str, asked: list[int] | None, position: int
) -> None:
    """Its leader is asked for an end of the log, or for a time; no young record is the end."""
    cluster = filled(outside)
    async with assigned(cluster, auto_offset_reset=policy) as consumer:
        assert await consumer.position(T0) == position
    if asked is None:
        first, second = timestamps(cluster)
        assert (first > 0, second) == (True, -1)
    else:
        assert timestamps(cluster) == asked


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_leader_that_gives_no_end_is_asked_after_a_pause(
    outside: Outside, policy: str
) -> None:
    """An answer without an offset, which no broker of Kafka gives, is no reason to hurry."""
    cluster = filled(outside)
    cluster.queue(OFFSETS, T0, *[ListOffsetsPartitionResponse()] * 5)
    async with assigned(cluster, auto_offset_reset=policy) as consumer:
        await outside.pass_time(0.35)
        assert 1 < len(timestamps(cluster)) < 5
        assert await consumer.position(T0) == {"earliest": 2, "latest": 7}[policy]


async def test_a_position_needs_no_request(outside: Outside) -> None:
    """After a seek neither offsets nor the group are asked for."""
    cluster = filled(outside)
    async with assigned(cluster, group_id="g") as consumer:
        consumer.seek(T0, 4)
        assert await consumer.position(T0) == 4
        assert offsets(await read(consumer, 3)) == [4, 5, 6]
    assert not cluster.requests(ListOffsetsRequest)
    assert cluster.count(ApiKey.OFFSET_FETCH) == 0


async def test_a_seek_needs_no_group(outside: Outside) -> None:
    """After `seek` and `seek_to_beginning` no coordinator is looked for."""
    cluster = filled(outside)
    async with assigned(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.seek(T0, 5)
        assert offsets(await read(consumer, 2)) == [5, 6]
        consumer.seek_to_beginning(T0)
        assert offsets(await read(consumer, 5)) == [2, 3, 4, 5, 6]
    assert timestamps(cluster) == [-2]
    assert cluster.count(ApiKey.FIND_COORDINATOR) == cluster.count(ApiKey.OFFSET_FETCH) == 0


async def test_a_stored_offset_comes_before_the_policy(outside: Outside) -> None:
    """One partition begins where the group has committed, the other where the policy says."""
    cluster = filled(outside, partitions=2)
    cluster.committed[T0] = (5, -1)
    async with assigned(cluster, T0, T1, group_id="g", enable_auto_commit=False) as consumer:
        assert (await consumer.position(T0), await consumer.position(T1)) == (5, 2)
    assert timestamps(cluster) == [-2]


async def test_a_group_may_be_used_once_rights_are_granted(outside: Outside) -> None:
    """A consumer that is no member looks for the coordinator again in its next call."""
    cluster = filled(outside)
    cluster.committed[T0] = (5, -1)
    refused = FindCoordinatorResponse(
        coordinators=(Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),)
    )
    cluster.script.add(ApiKey.FIND_COORDINATOR, FaultKind.EDIT, edit=lambda _: refused, times=2)
    async with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        for _ in range(2):
            with pytest.raises(GroupAuthorizationError):
                await consumer.committed(T0)
        assert await consumer.committed(T0) == {T0: OffsetAndMetadata(5, metadata="")}
    assert cluster.count(ApiKey.FIND_COORDINATOR) == 3


async def test_a_refused_stored_offset_is_asked_for_after_a_pause(outside: Outside) -> None:
    """While the program works, the coordinator is not asked again after each refusal at once."""
    cluster = filled(outside)
    cluster.committed[T0] = (5, -1)
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.queue(ApiKey.OFFSET_FETCH, T0, *[refusal] * 10)
    async with assigned(cluster, group_id="g", enable_auto_commit=False) as consumer:
        await outside.pass_time(0.9)
        assert 5 <= cluster.count(ApiKey.OFFSET_FETCH) <= 10
        with pytest.raises(TopicAuthorizationError):
            await consumer.poll(60)
        await outside.pass_time(2)
        assert offsets(await read(consumer, 2)) == [5, 6]


async def test_without_a_policy_the_missing_offset_is_an_error(outside: Outside) -> None:
    """`none` says which partition has none; a seek mends it."""
    cluster = filled(outside)
    async with assigned(cluster, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError) as caught:
                await consumer.poll(60)
            assert caught.value.partitions == {T0}
        # The group is asked again meanwhile, and its answer is old news after the seek.
        await outside.pass_time(1)
        consumer.seek(T0, 5)
        assert offsets(await read(consumer, 2)) == [5, 6]


@pytest.mark.parametrize("code", PASSING, ids=lambda each: each.name)
async def test_a_refused_reset_is_asked_again(outside: Outside, code: ErrorCode) -> None:
    """With new metadata, after retry.backoff.ms; nothing is raised."""
    cluster = filled(outside)
    cluster.queue(OFFSETS, T0, code)
    async with assigned(cluster, retry_backoff_ms=1000, retry_backoff_max_ms=1000) as consumer:
        assert offsets(await read(consumer, 5)) == [2, 3, 4, 5, 6]
        assert outside.loop.time() > 0.9
    assert timestamps(cluster) == [-2, -2]
    assert len(cluster.requests(MetadataRequest)) == 2


@pytest.mark.parametrize("how", [FaultKind.CUT, FaultKind.GARBAGE])
async def test_a_reset_that_lost_its_connection_is_asked_again(
    outside: Outside, how: FaultKind
) -> None:
    """Nothing is raised."""
    cluster = filled(outside)
    cluster.script.add(OFFSETS, how)
    async with assigned(cluster) as consumer:
        assert await consumer.position(T0) == 2
    assert cluster.count(OFFSETS) == 2


async def test_a_reset_follows_the_leader(outside: Outside) -> None:
    """A broker that does not lead any more says so, and the next one is asked."""
    cluster = filled(outside, nodes=2)
    async with assigned(cluster) as consumer:
        await consumer.position(T0)
        cluster.move(T0, 2)
        consumer.seek_to_beginning()
        assert await consumer.position(T0) == 2
    assert [each.node for each in cluster.requests(ListOffsetsRequest)] == [1, 1, 2]


async def test_a_broker_that_is_down_does_not_stop_other_resets(outside: Outside) -> None:
    """The partitions of the others get their positions."""
    cluster = filled(outside, nodes=2, partitions=2)
    cluster.nodes[2].kill()
    async with assigned(cluster, T0, T1) as consumer:
        assert await consumer.position(T0) == 2
        with pytest.raises(ConsumerTimeoutError, match="t-1"):
            await consumer.position(T1, timeout=1)
        cluster.revive(2)
        assert await consumer.position(T1) == 2


async def test_a_reset_that_is_not_allowed_is_an_error(outside: Outside) -> None:
    """The error names the topic; the next poll asks again."""
    cluster = filled(outside)
    cluster.queue(OFFSETS, T0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with assigned(cluster) as consumer:
        with pytest.raises(TopicAuthorizationError) as caught:
            await consumer.poll(60)
        assert caught.value.topics == {"t"}
        assert offsets(await read(consumer, 5)) == [2, 3, 4, 5, 6]


async def test_an_answer_to_a_reset_that_is_void_changes_nothing(outside: Outside) -> None:
    """Since it was asked, the caller has sought, reset to the other end, or assigned anew."""
    cluster = filled(outside, partitions=2)
    async with assigned(cluster, T0) as consumer:
        await arrived(cluster, consumer, 1)
        consumer.seek(T0, 5)
        assert offsets(await read(consumer, 2)) == [5, 6]
        consumer.seek_to_beginning(T0)
        await arrived(cluster, consumer, 2)
        consumer.seek_to_end(T0)
        assert await consumer.position(T0) == 7
        consumer.seek_to_beginning(T0)
        await arrived(cluster, consumer, 4)
        consumer.assign(T1)
        assert await consumer.position(T1) == 2
        assert {each.partition for each in await read(consumer, 5)} == {1}
    assert timestamps(cluster) == [-2, -2, -1, -2, -2]


async def test_the_same_reset_twice_has_one_answer(outside: Outside) -> None:
    """The second call asks anew and ends where the first would have."""
    cluster = filled(outside)
    async with assigned(cluster) as consumer:
        await consumer.position(T0)
        consumer.seek_to_end(T0)
        await arrived(cluster, consumer, 2)
        consumer.seek_to_end(T0)
        assert await consumer.position(T0) == 7
        assert await consumer.poll(0.5) == []


async def test_an_assignment_begins_anew_after_it_was_taken_back(outside: Outside) -> None:
    """An answer to the reset of its first life does not count in the second."""
    cluster = filled(outside, partitions=2)
    async with assigned(cluster, T0) as consumer:
        await arrived(cluster, consumer, 1)
        consumer.assign(T1)
        cluster.logs[T0].start = 4
        consumer.assign(T0)
        assert await consumer.position(T0) == 4


async def test_a_paused_partition_gets_its_position(outside: Outside) -> None:
    """It is reset and keeps a position that it has; only its records wait."""
    cluster = filled(outside, partitions=2)
    async with assigned(cluster, T0, T1) as consumer:
        consumer.pause([T0, T1])
        consumer.seek(T1, 5)
        consumer.seek_to_end(T0)
        assert (await consumer.position(T0), await consumer.position(T1)) == (7, 5)
        assert await consumer.poll(0.5) == []
    assert not cluster.requests(FetchRequest)


async def test_partitions_of_one_leader_are_reset_in_one_request(outside: Outside) -> None:
    """One ListOffsets goes to each leader."""
    cluster = filled(outside, nodes=2, partitions=4)
    places = [TopicPartition("t", number) for number in range(4)]
    async with assigned(cluster, *places) as consumer:
        for each in places:
            await consumer.position(each)
    asked = [
        (each.node, [part.partition_index for part in each.body.topics[0].partitions])
        for each in cluster.requests(ListOffsetsRequest)
    ]
    assert sorted(asked) == [(1, [0, 2]), (2, [1, 3])]


# -- questions ------------------------------------------------------------------------------------


async def test_ends_of_several_logs(outside: Outside) -> None:
    """Both ends of each; a partition that is named twice is asked for once; none is no request."""
    cluster = filled(outside, nodes=2, partitions=2)
    cluster.logs[T1].write(1)
    async with cluster.consumer() as consumer:
        assert await consumer.beginning_offsets([T0, T1]) == {T0: 2, T1: 2}
        assert await consumer.end_offsets([T0, T1, T0]) == {T0: 7, T1: 8}
        assert len(timestamps(cluster)) == 4
        assert await consumer.end_offsets([]) == {}
        assert await consumer.beginning_offsets([]) == {}
        assert await consumer.offsets_for_times({}) == {}
    assert len(timestamps(cluster)) == 4


async def test_offsets_of_times(outside: Outside) -> None:
    """The first record from the time on with its epoch, or None behind the last one."""
    cluster = filled(outside, partitions=2)
    cluster.logs[T0].epoch = 3
    async with cluster.consumer() as consumer:
        assert await consumer.offsets_for_times({T0: 4, T1: 7}) == {
            T0: OffsetAndTimestamp(4, 4, 3),
            T1: None,
        }


async def test_a_format_without_times_has_no_answer(outside: Outside) -> None:
    """UNSUPPORTED_FOR_MESSAGE_FORMAT counts as no record."""
    cluster = filled(outside)
    cluster.queue(OFFSETS, T0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    async with cluster.consumer() as consumer:
        assert await consumer.offsets_for_times({T0: 4}) == {T0: None}


@pytest.mark.parametrize("code", PASSING, ids=lambda each: each.name)
async def test_a_refused_question_is_asked_again(outside: Outside, code: ErrorCode) -> None:
    """Only for the partition that was refused, with newer metadata."""
    cluster = filled(outside, partitions=2)
    cluster.queue(OFFSETS, T0, code)
    async with cluster.consumer() as consumer:
        assert await consumer.end_offsets([T0, T1]) == {T0: 7, T1: 7}
    asked = [
        sorted(part.partition_index for part in each.body.topics[0].partitions)
        for each in cluster.requests(ListOffsetsRequest)
    ]
    assert asked == [[0, 1], [0]]
    assert len(cluster.requests(MetadataRequest)) >= 2


async def test_a_refused_question_goes_to_the_new_leader(outside: Outside) -> None:
    """Metadata says where it is."""
    cluster = filled(outside, nodes=2)
    async with cluster.consumer() as consumer:
        await consumer.end_offsets(T0)
        cluster.move(T0, 2)
        assert await consumer.end_offsets(T0) == {T0: 7}
    assert [each.node for each in cluster.requests(ListOffsetsRequest)] == [1, 1, 2]


async def test_a_question_about_a_topic_without_a_leader_yet(outside: Outside) -> None:
    """Partitions whose leaders are known do not wait; the answer has all of them."""
    cluster = filled(outside, nodes=2)
    cluster.create_topic("u")
    cluster.move(U0, -1)
    cluster.logs[U0].write(3)
    outside.loop.call_later(2.0, cluster.move, U0, 2)
    async with cluster.consumer() as consumer:
        assert await consumer.end_offsets([T0, U0]) == {T0: 7, U0: 3}
        assert outside.loop.time() >= 2.0


async def test_a_question_survives_the_connection_of_one_leader(outside: Outside) -> None:
    """It is asked again where there was no answer."""
    cluster = filled(outside, nodes=2, partitions=2)
    cluster.script.add(OFFSETS, FaultKind.CUT)
    async with cluster.consumer() as consumer:
        assert await consumer.end_offsets([T0, T1]) == {T0: 7, T1: 7}


@pytest.mark.parametrize(
    "call",
    [
        lambda each, place: each.end_offsets(place, timeout=1),
        lambda each, place: each.beginning_offsets(place, timeout=1),
        lambda each, place: each.offsets_for_times({place: 1}, timeout=1),
    ],
    ids=["end", "beginning", "times"],
)
async def test_a_question_that_finds_no_answer_ends_in_time(outside: Outside, call: Any) -> None:
    """The error says what it has waited for: a refusal, a topic, or a broker."""
    cluster = filled(outside)
    async with cluster.consumer() as consumer:
        cluster.queue(OFFSETS, T0, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 50)
        with pytest.raises(ConsumerTimeoutError, match="NOT_LEADER_OR_FOLLOWER"):
            await call(consumer, T0)
        with pytest.raises(ConsumerTimeoutError, match="nowhere"):
            await call(consumer, TopicPartition("nowhere", 0))
        with pytest.raises(ConsumerTimeoutError, match="t-7"):
            await call(consumer, TopicPartition("t", 7))
        cluster.nodes[1].kill()
        start = outside.loop.time()
        with pytest.raises(ConsumerTimeoutError):
            await call(consumer, T0)
        assert outside.loop.time() - start < 1.1


async def test_a_timeout_of_zero_does_not_wait(outside: Outside) -> None:
    """The error comes at once."""
    cluster = filled(outside)
    async with cluster.consumer() as consumer:
        with pytest.raises(ConsumerTimeoutError):
            await consumer.offsets_for_times({T0: 1}, timeout=0)
        assert outside.loop.time() == 0.0


async def test_a_question_that_is_not_allowed_is_an_error(outside: Outside) -> None:
    """The error names the topic, whether Metadata or the leader refuses."""
    cluster = filled(outside)
    async with cluster.consumer() as consumer:
        cluster.queue(OFFSETS, T0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(TopicAuthorizationError) as caught:
            await consumer.end_offsets(T0)
        assert caught.value.topics == {"t"}
        cluster.topic_errors["u"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(TopicAuthorizationError) as caught:
            await consumer.end_offsets(U0)
        assert caught.value.topics == {"u"}
        assert await consumer.end_offsets(T0) == {T0: 7}


async def test_questions_do_not_wait_for_a_fetch(outside: Outside) -> None:
    """They go over a connection of their own while a broker holds a Fetch."""
    cluster = filled(outside)
    async with assigned(cluster) as consumer:
        await read(consumer, 5)
        cluster.script.add(ApiKey.FETCH, FaultKind.DELAY, delay_s=10, times=100)
        await consumer.poll(0.1)
        start = outside.loop.time()
        assert await consumer.end_offsets(T0) == {T0: 7}
        assert outside.loop.time() - start < 1


async def test_an_answer_that_names_others_is_not_an_answer(outside: Outside) -> None:
    """A partition that is missing is asked for again; one that nobody asked about is passed."""
    cluster = filled(outside)
    other = ListOffsetsPartitionResponse(offset=99)

    def swapped(answer: Any) -> Any:
        [topic] = answer.topics
        return type(answer)(topics=(type(topic)(name="other", partitions=(other,)),))

    cluster.script.add(OFFSETS, FaultKind.EDIT, edit=swapped)
    async with cluster.consumer() as consumer:
        assert await consumer.end_offsets(T0) == {T0: 7}


async def test_calls_at_once_have_their_own_answers(outside: Outside) -> None:
    """Two tasks may ask for different offsets together."""
    cluster = filled(outside)
    async with cluster.consumer() as consumer:
        end, begin = await asyncio.gather(consumer.end_offsets(T0), consumer.beginning_offsets(T0))
        assert (end, begin) == ({T0: 7}, {T0: 2})
