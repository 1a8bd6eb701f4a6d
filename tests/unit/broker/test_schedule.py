"""Tests of a broker's scheduled jobs, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.schedule import PeriodicJob, Schedule, ScheduleStatistics
from tailrace.model import ProducerId, TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.storage.log import Log
from tailrace.testing import Outside, Watchdog, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

SMALL = {"internal.segment.bytes": "200"}
NOW = 1_700_000_000_000
"""Start of the virtual clock."""


@asynccontextmanager
async def filled(
    outside: Outside, settings: dict[str, str], configs: dict[str, str]
) -> AsyncIterator[Log]:
    """The log of a topic with ten records, two to a segment, while its broker runs."""
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={**SMALL, **configs})
        for number in range(10):
            await produce(peer, "t", batch(b"%d" % number, timestamp=NOW))
        yield broker.replicas.find(TopicPartition("t", 0)).log


async def test_retention_waits_for_the_device_on_threads_only(outside: Outside) -> None:
    """It takes all records, so it rolls first; not even the new segment is flushed on the loop."""
    settings = {"log.retention.check.interval.ms": "60000"}
    async with filled(outside, settings, {"retention.ms": "1000"}) as log:
        with Watchdog(outside, budget_s=10) as watchdog:
            await outside.pass_time(200)
        assert log.start_offset == log.end_offset == 10
        assert watchdog.findings == []


async def test_checkpoints_come_at_their_interval(outside: Outside) -> None:
    """After the initial delay for the first time; the machine may be lost right after."""
    async with filled(outside, {}, {}) as log:
        points = "data/recovery-point-offset-checkpoint"
        await outside.pass_time(29)
        assert "t 0 0\n" in outside.files.crash().content(points).decode()
        await outside.pass_time(2)
        base = log.segments.active.base_offset
        assert base > 0
        assert log.positions.recovery_point == base
        assert f"t 0 {base}\n" in outside.files.crash().content(points).decode()


@pytest.mark.parametrize(
    ("setting", "file"),
    [
        ("log.flush.offset.checkpoint.interval.ms", "recovery-point-offset-checkpoint"),
        ("log.flush.start.offset.checkpoint.interval.ms", "log-start-offset-checkpoint"),
    ],
)
async def test_each_checkpoint_has_an_interval_of_its_own(
    outside: Outside, setting: str, file: str
) -> None:
    """A checkpoint with an interval of 5 seconds is written every 5 seconds, not every minute."""
    settings = {"log.initial.task.delay.ms": "0", setting: "5000"}
    async with filled(outside, settings, {}):
        await outside.pass_time(0.5)
        written = ("rename", f"data/{file}.tmp")
        before = outside.files.operations.count(written)
        await outside.pass_time(51)
        assert outside.files.operations.count(written) - before == 10


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({"retention.ms": "100000"}, 1),
        ({"retention.ms": "-1", "retention.bytes": "400"}, 3),
        ({"retention.ms": "-1"}, 5),
        ({"retention.ms": "100000", "cleanup.policy": "compact"}, 5),
        ({"retention.ms": "100000", "cleanup.policy": "compact,delete"}, 1),
    ],
    ids=["by age", "by size", "without limits", "compact", "compact,delete"],
)
async def test_retention_comes_at_its_interval(
    outside: Outside, configs: dict[str, str], kept: int
) -> None:
    """Every log whose policy contains delete; what it takes is gone after the deletion delay."""
    async with filled(outside, {}, configs) as log:
        assert len(log.segments) == 5
        await outside.pass_time(335)
        assert len(log.segments) == kept
        await outside.pass_time(70)
        names = outside.files.list("data/t-0")
        assert len([name for name in names if name.endswith(".log")]) == kept
        assert not [name for name in names if name.endswith(".deleted")]


async def test_flush_ms_acts_by_default(outside: Outside) -> None:
    """A flush comes within a second of its time; Kafka's default scheduler never comes by."""
    settings = {"log.initial.task.delay.ms": "0"}
    async with filled(
        outside, settings, {"flush.ms": "3000", "internal.segment.bytes": "100000"}
    ) as log:
        await outside.pass_time(2)
        assert log.positions.recovery_point == 0
        await outside.pass_time(2.5)
        assert log.positions.recovery_point == 10


async def test_idle_producers_are_forgotten(outside: Outside) -> None:
    """They are forgotten after producer.id.expiration.ms, at the next check."""
    settings = {
        "producer.id.expiration.ms": "50000",
        "producer.id.expiration.check.interval.ms": "10000",
    }
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
        builder.append(b"k", b"v", timestamp=NOW)
        await produce(peer, "t", builder.build())
        producers = broker.replicas.find(TopicPartition("t", 0)).log.producers
        await outside.pass_time(45)
        assert producers.get(ProducerId(7)) is not None
        await outside.pass_time(20)
        assert producers.get(ProducerId(7)) is None


