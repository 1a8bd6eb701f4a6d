"""Partitions move between log directories while they are served: AlterReplicaLogDirs (KIP-113)."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.model import AppendOrigin, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tailrace.records.builder import records_of
from tailrace.records.control import build_end_marker
from tailrace.runtime.files import VolumeSpace
from tailrace.storage.producers import InvalidTransactionStateError
from tailrace.testing import DiskFault, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.broker.transactional import NOW, Client

T = TopicPartition("t", 0)
SMALL = {"internal.segment.bytes": "400"}
COUNT = 20
FIRST_FLUSH = "-future/leader-epoch-checkpoint.tmp"
"""File that a copy writes when its first segment is full, before it goes on."""


async def alter(peer: Peer, path: str, topic: str = "t", partition: int = 0) -> int:
    """The code that the broker answers with for one partition."""
    request = AlterReplicaLogDirsRequest(
        dirs=(
            AlterReplicaLogDir(
                path=path, topics=(AlterReplicaLogDirTopic(name=topic, partitions=(partition,)),)
            ),
        )
    )
    key = ApiKey.ALTER_REPLICA_LOG_DIRS
    response = await peer.ask(key, request, AlterReplicaLogDirsResponse)
    (result,) = response.results
    assert result.topic_name == topic
    return result.partitions[0].error_code


async def describe(
    peer: Peer, topics: tuple[DescribableLogDirTopic, ...] | None = None
) -> dict[str, tuple[int, dict[str, list[DescribeLogDirsPartition]]]]:
    """Code and partitions of each directory."""
    request = DescribeLogDirsRequest(topics=topics)
    response = await peer.ask(ApiKey.DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)
    return {
        result.log_dir: (
            result.error_code,
            {topic.name: list(topic.partitions) for topic in result.topics},
        )
        for result in response.results
    }


async def test_no_directory_is_cordoned(outside: Outside) -> None:
    """Version 5 says so of each directory."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        request = DescribeLogDirsRequest(topics=None)
        key = ApiKey.DESCRIBE_LOG_DIRS
        response = await peer.ask(key, request, DescribeLogDirsResponse, version=5)
        assert response.results
        assert not any(result.is_cordoned for result in response.results)


async def test_the_sizes_of_volumes_are_told(outside: Outside) -> None:
    """From version 4 on; -1 where the device does not tell them, or has failed."""
    outside.files.volume = VolumeSpace(total=4_000, usable=1_500)

    async def ask(peer: Peer, version: int) -> list[tuple[int, int]]:
        request = DescribeLogDirsRequest(topics=None)
        key = ApiKey.DESCRIBE_LOG_DIRS
        answer = await peer.ask(key, request, DescribeLogDirsResponse, version=version)
        return [(each.total_bytes, each.usable_bytes) for each in answer.results]

    async with running(outside, {"log.dirs": "a,b"}) as broker:
        peer = connect(outside, broker)
        for version in (4, 5):
            assert await ask(peer, version) == [(4_000, 1_500)] * 2
        assert await ask(peer, 3) == [(-1, -1)] * 2
        outside.files.faults.append(DiskFault(operation="space", path_part="b"))
        assert await ask(peer, 5) == [(4_000, 1_500), (-1, -1)]
        assert broker.logs.is_complete
        outside.files.faults.clear()
        broker.logs.fail(broker.logs.directories[1], OSError("the device is away"))
        assert await ask(peer, 5) == [(4_000, 1_500), (-1, -1)]


