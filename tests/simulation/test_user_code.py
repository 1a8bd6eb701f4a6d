"""Whatever a program's own code raises, wherever it is called, no producer hangs or dies of it."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import ClosedProducerError, ReentrantCallError
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.receipts import Receipt
from tailrace.protocol.apis import ApiKey
from tailrace.runtime.network import Connector, Socket
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.examples import examples
from tests.simulation.evil import Code, Fuse, OwnExit, SilentExit, evil
from tests.simulation.stage import Stage, check_empty, outcomes, play

TIMEOUT_S = 30
KINDS = (
    ValueError,
    StopIteration,
    MemoryError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    OwnExit,
    SilentExit,
)
PARTS = ("interceptors", "hooks", "partitioner", "key_serializer", "value_serializer")
ARGUMENTS = ("topic", "key", "value", "headers", "timestamp", "partition", "on_delivery")


def any_of(names: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    """Some of them."""
    return st.frozensets(st.sampled_from(names))


SENDS = st.lists(any_of(ARGUMENTS), min_size=1, max_size=6)
EVERYTHING = frozenset(ARGUMENTS)


def send(producer: Any, code: Code, wanted: frozenset[str]) -> Receipt | None:
    """A receipt, unless the program's code has raised in the call itself."""
    try:
        receipt: Receipt = producer.send(**code.arguments(wanted))
    except code.fuse.kind:
        assert code.fuse.is_over
        return None
    if "on_delivery" not in wanted:
        with suppress(code.fuse.kind):
            receipt.add_done_callback(code.delivered)
    return receipt


@settings(max_examples=examples(50))
@given(
    kind=st.sampled_from(KINDS),
    at=st.integers(1, 60),
    parts=any_of(PARTS),
    sends=SENDS,
    waits=st.booleans(),
)
@example(kind=SystemExit, at=1, parts=frozenset({"partitioner"}), sends=[frozenset()], waits=False)
@example(
    kind=asyncio.CancelledError,
    at=1,
    parts=frozenset({"partitioner"}),
    sends=[frozenset(), frozenset()],
    waits=False,
)
@example(kind=SilentExit, at=1, parts=frozenset({"partitioner"}), sends=[frozenset()], waits=False)
@example(
    kind=SystemExit,
    at=3,
    parts=frozenset({"hooks"}),
    sends=[EVERYTHING - {"topic", "key", "value", "headers", "timestamp", "partition"}],
    waits=True,
)
def test_an_event_loop_goes_on(
    kind: type[BaseException],
    at: int,
    parts: frozenset[str],
    sends: list[frozenset[str]],
    *,
    waits: bool,
) -> None:
    """Every receipt ends, each callback is called once, and the next record is written."""
    fuse = Fuse(kind, at)
    code = Code(fuse)

    async def main(stage: Stage) -> None:
        receipts = []
        async with stage.producer(max_block_ms=3000, **code.parts(parts)) as producer:
            for wanted in sends:
                receipt = send(producer, code, wanted)
                if receipt is not None:
                    receipts.append(receipt)
                    if waits:
                        await ended(receipt)
            await producer.flush(60)
            await stage.pass_time(0)
            assert all(each.done() for each in receipts)
            fuse.calls_left = 0
            last = producer.send("t")
            await asyncio.wait({asyncio.ensure_future(ended(last))}, timeout=60)
            assert last.exception() is None
            assert code.told == len(receipts)
            check_empty(producer)

    play(main)


@settings(max_examples=examples(50))
@given(kind=st.sampled_from(KINDS), at=st.integers(1, 80), parts=any_of(PARTS))
def test_rows_of_send_many_are_counted_once(
    kind: type[BaseException], at: int, parts: frozenset[str]
) -> None:
    """Whatever a row's code raises, each row is written, an error or unsent, and the next goes."""
    fuse = Fuse(kind, at)
    code = Code(fuse)

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=200, **code.parts(parts)) as producer:
            try:
                summary = await producer.send_many("t", code.rows(20))
            except (kind, RuntimeError) as error:
                summary = cast("Any", error).summary
            await producer.flush(60)
            summary.settle()
            assert summary.pending_count == 0
            written = sum(len(led.log.records) for led in stage.cluster.partitions.values())
            assert summary.acknowledged_count == written
            assert written + len(summary.errors) + summary.unsent_count == summary.row_count
            fuse.calls_left = 0
            await producer.send("t")
            check_empty(producer)

    play(main)


async def ended(receipt: Receipt) -> None:
    """Wait for a receipt, whatever it says."""
    with suppress(Exception):
        await receipt


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptedCluster]:
    """A cluster on real sockets, with a topic `t`."""
    with real_cluster() as found:
        found.create_topic("t", partitions=2)
        yield found


