"""Our `send` of records of each kind against other people's, in time and in CPU time.

A kind is what a record has besides its value: a key of its own, a header, a callback, a partition;
or its value is text. Each contender runs in a process of its own and sends to a new topic of four
partitions on the same broker; they take turns.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, Protocol

from benchmarks.macro.brokers import serving
from benchmarks.macro.peers import ROOT
from benchmarks.macro.producer_clients import WARM_COUNT
from benchmarks.macro.record_clients import KINDS, PARTITIONS, TOPIC
from benchmarks.measure import Bench, Figure, interleave
from tailrace.client import BrokerAddress

SIZES = (100, 1_000)
COUNTS = {"ours": 300_000, "confluent-kafka": 300_000, "kafka-python": 30_000, "aiokafka": 30_000}
"""Records of 100 bytes in a round; a quarter as many of 1,000 bytes."""
COUNT_QUICK = 3_000

AIMS = {"key": 0.67, "callback": 0.8, "header": 0.8}
"""Ratios to confluent-kafka to reach, for each kind that has one."""
OTHER_WAYS = {
    "ours-without-receipts": ("send without receipts", 0.5),
    "ours-of-arrow": ("send_many of Arrow", 0.125),
}
"""Our other ways to send records with keys, and the ratio of each to confluent-kafka's produce."""


class Target(Protocol):
    """The broker that all clients send to."""

    @property
    def address(self) -> BrokerAddress:
        """The address that it listens at."""
        ...

    def create_topic(self, name: str, *, partition_count: int) -> None:
        """Make a topic."""
        ...

    def delete_topic(self, name: str) -> None:
        """Remove a topic."""
        ...


def measure_records(bench: Bench) -> list[Figure]:
    """Time and CPU time per record of each kind, against three other clients."""
    figures: list[Figure] = []
    with serving(bench.directory / "records") as broker:
        for size, kind in product(SIZES, KINDS):
            figures += measure_kind(bench, broker, kind, size=size, clients=tuple(COUNTS))
    return figures


def measure_kind(
    bench: Bench,
    broker: Target,
    kind: str,
    *,
    size: int,
    clients: Sequence[str],
    warm_count: int = WARM_COUNT,
) -> list[Figure]:
    """Time and CPU time per record of one kind and size; the first of `clients` is ours."""
    bench.say(f"records of {size} bytes with {kind}: {len(clients)} clients")
    others = OTHER_WAYS if kind == "key" else {}
    counts = {
        client: bench.scaled(
            COUNTS.get(client, COUNTS["ours"]) // (1 if size == SIZES[0] else 4), quick=COUNT_QUICK
        )
        for client in (*clients, *others)
    }
    found = interleave(
        bench,
        {
            client: partial(
                run_client, broker, kind, client, size=size, count=count, warm_count=warm_count
            )
            for client, count in counts.items()
        },
    )
    compared = [("ours", peer, f"send with {kind}") for peer in clients[1:]]
    aims = {f"send with {kind}": AIMS.get(kind)}
    for client, (name, aim) in others.items():
        compared.append((client, "confluent-kafka", f"{name} with {kind}"))
        aims[f"{name} with {kind}"] = aim
    return [
        Figure(
            name=f"{name}, {size} bytes{suffix}",
            unit="us/record",
            ours=tuple(each[field] / counts[client] * 1e6 for each in found[client]),
            peer_name=peer,
            peer=tuple(each[field] / counts[peer] * 1e6 for each in found[peer]),
            aim=aims[name] if peer == "confluent-kafka" else None,
        )
        for client, peer, name in compared
        for field, suffix in (("seconds", ""), ("cpu_seconds", ", CPU"))
    ]


def run_client(
    broker: Target, kind: str, client: str, *, size: int, count: int, warm_count: int
) -> dict[str, Any]:
    """Run one client on a topic of its own, and return its results."""
    broker.create_topic(TOPIC, partition_count=PARTITIONS)
    module = "benchmarks.macro.record_clients"
    given = (kind, client, broker.address, size, count, warm_count)
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
