"""Records with three replicas: what they take until all are in sync, of whom, and how long.

One broker leads every partition and the two others follow it, so that the CPU of leading and of
following are told apart; a follower's is the mean of the two. acks=all throughout: a record is
acknowledged when all three brokers have it. A GB is one of values, and is stored three times.

A round of each load on each cluster is thrown away.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.kafka.brokers import compare
from benchmarks.kafka.client import Load, Run, run_client
from benchmarks.kafka.clusters import IDS, LEADER, Cluster, Clusters, both_clusters, take_turns
from benchmarks.kafka.peer import Peer
from benchmarks.measure import Bench, Figure, peak_bytes

PARTITIONS = 4
VALUE_BYTES = 1_000
BYTES_PER_ROUND = 200_000_000
BATCHES: Mapping[str, Mapping[str, object]] = {
    "16 KB": {"batch.size": 16 * 1024, "linger.ms": 50},
    "1 MB": {"batch.size": 1_000_000, "linger.ms": 50},
}
CLIENTS = {"librdkafka": "produce", "Tailrace's producer": "produce-ours"}
WAITING_CLIENTS = {"librdkafka": "flush", "Tailrace's producer": "flush-ours"}
AWAITED = 1_000
"""Records that are sent one at a time, each when the one before is acknowledged."""
MESSAGES = 1_000
"""Records that are sent one at a time to a consumer that waits."""
LATENCY_BYTES = 100
WAIT_SECONDS = 60

FOLLOWER_AIM = 0.6
"""For the CPU of a follower, of Kafka's and of our own leader's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """CPU seconds for a GB, and MB in a second."""

    rate: float
    leader: float
    follower: float


def measure_replicas(bench: Bench, peer: Peer) -> list[Figure]:
    """Rate, CPU of the leader and of a follower, latency, and the most memory that each took."""
    with both_clusters(bench, peer) as clusters:
        return [
            *_measure_traffic(bench, clusters),
            *_measure_answers(bench, clusters),
            *_measure_delays(bench, clusters),
            *_measure_memory(clusters),
        ]


def _measure_traffic(bench: Bench, clusters: Clusters) -> Sequence[Figure]:
    figures = []
    for client, kind in CLIENTS.items():
        for label, settings in BATCHES.items():
            name = f"{client}, {label} batches"
            bench.say(f"replicas: {name}")
            run = partial(_run, bench, kind=kind, settings=settings)
            for cluster in clusters:
                run(cluster)
            found = take_turns(bench, clusters, run)
            figures += _traffic_figures(name, found)
            if kind == "produce":
                alone = take_turns(bench, clusters, partial(run, replicas=(LEADER,)))
                figures.append(
                    _beside_own(
                        f"CPU of a follower beside the leader's without followers, {name}",
                        found["ours"],
                        [each.leader for each in alone["ours"]],
                    )
                )
    return figures


def _run(
    bench: Bench,
    cluster: Cluster,
    *,
    kind: str,
    settings: Mapping[str, object],
    replicas: tuple[int, ...] = IDS,
) -> _Round:
    total = bench.scaled(BYTES_PER_ROUND, quick=1_000_000)
    with cluster.topic(PARTITIONS, replicas=replicas) as topic:
        load = Load(
            topic=topic, count=total // VALUE_BYTES, value_bytes=VALUE_BYTES, settings=settings
        )
        run = run_client(
            kind, load, address=cluster.bootstrap_servers, process_ids=cluster.process_ids
        )
    leader, *followers = (each.cpu_seconds * 1e9 / total for each in run.costs)
    return _Round(
        rate=total / 1e6 / run.cost.seconds, leader=leader, follower=statistics.mean(followers)
    )


def _traffic_figures(name: str, found: Mapping[str, Sequence[_Round]]) -> list[Figure]:
    return [
        compare(f"3 replicas, acks=all, {name}", "MB/s", found, lambda run: run.rate),
        compare(f"CPU of the leader, {name}", "s/GB", found, lambda run: run.leader),
        compare(
            f"CPU of a follower, {name}", "s/GB", found, lambda run: run.follower,
            aim=FOLLOWER_AIM,
        ),
        _beside_own(
            f"CPU of a follower beside its leader's, {name}",
            found["ours"],
            [each.leader for each in found["ours"]],
            aim=FOLLOWER_AIM,
        ),
    ]  # fmt: skip


def _beside_own(
    name: str, rounds: Sequence[_Round], leader: Sequence[float], *, aim: float | None = None
) -> Figure:
    """A comparison of our follower with our own leader."""
    return Figure(
        name=name,
        unit="s/GB",
        ours=tuple(each.follower for each in rounds),
        peer_name="Tailrace's leader",
        peer=tuple(leader),
        aim=aim,
    )


def _measure_answers(bench: Bench, clusters: Clusters) -> Sequence[Figure]:
    figures = []
    for client, kind in WAITING_CLIENTS.items():
        bench.say(f"replicas: one record at a time, {client}")
        wait = partial(_wait, bench, kind=kind)
        for cluster in clusters:
            wait(cluster)
        found = take_turns(bench, clusters, wait)
        figures += [
            compare(
                f"one record, 3 replicas, acks=all, {client}, {quantile}",
                "ms",
                found,
                partial(_milliseconds, f"{quantile}_seconds"),
            )
            for quantile in ("median", "p99")
        ]
    return figures


def _wait(bench: Bench, cluster: Cluster, *, kind: str) -> Run:
    with cluster.topic() as topic:
        load = Load(
            topic=topic,
            count=bench.scaled(AWAITED, quick=20),
            value_bytes=LATENCY_BYTES,
            settings={"linger.ms": 0},
        )
        return run_client(
            kind, load, address=cluster.bootstrap_servers, process_ids=cluster.process_ids
        )


def _milliseconds(name: str, run: Run) -> float:
    return run.counted[name] * 1e3


def _measure_delays(bench: Bench, clusters: Clusters) -> Sequence[Figure]:
    bench.say("replicas: from send to poll")
    run = partial(_delays_ms, bench)
    for cluster in clusters:
        run(cluster)
    found = take_turns(bench, clusters, run)
    quantiles: Mapping[str, Callable[[Sequence[float]], float]] = {
        "p50": statistics.median,
        "p99": lambda delays: sorted(delays)[int(0.99 * len(delays))],
    }
    return [
        compare(f"from send to poll, 3 replicas, acks=all, {name}", "ms", found, quantile)
        for name, quantile in quantiles.items()
    ]


def _delays_ms(bench: Bench, cluster: Cluster) -> Sequence[float]:
    """The time of each record from its send until the consumer has it: until all replicas do."""
    address = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer({**address, "linger.ms": 0})
    consumer = Consumer({**address, "group.id": "delays", "enable.auto.commit": False})
    found = []
    with cluster.topic() as topic, closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        # The first finds the leader.
        for number in range(bench.scaled(MESSAGES, quick=20) + 1):
            started = time.perf_counter()
            producer.produce(topic, bytes(LATENCY_BYTES), partition=0)
            producer.poll(0)
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            if number:
                found.append((time.perf_counter() - started) * 1e3)
        producer.flush(WAIT_SECONDS)
    return found


def _measure_memory(clusters: Clusters) -> Sequence[Figure]:
    """The most that each broker has had in all of this stage."""
    peaks = {
        name: [[peak_bytes(each) / 1e6 for each in cluster.process_ids]]
        for name, cluster in clusters._asdict().items()
    }
    return [
        compare("peak memory of the leader", "MB", peaks, lambda found: found[0]),
        compare("peak memory of a follower", "MB", peaks, lambda found: max(found[1:])),
    ]
