"""A client in a process of its own: one run of librdkafka or of our producer against one broker.

    python -m benchmarks.kafka.client ARGUMENTS       a kind, an address and a `Load`, as JSON

When it is connected it prints a line and waits for one. Then it works, prints a second line, and
last its counts as JSON. The parent process measures the time from its own line to the second line.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from benchmarks.measure import Cost, costs_of
from tailrace import Producer as OurProducer
from tailrace.client import BrokerAddress

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 300
"""Longest wait for all acknowledgements: three brokers on a busy machine take their time."""
CALL_RECORDS = 1_000
"""Records handed over in one call, to librdkafka or by it; Python's own cost is per call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A client's work, and the settings it has besides its defaults."""

    topic: str
    count: int
    value_bytes: int
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Cost and counts of one run of a client."""

    costs: tuple[Cost, ...]
    """CPU seconds of each broker that was watched; the client's own are left out."""
    counted: dict[str, float]

    @property
    def cost(self) -> Cost:
        """The cost of the broker that was named first."""
        return self.costs[0]


def run_client(
    kind: str, load: Load, *, address: BrokerAddress | str, process_ids: Sequence[int]
) -> Run:
    """One run of a client against this address, with the costs of these brokers.

    Raises:
        RuntimeError: it failed; its errors are on ours.
    """
    arguments = json.dumps({"kind": kind, "address": str(address), "load": asdict(load)})
    with subprocess.Popen(
        [sys.executable, "-m", __spec__.name, arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        try:
            stdout.readline()

            def work() -> None:
                print(file=stdin, flush=True)
                stdout.readline()

            costs = costs_of(process_ids, work)
            result = stdout.readline()
            if not result:
                raise RuntimeError(f"a client failed: {kind} {load}")
            return Run(costs=costs, counted=json.loads(result))
        finally:
            process.kill()


def produce(load: Load, *, address: str) -> dict[str, float]:
    """The same value again and again; all are acknowledged when the second line is printed."""
    counts: list[dict[str, Any]] = []
    producer = Producer(_settings(load, address) | {"stats_cb": _collect(counts)})
    messages = [{"value": os.urandom(load.value_bytes)}] * CALL_RECORDS
    producer.list_topics(load.topic, WAIT_SECONDS)
    _wait_for_word()
    remaining = load.count
    while remaining:
        sent = producer.produce_batch(load.topic, messages[:remaining], 0)
        remaining -= sent
        # The queue is full when not all were taken.
        producer.poll(0 if sent else 0.001)
    unsent = producer.flush(WAIT_SECONDS)
    assert not unsent, unsent
    print(flush=True)
    counts.clear()
    while not counts:
        producer.poll(0.1)
    return _requests(counts[0])


def fetch(load: Load, *, address: str) -> dict[str, float]:
    """All records from the beginning; the last is here when the second line is printed."""
    counts: list[dict[str, Any]] = []
    consumer = Consumer(
        _settings(load, address)
        | {"group.id": "benchmark", "enable.auto.commit": False, "stats_cb": _collect(counts)}
    )
    consumer.list_topics(load.topic, WAIT_SECONDS)
    _wait_for_word()
    consumer.assign([TopicPartition(load.topic, 0, OFFSET_BEGINNING)])
    remaining = load.count
    while remaining:
        messages = consumer.consume(min(remaining, CALL_RECORDS), WAIT_SECONDS)
        assert messages, f"{remaining} of {load.count} records are missing"
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        remaining -= len(messages)
    print(flush=True)
    counts.clear()
    while not counts:
        consumer.poll(0.1)
    return _requests(counts[0])


def flush(load: Load, *, address: str) -> dict[str, float]:
    """One record at a time, awaited; gives quantiles of their seconds."""
    producer = Producer(_settings(load, address))
    value = os.urandom(load.value_bytes)
    producer.list_topics(load.topic, WAIT_SECONDS)

    def send() -> None:
        producer.produce(load.topic, value, partition=0)
        unsent = producer.flush(WAIT_SECONDS)
        assert not unsent, unsent

    return _time_each(load, send)


def produce_ours(load: Load, *, address: str) -> dict[str, float]:
    """Like `produce`, by our producer, which finds its broker with a record of its own."""
    values = [os.urandom(load.value_bytes)] * CALL_RECORDS
    with OurProducer(load.settings, bootstrap_servers=address) as producer:
        producer.send(load.topic, values[0]).result()
        _wait_for_word()
        for start in range(0, load.count, CALL_RECORDS):
            for value in values[: load.count - start]:
                producer.send(load.topic, value, receipt=False)
        producer.flush()
        print(flush=True)
        failed = producer.metrics()["record-error-total"]
        assert not failed, failed
    return {}


def flush_ours(load: Load, *, address: str) -> dict[str, float]:
    """Like `flush`, by our producer."""
    value = os.urandom(load.value_bytes)
    with OurProducer(load.settings, bootstrap_servers=address) as producer:
        producer.send(load.topic, value, partition=0).result()
        return _time_each(load, lambda: producer.send(load.topic, value, partition=0).result())


def _time_each(load: Load, send: Callable[[], object]) -> dict[str, float]:
    _wait_for_word()
    seconds = []
    for _ in range(load.count):
        started = time.perf_counter()
        send()
        seconds.append(time.perf_counter() - started)
    print(flush=True)
    seconds.sort()
    return {
        "median_seconds": statistics.median(seconds),
        "p99_seconds": seconds[int(0.99 * len(seconds))],
    }


def _settings(load: Load, address: str) -> dict[str, object]:
    return {
        "bootstrap.servers": address,
        "log_level": 0,
        "statistics.interval.ms": 100,
        **load.settings,
    }


def _collect(counts: list[dict[str, Any]]) -> Callable[[str], None]:
    return lambda text: counts.append(json.loads(text))


def _requests(counts: dict[str, Any]) -> dict[str, float]:
    """Requests of each kind that librdkafka says it has sent."""
    found: Counter[str] = Counter()
    for broker in counts["brokers"].values():
        found.update(broker["req"])
    return dict(found)


def _wait_for_word() -> None:
    print(flush=True)
    sys.stdin.readline()


def main(arguments: str) -> None:
    """Do the work of a client that the arguments ask for."""
    asked = json.loads(arguments)
    work = {
        "produce": produce,
        "fetch": fetch,
        "flush": flush,
        "produce-ours": produce_ours,
        "flush-ours": flush_ours,
    }[asked["kind"]]
    print(json.dumps(work(Load(**asked["load"]), address=asked["address"])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
