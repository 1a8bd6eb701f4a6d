"""Measures the time from a process's start to its first answer, and the memory it holds then.

The answer is to Metadata for a topic with its leader, to a client that keeps asking; what a log
says does not count. It is the second start and later ones: the first formatted the directory, made
the topic, which stays empty, and stopped in order.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka.brokers import compare, create_topic
from benchmarks.kafka.peer import Peer
from benchmarks.macro.brokers import TIMEOUT_SECONDS, serving
from benchmarks.measure import Bench, Figure, interleave, resident_bytes
from compat.kafka import Kafka
from tailrace.client import ClusterReader
from tailrace.errors import RetriableError

TOPIC = "started"
ASK_SECONDS = 0.005
"""Between two attempts of the client."""

IMPATIENT = {
    f"{what}.backoff{most}.ms": round(ASK_SECONDS * 1000)
    for what in ("retry", "reconnect")
    for most in ("", ".max")
}
"""Settings of a reader that asks again so often."""

SECONDS_AIM = 0.25
MEMORY_AIM = 0.3


class Ready(NamedTuple):
    """A broker that has answered."""

    seconds: float
    resident_mb: float


def measure_startup(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds until the answer, and MB when ready."""
    bench.say(f"start-up: {bench.rounds} of each")
    data = bench.directory / "tailrace"
    kafka = peer.kafka(bench.directory / "kafka")
    with serving(data, settings={}) as broker:
        create_topic(str(broker.address), TOPIC)
        broker.stop()
    with kafka:
        create_topic(kafka.bootstrap_servers, TOPIC)
    contenders: dict[str, Callable[[], Ready]] = {
        "ours": partial(_start_ours, data),
        "kafka": partial(_start_kafka, kafka),
    }
    found = interleave(bench, contenders)
    return [
        compare("start to first answer", "s", found, lambda ready: ready.seconds, aim=SECONDS_AIM),
        compare(
            "broker memory when ready", "MB", found, lambda ready: ready.resident_mb, aim=MEMORY_AIM
        ),
    ]


def _start_ours(data: Path) -> Ready:
    """The client begins to ask when the broker says where it listens, which costs it a little."""
    started = time.perf_counter()
    with serving(data, settings={}) as broker:
        seconds = _answered_at(lambda: str(broker.address)) - started
        resident = resident_bytes(broker.process_id)
        broker.stop()
    return Ready(seconds, resident / 1e6)


def _start_kafka(kafka: Kafka) -> Ready:
    """The client asks while Kafka starts, since its log has the line later than it answers."""
    kafka.bootstrap_servers = ""
    with ThreadPoolExecutor(max_workers=1) as pool:
        started = time.perf_counter()
        answered = pool.submit(_answered_at, lambda: kafka.bootstrap_servers)
        with kafka:
            seconds = answered.result() - started
            resident = resident_bytes(kafka.pid)
    return Ready(seconds, resident / 1e6)


def _answered_at(address: Callable[[], str]) -> float:
    """Return the time at which the topic's metadata were there; `address` is empty until known.

    Raises:
        TimeoutError: they did not come.
    """
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while time.perf_counter() < deadline:
        if address():
            with closing(ClusterReader(address(), settings=IMPATIENT)) as reader:
                try:
                    if reader.partitions([TOPIC]):
                        return time.perf_counter()
                except RetriableError:
                    pass
        time.sleep(ASK_SECONDS)
    raise TimeoutError(f"no metadata after {TIMEOUT_SECONDS} s")
