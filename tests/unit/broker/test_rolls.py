"""A segment that is full is put on the device soon after, beside serving."""

import contextlib
import errno

from tailrace.model import TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.testing import DiskFault, Outside
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

T = TopicPartition("t", 0)
SMALL = {"internal.segment.bytes": "200"}
NEVER = {"log.flush.offset.checkpoint.interval.ms": "86400000"}
"""No checkpoint that would flush closed segments after all."""


async def test_closed_segments_are_flushed_after_the_roll(outside: Outside) -> None:
    """Log, indexes and producers, without a checkpoint; the recovery point is the new base."""
    async with running(outside, {**NEVER, "log.initial.task.delay.ms": "86400000"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=SMALL)
        for number in range(9):
            builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=number)
            builder.append(b"k", b"%d" % number, timestamp=1_700_000_000_000)
            await produce(peer, "t", builder.build())
        await outside.pass_time(0.1)
        log = broker.logs.get(T)
        assert log is not None
        base = log.segments.active.base_offset
        assert base > 2
        assert log.positions.recovery_point == base
        disk = outside.files.crash()
        *closed, _ = log.segments
        for segment in closed:
            for path in segment.paths():
                assert disk.content(path) == outside.files.content(path)
        snapshot = f"data/t-0/{base:020d}.snapshot"
        assert disk.content(snapshot) == outside.files.content(snapshot)


async def test_an_append_does_not_wait_for_the_segment_before_it(outside: Outside) -> None:
    """The answer to a record that rolls comes while the device still works on the old segment."""
    async with running(outside, NEVER) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=SMALL)
        outside.threads.seconds_per_run = 10.0
        for number in range(9):
            await produce(peer, "t", batch(b"%d" % number))
        assert outside.loop.time() < 1
        log = broker.logs.get(T)
        assert log is not None
        assert len(log.segments) > 2
        assert log.positions.recovery_point == 0
        await outside.pass_time(25)
        assert log.positions.recovery_point == log.segments.active.base_offset


async def test_a_rolled_segment_that_cannot_be_flushed_ends_its_directory(outside: Outside) -> None:
    """The page cache may have lost what the device refused: no later flush may report success."""
    async with running(outside, NEVER) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs=SMALL)
        outside.files.faults.append(
            DiskFault(operation="sync", path_part=".timeindex", error=errno.EIO)
        )
        with contextlib.suppress(EOFError):
            for number in range(5):
                await produce(peer, "t", batch(b"%d" % number))
        assert broker.failed.is_set()
        assert "a flush failed" in (broker.logs.directories[0].failure or "")
        outside.files.faults.clear()
