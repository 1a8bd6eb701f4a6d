"""Prebuilt frames over blocking sockets: both brokers without a client of weight.

A round of each load, 500 MB, is thrown away on each broker.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.kafka.brokers import Broker, both, compare, take_turns
from benchmarks.kafka.peer import Peer
from benchmarks.macro.load import (
    Batch,
    build_batch,
    connected,
    fetch_frame,
    produce_frame,
    receive_all,
    require_appended,
    send_all,
)
from benchmarks.measure import Bench, Cost, Figure, cost_of

BATCH_BYTES = {"16 KB": 16 * 1024, "1 MB": 1024 * 1024}
BYTES_PER_ROUND = 500_000_000
READS_PER_ROUND = 3
"""Number of times that a round reads the data it has written."""
FETCH_BYTES = 1024 * 1024
"""One fetch asks for as many whole batches as this holds: librdkafka's limit for a partition."""
ENVELOPE_BYTES_MAX = 200
"""Most bytes of an answer around its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Costs, gigabytes and request counts of one round of one broker."""

    produced: Cost
    produced_gb: float
    produce_count: int
    fetched: Cost
    fetched_gb: float
    fetch_count: int


def measure_raw(bench: Bench, peer: Peer) -> list[Figure]:
    """Throughput, CPU per GB and per request of produce and fetch, for both sizes of batch."""
    figures = []
    numbers = count()
    with both(bench, peer) as brokers:
        for label, size in BATCH_BYTES.items():
            bench.say(f"raw: {label} batches")
            batch = build_batch(size)
            batch_count = bench.scaled(BYTES_PER_ROUND, quick=4_000_000) // len(batch.data)
            work = partial(_run, numbers=numbers, batch=batch, batch_count=batch_count)
            for broker in brokers:
                work(broker)
            figures += _figures(f"{label} batches", take_turns(bench, brokers, work))
    return figures


def _run(broker: Broker, *, numbers: Iterator[int], batch: Batch, batch_count: int) -> Round:
    """The same batch into a new topic, and all of them out again; the topic is removed after."""
    topic = f"raw-{next(numbers)}"
    broker.create_topic(topic)
    frame = produce_frame(topic, batch)
    batches_each = FETCH_BYTES // len(batch.data)
    bytes_max = batches_each * len(batch.data)
    requests = [
        fetch_frame(topic, offset=number * batches_each * batch.record_count, bytes_max=bytes_max)
        for number in range(batch_count // batches_each)
    ] * READS_PER_ROUND
    answers: list[bytes] = []
    totals: list[int] = []
    buffer = bytearray(bytes_max)
    with connected(broker.address) as channel:
        produced = cost_of(
            broker.process_id, lambda: answers.append(send_all(channel, frame, batch_count))
        )
        require_appended(answers[0], batch, batch_count)
        fetched = cost_of(
            broker.process_id,
            lambda: totals.append(receive_all(channel, requests, buffer=buffer)),
        )
    fetched_bytes = bytes_max * len(requests)
    assert 0 <= totals[0] - fetched_bytes <= ENVELOPE_BYTES_MAX * len(requests), totals
    broker.delete_topic(topic)
    return Round(
        produced=produced,
        produced_gb=batch_count * len(batch.data) / 1e9,
        produce_count=batch_count,
        fetched=fetched,
        fetched_gb=fetched_bytes / 1e9,
        fetch_count=len(requests),
    )


def _figures(name: str, found: dict[str, list[Round]]) -> list[Figure]:
    def figure(what: str, unit: str, value: Callable[[Round], float]) -> Figure:
        return compare(f"raw {what}, {name}", unit, found, value)

    return [
        figure("produce", "MB/s", lambda run: run.produced_gb * 1e3 / run.produced.seconds),
        figure("produce CPU", "s/GB", lambda run: run.produced.cpu_seconds / run.produced_gb),
        figure(
            "produce CPU",
            "s/million requests",
            lambda run: run.produced.cpu_seconds * 1e6 / run.produce_count,
        ),
        figure("fetch", "MB/s", lambda run: run.fetched_gb * 1e3 / run.fetched.seconds),
        figure("fetch CPU", "s/GB", lambda run: run.fetched.cpu_seconds / run.fetched_gb),
        figure(
            "fetch CPU",
            "s/million requests",
            lambda run: run.fetched.cpu_seconds * 1e6 / run.fetch_count,
        ),
    ]
