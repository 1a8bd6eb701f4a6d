"""`tailrace.durability=sync` and `flush.messages`: answers that wait for the device."""

import asyncio
import errno

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
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

SYNC = {"tailrace.durability": "sync"}
FLUSH_S = 0.5
"""Time that the device takes in these tests, in virtual seconds."""


def log_of(topic: str, partition: int = 0) -> str:
    """The log file of a partition's first segment."""
    return f"data/{topic}-{partition}/00000000000000000000.log"


def flushes(files: MemoryFiles, topic: str = "t") -> int:
    """Count the flushes of a topic's records."""
    return files.operations.count(("sync", log_of(topic)))


async def acknowledged(
    peer: Peer, *, acks: int, value: bytes = b"x", topic: str = "t"
) -> PartitionProduceResponse:
    """The answer to a Produce request with these acks."""
    request = produce_request(topic, batch(value), acks=acks)
    response = await peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE)
    return response.responses[0].partition_responses[0]


def test_an_acknowledged_record_survives_a_lost_machine() -> None:
    """Promise 1: with acks=all under sync it is on the device when the answer is there."""

    async def write(outside: Outside) -> None:
        async with running(outside, SYNC) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs={"internal.segment.bytes": "300"})
            for number in range(20):
                await produce(peer, "t", batch(b"%d" % number))
                disks.append(outside.files.crash())

    async def count(outside: Outside) -> int:
        async with running(outside) as broker:
            return broker.replicas.find(next(iter(broker.logs)).partition).log.end_offset

    disks: list[MemoryFiles] = []
    with virtual_runtime() as outside:
        outside.run(write(outside))
    for number, disk in enumerate(disks):
        with virtual_runtime(files=disk) as outside:
            assert outside.run(count(outside)) == number + 1


@pytest.mark.parametrize(
    ("settings", "acks", "waits"),
    [
        (SYNC, -1, True),
        (SYNC, 1, False),
        ({"tailrace.durability": "page-cache"}, -1, False),
        ({}, -1, False),
    ],
)
async def test_only_acks_all_under_sync_waits_for_the_device(
    outside: Outside,
    settings: dict[str, str],
    acks: int,
    waits: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Only acks=all under sync waits for the device; other requests cause no flush."""
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = FLUSH_S
        before = outside.loop.time()
        assert (await acknowledged(peer, acks=acks)).error_code == ErrorCode.NONE
        assert (outside.loop.time() - before >= FLUSH_S) is waits
        assert flushes(outside.files) == waits


async def test_one_flush_covers_every_append_that_waited(outside: Outside) -> None:
    """Eight producers at once: the first one's flush, and one for the seven that came during it."""
    async with running(outside, SYNC) as broker:
        peers = [connect(outside, broker) for _ in range(8)]
        await create_topic(peers[0], "t")
        outside.threads.seconds_per_run = FLUSH_S
        first = asyncio.ensure_future(acknowledged(peers[0], acks=-1))
        await outside.pass_time(FLUSH_S / 2)
        others = [asyncio.ensure_future(acknowledged(peer, acks=-1)) for peer in peers[1:]]
        await first
        assert not any(other.done() for other in others)
        answers = await asyncio.gather(*others)
        assert sorted(answer.base_offset for answer in answers) == list(range(1, 8))
        assert flushes(outside.files) == 2


async def test_answers_leave_in_the_order_of_requests(outside: Outside) -> None:
    """One with acks=1 behind one that waits is answered after it, on the same connection."""
    async with running(outside, SYNC) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = FLUSH_S
        for acks in (-1, 1):
            request = produce_request("t", batch(b"x"), acks=acks)
            peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        first, second = await peer.read_frame(), await peer.read_frame()
        assert int.from_bytes(first[:4], "big") + 1 == int.from_bytes(second[:4], "big")


async def test_the_directories_are_flushed_side_by_side(outside: Outside) -> None:
    """A request for a partition on each waits once, not twice."""
    async with running(outside, {**SYNC, "log.dirs": "a,b"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        outside.threads.seconds_per_run = FLUSH_S
        before = outside.loop.time()
        data = tuple(PartitionProduceData(index=n, records=batch(b"x")) for n in range(2))
        topic = TopicProduceData(name="t", partition_data=data)
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,))
        await peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE)
        assert outside.loop.time() - before < 1.5 * FLUSH_S


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_a_failed_flush_fails_all_who_waited_and_the_directory(
    outside: Outside, error: int
) -> None:
    """The flush is not repeated, whatever the error; the other directory stays in service."""
    async with running(outside, {**SYNC, "log.dirs": "a,b"}) as broker:
        peers = [connect(outside, broker) for _ in range(4)]
        for name in ("here", "there"):
            await create_topic(peers[0], name)
            assert (await acknowledged(peers[0], acks=-1, topic=name)).error_code == 0
        fault = DiskFault(operation="sync", path_part="b/there-0/0", error=error)
        outside.files.faults.append(fault)
        waiting = [acknowledged(peer, acks=-1, topic="there") for peer in peers]
        codes = {answer.error_code for answer in await asyncio.gather(*waiting)}
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert broker.logs.directories[1].failure is not None
        outside.files.faults.clear()
        assert (await acknowledged(peers[0], acks=-1, topic="there")).error_code == 56
        assert (await acknowledged(peers[0], acks=-1, topic="here")).error_code == 0


