"""Tests that no client holds up the event loop for longer than 5 ms (decision 23)."""

import asyncio
import gc
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib import import_module

import crc32c
import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.process import IMPORTED_AHEAD
from tailrace.broker.wiring import load_handler
from tailrace.model import Codec, LeaderEpoch, TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import received_records
from tailrace.protocol.frames import REQUEST_PARTS_MAX, encode_request
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records import layout
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.records.codecs import compress
from tailrace.replication.validation import QUICK_COUNT, UNPACKED_BYTES_MAX
from tailrace.runtime.slices import Slices
from tailrace.server.connection import Connection
from tailrace.server.memory import BYTES_PER_TURN, ReceiveTurns
from tailrace.testing import MemoryFiles, Outside, Peer, Watchdog, virtual_runtime
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    BY_NAME_PRODUCE,
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    running,
    send_all,
)

Step = Callable[[Peer, RunningBroker], Awaitable[None]]


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Import what serving imports beside the first requests, so that no test measures imports."""
    for name in IMPORTED_AHEAD:
        import_module(name)
    for key in APIS:
        load_handler(key)


async def create(peer: Peer, _: RunningBroker) -> None:
    """Make a topic with many partitions."""
    assert (await create_topic(peer, "new", partitions=20)).error_code == 0


async def create_by_metadata(peer: Peer, _: RunningBroker) -> None:
    """Have a topic made by asking for it."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name="asked"),), allow_auto_topic_creation=True
    )
    response = await peer.ask(ApiKey.METADATA, request, MetadataResponse)
    assert response.topics[0].error_code == 0


async def delete(peer: Peer, _: RunningBroker) -> None:
    """Remove the topic."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
    response = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
    assert response.responses[0].error_code == 0


async def delete_records(peer: Peer, _: RunningBroker) -> None:
    """Have the log start later, which moves its leader epoch."""
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=1000
    )
    response = await peer.ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse)
    assert response.topics[0].partitions[0].low_watermark == 1


async def alter(peer: Peer, _: RunningBroker) -> None:
    """Change a setting of the topic."""
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = IncrementalAlterConfigsResource(
        resource_type=2, resource_name="t", configs=(config,)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    response = await peer.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse
    )
    assert response.responses[0].error_code == 0


async def first_producer_id(peer: Peer, _: RunningBroker) -> None:
    """Reserve a block of producer ids."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    response = await peer.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
    assert response.error_code == 0


async def first_record(peer: Peer, broker: RunningBroker) -> None:
    """Begin a leader epoch, by the first record of a partition."""
    assert (await produce(peer, "t", batch(b"x"), partition=1)).error_code == 0
    log = broker.logs.get(TopicPartition("t", 1))
    assert log is not None
    assert log.epochs.latest == 0


