"""Records go to their keys' partitions, or in batches' worth to where queues are short."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tailrace.client.producer.partitioners import RoundRobinPartitioner
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, check_empty, outcomes, play

MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"abc": 479470107,
}
"""Hashes that Kafka's own tests name."""

SLOW = TopicPartition("t", 2)
"""Led by a node of its own, which is slow."""


class Answering:
    """A partitioner that always answers the same."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def partition(
        self,
        topic: str,  # noqa: ARG002
        key: bytes | None,  # noqa: ARG002
        value: bytes | None,  # noqa: ARG002
        *,
        partition_count: int,  # noqa: ARG002
        available: object,  # noqa: ARG002
    ) -> Any:
        """The answer, or an error that is one."""
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def written(stage: Stage) -> dict[int, int]:
    """Return the number of records in each partition."""
    return {
        place.partition: len(led.log.records) for place, led in stage.cluster.partitions.items()
    }


async def send_for(stage: Stage, producer: Any, seconds: float) -> Counter[int]:
    """Send a batch's worth of records without key every 10 ms; counts them by partition."""
    found: Counter[int] = Counter()
    for _ in range(int(100 * seconds)):
        receipts = stage.send(producer, 4, partition=None, size=300)
        await stage.pass_time(0.01)
        found.update(each.partition for each in receipts)
    return found


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_a_slow_partition_gets_fewer_records(is_adaptive: bool) -> None:  # noqa: FBT001
    """A partition with slow answers and a queue gets fewer records, unless the setting is off."""
    found: Counter[int] = Counter()

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.DELAY, partition=SLOW, delay_s=0.3, times=10_000
        )
        settings = {
            "batch_size": 1000,
            "max_in_flight_requests_per_connection": 1,
            "partitioner_adaptive_partitioning_enable": is_adaptive,
        }
        async with stage.producer(**settings) as producer:
            found.update(await send_for(stage, producer, 5))
            stage.cluster.script.heal()
            await producer.flush()
            check_empty(producer)
        stage.check_log(may_reorder=True)
        assert written(stage) == dict(found)

    play(main, nodes=3, partitions=3, seed=7)
    fair = found.total() / 3
    if is_adaptive:
        assert found[2] < fair / 3
        assert min(found[0], found[1]) > fair
    else:
        # Turns end with a batch. A quick partition has sent a small one before in its turn.
        assert all(0.7 * fair < count < 1.3 * fair for count in found.values())


def test_queues_of_the_same_length_share_records_equally() -> None:
    """With brokers of the same pace each partition gets its share."""
    found: Counter[int] = Counter()

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=1000) as producer:
            found.update(await send_for(stage, producer, 10))
        stage.check_log(may_reorder=True)

    play(main, nodes=3, partitions=3, seed=3)
    assert all(
        0.8 * found.total() / 3 < count < 1.2 * found.total() / 3 for count in found.values()
    )


@pytest.mark.parametrize("timeout_ms", [0, 200])
def test_a_node_that_takes_nothing_is_spared_if_asked_for(timeout_ms: int) -> None:
    """With an availability timeout no record waits for a node that is stuck; until it is well."""
    found: Counter[int] = Counter()
    after: Counter[int] = Counter()

    async def main(stage: Stage) -> None:
        settings = {
            "batch_size": 1000,
            "max_in_flight_requests_per_connection": 2,
            "partitioner_availability_timeout_ms": timeout_ms,
            "request_timeout_ms": 30_000,
        }
        async with stage.producer(**settings) as producer:
            await stage.send(producer, 1, partition=2)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, partition=SLOW, delay_s=6)
            await send_for(stage, producer, 1)
            found.update(await send_for(stage, producer, 3))
            await stage.pass_time(6)
            await producer.flush()
            after.update(await send_for(stage, producer, 2))
            await producer.flush()
            check_empty(producer)
        stage.check_log(may_reorder=True)

    play(main, nodes=3, partitions=3, seed=5)
    assert (found[2] == 0) == (timeout_ms > 0)
    assert after[2] > after.total() / 5


