"""`on_metrics`: programs are called with the figures of their clients, at an interval."""

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any

import pytest

from tailrace import Consumer, Producer
from tailrace.client.consumer.errors import ClosedConsumerError
from tailrace.client.consumer.metrics import ConsumerStatistics
from tailrace.client.interval_call import IntervalCall
from tailrace.client.producer.metrics import ProducerStatistics
from tailrace.testing import virtual_runtime
from tailrace.testing.broker import TestBroker
from tests.simulation.stage import Stage, play
from tests.unit.client.consumer.stage import T0, on_stage, read

TIMEOUT_S = 20


class Told:
    """Notes each call, and the time."""

    def __init__(self, stage: Any = None) -> None:
        self._stage = stage
        self.calls: list[tuple[dict[str, float], Any]] = []
        self.times: list[float] = []

    def __call__(self, metrics: dict[str, float], statistics: object) -> None:
        """Note it."""
        self.calls.append((metrics, statistics))
        if self._stage is not None:
            self.times.append(self._stage.outside.loop.time())


def test_an_interval_begins_when_the_last_one_ends() -> None:
    """A call is due once in an interval, is skipped while the last one runs, and never with 0."""
    made: list[int] = []
    call = IntervalCall(1000)
    assert call.take(1e9) is None
    call.begin(lambda: made.append(1), 10.0)
    assert call.take(10.9) is None
    due = call.take(11.5)
    assert due is not None
    assert call.due_at == 12.5
    assert call.take(12.6) is None, "the last one was not made yet"
    due()
    assert call.take(13.5) is None
    assert call.take(13.6) is not None
    never = IntervalCall(0)
    never.begin(lambda: made.append(2), 10.0)
    assert never.take(1e9) is None
    assert made == [1]


def test_a_producer_tells_its_figures_at_an_interval() -> None:
    """With nothing to do too; each call has what metrics() and statistics() return."""
    told: list[Told] = []

    async def main(stage: Stage) -> None:
        told.append(Told(stage))
        settings: dict[str, Any] = {"statistics_interval_ms": 1000, "on_metrics": told[0]}
        start = stage.now
        async with stage.producer(**settings) as producer:
            await producer.send("t", b"x", partition=0)
            await stage.pass_time(3.5)
            assert [round(each - start) for each in told[0].times] == [1, 2, 3]
            metrics, statistics = told[0].calls[-1]
            assert metrics["record-send-total"] == 1
            assert metrics.keys() == producer.metrics().keys()
            assert isinstance(statistics, ProducerStatistics)
            assert statistics == producer.statistics()
        await stage.pass_time(10)

    play(main)
    assert len(told[0].calls) == 3, "it was called after the close"


def test_a_failing_callback_of_a_producer_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged, records are written, and it is called again."""
    count = 0

    def fail(_metrics: dict[str, float], _statistics: object) -> None:
        nonlocal count
        count += 1
        raise SystemExit("no")

    async def main(stage: Stage) -> None:
        settings: dict[str, Any] = {"statistics_interval_ms": 100, "on_metrics": fail}
        async with stage.producer(**settings) as producer:
            for _ in range(5):
                await stage.pass_time(0.1)
                await producer.send("t", b"x", partition=0)
        assert len(stage.cluster.log().records) == 5

    with caplog.at_level(logging.ERROR):
        play(main)
    assert count >= 4
    assert "user_code_failed name=on_metrics" in caplog.text


def test_a_producer_with_on_metrics_can_be_forgotten() -> None:
    """The callback does not keep a producer alive that the program has dropped."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(on_metrics=Told())
        known = weakref.ref(producer)
        await producer.close()
        del producer
        gc.collect()
        assert known() is None

    play(main)


