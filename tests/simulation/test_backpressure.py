"""A task that awaits `send` is held back by a full buffer, in its turn, and may be cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tailrace.client.producer.errors import (
    BufferExhaustedError,
    ClosedProducerError,
    ProducerError,
    TransactionStateError,
)
from tailrace.client.producer.receipts import Receipt
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, check_empty, outcomes, play, stage

SMALL: dict[str, Any] = {"batch_size": 1000, "buffer_memory": 10_000, "max_request_size": 8000}
"""Room for two records of a kilobyte each, with what batches take besides."""


async def wait_for(receipt: Receipt) -> None:
    """Await a receipt in a task of its own."""
    await receipt


def begin(stage: Stage, producer: Any, count: int) -> list[asyncio.Task[None]]:
    """Begin `count` tasks, each of which sends a kilobyte and awaits it."""
    loop = asyncio.get_running_loop()

    async def send() -> None:
        await stage.send(producer, size=1000)[0]

    return [loop.create_task(send()) for _ in range(count)]


def test_statistics_tell_what_a_producer_holds() -> None:
    """A record counts, and takes memory, until it is acknowledged."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=1000) as producer:
            await stage.send(producer)[0]
            idle = producer.statistics()
            (receipt,) = stage.send(producer)
            assert producer.statistics().record_count == 1
            assert producer.statistics().buffer_available_bytes < idle.buffer_available_bytes
            await receipt
            assert producer.statistics() == idle
            assert (idle.record_count, idle.batches_in_flight, idle.waiting_count) == (0, 0, 0)
            assert idle.buffer_available_bytes == idle.buffer_total_bytes

    play(main)


def test_tasks_that_await_wait_for_memory() -> None:
    """Records of ten times the memory are all written, in the order in which they were sent."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            await stage.send(producer)[0]
            await asyncio.gather(*begin(stage, producer, 100))
            assert producer.metrics()["waiting-threads"] == 0
            check_empty(producer)
        assert len(stage.cluster.log().records) == 101
        stage.check_log()

    play(main)


def test_the_wait_for_memory_ends_after_max_block() -> None:
    """While nothing gets out, tasks fail with the reason when `max.block.ms` is over."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=1000, **SMALL) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            tasks = begin(stage, producer, 30)
            await stage.pass_time(0.9)
            assert not any(task.done() for task in tasks)
            await stage.pass_time(0.2)
            late = [task.exception() for task in tasks if task.done()]
            assert {type(each).__name__ for each in late} == {"BufferExhaustedError"}
            assert len(late) >= 25
            stage.cluster.move(T0, 1)
            await asyncio.gather(*tasks, return_exceptions=True)
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_cancelled_wait_gives_back_its_place_and_its_memory() -> None:
    """Records whose tasks were cancelled in line are not sent; those behind them are."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            tasks = begin(stage, producer, 30)
            await stage.pass_time(1)
            queued = [each.receipt for each in stage.sent if each.receipt.partition < 0]
            in_line = tasks[-len(queued) :]
            # The first of the line waits for memory, the others behind it.
            for task in in_line[:-5]:
                task.cancel()
            await stage.pass_time(1)
            assert set(outcomes(queued[:-5])) == {"SendCancelledError"}
            assert producer.metrics()["waiting-threads"] == 1
            stage.cluster.move(T0, 1)
            await asyncio.gather(*tasks, return_exceptions=True)
            assert outcomes(queued[-5:]) == [""] * 5
            check_empty(producer)
        assert len(stage.cluster.log().records) == 1 + 30 - len(in_line) + 5
        stage.check_log()

    play(main)


def test_a_wait_that_is_cancelled_as_memory_comes_keeps_none() -> None:
    """At whatever turn of the loop the task is cancelled, all memory comes back."""

    async def main(stage: Stage, *, turns: int) -> None:
        async with stage.producer(**SMALL) as producer:
            await stage.send(producer)[0]
            tasks = begin(stage, producer, 6)
            for _ in range(turns):
                await stage.pass_time(0)
            for task in tasks[1::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert not any(isinstance(task.exception(), ProducerError) for task in tasks[::2])
            await producer.flush()
            check_empty(producer)
        stage.check_log()

    for turns in range(25):
        play(partial(main, turns=turns))


def test_a_record_in_a_batch_is_sent_though_its_wait_is_cancelled() -> None:
    """A cancelled await removes no record from a batch, and leaves no watcher behind."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=1000) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            (receipt,) = stage.send(producer)
            for _ in range(3):
                task = asyncio.get_running_loop().create_task(wait_for(receipt))
                await stage.pass_time(0.1)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert not receipt.done()
            stage.cluster.move(T0, 1)
            await producer.flush()
            assert outcomes([receipt]) == [""]
        stage.check_log()

    play(main)


