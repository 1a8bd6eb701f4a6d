"""One record of 100 B at a time, acks 1, one request on its way: how long its answer takes.

On the wire with a prebuilt frame and a blocking socket, and as a program with librdkafka has it.
So many requests come first on each broker that the JVM has compiled what they run through.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

from benchmarks.kafka.brokers import Broker, both, compare, take_turns
from benchmarks.kafka.client import Load, run_client
from benchmarks.kafka.peer import Peer
from benchmarks.macro.load import (
    VALUE_BYTES,
    build_batch,
    connected,
    produce_frame,
    require_appended,
    send_all,
)
from benchmarks.measure import Bench, Figure

REQUESTS = 10_000
WARM_UP_REQUESTS = 30_000
FLUSHES = 2_000
ONE_RECORD_BYTES = 180
"""Room for a batch of one record, not of two."""

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
AIM = 0.7
"""For the median on the wire."""


def measure_latency(bench: Bench, peer: Peer) -> list[Figure]:
    """Quantiles of the answer's time on the wire, and librdkafka's median of produce and flush."""
    requests = bench.scaled(REQUESTS, quick=1_000)
    flushes = bench.scaled(FLUSHES, quick=100)
    numbers = count()
    with both(bench, peer) as brokers:
        bench.say("latency: warming up")
        warm_up = bench.scaled(WARM_UP_REQUESTS, quick=100)
        for broker in brokers:
            _answers_ms(broker, numbers=numbers, requests=warm_up)
        bench.say(f"latency: {requests} requests a round")
        answers = take_turns(
            bench, brokers, partial(_answers_ms, numbers=numbers, requests=requests)
        )
        bench.say(f"latency: {flushes} flushes of librdkafka a round")
        flushed = take_turns(bench, brokers, partial(_flush_ms, numbers=numbers, flushes=flushes))
    figures = [
        compare(
            f"produce of one record, answer, {name}",
            "ms",
            answers,
            partial(_quantile, quantile),
            aim=AIM if name == "p50" else None,
        )
        for name, quantile in QUANTILES.items()
    ]
    name = "produce of one record, librdkafka's produce and flush, p50"
    return [*figures, compare(name, "ms", flushed, float)]


def _answers_ms(broker: Broker, *, numbers: Iterator[int], requests: int) -> list[float]:
    """Milliseconds of each request, in order of size."""
    topic = f"latency-{next(numbers)}"
    broker.create_topic(topic)
    batch = build_batch(ONE_RECORD_BYTES)
    assert batch.record_count == 1, batch
    frame = produce_frame(topic, batch)
    found = []
    with connected(broker.address) as channel:
        answer = bytearray(send_all(channel, frame, 1))
        for _ in range(requests):
            started = time.perf_counter_ns()
            channel.sendall(frame)
            channel.recv_into(answer, len(answer), socket.MSG_WAITALL)
            found.append((time.perf_counter_ns() - started) / 1e6)
    require_appended(bytes(answer), batch, requests + 1)
    broker.delete_topic(topic)
    return sorted(found)


def _flush_ms(broker: Broker, *, numbers: Iterator[int], flushes: int) -> float:
    """The median of one client's run."""
    topic = f"latency-{next(numbers)}"
    broker.create_topic(topic)
    load = Load(
        topic=topic, count=flushes, value_bytes=VALUE_BYTES, settings={"acks": 1, "linger.ms": 0}
    )
    run = run_client("flush", load, address=broker.address, process_ids=[broker.process_id])
    broker.delete_topic(topic)
    return run.counted["median_seconds"] * 1e3


def _quantile(quantile: float, ordered: Sequence[float]) -> float:
    return ordered[int(quantile * len(ordered))]
