"""Kafka's own producer, the Java one, as `kafka-producer-perf-test.sh` drives it.

Its settings are its own, among them acks=all and idempotence, but for the batches. It sends as fast
as it can, so the latency it reports is mostly that of its own queue. A round on each broker is
thrown away, and each run has records at its start that the tool does not count.

Not here: `kafka-consumer-perf-test.sh`, which reads as a member of a group, and Tailrace has none.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.kafka.brokers import Broker, both, compare, take_turns
from benchmarks.kafka.peer import JVM, Peer
from benchmarks.measure import Bench, Cost, Figure, cost_of
from compat.kafka import java_command

TOOL_JVM = ("-Xmx512M", *(option for option in JVM if not option.startswith(("-Xmx", "-Xms"))))
"""JVM options that `kafka-producer-perf-test.sh` gives the tool."""

BATCHES: Mapping[str, Mapping[str, int]] = {
    "16 KB": {"batch.size": 16 * 1024},
    # A request has to hold the batch and what is around it.
    "1 MB": {"batch.size": 1024**2, "linger.ms": 50, "max.request.size": 2 * 1024**2},
}
"""Producer settings by label; 16 KB is its own choice, with 5 ms to fill them."""

RECORD_BYTES = 1000
RECORDS = 500_000
WARM_UP_RECORDS = 50_000
SECONDS_MAX = 300

_TOTAL = re.compile(
    r"(?P<records>\d+) steady state records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<average>[\d.]+) ms avg latency.*? (?P<p99>\d+) ms 99th"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures that the tool reported of one run, and the broker's cost."""

    rate: float
    """Records per second."""
    average_ms: float
    p99_ms: float
    cost: Cost
    gigabytes: float


def measure_tool(bench: Bench, peer: Peer) -> list[Figure]:
    """Records per second, the latency that the tool reports, and the broker's CPU."""
    figures = []
    numbers = count()
    records = bench.scaled(RECORDS, quick=5_000)
    with both(bench, peer) as brokers:
        for label, settings in BATCHES.items():
            bench.say(f"Kafka's perf tool: {label} batches")
            work = partial(_run, peer=peer, numbers=numbers, records=records, settings=settings)
            for broker in brokers:
                work(broker)
            figures += _figures(label, take_turns(bench, brokers, work))
    return figures


def _run(
    broker: Broker,
    *,
    peer: Peer,
    numbers: Iterator[int],
    records: int,
    settings: Mapping[str, int],
) -> Report:
    """The tool's run into a new topic, which is removed after."""
    topic = f"tool-{next(numbers)}"
    broker.create_topic(topic)
    warm_up = min(WARM_UP_RECORDS, records // 2)
    command = java_command(
        peer.java,
        peer.class_path,
        [
            "org.apache.kafka.tools.ProducerPerformance",
            "--bootstrap-server", str(broker.address), "--topic", topic,
            "--num-records", str(records + warm_up), "--warmup-records", str(warm_up),
            "--record-size", str(RECORD_BYTES), "--throughput", "-1",
            "--command-property", *(f"{name}={value}" for name, value in settings.items()),
        ],
        jvm=TOOL_JVM,
    )  # fmt: skip
    said: list[str] = []

    def work() -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
        )
        said.append(done.stdout)

    cost = cost_of(broker.process_id, work)
    broker.delete_topic(topic)
    (total,) = _TOTAL.finditer(said[0])
    assert int(total["records"]) == records, total
    return Report(
        rate=float(total["rate"]),
        average_ms=float(total["average"]),
        p99_ms=float(total["p99"]),
        cost=cost,
        gigabytes=(records + warm_up) * RECORD_BYTES / 1e9,
    )


def _figures(label: str, found: Mapping[str, list[Report]]) -> list[Figure]:
    def figure(what: str, unit: str, value: Callable[[Report], float]) -> Figure:
        return compare(f"Kafka's perf tool, {label} batches, {what}", unit, found, value)

    return [
        figure("rate", "records/s", lambda report: report.rate),
        figure("average latency", "ms", lambda report: report.average_ms),
        figure("p99 latency", "ms", lambda report: report.p99_ms),
        figure("broker CPU", "s/GB", lambda report: report.cost.cpu_seconds / report.gigabytes),
    ]
