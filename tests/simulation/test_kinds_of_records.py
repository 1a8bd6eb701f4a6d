"""Records of every kind in any order, while batches fill and the cluster fails: none harms another.

Kinds differ in their fields: key, headers, timestamp, partition, callback, text in place of bytes,
no value, no receipt; and records that cannot be sent.
"""

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.producer import AsyncProducer, RecordMetadata
from tailrace.client.producer.receipts import Receipt
from tailrace.kernels.encoding import murmur2
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.examples import examples
from tests.simulation.stage import Stage, check_empty, play

PARTITIONS = 3
STEPS = 60
BURST = 40
"""Most records that are sent without a pause."""
MISSING = 7
"""A partition that the topic does not have."""


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """Make no log records: pytest keeps them all, with the clusters that their errors refer to."""
    log = logging.getLogger("tailrace")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@dataclass
class Given:
    """A record as it was given to the producer."""

    value: Any
    key: Any
    headers: Any
    timestamp: int | None
    partition: int | None
    is_bad: bool
    has_callback: bool
    receipt: Receipt | None = None
    told: list[tuple[RecordMetadata, Exception | None]] = field(default_factory=list)

    @property
    def fields(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """Value, key and headers as they have to be in the log."""
        pairs = self.headers.items() if isinstance(self.headers, dict) else self.headers or ()
        return _octets(self.value), _octets(self.key), tuple(pairs)


def _octets(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


class Play:
    """One sequence of records from a seed."""

    def __init__(self, stage: Stage, seed: int, *, burst: int) -> None:
        self._stage = stage
        self._burst = burst
        self._chance = random.Random(seed)
        self.given: list[Given] = []

    def send(self, producer: AsyncProducer) -> None:
        """Send a record of any kind."""
        chance = self._chance
        number = len(self.given)
        size = chance.choice((0, 0, 10, 300))
        value: Any = b"%d" % number + b"." * size
        if chance.random() < 0.2:
            value = value.decode()
        each = Given(
            value=value,
            key=chance.choice((None, b"", b"key", "text", b"k%d" % chance.randrange(50))),
            headers=chance.choice(
                (None, None, [("a", b"1")], {"b": None, "c": b""}, (("é", b"\0"),))
            ),
            timestamp=chance.choice((None, None, -1, 0, 1_600_000_000_000)),
            partition=chance.choice((None, None, *range(PARTITIONS))),
            is_bad=chance.random() < 0.08,
            has_callback=chance.random() < 0.4,
        )
        if each.is_bad:
            match chance.randrange(4):
                case 0:
                    each.value = b"x" * 200_000
                case 1:
                    each.timestamp = -(1 << 63)
                case 2:
                    each.headers = [("\ud800", b"")]
                case _:
                    each.partition = MISSING
        each.receipt = producer.send(
            "t",
            each.value,
            each.key,
            headers=each.headers,
            timestamp=each.timestamp,
            partition=each.partition,
            on_delivery=(lambda *told: each.told.append(told)) if each.has_callback else None,
            receipt=chance.random() < 0.8,
        )  # type: ignore[call-overload]
        if not each.has_callback and each.receipt is not None and chance.random() < 0.2:
            each.receipt.add_done_callback(lambda *told: each.told.append(told))
            each.has_callback = True
        self.given.append(each)

    async def step(self, producer: AsyncProducer) -> None:
        """Send some records, or let something happen."""
        chance, cluster = self._chance, self._stage.cluster
        match chance.randrange(8):
            case 0:
                await self._stage.pass_time(chance.choice((0.001, 0.05, 1.0)))
            case 1:
                await producer.flush()
            case 2:
                partition = TopicPartition("t", chance.randrange(PARTITIONS))
                cluster.script.add(
                    ApiKey.PRODUCE,
                    FaultKind.ERROR,
                    error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    partition=partition,
                )
            case _:
                for _ in range(chance.choice((1, 3, self._burst))):
                    self.send(producer)

    def check(self) -> None:
        """Each good record is in the log once, whole, where its key and its receipt say."""
        logs = {
            place.partition: led.log.records
            for place, led in self._stage.cluster.partitions.items()
        }
        found = {
            record.value: (partition, record)
            for partition, records in logs.items()
            for record in records
        }
        good = [each for each in self.given if not each.is_bad]
        assert len(found) == sum(map(len, logs.values())) == len(good)
        for each in good:
            value, key, headers = each.fields
            partition, record = found[value]
            assert (record.key, record.headers) == (key, headers)
            if each.timestamp is not None:
                assert record.timestamp == each.timestamp
            if each.partition is not None:
                assert partition == each.partition
            elif key is not None:
                assert partition == (murmur2(key) & 0x7FFFFFFF) % PARTITIONS
            place = RecordMetadata("t", partition, record.offset, record.timestamp)
            assert each.receipt is None or each.receipt.result() == place
            assert each.told == [(place, None)] * each.has_callback
        for each in self.given:
            if each.is_bad:
                assert each.receipt is None or each.receipt.exception() is not None
                assert [error is not None for _, error in each.told] == [True] * each.has_callback
        self._check_order(found)

    def _check_order(self, found: dict[bytes | None, tuple[int, Any]]) -> None:
        offsets: dict[int, int] = {}
        for each in self.given:
            if not each.is_bad:
                partition, record = found[each.fields[0]]
                assert record.offset > offsets.get(partition, -1), "records changed their order"
                offsets[partition] = record.offset


def run(seed: int, *, burst: int = BURST, **settings: Any) -> None:
    """Play a seed with bursts of so many records at most, and check what came of it."""

    async def main(stage: Stage) -> None:
        found = Play(stage, seed, burst=burst)
        given: dict[str, Any] = {
            "linger_ms": seed % 3 * 5,
            "batch_size": (300, 2000, 16384)[seed % 3],
            "max_request_size": 100_000,
            "max_block_ms": 1000,
        }
        async with stage.producer(**given | settings) as producer:
            found.send(producer)
            await producer.flush()
            for _ in range(STEPS):
                await found.step(producer)
                if burst < BURST:
                    await stage.pass_time(0.01)  # More in line would be refused.
            await producer.flush()
            check_empty(producer)
        await stage.pass_time(0)  # Callbacks of refused records are called by the loop.
        found.check()

    play(main, nodes=2, partitions=PARTITIONS, seed=seed)


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_records_of_all_kinds_arrive_whole_and_in_order(seed: int) -> None:
    """Whatever lies between them: other kinds, records that are refused, and failing requests."""
    run(seed)


@pytest.mark.parametrize("seed", range(3))
def test_little_memory_changes_nothing(seed: int) -> None:
    """Records wait for memory in line, and keep their order with those that do not."""
    run(seed, burst=8, buffer_memory=60_000, max_block_ms=60_000)


def test_keys_follow_the_number_of_partitions() -> None:
    """Once the producer knows of more partitions, a key goes where other clients look for it."""

    async def main(stage: Stage) -> None:
        keys = [b"key-%d" % number for number in range(40)]
        async with stage.producer(metadata_max_age_ms=1000, linger_ms=10_000) as producer:
            for count in (3, 5):
                stage.cluster.create_topic("t", partitions=count)
                await stage.pass_time(2)
                receipts = [producer.send("t", b"v", each) for each in keys]
                receipts += [producer.send("t", b"v", each, headers=[("h", b"")]) for each in keys]
                await stage.pass_time(2)
                places = [each.partition for each in receipts]
                assert places == [(murmur2(each) & 0x7FFFFFFF) % count for each in keys] * 2

    play(main, partitions=3)