def test_a_record_that_somebody_else_awaits_stays_in_line() -> None:
    """A record leaves the line only when the last task that awaits it is cancelled."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            receipt = producer.send("u", b"v")
            loop = asyncio.get_running_loop()
            first, second = (loop.create_task(wait_for(receipt)) for _ in range(2))
            await stage.pass_time(0.5)
            first.cancel()
            await stage.pass_time(0.5)
            assert not receipt.done()
            stage.cluster.create_topic("u")
            await second
            assert stage.cluster.log("u").values() == [b"v"]

    play(main)


def test_records_that_are_not_awaited_are_bounded_by_memory() -> None:
    """Beyond `buffer.memory`, a queued record fails two turns later unless it is awaited."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            receipts = stage.send(producer, 30, size=1000)
            kept = [each for each in receipts if not each.done()]
            assert len(kept) < 14
            for _ in range(2):
                await stage.pass_time(0)
            assert kept[-1].done()
            assert "buffer.memory (10000 bytes) stayed full" in str(kept[-1].exception())
            (beyond,) = begin(stage, producer, 1)
            await stage.pass_time(1)
            assert not beyond.done()
            stage.cluster.move(T0, 1)
            await beyond
            await producer.flush()
            assert outcomes(kept[:-1]) == [""] * (len(kept) - 1)
            assert outcomes(kept[-1:]) == ["BufferExhaustedError"]
            check_empty(producer)
        stage.check_log()

    play(main)


async def with_wait_for(receipt: Receipt) -> None:
    """Await the receipt as a program does that gives up after a time."""
    await asyncio.wait_for(receipt, 50)


async def with_shield(receipt: Receipt) -> None:
    """Await the receipt as a program does that may be cancelled."""
    await asyncio.shield(receipt)


@pytest.mark.parametrize("wait", [wait_for, with_wait_for, with_shield])
def test_whatever_way_a_task_awaits_it_is_held_back(
    wait: Callable[[Receipt], Awaitable[None]],
) -> None:
    """Asyncio's helpers await in a task of their own, a turn later; that counts as well."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            await stage.send(producer)[0]

            async def send() -> None:
                for _ in range(3):
                    await wait(stage.send(producer, size=1000)[0])

            await asyncio.gather(*(send() for _ in range(30)))
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_receipt_tells_what_a_wait_that_was_over_at_once_does_not() -> None:
    """`wait_for(receipt, 0)` awaits nothing, so it raises TimeoutError and the record is sent."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            (receipt,) = stage.send(producer)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receipt, 0)
            await producer.flush()
            assert receipt.exception() is None
        stage.check_log()

    play(main)


def test_records_that_wait_for_a_topic_say_so() -> None:
    """The error of one too many names the topic that is not there, not memory that is free."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=1000, **SMALL) as producer:
            await stage.send(producer)[0]
            producer.send("nowhere", b"v")
            await stage.pass_time(0.5)
            receipts = [producer.send("nowhere", b"v" * 1000) for _ in range(30)]
            text = str(receipts[-2].exception())
            assert "waited 0.5 s for metadata of topic nowhere" in text
            assert "await each send" in text.lower()
            assert "stayed full" not in text

    play(main)


def test_a_record_that_was_in_line_does_not_linger_once_it_is_awaited() -> None:
    """It is sent at once, like a record that got into its batch without waiting."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
            receipts = stage.send(producer, 2)
            await stage.pass_time(1)
            await receipts[0]
            assert stage.now < 2

    play(main)