@asynccontextmanager
async def filled(
    outside: Outside, settings: dict[str, str] | None = None, **configs: str
) -> AsyncIterator[tuple[RunningBroker, Peer]]:
    """A broker with two directories, and a topic with records in the first."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with running(outside, {"log.dirs": "one,two", **(settings or {})}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={**SMALL, **named})
        for number in range(COUNT):
            await produce(peer, "t", batch(b"%d" % number, key=b"k%d" % (number % 3)))
        yield broker, peer


def stored(broker: RunningBroker) -> list[bytes | None]:
    """The values of the records that the partition has."""
    log = broker.logs.get(T)
    assert log is not None
    found = [record for each in log.batches(0) for record in records_of(each)]
    assert [record.offset for record in found] == list(range(len(found)))
    return [record.value for record in found]


def values(count: int) -> list[bytes]:
    """Return the values of the first records."""
    return [b"%d" % number for number in range(count)]


def test_a_partition_moves_with_all_its_records() -> None:
    """Under its name in the new directory, gone from the old one, and so after a restart."""

    async def move(outside: Outside) -> None:
        async with filled(outside) as (broker, peer):
            assert await alter(peer, "two") == ErrorCode.NONE
            await outside.pass_time(1)
            assert outside.files.is_directory("two/t-0")
            assert not outside.files.exists("one/t-0")
            assert stored(broker) == values(COUNT)
            assert (await produce(peer, "t", batch(b"20"))).base_offset == COUNT
            assert (await fetch(peer, fetch_request("t", COUNT))).high_watermark == COUNT + 1
            await outside.pass_time(120)
            assert [name for name in outside.files.list("one") if name.startswith("t-0")] == []

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            assert stored(broker) == values(COUNT + 1)

    with virtual_runtime() as outside:
        outside.run(move(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


async def test_a_copy_may_have_other_segments(outside: Outside) -> None:
    """The topic's settings have changed, or it was compacted: offsets count, not base offsets."""
    async with filled(outside) as (broker, peer):
        log = broker.replicas.find(T).log
        before = len(log.segments)
        broker.replicas.configure("t", replace(log.config, segment_bytes=2**20))
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(1)
        assert outside.files.is_directory("two/t-0")
        assert (before, len(broker.replicas.find(T).log.segments)) == (COUNT // 5, 1)
        assert stored(broker) == values(COUNT)
        assert (await produce(peer, "t", batch(b"20"))).base_offset == COUNT


async def test_producers_and_readers_go_on_meanwhile(outside: Outside) -> None:
    """Each record is in the log once, whichever directory had it; a waiting reader is woken."""
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "3000"}
    async with filled(outside, settings) as (broker, peer):
        assert await alter(peer, "two") == ErrorCode.NONE
        count = COUNT
        while not outside.files.is_directory("two/t-0"):
            assert (await produce(peer, "t", batch(b"%d" % count))).error_code == 0
            count += 1
            await outside.pass_time(0.05)
            assert count < 1000
        assert count > COUNT
        reader = connect(outside, broker)
        waiting = asyncio.ensure_future(fetch(reader, fetch_request("t", count, max_wait_ms=5000)))
        assert await alter(peer, "one") == ErrorCode.NONE
        await outside.pass_time(3)
        assert outside.files.is_directory("one/t-0")
        await produce(peer, "t", batch(b"%d" % count))
        assert (await waiting).high_watermark == count + 1
        assert stored(broker) == values(count + 1)


async def test_answers_that_wait_for_the_device_are_not_lost(outside: Outside) -> None:
    """A flush that the swap overtakes has its records on the other device."""
    async with filled(outside, {"tailrace.durability": "sync"}) as (broker, peer):
        outside.threads.seconds_per_run = 0.3
        assert await alter(peer, "two") == ErrorCode.NONE
        count = COUNT
        while not outside.files.is_directory("two/t-0"):
            assert (await produce(peer, "t", batch(b"%d" % count))).error_code == 0
            count += 1
            assert count < 1000
            assert outside.files.crash() is not None
        assert (await produce(peer, "t", batch(b"%d" % count))).error_code == 0
        assert stored(broker) == values(count + 1)
        log = broker.logs.get(T)
        assert log is not None
        path = log.segments.active.log.path
        assert outside.files.crash().content(path) == outside.files.content(path)


