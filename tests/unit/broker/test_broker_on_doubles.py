"""A whole broker on memory disk, memory network and the jumping clock: no socket, no file."""

import asyncio
import uuid
from contextlib import suppress

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.cluster.beginning import FIRST_PRODUCER_ID
from tailrace.errors import DirectoryError
from tailrace.model import Offset, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.produce import ProduceResponse
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.storage import checkpoints
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import (
    DiskFault,
    MemoryFiles,
    Outside,
    Peer,
    ProcessKilledError,
    virtual_runtime,
)
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
)


def values_of(records: object) -> list[bytes | None]:
    """The values in a run of batches."""
    view = memoryview(records)  # type: ignore[arg-type]
    return [record.value for _, found in read_batches(view) for record in records_of(found)]


async def list_offset(peer: Peer, topic: str, timestamp: int) -> ListOffsetsPartitionResponse:
    """The broker's answer for partition 0 of a topic."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),))
    response = await peer.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
    return response.topics[0].partitions[0]


async def find_topic(peer: Peer, name: str, *, may_create: bool = True) -> MetadataResponse:
    """The broker's metadata of one topic."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=may_create
    )
    return await peer.ask(ApiKey.METADATA, request, MetadataResponse)


async def test_a_record_goes_in_and_comes_out(outside: Outside) -> None:
    """A record that is produced to a broker on doubles is fetched from it, with its offset."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert (await create_topic(peer, "t")).error_code == ErrorCode.NONE
        assert (await produce(peer, "t", batch(b"a", b"b"))).base_offset == 0
        assert (await produce(peer, "t", batch(b"c"))).base_offset == 2
        found = await fetch(peer, fetch_request("t", 0))
        assert found.high_watermark == 3
        assert values_of(found.records) == [b"a", b"b", b"c"]


def test_a_fetch_waits_for_the_first_record() -> None:
    """A fetch at the end of the log is answered when a record comes, not at its deadline."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            reader, writer = connect(outside, broker), connect(outside, broker)
            await create_topic(writer, "t")
            waiting = asyncio.ensure_future(
                fetch(reader, fetch_request("t", 0, max_wait_ms=60_000))
            )
            await outside.pass_time(0.1)
            await produce(writer, "t", batch(b"late"))
            assert values_of((await waiting).records) == [b"late"]

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        assert outside.loop.time() < 1


def test_a_fetch_gives_up_at_its_deadline() -> None:
    """A fetch that nothing comes for is answered empty after max.wait.ms of virtual time."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            found = await fetch(peer, fetch_request("t", 0, max_wait_ms=30_000))
            assert len(found.records or b"") == 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        assert 30 <= outside.loop.time() < 31


async def test_answers_keep_the_order_of_requests(outside: Outside) -> None:
    """A request behind a waiting fetch is answered after it, on the same connection."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        request = fetch_request("t", 0, max_wait_ms=500)
        peer.send(ApiKey.FETCH, request, version=BY_NAME_FETCH)
        peer.send(ApiKey.METADATA, MetadataRequest())
        first, second = await peer.read_frame(), await peer.read_frame()
        assert int.from_bytes(first[:4], "big") + 1 == int.from_bytes(second[:4], "big")


async def test_acks_zero_gets_no_answer(outside: Outside) -> None:
    """A produce with acks 0 is appended and not answered."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        request = produce_request("t", batch(b"x"), acks=0)
        peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        found = await fetch(peer, fetch_request("t", 0, max_wait_ms=100))
        assert values_of(found.records) == [b"x"]


async def test_a_failed_acks_zero_closes_the_connection(outside: Outside) -> None:
    """A failed produce with acks=0 closes the connection, since it has no answer."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        request = produce_request("missing", batch(b"x"), acks=0)
        peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        assert await peer.is_closed()


async def test_produce_errors_have_kafkas_codes(outside: Outside) -> None:
    """Each way in which a batch can be wrong is answered with Kafka's own error."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"max.message.bytes": "1000"})
        await create_topic(peer, "compacted", configs={"cleanup.policy": "compact"})
        good = batch(b"x")
        broken = good[:-1] + bytes([good[-1] ^ 1])
        cases = {
            ErrorCode.CORRUPT_MESSAGE: ("t", broken),
            ErrorCode.MESSAGE_TOO_LARGE: ("t", batch(b"x" * 2000)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ("missing", good),
            ErrorCode.INVALID_RECORD: ("compacted", batch(b"x", key=None)),
            ErrorCode.INVALID_TIMESTAMP: ("t", batch(b"x", timestamp=4_000_000_000_000)),
        }
        for code, (topic, records) in cases.items():
            answer = await produce(peer, topic, records)
            assert ErrorCode(answer.error_code) is code
            assert answer.base_offset == -1
        assert (await produce(peer, "t", good + good)).error_code == ErrorCode.INVALID_RECORD
        assert (await produce(peer, "t", b"")).error_code == ErrorCode.INVALID_RECORD
        assert (await produce(peer, "t", good)).base_offset == 0


async def test_acks_other_than_three_are_refused(outside: Outside) -> None:
    """Acks 2 is INVALID_REQUIRED_ACKS, and nothing is appended."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        request = produce_request("t", batch(b"x"), acks=2)
        answer = await peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE)
        partition = answer.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert (await list_offset(peer, "t", -1)).offset == 0