def test_callbacks_that_send_again_leave_the_loop_its_turns() -> None:
    """Each record sent again by a callback fails, and its callback runs in a later turn."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**SMALL)
        await stage.send(producer)[0]
        stage.cluster.move(T0, -1)
        loop = asyncio.get_running_loop()
        calls = turns = 0

        def send() -> None:
            producer.send("t", b"." * 1000, partition=0, on_delivery=send_again)

        def send_again(_metadata: object, error: Exception | None) -> None:
            nonlocal calls
            calls += 1
            # The loop would not get its turn again before all of these.
            if isinstance(error, BufferExhaustedError) and calls < 1000:
                send()

        def turn() -> None:
            nonlocal turns
            turns += 1
            if calls < 1000:
                loop.call_soon(turn)

        for _ in range(30):
            send()
        turn()
        await stage.pass_time(1)
        assert calls >= 1000
        assert turns > calls / 30
        await producer.close(0)
        check_empty(producer)

    play(main)


def test_a_partition_that_is_not_there_holds_up_no_other_record() -> None:
    """Records behind one for partition 9 of 2 are written at once; it fails once that is certain.

    So it is when the topic is known, and when the record is the first to ask for it.
    """

    async def main(stage: Stage, *, is_known: bool) -> None:
        async with stage.producer() as producer:
            if is_known:
                await stage.send(producer)[0]
            wrong = [producer.send("t", b"v", partition=9) for _ in range(2)]
            good = stage.send(producer, 2)
            other = producer.send("t", b"w", partition=8)
            await asyncio.gather(*map(wait_for, good))
            assert stage.now < 0.5
            await producer.flush()
            assert stage.now < 1
            assert outcomes([*wrong, other]) == ["UnknownTopicError"] * 3
            text = str(wrong[0].exception())
            assert text.startswith("partition: topic t has no partition 9, it has 0 to 1; ")
            check_empty(producer)

    play(partial(main, is_known=True))
    play(partial(main, is_known=False))


def test_records_for_a_partition_that_is_added_keep_their_order() -> None:
    """Records that waited for the partition come before those sent when it was there."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            stage.send(producer, 3, partition=2)
            stage.cluster.create_topic("t", partitions=3)
            for _ in range(40):
                stage.send(producer, 1, partition=2)
                await stage.pass_time(0.05)
            await producer.flush()
        stage.check_log()
        assert len(stage.cluster.log("t", 2).records) == 43

    play(main)


def test_records_without_a_receipt_that_fail_in_line_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has the reason for each, and the metrics count them."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=1000) as producer:
            producer.send("nowhere", b"v", receipt=False)
            await stage.pass_time(2)
            assert producer.metrics()["record-error-total"] == 1

    play(main)
    assert "record_failed topic=nowhere reason=waited 1 s for metadata" in caplog.text


