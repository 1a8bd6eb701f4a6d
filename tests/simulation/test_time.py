"""When records are sent, how long they are tried, and how a producer ends."""

import asyncio

import pytest

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.outcome import DeliveryCallback
from tailrace.client.producer.receipts import Receipt
from tailrace.errors import ConfigError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, check_empty, outcomes, play


async def send_late(stage: Stage, producer: AsyncProducer) -> Receipt:
    """A record that is refused for two seconds, then sent, and three seconds old."""
    refused = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=refused, delay_s=2)
    stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=refused, delay_s=2)
    (receipt,) = stage.send(producer)
    await stage.pass_time(3.01)
    return receipt


def test_records_linger_together() -> None:
    """A batch that is not full is sent when `linger.ms` is over, and not before."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=500) as producer:
            await stage.send(producer)[0]
            began = stage.now
            stage.send(producer, 3)
            await stage.pass_time(0.2)
            stage.send(producer, 3)
            await stage.pass_time(1)
            assert stage.cluster.sent[-1].at - began == pytest.approx(0.5)
            assert stage.cluster.sent[-1].record_count == 6

    play(main)


def test_a_full_batch_does_not_linger() -> None:
    """A batch is sent at once when the next record does not fit into it."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=5000, batch_size=300) as producer:
            await stage.send(producer)[0]
            began = stage.now
            stage.send(producer, 4, size=100)
            await stage.pass_time(1)
            assert stage.cluster.sent[-1].at == began
            assert len(stage.cluster.log().records) < 5
            await producer.flush()
        stage.check_log()

    play(main)


def test_a_batch_whose_receipt_is_awaited_does_not_linger() -> None:
    """A batch that somebody waits for is sent at once."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
            await stage.send(producer)[0]
            assert stage.now < 1

    play(main)


def test_a_flush_sends_all_and_waits_for_it() -> None:
    """`flush` lets nothing linger, and returns when all has its outcome; later records linger."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
            receipts = stage.send(producer, 3) + stage.send(producer, 3, partition=1)
            await producer.flush()
            assert outcomes(receipts) == [""] * 6
            assert stage.now < 1
            (later,) = stage.send(producer)
            await stage.pass_time(30)
            assert not later.done()

    play(main)


def test_a_flush_that_is_given_up_goes_on() -> None:
    """After a TimeoutError the records are still on their way."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            (receipt,) = stage.send(producer)
            with pytest.raises(TimeoutError):
                await producer.flush(timeout=1)
            assert not receipt.done()
            stage.cluster.move(T0, 1)
            await receipt

    play(main)


def test_nothing_is_tried_longer_than_the_delivery_timeout() -> None:
    """With no node alive, all receipts end at `delivery.timeout.ms`, with the reason."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=100, delivery_timeout_ms=10_000, request_timeout_ms=3000
        ) as producer:
            await stage.send(producer)[0]
            stage.cluster.nodes[1].kill()
            receipts = stage.send(producer, 3, size=90) + stage.send(producer, partition=1)
            began = stage.now
            await producer.flush()
            assert stage.now - began == pytest.approx(10)
            assert outcomes(receipts) == ["DeliveryTimeoutError"] * 4
            assert "delivery.timeout.ms" in str(receipts[0].exception())
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_batch_in_flight_expires_and_its_late_answer_frees_its_memory_once() -> None:
    """The receipt ends on time; memory is given back when the answer comes, once."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=3000, request_timeout_ms=3000) as producer:
            await stage.send(producer)[0]
            receipt = await send_late(stage, producer)
            assert outcomes([receipt]) == ["DeliveryTimeoutError"]
            assert producer.metrics()["batches-in-flight"] == 1
            await stage.pass_time(5)
            check_empty(producer)
            await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_an_expired_batch_is_not_sent_again() -> None:
    """An error that comes after the time is up starts no new attempt."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=3000, request_timeout_ms=3000) as producer:
            await stage.send(producer)[0]
            receipt = await send_late(stage, producer)
            await stage.pass_time(20)
            assert outcomes([receipt]) == ["DeliveryTimeoutError"]
            assert len(stage.cluster.sent) == 3
            check_empty(producer)

    play(main)