async def test_a_move_keeps_the_transactions_that_are_being_verified(outside: Outside) -> None:
    """A batch gets in with its guard of before the move, but not behind its marker."""
    async with filled(outside) as (broker, peer):
        before = broker.replicas.find(T).log.producers
        guards = {
            producer_id: before.begin_verification(
                ProducerId(producer_id), epoch=ProducerEpoch(0), sequence=0, now_ms=NOW
            )
            for producer_id in (7, 8)
        }
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(1)
        assert outside.files.is_directory("two/t-0")
        partition = broker.replicas.find(T)
        marker = build_end_marker(8, 0, is_commit=False, coordinator_epoch=0, timestamp=NOW)
        partition.append(memoryview(marker), now_ms=NOW, origin=AppendOrigin.COORDINATOR)

        def send(producer_id: int) -> None:
            data = bytearray(Client(peer, producer_id=producer_id, epoch=0).batch(b"in"))
            partition.append(memoryview(data), now_ms=NOW, guard=guards[producer_id])

        send(7)
        with pytest.raises(InvalidTransactionStateError):
            send(8)


async def test_log_directories_are_described_with_their_copies(outside: Outside) -> None:
    """Bytes of logs, and how far a copy is; of all partitions or of those that are named."""
    async with filled(outside) as (broker, peer):
        log = broker.logs.get(T)
        assert log is not None
        expected = DescribeLogDirsPartition(
            partition_index=0, partition_size=log.size, offset_lag=0, is_future_key=False
        )
        assert await describe(peer) == {"one": (0, {"t": [expected]}), "two": (0, {})}
        other = (DescribableLogDirTopic(topic="t", partitions=(1,)),)
        assert await describe(peer, other) == {"one": (0, {}), "two": (0, {})}
        hanging = outside.hang(FIRST_FLUSH)
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(10)
        assert (await describe(peer))["one"] == (0, {"t": [expected]})
        code, topics = (await describe(peer))["two"]
        (future,) = topics["t"]
        assert (code, future.is_future_key) == (0, True)
        assert 0 < future.offset_lag < COUNT
        assert future.partition_size == log.size // COUNT * (COUNT - future.offset_lag)
        hanging.release()


