"""Fetches and lookups whose bytes only the device has, or that it refuses."""

import asyncio
import errno
from collections.abc import Callable
from typing import Self

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.model import Offset, SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import received_records
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.records.batch import read_batches
from tailrace.replication.device_reads import PLACES_PER_DIRECTORY, DeviceReads
from tailrace.replication.partition import Partition
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.storage import builders

TWO = {"log.dirs": "a,b"}
NOW = 1_700_000_000_000
DEVICE_S = 5.0
"""Time that the device takes, in virtual seconds."""


async def filled(outside: Outside, broker: RunningBroker) -> Peer:
    """Topic `here` in directory a and `there` in b, with several segments each."""
    peer = connect(outside, broker)
    for name in ("here", "there"):
        await create_topic(
            peer, name, configs={"internal.segment.bytes": "1000", "index.interval.bytes": "200"}
        )
        for number in range(30):
            sent = batch(b"%d" % number * 20, timestamp=NOW + number)
            assert (await produce(peer, name, sent)).error_code == ErrorCode.NONE
    return peer


class StoredBytes:
    """One byte of a file."""

    path = "a/t-0/00000000000000000000.log"

    def __len__(self) -> int:
        return 1

    def read_into(self, buffer: memoryview) -> int:
        """See `FileSlice`."""
        buffer[:] = b"x"
        return 1

    def after(self, size: int) -> Self:
        """See `FileSlice`."""
        raise NotImplementedError

    def failed(self, error: OSError) -> None:
        """See `FileSlice`."""
        raise NotImplementedError


async def find(peer: Peer, topic: str, timestamp: int) -> tuple[int, int]:
    """Error code and offset that ListOffsets gives for a timestamp."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),))
    response = await peer.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


async def offsets(peer: Peer, topic: str, offset: int) -> list[int]:
    """Base offsets of the batches that one fetch gives."""
    found = await fetch(peer, fetch_request(topic, offset))
    assert found.error_code == ErrorCode.NONE
    return [each.base_offset for _, each in read_batches(received_records(found.records))]


async def test_what_only_the_device_has_is_served_too(outside: Outside) -> None:
    """Reads by offset and by time work, whatever the page cache has lost."""
    async with running(outside, TWO) as broker:
        peer = await filled(outside, broker)
        warm = [await offsets(peer, "there", each) for each in range(30)]
        for each in range(30):
            for part in ("", ".log", "index"):
                outside.files.make_cold(part)
                assert await offsets(peer, "there", each) == warm[each]
                outside.files.make_cold(part)
                assert await find(peer, "there", NOW + each) == (0, each)
        assert await find(peer, "there", SpecialTimestamp.MAX_TIMESTAMP) == (0, 29)


async def test_a_slow_device_holds_up_nobody_else(outside: Outside) -> None:
    """While one client waits for the device, others write, and read from the page cache."""
    async with running(outside, TWO) as broker:
        peer, other = await filled(outside, broker), connect(outside, broker)
        outside.files.make_cold("b/there")
        outside.threads.seconds_per_run = DEVICE_S
        loop = asyncio.get_running_loop()
        started = loop.time()
        slow = asyncio.ensure_future(offsets(peer, "there", 3))
        for _ in range(20):
            assert (await produce(other, "here", batch(b"x"))).error_code == ErrorCode.NONE
            assert await offsets(other, "here", 30)
        assert loop.time() - started < DEVICE_S
        assert not slow.done()
        assert (await slow)[0] == 3
        assert loop.time() - started >= DEVICE_S


async def test_reads_whose_caller_is_cancelled_keep_their_places(outside: Outside) -> None:
    """Threads do not pile up on a device that hangs behind callers that come and go."""
    reads, stored = DeviceReads(outside.threads), StoredBytes()
    outside.threads.seconds_per_run = 100
    for _ in range(10):
        callers = [
            asyncio.ensure_future(reads.first_bytes(stored, 1)) for _ in range(PLACES_PER_DIRECTORY)
        ]
        await outside.pass_time(1)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
    assert outside.threads.runs_at_once_max == PLACES_PER_DIRECTORY
    await outside.pass_time(100)
    assert await reads.first_bytes(stored, 1) == b"x"


def reads_of(disk: MemoryFiles, since: int) -> int:
    """Count the calls that read bytes, from a place in `reads` on."""
    return sum(name == "read" for name, _ in disk.reads[since:])


@pytest.mark.parametrize("is_cold", [False, True], ids=["cached", "cold"])
def test_a_device_that_refuses_any_read_of_a_fetch_goes_offline_alone(*, is_cold: bool) -> None:
    """An error is answered, or the connection ends where the answer had begun; the other serves."""

    async def scenario(outside: Outside, number: int) -> bool:
        async with running(outside, TWO) as broker:
            peer, other = await filled(outside, broker), connect(outside, broker)
            if is_cold:
                outside.files.make_cold("b/there")
            since = len(outside.files.reads)
            fault = DiskFault(operation="read", path_part="b/there", after=number, error=errno.EIO)
            outside.files.faults.append(fault)
            try:
                found = await fetch(peer, fetch_request("there", 17))
            except EOFError:
                refused = True
            else:
                refused = found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert refused or received_records(found.records)
            count = reads_of(outside.files, since)
            assert refused == (count > number)
            if refused:
                assert broker.logs.directories[1].failure is not None
                again = await fetch(other, fetch_request("there", 17))
                assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await produce(other, "here", batch(b"x"))).error_code == ErrorCode.NONE
            assert await offsets(other, "here", 30)
            return refused

    number, refused = 0, True
    while refused:
        with virtual_runtime() as outside:
            refused = outside.run(scenario(outside, number))
        number += 1
    assert number > 3


async def test_a_device_that_refuses_a_lookup_by_time_goes_offline_alone(outside: Outside) -> None:
    """The answer says so, and the other directory serves."""
    async with running(outside, TWO) as broker:
        peer = await filled(outside, broker)
        outside.files.faults.append(DiskFault(operation="read", path_part="b/there"))
        assert await find(peer, "there", NOW + 5) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert broker.logs.directories[1].failure is not None
        assert await find(peer, "here", NOW + 5) == (0, 5)


async def test_a_log_file_that_somebody_else_has_cut_is_told_and_not_served(
    outside: Outside,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The process lives on; the directory whose files change under the broker does not serve."""
    async with running(outside, TWO) as broker:
        peer, other = await filled(outside, broker), connect(outside, broker)
        path = "b/there-0/00000000000000000000.log"
        outside.files.overwrite(path, outside.files.content(path)[:100])
        try:
            found = await fetch(peer, fetch_request("there", 3))
        except EOFError:
            pass
        else:
            assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "cut at or before byte" in caplog.text
        assert await offsets(other, "here", 30) == []


