"""A broker under mixed load for an hour: do memory, descriptors, threads and latency stay flat?

    python -m benchmarks.soak [--minutes 60] [--out FOLDER]

The load is steady, and takes broker and clients about one core together, half of a machine with
two: records by the clock whose latencies are measured, bulk that retention deletes, keys that are
compacted, transactions of which every third is aborted, groups of both protocols whose members come
and go, topics that are made and deleted, and connections that are opened, used or not, and closed.
All clients are ours, so that what they keep is seen too.

Exit code 1 if a value of the last fifth is above that of the second fifth by more than `LIMITS`
allow, if a record was lost, doubled or out of order, or if the broker logged an error. The first
fifth is for what is loaded once. `soak.json` has the samples.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Final, Literal

from benchmarks.hostile.victims import SWITCH_INTERVAL_S, p99
from benchmarks.macro.brokers import serving
from tailrace import Admin, Consumer, Producer
from tailrace.client.admin import NewTopic
from tailrace.errors import TailraceError

SAMPLE_S: Final = 10.0
PROBES_PER_S: Final = 200
BULK_PER_S: Final = 64_000
"""Records of 1 KB; half are kept for 64 MB only, half are compacted."""
KEYS: Final = 20_000

SETTINGS: Final = {
    # A producer asks about its topics for five minutes, which would make those that were deleted.
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "5000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "transactional.id.expiration.ms": "60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Times that are short enough to pass many times within the hour."""
SMALL: Final = {"segment.bytes": str(16 << 20), "retention.bytes": str(64 << 20)}
COMPACTED: Final = {"segment.bytes": str(16 << 20), "cleanup.policy": "compact"}


Figure = Callable[[Sequence[float]], float]


def _at_rest(values: Sequence[float]) -> float:
    return statistics.quantiles(values)[0]


LIMITS: Final[Mapping[str, tuple[str, Figure, float, float]]] = {
    # A round of the cleaner has a map of 35 or 70 MB, and a median would tell how often a sample
    # fell into one. What is kept shows between the rounds, and what a round takes at the peaks.
    "rss_mb at rest": ("rss_mb", _at_rest, 1.1, 10.0),
    "rss_mb at most": ("rss_mb", max, 1.1, 10.0),
    "descriptors": ("descriptors", statistics.median, 1.0, 20.0),
    "threads": ("threads", statistics.median, 1.0, 2.0),
    "p50_ms": ("p50_ms", statistics.median, 1.5, 2.0),
    "p99_ms": ("p99_ms", statistics.median, 2.0, 10.0),
    "client_rss_mb": ("client_rss_mb", statistics.median, 1.1, 10.0),
    "client_descriptors": ("client_descriptors", statistics.median, 1.0, 20.0),
    "client_threads": ("client_threads", statistics.median, 1.0, 4.0),
}
"""By its name: a value of samples, its figure for a fifth of the time, the allowed factor, and what
may be added to it."""

