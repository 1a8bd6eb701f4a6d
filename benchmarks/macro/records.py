"""Our `send` of records of each kind against other people's, in time and in CPU time.

A kind is what a record has besides its value: a key of its own, a header, a callback, a partition;
or its value is text. Each contender runs in a process of its own and sends to a new topic of four
partitions on the same broker; they take turns.
"""

import json
import subprocess
import sys
from functools import partial
from itertools import product
from typing import Any

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.peers import ROOT
from benchmarks.macro.produce import load_kernels
from benchmarks.macro.record_clients import KINDS, PARTITIONS, TOPIC
from benchmarks.measure import Bench, Figure, interleave

SIZES = (100, 1_000)
COUNTS = {"ours": 300_000, "confluent-kafka": 300_000, "kafka-python": 30_000, "aiokafka": 30_000}
"""Records of 100 bytes in a round; a quarter as many of 1,000 bytes."""
COUNT_QUICK = 3_000
AIMS = {"key": 0.67, "callback": 0.8, "header": 0.8}
"""Ratios to confluent-kafka to reach, for each kind that has one."""


def measure_records(bench: Bench) -> list[Figure]:
    """Time and CPU time per record of each kind, against three other clients."""
    figures: list[Figure] = []
    with serving(bench.directory / "records") as broker:
        if not bench.is_quick:
            load_kernels(broker)
        for size, kind in product(SIZES, KINDS):
            bench.say(f"records of {size} bytes with {kind}: {len(COUNTS)} clients")
            figures += _measure_kind(bench, broker, kind, size)
    return figures


def _measure_kind(bench: Bench, broker: BrokerProcess, kind: str, size: int) -> list[Figure]:
    counts = {
        client: bench.scaled(count if size == SIZES[0] else count // 4, quick=COUNT_QUICK)
        for client, count in COUNTS.items()
    }
    found = interleave(
        bench,
        {
            client: partial(_run, broker, kind, client, size=size, count=count)
            for client, count in counts.items()
        },
    )
    return [
        Figure(
            name=f"send with {kind}, {size} bytes{suffix}",
            unit="us/record",
            ours=tuple(each[field] / counts["ours"] * 1e6 for each in found["ours"]),
            peer_name=peer,
            peer=tuple(each[field] / counts[peer] * 1e6 for each in found[peer]),
            aim=AIMS.get(kind) if peer == "confluent-kafka" else None,
        )
        for peer in counts
        if peer != "ours"
        for field, suffix in (("seconds", ""), ("cpu_seconds", ", CPU"))
    ]


def _run(broker: BrokerProcess, kind: str, client: str, *, size: int, count: int) -> dict[str, Any]:
    """Run one client on a topic of its own, and return its results."""
    broker.create_topic(TOPIC, partition_count=PARTITIONS)
    module = "benchmarks.macro.record_clients"
    given = (kind, client, broker.address, size, count)
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, given)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise RuntimeError(f"{client} failed with records of the kind {kind}: {done.stderr}")
    broker.delete_topic(TOPIC)
    return dict(json.loads(done.stdout))
