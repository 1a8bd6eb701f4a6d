"""A broker compacts its topics by itself, beside serving them."""

import asyncio

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.records.builder import records_of
from tailrace.storage.cleaner.plan import CleaningPlan
from tailrace.storage.cleaner.worker import LogCleaner, Throttle
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import DiskFault, MemoryFiles, Outside, Watchdog, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.storage.builders import SetClock
from tests.unit.storage.test_manager import manager

T = TopicPartition("t", 0)
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "300",
    "index.interval.bytes": "60",
}


async def test_a_topic_is_compacted_while_it_is_served(outside: Outside) -> None:
    """The last record of each key stays, and the answers to readers do not change."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number, key=b"key %d" % (number % 3)))
        await outside.pass_time(40)
        log = broker.logs.get(T)
        assert log is not None
        found = [record for each in log.batches(0) for record in records_of(each)]
        assert len(found) < 10
        assert {record.key: record.value for record in found} == {
            b"key 0": b"27",
            b"key 1": b"28",
            b"key 2": b"29",
        }
        await produce(peer, "t", batch(b"next", key=b"key 0"))
        assert log.end_offset == 31


async def test_a_compaction_waits_for_the_device_on_threads_only(outside: Outside) -> None:
    """Neither the names of new segments nor the checkpoint is flushed on the loop."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number, key=b"key %d" % (number % 3)))
        before = len(outside.files.operations)
        with Watchdog(outside, budget_s=10) as watchdog:
            await outside.pass_time(40)
        assert broker.cleaner.statistics().rounds == 1
        assert outside.files.operations[before:]
        assert watchdog.findings == []


async def test_a_compaction_that_waits_for_its_checkpoint_holds_up_nobody(outside: Outside) -> None:
    """Records are appended while the device hangs on the cleaner's checkpoint."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        hanging = outside.hang("cleaner-offset-checkpoint")
        await outside.pass_time(20)
        assert hanging.waiting
        assert broker.cleaner.is_cleaning(T)
        assert (await produce(peer, "t", batch(b"taken"))).base_offset == 30
        hanging.release()
        await outside.pass_time(1)
        assert not broker.cleaner.is_cleaning(T)
        assert broker.cleaner.statistics().rounds == 1


async def test_a_broker_without_a_cleaner_compacts_nothing(outside: Outside) -> None:
    """`log.cleaner.enable` is off."""
    async with running(outside, settings={"log.cleaner.enable": "false"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        await outside.pass_time(600)
        log = broker.logs.get(T)
        assert log is not None
        assert sum(each.record_count for each in log.batches(0)) == 30


async def test_a_device_that_fails_the_cleaner_fails_the_directory(outside: Outside) -> None:
    """If it is the first directory, the broker ends, as after a failed append."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        outside.files.faults.append(DiskFault(operation="write", path_part=".cleaned"))
        await outside.pass_time(40)
        assert broker.failed.is_set()
        outside.files.faults.clear()


