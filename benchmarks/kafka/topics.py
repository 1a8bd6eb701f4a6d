"""New topics: the time until one is created, and that of a hundred in a request.

Each has one partition. What is measured ends with the controller's answer: the topic is in the
metadata log then, on the device with us and in the page cache with Kafka. Both make the files of
its log afterwards; a part begins when the broker has done that. Topics stay, because file systems
without a journal search through files that were deleted lately for each new one.
"""

import statistics
import time
from functools import partial
from itertools import count
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.brokers import Broker, both, compare, take_turns
from benchmarks.kafka.peer import Peer
from benchmarks.measure import Bench, Cost, Figure, cost_of, wait_until_idle

ONE_BY_ONE = 100
"""Topics of a round that are created one after the other."""
TOGETHER = 100
REQUESTS = 3
TIMEOUT_SECONDS = 120
LATENCY_AIM = 0.7
RATE_AIM = 1 / 1.5
"""For the time of a topic: 1.5 times as many topics in a second."""


class Round(NamedTuple):
    """The times of one broker for the topics of a round."""

    one_by_one: list[float]
    """Seconds of each."""
    together: Cost


def measure_topics(bench: Bench, peer: Peer) -> list[Figure]:
    """The latency of a topic, and the time and CPU of each of many."""
    names = count()
    with both(bench, peer) as brokers:
        bench.say("topics: created one by one and a hundred together")
        run = partial(_run, bench, names=names)
        for broker in brokers:
            run(broker)
        found = take_turns(bench, brokers, run)
    each = bench.scaled(TOGETHER, quick=5) * REQUESTS
    return [
        compare(
            "create one topic, p50", "ms", found,
            lambda one: statistics.median(one.one_by_one) * 1000, aim=LATENCY_AIM,
        ),
        compare(
            "create topics, 100 in a request", "ms/topic", found,
            lambda one: one.together.seconds * 1000 / each, aim=RATE_AIM,
        ),
        compare(
            "create topics, 100 in a request, CPU", "ms/topic", found,
            lambda one: one.together.cpu_seconds * 1000 / each,
        ),
    ]  # fmt: skip


def _run(bench: Bench, broker: Broker, *, names: "count[int]") -> Round:
    admin = AdminClient({"bootstrap.servers": str(broker.address), "log_level": 0})

    def create(number: int) -> None:
        topics = [NewTopic(f"made-{next(names)}", 1, 1) for _ in range(number)]
        for future in admin.create_topics(topics, request_timeout=TIMEOUT_SECONDS).values():
            future.result()

    seconds = []
    for _ in range(bench.scaled(ONE_BY_ONE, quick=3)):
        started = time.perf_counter()
        create(1)
        seconds.append(time.perf_counter() - started)

    def create_many() -> None:
        for _ in range(REQUESTS):
            create(bench.scaled(TOGETHER, quick=5))

    wait_until_idle(broker.process_id)
    together = cost_of(broker.process_id, create_many)
    wait_until_idle(broker.process_id)
    return Round(seconds, together)
