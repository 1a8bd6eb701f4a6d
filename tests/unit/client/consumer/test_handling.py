"""Which records count as handled, and so are committed: loops that end, slow work, wakeups."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from tailrace.client.consumer import AsyncConsumer
from tailrace.client.consumer.errors import WakeupError
from tailrace.model import TopicPartition
from tailrace.testing import Outside
from tests.unit.client.consumer.stage import T0, T1, Stage, on_stage, read, values

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])

QUICK = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}
HELD: dict[str, Any] = {
    "fetch_max_bytes": 100,
    "fetch_min_bytes": 100,
    "fetch_max_wait_ms": 60_000,
    "request_timeout_ms": 90_000,
}
"""Ten records of one partition fill an answer at once; one of another waits a minute for more."""


def member(stage: Stage, protocol: str = "classic", **settings: Any) -> AsyncConsumer:
    """A member of the group g."""
    return stage.consumer(group_id="g", group_protocol=protocol, **settings)


async def committed(stage: Stage, partition: TopicPartition = T0) -> int | None:
    """The offset that the group has, as another consumer sees it."""
    async with stage.consumer(group_id="g") as other:
        found = (await other.committed(partition))[partition]
        return None if found is None else found.offset


async def handle_all(consumer: AsyncConsumer, seen: list[int], *, slow_at: int = -1) -> None:
    """Handle records in a loop, for ever; one of them is never done."""
    async with consumer:
        consumer.subscribe("t")
        async for record in consumer:
            if record.offset == slow_at:
                await asyncio.Event().wait()
            seen.append(record.offset)


@pytest.mark.parametrize("slow_at", [7, -1])
async def test_a_cancelled_loop_commits_what_it_has_handled(outside: Outside, slow_at: int) -> None:
    """All but the record at which it was at work; all, if it waited for the next."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        seen: list[int] = []
        task = asyncio.ensure_future(handle_all(member(stage), seen, slow_at=slow_at))
        await outside.pass_time(3)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert seen == list(range(10 if slow_at < 0 else slow_at))
        assert await committed(stage) == len(seen)


async def test_an_exception_in_a_loop_costs_only_the_record_in_hand(outside: Outside) -> None:
    """The records before it are committed, and the next consumer begins with that record."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)

        async def fail(*, is_with: bool) -> None:
            consumer = member(stage)
            consumer.subscribe("t")
            try:
                if is_with:
                    await consumer.__aenter__()
                async for record in consumer:
                    if record.offset == 6:
                        raise ZeroDivisionError
            finally:
                await consumer.close()

        for is_with in (True, False):
            with pytest.raises(ZeroDivisionError):
                await fail(is_with=is_with)
            assert await committed(stage) == 6


@pytest.mark.parametrize("is_in_loop", [True, False])
async def test_close_commits_the_last_record_once_its_loop_has_ended(
    outside: Outside, *, is_in_loop: bool
) -> None:
    """Behind it after `break`; before it inside of the loop, where it is being handled."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        consumer = member(stage)
        consumer.subscribe("t")
        async for record in consumer:
            if record.offset == 4:
                if is_in_loop:
                    await consumer.close()
                break
        await consumer.close()
        assert await committed(stage) == (4 if is_in_loop else 5)


async def test_close_of_another_task_leaves_out_the_record_in_hand(outside: Outside) -> None:
    """A loop that is at work on a record when the consumer is closed has it committed by nobody."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        consumer = member(stage)
        task = asyncio.ensure_future(handle_all(consumer, [], slow_at=5))
        await outside.pass_time(3)
        await consumer.close()
        assert await committed(stage) == 5
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@BOTH
async def test_a_loop_may_take_long_for_one_polls_records(outside: Outside, protocol: str) -> None:
    """`max.poll.interval.ms` counts from the last record, and offsets are committed meanwhile."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(30)
        lost: list[TopicPartition] = []
        stored: list[int | None] = []
        consumer = member(stage, protocol, max_poll_interval_ms=10_000)
        consumer.subscribe("t", on_lost=lost.extend)
        async for record in consumer:
            await outside.pass_time(2)
            if record.offset in {9, 19}:
                stored.append(await committed(stage))
            if record.offset == 29:
                break
        assert lost == []
        # At most the interval of automatic commits is missing: 5 s, two or three records.
        assert [6 <= (stored[0] or 0) <= 9, 16 <= (stored[1] or 0) <= 19] == [True, True]
        await consumer.close()
        assert await committed(stage) == 30