_VALUE: Final = struct.Struct(">qd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Ten seconds."""

    at_s: float
    cores: float
    """CPU seconds in a second, of the broker."""
    client_cores: float
    rss_mb: float
    descriptors: int
    threads: int
    client_rss_mb: float
    client_descriptors: int
    client_threads: int
    p50_ms: float
    """From the time at which a record was due to be sent to the consumer."""
    p99_ms: float
    done: dict[str, int]
    """Rounds of each part of the load since the beginning."""


class Load:
    """Threads that load a broker by the clock, until they are told to end."""

    def __init__(self, address: str) -> None:
        self.failures: list[str] = []
        self.done: dict[str, int] = {}
        self._address = address
        self._is_over = threading.Event()
        self._latencies: list[float] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(name, work), name=name, daemon=True)
            for name, work in (
                ("probe", self._probe), ("watch", self._watch), ("bulk", self._bulk),
                ("transactions", self._transactions), ("groups", self._groups),
                ("topics", self._topics), ("connections", self._connections),
            )
        ]  # fmt: skip

    def start(self) -> None:
        """Make the topics, and begin."""
        with Admin(bootstrap_servers=self._address) as admin:
            admin.create_topics([
                NewTopic("probe", 1, configs=SMALL), NewTopic("bulk", 8, configs=SMALL),
                NewTopic("keys", 4, configs=COMPACTED), NewTopic("moved", 2, configs=SMALL),
            ]).results()  # fmt: skip
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End all of it."""
        self._is_over.set()
        for each in self._threads:
            each.join(60)
            if each.is_alive():
                self.failures.append(f"{each.name} does not end")

    def take_latencies(self) -> tuple[float, ...]:
        """Latencies of the probes that have arrived since the last call, in milliseconds."""
        found, self._latencies = self._latencies, []
        return tuple(found)

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (TailraceError, OSError, AssertionError) as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")

    def _paced(self, name: str, interval_s: float, work: Callable[[int], None]) -> None:
        started = time.monotonic()
        for number in count():
            due = started + number * interval_s
            if self._is_over.wait(max(due - time.monotonic(), 0)):
                return
            work(number)
            self.done[name] = number + 1

    def _probe(self) -> None:
        with Producer(bootstrap_servers=self._address, linger_ms=0) as producer:
            started = time.monotonic()

            def send(number: int) -> None:
                due = started + number / PROBES_PER_S
                producer.send("probe", _VALUE.pack(number, due))

            self._paced("probe", 1 / PROBES_PER_S, send)

    def _watch(self) -> None:
        with Consumer(
            bootstrap_servers=self._address, group_id="watch", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe("probe")
            expected = 0
            while not self._is_over.is_set():
                for record in consumer.poll(0.1):
                    assert record.value is not None
                    number, due = _VALUE.unpack(record.value)
                    if number != expected:
                        self.failures.append(f"probe {number} has come, not {expected}")
                    expected = number + 1
                    self._latencies.append((time.monotonic() - due) * 1000)

    def _bulk(self) -> None:
        value = os.urandom(1000)
        with Producer(bootstrap_servers=self._address) as producer:

            def send(number: int) -> None:
                each = BULK_PER_S // 10
                for place in range(each // 2):
                    producer.send("bulk", value)
                    key = (number * each + place * 7919) % KEYS
                    producer.send("keys", value, key=b"%d" % key)

            self._paced("bulk", 0.1, send)

    def _transactions(self) -> None:
        def run(number: int) -> None:
            name = f"soak-{number % 50}"
            with Producer(bootstrap_servers=self._address, transactional_id=name) as producer:
                producer.begin_transaction()
                for place in range(10):
                    producer.send("moved", b"%d" % place)
                if number % 3:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()

        self._paced("transactions", 0.15, run)

    def _groups(self) -> None:
        def run(number: int) -> None:
            protocol: Literal["classic", "consumer"] = "consumer" if number % 2 else "classic"
            with Consumer(
                bootstrap_servers=self._address, group_id=f"{protocol}-{number // 20}",
                group_protocol=protocol, auto_offset_reset="latest",
                isolation_level="read_committed",
            ) as consumer:  # fmt: skip
                consumer.subscribe("moved")
                consumer.poll(1.0)
                consumer.commit()

        self._paced("groups", 0.5, run)

    def _topics(self) -> None:
        with (
            Admin(bootstrap_servers=self._address) as admin,
            Producer(bootstrap_servers=self._address) as producer,
        ):

            def run(number: int) -> None:
                name = f"churn-{number}"
                admin.create_topics([NewTopic(name, 3)]).results()
                for receipt in [producer.send(name, b"v") for _ in range(10)]:
                    receipt.result(60)
                admin.delete_topics([name]).results()

            self._paced("topics", 0.3, run)

    def _connections(self) -> None:
        host, _, port = self._address.rpartition(":")

        def run(number: int) -> None:
            if number % 5:
                with contextlib.closing(socket.create_connection((host, int(port)))) as opened:
                    opened.sendall(b"\0\0\0" if number % 2 else b"")
            else:
                with Admin(bootstrap_servers=self._address) as admin:
                    admin.describe_cluster()

        self._paced("connections", 0.015, run)


def main() -> int:
    """Load a broker, sample it, and say what has risen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/local"))
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "data", settings=SETTINGS) as broker,
    ):
        load = Load(str(broker.address))
        load.start()
        started = time.monotonic()
        before = (started, cpu_s(broker.process_id), time.process_time())
        while (at_s := time.monotonic() - started) < options.minutes * 60 and not load.failures:
            time.sleep(SAMPLE_S - at_s % SAMPLE_S)
            now = (time.monotonic(), cpu_s(broker.process_id), time.process_time())
            sample = take(broker.process_id, load, before=before, now=now, started=started)
            before = now
            samples.append(sample)
            if len(samples) % 6 == 0:
                print(line(sample), flush=True)
        load.stop()
        broker.stop()
        errors = [
            each
            for each in broker.log.read_text().splitlines()
            if " ERROR " in each or "Trace" in each
        ]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "soak.json").write_text(json.dumps([asdict(each) for each in samples], indent=1))
    risen = verdict(samples)
    for each in (*risen, *load.failures, *errors[:10]):
        print(f"FAULT {each}")
    print(curves(samples))
    return 1 if risen or load.failures or errors else 0