def test_a_job_that_breaks_is_told_and_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    """The other jobs are not late for it."""

    async def scenario(outside: Outside) -> list[float]:
        times: list[float] = []

        async def breaks() -> None:
            raise RuntimeError("broken")

        async def works() -> None:
            times.append(outside.loop.time())

        schedule = Schedule(
            [
                PeriodicJob(name="breaks", delay_ms=1000, interval_ms=1000, work=breaks),
                PeriodicJob(name="works", delay_ms=500, interval_ms=2000, work=works),
            ]
        )
        schedule.start()
        await outside.pass_time(4.9)
        await schedule.stop()
        await outside.pass_time(5)
        return times

    with virtual_runtime() as outside:
        assert outside.run(scenario(outside)) == [0.5, 2.5, 4.5]
    assert caplog.messages.count("job_failed name=breaks") == 4


def test_a_stop_waits_for_the_job_at_hand() -> None:
    """It is neither broken off nor begun again."""

    async def scenario(outside: Outside) -> list[str]:
        done: list[str] = []

        async def slow() -> None:
            done.append("begun")
            await outside.pass_time(10)
            done.append("ended")

        schedule = Schedule([PeriodicJob(name="slow", delay_ms=0, interval_ms=0, work=slow)])
        schedule.start()
        await outside.pass_time(1)
        await schedule.stop()
        return done

    with virtual_runtime() as outside:
        assert outside.run(scenario(outside)) == ["begun", "ended"]
        assert outside.loop.time() == pytest.approx(10)


async def test_a_device_that_hangs_delays_no_other_directory(outside: Outside) -> None:
    """Retention, checkpoints, flush.ms and deletion of the others come at their time."""
    settings = {
        "log.dirs": "one,two",
        "log.initial.task.delay.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": "10000",
        "log.retention.check.interval.ms": "10000",
    }
    configs = {**SMALL, "retention.bytes": "400", "retention.ms": "-1", "flush.ms": "3000"}
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2, configs=configs)
        for partition in (0, 1):
            await produce(peer, "t", batch(b"first", timestamp=NOW), partition=partition)
        (slow,) = broker.logs.directories[0]
        (quick,) = broker.logs.directories[1]
        hanging = outside.hang(slow.folder.path.partition("/")[0])
        outside.loop.call_later(150, hanging.release)
        await outside.pass_time(30)
        assert hanging.waiting
        for number in range(10):
            data = batch(b"%d" % number, timestamp=NOW)
            await produce(peer, "t", data, partition=quick.partition.partition)
        await outside.pass_time(4.5)
        assert quick.positions.recovery_point == quick.end_offset
        await outside.pass_time(10)
        assert quick.start_offset > 0
        points = outside.files.content("two/recovery-point-offset-checkpoint").decode()
        assert f"{quick.partition.topic} {quick.partition.partition} {quick.end_offset}" in points
        await outside.pass_time(70)
        names = outside.files.list(quick.folder.path)
        assert not [name for name in names if name.endswith(".deleted")]
        assert slow.positions.recovery_point == 0
        hanging.release()
        await outside.pass_time(30)
        assert slow.positions.recovery_point == slow.end_offset


async def test_retention_renames_nothing_on_the_event_loop(outside: Outside) -> None:
    """A hanging device keeps the log it has and no request waiting; retention goes on with it."""
    settings = {"log.flush.offset.checkpoint.interval.ms": "86400000"}
    configs = {"retention.ms": "-1", "retention.bytes": "400"}
    async with filled(outside, settings, configs) as log:
        hanging = outside.hang("/00000000000000000000.log")
        await outside.pass_time(60)
        assert hanging.waiting == ["rename data/t-0/00000000000000000000.log"]
        assert (len(log.segments), log.start_offset) == (5, 0)
        hanging.release()
        await outside.pass_time(0.1)
        assert (len(log.segments), log.start_offset) == (3, 4)


def test_the_runs_of_each_job_are_counted_and_timed() -> None:
    """Longest run, longest delay, failures, and the job that runs at the moment."""

    async def scenario(outside: Outside) -> ScheduleStatistics:
        async def slow() -> None:
            await outside.pass_time(3)

        async def breaks() -> None:
            raise RuntimeError("broken")

        schedule = Schedule(
            [
                PeriodicJob(name="slow", delay_ms=1000, interval_ms=4000, work=slow),
                PeriodicJob(name="breaks", delay_ms=2000, interval_ms=60_000, work=breaks),
            ]
        )
        assert schedule.statistics().running_job is None
        schedule.start()
        await outside.pass_time(10)
        found = schedule.statistics()
        await schedule.stop()
        return found

    with virtual_runtime() as outside:
        found = outside.run(scenario(outside))
    assert found.running_job == "slow"
    assert found.running_seconds == pytest.approx(2)
    slow, breaks = found.jobs["slow"], found.jobs["breaks"]
    assert (slow.run_count, slow.failure_count) == (1, 0)
    assert slow.seconds_max == pytest.approx(3)
    assert (breaks.run_count, breaks.failure_count) == (1, 1)
    assert breaks.late_seconds_max == pytest.approx(2)


def test_a_schedule_that_was_not_started_runs_nothing() -> None:
    """Its jobs wait for `start`, and it may be stopped all the same."""

    async def scenario(outside: Outside) -> list[str]:
        done: list[str] = []

        async def works() -> None:
            done.append("worked")

        schedule = Schedule([PeriodicJob(name="works", delay_ms=0, interval_ms=0, work=works)])
        await outside.pass_time(10)
        await schedule.stop()
        return done

    with virtual_runtime() as outside:
        assert outside.run(scenario(outside)) == []