@pytest.mark.parametrize(
    ("path", "topic", "partition", "code"),
    [
        ("three", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("two", "t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("two", "unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("two", "t" * 240, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("one", "t", 0, ErrorCode.NONE),
        ("two/", "t", 0, ErrorCode.NONE),
    ],
)
async def test_what_cannot_move_is_refused(
    outside: Outside, path: str, topic: str, partition: int, code: int
) -> None:
    """The codes are Kafka's, and the data there is left alone."""
    async with filled(outside) as (_, peer):
        assert await alter(peer, path, topic, partition) == code


async def test_a_partition_that_is_not_here_cannot_move(outside: Outside) -> None:
    """REPLICA_NOT_AVAILABLE, where the cluster has the partition and this broker no log of it."""
    async with filled(outside) as (broker, peer):
        broker.replicas.close(T, unique_id="0" * 32)
        assert await alter(peer, "two") == ErrorCode.REPLICA_NOT_AVAILABLE


async def test_a_directory_out_of_service_takes_and_gives_nothing(outside: Outside) -> None:
    """KAFKA_STORAGE_ERROR, here and in DescribeLogDirs."""
    async with filled(outside) as (broker, peer):
        await create_topic(peer, "u")
        broker.logs.fail(broker.logs.directories[1], OSError(errno.EIO, "broken"))
        assert await alter(peer, "two") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await alter(peer, "one", "u") == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await describe(peer))["two"] == (ErrorCode.KAFKA_STORAGE_ERROR, {})


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "make_directory"])
def test_a_target_that_fails_leaves_the_partition_where_it_is(operation: str) -> None:
    """Served, with all its records; nothing of the copy is taken for it later."""

    async def move(outside: Outside) -> None:
        async with filled(outside) as (broker, peer):
            fault = DiskFault(operation=operation, path_part="two/t-0.", after=1)
            if operation in ("rename", "make_directory"):
                fault.after = 0
            outside.files.faults.append(fault)
            assert await alter(peer, "two") == ErrorCode.NONE
            await outside.pass_time(5)
            outside.files.faults.clear()
            assert stored(broker) == values(COUNT)
            assert (await produce(peer, "t", batch(b"20"))).error_code == 0
            assert outside.files.is_directory("one/t-0")

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            assert stored(broker) == values(COUNT + 1)

    with virtual_runtime() as outside:
        outside.run(move(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


def refuse_after(outside: Outside, call: tuple[str, str], *faults: DiskFault) -> None:
    """Have faults from the call on that follows this one; paths end as given."""

    def on_call(operation: str, path: str) -> None:
        if is_seen:
            outside.files.faults += faults
            outside.files.on_call = None
        elif (operation, path) == call:
            is_seen.append(path)

    is_seen: list[str] = []
    outside.files.on_call = on_call


SWAP_BEGINS = ("rename", "one/t-0")


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_a_home_that_fails_in_the_swap_loses_no_record(error: int) -> None:
    """It is out of service at once, its copy stays, and the next start serves every record."""

    async def move(outside: Outside) -> None:
        async with filled(outside) as (broker, peer):
            # The first directory of a broker is needed for more: there and back again.
            assert await alter(peer, "two") == ErrorCode.NONE
            await outside.pass_time(5)
            fault = DiskFault(operation="sync_directory", path_part="two", error=error)
            refuse_after(outside, ("rename", "two/t-0"), fault)
            assert await alter(peer, "one") == ErrorCode.NONE
            await outside.pass_time(5)
            assert outside.files.faults == [fault]
            outside.files.faults.clear()
            assert broker.logs.directories[1].failure is not None
            answer = await produce(peer, "t", batch(b"20"))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await outside.pass_time(120)
            assert [each for each in outside.files.list("one") if each.endswith("-future")]

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            assert stored(broker) == values(COUNT)

    for keep_unsynced in (True, False):
        with virtual_runtime() as outside:
            outside.run(move(outside))
            disk = outside.files.crash(keep_unsynced=keep_unsynced)
        with virtual_runtime(files=disk) as outside:
            outside.run(look(outside))


def test_a_short_shortage_in_the_swap_leaves_the_partition_where_it_is() -> None:
    """Its folder gets its name back on the device, and the directory stays in service."""

    async def move(outside: Outside) -> None:
        async with filled(outside) as (broker, peer):
            fault = DiskFault(operation="sync_directory", path_part="one", error=errno.EMFILE)
            refuse_after(outside, SWAP_BEGINS, fault)
            outside.files.on_read = lambda *_: outside.files.faults.clear()
            assert await alter(peer, "two") == ErrorCode.NONE
            await outside.pass_time(5)
            assert outside.files.faults == []
            assert all(each.failure is None for each in broker.logs.directories)
            assert (await produce(peer, "t", batch(b"20"))).error_code == ErrorCode.NONE
            assert stored(broker) == values(COUNT + 1)
            assert outside.files.is_directory("one/t-0")

    with virtual_runtime() as outside:
        outside.run(move(outside))
        assert outside.files.crash().is_directory("one/t-0")


@pytest.mark.parametrize("count", [1, 10**9])
@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_a_target_that_fails_behind_the_swap_leaves_one_folder(error: int, count: int) -> None:
    """The partition is in one directory for the next start, with every record."""

    async def move(outside: Outside) -> None:
        async with filled(outside) as (broker, peer):
            fault = DiskFault(operation="sync_directory", path_part="two", error=error)

            def on_call(operation: str, path: str) -> None:
                if (operation, path) == SWAP_BEGINS:
                    outside.files.faults.append(fault)
                elif operation == "rename" and path == "two/t-0" and count == 1:
                    outside.files.faults.clear()

            outside.files.on_call = on_call
            assert await alter(peer, "two") == ErrorCode.NONE
            await outside.pass_time(5)
            outside.files.on_call = None
            outside.files.faults.clear()
            assert broker.logs.directories[0].failure is None
            answer = await produce(peer, "t", batch(b"20"))
            if count == 1:
                assert answer.error_code == ErrorCode.NONE
                assert stored(broker) == values(COUNT + 1)
            else:
                assert broker.logs.directories[1].failure is not None
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            assert stored(broker) == values(COUNT + 1 if count == 1 else COUNT)

    for keep_unsynced in (True, False):
        with virtual_runtime() as outside:
            outside.run(move(outside))
            disk = outside.files.crash(keep_unsynced=keep_unsynced)
        with virtual_runtime(files=disk) as outside:
            outside.run(look(outside))


def test_a_target_that_dies_behind_the_swap_leaves_a_copy_in_the_old_directory() -> None:
    """A start without the target serves it, once that is out of log.dirs."""

    async def move(outside: Outside) -> None:
        async with filled(outside) as (_, peer):
            fault = DiskFault(operation="sync_directory", path_part="two")
            refuse_after(outside, SWAP_BEGINS, fault)
            assert await alter(peer, "two") == ErrorCode.NONE
            await outside.pass_time(5)
            outside.files.faults.clear()

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "one"}) as broker:
            assert stored(broker) == values(COUNT)

    with virtual_runtime() as outside:
        outside.run(move(outside))
        disk = outside.files.crash(keep_unsynced=True)
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


