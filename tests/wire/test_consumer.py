"""`Consumer` on real sockets and threads: beside other clients, restarts, Ctrl-C, close."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from tailrace import Consumer, Producer
from tailrace.client.consumer.errors import ClosedConsumerError, DamagedRecordsError
from tailrace.model import TopicPartition
from tailrace.testing.broker import TestBroker

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """A broker with the topic t of two partitions."""
    with TestBroker() as started:
        started.create_topic("t", partitions=2)
        yield started


def fill(broker: TestBroker, count: int, *, start: int = 0) -> None:
    """Write numbers, even ones to partition 0."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(start, start + count):
            producer.send("t", b"%d" % number, partition=number % 2)


def test_a_loop_reads_every_record(broker: TestBroker) -> None:
    """Iteration gives each record once, and `close` commits behind the last one."""
    fill(broker, 1000)
    seen = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        for record in consumer:
            seen.append(int(record.value))
            if len(seen) == 1000:
                break
    assert sorted(seen) == list(range(1000))
    fill(broker, 2, start=1000)
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        assert sorted(int(next(consumer).value) for _ in range(2)) == [1000, 1001]


@pytest.mark.parametrize(
    ("protocol", "error", "times"),
    [("consumer", "UNKNOWN_MEMBER_ID", 1), ("classic", "COORDINATOR_LOAD_IN_PROGRESS", 6)],
)
def test_a_poll_waits_for_committed_offsets(
    broker: TestBroker, protocol: str, error: str, times: int
) -> None:
    """It raises nothing when the coordinator has dropped the member, or is away for long."""
    fill(broker, 2)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    broker.fail("OffsetFetch", error=error, times=times)
    with Consumer(
        {**settings, "group.protocol": protocol},
        auto_offset_reset="earliest",
        default_api_timeout_ms=500,
    ) as consumer:
        consumer.subscribe("t")
        assert sorted(int(next(consumer).value) for _ in range(2)) == [0, 1]


def test_a_group_with_a_member_of_librdkafka(broker: TestBroker) -> None:
    """Our member and one of confluent-kafka share the partitions of a topic."""
    other = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
        }
    )
    other.subscribe(["t"])
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        partition_assignment_strategy="range",
        heartbeat_interval_ms=100,
    ) as ours:
        ours.subscribe("t")
        for _ in range(600):
            other.poll(0.05)
            ours.poll(0.05)
            if len(ours.assignment()) == len(other.assignment()) == 1:
                break
        assert len(ours.assignment()) == len(other.assignment()) == 1
        fill(broker, 10)
        found: list[int] = []
        while len(found) < 10:
            found += [int(each.value) for each in ours.poll(0.05)]
            message = other.poll(0.05)
            found += [] if message is None or message.error() else [int(message.value() or b"")]
        assert sorted(found) == list(range(10))
    other.close()


def test_a_restart_of_the_broker_is_survived(broker: TestBroker) -> None:
    """A consumer that waits reads on when its broker is back."""
    fill(broker, 2)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        found: list[int] = []
        while len(found) < 2:
            found += [int(each.value) for each in consumer.poll(5)]
        broker.kill()
        assert consumer.poll(0.2) == []
        broker.start()
        fill(broker, 2, start=2)
        while len(found) < 4:
            found += [int(each.value) for each in consumer.poll(5)]
        assert found in ([0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2])


def test_close_ends_a_poll_of_another_thread(broker: TestBroker) -> None:
    """A poll without a limit ends with ClosedConsumerError when another thread closes."""
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers)
    consumer.assign(T0)
    errors: list[BaseException] = []
    begun = threading.Event()

    def read() -> None:
        begun.set()
        try:
            consumer.poll(None)
        except ClosedConsumerError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    consumer.close()
    thread.join(10)
    assert len(errors) == 1