def test_with_one_request_in_flight_the_next_waits_for_an_expired_one() -> None:
    """Order holds with max.in.flight=1: nothing is sent before the late answer is there."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=4)
        async with stage.producer(
            batch_size=100,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            delivery_timeout_ms=3000,
            request_timeout_ms=3000,
            connections_max_idle_ms=60_000,
        ) as producer:
            stage.send(producer, 1, size=90)
            await stage.pass_time(2)
            stage.send(producer, 1, size=90)
            await producer.flush()
            await stage.pass_time(10)
        stage.check_log()

    play(main)


def test_a_record_may_be_sent_from_a_callback_of_an_expired_one() -> None:
    """Callbacks may send; the new record has its own time."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=3000, request_timeout_ms=3000) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            again = []
            producer.send(
                "t",
                b"first",
                partition=0,
                on_delivery=lambda _metadata, _error: again.extend(stage.send(producer)),
            )
            await stage.pass_time(4)
            assert len(again) == 1
            stage.cluster.move(T0, 1)
            await again[0]

    play(main)


def test_memory_that_is_full_is_waited_for() -> None:
    """Records wait in line for memory, in their order, and it is never exceeded."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=1000, buffer_memory=10_000, max_request_size=8000
        ) as producer:
            await stage.send(producer)[0]
            receipts = stage.send(producer, 6, size=1000)
            assert producer.metrics()["buffer-available-bytes"] >= 0
            await producer.flush()
            assert outcomes(receipts) == [""] * 6
            check_empty(producer)
        stage.check_log()

    play(main)


def test_memory_that_stays_full_fails_records_after_max_block() -> None:
    """Records that find no memory for `max.block.ms` fail, and those in line do not pile up."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=1000, buffer_memory=10_000, max_request_size=8000, max_block_ms=1000
        ) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            receipts = stage.send(producer, 30, size=1000)
            assert receipts[-2].done()
            await stage.pass_time(1.5)
            assert receipts[-1].done()
            found = set(outcomes([each for each in receipts if each.done()]))
            assert found == {"BufferExhaustedError"}
            assert producer.metrics()["buffer-exhausted-total"] >= 1
            stage.cluster.move(T0, 1)
            await producer.flush()
            check_empty(producer)
        stage.check_log()

    play(main)


def test_close_waits_for_all_records() -> None:
    """Records that linger, or wait in line for metadata, are written before `close` returns."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(linger_ms=60_000, delivery_timeout_ms=200_000)
        receipts = stage.send(producer, 3)
        await producer.close()
        await producer.close()
        assert outcomes(receipts) == [""] * 3
        assert stage.now < 1
        with pytest.raises(ClosedProducerError):
            producer.send("t", b"late")

    play(main)


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_a_forced_close_ends_every_receipt(wait_s: float) -> None:
    """Queued, waiting and in-flight records fail with ClosedProducerError, at once and once."""

    async def main(stage: Stage) -> None:
        heard: list[tuple[int, str]] = []

        def hearing(number: int) -> DeliveryCallback:
            return lambda _, error: heard.append((number, type(error).__name__))

        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=5)
        producer = stage.producer(batch_size=100)
        receipts = stage.send(producer, 5, size=90)
        receipts += [producer.send("nowhere", b"v")]
        for number, each in enumerate(receipts):
            each.add_done_callback(hearing(number))
        await stage.pass_time(wait_s)
        await producer.close(0)
        assert outcomes(receipts) == ["ClosedProducerError"] * 6
        check_empty(producer)
        await producer.close(0)
        await stage.pass_time(10)
        assert sorted(heard) == [(number, "ClosedProducerError") for number in range(6)]

    play(main)


def test_close_gives_up_after_its_timeout() -> None:
    """Records without an outcome by then fail; the others are written."""

    async def main(stage: Stage) -> None:
        producer = stage.producer()
        await stage.send(producer)[0]
        stage.cluster.move(T0, -1)
        held, free = stage.send(producer)[0], stage.send(producer, partition=1)[0]
        began = stage.now
        await producer.close(2)
        assert stage.now - began == pytest.approx(2)
        assert outcomes([held, free]) == ["ClosedProducerError", ""]

    play(main)


def test_a_forced_close_ends_a_waiting_flush() -> None:
    """A flush, and a receipt that is awaited, end when the producer is closed."""

    async def main(stage: Stage) -> None:
        producer = stage.producer()
        await stage.send(producer)[0]
        stage.cluster.move(T0, -1)
        (receipt,) = stage.send(producer)

        async def wait() -> str:
            try:
                await receipt
            except ClosedProducerError:
                return "closed"
            return "written"

        tasks = [asyncio.ensure_future(wait()), asyncio.ensure_future(producer.flush())]
        await stage.pass_time(1)
        await producer.close(0)
        async with asyncio.timeout(1):
            assert await asyncio.gather(*tasks, return_exceptions=True) == ["closed", None]

    play(main)


def test_callbacks_are_called_once_each_in_order() -> None:
    """Each record's callback hears of it once, and one that raises disturbs no other."""

    async def main(stage: Stage) -> None:
        heard: list[int] = []

        def hear(number: int) -> None:
            heard.append(number)
            if number == 1:
                raise ZeroDivisionError

        def hearing(number: int) -> DeliveryCallback:
            return lambda _metadata, _error: hear(number)

        async with stage.producer() as producer:
            for number in range(4):
                producer.send("t", b"v", partition=0, on_delivery=hearing(number))
            await producer.flush()
            receipt = producer.send("t", b"v", partition=0)
            await receipt
            receipt.add_done_callback(lambda _m, _e: hear(9))
            await stage.pass_time(0.1)
        assert heard == [0, 1, 2, 3, 9]

    play(main)


