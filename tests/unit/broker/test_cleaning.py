"""A broker compacts its topics by itself, beside serving them."""

from tailrace.model import TopicPartition
from tailrace.records.builder import records_of
from tailrace.testing import DiskFault, Outside, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

T = TopicPartition("t", 0)
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "300", "index.interval.bytes": "60"}


def test_a_topic_is_compacted_while_it_is_served() -> None:
    """Of each key the last record stays, and the answers to readers do not change."""

    async def scenario(outside: Outside) -> None:
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

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_broker_without_a_cleaner_compacts_nothing() -> None:
    """`log.cleaner.enable` is off."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, settings={"log.cleaner.enable": "false"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs=COMPACTED)
            for number in range(30):
                await produce(peer, "t", batch(b"%d" % number))
            await outside.pass_time(600)
            log = broker.logs.get(T)
            assert log is not None
            assert sum(each.record_count for each in log.batches(0)) == 30

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_device_that_fails_the_cleaner_fails_the_directory() -> None:
    """As it does under an append: the first directory takes the broker with it."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs=COMPACTED)
            for number in range(30):
                await produce(peer, "t", batch(b"%d" % number))
            outside.files.faults.append(DiskFault(operation="write", path_part=".cleaned"))
            await outside.pass_time(40)
            assert broker.failed.is_set()
            outside.files.faults.clear()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_full_disk_ends_the_round_and_not_the_broker() -> None:
    """The next round comes when there is room again."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs=COMPACTED)
            for number in range(30):
                await produce(peer, "t", batch(b"%d" % number))
            outside.files.faults.append(
                DiskFault(operation="write", path_part=".cleaned", error=28)
            )
            await outside.pass_time(40)
            assert not broker.failed.is_set()
            assert list(broker.cleaner.failures()) == [T]
            outside.files.faults.clear()
            await outside.pass_time(90)
            log = broker.logs.get(T)
            assert log is not None
            assert sum(each.record_count for each in log.batches(0)) < 10

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_retention_leaves_a_log_that_is_being_cleaned() -> None:
    """What the job has read must not go under it; the next check takes what is due."""
    configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"}
    settings = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}

    async def scenario(outside: Outside) -> None:
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
            assert [each.base_offset for each in job.log.batches(0)][-1] == 29
            job.finish()
            await outside.pass_time(10)
            assert job.log.start_offset > 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_retention_goes_on_for_a_log_that_cannot_be_cleaned() -> None:
    """Room is made in the one way that is left."""
    configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "60000"}
    settings = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}

    async def scenario(outside: Outside) -> None:
        async with running(outside, settings=settings) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs=configs)
            for number in range(30):
                await produce(peer, "t", batch(b"%d" % number))
            outside.files.faults.append(
                DiskFault(operation="write", path_part=".cleaned", error=28)
            )
            await outside.pass_time(30)
            assert list(broker.cleaner.failures()) == [T]
            await outside.pass_time(60)
            log = broker.logs.get(T)
            assert log is not None
            assert log.start_offset > 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_compacted_log_loses_what_lies_below_its_start() -> None:
    """Its policy lets nothing go by age; what was deleted on request goes all the same."""
    settings = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}

    async def scenario(outside: Outside) -> None:
        async with running(outside, settings={"log.cleaner.enable": "false", **settings}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs=COMPACTED)
            for number in range(30):
                await produce(peer, "t", batch(b"%d" % number))
            log = broker.logs.get(T)
            assert log is not None
            await outside.pass_time(5)
            assert log.segments.first.base_offset == 0
            log.raise_log_start(20)
            await outside.pass_time(5)
            assert 0 < log.segments.first.base_offset <= 20

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