@given(kind=st.sampled_from(KINDS), at=st.integers(1, 60), parts=any_of(PARTS), sends=SENDS)
@example(kind=SystemExit, at=1, parts=frozenset(), sends=[frozenset({"on_delivery"})])
@example(kind=SystemExit, at=1, parts=frozenset({"hooks"}), sends=[frozenset()])
@example(kind=ValueError, at=1, parts=frozenset(), sends=[frozenset({"topic"})] * 3)
@settings(max_examples=examples(50), deadline=None)
def test_threads_survive_exceptions_of_user_code(
    cluster: ScriptedCluster,
    kind: type[BaseException],
    at: int,
    parts: frozenset[str],
    sends: list[frozenset[str]],
) -> None:
    """Every receipt ends, each callback is called once, and the next record is written."""
    fuse = Fuse(kind, at)
    code = Code(fuse)
    producer = Producer(
        bootstrap_servers=cluster.bootstrap, linger_ms=0, max_block_ms=10_000, **code.parts(parts)
    )
    receipts = [each for wanted in sends if (each := send(producer, code, wanted)) is not None]
    producer.flush(TIMEOUT_S)
    for each in receipts:
        each.exception(TIMEOUT_S)
    fuse.calls_left = 0
    assert producer.send("t").exception(TIMEOUT_S) is None
    # The own thread runs all callbacks before it ends.
    producer.close(TIMEOUT_S)
    assert code.told == len(receipts)


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_cannot_be_hashed_keeps_no_gate(
    cluster: ScriptedCluster, kind: type[BaseException], at: int
) -> None:
    """Once there is an open batch, so that a plain record would go the short way."""
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer:
        producer.send("t", b"opens a batch")
        with suppress(kind):
            producer.send(evil(str, Fuse(kind, at), "t"), b"value")
        with pytest.raises(TypeError, match="topic is a list"):
            producer.send(["t"], b"value")  # type: ignore[call-overload]
        assert producer.send("t", b"next").result(TIMEOUT_S)


@pytest.mark.parametrize("kind", KINDS)
def test_each_part_is_closed_whatever_another_raises(kind: type[BaseException]) -> None:
    """A part is closed even if another raises SystemExit, or an exception without a text."""
    told: list[int] = []

    class Part:
        def __call__(self, data: object) -> bytes:
            return bytes(str(data), "ascii")

        def close(self) -> None:
            told.append(len(told))
            raise kind

    async def main(stage: Stage) -> None:
        async with stage.producer(key_serializer=Part(), value_serializer=Part()) as producer:
            await producer.send("t", "value", "key")

    play(main)
    assert told == [0, 1]


def test_queued_records_of_a_collected_producer_fail() -> None:
    """The receipt fails, and the loop calls its callback, although the producer has ended."""

    async def main(stage: Stage) -> None:
        told: list[str] = []
        producer = stage.producer()
        receipt = producer.send(
            "nowhere", b"v", on_delivery=lambda _, error: told.append(type(error).__name__)
        )
        await stage.pass_time(1)
        assert not receipt.done()
        with pytest.warns(ResourceWarning, match="1 record"):  # noqa: PT031 - a cycle is collected
            del producer
            gc.collect()
        await stage.pass_time(1)
        assert outcomes([receipt]) == ["ClosedProducerError"]
        assert told == ["ClosedProducerError"]

    play(main)


class BreakingNetwork(Connector):
    """A network on which connecting fails as no network may."""

    def __init__(self, network: Connector) -> None:
        self.network = network
        self.is_broken = False

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Connect as the network does; if it is broken, fail once instead."""
        if self.is_broken:
            self.is_broken = False
            raise ZeroDivisionError("a fault in the middle of a step")
        return self.network.connect(host, port, done, first=first)

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run it as the network does."""
        self.network.run_beside(work, done)


