"""Our producer against other people's, in messages and in CPU time of the program that sends.

Each contender runs in a process of its own, warms up, and sends to a new topic of one partition
on the same broker; see `producer_clients` for how each is used. They take turns. What is shown is
time per message, so a ratio of 0.5 is twice the throughput.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.peers import ROOT
from benchmarks.macro.producer_clients import BUFFER_MEMORY, TOPIC, WARM_COUNT
from benchmarks.measure import Bench, Figure, interleave

SIZES = (100, 1_000)
GROUPS = {"defaults": "defaults", "same": "1 MB, 5 ms, idempotent"}

COUNTS: Mapping[str, int] = {
    "produce-send": 500_000,
    "produce-send-kept": 500_000,
    "produce-send-without-receipts": 500_000,
    "produce-send-many": 1_000_000,
    "produce-send-arrow": 2_000_000,
    "produce-async-send": 300_000,
    "produce-confluent": 300_000,
    "produce-confluent-with-callbacks": 300_000,
    "produce-aiokafka": 50_000,
    "produce-aiokafka-batches": 200_000,
    "produce-kafka-python": 50_000,
}
"""Messages of 100 bytes in a round, about a second; a quarter as many of 1,000 bytes."""
COUNT_QUICK = 5_000
WAIT_COUNT = 2_000

WAITS = ("wait-send", "wait-async-send", "wait-confluent", "wait-aiokafka", "wait-kafka-python")


class Pair(NamedTuple):
    """A comparison: our contender, its peer, and the ratio to reach."""

    name: str
    ours: str
    peer_name: str
    peer: str
    aim: float | None = None


PAIRS = (
    Pair("send", "produce-send", "confluent-kafka produce", "produce-confluent", 0.67),
    Pair(
        "send, receipts kept", "produce-send-kept",
        "confluent-kafka with callbacks", "produce-confluent-with-callbacks",
    ),
    Pair("send", "produce-send", "kafka-python send", "produce-kafka-python"),
    Pair(
        "send without receipts", "produce-send-without-receipts",
        "confluent-kafka produce", "produce-confluent", 0.5,
    ),
    Pair("send_many of bytes", "produce-send-many", "confluent-kafka produce", "produce-confluent"),
    Pair(
        "send_many of Arrow", "produce-send-arrow",
        "confluent-kafka produce", "produce-confluent", 0.125,
    ),
    Pair(
        "send_many of Arrow", "produce-send-arrow",
        "aiokafka send_batch", "produce-aiokafka-batches", 0.33,
    ),
    Pair("AsyncProducer.send", "produce-async-send", "aiokafka send", "produce-aiokafka"),
    Pair("AsyncProducer.send", "produce-async-send", "Producer.send", "produce-send", 1.25),
)  # fmt: skip

WAIT_PAIRS = (
    Pair("send", "wait-send", "confluent-kafka", "wait-confluent", 1.0),
    Pair("send", "wait-send", "kafka-python", "wait-kafka-python"),
    Pair("AsyncProducer.send", "wait-async-send", "Producer.send", "wait-send"),
    Pair("AsyncProducer.send", "wait-async-send", "aiokafka", "wait-aiokafka"),
)


def measure_producers(bench: Bench) -> list[Figure]:
    """Time and CPU time per message, the wait for one message, and what `buffer.memory` bounds."""
    figures: list[Figure] = []
    with serving(bench.directory / "producers") as broker:
        for group, size in product(GROUPS, SIZES):
            figures += _measure_throughput(bench, broker, group, size)
        figures += _measure_waits(bench, broker)
    figures += [_measure_memory(bench, size) for size in SIZES]
    return figures


def _measure_throughput(
    bench: Bench, broker: BrokerProcess, group: str, size: int
) -> Iterator[Figure]:
    bench.say(f"producers, {size} bytes, {GROUPS[group]}: {len(COUNTS)} contenders")
    counts = {
        name: bench.scaled(count if size == SIZES[0] else count // 4, quick=COUNT_QUICK)
        for name, count in COUNTS.items()
    }
    found = interleave(
        bench,
        {
            name: partial(run_producer, broker, name, size=size, count=count, group=group)
            for name, count in counts.items()
        },
    )
    for pair, (field, suffix) in product(PAIRS, (("seconds", ""), ("cpu_seconds", ", CPU"))):
        yield Figure(
            name=f"{pair.name}, {size} bytes, {GROUPS[group]}{suffix}",
            unit="us/message",
            ours=tuple(each[field] / counts[pair.ours] * 1e6 for each in found[pair.ours]),
            peer_name=pair.peer_name,
            peer=tuple(each[field] / counts[pair.peer] * 1e6 for each in found[pair.peer]),
            aim=None if suffix else pair.aim,
        )


def _measure_waits(bench: Bench, broker: BrokerProcess) -> Iterator[Figure]:
    count = bench.scaled(WAIT_COUNT, quick=100)
    bench.say(f"producers, {count} messages one at a time")
    found = interleave(
        bench,
        {
            name: partial(run_producer, broker, name, size=SIZES[0], count=count, group="defaults")
            for name in WAITS
        },
    )
    for percent, pair in product((50, 99), WAIT_PAIRS):
        yield Figure(
            name=f"{pair.name} and wait, linger.ms 0, p{percent}",
            unit="us",
            ours=tuple(_percentile(each["each"], percent) * 1e6 for each in found[pair.ours]),
            peer_name=pair.peer_name,
            peer=tuple(_percentile(each["each"], percent) * 1e6 for each in found[pair.peer]),
            aim=pair.aim if percent == 50 else None,
        )


def _measure_memory(bench: Bench, size: int) -> Figure:
    """The growth of a producer's process until `send` finds no memory left."""
    bench.say(f"producers, {size} bytes, a broker that does not answer")
    with serving(bench.directory / f"stopped-{size}") as broker:
        broker.create_topic(TOPIC)
        address = f"{broker.address}/{broker.process_id}"
        found = _work(
            "memory", address, size=size, count=0, group="defaults", warm_count=WARM_COUNT
        )
    return Figure(
        name=f"buffer.memory bound, {size} bytes",
        unit="MB",
        ours=(found["bytes"] / 1e6,),
        peer_name="buffer.memory",
        peer=(BUFFER_MEMORY / 1e6,),
        aim=1.5,
    )


def run_producer(
    broker: BrokerProcess,
    name: str,
    *,
    size: int,
    count: int,
    group: str,
    warm_count: int = WARM_COUNT,
) -> dict[str, Any]:
    """Run one contender on a topic of its own, and return its results."""
    broker.create_topic(TOPIC)
    address = str(broker.address)
    found = _work(name, address, size=size, count=count, group=group, warm_count=warm_count)
    broker.delete_topic(TOPIC)
    return found


def _work(
    name: str, address: str, *, size: int, count: int, group: str, warm_count: int
) -> dict[str, Any]:
    module = "benchmarks.macro.producer_clients"
    arguments = (name, address, size, count, group, warm_count)
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr}")
    return dict(json.loads(done.stdout))


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