def test_a_consumer_tells_its_figures_inside_of_poll() -> None:
    """A poll that waits is interrupted for the call, and goes on; without polls there is none."""
    with virtual_runtime() as outside:

        async def main() -> None:
            async with on_stage(outside) as stage:
                await stage.topic()
                await stage.fill(3)
                told = Told(stage)
                settings: dict[str, Any] = {"statistics_interval_ms": 1000, "on_metrics": told}
                async with stage.consumer(**settings) as consumer:
                    begun = outside.loop.time()
                    consumer.assign(T0)
                    await read(consumer, 3)
                    assert await consumer.poll(3.5) == []
                    assert [round(each - begun) for each in told.times] == [1, 2, 3]
                    metrics, statistics = told.calls[-1]
                    assert metrics["records-consumed-total"] == 3
                    assert isinstance(statistics, ConsumerStatistics)
                    assert statistics.partitions[T0].position == 3
                    await outside.pass_time(60)
                    assert len(told.calls) == 3
                    started = outside.loop.time()
                    assert await consumer.poll(0) == []
                    assert outside.loop.time() - started < 0.1
                    assert len(told.calls) == 4
                await outside.pass_time(60)
                assert len(told.calls) == 4

        outside.run(main())


def test_a_callback_of_a_consumer_may_fail_await_and_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Errors are logged, a coroutine is awaited, and records come; a close ends the poll."""
    with virtual_runtime() as outside:
        count = 0

        async def main() -> None:
            async with on_stage(outside) as stage:
                await stage.topic()

                async def tell(_metrics: dict[str, float], _statistics: object) -> None:
                    nonlocal count
                    count += 1
                    await outside.pass_time(0.01)
                    if count == 3:
                        await consumer.close()
                    else:
                        raise ValueError(count)

                consumer = stage.consumer(statistics_interval_ms=1000, on_metrics=tell)
                consumer.assign(T0)
                assert await consumer.poll(2.5) == []
                await stage.fill(1)
                assert len(await read(consumer, 1)) == 1
                with pytest.raises(ClosedConsumerError):
                    await consumer.poll(60)

        with caplog.at_level(logging.ERROR):
            outside.run(main())
    assert count == 3
    assert caplog.text.count("user_code_failed name=on_metrics") == 2


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_what_cannot_be_called_is_refused(kind: type[Producer] | type[Consumer]) -> None:
    """A wrong type raises before anything is opened."""
    with pytest.raises(TypeError, match="on_metrics is an int"):
        kind(bootstrap_servers="localhost:1", on_metrics=5)  # type: ignore[arg-type]


def test_clients_on_threads_call_back_and_stop_at_close() -> None:
    """The producer's own thread calls, the consumer's poll does; none of them after close."""
    with TestBroker() as broker:
        broker.create_topic("t", partitions=1)
        threads: list[threading.Thread] = []
        twice = threading.Event()

        def tell(metrics: dict[str, float], _statistics: ProducerStatistics) -> None:
            threads.append(threading.current_thread())
            assert producer.metrics().keys() == metrics.keys()
            if len(threads) > 1:
                twice.set()

        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "statistics.interval.ms": 10,
        }
        with Producer(settings, on_metrics=tell) as producer:
            producer.send("t", b"x").result(TIMEOUT_S)
            assert twice.wait(TIMEOUT_S)
        count = len(threads)
        assert threading.current_thread() not in threads
        told = Told()
        with Consumer(settings, on_metrics=told, auto_offset_reset="earliest") as consumer:
            consumer.assign(("t", 0))
            while len(told.calls) < 3:
                consumer.poll(0.1)
        assert len(threads) == count
        assert told.calls[-1][0]["poll-total"] >= 1


def test_a_callback_may_close_its_producer() -> None:
    """It is called once then, and what was sent before is written."""

    async def main(stage: Stage) -> None:
        closing: list[asyncio.Task[None]] = []

        def tell(_metrics: dict[str, float], _statistics: ProducerStatistics) -> None:
            producer.send("t", b"x", partition=0)
            closing.append(asyncio.ensure_future(producer.close()))

        producer = stage.producer(statistics_interval_ms=1000, on_metrics=tell)
        await stage.pass_time(10)
        (closed,) = closing
        await closed
        assert stage.cluster.log().values() == [b"x"]

    play(main)
