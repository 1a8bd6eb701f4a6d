"""Keys, their partitions, and the shards that have them."""

import asyncio
from functools import partial

import pytest

from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.shard import Shard
from tailrace.coordinator.shards import Shards, partition_of
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.tally import PARTITION, Tally, TallyCodec, tally_on

FIRST = LeaderEpoch(10)
"""The epoch in which this broker begins to lead a partition."""


@pytest.mark.parametrize(
    ("key", "partition"),
    [("g1", 42), ("gq", 6), ("gx", 13), ("gret", 24), ("", 0), ("polygenelubricants", 0),
     ("tx1795337530", 39)],
)  # fmt: skip
def test_a_key_is_where_apache_kafka_has_it(key: str, partition: int) -> None:
    """Apache Kafka 4.3.1 chose these of 50 partitions; the hash of one key is -2^31."""
    assert partition_of(key, 50) == partition


def test_a_key_is_answered_by_the_leader_of_its_partition_alone() -> None:
    """Without the topic, without the partition, and after it has gone elsewhere, by nobody here."""

    async def scenario(outside: Outside) -> None:
        count = 0
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: count)
        with pytest.raises(NotCoordinatorError):
            shards.shard_of("g1")
        count = 50
        shards.lead(MemoryPartitionLog(TopicPartition("__tally", 42)), leader_epoch=FIRST)
        await outside.pass_time(1)
        found = shards.shard_of("g1")
        assert await found.run(lambda tally, _: tally.add("g1", 1)) == 1
        with pytest.raises(NotCoordinatorError):
            shards.shard_of("gq")
        shards.resign(42)
        with pytest.raises(NotCoordinatorError):
            shards.shard_of("g1")
        with pytest.raises(NotCoordinatorError):
            await found.run(lambda tally, _: tally.get("g1"))
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_stop_waits_for_shards_that_are_loading() -> None:
    """No thread reads a log that is about to be closed."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 1)
        log = MemoryPartitionLog(TopicPartition("__tally", 0))
        log.seconds_per_read = 30
        shards.lead(log, leader_epoch=FIRST)
        before = outside.loop.time()
        await shards.stop()
        assert outside.loop.time() - before >= 30
        assert list(shards) == []

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_partition_that_could_not_be_loaded_can_be_led_again() -> None:
    """Its log has been repaired; to resign from a partition that is not led does nothing."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 1)
        shards.resign(0)
        partition = TopicPartition("__tally", 0)
        shards.lead(MemoryPartitionLog(partition, (b"damage",)), leader_epoch=FIRST)
        await outside.pass_time(1)
        with pytest.raises(NotCoordinatorError):
            await shards.shard_of("a").run(lambda tally, _: tally.get("a"))
        shards.lead(MemoryPartitionLog(partition), leader_epoch=LeaderEpoch(FIRST + 1))
        await outside.pass_time(1)
        assert await shards.shard_of("a").run(lambda tally, _: tally.add("a", 1)) == 1
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


@pytest.mark.parametrize("late", [FIRST, LeaderEpoch(FIRST - 1)])
def test_a_late_word_of_an_older_leadership_does_not_load_again(late: LeaderEpoch) -> None:
    """The shard of the newest epoch stays, with the replies that are parked in it."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 1)
        log = MemoryPartitionLog(PARTITION)
        shards.lead(log, leader_epoch=FIRST)
        await outside.pass_time(1)
        led = shards.shard_of("a")
        parked = asyncio.ensure_future(led.run(lambda tally, _: tally.park()))
        await outside.pass_time(1)
        shards.lead(log, leader_epoch=late)
        assert shards.shard_of("a") is led
        assert not parked.done()
        led.machine.parked[0].set_result(1)
        assert await parked == 1
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_newer_leadership_loads_what_others_have_written_meanwhile() -> None:
    """Another broker has led the partition, and this one has resigned as it followed."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 1)
        mine = MemoryPartitionLog(PARTITION)
        shards.lead(mine, leader_epoch=FIRST)
        await outside.pass_time(1)
        before = shards.shard_of("a")
        await before.run(lambda tally, _: tally.add("a", 1))
        shards.resign(0, leader_epoch=LeaderEpoch(FIRST + 1))
        elsewhere_log = MemoryPartitionLog(PARTITION, tuple(mine.content))
        elsewhere = tally_on(outside, elsewhere_log)
        await elsewhere.load()
        await elsewhere.run(lambda tally, _: tally.add("a", 2))
        shards.lead(elsewhere_log, leader_epoch=LeaderEpoch(FIRST + 2))
        await outside.pass_time(1)
        assert await shards.shard_of("a").run(lambda tally, _: tally.get("a")) == 3
        with pytest.raises(NotCoordinatorError):
            await before.run(lambda tally, _: tally.get("a"))
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


