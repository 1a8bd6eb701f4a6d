"""The demonstration of a cluster: a broker of three is killed under load, nothing is missing.

    producers ──► orders-0 … orders-5 ──► a group of two consumers
                  3 brokers, min.insync.replicas=2
    0 s           4 s                 14 s               19 s
    all serve     kill -9 broker 1    it starts again    producers end, all is read back

`tailrace.demo.cluster_picture` draws what was measured. Everything is from `pip install tailrace`.

Invariant: the run fails unless each acknowledged record is in the topic exactly once and the group
has read all of them.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tailrace.broker.local_cluster import LocalCluster, free_ports
from tailrace.client.admin import Admin, NewTopic
from tailrace.client.consumer import Consumer
from tailrace.client.producer import Producer, RecordMetadata
from tailrace.demo.cluster_picture import Happened, Measured, draw
from tailrace.errors import FatalError, TailraceError
from tailrace.model import TopicPartition

TOPIC: Final = "orders"
PARTITIONS: Final = 6
KILLED: Final = 1
"""The broker that is killed; it leads a third of the partitions."""
PRODUCERS: Final = 2
CONSUMERS: Final = 2
RATE: Final = 400
"""Records a second of each producer."""
STEADY_S: Final = 4.0
AWAY_S: Final = 10.0
BACK_S: Final = 5.0
_PAUSE_S: Final = 0.05
"""Pause of a producer between two groups of records, and of the one who looks at leaders."""
_READ_S: Final = 60.0
"""Longest time for the group, and for reading back."""


class DemoFailedError(FatalError):
    """The cluster has not done what it promises."""


class _Watched:
    """The measurements, by threads of which each has its own part."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.is_over = threading.Event()
        self.acknowledged: list[tuple[float, float]] = []
        """When, and after how many seconds; appended by the threads of the producers."""
        self.failed: list[Exception] = []
        self.read: list[float] = []
        """When; appended by the threads of the consumers."""
        self.places: Counter[tuple[int, int]] = Counter()
        """The number of times that the group has read each partition and offset."""
        self.leaders: list[tuple[float, tuple[int, ...]]] = []
        """When the leaders of the partitions changed, and to which."""
        self.in_sync = 0
        """Replicas in sync, of all partitions, when they were looked at last."""
        self._lock = threading.Lock()

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self.began

    def note_read(self, partition: int, offset: int) -> None:
        """Note a record that the group has read."""
        with self._lock:
            self.read.append(self.now)
            self.places[partition, offset] += 1


def run(picture: Path, *, say: Callable[[str], object]) -> None:
    """The whole demonstration, and its picture.

    Raises:
        DemoFailedError: a record is missing, or there twice.
        TailraceError: a node did not start, or a client failed.
    """
    with TemporaryDirectory(prefix="tailrace-demo-") as directory, ExitStack() as undo:
        cluster = LocalCluster(
            Path(directory),
            brokers=3,
            ports=free_ports(4),
            # The first member of the group would wait for others.
            settings={"group.initial.rebalance.delay.ms": "500"},
        )
        say("Starting a controller and three brokers, each a process of its own")
        undo.callback(cluster.stop)
        cluster.start()
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).results()
        watched = _Watched()
        say(f"{PRODUCERS} producers and a group of {CONSUMERS} consumers are at work on {servers}")
        with _at_work(servers, watched) as producers:
            happened = _disturb(cluster, watched, say)
            watched.is_over.set()
            for each in producers:
                each.join()
            sent = len(watched.acknowledged)
            _wait(lambda: len(watched.places) >= sent, "the group to read everything")
        if watched.failed:
            raise watched.failed[0]
        say("Reading the topic back")
        _check(servers, watched)
    measured = Measured(
        seconds=watched.now,
        acknowledged=sorted(watched.acknowledged),
        read=sorted(watched.read),
        leaders=watched.leaders,
        happened=happened,
        killed=KILLED,
    )
    picture.write_text(draw(measured), encoding="utf-8")
    again = sum(watched.places.values()) - len(watched.places)
    say(
        f"{sent:,} records acknowledged: none is missing, none is there twice. Longest wait for an "
        f"acknowledgement {measured.longest_wait_s:.1f} s. The group has read all of them"
        + (f", {again:,} of them again after a commit was lost." if again else ".")
    )
    say(f"Who led what and when: {picture}")


