"""Produce and fetch with librdkafka, the same records through both brokers.

Batches are as large as the client's settings make them; the broker stores what it gets. acks is
librdkafka's own default, all, which with one replica waits for nobody else. A GB is one of values.
Before the first round each broker takes and gives 200 MB, which are thrown away.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.kafka.brokers import Broker, both, compare, take_turns
from benchmarks.kafka.client import Load, Run, run_client
from benchmarks.kafka.peer import Peer
from benchmarks.measure import Bench, Figure, cost_of, resident_bytes

BATCHES: Mapping[str, Mapping[str, object]] = {
    "client's own": {},
    "16 KB": {"batch.size": 16 * 1024, "linger.ms": 50},
    "1 MB": {"batch.size": 1024 * 1024, "linger.ms": 50},
}
"""Producer settings by label. On its own, librdkafka fills up to 1 MB for up to 5 ms."""

VALUE_BYTES = {"100 B": 100, "1 KB": 1000}
BYTES_PER_ROUND = {"100 B": 100_000_000, "1 KB": 300_000_000}
"""Less in small records, of which a client has a million to make and to read even so."""
WARM_UP_BYTES = 100_000_000
"""For each size of record."""
IDLE_SECONDS = 2

CPU_AIM = 0.7
MEMORY_AIM = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Runs, gigabytes and memory of one round of one broker."""

    gigabytes: float
    produced: Run
    fetched: Run
    resident_mb: float


def measure_traffic(bench: Bench, peer: Peer) -> list[Figure]:
    """Throughput, CPU per GB and per request for each size of record and batch, and memory."""
    figures = []
    resident: dict[str, list[float]] = {}
    numbers = count()
    with both(bench, peer) as brokers:
        for broker in brokers:
            bench.say("traffic: warming up")
            total = bench.scaled(WARM_UP_BYTES, quick=1_000_000)
            _run(broker, numbers=numbers, total=total, value_bytes=100, settings={})
            _run(broker, numbers=numbers, total=total, value_bytes=1000, settings=BATCHES["16 KB"])
        for size, value_bytes in VALUE_BYTES.items():
            total = bench.scaled(BYTES_PER_ROUND[size], quick=1_000_000)
            for label, settings in BATCHES.items():
                name = f"{size} records, {label} batches"
                bench.say(f"traffic: {name}")
                work = partial(
                    _run, numbers=numbers, total=total, value_bytes=value_bytes, settings=settings
                )
                found = take_turns(bench, brokers, work)
                figures += _figures(name, found, aim=CPU_AIM if settings else None)
                for kind, runs in found.items():
                    resident[kind] = [run.resident_mb for run in runs]
        bench.say("traffic: idle")
        idle = take_turns(bench, brokers, _idle_ms)
    name = "broker memory after produce and fetch"
    return [
        *figures,
        compare(name, "MB", resident, float, aim=MEMORY_AIM),
        compare("idle CPU", "ms/s", idle, float),
    ]


def _idle_ms(broker: Broker) -> float:
    """CPU per second of a broker that nobody asks anything; it is in every other figure too."""
    cost = cost_of(broker.process_id, lambda: time.sleep(IDLE_SECONDS))
    return cost.cpu_seconds * 1e3 / cost.seconds


def _run(
    broker: Broker,
    *,
    numbers: Iterator[int],
    total: int,
    value_bytes: int,
    settings: Mapping[str, object],
) -> Traffic:
    """Produce `total` bytes to a new topic and fetch them; the topic is removed after."""
    topic = f"traffic-{next(numbers)}"
    broker.create_topic(topic)
    load = Load(topic=topic, count=total // value_bytes, value_bytes=value_bytes, settings=settings)
    produced = run_client("produce", load, address=broker.address, process_ids=[broker.process_id])
    load = Load(topic=topic, count=load.count, value_bytes=value_bytes, settings={})
    fetched = run_client("fetch", load, address=broker.address, process_ids=[broker.process_id])
    resident = resident_bytes(broker.process_id)
    broker.delete_topic(topic)
    return Traffic(
        gigabytes=load.count * value_bytes / 1e9,
        produced=produced,
        fetched=fetched,
        resident_mb=resident / 1e6,
    )


def _figures(name: str, found: Mapping[str, list[Traffic]], *, aim: float | None) -> list[Figure]:
    def figure(what: str, unit: str, value: Callable[[Traffic], float]) -> Figure:
        return compare(f"{what}, {name}", unit, found, value)

    return [
        figure("produce", "MB/s", lambda run: run.gigabytes * 1e3 / run.produced.cost.seconds),
        figure("produce CPU", "s/GB", lambda run: run.produced.cost.cpu_seconds / run.gigabytes),
        figure(
            "produce CPU", "s/million requests", lambda run: _per_million(run.produced, "Produce")
        ),
        figure("fetch", "MB/s", lambda run: run.gigabytes * 1e3 / run.fetched.cost.seconds),
        figure("fetch CPU", "s/GB", lambda run: run.fetched.cost.cpu_seconds / run.gigabytes),
        figure("fetch CPU", "s/million requests", lambda run: _per_million(run.fetched, "Fetch")),
        compare(
            f"produce and fetch CPU, {name}",
            "s/GB",
            found,
            lambda run: (
                (run.produced.cost.cpu_seconds + run.fetched.cost.cpu_seconds) / run.gigabytes
            ),
            aim=aim,
        ),
    ]


def _per_million(run: Run, kind: str) -> float:
    return run.cost.cpu_seconds * 1e6 / run.counted[kind]
