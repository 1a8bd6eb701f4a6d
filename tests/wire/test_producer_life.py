"""Tests of events in a producer's life: Ctrl-C, forks, and a broker that is killed."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.producer import Producer
from tailrace.testing.broker import TestBroker
from tests.wire.clients import CLIENTS, TIMEOUT_S
from tests.wire.test_serve import serving

if TYPE_CHECKING:
    from tailrace.client.producer.receipts import Receipt

pytestmark = pytest.mark.wire

END_S = 20
"""Longest time that a process may take to end by Ctrl-C; nothing else ends it before 30 s."""

HEADER = """
import os, signal, sys, threading
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.producer import Producer
address, broker = sys.argv[1], int(sys.argv[2])
"""

FULL_SEND = """
def tell():
    while not producer.metrics()["waiting-threads"]:
        threading.Event().wait(0.001)
    print("blocked", flush=True)

with Producer(bootstrap_servers=address, buffer_memory=100_000) as producer:
    producer.send("t", b"first").result()
    os.kill(broker, signal.SIGSTOP)
    threading.Thread(target=tell, daemon=True).start()
    while True:
        producer.send("t", bytes(1000))
"""

WAITING = """
with Producer(bootstrap_servers=address) as producer:
    producer.send("t", b"first").result()
    os.kill(broker, signal.SIGSTOP)
    receipt = producer.send("t", b"second")
    print("blocked", flush=True)
    receipt.result()
"""

CLOSING = """
producer = Producer(bootstrap_servers=address)
producer.send("t", b"first").result()
os.kill(broker, signal.SIGSTOP)
producer.send("t", b"second")
print("blocked", flush=True)
producer.close()
"""

UNKNOWN_TOPIC = """
with Producer(bootstrap_servers=address) as producer:
    os.kill(broker, signal.SIGSTOP)
    print("blocked", flush=True)
    producer.send("t", b"first").result()
"""

FORK = """
def refused(call):
    try:
        call()
    except ClosedProducerError:
        return True

