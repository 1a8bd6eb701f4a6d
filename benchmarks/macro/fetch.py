"""Fetch from a broker, against a process that sends the same bytes of a file by sendfile.

The bytes are in the page cache for both, and the reader throws them away: no consumer is measured.
"""

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.load import (
    Batch,
    build_batch,
    connected,
    fetch_frame,
    produce_frame,
    receive_all,
    require_appended,
    send_all,
)
from benchmarks.macro.peers import RANGE, PeerProcess, peer
from benchmarks.measure import Bench, Cost, Figure, cost_of, interleave
from tailrace.client import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "load"
FETCH_BYTES = {"1 MB": 1024 * 1024, "50 MB": 50 * 1024 * 1024}
LOG_BYTES = 1_000_000_000
READS_PER_ROUND = 3
"""Number of times that a round reads the whole log: one to two seconds."""

PEER = "sendfile"
RECEIVE_BYTES = 1024 * 1024
ENVELOPE_BYTES_MAX = 200
"""Most bytes of an answer around its records."""


def measure_fetch(bench: Bench) -> list[Figure]:
    """Throughput and CPU seconds per GB, for both sizes of request."""
    batch = build_batch(16 * 1024)
    batch_count = bench.scaled(LOG_BYTES, quick=60_000_000) // len(batch.data)
    data = bench.directory / "data"
    bench.say(f"fetch: writing {batch_count} batches")
    figures = []
    with serving(data) as broker:
        broker.create_topic(TOPIC)
        with connected(broker.address) as channel:
            answer = send_all(channel, produce_frame(TOPIC, batch), batch_count)
        require_appended(answer, batch, batch_count)
        (log,) = (data / f"{TOPIC}-0").glob("*.log")
        with peer("source", log) as process:
            for label, bytes_max in FETCH_BYTES.items():
                batches_each = bytes_max // len(batch.data)
                fetches = batch_count // batches_each
                bench.say(f"fetch, {label}: {fetches * READS_PER_ROUND} requests a round")
                contenders: dict[str, Callable[[], Cost]] = {
                    "ours": partial(
                        _fetch, broker, batch, batches_each=batches_each, fetches=fetches
                    ),
                    "peer": partial(
                        _send_file, process, size=batches_each * len(batch.data), fetches=fetches
                    ),
                }
                found = interleave(bench, contenders)
                gigabytes = fetches * READS_PER_ROUND * batches_each * len(batch.data) / 1e9
                figures += _figures(label, found, gigabytes)
    return figures


def _figures(label: str, found: dict[str, list[Cost]], gigabytes: float) -> list[Figure]:
    return [
        Figure(
            name=f"fetch, {label} requests",
            unit="GB/s",
            ours=tuple(gigabytes / cost.seconds for cost in found["ours"]),
            peer_name=PEER,
            peer=tuple(gigabytes / cost.seconds for cost in found["peer"]),
        ),
        Figure(
            name=f"fetch, {label} requests, broker CPU",
            unit="s/GB",
            ours=tuple(cost.cpu_seconds / gigabytes for cost in found["ours"]),
            peer_name=PEER,
            peer=tuple(cost.cpu_seconds / gigabytes for cost in found["peer"]),
        ),
    ]


def _fetch(broker: BrokerProcess, batch: Batch, *, batches_each: int, fetches: int) -> Cost:
    """Read the log from its start; every answer is full, of whole batches."""
    bytes_max = batches_each * len(batch.data)
    requests = [
        fetch_frame(TOPIC, offset=number * batches_each * batch.record_count, bytes_max=bytes_max)
        for number in range(fetches)
    ] * READS_PER_ROUND
    return _receive(broker.address, broker.process_id, requests, size=bytes_max)


def _send_file(process: PeerProcess, *, size: int, fetches: int) -> Cost:
    """The same ranges of the same file."""
    requests = [RANGE.pack(number * size, size) for number in range(fetches)] * READS_PER_ROUND
    return _receive(process.address, process.process_id, requests, size=size)


def _receive(address: BrokerAddress, process_id: int, requests: list[bytes], *, size: int) -> Cost:
    """Return the cost of receiving the answers; each must hold `size` bytes and little more.

    Raises:
        AssertionError: the answers hold less or more.
    """
    buffer = bytearray(RECEIVE_BYTES)
    totals: list[int] = []
    with connected(address) as channel:
        cost = cost_of(
            process_id, lambda: totals.append(receive_all(channel, requests, buffer=buffer))
        )
    spare = totals[0] - size * len(requests)
    assert 0 <= spare <= ENVELOPE_BYTES_MAX * len(requests), totals
    return cost
