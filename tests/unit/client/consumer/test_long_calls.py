"""Calls that read or wait for long: the member stays, and an end in the middle costs no record."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from tailrace.client.consumer.columns import Collector
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.offset_for_leader_epoch import EpochEndOffset
from tailrace.testing import Outside
from tests.unit.client.consumer.leaders import Leaders, read
from tests.unit.client.consumer.stage import T0, T1, on_stage, values
from tests.unit.client.consumer.test_handling import HELD, QUICK, committed, member
from tests.unit.client.reading import ReadableLog


async def cancelled(task: "asyncio.Future[Any]") -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def stopped_after(consumer: Any, count: int) -> Any:
    """An iteration that ends after some records."""
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("call", ["poll", "iteration", "to_arrow"])
async def test_a_member_that_waits_for_records_stays(
    outside: Outside, caplog: pytest.LogCaptureFixture, *, protocol: str, call: str
) -> None:
    """However long: the topic is quiet, and the program is not at work."""
    caplog.set_level(logging.WARNING, logger="tailrace.client")
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(1, partition=1)
        # The table of a record that comes so late is never whole, so its call waits for the rest.
        held = {
            "fetch_min_bytes": 1000,
            "fetch_max_wait_ms": 600_000,
            "request_timeout_ms": 900_000,
        }
        more = held if call == "to_arrow" else {}
        async with member(stage, protocol, max_poll_interval_ms=20_000, **more) as consumer:
            consumer.subscribe("t")
            seen: list[Any] = []

            async def go() -> None:
                if call == "iteration":
                    seen.extend([each async for each in stopped_after(consumer, 2)])
                elif call == "to_arrow":
                    await consumer.to_arrow()
                while True:
                    seen.extend(await consumer.poll(None))

            task = asyncio.ensure_future(go())
            await outside.pass_time(90)
            assert "poll_missed" not in caplog.text
            assert consumer.assignment() == {T0, T1}
            if call != "to_arrow":
                await stage.fill(1)
                await outside.pass_time(5)
                assert len(seen) == 2
            await cancelled(task)


async def test_a_first_table_that_is_cancelled_is_read_again(outside: Outside) -> None:
    """Also the rows of partitions that were assigned in that call, and none is committed."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(10)
        await stage.fill(1, partition=1)
        async with member(stage, **HELD) as consumer:
            consumer.subscribe("t")
            task = asyncio.ensure_future(consumer.to_arrow())
            await outside.pass_time(20)
            assert not task.done()
            await cancelled(task)
            consumer.pause(T1)
            assert values(await consumer.poll(90)) == list(range(10))
            assert await committed(stage) in {0, None}