with Producer(bootstrap_servers=address, linger_ms=60_000) as producer:
    producer.send("t", b"first").result()
    receipt = producer.send("t", b"second")
    batch = producer.create_batch("t")
    batch.append(b"child")
    child = os.fork()
    if not child:
        calls = [
            lambda: producer.send("t", b"child"),
            lambda: producer.send_many("t", [b"child"]),
            lambda: producer.send_batch(batch, partition=0),
            receipt.result,
        ]
        found = [refused(each) for each in calls]
        producer.flush()
        producer.close()
        os._exit(0 if all(found) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert producer.send("t", b"third").result().offset == 2
    assert receipt.offset == 1
print("done")
"""

FORK_AND_END = """
with Producer(bootstrap_servers=address) as producer:
    producer.send("t", b"first").result()
    child = os.fork()
    if not child:
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert producer.send("t", b"second").result().offset == 1
print("done")
"""


@contextmanager
def running(program: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with a broker of its own; both, and its forks, are gone at the end."""
    with serving(tmp_path / "data") as (broker, address):
        command = [sys.executable, "-c", HEADER + program, address, str(broker.pid)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_in_the_middle_of_a_step_leaves_the_producer_as_it_was() -> None:
    """It waits for the end of the step, and the next record is sent as otherwise."""

    class Interrupting(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            logger.removeHandler(self)
            signal.raise_signal(signal.SIGINT)

    # It logs in the middle of the step that finds a connection ready.
    logger = logging.getLogger("tailrace.client.nodes.pool")
    with TestBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        broker.create_topic("t")
        logger.addHandler(Interrupting())
        logger.setLevel(logging.DEBUG)
        try:
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", b"x").result(TIMEOUT_S)
        finally:
            logger.setLevel(logging.NOTSET)
        assert producer.send("t", b"y").result(TIMEOUT_S).topic == "t"


@pytest.mark.parametrize(
    "program",
    [FULL_SEND, WAITING, CLOSING, UNKNOWN_TOPIC],
    ids=["full memory", "result", "close", "unknown topic"],
)
def test_ctrl_c_ends_a_program_that_waits(tmp_path: Path, program: str) -> None:
    """Whatever the main thread waits for, SIGINT is a KeyboardInterrupt there, and the end."""
    with running(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "blocked\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=END_S)
    assert "\nKeyboardInterrupt\n" in errors
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("program", [FORK, FORK_AND_END], ids=["used", "left alone"])
def test_a_fork_is_refused_and_its_parent_goes_on(tmp_path: Path, program: str) -> None:
    """A child can send nothing and waits for nothing; the parent's records are written, once."""
    with running(program, tmp_path) as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert output == "done\n", errors
    assert process.returncode == 0


class Restarts:
    """A broker on one port and one directory that is killed and started again."""

    def __init__(self, stack: ExitStack, data: Path) -> None:
        self._stack, self._data = stack, data
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._start()

    def restart(self) -> None:
        """Kill it, and return when its successor serves."""
        os.kill(self._broker.pid, signal.SIGKILL)
        self._broker.wait()
        self._start()

    def _start(self) -> None:
        options = "--listen", self.address, "--override", "log.segment.bytes=1048576"
        self._broker, _ = self._stack.enter_context(serving(self._data, *options))


def read_values(address: str, topic: str, count: int) -> list[bytes | None]:
    """The values of partition 0."""
    found = CLIENTS["confluent-kafka"].read(address, topic, 0, count=count)
    return [each.value for each in found]


KILLS = 3
SENT_BETWEEN = 10_000


def test_a_killed_broker_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """All records are acknowledged in the end, and each is there exactly once and in order."""
    with ExitStack() as stack:
        broker = Restarts(stack, tmp_path / "data")
        is_over = threading.Event()

        def send() -> None:
            while not is_over.is_set():
                receipts.append(producer.send("killed", b"%d" % len(receipts)))

        with Producer(bootstrap_servers=broker.address, buffer_memory=1_000_000) as producer:
            receipts = [producer.send("killed", b"0")]
            sender = threading.Thread(target=send)
            sender.start()
            for _ in range(KILLS):
                target = len(receipts) + SENT_BETWEEN
                while len(receipts) < target:
                    receipts[-1].result()
                broker.restart()
            is_over.set()
            sender.join()
        offsets = [each.offset for each in receipts]
        values = read_values(broker.address, "killed", len(receipts))
    assert offsets == list(range(len(receipts)))
    assert values == [b"%d" % number for number in range(len(receipts))]


def test_a_killed_broker_loses_and_doubles_nothing_on_an_event_loop(tmp_path: Path) -> None:
    """An AsyncProducer loses and doubles nothing either."""

    async def run(broker: Restarts) -> list[int]:
        async with AsyncProducer(bootstrap_servers=broker.address) as producer:
            receipts: list[Receipt] = []
            for _ in range(KILLS):
                for _ in range(SENT_BETWEEN):
                    receipts.append(producer.send("killed", b"%d" % len(receipts)))
                await receipts[-SENT_BETWEEN]
                restart = asyncio.create_task(asyncio.to_thread(broker.restart))
                while not restart.done():
                    for _ in range(100):
                        receipts.append(producer.send("killed", b"%d" % len(receipts)))
                    await asyncio.wait([restart], timeout=0.01)
                await restart
            return [(await each).offset for each in receipts]

    with ExitStack() as stack:
        broker = Restarts(stack, tmp_path / "data")
        offsets = asyncio.run(run(broker))
        values = read_values(broker.address, "killed", len(offsets))
    assert offsets == list(range(len(offsets)))
    assert values == [b"%d" % number for number in range(len(offsets))]


def test_rows_survive_a_killed_broker(tmp_path: Path) -> None:
    """`send_many` goes on where a broker was killed in the middle of it; nothing is doubled."""
    with ExitStack() as stack:
        broker = Restarts(stack, tmp_path / "data")
        count = 400_000

        def rows() -> Iterator[bytes]:
            for number in range(count):
                if number in {count // 3, count // 2}:
                    broker.restart()
                yield b"%d" % number

        with Producer(bootstrap_servers=broker.address, buffer_memory=1_000_000) as producer:
            summary = producer.send_many("killed", rows())
        summary.raise_errors()
        values = read_values(broker.address, "killed", count)
    assert summary.acknowledged_count == count
    assert values == [b"%d" % number for number in range(count)]