@pytest.mark.parametrize(
    "step",
    [create, create_by_metadata, delete, delete_records, alter, first_producer_id, first_record],
)
async def test_the_loop_waits_for_no_device(outside: Outside, step: Step) -> None:
    """Data that must be on the device before the answer is flushed on a worker thread."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        await produce(peer, "t", batch(b"a", b"b"))
        with Watchdog(outside, budget_s=10) as watchdog:
            await step(peer, broker)
        assert watchdog.findings == []


async def test_a_slow_change_holds_up_no_other_topic(outside: Outside) -> None:
    """While one topic waits for a slow device, records are taken and other topics change."""
    async with running(outside) as broker:
        slow, quick = connect(outside, broker), connect(outside, broker)
        await create_topic(quick, "t")
        outside.threads.seconds_per_run = 100
        slow.send(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        await outside.pass_time(1)
        outside.threads.seconds_per_run = 0
        started = outside.loop.time()
        assert (await produce(quick, "t", batch(b"x"))).error_code == 0
        assert (await create_topic(quick, "u")).error_code == 0
        assert outside.loop.time() - started < 1
        # The same topic waits for its turn, and then it is not there any more.
        again = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        response = await quick.ask(ApiKey.DELETE_TOPICS, again, DeleteTopicsResponse)
        assert response.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert outside.loop.time() - started > 50


async def test_a_topic_that_is_being_made_is_deleted_behind_that(outside: Outside) -> None:
    """DeleteTopics waits for a change of the name, also before the topic is there."""
    async with running(outside) as broker:
        first, second = connect(outside, broker), connect(outside, broker)
        outside.threads.seconds_per_run = 10
        making = asyncio.ensure_future(create_topic(first, "t"))
        await outside.pass_time(5)
        await delete(second, broker)
        assert (await making).error_code == 0
        assert "t" not in broker.controller.image.topics


async def test_a_change_goes_on_when_its_client_is_gone(outside: Outside) -> None:
    """A topic is made whole or not at all, though the connection ends in the middle."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = 1
        gone = connect(outside, broker)
        gone.send(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        await outside.pass_time(0.5)
        gone.socket.close()
        await outside.pass_time(5)
        assert "t" not in broker.controller.image.topics
        assert not [name for name in outside.files.list("data") if name == "t-0"]


def frame(body: bytes, *, key: int, version: int) -> bytes:
    """A whole request frame of an inflexible version, or of a flexible one without tags."""
    head = struct.pack(">hhih", key, version, 1, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def empty_partitions(count: int) -> bytes:
    """A Produce v3 request with so many partitions that have no records."""
    head = struct.pack(">hhi", -1, -1, 1000) + struct.pack(">i", 1) + struct.pack(">h", 1) + b"t"
    return frame(
        head + struct.pack(">i", count) + struct.pack(">ii", 0, -1) * count,
        key=ApiKey.PRODUCE,
        version=3,
    )


async def test_a_frame_of_empty_partitions_is_refused_before_they_are_made(
    outside: Outside,
) -> None:
    """More parts than a client can mean end the connection, within the budget of the loop."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        data = empty_partitions(REQUEST_PARTS_MAX + 1)
        with Watchdog(outside) as watchdog:
            ending = outside.loop.create_task(peer.is_closed())
            await send_all(outside, peer, data)
            assert await ending
        assert watchdog.findings == []


async def test_a_fetch_far_behind_the_last_index_entry_searches_on_a_thread(
    outside: Outside,
) -> None:
    """With a huge `index.interval.bytes` every header before the record has to be looked at."""
    configs = {"index.interval.bytes": str(2**31 - 1)}
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=configs)
        log = broker.replicas.find(TopicPartition("t", 0)).log
        data, count = batch(b"v"), 40_000
        for _ in range(count):
            log.append(
                memoryview(bytearray(data)),
                leader_epoch=LeaderEpoch(0),
                now_ms=outside.clock.now_ms(),
            )
        log.advance_high_watermark(count)
        await fetch(peer, fetch_request("t", 0))  # The codecs of the messages are made now.
        with Watchdog(outside) as watchdog:
            found = await fetch(peer, fetch_request("t", count - 2))
        # The last two batches, and nothing before them. (The newest is found without a search.)
        assert len(found.records or b"") == 2 * len(data)
        assert watchdog.findings == []


LONG = bytes(UNPACKED_BYTES_MAX)
"""A value whose compressed batch is looked at on a thread."""


def compressed(*values: bytes) -> bytes:
    """One compressed batch with these values."""
    builder = BatchBuilder(codec=Codec.GZIP)
    for value in values:
        builder.append(None, value, timestamp=0)
    return builder.build()


def bomb(codec: Codec, size: int) -> bytearray:
    """One batch whose payload of equal records decompresses to about `size` bytes."""
    builder = BatchBuilder(codec=Codec.NONE)
    builder.append(None, None, timestamp=0)
    data = bytearray(builder.build())
    record = bytes(data[layout.HEADER_SIZE :])
    # Offset deltas that do not rise are no damage, and are found when all records were walked.
    count = size // len(record)
    payload = compress(codec, record * count)
    data[layout.HEADER_SIZE :] = payload
    view = memoryview(data)
    struct.pack_into(">i", view, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    struct.pack_into(">h", view, layout.ATTRIBUTES_POSITION, codec)
    struct.pack_into(">i", view, layout.LAST_OFFSET_DELTA_POSITION, count - 1)
    struct.pack_into(">i", view, layout.HEADER_SIZE - 4, count)
    crc = crc32c.crc32c(view[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(view, layout.CRC_POSITION, crc)
    return data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_bomb_is_looked_at_on_a_thread(outside: Outside, codec: Codec) -> None:
    """A batch that decompresses to many records keeps the loop busy no longer than others do."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"max.message.bytes": "10000000"})
        await produce(peer, "t", batch(b"x"))
        data = bytes(bomb(codec, 300_000))
        with Watchdog(outside) as watchdog:
            answer = await produce(peer, "t", data)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert watchdog.findings == []


async def test_a_small_compressed_batch_waits_for_no_thread(outside: Outside) -> None:
    """A producer that compresses single records has its answer while all threads are busy."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = 10
        sent = asyncio.ensure_future(produce(peer, "t", compressed(b"x")))
        await outside.pass_time(1)
        assert sent.done()
        assert sent.result().base_offset == 0


async def is_appended_on_the_loop(
    outside: Outside, data: bytes, configs: dict[str, str], *, partitions: int = 1
) -> bool:
    """Whether batches for partitions of a new topic are acknowledged while threads are busy."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=partitions, configs=configs)
        parts = tuple(PartitionProduceData(index=each, records=data) for each in range(partitions))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=(TopicProduceData(name="t", partition_data=parts),),
        )
        frame = encode_request(
            APIS[ApiKey.PRODUCE],
            request,
            version=BY_NAME_PRODUCE,
            correlation_id=1,
            client_id="test",
        )
        outside.threads.seconds_per_run = 10
        with Watchdog(outside) as watchdog:
            await send_all(outside, peer, frame)
            answered = asyncio.ensure_future(peer.read_frame())
            await outside.pass_time(1)
            is_at_once = answered.done()
            await answered
        assert [each for each in watchdog.findings if not each.startswith("test_")] == []
        log = broker.replicas.find(TopicPartition("t", partitions - 1)).log
        assert [each.codec.label for each in log.batches(0)] == [configs["compression.type"]]
        return is_at_once


@pytest.mark.parametrize(
    ("codec", "size"), [("gzip", 40_000), ("zstd", 150_000), ("lz4", 300_000), ("snappy", 700_000)]
)
async def test_a_batch_that_gets_a_codec_is_compressed_on_a_thread(
    outside: Outside, codec: str, size: int
) -> None:
    """A mebibyte takes up to six times the budget; each codec has a limit of its own."""
    plain, configs = batch(bytes(size)), {"compression.type": codec}
    assert not await is_appended_on_the_loop(outside, plain, configs)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "compressed"])
