"""A producer whose calls are interrupted: by Ctrl-C, or by a signal handler that calls it too."""

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tailrace.client.drive.thread import ThreadDriver
from tailrace.client.producer.errors import ClosedProducerError, ReentrantCallError
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.queue.batches import InFlightBatch
from tailrace.runtime.polling import PollingNetwork
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tests.simulation.stage import T0

TIMEOUT_S = 10

Handler = Callable[[int, FrameType | None], object]


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """A cluster on real sockets, with a topic `t`."""
    with real_cluster() as found:
        found.create_topic("t")
        yield found


@contextmanager
def handling(number: signal.Signals, handler: Handler) -> Iterator[None]:
    """Have a signal handled so in the block."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


def interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


def stuck(cluster: ScriptedCluster) -> Producer:
    """A producer with a record for a partition that nobody leads."""
    producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0)
    producer.send("t", b"first", partition=0).result(TIMEOUT_S)
    cluster.move(T0, -1)
    producer.send("t", b"stuck", partition=0)
    return producer


def has_ended(producer: Producer) -> bool:
    """Whether the thread has ended and the descriptors were given back."""
    driver = producer._driver
    return not driver._thread.is_alive() and is_closed(driver)


def is_closed(driver: ThreadDriver) -> bool:
    """Whether the descriptors of a driver were given back."""
    assert isinstance(driver._network, PollingNetwork)
    return driver._network._is_closed


def test_a_close_that_is_interrupted_gives_up_the_rest(cluster: ScriptedCluster) -> None:
    """Ctrl-C in `close` ends the producer: no later close waits, and nothing leaks."""
    producer = stuck(cluster)
    receipt = producer.send("t", b"second", partition=0)
    with handling(signal.SIGALRM, interrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
    again = threading.Thread(target=producer.close, daemon=True)
    again.start()
    again.join(TIMEOUT_S)
    assert not again.is_alive()
    assert isinstance(receipt.exception(0), ClosedProducerError)
    assert has_ended(producer)


def test_the_shortest_timeout_of_several_closes_counts(cluster: ScriptedCluster) -> None:
    """A close ends the producer by its own deadline while another thread's waits without limit."""
    producer = stuck(cluster)
    patient = threading.Thread(target=producer.close, daemon=True)
    with producer._engine.lock:
        patient.start()
    while producer._engine.closed_error is None:
        pass
    impatient = threading.Thread(target=producer.close, args=(0.1,), daemon=True)
    impatient.start()
    for each in (impatient, patient):
        each.join(TIMEOUT_S)
        assert not each.is_alive()
    assert has_ended(producer)


def test_a_flush_after_the_close_does_nothing() -> None:
    """It moves no bytes and opens no connection, for as long as the pause of a retry and longer."""
    producer = Producer(bootstrap_servers="127.0.0.1:1", retry_backoff_ms=1, retry_backoff_max_ms=1)
    producer.close()
    error = producer._engine.closed_error
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        producer.flush()
    assert producer._engine.closed_error is error


def test_a_producer_that_is_closed_in_a_callback_gives_its_descriptors_back(
    cluster: ScriptedCluster,
) -> None:
    """A close in a callback releases all descriptors, without another close."""
    producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0)
    producer.send("t", b"last", on_delivery=lambda *_: producer.close())
    producer._driver._thread.join(TIMEOUT_S)
    assert has_ended(producer)


def test_a_producer_that_was_given_up_gives_its_descriptors_back(cluster: ScriptedCluster) -> None:
    """Ctrl-C in the middle of a step ends it, also if it is dropped without a close."""
    producer = stuck(cluster)
    driver = producer._driver
    with producer._engine.lock:
        driver.give_up(KeyboardInterrupt())
    del producer
    gc.collect()
    driver._thread.join(TIMEOUT_S)
    assert is_closed(driver)


CALLS: dict[str, Callable[[Producer], object]] = {
    "flush": lambda producer: producer.flush(1),
    "close": lambda producer: producer.close(1),
    "send": lambda producer: producer.send("t", b"in between", b"key"),
    "result": lambda producer: producer.send("t", b"in between").result(1),
    "transaction": lambda producer: producer.finish_transaction(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_signal_handler_in_the_middle_of_a_step_is_told(
    cluster: ScriptedCluster, call: str
) -> None:
    """It gets an error at once, and the step that it has interrupted goes on unharmed."""
    told: list[BaseException] = []

    def interrupted(*_: object) -> None:
        try:
            CALLS[call](producer)
        except ReentrantCallError as error:
            told.append(error)

    def trace(frame: FrameType, *_: object) -> None:
        if frame.f_code is InFlightBatch.encode.__code__:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGUSR1)

    with (
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
        handling(signal.SIGUSR1, interrupted),
    ):
        producer.send("t", b"first").result(TIMEOUT_S)
        sys.setprofile(trace)
        try:
            receipt = producer.send("t", b"second", b"key")
        finally:
            sys.setprofile(None)
        assert len(told) == 1
        assert receipt.result(TIMEOUT_S).offset >= 0
        assert producer.send("t", b"third").exception(TIMEOUT_S) is None


def test_ctrl_c_in_a_callback_on_the_callers_thread_is_raised(cluster: ScriptedCluster) -> None:
    """It is meant for the main thread, which runs the callback of a finished receipt itself."""
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        receipt = producer.send("t", b"first")
        receipt.result(TIMEOUT_S)
        with pytest.raises(KeyboardInterrupt):
            receipt.add_done_callback(interrupt)
        assert producer.send("t", b"second", on_delivery=interrupt).exception(TIMEOUT_S) is None
    assert has_ended(producer)
