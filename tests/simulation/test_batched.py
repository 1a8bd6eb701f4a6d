"""`send(...).batched()`: a loop that awaits each record's place in a batch, and not its outcome."""

import asyncio

import pytest

from tailrace import Producer
from tailrace.client.producer.errors import MetadataTimeoutError, RejectedRecordError
from tailrace.protocol.apis import ApiKey
from tailrace.testing.broker import TestBroker
from tests.simulation.stage import Stage, check_empty, outcomes, play
from tests.simulation.test_backpressure import SMALL

COUNT = 3000


def test_a_loop_fills_batches() -> None:
    """Thousands of records take a few requests, where awaiting each outcome takes one for each."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            for _ in range(COUNT):
                (receipt,) = stage.send(producer)
                assert await receipt.batched() is receipt
            await producer.flush()
            assert stage.cluster.count(ApiKey.PRODUCE) < COUNT / 100
            before = stage.cluster.count(ApiKey.PRODUCE)
            for _ in range(10):
                await stage.send(producer)[0]
            assert stage.cluster.count(ApiKey.PRODUCE) == before + 10
        assert set(outcomes([each.receipt for each in stage.sent])) == {""}
        stage.check_log()

    play(main)


def test_a_loop_waits_while_the_buffer_is_full() -> None:
    """A hundred times the memory is sent in order, without an error."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            for _ in range(1000):
                await stage.send(producer, size=1000)[0].batched()
                assert producer.held() < 20
            await producer.flush()
            check_empty(producer)
        stage.check_log()

    play(main)


def test_other_tasks_run_meanwhile() -> None:
    """A loop without any other wait lets others have turns, at least one for each batch."""

    async def main(stage: Stage) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await stage.pass_time(0)

        async with stage.producer() as producer:
            task = asyncio.create_task(other())
            for _ in range(COUNT):
                await stage.send(producer)[0].batched()
            task.cancel()
            found = turns
            await producer.flush()
            assert found >= stage.cluster.count(ApiKey.PRODUCE) > 1

    play(main)


def test_a_record_that_cannot_be_sent_raises_at_once() -> None:
    """One that is too large, and one whose topic does not become known in time."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_request_size=2000, max_block_ms=500) as producer:
            with pytest.raises(RejectedRecordError):
                await producer.send("t", b"x" * 5000).batched()
            with pytest.raises(MetadataTimeoutError):
                await producer.send("nonsuch", b"x", partition=0).batched()
            await producer.send("t", b"x").batched()

    play(main)


def test_a_cancelled_wait_takes_the_record_out_of_the_queue() -> None:
    """An await of its outcome does the same; a record that is in a batch is sent."""

    async def main(stage: Stage) -> None:
        async with stage.producer(**SMALL) as producer:
            receipts = stage.send(producer, 20, size=1000)
            queued = receipts[-1]
            task = asyncio.create_task(queued.batched())
            await stage.pass_time(0)
            task.cancel()
            await stage.pass_time(1)
            assert task.cancelled()
            assert outcomes([queued]) == ["SendCancelledError"]
            check_empty(producer)
        assert outcomes(receipts).count("") == len(stage.cluster.log().records)

    play(main)


def test_a_receipt_of_a_thread_has_nothing_to_wait_for() -> None:
    """`Producer.send` returns when its record is in a batch, and the error says so."""
    with TestBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        receipt = producer.send("t", b"x")
        with pytest.raises(TypeError, match="leave batched"):
            receipt.batched().close()