def test_a_node_that_leads_again_is_not_spared() -> None:
    """A node was busy when its batches went to another leader, and gets its share afterwards."""
    after: Counter[int] = Counter()

    async def main(stage: Stage) -> None:
        settings = {
            "batch_size": 1000,
            "max_in_flight_requests_per_connection": 2,
            "metadata_max_age_ms": 1000,
            "partitioner_availability_timeout_ms": 200,
        }
        async with stage.producer(**settings) as producer:
            await stage.send(producer, 1, partition=2)[0]
            stage.cluster.nodes[3].is_paused = True
            stage.send(producer, 3, partition=2, size=900)
            await stage.pass_time(0.1)
            stage.cluster.move(SLOW, 1)
            await stage.pass_time(2)
            stage.cluster.nodes[3].resume()
            await producer.flush()
            stage.cluster.move(SLOW, 3)
            await stage.pass_time(2)
            after.update(await send_for(stage, producer, 2))
            await producer.flush()
            check_empty(producer)
        stage.check_log(may_reorder=True)

    play(main, nodes=3, partitions=3, seed=5)
    assert after[2] > after.total() / 5


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 50])
def test_keys_go_where_kafkas_hash_says(partitions: int) -> None:
    """Each key's partition is that of its murmur2, whose values Kafka's tests name."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            receipts = {key: producer.send("t", b"v", key) for key in MURMUR2}
            await producer.flush()
            for key, receipt in receipts.items():
                assert receipt.result().partition == (MURMUR2[key] & 0x7FFFFFFF) % partitions
            rows = {"value": [b"row"] * len(MURMUR2), "key": list(MURMUR2)}
            await producer.send_many("t", rows)
        for place, led in stage.cluster.partitions.items():
            keys = [each.key for each in led.log.records]
            assert all(
                (MURMUR2[key or b""] & 0x7FFFFFFF) % partitions == place.partition for key in keys
            )

    play(main, partitions=partitions)


def test_an_empty_key_is_a_key() -> None:
    """Records with an empty key all go to one partition."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=1) as producer:
            receipts = [producer.send("t", b"v", b"") for _ in range(20)]
            await producer.flush()
            assert len({each.result().partition for each in receipts}) == 1

    play(main, partitions=8)


def test_keys_are_ignored_if_asked_for() -> None:
    """With partitioner.ignore.keys a key goes to all partitions, and is written with its value."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100, partitioner_ignore_keys=True) as producer:
            for _ in range(60):
                await producer.send("t", b"v" * 50, b"key")
            await producer.send_many("t", {"value": [b"v" * 50] * 60, "key": [b"key"] * 60})
        assert all(count > 10 for count in written(stage).values())
        logs = (led.log.records for led in stage.cluster.partitions.values())
        assert {each.key for log in logs for each in log} == {b"key"}

    play(main, partitions=3, seed=2)


def test_the_sticky_partition_is_kept_for_a_batch() -> None:
    """Records without key fill one batch after the other, each of one partition."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=2000, linger_ms=1000) as producer:
            receipts = stage.send(producer, 500, partition=None, size=100)
            await producer.flush()
            places = [each.result().partition for each in receipts]
            runs = 1 + sum(first != second for first, second in pairwise(places))
            batches = [each.record_count for each in stage.cluster.sent]
            assert runs <= len(batches)
            # All but the last are full: another record would not have fitted.
            assert all(count >= 2000 // 130 for count in batches[:-1])
            assert set(places) == {0, 1, 2}
        stage.check_log(may_reorder=True)

    play(main, partitions=3, seed=4)


def test_lingering_batches_that_stay_small_change_partitions_in_the_end() -> None:
    """Small batches go to one partition until they come to a batch's worth, and then elsewhere."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=2000) as producer:
            receipts = []
            for _ in range(300):
                receipts += stage.send(producer, 1, partition=None, size=100)
                await receipts[-1]
        places = [each.partition for each in receipts]
        changes = sum(first != second for first, second in pairwise(places))
        # A worth is some 12 batches of one record; a choice may fall on the same partition.
        assert 5 < changes < 300 // 10
        assert min(Counter(places).values()) > 30

    play(main, partitions=3, seed=4)


def test_partitions_without_a_leader_get_no_records_without_key() -> None:
    """Such records go where somebody leads; all are written while a partition has no leader."""

    async def main(stage: Stage) -> None:
        stage.cluster.move(T0, -1)
        async with stage.producer(batch_size=200) as producer:
            receipts = stage.send(producer, 100, partition=None, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 100
        assert written(stage)[0] == 0

    play(main, partitions=3)


@pytest.mark.parametrize(
    "answer",
    [None, "1", 1.0, -1, 3, 1 << 80, (), ValueError("no"), KeyError()],
    ids=repr,
)
def test_a_partitioner_that_answers_nonsense_fails_the_record(answer: object) -> None:
    """An invalid partition fails the record, and `send` does not raise."""

    async def main(stage: Stage) -> None:
        async with stage.producer(partitioner=Answering(answer)) as producer:
            receipts = [producer.send("t", b"v"), producer.send("t", b"v", b"k")]
            own = producer.send("t", b"own", partition=1)
            await producer.flush()
            assert outcomes([*receipts, own]) == ["RejectedRecordError"] * 2 + [""]
            assert "partitioner" in str(receipts[0].exception())
            check_empty(producer)

    play(main, partitions=3)


def test_a_partitioner_decides_about_keys_too() -> None:
    """One key goes to all partitions in turn, and a record's own partition takes precedence."""

    async def main(stage: Stage) -> None:
        async with stage.producer(partitioner=RoundRobinPartitioner()) as producer:
            receipts = [producer.send("t", b"v", b"key") for _ in range(6)]
            receipts.append(producer.send("t", b"v", b"key", partition=1))
            await producer.flush()
            assert [each.result().partition for each in receipts] == [0, 1, 2, 0, 1, 2, 1]

    play(main, partitions=3)