async def test_a_full_disk_ends_the_round_and_not_the_broker(outside: Outside) -> None:
    """The next round comes when there is room again."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        outside.files.faults.append(DiskFault(operation="write", path_part=".cleaned", error=28))
        await outside.pass_time(40)
        assert not broker.failed.is_set()
        assert list(broker.cleaner.failures()) == [T]
        outside.files.faults.clear()
        await outside.pass_time(90)
        log = broker.logs.get(T)
        assert log is not None
        assert sum(each.record_count for each in log.batches(0)) < 10


async def test_retention_leaves_a_log_that_is_being_cleaned(outside: Outside) -> None:
    """Retention deletes no segment that the cleaner reads; the next check does."""
    configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"}
    settings = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
    async with running(outside, settings={"log.cleaner.enable": "false", **settings}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=configs)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        job = broker.cleaner.next_job()
        assert job is not None
        await outside.pass_time(10)
        assert job.log.start_offset == 0
        for group in job.map_keys():
            job.exchange(job.rewrite(group))
            job.settle()
        job.note_cleaned()
        assert [each.base_offset for each in job.log.batches(0)][-1] == 29
        job.finish()
        await outside.pass_time(10)
        assert job.log.start_offset > 0


async def test_retention_goes_on_for_a_log_that_cannot_be_cleaned(outside: Outside) -> None:
    """Room is made in the one way that is left."""
    configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "60000"}
    settings = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
    async with running(outside, settings=settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=configs)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        outside.files.faults.append(DiskFault(operation="write", path_part=".cleaned", error=28))
        await outside.pass_time(30)
        assert list(broker.cleaner.failures()) == [T]
        await outside.pass_time(60)
        log = broker.logs.get(T)
        assert log is not None
        assert log.start_offset > 0


async def test_a_compacted_log_loses_what_lies_below_its_start(outside: Outside) -> None:
    """Its policy lets nothing go by age; what was deleted on request goes all the same."""
    settings = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
    async with running(outside, settings={"log.cleaner.enable": "false", **settings}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=COMPACTED)
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number))
        log = broker.logs.get(T)
        assert log is not None
        await outside.pass_time(5)
        assert log.segments.first.base_offset == 0
        raise_log_start(log, 20)
        await outside.pass_time(5)
        assert 0 < log.segments.first.base_offset <= 20


async def test_the_lock_is_kept_until_the_cleaner_has_ended(outside: Outside) -> None:
    """A second process that opened the directory would have its files written by the first."""
    broker = await start_broker(
        broker_config({"log.dirs": "data", "listeners": "memory:0"}), outside.runtime
    )
    peer = connect(outside, broker)
    await create_topic(peer, "t", configs=COMPACTED)
    for number in range(30):
        await produce(peer, "t", batch(b"%d" % number))
    hanging = outside.hang(".cleaned")
    await outside.pass_time(40)
    assert hanging.waiting
    stopping = asyncio.ensure_future(broker.stop())
    await outside.pass_time(60)
    with pytest.raises(BlockingIOError):
        outside.files.lock("data/.lock")
    assert not outside.files.exists("data/.kafka_cleanshutdown")
    hanging.release()
    await stopping
    assert outside.files.exists("data/.kafka_cleanshutdown")
    before = len(outside.files.operations)
    outside.files.lock("data/.lock").release()
    await outside.pass_time(60)
    assert outside.files.operations[before:] == []


def test_a_stop_does_not_wait_for_the_rate() -> None:
    """A cleaner that has to sleep for days ends within a moment."""
    clock = SetClock()
    begun_ms = clock.now_ms()
    throttle = Throttle(clock, bytes_per_second=1)
    throttle.pause(10**6, is_over=lambda: clock.now_ms() >= begun_ms + 1000)
    assert clock.now_ms() - begun_ms <= 1250


async def test_several_logs_are_compacted_at_a_time(outside: Outside) -> None:
    """There is one log for each thread, and a log whose device hangs does not delay the others."""
    names = ("a", "b", "c")
    settings = {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": str(2 << 22)}
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        for name in names:
            await create_topic(peer, name, configs=COMPACTED)
            for number in range(30):
                await produce(peer, name, batch(b"%d" % number))
        hanging = outside.hang("a-0/")
        await outside.pass_time(60)
        assert [each for each in hanging.waiting if ".cleaned" in each]
        counts = {}
        for name in names:
            log = broker.logs.get(TopicPartition(name, 0))
            assert log is not None
            counts[name] = sum(each.record_count for each in log.batches(0))
            assert broker.cleaner.is_cleaning(log.partition) == (name == "a")
        assert counts["a"] == 30
        assert max(counts["b"], counts["c"]) < 10
        hanging.release()


def test_cleaner_threads_share_their_memory() -> None:
    """Each map has its part, and too many threads for the memory are refused at the start."""
    given = {"log.dirs": "data", "log.cleaner.threads": "4"}
    config = broker_config({**given, "log.cleaner.dedupe.buffer.size": str(1 << 25)})
    cleaner = LogCleaner(manager(MemoryFiles()), config.cleaner, SetClock())
    plan = CleaningPlan(
        first_dirty=0,
        first_uncleanable=1,
        clean_bytes=0,
        cleanable_bytes=1 << 30,
        delay_ms=0,
        is_due=True,
    )
    assert cleaner.map_bytes(plan) == 1 << 23
    with pytest.raises(ConfigError, match="for each of 4 cleaner threads"):
        broker_config({**given, "log.cleaner.dedupe.buffer.size": str(1 << 23)})


def test_an_adopted_topic_that_was_compacted_refuses_records_without_keys() -> None:
    """The other broker's cleaner would drop them; and nothing of what it has left goes."""

    async def compact(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs=COMPACTED)
            await create_topic(peer, "other")
            for number in range(30):
                await produce(peer, "t", batch(b"%d" % number))
            await outside.pass_time(40)
        outside.files.remove_tree("data/__cluster_metadata-0")

    async def adopt(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            keyless = batch(b"x", key=None)
            assert (await produce(peer, "other", keyless)).error_code == ErrorCode.NONE
            assert (await produce(peer, "t", keyless)).error_code == ErrorCode.INVALID_RECORD
            log = broker.logs.get(T)
            assert log is not None
            before = log.end_offset, log.size
            await outside.pass_time(3600)
            assert (log.end_offset, log.size) == before

    with virtual_runtime() as outside:
        outside.run(compact(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(adopt(outside))
