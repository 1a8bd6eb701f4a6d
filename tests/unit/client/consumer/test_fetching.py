"""Fetches of a consumer: whom it asks for what, and what becomes of the answers."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.client.consumer import AsyncConsumer
from tailrace.client.consumer.errors import (
    BrokerRefusedError,
    PositionOutOfRangeError,
    TopicAuthorizationError,
)
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tailrace.protocol.messages.list_offsets import ListOffsetsRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.testing import Outside
from tailrace.testing.script import FaultKind
from tests.naive import LegacyMessage, write_all_legacy
from tests.unit.client.consumer.leaders import SESSION, Leaders, offsets, read
from tests.unit.client.consumer.stage import T0, T1

FETCH = ApiKey.FETCH
FOUR = [TopicPartition("t", number) for number in range(4)]


def assigned(cluster: Leaders, *partitions: TopicPartition, **settings: Any) -> AsyncConsumer:
    """A consumer of these partitions."""
    consumer = cluster.consumer(**settings)
    consumer.assign(partitions or T0)
    return consumer


def damaged(records: bytes) -> PartitionData:
    """An answer with these records."""
    return PartitionData(high_watermark=10, last_stable_offset=10, records=records)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.REPLICA_NOT_AVAILABLE, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.OFFSET_NOT_AVAILABLE, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.INCONSISTENT_TOPIC_ID, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_a_passing_refusal_is_no_error_of_the_caller(
    outside: Outside, code: ErrorCode, *, asks: bool
) -> None:
    """The partition is fetched again after retry.backoff.ms, with new metadata where that helps."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    cluster.queue(FETCH, T0, code)
    async with assigned(cluster, retry_backoff_ms=1000, retry_backoff_max_ms=1000) as consumer:
        await consumer.position(T0)
        before = len(cluster.requests(MetadataRequest))
        start = outside.loop.time()
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
        assert 0.9 < outside.loop.time() - start < 1.5
        assert (len(cluster.requests(MetadataRequest)) > before) == asks


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID],
    ids=lambda each: each.name,
)
async def test_a_session_with_other_topic_ids_is_begun_anew(
    outside: Outside, code: ErrorCode
) -> None:
    """The answer as a whole is refused: metadata is asked for, and nothing is raised."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    cluster.script.add(FETCH, FaultKind.EDIT, edit=lambda _: FetchResponse(error_code=code))
    async with assigned(cluster) as consumer:
        await consumer.position(T0)
        before = len(cluster.requests(MetadataRequest))
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
        assert len(cluster.requests(MetadataRequest)) > before
    assert {each.body.session_epoch for each in cluster.requests(FetchRequest)} == {0}


async def test_a_topic_that_may_not_be_read_is_an_error(outside: Outside) -> None:
    """The error names the topic, and the next poll asks again."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(2)
    cluster.queue(FETCH, T0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with assigned(cluster) as consumer:
        with pytest.raises(TopicAuthorizationError) as caught:
            await consumer.poll(60)
        assert caught.value.topics == {"t"}
        assert offsets(await read(consumer, 2)) == [0, 1]


@pytest.mark.parametrize(
    "code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_REQUEST, 999], ids=str
)
async def test_another_refusal_is_an_error_with_its_place(outside: Outside, code: int) -> None:
    """Partition, offset and code are in it; the position stays where it was."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(2)
    async with assigned(cluster) as consumer:
        consumer.seek(T0, 1)
        cluster.queue(FETCH, T0, code)
        with pytest.raises(BrokerRefusedError, match="t-0 from offset 1 on") as caught:
            await consumer.poll(60)
        assert caught.value.code == code
        assert offsets(await read(consumer, 1)) == [1]


async def test_a_broker_that_refuses_again_and_again_is_told_once(outside: Outside) -> None:
    """The program works for long, and then learns of one refusal and reads on."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(3)
    refusal = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    cluster.script.add(FETCH, FaultKind.EDIT, edit=lambda _: refusal, times=50)
    async with assigned(cluster) as consumer:
        await outside.pass_time(10)
        with pytest.raises(BrokerRefusedError, match="Fetch at node 1"):
            await consumer.poll(60)
        assert offsets(await read(consumer, 3)) == [0, 1, 2]


async def test_records_are_returned_before_an_error_of_another_partition(outside: Outside) -> None:
    """The positions of both partitions are right after either, so that nothing is lost."""
    cluster = Leaders(outside, partitions=2)
    cluster.logs[T0].write(4)
    async with assigned(cluster, T0, T1, auto_offset_reset="none") as consumer:
        consumer.seek(T0, 1)
        consumer.seek(T1, 1)
        assert offsets(await read(consumer, 3)) == [1, 2, 3]
        with pytest.raises(PositionOutOfRangeError) as caught:
            await consumer.poll(60)
        assert caught.value.offsets == {T1: 1}
        assert (await consumer.position(T0), await consumer.position(T1)) == (4, 1)


async def test_each_partition_has_its_own_error_and_records(outside: Outside) -> None:
    """Two of four partitions give records, one is out of range, and one is damaged.

    The error of the damaged one comes with every poll; the others are told once.
    """
    cluster = Leaders(outside, partitions=4)
    for each in (FOUR[1], FOUR[2], FOUR[3]):
        cluster.logs[each].write(1)
        cluster.logs[each].write(3)
    cluster.queue(FETCH, FOUR[3], *[damaged(b"\x00" * 80)] * 50)
    async with assigned(cluster, *FOUR, auto_offset_reset="none", max_poll_records=3) as consumer:
        for each in FOUR:
            consumer.seek(each, 1)
        found, told = [], []
        for _ in range(8):
            try:
                found += await consumer.poll(5)
            except Exception as error:  # noqa: BLE001 - any error of a partition
                told.append(error)
                if isinstance(error, PositionOutOfRangeError):
                    consumer.assign(FOUR[1:])
        assert sorted(each.partition for each in found) == [1, 1, 1, 2, 2, 2]
        assert len([each for each in told if isinstance(each, PositionOutOfRangeError)]) == 1
        assert len({str(each) for each in told}) == 2
        assert len(told) > 3


async def test_a_seek_makes_an_error_void(outside: Outside) -> None:
    """An error of the position that the caller has left is not raised."""
    cluster = Leaders(outside, partitions=2)
    cluster.logs[T0].write(1)
    cluster.logs[T1].write(5)
    async with assigned(cluster, T0, T1, auto_offset_reset="none") as consumer:
        consumer.seek(T0, 0)
        consumer.seek(T1, 9)
        assert [each.partition for each in await read(consumer, 1)] == [0]
        consumer.seek(T1, 3)
        assert offsets(await read(consumer, 2)) == [3, 4]


# -- positions ------------------------------------------------------------------------------------


async def test_an_answer_to_a_position_that_was_left_is_dropped(outside: Outside) -> None:
    """Neither its records nor its OFFSET_OUT_OF_RANGE count after a seek."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(5)
    async with assigned(cluster, auto_offset_reset="latest") as consumer:
        for code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE):
            consumer.seek(T0, 0)
            asked = len(cluster.requests(FetchRequest))
            cluster.queue(FETCH, T0, code) if code else None
            while len(cluster.requests(FetchRequest)) == asked:
                assert await consumer.poll(0.001) == []
            consumer.seek(T0, 3)
            assert offsets(await read(consumer, 2)) == [3, 4]
    assert not cluster.requests(ListOffsetsRequest)


async def test_a_position_that_is_out_of_range_is_reset(outside: Outside) -> None:
    """The partition goes to the offset of `auto.offset.reset`; others keep theirs."""
    cluster = Leaders(outside, partitions=2)
    for each in (T0, T1):
        cluster.logs[each].write(5)
    cluster.logs[T0].start = 2
    cluster.logs[T0].batches.clear()
    cluster.logs[T0].write(2)
    async with assigned(cluster, T0, T1) as consumer:
        consumer.seek(T0, 0)
        consumer.seek(T1, 4)
        records = await read(consumer, 3)
        assert sorted((each.partition, each.offset) for each in records) == [(0, 2), (0, 3), (1, 4)]
    [asked] = cluster.requests(ListOffsetsRequest)
    assert [part.timestamp for part in asked.body.topics[0].partitions] == [-2]


async def test_what_was_fetched_goes_with_its_partition(outside: Outside) -> None:
    """After another `assign` nothing is returned of a partition that is gone; it begins anew."""
    cluster = Leaders(outside, partitions=2)
    for each in (T0, T1):
        cluster.logs[each].write(4)
    async with assigned(cluster, max_poll_records=1) as consumer:
        assert len(await read(consumer, 1)) == 1
        consumer.assign(T1)
        assert {each.partition for each in await read(consumer, 4)} == {1}
        consumer.assign(T0)
        assert offsets(await read(consumer, 4)) == [0, 1, 2, 3]


async def test_gaps_are_passed_over(outside: Outside) -> None:
    """Offsets that compaction took are left out, also at the end of a batch and in empty ones."""
    cluster = Leaders(outside)
    log = cluster.logs[T0]
    log.write_some(10, [0, 3, 7])
    log.write_some(5, [])
    log.write(1)
    async with assigned(cluster) as consumer:
        assert offsets(await read(consumer, 4)) == [0, 3, 7, 15]
        assert await consumer.position(T0) == 16
        consumer.seek(T0, 8)
        assert offsets(await read(consumer, 1)) == [15]
        log.write_some(4, [])
        assert await consumer.poll(1) == []
        assert await consumer.position(T0) == 20


async def test_records_tell_the_epoch_of_their_leader(outside: Outside) -> None:
    """Each record has that of its batch; older formats have none."""
    cluster = Leaders(outside)
    log = cluster.logs[T0]
    log.batches.append(
        (
            2,
            write_all_legacy(
                [LegacyMessage(magic, magic, None, b"%d" % magic) for magic in (0, 1)]
            ),
        )
    )
    for _ in range(5):
        cluster.move(T0, 1)
    log.epoch = 5
    log.write(1)
    async with assigned(cluster) as consumer:
        records = await read(consumer, 3)
        assert [(each.offset, each.leader_epoch) for each in records] == [(0, -1), (1, -1), (2, 5)]


# -- sizes ----------------------------------------------------------------------------------------


async def test_a_batch_that_does_not_fit_is_fetched_with_more_room(outside: Outside) -> None:
    """An old broker that cuts batches off is asked for more bytes until one is whole."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(200)
    [(_, data)] = cluster.logs[T0].batches
    cluster.queue(FETCH, T0, damaged(data[:100]), damaged(data[:200]))
    async with assigned(cluster, max_partition_fetch_bytes=100) as consumer:
        assert len(await read(consumer, 200)) == 200
    sizes = [
        each.body.topics[0].partitions[0].partition_max_bytes
        for each in cluster.requests(FetchRequest)
    ]
    assert sizes[:3] == [100, 200, 400]


async def test_an_answer_without_a_whole_batch_is_an_error_in_the_end(outside: Outside) -> None:
    """A broker that never sends a whole batch cannot have the consumer ask for ever."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(200)
    [(_, data)] = cluster.logs[T0].batches
    cluster.queue(FETCH, T0, *[damaged(data[:100])] * 40)
    async with assigned(cluster) as consumer:
        with pytest.raises(BrokerRefusedError, match="no whole batch"):
            await consumer.poll(60)


async def test_a_fetch_has_the_sizes_of_the_settings(outside: Outside) -> None:
    """Bytes for the answer, for each partition, the wait and the isolation level are sent."""
    cluster = Leaders(outside)
    settings = {
        "fetch_max_bytes": 5000, "max_partition_fetch_bytes": 700, "fetch_min_bytes": 9,
        "fetch_max_wait_ms": 77, "isolation_level": "read_committed",
    }  # fmt: skip
    async with assigned(cluster, **settings) as consumer:
        await consumer.poll(0.1)
    body = cluster.requests(FetchRequest)[0].body
    assert (body.max_bytes, body.min_bytes, body.max_wait_ms) == (5000, 9, 77)
    assert (body.isolation_level, body.replica_id) == (1, -1)
    assert body.topics[0].partitions[0].partition_max_bytes == 700


@pytest.mark.parametrize(
    ("count", "settings", "size"),
    [
        (1, {}, 4 << 20),
        (2, {}, 2 << 20),
        (4, {}, 1 << 20),
        (6, {}, 1 << 20),
        (4, {"max_partition_fetch_bytes": 700}, 700),
        (2, {"max_partition_fetch_bytes": 40 << 20}, 20 << 20),
    ],
)
async def test_partitions_share_an_answer(
    outside: Outside, count: int, settings: dict[str, int], size: int
) -> None:
    """Each is asked for its share, for a mebibyte at least, and for no more than is allowed."""
    cluster = Leaders(outside, partitions=count)
    partitions = [TopicPartition("t", number) for number in range(count)]
    async with assigned(cluster, *partitions, **settings) as consumer:
        consumer.seek_to_beginning()
        await consumer.poll(0.1)
        await consumer.poll(0.1)
    asked = [
        [each.partition_max_bytes for topic in request.body.topics for each in topic.partitions]
        for request in cluster.requests(FetchRequest)
    ]
    assert [size] * count in asked


# -- paused partitions ----------------------------------------------------------------------------


async def test_a_paused_partition_is_not_fetched(outside: Outside) -> None:
    """Others are, and it is fetched again after `resume`."""
    cluster = Leaders(outside, partitions=2)
    async with assigned(cluster, T0, T1) as consumer:
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
        consumer.pause(T0)
        await consumer.poll(1)
        assert {number for _, number, _ in cluster.fetched()} == {1}
        consumer.resume(T0)
        await consumer.poll(1)
        assert {number for _, number, _ in cluster.fetched()} == {0, 1}


async def test_pausing_keeps_what_was_fetched(outside: Outside) -> None:
    """Records that came before the pause, or to a fetch in flight, are returned after `resume`.

    They are not fetched twice, and those of other partitions are returned meanwhile.
    """
    cluster = Leaders(outside, partitions=2)
    for each in (T0, T1):
        cluster.logs[each].write(6)
    async with assigned(cluster, T0, T1, max_poll_records=2) as consumer:
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
        while not cluster.fetched():
            assert await consumer.poll(0.001) == []
        consumer.pause(T0)
        assert [each.partition for each in await read(consumer, 6)] == [1] * 6
        assert await consumer.poll(1) == []
        consumer.resume(T0)
        assert offsets(await read(consumer, 2)) == [0, 1]
        consumer.pause([T0, T1])
        assert await consumer.poll(1) == []
        consumer.resume([T0, T1])
        assert offsets(await read(consumer, 4)) == [2, 3, 4, 5]
    assert len([each for each in cluster.fetched() if each[1:] == (0, 0)]) == 1


async def test_a_seek_of_a_paused_partition_drops_what_was_fetched(outside: Outside) -> None:
    """After `resume` it reads from the new position."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(6)
    async with assigned(cluster, max_poll_records=1) as consumer:
        await read(consumer, 1)
        consumer.pause(T0)
        consumer.seek(T0, 4)
        assert await consumer.poll(0.5) == []
        consumer.resume(T0)
        assert offsets(await read(consumer, 2)) == [4, 5]


# -- sessions and topic ids -----------------------------------------------------------------------


async def test_a_session_is_told_changes_only_and_ended(outside: Outside) -> None:
    """The epoch counts up from request to request, and `close` ends the session (KIP-227)."""
    cluster = Leaders(outside, partitions=2)
    cluster.has_sessions = True
    for each in (T0, T1):
        cluster.logs[each].write(2)
    consumer = assigned(cluster, T0, T1)
    await read(consumer, 4)
    cluster.logs[T1].write(1)
    await read(consumer, 1)
    consumer.assign(T1)
    await consumer.poll(0.1)
    await consumer.close()
    await consumer.close()
    await outside.pass_time(1)
    bodies = [each.body for each in cluster.requests(FetchRequest)]
    epochs = [each.session_epoch for each in bodies]
    assert epochs == [*range(len(epochs) - 1), -1]
    assert {each.session_id for each in bodies[1:]} == {SESSION}
    sent = [sum(len(topic.partitions) for topic in each.topics) for each in bodies]
    assert (sent[0], sent[1], min(sent[2:-1])) == (2, 2, 0)
    assert [part for each in bodies for part in each.forgotten_topics_data if part.topic == "t"]


@pytest.mark.parametrize("has_id", [True, False])
async def test_topics_are_named_by_id_if_they_have_one(outside: Outside, *, has_id: bool) -> None:
    """From v13 on a Fetch has ids alone; without one it is v12 with the name (KIP-516)."""
    cluster = Leaders(outside)
    if has_id:
        cluster.ids["t"] = UUID(int=5)
    cluster.logs[T0].write(1)
    async with assigned(cluster) as consumer:
        await read(consumer, 1)
    asked = cluster.requests(FetchRequest)[0]
    assert (asked.version > 12) == has_id
    [topic] = asked.body.topics
    assert (topic.topic, topic.topic_id.int) == (("", 5) if has_id else ("t", 0))


async def test_a_topic_that_is_made_anew_is_named_by_its_new_id(outside: Outside) -> None:
    """UNKNOWN_TOPIC_ID has metadata asked for; the session forgets the old id."""
    cluster = Leaders(outside)
    cluster.ids["t"] = UUID(int=5)
    cluster.has_sessions = True
    cluster.logs[T0].write(1)
    async with assigned(cluster) as consumer:
        await read(consumer, 1)
        cluster.ids["t"] = UUID(int=6)
        cluster.queue(FETCH, TopicPartition("", 0), ErrorCode.UNKNOWN_TOPIC_ID)
        cluster.logs[T0].write(1)
        cluster.queue(FETCH, T0, ErrorCode.UNKNOWN_TOPIC_ID)
        assert offsets(await read(consumer, 1)) == [1]
    ids = [
        topic.topic_id.int for each in cluster.requests(FetchRequest) for topic in each.body.topics
    ]
    assert ids[0] == 5
    assert ids[-1] == 6


# -- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [FaultKind.CUT, FaultKind.CUT_AFTER, FaultKind.GARBAGE])
async def test_a_fetch_without_an_answer_is_sent_again(outside: Outside, how: FaultKind) -> None:
    """Nothing is lost and nothing comes twice, whether the broker had read the request or not."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(4)
    cluster.script.add(FETCH, how, skip=1, times=2)
    async with assigned(cluster) as consumer:
        assert offsets(await read(consumer, 4)) == [0, 1, 2, 3]
        cluster.logs[T0].write(2)
        assert offsets(await read(consumer, 2)) == [4, 5]


async def test_a_broker_that_is_down_is_left_alone_for_a_while(outside: Outside) -> None:
    """While its pause lasts, others are read and it is not connected to in a loop."""
    cluster = Leaders(outside, nodes=2, partitions=2)
    cluster.logs[T0].write(1)
    cluster.nodes[2].kill()
    settings = {"reconnect_backoff_ms": 1000, "reconnect_backoff_max_ms": 1000}
    async with assigned(cluster, T0, T1, **settings) as consumer:
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
        assert offsets(await read(consumer, 1)) == [0]
        begun = len(outside.network.firsts)
        assert await consumer.poll(5) == []
        assert len(outside.network.firsts) - begun <= 8
        cluster.revive(2)
        cluster.logs[T1].write(1)
        assert [each.partition for each in await read(consumer, 1)] == [1]


async def test_all_that_was_read_is_counted(outside: Outside) -> None:
    """Records, bytes, requests and lags are in the metrics, under Kafka's names."""
    cluster = Leaders(outside)
    cluster.logs[T0].write(5)
    [(_, data)] = cluster.logs[T0].batches
    async with assigned(cluster, max_poll_records=3) as consumer:
        consumer.seek(T0, 1)
        await read(consumer, 3)
        found = consumer.metrics()
        assert found["records-consumed-total"] == 3
        assert found["bytes-consumed-total"] == len(data)
        assert found["fetch-total"] >= len(cluster.requests(FetchRequest)) > 0
        assert found["records-lag-max"] == 1
        assert consumer.statistics().partitions[T0].lag == 1
