"""Tests of a producer's memory: it keeps no record that has ended, and no topic out of use."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tailrace.client.producer.errors import BrokerRefusedError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import Stage, outcomes, play

if TYPE_CHECKING:
    from tailrace.client.producer.receipts import Receipt

SIZE = 10_000


def acknowledge(_: Stage) -> None:
    """Let the broker acknowledge all records."""


def refuse(stage: Stage) -> None:
    """Every batch is refused for good."""
    stage.cluster.script.add(
        ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.POLICY_VIOLATION, times=1000
    )


def split(stage: Stage) -> None:
    """The topic takes only small batches, so larger ones are sent in parts."""
    stage.cluster.log().batch_bytes_max = 2 * SIZE


@pytest.mark.parametrize("begin", [acknowledge, refuse, split])
def test_a_receipt_that_is_held_keeps_no_record(begin: Callable[[Stage], None]) -> None:
    """Once a record has its outcome, nothing refers to its value, key or headers any more."""

    async def main(stage: Stage) -> None:
        begin(stage)
        async with stage.producer(batch_size=8 * SIZE, linger_ms=10) as producer:
            records = [
                (bytes([n]) * SIZE, bytes([n]) * 20, (("h", bytes([n]) * 30),)) for n in range(20)
            ]
            parts = [part for record in records for part in (*record[:2], record[2][0][1])]
            before = [sys.getrefcount(part) for part in parts]
            receipts = []
            for some in (records[:10], records[10:]):
                # The first of them wait in line until the topic is known.
                receipts += [
                    producer.send("t", value, key, headers=headers, partition=0)
                    for value, key, headers in some
                ]
                await producer.flush()
            some.clear()
            assert all(each.done() for each in receipts)
            gc.collect()
            assert [sys.getrefcount(part) for part in parts] == before

    play(main)


def test_receipts_that_are_held_cost_less_than_their_records() -> None:
    """Held receipts keep less than a tenth of the 200 kB of their acknowledged records."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=1 << 20, linger_ms=10) as producer:
            await stage.send(producer)[0]
            receipts: list[Receipt] = []
            tracemalloc.start()
            try:
                for number in range(20):
                    receipts.append(producer.send("t", bytes([number]) * SIZE, partition=0))
                    await producer.flush()
                taken = tracemalloc.take_snapshot().filter_traces(
                    [tracemalloc.Filter(inclusive=True, filename_pattern="*/client/producer/*")]
                )
            finally:
                tracemalloc.stop()
            assert outcomes(receipts) == [""] * 20
            held = sum(each.size for each in taken.statistics("filename"))
            assert held < 20 * SIZE / 10

    play(main)


def test_an_error_that_many_receipts_share_does_not_grow() -> None:
    """Raising the error of a batch by each of its receipts does not collect their frames."""

    async def main(stage: Stage) -> None:
        refuse(stage)
        async with stage.producer(linger_ms=10) as producer:
            receipts = stage.send(producer, 50)
            await producer.flush()
            depths = set()
            for receipt in receipts:
                try:
                    receipt.result()
                except BrokerRefusedError as error:
                    depth, trace = 0, error.__traceback__
                    while trace is not None:
                        depth, trace = depth + 1, trace.tb_next
                    depths.add(depth)
            assert len(depths) == 1

    play(main)


def test_names_of_topics_that_do_not_exist_are_not_kept_as_metrics() -> None:
    """However many names no topic has are tried, there are no more metrics; the total has them."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=1000) as producer:
            await stage.send(producer)[0]
            before = set(producer.metrics())
            for number in range(100):
                producer.send(f"no such name: {number}", b"v")
                producer.send(f"missing-{number}", b"v")
            await producer.flush()
            found = producer.metrics()
            assert set(found) == before
            assert found["record-error-total"] == 200
            assert found["record-send-total{topic=t}"] == found["record-send-total"] == 1

    play(main)


def test_the_metrics_of_a_topic_that_is_not_used_any_more_are_dropped() -> None:
    """After `metadata.max.idle.ms` a topic is forgotten, and the totals still count its records."""

    async def main(stage: Stage) -> None:
        stage.cluster.create_topic("u")
        async with stage.producer(
            metadata_max_idle_ms=10_000, metadata_max_age_ms=5000
        ) as producer:
            await producer.send("u", b"v")
            for _ in range(30):
                await stage.send(producer)[0]
                await stage.pass_time(1)
            found = producer.metrics()
            assert "record-send-total{topic=u}" not in found
            assert found["record-send-total{topic=t}"] == 30
            assert found["record-send-total"] == 31
            await producer.send("u", b"v")
            assert producer.metrics()["record-send-total{topic=u}"] == 1

    play(main)


def test_records_in_line_take_no_more_than_the_memory_for_them() -> None:
    """Small records that are not awaited take `buffer.memory` at most, objects included."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(buffer_memory=1 << 20, batch_size=1000, max_request_size=8000)
        await stage.send(producer)[0]
        receipts: list[Receipt] = []
        tracemalloc.start()
        try:
            while len(receipts) < 2 or not receipts[-2].done():
                receipts.append(producer.send("nowhere", b"v", partition=0))
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(receipts) > 1000
        assert taken < 1 << 20
        await producer.close(0)

    play(main)