async def test_a_small_batch_that_gets_a_codec_waits_for_no_thread(
    outside: Outside, codec: str, *, is_packed: bool
) -> None:
    """It takes less than the hand-off; one that has the topic's codec is not compressed."""
    small = compressed(bytes(20_000)) if is_packed else batch(bytes(20_000))
    assert await is_appended_on_the_loop(outside, small, {"compression.type": codec})


async def test_a_compressed_batch_that_gets_another_codec_is_compressed_on_a_thread(
    outside: Outside,
) -> None:
    """The limit is on what it gives, and not on its own size."""
    configs = {"compression.type": "zstd"}
    assert not await is_appended_on_the_loop(outside, compressed(bytes(150_000)), configs)


@pytest.mark.parametrize(("codec", "level"), [("gzip", "9"), ("zstd", "19"), ("lz4", "17")])
async def test_a_slow_level_is_for_threads(outside: Outside, codec: str, level: str) -> None:
    """Such levels take up to a hundred times as long for the same batch."""
    configs = {"compression.type": codec, f"compression.{codec}.level": level}
    assert not await is_appended_on_the_loop(outside, batch(bytes(20_000)), configs)


async def test_batches_that_get_a_codec_share_the_budget(outside: Outside) -> None:
    """Each alone is short; together they take turns with the others of the loop."""
    value = b"".join(b"%d" % (number * number) for number in range(3000))
    configs = {"compression.type": "gzip"}
    assert await is_appended_on_the_loop(outside, batch(value), configs, partitions=30)


