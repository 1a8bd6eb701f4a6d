"""Readers of committed records: Fetch and ListOffsets up to the last stable offset."""

import asyncio
from dataclasses import replace

from tailrace.broker.broker import RunningBroker
from tailrace.model import (
    AppendOrigin,
    IsolationLevel,
    LeaderEpoch,
    ProducerEpoch,
    ProducerId,
    SpecialTimestamp,
    TopicPartition,
)
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import received_records
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tailrace.storage.verification import VerificationGuard
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, fetch, produce, running

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
NOW = 1_700_000_000_000


def write(
    broker: RunningBroker,
    data: bytes,
    *,
    origin: AppendOrigin,
    guard: VerificationGuard | None = None,
) -> None:
    """Append to partition 0 of topic t as a coordinator would have it, and wake the readers."""
    partition = broker.replicas.find(TopicPartition("t", 0))
    log = partition.log
    records = memoryview(bytearray(data))
    log.append(records, leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=origin, guard=guard)
    log.advance_high_watermark(log.end_offset)
    partition.appended.changed()


def write_open(broker: RunningBroker, producer_id: int, value: bytes) -> None:
    """A record in a transaction."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    builder.append(b"k", value, timestamp=NOW)
    guard = broker.replicas.find(TopicPartition("t", 0)).log.producers.begin_verification(
        ProducerId(producer_id), epoch=ProducerEpoch(0), sequence=0, now_ms=NOW
    )
    write(broker, builder.build(), origin=AppendOrigin.CLIENT, guard=guard)


def end(broker: RunningBroker, producer_id: int, *, is_commit: bool) -> None:
    """The end of a producer's transaction."""
    data = build_end_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW)
    write(broker, bytes(data), origin=AppendOrigin.COORDINATOR)


def request(isolation: IsolationLevel, *, offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    """A Fetch request for partition 0 of topic t."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation,
        topics=(FetchTopic(topic="t", partitions=(partition,)),),
    )


def bases(found: PartitionData) -> list[int]:
    """Base offsets of the batches in an answer."""
    return [each.base_offset for _, each in read_batches(received_records(found.records))]


async def latest(peer: Peer, isolation: IsolationLevel, timestamp: int) -> tuple[int, int]:
    """Error and offset that ListOffsets answers."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=(ListOffsetsTopic(name="t", partitions=(partition,)),),
    )
    response = await peer.ask(ApiKey.LIST_OFFSETS, asked, ListOffsetsResponse)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


async def test_an_open_transaction_ends_what_committed_readers_see(outside: Outside) -> None:
    """Others see all of it; the last stable offset is in both answers."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await produce(peer, "t", batch(b"plain"))
        write_open(broker, 7, b"open")
        await produce(peer, "t", batch(b"behind"))
        committed = await fetch(peer, request(COMMITTED))
        uncommitted = await fetch(peer, request(UNCOMMITTED))
        assert (bases(committed), bases(uncommitted)) == ([0], [0, 1, 2])
        for found in (committed, uncommitted):
            assert (found.last_stable_offset, found.high_watermark) == (1, 3)
        assert (committed.aborted_transactions, uncommitted.aborted_transactions) == ((), None)
        at_end = await fetch(peer, request(COMMITTED, offset=3))
        assert (at_end.error_code, bases(at_end)) == (ErrorCode.NONE, [])


async def test_tools_for_debugging_see_what_consumers_see(outside: Outside) -> None:
    """Kafka's ask as replica -2, and get no open transaction and nothing that may be cut."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await produce(peer, "t", batch(b"plain"))
        write_open(broker, 7, b"open")
        asked = replace(request(COMMITTED), replica_id=-2)
        answer = await peer.ask(ApiKey.FETCH, asked, FetchResponse, version=12)
        assert bases(answer.responses[0].partitions[0]) == [0]


async def test_a_committed_reader_is_told_which_transactions_were_aborted(outside: Outside) -> None:
    """Producer and first offset of those in the slice; it gets their batches and drops them."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        write_open(broker, 7, b"committed")
        write_open(broker, 8, b"aborted")
        end(broker, 7, is_commit=True)
        end(broker, 8, is_commit=False)
        found = await fetch(peer, request(COMMITTED))
        assert bases(found) == [0, 1, 2, 3]
        assert found.aborted_transactions == (AbortedTransaction(producer_id=8, first_offset=1),)
        behind = await fetch(peer, request(COMMITTED, offset=4))
        assert behind.aborted_transactions == ()


def test_a_waiting_committed_reader_is_woken_by_the_end_of_a_transaction() -> None:
    """A read_committed fetch waits until a transaction ends; its records do not wake it."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer, reader = connect(outside, broker), connect(outside, broker)
            await create_topic(peer, "t")
            write_open(broker, 7, b"open")
            wanted = request(COMMITTED, max_wait_ms=60_000)
            waiting = asyncio.ensure_future(fetch(reader, wanted))
            await outside.pass_time(1)
            await produce(peer, "t", batch(b"behind"))
            await outside.pass_time(1)
            assert not waiting.done()
            end(broker, 7, is_commit=True)
            assert bases(await waiting) == [0, 1, 2]

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        assert outside.loop.time() < 5


async def test_offsets_for_committed_readers_stop_at_the_last_stable_one(outside: Outside) -> None:
    """The latest is that offset, and a timestamp finds nothing behind it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await produce(peer, "t", batch(b"plain", timestamp=NOW - 10))
        write_open(broker, 7, b"open")
        for timestamp, offsets in {
            SpecialTimestamp.LATEST: (1, 2),
            SpecialTimestamp.EARLIEST: (0, 0),
            NOW - 10: (0, 0),
            NOW: (-1, 1),
        }.items():
            found = [await latest(peer, level, timestamp) for level in (COMMITTED, UNCOMMITTED)]
            assert found == [(ErrorCode.NONE, offset) for offset in offsets]


async def test_a_transaction_without_an_id_is_refused(outside: Outside) -> None:
    """No coordinator could end it; nothing is appended."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        builder = BatchBuilder(
            producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        builder.append(b"k", b"v", timestamp=NOW)
        answer = await produce(peer, "t", builder.build())
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await latest(peer, UNCOMMITTED, -1) == (0, 0)
