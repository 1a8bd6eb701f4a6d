"""The partitions of a coordinator in numbers: loads, appends, and waits for commits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.machine import Decision
from tailrace.coordinator.shards import Shards
from tailrace.coordinator.statistics import ShardsStatistics
from tailrace.errors import RetriableError
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.tally import COUNT, Tally, tally_on

TIMEOUT_S = 5.0
FIRST, SECOND = LeaderEpoch(3), LeaderEpoch(4)


class FullLogError(RetriableError):
    """An error of a log."""


class Topic:
    """A topic with one partition of a coordinator for each log, led or not."""

    def __init__(self, outside: Outside, *contents: tuple[bytes, ...]) -> None:
        self.logs = [
            MemoryPartitionLog(TopicPartition("__tally", number), content)
            for number, content in enumerate(contents)
        ]
        self.shards: Shards[Tally] = Shards(
            lambda log: tally_on(
                outside, log, commit_timeout_ms=round(TIMEOUT_S * 1000), counts=self.shards.counts
            ),
            partition_count=lambda: len(self.logs),
        )
        self.pass_time = outside.pass_time

    async def lead(self, number: int, *, leader_epoch: LeaderEpoch = FIRST) -> None:
        """Lead a partition, and give it the time that its load takes."""
        log = self.logs[number]
        self.shards.lead(log, leader_epoch=leader_epoch)
        await self.pass_time(log.seconds_per_read + 0.001)

    async def add(self, count: int = 1) -> int:
        """Add to a name of the only partition."""
        return await self.shards.shard_of("a").run(lambda tally, _: tally.add("a", count))

    @property
    def statistics(self) -> ShardsStatistics:
        """The topic in numbers."""
        return self.shards.statistics()

    @property
    def states(self) -> tuple[int, int, int]:
        """The partitions that are loading, active and failed."""
        found = self.statistics
        return found.loading_count, found.active_count, found.failed_count


def batch(count: int, *, value: bytes = COUNT.pack(1)) -> bytes:
    """A batch of this many records."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(b"a", value, timestamp=1)
    return bytes(builder.build())


DAMAGED = (batch(1, value=b"short"),)


def play(scenario: Callable[[Topic], Awaitable[None]], *contents: tuple[bytes, ...]) -> None:
    """Run a scenario on a topic whose partitions have these batches."""
    with virtual_runtime() as outside:

        async def main() -> None:
            topic = Topic(outside, *contents)
            await scenario(topic)
            await topic.shards.stop()

        outside.run(main())


def test_each_partition_counts_in_its_state() -> None:
    """While it is read, when it is served, when it could not be read; not when it has gone."""

    async def scenario(topic: Topic) -> None:
        for log in topic.logs:
            log.seconds_per_read = 2.0
            topic.shards.lead(log, leader_epoch=FIRST)
        assert topic.states == (2, 0, 0)
        await topic.pass_time(3)
        assert topic.states == (0, 1, 1)
        topic.shards.resign(0)
        assert topic.states == (0, 0, 1)
        topic.shards.lead(topic.logs[1], leader_epoch=SECOND)
        assert topic.states == (1, 0, 0)

    play(scenario, (batch(1),), DAMAGED)


def test_loads_are_timed_and_their_bytes_counted() -> None:
    """Each with its own time; the longest one is known."""
    long, short = (batch(4), batch(5)), (batch(3),)

    async def scenario(topic: Topic) -> None:
        for number, seconds in enumerate((3.0, 1.0)):
            topic.logs[number].seconds_per_read = seconds
            await topic.lead(number)
        found = topic.statistics
        assert (found.load_count, found.load_byte_count) == (2, sum(map(len, long + short)))
        assert found.load_seconds_max == pytest.approx(3)
        assert found.load_seconds_total == pytest.approx(4)

    play(scenario, long, short)


def test_a_load_that_fails_is_no_load() -> None:
    """It counts as one that failed, and neither its time nor its bytes count."""

    async def scenario(topic: Topic) -> None:
        topic.logs[0].seconds_per_read = 9.0
        await topic.lead(0)
        await topic.lead(0, leader_epoch=SECOND)
        found = topic.statistics
        assert (found.load_count, found.load_failure_count) == (0, 2)
        assert (found.load_byte_count, found.load_seconds_total) == (0, 0)

    play(scenario, DAMAGED)