def _disturb(
    cluster: LocalCluster, watched: _Watched, say: Callable[[str], object]
) -> list[Happened]:
    """Kill a broker and start it again, each after some time; returns when what happened."""
    happened = []

    def note(text: str) -> None:
        happened.append(Happened(watched.now, text))
        say(f"{watched.now:5.1f} s  {text}")

    watched.is_over.wait(STEADY_S)
    cluster.kill(KILLED)
    note(f"kill -9 broker {KILLED}")
    _wait(lambda: _is_led_elsewhere(watched), "other leaders")
    note("others lead its partitions")
    watched.is_over.wait(AWAY_S)
    cluster.restart(KILLED)
    note(f"broker {KILLED} serves again")
    _wait(lambda: watched.in_sync == PARTITIONS * 3, "all replicas to be in sync")
    note("all replicas in sync")
    watched.is_over.wait(BACK_S)
    return happened


def _is_led_elsewhere(watched: _Watched) -> bool:
    leaders = watched.leaders[-1][1] if watched.leaders else (KILLED,)
    return not {KILLED, -1} & set(leaders)


@contextmanager
def _at_work(servers: str, watched: _Watched) -> Iterator[list[threading.Thread]]:
    """Producers, consumers, and one who looks at the leaders; the threads of the producers."""
    is_read = threading.Event()
    consumers = [
        Consumer(
            bootstrap_servers=servers,
            group_id="billing",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )
        for _ in range(CONSUMERS)
    ]

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except TailraceError as error:
                watched.failed.append(error)
                watched.is_over.set()

        return run

    def produce(number: int) -> None:
        with Producer(bootstrap_servers=servers) as producer:
            _produce(producer, number, watched)

    def consume(consumer: Consumer) -> None:
        with consumer:
            consumer.subscribe(TOPIC)
            for record in consumer:
                watched.note_read(record.partition, record.offset)

    def look() -> None:
        with Admin(bootstrap_servers=servers) as admin:
            while not is_read.wait(_PAUSE_S):
                found = admin.describe_topics([TOPIC]).results()[TOPIC].partitions
                leaders = tuple(each.leader for each in found)
                watched.in_sync = sum(len(each.isr) for each in found)
                if not watched.leaders or watched.leaders[-1][1] != leaders:
                    watched.leaders.append((watched.now, leaders))

    def begin(work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=guarded(work), daemon=True)
        thread.start()
        return thread

    readers = [begin(lambda consumer=each: consume(consumer)) for each in consumers]  # type: ignore[misc]
    looking = begin(look)
    producers = [begin(lambda number=each: produce(number)) for each in range(PRODUCERS)]  # type: ignore[misc]
    try:
        yield producers
    finally:
        watched.is_over.set()
        is_read.set()
        for consumer in consumers:
            consumer.wakeup()
        for each in (*producers, *readers, looking):
            each.join()


def _produce(producer: Producer, number: int, watched: _Watched) -> None:
    """Send numbered records at an even rate until the demonstration is over."""
    begin, count = watched.now, 0
    while not watched.is_over.wait(_PAUSE_S):
        # As many as are due by now: a thread that could not run in time catches up.
        while count < (watched.now - begin) * RATE:
            sent = watched.now

            def done(_: RecordMetadata | None, error: Exception | None, sent: float = sent) -> None:
                if error is None:
                    watched.acknowledged.append((watched.now, watched.now - sent))
                else:
                    watched.failed.append(error)

            receipt = producer.send(TOPIC, f"{number}:{count}".encode(), key=b"%d" % count)
            receipt.add_done_callback(done)
            count += 1


def _check(servers: str, watched: _Watched) -> None:
    """Read the topic from its begin, and compare it with what was acknowledged.

    Raises:
        DemoFailedError: a record is missing, or there twice.
    """
    places = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        total = sum(consumer.end_offsets(places).values())
        found: Counter[bytes | None] = Counter()
        while found.total() < total:
            found[next(consumer).value] += 1
    sent = len(watched.acknowledged)
    twice = sum(1 for count in found.values() if count > 1)
    # All records of a producer are numbered, and all that were sent were acknowledged.
    if twice or len(found) != sent:
        raise DemoFailedError(
            f"{sent} records were acknowledged, and {len(found)} are there, {twice} of them twice"
        )


def _wait(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds.

    Raises:
        DemoFailedError: it does not in time.
    """
    deadline = time.monotonic() + _READ_S
    while not holds():
        if time.monotonic() > deadline:
            raise DemoFailedError(f"waited for {what} for {_READ_S:g} s")
        time.sleep(_PAUSE_S)