def test_a_move_that_a_stop_has_ended_begins_anew() -> None:
    """The next start begins the move again, to the same directory."""

    async def begin(outside: Outside) -> None:
        async with filled(outside) as (_, peer):
            assert await alter(peer, "two") == ErrorCode.NONE
            hanging = outside.hang(FIRST_FLUSH)
            await outside.pass_time(1)
            outside.loop.call_later(1, hanging.release)

    async def look(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "one,two"}) as broker:
            await outside.pass_time(5)
            assert outside.files.is_directory("two/t-0")
            assert stored(broker) == values(COUNT)

    with virtual_runtime() as outside:
        outside.run(begin(outside))
        disk = outside.files.crash()
        assert [name for name in disk.list("two") if name.endswith("-future")]
        assert disk.is_directory("one/t-0")
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


@pytest.mark.parametrize("path_part", ["-future/partition.metadata.tmp", FIRST_FLUSH])
async def test_a_topic_that_is_deleted_takes_its_copy_along(
    outside: Outside, path_part: str
) -> None:
    """While the copy is made or filled; nothing of it is found later, and no directory fails."""
    async with filled(outside) as (broker, peer):
        hanging = outside.hang(path_part)
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(1)
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000)
        answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE
        hanging.release()
        await outside.pass_time(120)
        assert all(each.failure is None for each in broker.logs.directories)
        for path in ("one", "two"):
            assert [name for name in outside.files.list(path) if name.startswith("t-0")] == []


async def test_a_topic_that_is_made_anew_moves_while_the_old_move_winds_down(
    outside: Outside,
) -> None:
    """The old move is of the old log, and is no reason to leave the new one where it is."""
    async with filled(outside) as (_, peer):
        hanging = outside.hang(FIRST_FLUSH)
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(1)
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000)
        answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE
        await create_topic(peer, "t", configs=SMALL)
        assert outside.files.is_directory("one/t-0")
        assert (await produce(peer, "t", batch(b"new"))).error_code == 0
        assert await alter(peer, "two") == ErrorCode.NONE
        hanging.release()
        await outside.pass_time(5)
        assert outside.files.is_directory("two/t-0")


