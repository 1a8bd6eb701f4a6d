"""One `Producer` under many threads and interruptions, against a real broker."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.receipts import Receipt
from tests.wire.clients import CLIENTS, TIMEOUT_S

pytestmark = pytest.mark.wire

NOWHERE = "127.0.0.1:1"
"""Address on which nobody listens."""


def values(address: str, topic: str, count: int) -> list[bytes | None]:
    """The first values of partition 0."""
    found = CLIENTS["confluent-kafka"].read(address, topic, 0, count=count)
    return [each.value for each in found]


@contextmanager
def repeating(call: Callable[[], object]) -> Iterator[None]:
    """Another thread calls over and over again, until the end; its error is raised then."""
    is_over = threading.Event()

    def work() -> None:
        # Threads that never pause would keep the interpreter from all others.
        while not is_over.wait(0.001):
            call()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            yield
        finally:
            is_over.set()
        future.result(TIMEOUT_S)


def test_waiting_flushing_and_looking_get_along(address: str) -> None:
    """Threads that wait for each record, that flush and that look do not block each other."""
    threads, count = 4, 100

    def work(thread: int) -> list[int]:
        return [
            producer.send("get-along", b"%d %d" % (thread, number)).result(TIMEOUT_S).offset
            for number in range(count)
        ]

    with (
        Producer(bootstrap_servers=address) as producer,
        repeating(lambda: producer.flush(TIMEOUT_S)),
        repeating(lambda: producer.flush(TIMEOUT_S)),
        repeating(producer.metrics),
        ThreadPoolExecutor(threads) as pool,
    ):
        offsets = list(pool.map(work, range(threads), timeout=TIMEOUT_S))
    assert sorted(each for found in offsets for each in found) == list(range(threads * count))
    written = values(address, "get-along", threads * count)
    for thread, found in enumerate(offsets):
        assert found == sorted(found)
        assert [written[each] for each in found] == [
            b"%d %d" % (thread, number) for number in range(count)
        ]


def test_a_receipt_of_threads_is_waited_for_and_not_awaited(address: str) -> None:
    """Awaiting one that has not ended raises TypeError with advice; one that has ended is fine."""

    async def wait(receipt: Receipt) -> RecordMetadata:
        return await receipt

    with Producer(bootstrap_servers=address, linger_ms=60_000) as producer:
        producer.send("awaited", b"first").result(TIMEOUT_S)
        receipt = producer.send("awaited", b"second")
        with pytest.raises(TypeError, match=r"result\(\)"):
            asyncio.run(wait(receipt))
        with pytest.raises(TimeoutError):
            receipt.result(0)
        with pytest.raises(TimeoutError):
            producer.send("awaited", b"third").exception(0)
        assert receipt.result(TIMEOUT_S).offset == 1
        assert asyncio.run(wait(receipt)) == receipt.result()


def test_a_callback_may_send_and_flush_nothing_up(address: str) -> None:
    """Each callback sends the next record, with a callback of its own; all of them arrive."""
    count = 200
    is_over = threading.Event()

    def delivered(metadata: RecordMetadata, error: Exception | None) -> None:
        assert error is None
        if metadata.offset + 1 < count:
            producer.send("chain", b"%d" % (metadata.offset + 1), on_delivery=delivered)
        else:
            is_over.set()

    with Producer(bootstrap_servers=address, linger_ms=0) as producer:
        producer.send("chain", b"0", on_delivery=delivered)
        assert is_over.wait(TIMEOUT_S)
    assert values(address, "chain", count) == [b"%d" % number for number in range(count)]


def test_a_callback_may_wait_for_another_record(address: str) -> None:
    """A callback that waits for a receipt is no deadlock."""
    found: list[int] = []
    is_over = threading.Event()

    def delivered(_metadata: RecordMetadata, _error: Exception | None) -> None:
        found.append(producer.send("nested", b"second").result(TIMEOUT_S).offset)
        is_over.set()

    with Producer(bootstrap_servers=address) as producer:
        producer.send("nested", b"first", on_delivery=delivered)
        assert is_over.wait(TIMEOUT_S)
    assert found == [1]


def test_a_callback_may_close_the_producer(address: str) -> None:
    """After it no record is taken, what was sent before is written, and close does nothing."""
    is_over = threading.Event()

    def delivered(_metadata: RecordMetadata, _error: Exception | None) -> None:
        receipts.append(producer.send("closing", b"second"))
        producer.close(TIMEOUT_S)
        is_over.set()

    receipts: list[Receipt] = []
    producer = Producer(bootstrap_servers=address)
    producer.send("closing", b"first", on_delivery=delivered)
    assert is_over.wait(TIMEOUT_S)
    producer.close()
    assert receipts[0].result(0).offset == 1
    with pytest.raises(ClosedProducerError):
        producer.send("closing", b"third")


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_closing_ends_threads_that_wait(address: str, timeout: float) -> None:
    """Threads in send, result and flush get an error when the producer is closed."""
    producer = Producer(bootstrap_servers=address, buffer_memory=50_000, linger_ms=60_000)
    producer.send("waiting", b"first").result(TIMEOUT_S)
    stuck = Producer(bootstrap_servers=NOWHERE, max_block_ms=600_000)

    begun = threading.Barrier(7)

    def fill() -> None:
        begun.wait(TIMEOUT_S)
        while True:
            producer.send("waiting", bytes(500))

    def ask() -> None:
        begun.wait(TIMEOUT_S)
        stuck.send("waiting", b"x").result(TIMEOUT_S)

    with ThreadPoolExecutor(6) as pool:
        filling = [pool.submit(fill) for _ in range(3)]
        asking = [pool.submit(ask) for _ in range(3)]
        begun.wait(TIMEOUT_S)
        producer.close(timeout)
        stuck.close(timeout)
        for each in filling + asking:
            assert isinstance(each.exception(TIMEOUT_S), ClosedProducerError)


def test_many_threads_may_close(address: str) -> None:
    """All calls of close return, and no record is lost by it."""
    producer = Producer(bootstrap_servers=address, linger_ms=1000)
    receipts = [producer.send("many-close", b"%d" % number) for number in range(100)]
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(producer.close) for _ in range(4)]:
            each.result(TIMEOUT_S)
    assert [each.result(0).offset for each in receipts] == list(range(100))


def test_sending_goes_on_while_the_producer_is_closed(address: str) -> None:
    """Each record that got a receipt has an outcome; none after the close is taken."""
    producer = Producer(bootstrap_servers=address)
    producer.send("late", b"first").result(TIMEOUT_S)
    are_many = threading.Event()

    def work() -> list[Receipt]:
        found = []
        with suppress(ClosedProducerError):
            while True:
                found.append(producer.send("late", b"x" * 10))
                if len(found) == 300:
                    are_many.set()
        return found

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work) for _ in range(4)]
        assert are_many.wait(TIMEOUT_S)
        producer.close()
        receipts = [receipt for each in working for receipt in each.result(TIMEOUT_S)]
    assert all(each.done() for each in receipts)
    written = sum(each.exception(0) is None for each in receipts)
    assert written == len(receipts)


INTERRUPTED = """
import faulthandler, random, signal, sys, threading
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.producer import Producer
address, kind, rounds = sys.argv[1:]
faulthandler.dump_traceback_later(60, exit=True)
chance = random.Random(kind)
is_armed = False