async def test_what_was_looked_at_on_a_thread_is_appended_behind_what_came_before(
    outside: Outside,
) -> None:
    """A batch that comes meanwhile is not held up, and no offset is given twice."""
    async with running(outside) as broker:
        slow, quick = connect(outside, broker), connect(outside, broker)
        await create_topic(quick, "t")
        outside.threads.seconds_per_run = 1
        long = asyncio.ensure_future(produce(slow, "t", compressed(LONG, b"b")))
        await outside.pass_time(0.5)
        assert (await produce(quick, "t", batch(b"x"))).base_offset == 0
        assert (await long).base_offset == 1
        assert (await produce(quick, "t", batch(b"y"))).base_offset == 3


async def test_a_batch_of_a_topic_that_is_deleted_meanwhile_is_refused(outside: Outside) -> None:
    """A new topic of the same name does not get the records of the old one."""
    async with running(outside) as broker:
        slow, quick = connect(outside, broker), connect(outside, broker)
        await create_topic(quick, "t")
        outside.threads.seconds_per_run = 10
        long = asyncio.ensure_future(produce(slow, "t", compressed(LONG)))
        await outside.pass_time(0.5)
        outside.threads.seconds_per_run = 0
        await delete(quick, broker)
        await create_topic(quick, "t")
        assert (await long).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await produce(quick, "t", batch(b"x"))).base_offset == 0


@pytest.mark.parametrize("is_long", [True, False])
def test_a_request_for_a_topic_by_id_writes_into_no_other_topic(*, is_long: bool) -> None:
    """If the topic is recreated while the first batch is checked, the second is refused too."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            slow, quick = connect(outside, broker), connect(outside, broker)
            created = await create_topic(quick, "t", partitions=2)
            records = [compressed(LONG), compressed(LONG) if is_long else batch(b"y")]
            data = tuple(
                PartitionProduceData(index=number, records=each)
                for number, each in enumerate(records)
            )
            topic = TopicProduceData(topic_id=created.topic_id, partition_data=data)
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,))
            outside.threads.seconds_per_run = 10
            long = asyncio.ensure_future(slow.ask(ApiKey.PRODUCE, request, ProduceResponse))
            await outside.pass_time(0.5)
            outside.threads.seconds_per_run = 0
            await delete(quick, broker)
            await create_topic(quick, "t", partitions=2)
            codes = [each.error_code for each in (await long).responses[0].partition_responses]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
            assert (await produce(quick, "t", batch(b"x"), partition=1)).base_offset == 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


async def test_log_append_time_does_not_go_back_behind_a_batch_that_waits(outside: Outside) -> None:
    """It is the time when a batch is appended, and not when a worker thread was asked for."""
    async with running(outside) as broker:
        slow, quick = connect(outside, broker), connect(outside, broker)
        configs = {"message.timestamp.type": "LogAppendTime"}
        await create_topic(quick, "t", configs=configs)
        outside.threads.seconds_per_run = 10
        long = asyncio.ensure_future(produce(slow, "t", compressed(LONG)))
        await outside.pass_time(5)
        before = await produce(quick, "t", batch(b"x"))
        behind = await long
        assert [before.base_offset, behind.base_offset] == [0, 1]
        assert before.log_append_time_ms < behind.log_append_time_ms
        log = broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert [each.max_timestamp for each in log.batches(0)] == [
            before.log_append_time_ms,
            behind.log_append_time_ms,
        ]


async def test_a_bomb_whose_client_has_gone_keeps_its_place(outside: Outside) -> None:
    """Threads do not pile up behind clients that send, go, and come again."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = 100
        for _ in range(20):
            gone = connect(outside, broker)
            request = produce_request("t", compressed(LONG))
            gone.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
            await outside.pass_time(0.1)
            gone.socket.close()
        await outside.pass_time(150)
        assert outside.threads.runs_at_once_max <= QUICK_COUNT + 1