async def test_a_full_disk_is_told_and_survived(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk is an error to the client and one line to the operator, and it may pass."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.files.faults.append(
            DiskFault(operation="write", path_part=".log", error=28, partial_bytes=30)
        )
        for _ in range(3):
            answer = await produce(peer, "t", batch(b"lost"))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        told = [line for line in caplog.messages if line.startswith("append_refused")]
        assert len(told) == 1
        assert "data/t-0" in told[0]
        assert "the disk is full; free some space" in told[0]
        outside.files.faults.clear()
        assert (await produce(peer, "t", batch(b"kept"))).base_offset == 0
        assert values_of((await fetch(peer, fetch_request("t", 0))).records) == [b"kept"]


def test_a_broker_does_not_start_on_a_full_disk() -> None:
    """On a disk without room for its first files a broker says that, and what to do."""
    config = broker_config({"log.dirs": "data"})
    with (
        virtual_runtime(files=MemoryFiles(capacity_bytes=0)) as outside,
        pytest.raises(DirectoryError, match="the disk is full; free some space"),
    ):
        outside.run(start_broker(config, outside.runtime))


async def test_fetch_out_of_range_and_of_nothing(outside: Outside) -> None:
    """An offset beyond the log and a topic that is not there have Kafka's codes."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        beyond = await fetch(peer, fetch_request("t", 1, max_wait_ms=1000))
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        nothing = await fetch(peer, fetch_request("missing", 0, max_wait_ms=1000))
        assert nothing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_fetch_by_topic_id(outside: Outside) -> None:
    """From version 13 a topic is fetched by the id that metadata gives, and others are unknown."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        created = await create_topic(peer, "t")
        await produce(peer, "t", batch(b"x"))
        request = fetch_request("", 0)
        for topic_id, code in (
            (created.topic_id, ErrorCode.NONE),
            (broker.controller.new_id(), ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            topics = tuple(
                type(topic)(topic_id=topic_id, partitions=topic.partitions)
                for topic in request.topics
            )
            by_id = type(request)(max_wait_ms=0, min_bytes=1, max_bytes=2**20, topics=topics)
            answer = await peer.ask(ApiKey.FETCH, by_id, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == code


async def test_offsets_by_timestamp_and_at_the_ends(outside: Outside) -> None:
    """ListOffsets gives the first record at or after a time, both ends, and the newest record."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for number, timestamp in enumerate((1000, 3000, 2000)):
            await produce(peer, "t", batch(b"%d" % number, timestamp=timestamp))
        found = {time: await list_offset(peer, "t", time) for time in (-1, -2, -3, 1500, 9000)}
        assert found[-1].offset == 3
        assert found[-2].offset == 0
        assert (found[-3].offset, found[-3].timestamp) == (1, 3000)
        assert (found[1500].offset, found[1500].timestamp) == (1, 3000)
        assert (found[9000].offset, found[9000].timestamp) == (-1, -1)


async def test_asking_for_a_topic_creates_it_if_allowed(outside: Outside) -> None:
    """Metadata creates a missing topic at once, unless the request or the broker forbids it."""
    async with running(outside, {"num.partitions": "3"}) as broker:
        peer = connect(outside, broker)
        forbidden = (await find_topic(peer, "t", may_create=False)).topics[0]
        assert forbidden.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        created = (await find_topic(peer, "t")).topics[0]
        assert created.error_code == ErrorCode.NONE
        assert [p.leader_id for p in created.partitions] == [1, 1, 1]
        invalid = (await find_topic(peer, "no/slash")).topics[0]
        assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_are_refused_with_kafkas_codes(outside: Outside) -> None:
    """CreateTopics refuses a taken name, bad counts and settings, all of whose faults it tells."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        assert (await create_topic(peer, "t")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        none = await create_topic(peer, "none", partitions=0)
        assert none.error_code == ErrorCode.INVALID_PARTITIONS
        wrong = await create_topic(
            peer, "wrong", configs={"segment.bites": "1", "retention.ms": "soon"}
        )
        assert wrong.error_code == ErrorCode.INVALID_CONFIG
        assert "did you mean segment.bytes" in (wrong.error_message or "")
        assert "retention.ms" in (wrong.error_message or "")


async def test_a_deleted_topic_is_gone(outside: Outside) -> None:
    """A second delete is refused; its folders have new names, and go after file.delete.delay.ms."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        await produce(peer, "t", batch(b"x"))
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        codes = [
            (await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse))
            .responses[0]
            .error_code
            for _ in range(2)
        ]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        left = [name for name in outside.files.list("data") if name.startswith("t-")]
        assert len(left) == 2
        assert all(name.endswith("-delete") for name in left)
        await outside.pass_time(55)
        assert set(left) <= set(outside.files.list("data"))
        await outside.pass_time(10)
        assert not set(left) & set(outside.files.list("data"))


def test_producer_ids_are_never_handed_out_twice() -> None:
    """Ids differ within a run and after a power cut, also for requests with an id and epoch."""

    async def first_id(outside: Outside) -> int:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            ids = [
                (await peer.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse))
                for _ in range(2)
            ]
            assert ids[0].producer_id != ids[1].producer_id
            again = InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=0,
                producer_id=ids[0].producer_id,
                producer_epoch=0,
            )
            bumped = await peer.ask(ApiKey.INIT_PRODUCER_ID, again, InitProducerIdResponse)
            assert bumped.producer_id > ids[1].producer_id
            assert bumped.producer_epoch == 0
            return bumped.producer_id

    with virtual_runtime() as outside:
        before = outside.run(first_id(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        assert outside.run(first_id(outside)) > before


async def test_an_invented_producer_id_is_not_believed(outside: Outside) -> None:
    """For an unknown id the broker gives a new one with epoch 0, as Kafka does."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        invented = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0, producer_id=77, producer_epoch=3
        )
        answer = await peer.ask(ApiKey.INIT_PRODUCER_ID, invented, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.NONE
        assert answer.producer_id != invented.producer_id
        assert answer.producer_epoch == 0


def test_a_producer_gets_no_id_that_a_log_knows() -> None:
    """Ids in the logs are skipped, since a first batch under one would pass for a duplicate."""
    known = FIRST_PRODUCER_ID + 77

    async def write(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            await produce(peer, "t", sequenced(b"0", 0, producer_id=known))

    async def first_id(outside: Outside) -> int:
        async with running(outside) as broker:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            peer = connect(outside, broker)
            answer = await peer.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            return answer.producer_id

    with virtual_runtime() as outside:
        outside.run(write(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        assert outside.run(first_id(outside)) > known


async def test_the_coordinator_is_this_broker(outside: Outside) -> None:
    """FindCoordinator names the only broker, in the single and in the batched form."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        single = await peer.ask(
            ApiKey.FIND_COORDINATOR,
            FindCoordinatorRequest(key="g"),
            FindCoordinatorResponse,
            version=3,
        )
        assert (single.node_id, single.port) == (1, broker.endpoint[1])
        batched = await peer.ask(
            ApiKey.FIND_COORDINATOR,
            FindCoordinatorRequest(coordinator_keys=("a", "b")),
            FindCoordinatorResponse,
        )
        assert [found.key for found in batched.coordinators] == ["a", "b"]


def test_what_was_acknowledged_survives_a_kill() -> None:
    """A broker that was killed has every acknowledged record and every topic's settings."""

    async def write(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs={"internal.segment.bytes": "300"})
            for number in range(20):
                await produce(peer, "t", batch(b"%d" % number))
            disks.append(outside.files.crash(keep_unsynced=True))

    async def read(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            offset, values = 0, list[bytes | None]()
            while offset < 20:
                found = await fetch(peer, fetch_request("t", offset))
                values += values_of(found.records)
                offset = len(values)
            assert values == [b"%d" % number for number in range(20)]
            assert broker.controller.image.topics["t"].configs == {"internal.segment.bytes": "300"}

    disks: list = []  # type: ignore[type-arg]
    with virtual_runtime() as outside:
        outside.run(write(outside))
    with virtual_runtime(files=disks[0]) as outside:
        outside.run(read(outside))


def test_a_topic_does_not_come_back_after_a_crash_in_its_deletion() -> None:
    """Stopped at any file operation of a deletion, the topic is whole or gone after the restart."""

    async def delete(outside: Outside, operation: int) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=3, configs={"retention.ms": "5"})
            disk = outside.files
            disk.stop_at = len(disk.operations) + operation
            request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
            peer.send(ApiKey.DELETE_TOPICS, request)
            with suppress(ProcessKilledError):
                await outside.pass_time(0.1)
            disks.append(disk.crash(keep_unsynced=True))
            raise ProcessKilledError

    async def look(outside: Outside) -> None:
        async with running(outside) as broker:
            topic = broker.controller.image.topics.get("t")
            names = outside.files.list("data")
            folders = [each for each in names if each.startswith("t-") and "-delete" not in each]
            if topic is None:
                assert not folders
            else:
                assert (len(folders), topic.configs) == (3, {"retention.ms": "5"})

    for operation in range(12):
        disks: list[MemoryFiles] = []
        with virtual_runtime() as outside, suppress(ProcessKilledError):
            outside.run(delete(outside, operation))
        with virtual_runtime(files=disks[0]) as outside:
            outside.run(look(outside))


def sequenced(value: bytes, sequence: int, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    """A batch of one record of an idempotent producer."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    builder.append(b"k", value, timestamp=1_700_000_000_000)
    return builder.build()


async def test_a_batch_sent_again_gets_its_first_offset(outside: Outside) -> None:
    """The log has it once; a gap and an old epoch are refused with Kafka's codes."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for number in range(3):
            await produce(peer, "t", sequenced(b"%d" % number, number, epoch=1))
        again = await produce(peer, "t", sequenced(b"1", 1, epoch=1))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)
        gap = await produce(peer, "t", sequenced(b"x", 4, epoch=1))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "sequence 4 where 3 is due" in (gap.error_message or "")
        old = await produce(peer, "t", sequenced(b"x", 0))
        assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await produce(peer, "t", sequenced(b"3", 0, epoch=2))).base_offset == 3
        found = await fetch(peer, fetch_request("t", 0))
        assert values_of(found.records) == [b"0", b"1", b"2", b"3"]


async def test_a_refused_sequence_comes_with_the_log_start(outside: Outside) -> None:
    """A producer can tell records that retention took from lost ones; as in Kafka, not always."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for number in range(3):
            await produce(peer, "t", sequenced(b"%d" % number, number))
        raise_log_start(broker.replicas.find(TopicPartition("t", 0)).log, Offset(2))
        gap = await produce(peer, "t", sequenced(b"x", 13))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert gap.log_start_offset == 2
        damaged = sequenced(b"x", 3)[:-1] + b"?"
        found = await produce(peer, "t", damaged)
        assert (found.error_code, found.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


@pytest.mark.parametrize("is_kill", [True, False])
def test_sequences_are_known_after_a_restart(is_kill: bool) -> None:  # noqa: FBT001 - a parameter
    """A batch whose answer the stop has eaten is sent again and appended once; a gap is refused."""

    async def write(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs={"internal.segment.bytes": "200"})
            for number in range(5):
                await produce(peer, "t", sequenced(b"%d" % number, number))
            disks.append(outside.files.crash(keep_unsynced=True))

    async def go_on(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            assert (await produce(peer, "t", sequenced(b"4", 4))).base_offset == 4
            gap = await produce(peer, "t", sequenced(b"6", 6))
            assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await produce(peer, "t", sequenced(b"5", 5))).base_offset == 5

    disks: list[MemoryFiles] = []
    with virtual_runtime() as outside:
        outside.run(write(outside))
        stopped = outside.files.crash()
    with virtual_runtime(files=disks[0] if is_kill else stopped) as outside:
        outside.run(go_on(outside))


async def test_a_waiting_fetch_is_told_that_its_topic_is_deleted(outside: Outside) -> None:
    """It is answered at once, not at its deadline; and so is one that comes later."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        request = fetch_request("t", 0, max_wait_ms=60_000)
        waiting = asyncio.ensure_future(fetch(connect(outside, broker), request))
        await outside.pass_time(1)
        assert not waiting.done()
        deletion = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        await peer.ask(ApiKey.DELETE_TOPICS, deletion, DeleteTopicsResponse)
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await fetch(peer, request)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert outside.loop.time() < 3


def test_a_partition_has_the_id_of_its_topic_in_a_file() -> None:
    """By it a start tells the topic's folder from one of a deleted topic of the same name."""

    def read(outside: Outside) -> uuid.UUID | None:
        return checkpoints.read_partition_metadata(outside.files, "data/t-0/partition.metadata")

    async def create(outside: Outside) -> uuid.UUID:
        async with running(outside) as broker:
            await create_topic(connect(outside, broker), "t")
            topic_id = broker.controller.image.topics["t"].topic_id
            assert read(outside) == topic_id
            return topic_id

    async def look(outside: Outside) -> uuid.UUID:
        async with running(outside) as broker:
            assert broker.replicas.find(TopicPartition("t", 0)).log.end_offset == 0
            return broker.controller.image.topics["t"].topic_id

    with virtual_runtime() as outside:
        topic_id = outside.run(create(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        assert outside.run(look(outside)) == topic_id == read(outside)
