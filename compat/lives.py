"""The life of a consumer, of four clients side by side: how it ends, and what of its work is lost.

    python -m compat.lives             the table, on our broker and on Kafka
    python -m compat.lives --ours      on our broker only

A life is a process (`life`) that handles records one by one, with automatic commits. It is ended in
one of the ways of `ROWS`. Then a look at the committed offsets says what the next consumer of the
group would handle again, and what nobody would ever handle.

Invariant: no process outlives this one, and no group or topic serves two lives.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat.artifacts import KAFKA, class_path
from compat.kafka import Kafka
from compat.life import CLIENTS
from compat.processes import bound_to_us
from compat.report import Report
from tailrace.spark.java import find_java
from tailrace.testing.broker import TestBroker

RECORDS = 200
HALF = 100
WAIT_S = 60.0
GLANCE_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One life, when it has ended."""

    handled: int
    """Records whose handling has ended."""
    committed: int
    again: int
    """Handled records that will be, or were, handled a second time."""
    lost: int
    """Records that are committed and were not handled."""
    seconds: float
    """From the reason of the end until the group has no member; for a second member, until its
    first record."""
    note: str = ""

    def cell(self) -> str:
        """The text for the table."""
        lost = f", **{self.lost} lost**" if self.lost else ""
        again = f", {self.again} again" if self.again else ""
        took = ", never" if self.seconds < 0 else f", {self.seconds:.2f} s"
        return f"{self.handled} / {self.committed}{again}{lost}{took}{self.note}"