@contextmanager
def on_signal(number: int, handler: Callable[[], None]) -> Iterator[None]:
    """Have a handler for a signal."""
    before = signal.signal(number, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(number, before)


def committed(broker: TestBroker) -> int:
    """The offsets that the group g has in both partitions, added."""
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as other:
        found = other.committed([("t", 0), ("t", 1)])
        return sum(each.offset for each in found.values() if each is not None)


class IdleLoop:
    """A loop of a consumer over ten records, which then waits for more."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.seen: list[int] = []
        self._polls = 0.0

    def run(self) -> None:
        """Read until the loop is ended."""
        for record in self._consumer:
            self._polls = self._consumer.metrics()["poll-total"]
            self.seen.append(int(record.value))

    def wait(self) -> None:
        """Wait, in another thread, until it waits."""
        while len(self.seen) < 10 or self._consumer.metrics()["poll-total"] == self._polls:
            os.sched_yield()


@pytest.mark.parametrize("call", ["wakeup", "close"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_signal_handler_ends_a_loop_that_waits(
    broker: TestBroker, call: str, protocol: str
) -> None:
    """By either call, on the thread that waits; what was handled is committed."""
    fill(broker, 10)
    consumer = Consumer(
        {"group.protocol": protocol},
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
    )
    loop = IdleLoop(consumer)

    def send() -> None:
        loop.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    with consumer, on_signal(signal.SIGTERM, getattr(consumer, call)):
        consumer.subscribe("t")
        thread = threading.Thread(target=send)
        thread.start()
        loop.run()
        thread.join()
    assert sorted(loop.seen) == list(range(10))
    assert committed(broker) == 10


@pytest.mark.parametrize("call", ["wakeup", "close"])
def test_a_signal_handler_ends_a_loop_that_works(broker: TestBroker, call: str) -> None:
    """After `wakeup` the record in hand is handled; `close` cannot wait for that."""
    fill(broker, 10)
    seen = []
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    with consumer, on_signal(signal.SIGTERM, getattr(consumer, call)):
        consumer.subscribe("t")
        for record in consumer:
            seen.append(int(record.value))
            if len(seen) == 4:
                os.kill(os.getpid(), signal.SIGTERM)
    assert len(seen) == 4
    assert committed(broker) == (4 if call == "wakeup" else 3)


def test_ctrl_c_in_the_middle_of_a_step_costs_nothing(broker: TestBroker) -> None:
    """It waits for the end of the step, so the consumer commits and leaves as otherwise."""
    fill(broker, 10)
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )

    class Interrupting(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            logger.removeHandler(self)
            signal.raise_signal(signal.SIGINT)

    def read() -> None:
        with consumer:
            consumer.subscribe("t")
            while True:
                consumer.poll(5)

    # It logs in the middle of the step that takes in the answer to JoinGroup.
    logger = logging.getLogger("tailrace.client.consumer.membership.classic")
    logger.addHandler(Interrupting())
    logger.setLevel(logging.INFO)
    try:
        with pytest.raises(KeyboardInterrupt):
            read()
    finally:
        logger.setLevel(logging.NOTSET)
    with pytest.raises(ClosedConsumerError, match=r"^the consumer is closed$"):
        consumer.poll()


@pytest.mark.parametrize("call", ["wakeup", "close"])
def test_another_thread_ends_a_loop_that_waits(broker: TestBroker, call: str) -> None:
    """Within 0.1 s, as if there were no more records."""
    fill(broker, 10)
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    consumer.subscribe("t")
    ended: list[float] = []
    loop = IdleLoop(consumer)

    def read() -> None:
        loop.run()
        ended.append(time.monotonic())

    thread = threading.Thread(target=read)
    thread.start()
    loop.wait()
    start = time.monotonic()
    getattr(consumer, call)()
    thread.join(10)
    # More than 0.1 s only for the sake of a busy machine.
    assert ended[0] - start < 1
    consumer.close()
    assert committed(broker) == 10


def test_close_commits_nothing_for_a_thread_that_has_failed(broker: TestBroker) -> None:
    """The record at which it failed is read again, though its thread is gone."""
    fill(broker, 10)
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    consumer.subscribe("t")

    def fail() -> None:
        with suppress(ZeroDivisionError):
            for number, _ in enumerate(consumer):
                if number == 3:
                    raise ZeroDivisionError

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    consumer.close()
    assert committed(broker) == 3


def test_close_in_a_signal_handler_lets_a_commit_end(broker: TestBroker) -> None:
    """The interrupted call keeps its outcome, and the consumer is closed when it returns."""
    fill(broker, 2)
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.assign(T0)
    with on_signal(signal.SIGALRM, consumer.close):
        assert len(consumer.poll(10)) == 1
        broker.delay("OffsetCommit", seconds=0.3, times=1)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        consumer.commit()
        with pytest.raises(ClosedConsumerError):
            consumer.poll(0)
    assert committed(broker) == 1


CALLS: dict[str, Callable[[Consumer], object]] = {
    "position": lambda consumer: consumer.position(T0, timeout=0.3),
    "committed": lambda consumer: consumer.committed(T0, timeout=0.3),
    "commit": lambda consumer: consumer.commit({T0: 1}, timeout=0.3),
    "list_topics": lambda consumer: consumer.list_topics(timeout=0.3),
    "partitions_for": lambda consumer: consumer.partitions_for("t", timeout=0.3),
    "end_offsets": lambda consumer: consumer.end_offsets(T0, timeout=0.3),
}


@pytest.fixture(scope="module")
def http_port() -> Iterator[int]:
    """A port where something speaks HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer:
                        peer.recv(1000)
                        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("reason", ["Connection refused", "the port speaks HTTP, not Kafka"])
def test_a_call_says_why_no_broker_answers(call: str, reason: str, http_port: int) -> None:
    """Its timeout has the failure of the last connection, and `close` has nothing to wait for."""
    port = 1 if "refused" in reason else http_port
    with Consumer(bootstrap_servers=f"127.0.0.1:{port}", group_id="g") as consumer:
        consumer.assign(T0)
        with pytest.raises(TimeoutError, match=reason):
            CALLS[call](consumer)
        start = time.monotonic()
    assert time.monotonic() - start < 20  # a close that waits does so for 30 s


@pytest.mark.parametrize("is_member", [True, False])
def test_close_waits_for_no_broker_without_need(broker: TestBroker, *, is_member: bool) -> None:
    """When all is committed and the broker is gone, it ends at once."""
    fill(broker, 2)
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    if is_member:
        consumer.subscribe("t")
    else:
        consumer.assign(T0)
    assert consumer.poll(10)
    consumer.commit()
    broker.kill()
    start = time.monotonic()
    consumer.close()
    assert time.monotonic() - start < 20  # a close that waits does so for 30 s


def test_damaged_records_are_named_and_read_again(broker: TestBroker) -> None:
    """A corrupt answer raises where it is damaged; the next fetch reads the records."""
    fill(broker, 2)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(T0)
        assert consumer.position(T0) == 0
        broker.corrupt("Fetch", times=1)
        consumer.seek(T0, 0)
        found = []
        errors = []
        for _ in range(100):
            try:
                found += consumer.poll(1)
            except DamagedRecordsError as error:
                errors.append(error)
            if found:
                break
        assert [each.value for each in found] == [b"0"]
        assert all(each.partition == T0 for each in errors)


def test_columns_and_rows_over_sockets(broker: TestBroker) -> None:
    """Both give all records, compressed ones too."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
        producer.send_many("t", [b"%d" % number for number in range(5000)])
    for is_columns in (False, True):
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            found: list[int] = []
            while len(found) < 5000:
                if is_columns:
                    found += map(int, consumer.poll_columns(5)["value"].to_pylist())
                else:
                    found += [int(each.value) for each in consumer.poll(5)]
            assert sorted(found) == list(range(5000))
