"""Produce into a broker, against a process that writes the same bytes to a file and nothing else.

The record walk is measured in both its forms: in plain Python, as in a broker that has just been
started, and compiled, as in one that has taken two million records.
"""

import socket
from functools import partial
from itertools import count
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
from tailrace.kernels.kernel import WORTH_LOADING_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "load"
BATCH_BYTES = {"16 KB": 16 * 1024, "1 MB": 1024 * 1024}
BYTES_PER_ROUND = {"16 KB": 500_000_000, "1 MB": 1_500_000_000}
"""Less in small batches, which take longer: a round is one to three seconds."""

PLAIN_RECORDS = WORTH_LOADING_RECORDS // 2
"""Half of what makes a broker load its kernels, so that a round stays in plain code."""

PEER = "recv, write, ack"


def measure_produce(bench: Bench) -> list[Figure]:
    """Throughput and CPU seconds per GB, for both sizes of batch and both forms of the walk."""
    return [figure for label in BATCH_BYTES for figure in _measure_size(bench, label)]


def _measure_size(bench: Bench, label: str) -> list[Figure]:
    batch = build_batch(BATCH_BYTES[label])
    size = len(batch.data)
    batch_count = bench.scaled(BYTES_PER_ROUND[label] // size, quick=8_000_000 // size)
    plain_count = bench.scaled(PLAIN_RECORDS, quick=50_000) // batch.record_count
    frame = produce_frame(TOPIC, batch)
    sink = bench.directory / "sink.log"
    records_at = frame.index(batch.data)
    bench.say(f"produce, {label} batches: {batch_count} compiled and {plain_count} plain a round")
    with (
        serving(bench.directory / f"compiled-{size}") as broker,
        peer("sink", sink, len(frame), records_at, size) as process,
    ):
        if not bench.is_quick:
            load_kernels(broker)
        numbers = count()
        contenders: dict[str, Callable[[], Cost]] = {
            "compiled": partial(_produce, broker, frame, batch=batch, batch_count=batch_count),
            "peer": partial(_sink, process, frame, batch_count),
            "plain": lambda: _produce_to_new_broker(
                bench, frame, name=f"plain-{size}-{next(numbers)}", batch=batch,
                batch_count=plain_count,
            ),
        }  # fmt: skip
        found = interleave(bench, contenders)
    compiled_gb, plain_gb = batch_count * size / 1e9, plain_count * size / 1e9
    peers = found["peer"]
    return [
        *_figures(f"{label} batches, compiled walk", found["compiled"], compiled_gb,
                  peers=peers, peer_gb=compiled_gb),
        *_figures(f"{label} batches, plain walk", found["plain"], plain_gb,
                  peers=peers, peer_gb=compiled_gb),
    ]  # fmt: skip


def _figures(
    name: str, costs: list[Cost], gigabytes: float, *, peers: list[Cost], peer_gb: float
) -> list[Figure]:
    return [
        Figure(
            name=f"produce, {name}",
            unit="GB/s",
            ours=tuple(gigabytes / cost.seconds for cost in costs),
            peer_name=PEER,
            peer=tuple(peer_gb / cost.seconds for cost in peers),
        ),
        Figure(
            name=f"produce, {name}, broker CPU",
            unit="s/GB",
            ours=tuple(cost.cpu_seconds / gigabytes for cost in costs),
            peer_name=PEER,
            peer=tuple(cost.cpu_seconds / peer_gb for cost in peers),
        ),
    ]


def load_kernels(broker: BrokerProcess) -> None:
    """Send what makes the broker load its kernels, and wait until it has."""
    batch = build_batch(BATCH_BYTES["1 MB"])
    batch_count = WORTH_LOADING_RECORDS // batch.record_count + 1
    _produce(broker, produce_frame(TOPIC, batch), batch=batch, batch_count=batch_count)
    broker.wait_for_kernels()


def _produce(broker: BrokerProcess, frame: bytes, *, batch: Batch, batch_count: int) -> Cost:
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


def _produce_to_new_broker(
    bench: Bench, frame: bytes, *, name: str, batch: Batch, batch_count: int
) -> Cost:
    with serving(bench.directory / name) as broker:
        cost = _produce(broker, frame, batch=batch, batch_count=batch_count)
        assert "kernels_loaded" not in broker.log.read_text()
    return cost


def _sink(process: PeerProcess, frame: bytes, frame_count: int) -> Cost:
    with connected(process.address) as channel:
        cost = cost_of(process.process_id, lambda: send_all(channel, frame, frame_count))
        # The peer removes its file now and then closes; the next round is not to wait for that.
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(1) == b""
    return cost