class Life:
    """A running consumer, and the lines that it has said."""

    def __init__(self, client: str, plan: Mapping[str, Any]) -> None:
        command = [sys.executable, "-m", "compat.life", client, json.dumps(plan)]
        self.begun: list[tuple[int, int]] = []
        self.done: list[tuple[int, int]] = []
        self.first_at = 0.0
        self.ready_at = 0.0
        self.process = subprocess.Popen(  # noqa: S603 - a module of ours
            bound_to_us(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *numbers = line.split()
            if word == "ready":
                self.ready_at = time.monotonic()
            elif word == "begin":
                self.first_at = self.first_at or time.monotonic()
                self.begun.append((int(numbers[0]), int(numbers[1])))
            elif word == "done":
                self.done.append((int(numbers[0]), int(numbers[1])))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it is still running."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def end(self) -> None:
        """Wait until it has ended and all its lines were read; kill it if that takes too long."""
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        time.sleep(0.1)


@dataclass(slots=True, kw_only=True)
class Stage:
    """A broker, and the next name of a topic and group on it."""

    servers: str
    number: int = 0
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def topic(self, partitions: int, records: int) -> str:
        """A new topic with so many records, in turn in its partitions."""
        self.number += 1
        name = f"lives-{self.number}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(records):
            producer.produce(name, b"%d" % number, partition=number % partitions)
        producer.flush()
        return name

    def committed(self, name: str, partitions: int) -> dict[int, int]:
        """The committed offsets of the group with a topic's name."""
        places = [TopicPartition(name, each) for each in range(partitions)]
        asked = ConsumerGroupTopicPartitions(name, places)
        found = self.admin.list_consumer_group_offsets([asked])[name].result()
        return {each.partition: max(0, each.offset) for each in found.topic_partitions}

    def wait_until_empty(self, name: str) -> None:
        """Wait until the group has no members."""
        wait(lambda: not self.admin.describe_consumer_groups([name])[name].result().members)


def wait(is_done: Callable[[], bool]) -> None:
    """Wait, for a minute at most."""
    end = time.monotonic() + WAIT_S
    while not is_done() and time.monotonic() < end:
        time.sleep(GLANCE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A way to end."""

    name: str
    live: Callable[[Stage, str], Outcome]
    handled: int
    """Records that are handled at least, if the consumer works."""

    def faults(self, found: Iterable[Outcome]) -> list[str]:
        """Cells of lives that did not come that far or to an end, lost a record, or repeat one."""
        again = RECORDS if self.name == KILLED else 0
        return [
            each.cell()
            for each in found
            if each.lost
            or each.again > again
            or each.handled < self.handled
            or not 0 <= each.seconds < WAIT_S
        ]


def _alone(end: Callable[[Life], None], **plan: object) -> Callable[[Stage, str], Outcome]:
    """A single member that handles a record in 20 ms, until `end` ends it."""

    def live(stage: Stage, client: str) -> Outcome:
        name = stage.topic(1, RECORDS)
        given = {
            "servers": stage.servers,
            "topic": name,
            "group": name,
            "work_s": 0.02,
            "max_poll_interval_ms": 300_000,
        }
        life = Life(client, given | plan)
        end(life)
        start = time.monotonic()
        stage.wait_until_empty(name)
        seconds = time.monotonic() - start
        life.end()
        return _outcome([life], stage.committed(name, 1), seconds)

    return live


def _outcome(lives: Iterable[Life], committed: Mapping[int, int], seconds: float) -> Outcome:
    done = [each for life in lives for each in life.done]
    handled = set(done)
    below = {(place, offset) for place, end in committed.items() for offset in range(end)}
    return Outcome(
        handled=len(handled),
        committed=len(below),
        again=len(handled - below) + len(done) - len(handled),
        lost=len(below - handled),
        seconds=seconds,
    )


def _rebalance(stage: Stage, client: str) -> Outcome:
    """A second member comes while the first is at work on one poll's records."""
    name = stage.topic(2, RECORDS)
    plan = {
        "servers": stage.servers,
        "topic": name,
        "group": name,
        "work_s": 0.1,
        "max_poll_interval_ms": 300_000,
    }
    lives = [Life(client, plan)]
    wait(lambda: len(lives[0].begun) >= 20)
    lives.append(Life(client, plan))
    wait(lambda: len({*lives[0].done, *lives[1].done}) >= RECORDS)
    for each in lives:
        each.signal(signal.SIGTERM)
    for each in lives:
        each.end()
    taken = lives[1].first_at - lives[1].ready_at if lives[1].first_at else -1.0
    return _outcome(lives, stage.committed(name, 2), taken)


def _in_handler(number: signal.Signals) -> Callable[[Life], None]:
    def end(life: Life) -> None:
        wait(lambda: len(life.begun) >= HALF)
        life.signal(number)

    return end


def _idle(number: signal.Signals) -> Callable[[Life], None]:
    def end(life: Life) -> None:
        wait(lambda: len(life.done) >= RECORDS)
        time.sleep(0.3)
        life.signal(number)

    return end


def _by_thread(life: Life) -> None:
    wait(lambda: len(life.begun) >= HALF)
    assert life.process.stdin is not None
    life.process.stdin.write("stop\n")
    life.process.stdin.flush()


def _by_itself(count: int) -> Callable[[Life], None]:
    return lambda life: wait(lambda: _is_over(life, count))


def _is_over(life: Life, count: int) -> bool:
    return len(life.done) >= count or life.process.poll() is not None


KILLED = "kill -9 while a record is handled"
SLOW: Mapping[str, Any] = {"work_s": 0.4, "max_poll_interval_ms": 6000, "stop_at": 40}

ROWS = (
    Row(name="the loop ends by itself", live=_alone(_by_itself(HALF), stop_at=HALF), handled=HALF),
    Row(
        name="SIGTERM while a record is handled",
        live=_alone(_in_handler(signal.SIGTERM)),
        handled=HALF - 1,
    ),
    Row(name="SIGTERM in an idle poll", live=_alone(_idle(signal.SIGTERM)), handled=RECORDS),
    Row(
        name="Ctrl-C while a record is handled",
        live=_alone(_in_handler(signal.SIGINT)),
        handled=HALF - 1,
    ),
    Row(name="Ctrl-C in an idle poll", live=_alone(_idle(signal.SIGINT)), handled=RECORDS),
    Row(
        name="another thread, or a cancelled task, while a record is handled",
        live=_alone(_by_thread, stop_by="thread"),
        handled=HALF - 1,
    ),
    Row(
        name="an exception in the handler",
        live=_alone(lambda life: wait(lambda: len(life.begun) >= HALF), fail_at=HALF),
        handled=HALF - 1,
    ),
    Row(name=KILLED, live=_alone(_in_handler(signal.SIGKILL)), handled=HALF - 1),
    Row(
        name="16 s for the records of one poll, with max.poll.interval.ms of 6 s",
        live=_alone(_by_itself(40), **SLOW),
        handled=40,
    ),
    Row(
        name="a second member comes during the records of one poll",
        live=_rebalance,
        handled=RECORDS,
    ),
)


def lives_of(servers: str, clients: Sequence[str] = CLIENTS) -> Iterator[tuple[Row, list[Outcome]]]:
    """Each row with the outcome of each client."""
    stage = Stage(servers=servers)
    for row in ROWS:
        yield row, [row.live(stage, each) for each in clients]


def check(report: Report, kafka: Kafka) -> None:
    """Our consumers lose nothing, and an end in order leaves nothing to be handled again."""
    with kafka:
        check_at(report, kafka.bootstrap_servers)


def check_at(report: Report, servers: str) -> None:
    """The same on brokers that run."""
    for row, found in lives_of(servers, ("Tailrace", "Tailrace, asyncio")):
        report.check(
            f"Consumers, {row.name}: no record is lost, and none is handled again in vain",
            row.faults(found),
        )


@contextmanager
def _brokers(*, is_ours_only: bool) -> Iterator[list[tuple[str, str]]]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with TestBroker(settings=settings) as ours:
        if is_ours_only:
            yield [("Tailrace", ours.bootstrap_servers)]
            return
        java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
        with (
            tempfile.TemporaryDirectory(prefix="lives-", dir="/var/tmp") as place,
            Kafka(java, jars, Path(place)) as kafka,
        ):
            yield [
                ("Tailrace", ours.bootstrap_servers),
                (f"Kafka {KAFKA.version}", kafka.bootstrap_servers),
            ]


def main() -> None:
    """Print a table for each broker."""
    parser = argparse.ArgumentParser(prog="python -m compat.lives", description=__doc__)
    parser.add_argument("--ours", action="store_true", help="only on our broker")
    with _brokers(is_ours_only=parser.parse_args().ours) as brokers:
        for broker, servers in brokers:
            print(f"\n{broker}\n")
            print("| | " + " | ".join(CLIENTS) + " |")
            print("|---" * (len(CLIENTS) + 1) + "|")
            for row, found in lives_of(servers):
                cells = " | ".join(each.cell() for each in found)
                print(f"| {row.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
