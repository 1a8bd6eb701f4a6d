"""Measures a broker's start-up time and memory against the limits that were set for them."""

from benchmarks.macro.brokers import serving
from benchmarks.macro.load import build_batch, produce_frame
from benchmarks.macro.produce import TOPIC, produce_batches
from benchmarks.measure import Bench, Figure, interleave, resident_bytes
from tailrace.demo.flights import TopicRecords, load_tables, topic_records
from tailrace.demo.produce import end_offsets, produce

READY_SECONDS_LIMIT = 0.4
RESIDENT_MB_LIMIT = 160.0
STARTS = 10
SMALLEST_TOPIC = "planes"
TRAFFIC_BYTES = 6_000_000_000
TRAFFIC_ROUNDS = 6
"""Topics that the traffic goes to, one after the other; each is deleted before the next."""


def measure_startup(bench: Bench) -> list[Figure]:
    """Seconds from the start of the process, and MB when it is ready."""
    starts = bench.scaled(STARTS, quick=1)
    bench.say(f"start-up: {starts} brokers")
    found = [_start(bench, number) for number in range(starts)]
    return [
        Figure(
            name="broker ready",
            unit="s",
            ours=tuple(seconds for seconds, _ in found),
            peer_name="limit",
            peer=(READY_SECONDS_LIMIT,),
        ),
        _resident_figure("when ready", [megabytes for _, megabytes in found]),
    ]


def measure_memory(bench: Bench) -> list[Figure]:
    """MB of a new broker after every record of the demo, and of one after 6 GB of traffic."""
    bench.say("memory: reading the demo's tables")
    topics = topic_records(load_tables())
    if bench.is_quick:
        topics = [records for records in topics if records.topic == SMALLEST_TOPIC]
    total = sum(len(records.keys) for records in topics)
    bench.say(f"memory: {total} records into {bench.rounds} brokers")
    numbers = iter(range(bench.rounds))
    found = interleave(
        bench, {"resident": lambda: _resident_after_demo(bench, topics, next(numbers))}
    )
    figures = [_resident_figure(f"after the demo's {total:,} records", found["resident"])]
    if not bench.is_quick:
        figures.append(_resident_figure("after 6 GB of traffic", [resident_after_traffic(bench)]))
    return figures


def _start(bench: Bench, number: int) -> tuple[float, float]:
    with serving(bench.directory / f"start-{number}", settings={}) as broker:
        return broker.ready_seconds, resident_bytes(broker.process_id) / 1e6


def _resident_after_demo(bench: Bench, topics: list[TopicRecords], number: int) -> float:
    with serving(bench.directory / f"demo-{number}", settings={}) as broker:
        address = str(broker.address)
        for records in topics:
            present = end_offsets(records, bootstrap_servers=address)
            produce(
                records, bootstrap_servers=address, present=present, progress=lambda _count: None
            )
        return resident_bytes(broker.process_id) / 1e6


def resident_after_traffic(bench: Bench) -> float:
    """Return the memory in MB of a broker that took `TRAFFIC_BYTES`."""
    batch = build_batch(1024 * 1024)
    frame = produce_frame(TOPIC, batch)
    with serving(bench.directory / "traffic") as broker:
        for _ in range(TRAFFIC_ROUNDS):
            batch_count = TRAFFIC_BYTES // TRAFFIC_ROUNDS // len(batch.data)
            produce_batches(broker, frame, batch=batch, batch_count=batch_count)
        return resident_bytes(broker.process_id) / 1e6


def _resident_figure(when: str, megabytes: list[float]) -> Figure:
    return Figure(
        name=f"broker memory {when}",
        unit="MB",
        ours=tuple(megabytes),
        peer_name="limit",
        peer=(RESIDENT_MB_LIMIT,),
    )