@BOTH
async def test_a_loop_that_hangs_loses_its_partitions(outside: Outside, protocol: str) -> None:
    """Not the first record of a poll counts, and not the poll: the one that takes too long."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(5)
        lost: list[TopicPartition] = []
        consumer = member(stage, protocol, max_poll_interval_ms=10_000)
        consumer.subscribe("t", on_lost=lost.extend)
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            await outside.pass_time(4 if len(seen) < 4 else 12)
            if len(seen) == 5:
                break
        assert lost == [T0]
        # The records from the last commit on may have gone to others, and come again.
        assert seen[:4] == [0, 1, 2, 3]
        assert seen[4] <= 3
        await consumer.close()


@BOTH
async def test_a_rebalance_need_not_wait_for_the_end_of_a_loops_poll(
    outside: Outside, protocol: str
) -> None:
    """A partition goes between two records, with an offset after all that were handled of it."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(50)
        await stage.fill(50, partition=1)
        first = member(stage, protocol)
        second = member(stage, protocol)
        first.subscribe("t")
        seen: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []

        async def work() -> None:
            async for record in first:
                seen.append((record.partition, record.offset))
                await outside.pass_time(1)

        async def join() -> None:
            nonlocal others
            second.subscribe("t")
            async for record in second:
                others += [(record.partition, record.offset)]

        tasks = [asyncio.ensure_future(work())]
        await outside.pass_time(10)
        tasks.append(asyncio.ensure_future(join()))
        await outside.pass_time(20)
        assert 20 < len(seen) < 40
        assert others
        await outside.pass_time(60)
        assert len(seen) + len(others) == len({*seen, *others}) == 100
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await first.close()
        await second.close()


async def test_wakeup_ends_a_loop_as_if_there_were_no_more_records(outside: Outside) -> None:
    """The record in hand counts as handled; the next loop reads on."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        seen = []
        async with member(stage) as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 3:
                    consumer.wakeup()
            assert seen == [0, 1, 2, 3]
            outside.loop.call_later(5, consumer.wakeup)
            seen += [each.offset async for each in consumer]
            assert seen == list(range(10))
        assert await committed(stage) == 10


async def test_wakeup_ends_a_poll_with_an_error(outside: Outside) -> None:
    """The poll that waits, or the next one; the one after that returns records."""
    async with on_stage(outside) as stage:
        await stage.topic()
        async with stage.consumer() as consumer:
            consumer.assign(T0)
            for delay_s in (0, 5):
                outside.loop.call_later(delay_s, consumer.wakeup)
                if not delay_s:
                    await outside.pass_time(1)
                with pytest.raises(WakeupError):
                    await consumer.poll(60)
            await stage.fill(1)
            assert values(await consumer.poll(60)) == [0]


async def test_wakeup_does_not_disturb_other_calls(outside: Outside) -> None:
    """A commit in the handler of a record ends as it would have."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        async with member(stage, enable_auto_commit=False) as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                consumer.wakeup()
                await consumer.commit(record)
        assert await committed(stage) == 1


async def test_close_ends_the_loop_of_another_task(outside: Outside) -> None:
    """The loop ends without an error, and all that it has handled is committed."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        seen: list[int] = []
        consumer = member(stage)
        task = asyncio.ensure_future(handle_all(consumer, seen))
        await outside.pass_time(3)
        await consumer.close()
        await task
        assert seen == list(range(10))
        assert await committed(stage) == 10


async def test_a_second_close_waits_for_the_first(outside: Outside) -> None:
    """Offsets are committed when the second close returns, too."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(3)
        consumer = member(stage)
        consumer.subscribe("t")
        await read(consumer, 3)
        assert await consumer.poll(0) == []
        first = asyncio.ensure_future(consumer.close())
        second = asyncio.ensure_future(consumer.close())
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        assert first.done()
        assert await committed(stage) == 3