async def test_ten_thousand_partitions_are_answered_in_slices(outside: Outside) -> None:
    """An honest request of many parts is served, and others get their turn while it is."""
    count = 10_000
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await produce(peer, "t", batch(b"x"))
        wanted = tuple(
            ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)
        )
        offsets = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=wanted),))
        data = tuple(
            PartitionProduceData(index=number, records=batch(b"x")) for number in range(1000)
        )
        produced = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=(TopicProduceData(name="t", partition_data=data),),
        )
        # What is made once for each version of a message is made before.
        few = ListOffsetsRequest(topics=())
        await peer.ask(ApiKey.LIST_OFFSETS, few, ListOffsetsResponse)
        with Watchdog(outside) as watchdog:
            found = await peer.ask(ApiKey.LIST_OFFSETS, offsets, ListOffsetsResponse)
            answer = await peer.ask(
                ApiKey.PRODUCE, produced, ProduceResponse, version=BY_NAME_PRODUCE
            )
        ours = [each for each in watchdog.findings if not each.startswith("test_")]
        assert ours == []
        assert len(found.topics[0].partitions) == count
        assert answer.responses[0].partition_responses[0].error_code == 0


async def test_hundreds_of_requests_that_come_at_once_are_answered_in_slices(
    outside: Outside,
) -> None:
    """Other clients get their turn between the requests of one connection."""
    count = 700
    async with running(outside) as broker:
        peer = connect(outside, broker)
        asked = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        await peer.ask(ApiKey.HEARTBEAT, asked, HeartbeatResponse)
        api = APIS[ApiKey.HEARTBEAT]
        frame = encode_request(
            api, asked, version=api.last_version, correlation_id=7, client_id="test"
        )
        with Watchdog(outside) as watchdog:
            peer.send_bytes(frame * count)
            for _ in range(count):
                assert (await peer.read_frame())[:4] == (7).to_bytes(4, "big")
        assert [each for each in watchdog.findings if not each.startswith("test_")] == []


def wanted_of(
    partitions: Iterable[int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**30,
) -> FetchRequest:
    """A Fetch request from the first record of partitions of topic t on."""
    wanted = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=2**20)
        for number in partitions
    )
    topics = (FetchTopic(topic="t", partitions=wanted),)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics
    )


async def ask_fetch(peer: Peer, request: FetchRequest) -> list[PartitionData]:
    """The answers for the partitions of the only topic."""
    response = await peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)
    (topic,) = response.responses
    return list(topic.partitions)


async def filled_partitions(outside: Outside, broker: RunningBroker, count: int) -> Peer:
    """Topic t with one record in each partition."""
    peer = connect(outside, broker)
    await create_topic(peer, "t", partitions=count)
    for number in range(count):
        await produce(peer, "t", batch(b"x"), partition=number)
    return peer


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(range(300), 300), ([0] * 4000, 1), (range(4000), 4000)],
    ids=["there", "again and again", "unknown"],
)
async def test_a_fetch_of_many_partitions_is_read_in_slices(
    outside: Outside, asked: Iterable[int], answered: int
) -> None:
    """Others get their turn between partitions; one that is named twice is answered once."""
    async with running(outside) as broker:
        peer = await filled_partitions(outside, broker, 300)
        request = wanted_of(asked)
        await ask_fetch(peer, wanted_of([0]))
        with Watchdog(outside) as watchdog:
            found = await ask_fetch(peer, request)
        assert [each for each in watchdog.findings if not each.startswith("test_")] == []
        assert [each.partition_index for each in found] == list(range(answered))
        assert sum(each.error_code == 0 for each in found) == min(answered, 300)


def reads_by_partition(disk: MemoryFiles, since: int) -> Counter[str]:
    """Count the calls that read bytes, by the partition's folder."""
    return Counter(path.split("/")[1] for name, path in disk.reads[since:] if name == "read")