def take(
    process_id: int,
    load: Load,
    *,
    before: tuple[float, float, float],
    now: tuple[float, float, float],
    started: float,
) -> Sample:
    """A sample of the time since the last one."""
    found = load.take_latencies()
    seconds = now[0] - before[0]
    return Sample(
        at_s=round(now[0] - started, 1),
        cores=round((now[1] - before[1]) / seconds, 3),
        client_cores=round((now[2] - before[2]) / seconds, 3),
        rss_mb=round(rss_mb(process_id), 1),
        descriptors=descriptors(process_id),
        threads=threads(process_id),
        client_rss_mb=round(rss_mb(os.getpid()), 1),
        client_descriptors=descriptors(os.getpid()),
        client_threads=threads(os.getpid()),
        p50_ms=round(statistics.median(found), 2) if found else float("inf"),
        p99_ms=round(p99(found), 2),
        done=dict(load.done),
    )


def rss_mb(process_id: int) -> float:
    """Resident memory."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def descriptors(process_id: int) -> int:
    """Open files and sockets."""
    return len(os.listdir(f"/proc/{process_id}/fd"))


def threads(process_id: int) -> int:
    """Threads of a process."""
    return len(os.listdir(f"/proc/{process_id}/task"))


def cpu_s(process_id: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def line(sample: Sample) -> str:
    """A minute, for the terminal."""
    return (
        f"{sample.at_s / 60:4.0f} min  broker {sample.cores:.2f} cores, {sample.rss_mb:.0f} MB, "
        f"{sample.descriptors} descriptors, {sample.threads} threads; clients "
        f"{sample.client_cores:.2f} cores, {sample.client_rss_mb:.0f} MB, "
        f"{sample.client_descriptors} descriptors, {sample.client_threads} threads; "
        f"latency {sample.p50_ms:.1f} ms, 99 % {sample.p99_ms:.1f} ms"
    )


def fifth(samples: list[Sample], value: str, figure: Figure, number: int) -> float:
    """A figure of a value in one fifth of the time."""
    part = samples[number * len(samples) // 5 : (number + 1) * len(samples) // 5]
    return float(figure([getattr(each, value) for each in part]))


def verdict(samples: list[Sample]) -> list[str]:
    """The figures that have risen."""
    if len(samples) < 10:
        return ["fewer than ten samples"]
    found = []
    for name, (value, figure, factor, extra) in LIMITS.items():
        early, late = (fifth(samples, value, figure, number) for number in (1, 4))
        if late > early * factor + extra:
            found.append(f"{name}: {early:.1f} in the second fifth, {late:.1f} in the last")
    return found


def curves(samples: list[Sample]) -> str:
    """Each figure over the time, as text: one for each fifth."""
    if len(samples) < 10:
        return ""
    shown: dict[str, tuple[str, Figure]]
    shown = {name: (name, statistics.median) for name in ("cores", "client_cores")}
    shown |= {name: (value, figure) for name, (value, figure, _, _) in LIMITS.items()}
    rows = [
        f"{name:20}" + "".join(f"{fifth(samples, *each, number):10.1f}" for number in range(5))
        for name, each in shown.items()
    ]
    return "\n".join(("in each fifth of the time", *rows, f"done {samples[-1].done}"))


if __name__ == "__main__":
    sys.exit(main())