async def test_what_the_program_has_committed_is_not_taken_back(outside: Outside) -> None:
    """An exception after `commit(record)` does not lower the offset by its automatic commit."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(10)
        with suppress(ZeroDivisionError):
            async with member(stage) as consumer:
                consumer.subscribe("t")
                async for record in consumer:
                    if record.offset == 4:
                        await consumer.commit(record)
                        raise ZeroDivisionError
        assert await committed(stage) == 5
        with suppress(ZeroDivisionError):
            async with member(stage) as consumer:
                consumer.subscribe("t")
                records = await read(consumer, 5)
                await consumer.commit(records[1])
                raise ZeroDivisionError
        assert await committed(stage) == 7


async def test_a_table_that_is_cancelled_is_read_again(outside: Outside) -> None:
    """`to_arrow` counts what it has taken as handled only once it has returned it."""
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic(partitions=2)
        await stage.fill(10)
        await stage.fill(1, partition=1)
        async with member(stage, **HELD) as consumer:
            consumer.assign([T0, T1])
            task = asyncio.ensure_future(consumer.to_arrow())
            await outside.pass_time(20)
            assert not task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            consumer.pause(T1)
            assert await committed(stage) in {0, None}
            assert values(await consumer.poll(90)) == list(range(10))


@pytest.mark.parametrize("seed", range(4))
async def test_committed_is_what_was_handled_however_a_life_ends(
    outside: Outside, seed: int
) -> None:
    """Random lives from a seed lose no record, and repeat none after an end in order."""
    chance = random.Random(seed)
    async with on_stage(outside, **QUICK) as stage:
        await stage.topic()
        await stage.fill(300)
        handled = 0
        for _ in range(12):
            consumer = member(
                stage,
                chance.choice(("classic", "consumer")),
                max_poll_records=chance.choice((1, 7, 500)),
                auto_commit_interval_ms=chance.choice((1, 1000, 3_600_000)),
            )
            ending = chance.choice(("break", "wakeup", "raise", "cancel", "close"))
            task = asyncio.ensure_future(
                _live(consumer, handled, ending=ending, count=chance.randrange(1, 20))
            )
            (found,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(found, int)
            is_in_order = ending in {"break", "wakeup"}
            assert await committed(stage) == found - (not is_in_order)
            handled = found - (not is_in_order)


async def _live(consumer: AsyncConsumer, start: int, *, ending: str, count: int) -> int:
    """Handle records from `start` on, end in some way, and return the end of what was begun."""
    begun = start
    with suppress(ZeroDivisionError, asyncio.CancelledError):
        async with consumer:
            consumer.subscribe("t")
            async for record in consumer:
                assert record.offset == begun
                begun += 1
                if begun < start + count:
                    continue
                match ending:
                    case "break":
                        break
                    case "wakeup":
                        consumer.wakeup()
                    case "raise":
                        raise ZeroDivisionError
                    case "cancel":
                        task = asyncio.current_task()
                        assert task is not None
                        task.cancel()
                        await asyncio.Event().wait()
                    case "close":
                        await consumer.close()
    return begun


async def test_a_loop_that_waits_has_no_lag_behind_a_marker(outside: Outside) -> None:
    """The marker of a transaction is passed while the loop waits, and that is committed."""
    async with on_stage(outside, transaction_state_log_num_partitions="1", **QUICK) as stage:
        await stage.topic()
        seen: list[int] = []
        task = asyncio.ensure_future(handle_all(member(stage), seen))
        async with stage.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("t", b"0")
            await producer.flush()
            await outside.pass_time(12)
            assert (seen, await committed(stage)) == ([0], 1)
        await outside.pass_time(12)
        assert (seen, await committed(stage)) == ([0], 2)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
