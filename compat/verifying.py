"""`log verify` beside a broker at work, after kills and after a stop: it finds nothing.

Kafka and our broker do the same work, each on a directory of its own, and several rounds of it:

    consume, transform, produce   transactions with their offsets, committed and aborted
    produce                       idempotent, compressed, with transactions left open
    compaction, retention         with settings that make both happen all the time
    preallocate=true              a topic whose segments are longer than what is in them
    topics that are deleted       and made again

Invariant: no damage is done to any file, so whatever is found is a false alarm.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from compat import ours
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import TOPICS as ALL
from compat.topics import create_topics
from tailrace.errors import FatalError

ROUNDS = 4
LOOKS = 3
"""Verifications of one round, while the broker works."""

WAIT_SECONDS = 30.0
REST_SECONDS = 0.2
"""Between two turns of a client, so that logs do not grow faster than they are verified."""

_SMALL = ALL["transactions"]
TOPICS: Mapping[str, Mapping[str, str]] = {
    "read": _SMALL,
    "written": _SMALL,
    "compacted": {**ALL["compacted"], "segment.ms": "300"},
    "compacted-transactions": {**ALL["compacted-transactions"], "segment.ms": "300"},
    "kept-short": {**_SMALL, "retention.bytes": "9000", "file.delete.delay.ms": "500"},
    "preallocated": {**_SMALL, "preallocate": "true", "internal.segment.bytes": "65536"},
    "preallocated-compacted": {**ALL["compacted"], "preallocate": "true", "segment.ms": "300"},
}
_GOING = "going"
"""Topics of this name are made and deleted."""

SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}

Start = Callable[[signal.Signals], AbstractContextManager[str]]
"""Starts a broker, which gets a signal at the end."""


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """The whole, on Kafka's directory, which is new, and on one of ours."""

    @contextmanager
    def start_kafka(ending: signal.Signals) -> Iterator[str]:
        kafka.start()
        try:
            yield kafka.bootstrap_servers
        finally:
            kafka.kill() if ending is signal.SIGKILL else kafka.stop()

    kafka.settings |= SETTINGS
    _check_broker(report, "Kafka", start_kafka, kafka.logs)
    mine = scratch / "verified-ours"
    _check_broker(
        report,
        "our broker",
        lambda ending: ours.serving(mine, ending=ending, settings=SETTINGS),
        mine,
    )


def _check_broker(report: Report, name: str, start: Start, logs: Path) -> None:
    running: list[str] = []
    killed: list[str] = []
    for number in range(ROUNDS):
        with start(signal.SIGKILL) as servers:
            if not number:
                create_topics(servers, TOPICS)
            work = _Work(servers, number)
            try:
                for _ in range(LOOKS):
                    running += ours.verify(logs)
                work.check()
            finally:
                work.leave()
        killed += ours.verify(logs)
    with start(signal.SIGTERM) as servers:
        work = _Work(servers, ROUNDS)
        running += ours.verify(logs)
        work.check()
        work.leave()
    report.check(f"verify finds nothing beside {name} at work", running)
    report.check(f"verify finds nothing after {name} was killed", killed)
    report.check(f"verify finds nothing after {name} has stopped", ours.verify(logs))


_Client = Callable[[Callable[[], None]], None]
"""Works until the end, and calls its argument when it has done something of everything."""


class _Work:
    """Clients that work until they are told to leave, some of them in the middle."""

    def __init__(self, servers: str, number: int) -> None:
        self._servers = servers
        self._number = number
        self._ended = threading.Event()
        self._faults: list[BaseException] = []
        works: list[_Client] = [self._transform, self._fill]
        begun = [threading.Event() for _ in works]
        self._threads = [
            threading.Thread(target=self._run, args=each, daemon=True)
            for each in zip(works, begun, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        for each in begun:
            if not each.wait(2 * WAIT_SECONDS):
                self._faults.append(FatalError("a client has not begun to work in time"))

    def check(self) -> None:
        """Raise what has ended a client too early."""
        for each in self._faults:
            raise each

    def leave(self) -> None:
        """Have the clients end, with a transaction left open."""
        self._ended.set()
        for thread in self._threads:
            thread.join(2 * WAIT_SECONDS)

    def _run(self, work: "_Client", begun: threading.Event) -> None:
        try:
            work(begun.set)
        except Exception as error:  # noqa: BLE001 - of whatever kind: nobody works any more
            self._faults.append(error)
            begun.set()

    def _transform(self, did: Callable[[], None]) -> None:
        """Consume, transform, produce, each batch in a transaction; every third is aborted."""
        source = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "transforming",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["read"])
        producer = Producer(
            {"bootstrap.servers": self._servers, "transactional.id": "transforming"}
        )
        producer.init_transactions(WAIT_SECONDS)
        turn = 0
        while not self._ended.wait(REST_SECONDS):
            for each in range(20):
                source.produce("read", b"%d %d" % (turn, each), b"%d" % each)
            source.flush(WAIT_SECONDS)
            messages = consumer.consume(20, 5.0)
            producer.begin_transaction()
            for each in messages:
                if each.error() is None:
                    producer.produce("written", each.value(), each.key())
                    producer.produce("compacted-transactions", each.value(), each.key())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                WAIT_SECONDS,
            )
            if turn % 3 == 2:
                producer.abort_transaction(WAIT_SECONDS)
            else:
                producer.commit_transaction(WAIT_SECONDS)
            turn += 1
            if turn == 3:
                did()
        producer.begin_transaction()
        producer.produce("written", b"never decided")
        producer.flush(WAIT_SECONDS)
        consumer.close()

    def _fill(self, did: Callable[[], None]) -> None:
        """Produce to every other topic; delete one and make it again now and then."""
        admin = AdminClient({"bootstrap.servers": self._servers})
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "compression.type": ("none", "zstd", "lz4", "gzip")[self._number % 4],
            }
        )
        others = [each for each in TOPICS if each not in {"read", "written"}]
        turn = 0
        while not self._ended.wait(REST_SECONDS):
            going = f"{_GOING}-{self._number}-{turn}"
            create_topics(self._servers, {going: _SMALL})
            for topic in [*others, going]:
                for each in range(60):
                    producer.produce(topic, b"%d" % turn * 20, b"key %d" % (each % 11))
            producer.flush(WAIT_SECONDS)
            for done in admin.delete_topics([going]).values():
                done.result()
            turn += 1
            if turn == 2:
                did()
