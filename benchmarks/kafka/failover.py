"""The leader is killed: how long until another broker acknowledges a record.

Both clusters have the same session timeout and the same interval of heartbeats. That timeout is
most of the time on both sides; what is left is the controller's, and how soon the new leader leads.
The heartbeats are frequent, since the time since the last one is a matter of chance.
"""

import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.kafka.brokers import compare
from benchmarks.kafka.clusters import LEADER, Cluster, both_clusters, take_turns
from benchmarks.kafka.peer import Peer
from benchmarks.measure import Bench, Figure

SESSION_MS = 3_000
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "100",
}
PARTITIONS = 100
"""Partitions whose leader is killed; a record for each is sent after that."""
WAIT_SECONDS = 60

IMPATIENT = {
    "linger.ms": 0,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 10,
}
"""Settings of a producer that asks at once for the new leader, and again soon."""

AIM = 1.0


def measure_failover(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds until the first record of a hundred partitions is acknowledged, and the last."""
    with both_clusters(bench, peer, settings=SETTINGS) as clusters:
        bench.say(f"fail-over: the leader of {PARTITIONS} partitions is killed")
        found = take_turns(bench, clusters, partial(_fail_over, bench))
    return [
        compare(
            f"fail-over to the first acknowledged record, session of {SESSION_MS / 1e3:.0f} s",
            "s", found, min, aim=AIM,
        ),
        compare(
            f"fail-over of all of {PARTITIONS} partitions, session of {SESSION_MS / 1e3:.0f} s",
            "s", found, max, aim=AIM,
        ),
    ]  # fmt: skip


def _fail_over(bench: Bench, cluster: Cluster) -> list[float]:
    """Seconds from the kill of the leader until each of the records sent after it is there."""
    partition_count = bench.scaled(PARTITIONS, quick=5)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **IMPATIENT}
    )
    acknowledged: list[float] = []

    def note(error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        acknowledged.append(time.perf_counter())

    with cluster.topic(partition_count) as topic:
        for number in range(partition_count):
            producer.produce(topic, b"before", partition=number)
        assert not producer.flush(WAIT_SECONDS)
        cluster.brokers[LEADER].kill()
        killed = time.perf_counter()
        for number in range(partition_count):
            producer.produce(topic, b"after", partition=number, on_delivery=note)
        assert not producer.flush(WAIT_SECONDS)
        # So that the topics of the next round are led by it again.
        cluster.brokers[LEADER].start()
        cluster.wait_until_in_sync(topic)
    assert len(acknowledged) == partition_count
    return [each - killed for each in acknowledged]