async def test_moves_take_one_thread_for_each_directory(outside: Outside) -> None:
    """However many partitions move: the others are for flushes and reads."""
    async with running(outside, {"log.dirs": "one,two"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=10)
        outside.threads.seconds_per_run = 0.1
        outside.threads.runs_at_once_max = 0
        for number in range(10):
            target = "two" if outside.files.is_directory(f"one/t-{number}") else "one"
            assert await alter(peer, target, partition=number) == ErrorCode.NONE
        await outside.pass_time(5)
        assert outside.threads.runs_at_once_max == 2


async def test_a_move_that_keeps_to_its_rate_has_no_thread_wait(outside: Outside) -> None:
    """A thread that sleeps would be one less for flushes: time passes on the loop."""
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "100"}
    async with filled(outside, settings) as (_, peer):
        assert await alter(peer, "two") == ErrorCode.NONE
        for _ in range(5):
            before = outside.loop.time()
            assert (await produce(peer, "t", batch(b"more"))).error_code == 0
            assert outside.loop.time() - before < 0.1
            await outside.pass_time(0.3)
        assert not outside.files.is_directory("two/t-0")
        await outside.pass_time(60)
        assert outside.files.is_directory("two/t-0")


async def test_a_move_completes_under_steady_appends_without_a_flush_on_the_loop(
    outside: Outside,
) -> None:
    """In the end appends wait for a thread that catches up; each is in the log once, in order."""
    async with filled(outside) as (broker, peer):
        outside.threads.seconds_per_run = 0.05
        on_loop: list[str] = []
        producers = [connect(outside, broker) for _ in range(3)]
        sent = [COUNT]

        def on_call(operation: str, path: str) -> None:
            if operation == "sync" and "-future/" in path and not outside.threads.is_working:
                on_loop.append(path)

        async def send(producer: Peer) -> None:
            while not outside.files.is_directory("two/t-0"):
                number, sent[0] = sent[0], sent[0] + 1
                assert number < 1000
                assert (await produce(producer, "t", batch(b"%d" % number))).error_code == 0
                await outside.pass_time(0.01)

        outside.files.on_call = on_call
        assert await alter(peer, "two") == ErrorCode.NONE
        await asyncio.gather(*map(send, producers))
        assert on_loop == []
        found = stored(broker)
        assert sorted(found, key=lambda value: int(value or 0)) == values(sent[0])
        assert (await produce(peer, "t", batch(b"last"))).base_offset == sent[0]
        assert not broker.replicas.held


async def test_a_log_that_moves_is_not_compacted(outside: Outside) -> None:
    """A copy with records of before and after would bring keys back; later it is compacted."""
    async with filled(outside, cleanup_policy="compact") as (broker, peer):
        hanging = outside.hang(FIRST_FLUSH)
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(100)
        assert stored(broker) == values(COUNT)
        hanging.release()
        await outside.pass_time(100)
        log = broker.logs.get(T)
        assert log is not None
        assert log.folder.path == "two/t-0"
        assert sum(each.record_count for each in log.batches(0)) < COUNT
        assert "t 0" in outside.files.content("two/cleaner-offset-checkpoint").decode()


async def test_another_target_calls_the_first_one_off(outside: Outside) -> None:
    """A new target cancels the move to the first one, and so does the partition's own directory."""
    async with filled(outside) as (broker, peer):
        hanging = outside.hang(FIRST_FLUSH)
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(1)
        assert await alter(peer, "one") == ErrorCode.NONE
        hanging.release()
        await outside.pass_time(5)
        assert stored(broker) == values(COUNT)
        assert outside.files.is_directory("one/t-0")
        assert [name for name in outside.files.list("two") if name.startswith("t-0")] == []


async def test_a_move_that_was_called_off_holds_up_no_compaction(outside: Outside) -> None:
    """However often the target has changed: the log in its own directory is compacted."""
    async with filled(outside, cleanup_policy="compact") as (broker, peer):
        hanging = outside.hang(FIRST_FLUSH)
        for target in ("two", "one"):
            assert await alter(peer, target) == ErrorCode.NONE
            await outside.pass_time(1)
        hanging.release()
        await outside.pass_time(100)
        log = broker.logs.get(T)
        assert log is not None
        assert log.folder.path == "one/t-0"
        assert sum(each.record_count for each in log.batches(0)) < COUNT