async def test_a_fetch_that_waits_looks_again_at_what_has_changed_only(outside: Outside) -> None:
    """An append to one of many partitions costs every waiter one look."""
    async with running(outside) as broker:
        peer = await filled_partitions(outside, broker, 50)
        request = wanted_of(range(50), max_wait_ms=10_000, min_bytes=2**20)
        waiting = asyncio.ensure_future(ask_fetch(peer, request))
        await outside.pass_time(1)
        since = len(outside.files.reads)
        await produce(connect(outside, broker), "t", batch(b"y"), partition=7)
        await outside.pass_time(1)
        assert set(reads_by_partition(outside.files, since)) == {"t-7"}
        found = await waiting
        assert len(found) == 50
        assert {each.partition_index for each in found if each.high_watermark == 2} == {7}
        assert len(list(read_batches(received_records(found[7].records)))) == 2


async def test_a_fetch_of_cold_partitions_reads_the_others_once(outside: Outside) -> None:
    """Data of one partition is kept while the next is read from the device."""
    async with running(outside) as broker:
        peer = await filled_partitions(outside, broker, 30)
        outside.files.make_cold("data/t-2")
        since = len(outside.files.reads)
        found = await ask_fetch(peer, wanted_of(range(30)))
        assert [len(received_records(each.records)) > 0 for each in found] == [True] * 30
        # To be sent a slice is read once more.
        assert max(reads_by_partition(outside.files, since).values()) < 10


async def test_a_fetch_waits_for_no_more_than_fits(outside: Outside) -> None:
    """With a `min_bytes` above `max_bytes` it is answered as soon as it is full."""
    async with running(outside) as broker:
        peer = await filled_partitions(outside, broker, 1)
        request = wanted_of([0], max_wait_ms=10_000, min_bytes=1000, max_bytes=50)
        started = outside.loop.time()
        assert len(received_records((await ask_fetch(peer, request))[0].records)) > 50
        assert outside.loop.time() - started < 1


async def test_the_memory_of_a_large_request_goes_back_in_slices(outside: Outside) -> None:
    """A client that leaves in the middle of a request of 100 MB does not stop the loop."""
    size = 100 * 1024 * 1024
    async with running(outside) as broker:
        peer = connect(outside, broker)
        data = struct.pack(">ihh", size, ApiKey.PRODUCE, 3) + bytes(size - 100)
        await send_all(outside, peer, data)
        assert broker.statistics().server.claimed_bytes == size
        # To drop all of it at once takes more than twice as long.
        with Watchdog(outside, budget_s=0.0025) as watchdog:
            peer.socket.close()
            await outside.pass_time(1)
        assert watchdog.findings == []
        assert broker.statistics().server.claimed_bytes == 0


def test_a_turn_of_the_loop_receives_a_bounded_part_of_large_requests() -> None:
    """Connections that have something at the same time share the turns, in the order they came."""
    part = BYTES_PER_TURN // 4
    received: list[int] = []

    def receive(number: int) -> int:
        received.append(number)
        return part

    async def scenario() -> None:
        turns = ReceiveTurns()
        at_once = [turns.ask(partial(receive, number)) for number in range(10)]
        assert at_once == [True] * 4 + [False] * 6
        assert received == list(range(4))
        await Slices().rest()
        assert received == list(range(8))
        assert not turns.ask(partial(receive, 10)), "it passes those who wait"
        await Slices().rest()
        assert received == list(range(11))

    asyncio.run(scenario())


async def test_a_closed_connection_leaves_nothing_to_collect(outside: Outside) -> None:
    """Memory of those that come and go does not wait for Python's search for cycles."""
    async with running(outside) as broker:
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                peer = connect(outside, broker)
                await peer.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse)
                peer.socket.close()
                await outside.pass_time(1)
            kept = [each for each in gc.get_objects() if type(each) is Connection]
        finally:
            gc.enable()
        assert kept == []
