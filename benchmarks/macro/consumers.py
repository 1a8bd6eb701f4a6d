"""Our consumer against other people's, in CPU time of the program that reads, and in time.

Each contender runs in a process of its own, warms up, and reads a topic of one partition from the
same broker; see `consumer_clients` for how each is used. They take turns. What is shown is time for
each record, so a ratio of 0.5 is twice the throughput.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.consumer_clients import WARM_COUNT
from benchmarks.macro.peers import ROOT
from benchmarks.macro.producers import Pair
from benchmarks.measure import Bench, Figure, interleave
from tailrace.client.producer.producer import Producer

TOPIC = "consumers"
LOG_BYTES = 160_000_000
LOG_BYTES_QUICK = 2_000_000
WRITTEN_AT_ONCE = 20_000


class Layout(NamedTuple):
    """The records of a topic, and the batches that they are in."""

    size: int
    batch: str
    has_keys: bool = False
    codec: str = "none"
    with_slow_peers: bool = False

    def __str__(self) -> str:
        found = f"{self.size} bytes, {self.batch} batches"
        found += ", keys" if self.has_keys else ""
        return found if self.codec == "none" else f"{found}, {self.codec}"


BATCH_BYTES = {"16 KB": 16 * 1024, "1 MB": 1_000_000}

LAYOUTS = (
    Layout(100, "16 KB", with_slow_peers=True),
    Layout(100, "1 MB"),
    Layout(100, "16 KB", has_keys=True),
    Layout(100, "16 KB", codec="lz4"),
    Layout(1000, "16 KB", with_slow_peers=True),
    Layout(1000, "1 MB"),
    Layout(1000, "16 KB", has_keys=True, codec="zstd"),
)

PASSES: Mapping[str, int] = {
    "poll": 1,
    "columns": 3,
    "columns-value": 3,
    "async-poll": 1,
    "async-columns": 3,
    "confluent": 1,
    "aiokafka": 1,
    "kafka-python": 1,
}
"""Number of times that a contender reads the topic: about a second, or what it takes."""

SLOW = ("aiokafka", "kafka-python")

PAIRS = (
    Pair("poll", "poll", "confluent-kafka consume", "confluent", 0.67),
    Pair("poll_columns", "columns", "confluent-kafka consume", "confluent", 0.125),
    Pair("poll_columns of values", "columns-value", "confluent-kafka consume", "confluent"),
    Pair("AsyncConsumer.poll", "async-poll", "Consumer.poll", "poll", 1.25),
    Pair("AsyncConsumer.poll_columns", "async-columns", "Consumer.poll_columns", "columns", 1.25),
    Pair("poll", "poll", "kafka-python poll", "kafka-python"),
    Pair("AsyncConsumer.poll", "async-poll", "aiokafka getmany", "aiokafka"),
)


def measure_consumers(bench: Bench) -> list[Figure]:
    """Time and CPU time for each record, as rows and as columns."""
    return [
        figure
        for layout in LAYOUTS
        for figure in measure_layout(
            bench,
            layout,
            names=[each for each in PASSES if layout.with_slow_peers or each not in SLOW],
        )
    ]


def measure_layout(
    bench: Bench, layout: Layout, *, names: Sequence[str], warm_count: int = WARM_COUNT
) -> list[Figure]:
    """Time and CPU time for each record of a topic; contenders by name, as in `PASSES`.

    Where the first record counts (`warm_count` is 0), each reads the topic once.
    """
    bench.say(f"consumers, {layout}")
    size = bench.scaled(LOG_BYTES, quick=LOG_BYTES_QUICK)
    count = max(1, size // layout.size // WRITTEN_AT_ONCE) * WRITTEN_AT_ONCE
    # A comma separates the directories of a broker.
    with serving(bench.directory / str(layout).replace(", ", "-")) as broker:
        broker.create_topic(TOPIC)
        _fill(broker, layout, count)
        work = partial(_run, broker, layout=layout, count=count, warm_count=warm_count)
        found = interleave(bench, {each: partial(work, each) for each in names})
        broker.delete_topic(TOPIC)
    return list(_figures(layout, found))


def _fill(broker: BrokerProcess, layout: Layout, count: int) -> None:
    """Write records whose values compress to about a half, as JSON often does."""
    chance = Random(0)
    values = [
        chance.randbytes(layout.size // 2).hex().encode()[: layout.size]
        for _ in range(WRITTEN_AT_ONCE)
    ]
    table = {"value": pa.array(values, pa.binary())}
    if layout.has_keys:
        keys = [b"user-%08d" % number for number in range(WRITTEN_AT_ONCE)]
        table["key"] = pa.array(keys, pa.binary())
    with Producer(
        {"compression.type": layout.codec},
        bootstrap_servers=str(broker.address),
        batch_size=BATCH_BYTES[layout.batch],
        linger_ms=50,
    ) as producer:
        for _ in range(count // WRITTEN_AT_ONCE):
            summary = producer.send_many(TOPIC, pa.table(table))
            assert summary.acknowledged_count == WRITTEN_AT_ONCE, summary


def _figures(layout: Layout, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Figure]:
    for pair, (field, suffix) in product(PAIRS, (("cpu_seconds", ", CPU"), ("seconds", ""))):
        if pair.ours in found and pair.peer in found:
            yield Figure(
                name=f"{pair.name}, {layout}{suffix}",
                unit="us/record",
                ours=tuple(each[field] * 1e6 for each in found[pair.ours]),
                peer_name=pair.peer_name,
                peer=tuple(each[field] * 1e6 for each in found[pair.peer]),
                aim=pair.aim if suffix else None,
            )


def _run(
    broker: BrokerProcess, name: str, *, layout: Layout, count: int, warm_count: int
) -> dict[str, Any]:
    """Run one contender, and return its results."""
    module = "benchmarks.macro.consumer_clients"
    passes = PASSES[name] if warm_count else 1
    arguments = (name, broker.address, TOPIC, count, passes, warm_count)
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr}")
    found = dict(json.loads(done.stdout))
    assert found["bytes"] == count * layout.size, (name, found)
    return found