async def test_a_hook_that_raises_in_a_table_costs_no_record(outside: Outside) -> None:
    """Rows of partitions that stay are read again."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(10)
        await stage.fill(1, partition=1)
        async with member(stage, "consumer", **HELD) as consumer:

            def fail(_: list[TopicPartition]) -> None:
                raise ZeroDivisionError

            consumer.subscribe("t", on_revoked=fail)
            task = asyncio.ensure_future(consumer.to_arrow())
            await outside.pass_time(20)
            assert not task.done()
            async with member(stage, "consumer") as other:
                other.subscribe("t")
                for _ in range(10):
                    await other.poll(1)
                    await outside.pass_time(1)
                with pytest.raises(ZeroDivisionError):
                    await task
                [kept] = consumer.assignment()
                assert kept == T0
                found = await consumer.poll(90)
                assert [each.offset for each in found] == list(range(10))
                # The last hook of the block raises, too.
                with suppress(ZeroDivisionError):
                    await consumer.unsubscribe()


async def test_a_seek_outlasts_the_poll_that_was_waiting(outside: Outside) -> None:
    """Another task has sought meanwhile; nothing was read that a cancellation puts back."""
    async with on_stage(outside) as stage:
        await stage.topic()
        await stage.fill(5)
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            assert len(await consumer.poll(60)) == 5
            task = asyncio.ensure_future(consumer.poll(None))
            await outside.pass_time(1)
            consumer.seek(T0, 8)
            await outside.pass_time(0)
            await cancelled(task)
            assert await consumer.position(T0) == 8


async def test_columns_that_are_interrupted_come_once(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that a Ctrl-C has left in a buffer are not in the next table beside themselves."""
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        await stage.fill(10)
        await stage.fill(1, partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            for each in (T0, T1):
                await consumer.position(each)
            await outside.pass_time(2)
            append, calls = Collector.append, []

            def interrupted(self: Collector, part: Any, position: int) -> Any:
                found = append(self, part, position)
                calls.append(position)
                if len(calls) == 2:
                    raise KeyboardInterrupt
                return found

            monkeypatch.setattr(Collector, "append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await consumer.poll_columns(60, columns=["offset"])
            found: list[int] = []
            for _ in range(2):
                found += (await consumer.poll_columns(5, columns=["offset"]))["offset"].to_pylist()
            assert sorted(found) == [0, *range(10)]


async def test_partitions_of_two_brokers_take_turns(outside: Outside) -> None:
    """One whose answers come faster than the program works does not hold up the other."""
    cluster = Leaders(outside, nodes=2, partitions=2)
    for each in (T0, T1):
        for _ in range(200):
            cluster.logs[each].write(10)
    size = len(cluster.logs[T0].batches[0][1])
    consumer = cluster.consumer(max_poll_records=50, max_partition_fetch_bytes=size * 10)
    consumer.assign([T0, T1])
    seen: Counter[int] = Counter()
    for _ in range(40):
        seen.update(each.partition for each in await consumer.poll(60))
        await outside.pass_time(0.05)
    assert min(seen[0], seen[1]) > 700, seen
    await consumer.close()


async def test_a_topic_that_was_made_again_is_read_from_where_it_begins(outside: Outside) -> None:
    """Its epochs begin again; the leader says that it knows none that the position could be of."""
    cluster = Leaders(outside, nodes=2)
    cluster.ids["t"] = UUID(int=1)
    for _ in range(3):
        cluster.move(T0, 1)
    cluster.logs[T0].epoch = cluster.partitions[T0].epoch
    for _ in range(5):
        cluster.logs[T0].write(1)
    consumer = cluster.consumer(metadata_max_age_ms=1000)
    consumer.assign(T0)
    await read(consumer, 5)
    cluster.ids["t"] = UUID(int=2)
    cluster.logs[T0] = ReadableLog()
    cluster.logs[T0].write(2)
    cluster.partitions[T0].epoch = 0
    cluster.queue(ApiKey.OFFSET_FOR_LEADER_EPOCH, T0, EpochEndOffset())
    assert [each.offset for each in await consumer.poll(30)] == [0, 1]
    await consumer.close()


class Hanging(Leaders):
    """Brokers, of which the first does not answer any more."""

    is_hung = False

    def act(self, node: Any, request: Any, fault: Any) -> Any:
        if self.is_hung and node.id == 1:
            return None
        return super().act(node, request, fault)


async def test_a_partition_that_has_left_a_broker_that_hangs_is_fetched(outside: Outside) -> None:
    """At its new leader, without waiting for the answer of the old one."""
    cluster = Hanging(outside, nodes=2)
    cluster.logs[T0].write(1)
    consumer = cluster.consumer(metadata_max_age_ms=1000)
    consumer.assign(T0)
    await read(consumer, 1)
    cluster.is_hung = True
    await consumer.poll(1)
    cluster.move(T0, 2)
    cluster.logs[T0].epoch = cluster.partitions[T0].epoch
    cluster.logs[T0].write(1)
    began = outside.loop.time()
    await read(consumer, 1)
    assert outside.loop.time() - began < 10
    await consumer.close()


async def test_a_negative_time_is_none(outside: Outside) -> None:
    """The protocol has other meanings for these numbers."""
    async with on_stage(outside) as stage:
        await stage.topic()
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            with pytest.raises(ValueError, match="is negative"):
                await consumer.seek_to_time(-1)
            with pytest.raises(ValueError, match="is negative"):
                await consumer.offsets_for_times({T0: -7})
