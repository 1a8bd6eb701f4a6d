"""Produce into a broker, against a process that writes the same bytes to a file, and no more."""

import socket
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.load import (
    Batch,
    build_batch,
    connected,
    produce_frame,
    require_appended,
    send_all,
)
from benchmarks.macro.peers import PeerProcess, peer
from benchmarks.measure import Bench, Cost, Figure, cost_of, interleave

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "load"
BATCH_BYTES = {"16 KB": 16 * 1024, "1 MB": 1024 * 1024}
BYTES_PER_ROUND = {"16 KB": 500_000_000, "1 MB": 1_500_000_000}
"""Less in small batches, which take longer: a round is one to three seconds."""

PEER = "recv, write, ack"


def measure_produce(bench: Bench) -> list[Figure]:
    """Throughput and CPU seconds per GB, for both sizes of batch."""
    return [figure for label in BATCH_BYTES for figure in _measure_size(bench, label)]


def _measure_size(bench: Bench, label: str) -> list[Figure]:
    batch = build_batch(BATCH_BYTES[label])
    size = len(batch.data)
    batch_count = bench.scaled(BYTES_PER_ROUND[label] // size, quick=8_000_000 // size)
    frame = produce_frame(TOPIC, batch)
    sink = bench.directory / "sink.log"
    records_at = frame.index(batch.data)
    bench.say(f"produce, {label} batches: {batch_count} a round")
    with (
        serving(bench.directory / f"produce-{size}") as broker,
        peer("sink", sink, len(frame), records_at, size) as process,
    ):
        contenders: dict[str, Callable[[], Cost]] = {
            "broker": partial(produce_batches, broker, frame, batch=batch, batch_count=batch_count),
            "peer": partial(_sink, process, frame, batch_count),
        }
        found = interleave(bench, contenders)
    return _figures(
        f"{label} batches", found["broker"], batch_count * size / 1e9, peers=found["peer"]
    )


def _figures(name: str, costs: list[Cost], gigabytes: float, *, peers: list[Cost]) -> list[Figure]:
    return [
        Figure(
            name=f"produce, {name}",
            unit="GB/s",
            ours=tuple(gigabytes / cost.seconds for cost in costs),
            peer_name=PEER,
            peer=tuple(gigabytes / cost.seconds for cost in peers),
        ),
        Figure(
            name=f"produce, {name}, broker CPU",
            unit="s/GB",
            ours=tuple(cost.cpu_seconds / gigabytes for cost in costs),
            peer_name=PEER,
            peer=tuple(cost.cpu_seconds / gigabytes for cost in peers),
        ),
    ]


def produce_batches(broker: BrokerProcess, frame: bytes, *, batch: Batch, batch_count: int) -> Cost:
    """The same batch into a new topic, which is removed after; every answer is awaited."""
    broker.create_topic(TOPIC)
    answers: list[bytes] = []
    with connected(broker.address) as channel:
        cost = cost_of(
            broker.process_id, lambda: answers.append(send_all(channel, frame, batch_count))
        )
    require_appended(answers[0], batch, batch_count)
    broker.delete_topic(TOPIC)
    return cost


def _sink(process: PeerProcess, frame: bytes, frame_count: int) -> Cost:
    with connected(process.address) as channel:
        cost = cost_of(process.process_id, lambda: send_all(channel, frame, frame_count))
        # The peer removes its file now and then closes; the next round is not to wait for that.
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(1) == b""
    return cost