@pytest.mark.parametrize("seconds_per_read", [0, 30])
def test_a_newer_epoch_of_the_same_leader_loads_nothing_again(seconds_per_read: float) -> None:
    """Nobody has cut its log: the shard serves on with its parked replies, or loads on."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 1)
        log = MemoryPartitionLog(PARTITION)
        log.seconds_per_read = seconds_per_read
        shards.lead(log, leader_epoch=FIRST)
        await outside.pass_time(1)
        led = shards.shard_of("a")
        shards.lead(log, leader_epoch=LeaderEpoch(FIRST + 1))
        await outside.pass_time(40)
        assert shards.shard_of("a") is led
        parked = asyncio.ensure_future(led.run(lambda tally, _: tally.park()))
        await outside.pass_time(1)
        shards.lead(log, leader_epoch=LeaderEpoch(FIRST + 2))
        shards.resign(0, leader_epoch=LeaderEpoch(FIRST + 2))
        led.machine.parked[0].set_result(1)
        assert await parked == 1
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_shard_of_its_epoch_is_loaded_again_in_a_newer_one() -> None:
    """Markers of transactions have the epoch in them; parked replies end."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](
            lambda log: tally_on(outside, log), partition_count=lambda: 1, is_of_epoch=True
        )
        log = MemoryPartitionLog(PARTITION)
        shards.lead(log, leader_epoch=FIRST)
        await outside.pass_time(1)
        before = shards.shard_of("a")
        parked = asyncio.ensure_future(before.run(lambda tally, _: tally.park()))
        assert await before.run(lambda tally, _: tally.add("a", 1)) == 1
        shards.lead(log, leader_epoch=LeaderEpoch(FIRST + 1))
        with pytest.raises(NotCoordinatorError):
            await parked
        await outside.pass_time(1)
        assert await shards.shard_of("a").run(lambda tally, _: tally.get("a")) == 1
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_late_word_of_an_older_leader_does_not_stop_a_shard() -> None:
    """Another broker led the partition before; one that leads it since a newer epoch does."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 1)
        shards.lead(MemoryPartitionLog(PARTITION), leader_epoch=FIRST)
        await outside.pass_time(1)
        for late in (LeaderEpoch(FIRST - 1), FIRST):
            shards.resign(0, leader_epoch=late)
            assert await shards.shard_of("a").run(lambda tally, _: tally.get("a")) == 0
        shards.resign(0, leader_epoch=LeaderEpoch(FIRST + 1))
        with pytest.raises(NotCoordinatorError):
            shards.shard_of("a")
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_machine_that_fails_to_stop_does_not_keep_its_partition() -> None:
    """A bug is logged; the others stop too, and the partition can be led again."""

    class Broken(Tally):
        def stop(self, error: Exception) -> None:
            raise RuntimeError(f"a bug in the machine, told {error}")

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](
            lambda log: Shard(log, Broken, TallyCodec, clock=outside.runtime.clock),
            partition_count=lambda: 2,
        )
        logs = [MemoryPartitionLog(TopicPartition("__tally", each)) for each in range(2)]
        for log in logs:
            shards.lead(log, leader_epoch=FIRST)
        await outside.pass_time(1)
        stopped = list(shards)
        shards.resign(0)
        assert list(shards) == stopped[1:]
        with pytest.raises(NotCoordinatorError):
            _ = stopped[0].machine
        shards.lead(logs[0], leader_epoch=FIRST)
        await outside.pass_time(1)
        assert len(list(shards)) == 2
        await shards.stop()
        assert list(shards) == []

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_partitions_come_and_go_at_the_same_time() -> None:
    """Each that is led in the end answers from its whole log, and each other not at all."""

    async def scenario(outside: Outside) -> None:
        shards = Shards[Tally](lambda log: tally_on(outside, log), partition_count=lambda: 20)
        keys = {partition_of(f"k{each}", 20): f"k{each}" for each in range(200)}
        logs = [MemoryPartitionLog(TopicPartition("__tally", each)) for each in range(20)]
        for log in logs[10:]:
            shards.lead(log, leader_epoch=FIRST)
        await outside.pass_time(1)
        for number in range(10, 20):
            add = partial(Tally.add, name=keys[number], count=number)
            await shards.shard_of(keys[number]).run(lambda tally, _: add(tally))  # noqa: B023
        for coming, going in zip(logs[:10], range(10, 20), strict=True):
            coming.content += logs[going].content
            coming.seconds_per_read = going / 10
            shards.lead(coming, leader_epoch=FIRST)
            await outside.pass_time(0.1)
            shards.resign(going, leader_epoch=LeaderEpoch(FIRST + 1))
        await outside.pass_time(2)
        for number in range(10):
            found = shards.shard_of(keys[number])
            key = keys[number + 10]
            get = partial(Tally.get, name=key)
            assert await found.run(lambda tally, _: get(tally)) == number + 10  # noqa: B023
            with pytest.raises(NotCoordinatorError):
                shards.shard_of(key)
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
