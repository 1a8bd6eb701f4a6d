"""Followers: what they cost while nothing is sent, and how soon one that was away has caught up."""

import os
import shutil
import statistics
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka.brokers import compare
from benchmarks.kafka.client import Load, run_client
from benchmarks.kafka.clusters import LAST, LEADER, Cluster, both_clusters, take_turns
from benchmarks.kafka.peer import Peer
from benchmarks.measure import (
    Bench,
    Figure,
    cost_of_command,
    costs_of,
    cpu_seconds,
    peak_bytes,
    wait_until_idle,
)

IDLE_PARTITIONS = 2_000
IDLE_SECONDS = 10
IDLE_AIM = 2.0
"""Per cent of a core, of one of the three brokers."""

MISSED_BYTES = 2_000_000_000
"""Bytes that a broker misses. They have two replicas, so that a round and the copy need 6 GB."""
MISSED_PARTITIONS = 4
VALUE_BYTES = 1_000
COPY_AIM = 2.0


def measure_idle_followers(bench: Bench, peer: Peer) -> list[Figure]:
    """CPU of a broker that leads a third of 2,000 partitions, and follows the others."""
    count = bench.scaled(IDLE_PARTITIONS, quick=20)
    with both_clusters(bench, peer) as clusters:
        bench.say(f"idle followers: {count} partitions")
        ours, kafka = clusters
        with ours.topic(count, replicas=()), kafka.topic(count, replicas=()):
            for cluster in clusters:
                for each in cluster.process_ids:
                    wait_until_idle(each)
            found = take_turns(bench, clusters, partial(_idle_percent, bench))
            peaks = {
                name: [max(map(peak_bytes, cluster.process_ids)) / 1e6]
                for name, cluster in clusters._asdict().items()
            }
    name = f"{count:,} partitions with 3 replicas, without load"
    compared = compare(f"CPU of a broker of {name}", "% of a core", found, float)
    limit = Figure(
        name=f"CPU of a broker of {name}, of what it may take",
        unit=compared.unit,
        ours=compared.ours,
        peer_name="limit",
        peer=(IDLE_AIM,),
        aim=1.0,
    )
    return [compared, limit, compare(f"peak memory of a broker of {name}", "MB", peaks, float)]


def _idle_percent(bench: Bench, cluster: Cluster) -> float:
    """Per cent of a core, the mean of the three brokers."""
    seconds = bench.scaled(IDLE_SECONDS, quick=1)
    costs = costs_of(cluster.process_ids, lambda: time.sleep(seconds))
    return statistics.mean(each.cpu_seconds * 100 / each.seconds for each in costs)


class _CaughtUp(NamedTuple):
    """The cost of catching up, and of `cp` for the same bytes."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    copy_seconds: float


def measure_catch_up(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds from the start of a broker until it has what it missed, and is in sync."""
    size = bench.scaled(MISSED_BYTES, quick=10_000_000)
    name = f"catching up {size / 1e9:.3g} GB"
    with both_clusters(bench, peer) as clusters:
        bench.say(name)
        found = take_turns(bench, clusters, partial(_catch_up, bench, size=size))
    return [
        compare(name, "s", found, lambda each: each.seconds),
        Figure(
            name=f"{name}, beside a copy of the files",
            unit="s",
            ours=tuple(each.seconds for each in found["ours"]),
            peer_name="cp",
            peer=tuple(each.copy_seconds for each in found["ours"]),
            aim=COPY_AIM,
        ),
        compare(
            f"{name}, CPU of the follower", "s/GB", found,
            lambda each: each.cpu_seconds * 1e9 / size,
        ),
        compare(f"{name}, peak memory", "MB", found, lambda each: each.peak_mb),
    ]  # fmt: skip


def _catch_up(bench: Bench, cluster: Cluster, *, size: int) -> _CaughtUp:
    last = cluster.brokers[LAST]
    with cluster.topic(MISSED_PARTITIONS, replicas=(LEADER, LAST)) as topic:
        last.stop()
        load = Load(
            topic=topic,
            count=size // VALUE_BYTES,
            value_bytes=VALUE_BYTES,
            settings={"batch.size": 1_000_000, "linger.ms": 50},
        )
        run_client(
            "produce", load,
            address=cluster.bootstrap_servers, process_ids=[cluster.brokers[LEADER].pid],
        )  # fmt: skip
        # Else the next who writes waits for the writes before it.
        os.sync()
        started = time.perf_counter()
        last.start()
        cluster.wait_until_in_sync(topic)
        seconds = time.perf_counter() - started
        cpu, peak = cpu_seconds(last.pid), peak_bytes(last.pid) / 1e6
        os.sync()
        copied = _copy_seconds(cluster.brokers[LEADER].logs, topic, bench.directory / "copied")
    return _CaughtUp(seconds, cpu, peak, copied)


def _copy_seconds(logs: Path, topic: str, to: Path) -> float:
    to.mkdir()
    cost = cost_of_command(["cp", "-r", *logs.glob(f"{topic}-*"), to])
    shutil.rmtree(to)
    return cost.seconds
