"""Keys, their partitions, and the shards that have them."""

import pytest

from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.placement import partition_of
from tailrace.coordinator.shards import Shards
from tailrace.model import TopicPartition
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.tally import Tally, tally_on


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
        shards.lead(MemoryPartitionLog(TopicPartition("__tally", 42)))
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
        shards.lead(log)
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
        shards.lead(MemoryPartitionLog(partition, (b"damage",)))
        await outside.pass_time(1)
        with pytest.raises(NotCoordinatorError):
            await shards.shard_of("a").run(lambda tally, _: tally.get("a"))
        shards.lead(MemoryPartitionLog(partition))
        await outside.pass_time(1)
        assert await shards.shard_of("a").run(lambda tally, _: tally.add("a", 1)) == 1
        await shards.stop()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