def interrupt(*_):
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

def begin():
    producer = Producer(bootstrap_servers=address, linger_ms=1)
    producer.send("first-" + kind, b"first").result()
    return producer

def sent(*key):
    global number
    for _ in range(10):
        number += 1
        receipts.append((number, producer.send(kind, b"%d" % number, *key)))

def waited():
    producer.send(kind, b"waited").result(60)

def flushed():
    sent()
    producer.flush(60)

CALLS = {
    "plain": (sent, 3e-5),
    "keyed": (lambda: sent(b"key"), 6e-5),
    "result": (waited, 6e-4),
    "flush": (flushed, 6e-4),
    "crowded": (waited, 6e-4),
}
call, longest_s = CALLS[kind]
signal.signal(signal.SIGALRM, interrupt)
number = interrupts = failed = 0
receipts, kept = [], []
producer = begin()

def crowd():
    while True:
        try:
            producer.send("crowd", b"x", b"key").result(60)
        except ClosedProducerError:
            renewed.wait()

renewed = threading.Event()
if kind == "crowded":
    for _ in range(2):
        threading.Thread(target=crowd, daemon=True).start()

def check(is_closed):
    global failed
    for number, receipt in receipts:
        error = receipt.exception(10)
        if error is None:
            kept.append((number, receipt.offset))
        else:
            assert is_closed, error
            assert isinstance(error, ClosedProducerError), error
            failed += 1
    receipts.clear()

for _ in range(int(rounds)):
    try:
        is_armed = True
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, longest_s))
        call()
        is_armed = False
    except KeyboardInterrupt:
        interrupts += 1
    except ClosedProducerError as error:
        is_armed = False
        renewed.clear()
        assert "KeyboardInterrupt" in str(error)
        check(True)
        producer.close()
        producer = begin()
        renewed.set()
is_armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
try:
    producer.flush(60)
    producer.send(kind, b"last").result(60)
    check(False)
except ClosedProducerError:
    check(True)
producer.close()
for number, offset in kept:
    print(number, offset)
print("interrupts", interrupts)
"""


@pytest.mark.parametrize("kind", ["plain", "keyed", "result", "flush", "crowded"])
@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_ctrl_c_at_any_moment_leaves_no_receipt_without_outcome(
    address: str, kind: str, rounds: int
) -> None:
    """The producer goes on, or says that it was stopped; what was acknowledged is written."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, address, kind, str(rounds)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    *lines, last = done.stdout.splitlines()
    assert int(last.split()[1]) > rounds // 10, "hardly ever interrupted"
    places = [(int(number), int(offset)) for number, offset in map(str.split, lines)]
    if places:
        count = 1 + max(offset for _, offset in places)
        written = values(address, kind, count)
        assert all(written[offset] == b"%d" % number for number, offset in places)