def test_a_plain_record_overtakes_none_in_line() -> None:
    """While the topic's records wait for metadata, later plain records do not get into a batch."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=10_000, metadata_max_age_ms=2000) as producer:
            await producer.send("t", b"0")
            producer.send("t", b"1")
            stage.cluster.topic_errors["t"] = ErrorCode.LEADER_NOT_AVAILABLE
            await stage.pass_time(3)
            producer.send("t", b"2", headers=[("h", b"")])
            producer.send("t", b"3")
            stage.cluster.topic_errors.clear()
            await producer.flush()
            assert stage.cluster.log().values() == [b"0", b"1", b"2", b"3"]

    play(main, partitions=1)


def test_a_plain_record_overtakes_none_that_waits_for_memory() -> None:
    """A plain record goes behind queued ones, even if a batch was opened for the first of them."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            max_in_flight_requests_per_connection=1, **(SMALL | {"buffer_memory": 20_000})
        ) as producer:
            plain = (await producer.send("t", b"")).partition
            other = TopicPartition("t", 1 - plain)
            await producer.send("t", b"", partition=other.partition)
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=5)
            # This holds up the batch that is opened behind it, and half of the memory.
            receipts = [producer.send("t", b"0")]
            stage.cluster.move(other, -1)
            receipts += [
                producer.send("t", value, partition=partition)
                for value, partition in ((b"x", 1 - plain), (b"1", None), (b"y" * 1000, 1 - plain))
            ]
            receipts.append(producer.send("t", b"2"))
            await stage.pass_time(1)
            stage.cluster.move(other, 1 + other.partition)
            await stage.pass_time(1)
            receipts.append(producer.send("t", b"3"))
            await producer.flush()
            assert outcomes(receipts) == [""] * 6
            assert stage.cluster.log("t", plain).values() == [b"", b"0", b"1", b"2", b"3"]

    play(main, nodes=2)


def test_one_look_tells_all_records_for_partitions_that_are_not_there() -> None:
    """A thousand records for partition 9 of 2 ask the cluster twice at most, not a thousand times.

    The records that came while the first request was under way may know of a newer state.
    """

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            asked = stage.cluster.count(ApiKey.METADATA)
            wrong = [producer.send("t", b"v", partition=9) for _ in range(1000)]
            await producer.flush()
            assert outcomes(wrong) == ["UnknownTopicError"] * 1000
            assert stage.cluster.count(ApiKey.METADATA) - asked <= 2
            assert stage.now < 2
            check_empty(producer)

    play(main)


def test_send_many_overtakes_no_record_in_line() -> None:
    """Rows come after the records that were sent before, whatever those wait for."""

    async def main(stage: Stage, *, is_known: bool) -> None:
        async with stage.producer(max_block_ms=5000, **SMALL) as producer:
            if is_known:
                await stage.send(producer)[0]
            missing = producer.send("t", b"v", partition=9)
            count = 5
            sent = stage.send(producer, count, size=1000)
            values = [b"%d" % (len(stage.sent) + n) for n in range(4)]
            rows = {"value": values, "partition": [0] * len(values)}
            summary = await producer.send_many("t", rows)
            summary.raise_errors()
            assert stage.now < 1
            assert outcomes(sent) == [""] * count
            before = [each.value for each in stage.sent]
            assert stage.cluster.log().values() == before + values
            await producer.flush()
            assert outcomes([missing]) == ["UnknownTopicError"]

    play(partial(main, is_known=True))
    play(partial(main, is_known=False))


async def keep_sending(stage: Stage, producer: Any, received: list[Receipt]) -> None:
    """Send kilobytes, each of which waits in line."""
    for _ in range(20):
        (receipt,) = stage.send(producer, size=1000)
        received.append(receipt)
        await receipt


async def with_senders(
    stage: Stage, producer: Any, work: Callable[[], Awaitable[object]]
) -> tuple[int, int]:
    """Do something while 20 tasks keep sending; how many records there were before and after."""
    sent: list[Receipt] = []
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(keep_sending(stage, producer, sent)) for _ in range(20)]
    await stage.pass_time(0)
    before = len(sent)
    async with asyncio.timeout(1):
        await work()
    after = len(sent)
    assert all(each.done() for each in sent[:before])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return before, after