def test_a_topic_is_asked_about_until_it_is_there_and_then_no_more() -> None:
    """Its first record waits for it; later ones find it known."""

    async def main(stage: Stage) -> None:
        async with stage.producer(retry_backoff_ms=100, retry_backoff_max_ms=100) as producer:
            receipt = producer.send("late", b"v")
            await stage.pass_time(1)
            asked = [each for each in stage.cluster.asked_topics if "late" in each]
            assert len(asked) >= 4
            assert not receipt.done()
            stage.cluster.create_topic("late")
            await receipt
            asked = list(stage.cluster.asked_topics)
            for _ in range(3):
                await producer.send("late", b"v")
            assert stage.cluster.asked_topics == asked

    play(main)


def test_a_topic_that_is_not_used_is_not_asked_about_for_ever() -> None:
    """After `metadata.max.idle.ms` requests leave the topic out, until it is used again."""

    async def main(stage: Stage) -> None:
        stage.cluster.create_topic("u")
        async with stage.producer(metadata_max_idle_ms=5000, metadata_max_age_ms=1000) as producer:
            await producer.send("u", b"v")
            for _ in range(8):
                await stage.send(producer)[0]
                await stage.pass_time(1)
            assert stage.cluster.asked_topics[-1] == ("t",)
            await producer.send("u", b"v")
            assert "u" in stage.cluster.asked_topics[-1]

    play(main)


def test_a_topic_with_records_that_wait_is_never_forgotten() -> None:
    """Records that wait for a leader longer than `metadata.max.idle.ms` are written in the end."""

    async def main(stage: Stage) -> None:
        async with stage.producer(metadata_max_idle_ms=5000, metadata_max_age_ms=1000) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            (receipt,) = stage.send(producer)
            await stage.pass_time(30)
            stage.cluster.move(T0, 1)
            await receipt
            assert stage.now < 35

    play(main)


def test_time_goes_by_while_a_node_takes_no_connection() -> None:
    """A port that neither accepts nor refuses is waited for without a busy loop."""

    async def main(stage: Stage) -> None:
        stage.outside.network.silent_ports.add(stage.cluster.nodes[1].port)
        async with stage.producer(max_block_ms=20_000) as producer:
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert stage.now == pytest.approx(20, abs=0.1)
            assert outcomes([receipt]) == ["MetadataTimeoutError"]

    play(main)


@pytest.mark.parametrize(
    "settings",
    [
        {"enable_idempotence": True, "acks": "1"},
        {"enable_idempotence": True, "retries": 0},
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        {"transactional_id": "x", "enable_idempotence": False},
        {"transactional_id": "x", "acks": 0},
        {"delivery_timeout_ms": 1000, "request_timeout_ms": 2000},
        {"no_such_setting": 1},
        {"linger_ms": "soon"},
    ],
    ids=str,
)
def test_contradictory_settings_are_refused(settings: dict[str, object]) -> None:
    """A producer is not made from settings that cannot be kept."""

    async def main(stage: Stage) -> None:
        with pytest.raises(ConfigError):
            stage.producer(**settings)

    play(main)