@pytest.mark.parametrize("is_called", [True, False])
def test_a_fault_in_the_middle_of_a_step_ends_the_producer(
    caplog: pytest.LogCaptureFixture,
    *,
    is_called: bool,
) -> None:
    """Every receipt ends, and records without one are logged, in a call and in the loop's turn."""

    async def main(stage: Stage) -> None:
        network = BreakingNetwork(stage.outside.network)
        runtime = replace(stage.outside.runtime, network=cast("Any", network))
        producer = AsyncProducer(
            bootstrap_servers=stage.cluster.bootstrap,
            linger_ms=0 if is_called else 1000,
            runtime=runtime,
        )
        await producer.send("t", b"v", partition=0)
        told: list[str] = []
        receipt = producer.send(
            "t", b"v", partition=0, on_delivery=lambda _, error: told.append(type(error).__name__)
        )
        producer.send("t", b"v", partition=0, receipt=False)
        network.is_broken = True
        if is_called:
            with pytest.raises(ZeroDivisionError):
                producer.send("t", b"v", partition=1)
        else:
            producer.send("t", b"v", partition=1)
        await stage.pass_time(2)
        assert outcomes([receipt]) == ["ClosedProducerError"]
        assert told == ["ClosedProducerError"]
        with pytest.raises(ClosedProducerError, match="middle of a step"):
            producer.send("t", b"v")

    play(main, nodes=2)
    assert "records_failed partition=t-0" in caplog.text


def test_a_finished_receipt_calls_only_the_callback_that_is_added(
    cluster: ScriptedCluster,
) -> None:
    """The others of its batch are called by the producer's own thread, and each of them once."""
    heard: list[tuple[str, int]] = []
    may_go_on = threading.Event()

    def keep_busy(*_: object) -> None:
        busy.set()
        may_go_on.wait(TIMEOUT_S)

    def hear(name: str) -> None:
        heard.append((name, threading.get_ident()))

    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        # The own thread is busy with the first callback when the second batch ends.
        busy = threading.Event()
        producer.send("t", b"1", on_delivery=keep_busy).result(TIMEOUT_S)
        assert busy.wait(TIMEOUT_S)
        receipt = producer.send("t", b"2", on_delivery=lambda *_: hear("before"))
        receipt.result(TIMEOUT_S)
        receipt.add_done_callback(lambda *_: hear("after"))
        assert heard == [("after", threading.get_ident())]
        may_go_on.set()
    assert [name for name, _ in heard] == ["after", "before"]
    assert heard[1][1] != threading.get_ident()


def test_a_producer_in_a_cycle_is_collected_in_the_middle_of_a_step(
    cluster: ScriptedCluster,
) -> None:
    """Its finalizer waits for nothing, wherever it runs, and its records are written."""
    producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000)
    producer.send("t", b"opens a batch").exception(TIMEOUT_S)
    receipt = producer.send("t", b"waits")
    engine, driver = producer._engine, producer._driver
    cycle = [producer]
    cycle.append(cycle)  # type: ignore[arg-type]
    # This thread has what the producer's own thread has in the middle of a step.
    with engine.lock:
        del producer, cycle
        with pytest.warns(ResourceWarning):
            gc.collect()
    driver.join()
    assert receipt.exception(TIMEOUT_S) is None


def test_a_signal_handler_that_waits_for_its_own_thread_is_told(cluster: ScriptedCluster) -> None:
    """It has interrupted the thread that leads, which cannot go on before it returns."""
    told: list[BaseException] = []

    def handle(*_: object) -> None:
        try:
            producer.flush(TIMEOUT_S)
        except ReentrantCallError as error:
            told.append(error)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("t", b"first", partition=0).result(TIMEOUT_S)
            cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=0.5)
            receipt = producer.send("t", b"second", partition=0)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            receipt.result(TIMEOUT_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(told) == 1


def test_a_refused_record_calls_back_from_the_own_thread(cluster: ScriptedCluster) -> None:
    """A caller that holds a lock in `send` is not deadlocked by its own callback."""
    heard: list[tuple[int, str]] = []

    def hear(_: object, error: Exception | None) -> None:
        heard.append((threading.get_ident(), type(error).__name__))

    with Producer(bootstrap_servers=cluster.bootstrap, max_request_size=1000) as producer:
        producer.send("t", b"x" * 2000, on_delivery=hear)
        own = producer._driver._thread.ident
    assert heard == [(own, "RejectedRecordError")]


FORK = """
import os, signal
from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.errors import ClosedProducerError, ReentrantCallError
from tailrace.client.producer.producer import Producer
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind

with real_cluster() as cluster:
    cluster.create_topic("t")
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer:
        producer.send("t", b"first").result()
        receipt = producer.send("t", b"second")
        while not producer._driver._is_parked:
            pass
        child = os.fork()
        if not child:
            signal.alarm(20)
            producer.close()
            producer.flush()
            os._exit(0 if receipt.done() else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert receipt.result().offset == 1
"""


def test_a_fork_closes_at_once_while_its_parents_thread_waits() -> None:
    """The parent's own thread leads at the fork, and there is none in the child."""
    subprocess.run([sys.executable, "-c", FORK], timeout=60, check=True)