THERE = TopicPartition("there", 0)


def delete(broker: RunningBroker) -> None:
    """Close the partition, as DeleteTopics does on the loop."""
    broker.replicas.close(THERE, unique_id="0" * 32)


def shorten(broker: RunningBroker) -> None:
    """Delete all segments but the last, as DeleteRecords and retention do on the loop."""
    partition = broker.replicas.find(THERE)
    partition.delete_records(Offset(-1))
    assert broker.logs.delete_old_segments(partition.log, NOW)


@pytest.mark.parametrize("change", [delete, shorten])
@pytest.mark.parametrize("is_lookup", [False, True], ids=["fetch", "lookup"])
def test_segments_that_are_closed_under_a_cold_read_are_no_failure(
    change: Callable[[RunningBroker], None], *, is_lookup: bool
) -> None:
    """Before whichever read of a worker thread it happens, the log directory stays in service."""

    async def scenario(outside: Outside, number: int) -> bool:
        async with running(outside, TWO) as broker:
            peer = await filled(outside, broker)
            outside.files.make_cold("b/there")
            left, is_done = number, False

            def have_a_turn(operation: str, path: str) -> None:
                nonlocal left, is_done
                if operation != "read" or "b/there" not in path:
                    return
                if not left:
                    outside.files.on_read, is_done = None, True
                    change(broker)
                left -= 1

            outside.files.on_read = have_a_turn
            if is_lookup:
                code, _ = await find(peer, "there", NOW + 17)
            else:
                code = (await fetch(peer, fetch_request("there", 17))).error_code
            outside.files.on_read = None
            assert [each.failure for each in broker.logs.directories] == [None, None]
            assert not (code and not is_done)
            return is_done

    number, is_done = 0, True
    while is_done:
        with virtual_runtime() as outside:
            is_done = outside.run(scenario(outside, number))
        number += 1
    assert number > 2


async def test_a_refusal_that_a_worker_thread_meets_is_settled_on_the_loop(
    outside: Outside,
) -> None:
    """The broker's only directory fails under a cold fetch: it answers, and wants to be stopped."""
    async with running(outside) as broker:
        peer = await filled(outside, broker)
        outside.files.make_cold("there")
        outside.files.faults.append(DiskFault(operation="read", path_part="there"))
        found = await fetch(peer, fetch_request("there", 3))
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.failed.is_set()


async def test_a_move_under_a_cold_read_has_it_made_again_and_fails_no_directory(
    outside: Outside,
) -> None:
    """The read is repeated on the new log, and an error of the old log is ignored."""
    failures: list[OSError] = []
    old, new = builders.filled(MemoryFiles(), 3), builders.filled(MemoryFiles(), 7)
    partition = Partition(old, on_failure=failures.append)
    stored = partition.read(
        Offset(0), bytes_max=10, is_first_whole=True, limit=ReadLimit.HIGH_WATERMARK
    ).records
    assert stored is not None

    def look(log: Log) -> int:
        if log is old:
            partition.exchange(new, on_failure=failures.append, on_room=lambda: None)
            raise OSError(errno.EIO, "the old device has refused")
        return log.end_offset

    assert await partition.look(DeviceReads(outside.threads), look) == new.end_offset
    stored.failed(OSError(errno.EIO, "the old device has refused"))
    assert failures == []