def test_a_flush_waits_for_no_later_record() -> None:
    """While others go on sending, it ends when all that was in line before has its outcome."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            await stage.send(producer)[0]
            before, after = await with_senders(stage, producer, producer.flush)
            assert before == 20
            # All of the line had one turn, and then what was in batches.
            assert after <= 60
            await producer.flush()
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_close_takes_no_more_records_while_others_are_in_line() -> None:
    """Records in line are written, and a record sent meanwhile is refused in the call."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(**SMALL)
        await stage.send(producer)[0]
        before, after = await with_senders(stage, producer, producer.close)
        assert before == after == 20
        assert outcomes([each.receipt for each in stage.sent]) == [""] * 21
        check_empty(producer)
        stage.check_log()

    play(main)


@pytest.mark.parametrize(
    "given",
    [
        {"value": b"late"},
        {"value": b"late", "key": b"k"},
        {"value": "late", "headers": [("h", b"")]},
        {"value": b"late", "partition": 0},
    ],
)
def test_a_close_refuses_records_for_open_batches(given: dict[str, Any]) -> None:
    """A record of any kind is refused as soon as `close` waits for queued records."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(linger_ms=60_000)
        await asyncio.gather(producer.send("t", b"v"), producer.send("t", b"v", b"k"))
        first = producer.send("t", b"v", b"k")
        waiting = producer.send("nowhere", b"v")
        close = asyncio.get_running_loop().create_task(producer.close(5))
        await stage.pass_time(1)
        assert not waiting.done()
        with pytest.raises(ClosedProducerError):
            producer.send("t", **given)
        stage.cluster.create_topic("nowhere")
        await close
        assert outcomes([first, waiting]) == ["", ""]
        check_empty(producer)

    play(main)


def test_a_commit_waits_for_no_later_record() -> None:
    """Records that other tasks send during a commit are in that transaction, or fail."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x", **SMALL) as producer:
            async with producer.transaction():
                stage.send(producer)

            async def commit() -> None:
                async with producer.transaction():
                    loop = asyncio.get_running_loop()
                    tasks.extend(
                        loop.create_task(keep_sending(stage, producer, sent)) for _ in range(20)
                    )
                    await stage.pass_time(0)

            sent: list[Receipt] = []
            tasks: list[asyncio.Task[None]] = []
            async with asyncio.timeout(1):
                await commit()
            found = outcomes(sent)
            assert found[:20] == [""] * 20
            assert set(found) == {"", "TransactionStateError"}
            assert len(found) <= 60
            assert len(stage.cluster.log().visible()) == 1 + found.count("")
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in results} == {TransactionStateError}
            async with producer.transaction():
                stage.send(producer)
            check_empty(producer)
        assert len(stage.cluster.log().visible()) == 2 + found.count("")
        stage.check_log()

    play(main)


@pytest.mark.parametrize("turns", [0, 3])
def test_a_line_whose_task_is_cancelled_ends(turns: int) -> None:
    """After all tasks were cancelled, queued records fail, and the producer still sends and closes.

    This holds whether or not the task of the line has begun.
    """

    async def main(stage: Stage) -> None:
        producer = stage.producer()
        receipts = stage.send(producer, 2)
        for _ in range(turns):
            await stage.pass_time(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert others
        for task in others:
            task.cancel()
        late = stage.send(producer)
        await asyncio.gather(*others, return_exceptions=True)
        await producer.close(5)
        assert outcomes(receipts + late) == ["SendCancelledError"] * 3
        assert "task" in str(receipts[0].exception())
        check_empty(producer)
        assert stage.now < 5

    play(main)


def test_records_are_sent_after_the_task_of_their_line_was_cancelled() -> None:
    """A later record of the same topic has a line of its own, which is served."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            stage.send(producer)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            async with asyncio.timeout(5):
                await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_a_task_that_outlives_its_loop_ends_quietly() -> None:
    """A wait in line that is collected with its task, after the loop was closed, says nothing."""

    async def main(stage: Stage) -> tuple[asyncio.Task[None], object]:
        producer = stage.producer()
        task = asyncio.get_running_loop().create_task(wait_for(producer.send("nowhere", b"v")))
        await stage.pass_time(0.1)
        return task, producer

    with stage() as found:
        task, _producer = found.outside.run(main(found))
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()