async def test_a_cut_connection_does_not_disturb_the_others(outside: Outside) -> None:
    """A producer that vanishes while it waits shares its flush with one that stays."""
    async with running(outside, SYNC) as broker:
        going, staying = connect(outside, broker), connect(outside, broker)
        await create_topic(going, "t")
        outside.threads.seconds_per_run = FLUSH_S
        request = produce_request("t", batch(b"gone"))
        going.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        answer = asyncio.ensure_future(acknowledged(staying, acks=-1))
        await outside.pass_time(FLUSH_S / 2)
        going.socket.cut()
        assert (await answer).error_code == ErrorCode.NONE


async def test_a_topic_that_is_deleted_while_its_flush_runs_fails_nothing_else(
    outside: Outside,
) -> None:
    """Waiting requests get an error, and the log directory stays in service."""
    async with running(outside, SYNC) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = FLUSH_S
        answer = asyncio.ensure_future(acknowledged(peer, acks=-1))
        await outside.pass_time(FLUSH_S / 2)
        log = next(iter(broker.logs))
        broker.replicas.close(log.partition, unique_id="ab" * 16)()
        assert (await answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.logs.is_complete


@pytest.mark.parametrize("acks", [1, -1])
async def test_flush_messages_makes_the_batch_wait_that_reaches_it(
    outside: Outside, acks: int
) -> None:
    """Every third record, whatever the acks; and the recovery point is behind it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"flush.messages": "3"})
        outside.threads.seconds_per_run = FLUSH_S
        waited = []
        for _ in range(7):
            before = outside.loop.time()
            assert (await acknowledged(peer, acks=acks)).error_code == ErrorCode.NONE
            waited.append(outside.loop.time() - before >= FLUSH_S)
        assert waited == [False, False, True, False, False, True, False]
        assert next(iter(broker.logs)).positions.recovery_point == 6


@pytest.mark.parametrize("settings", [SYNC, {"log.flush.interval.messages": "1"}])
async def test_requests_of_groups_wait_for_the_device(
    outside: Outside, settings: dict[str, str]
) -> None:
    """A commit is answered once it is on the device, a heartbeat too, and both in the end."""
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        found = FindCoordinatorRequest(key="g", coordinator_keys=("g",))
        await peer.ask(ApiKey.FIND_COORDINATOR, found, FindCoordinatorResponse)
        await outside.pass_time(1)
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        commit = OffsetCommitRequest(
            group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
        )
        for _ in range(3):
            count = sum(name == "sync" for name, _ in outside.files.operations)
            answer = await peer.ask(ApiKey.OFFSET_COMMIT, commit, OffsetCommitResponse, version=9)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
            assert sum(name == "sync" for name, _ in outside.files.operations) > count
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        told = await peer.ask(ApiKey.HEARTBEAT, beat, HeartbeatResponse)
        assert told.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_flush_messages_holds_for_acks_zero(outside: Outside) -> None:
    """There is no answer to wait, so the connection's next request does."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"flush.messages": "1"})
        outside.threads.seconds_per_run = FLUSH_S
        request = produce_request("t", batch(b"x"), acks=0)
        peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        before = outside.loop.time()
        await fetch(peer, fetch_request("t", 0))
        assert outside.loop.time() - before >= FLUSH_S
        assert flushes(outside.files) == 1