def test_a_load_that_is_called_off_counts_as_nothing() -> None:
    """The partition has another leader before it is read to its end."""

    async def scenario(topic: Topic) -> None:
        topic.logs[0].seconds_per_read = 9.0
        topic.shards.lead(topic.logs[0], leader_epoch=FIRST)
        topic.shards.resign(0)
        await topic.pass_time(10)
        found = topic.statistics
        assert (found.load_count, found.load_failure_count, topic.states) == (0, 0, (0, 0, 0))

    play(scenario, (batch(1),))


def test_totals_go_on_when_a_partition_comes_back() -> None:
    """Its appends of before are counted, and not again when they are replayed."""

    async def scenario(topic: Topic) -> None:
        await topic.lead(0)
        await topic.add()
        topic.shards.resign(0)
        assert topic.statistics.append_count == 1
        await topic.lead(0, leader_epoch=SECOND)
        await topic.add()
        found = topic.statistics
        assert (found.append_count, found.load_count) == (2, 2)

    play(scenario, (batch(1),))


def test_a_change_that_the_log_refuses_is_counted_as_such() -> None:
    """It is no append."""

    async def scenario(topic: Topic) -> None:
        await topic.lead(0)
        topic.logs[0].refusal = FullLogError("full")
        with pytest.raises(CoordinatorNotAvailableError):
            await topic.add()
        found = topic.statistics
        assert (found.append_count, found.append_failure_count) == (0, 1)

    play(scenario, ())


def test_the_time_of_an_append_is_measured() -> None:
    """Each batch that is written to the log counts, and none that the log refuses."""

    class SlowLog(MemoryPartitionLog):
        seconds = 0.0

        def append(self, batch: bytearray, **rules: Any) -> int:
            outside.clock.pause(self.seconds)
            return super().append(batch, **rules)

    async def main() -> None:
        topic = Topic(outside)
        log = SlowLog(TopicPartition("__tally", 0))
        topic.logs.append(log)
        await topic.lead(0)
        for log.seconds in (3.0, 1.0):
            await topic.add()
        log.refusal, log.seconds = FullLogError("full"), 9.0
        with pytest.raises(CoordinatorNotAvailableError):
            await topic.add()
        found = topic.statistics
        assert found.append_seconds_max == pytest.approx(3)
        assert found.append_seconds_total == pytest.approx(4)
        await topic.shards.stop()

    with virtual_runtime() as outside:
        outside.run(main())


def refuse(_tally: Tally, _now_ms: int) -> Decision[int]:
    """A decision that fails."""
    raise FullLogError("full")


def test_the_time_until_a_commit_is_measured() -> None:
    """From the append until all is committed, or the reply gives up.

    A reply that need not wait does not count, and neither does a decision that fails.
    """

    async def scenario(topic: Topic) -> None:
        await topic.lead(0)
        await topic.add()
        assert topic.statistics.commit_wait_count == 0
        topic.logs[0].hold_commits()
        with pytest.raises(FullLogError):
            await topic.shards.shard_of("a").run(refuse)
        assert topic.statistics.commit_wait_count == 0
        adding = asyncio.ensure_future(topic.add())
        await topic.pass_time(2)
        assert topic.statistics.commit_waiting_count == 1
        topic.logs[0].commit()
        await adding
        found = topic.statistics
        assert (found.commit_waiting_count, found.commit_wait_count) == (0, 1)
        assert found.commit_seconds_max == pytest.approx(2)
        topic.logs[0].hold_commits()
        with pytest.raises(CoordinatorNotAvailableError):
            await topic.add()
        topic.logs[0].commit()
        found = topic.statistics
        assert (found.commit_waiting_count, found.commit_wait_count) == (0, 2)
        assert found.commit_seconds_max == pytest.approx(TIMEOUT_S)
        assert found.commit_seconds_total == pytest.approx(2 + TIMEOUT_S)

    play(scenario, ())
