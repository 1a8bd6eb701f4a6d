"""`make bench-kafka`: Apache Kafka and Tailrace in turn on this machine, as one table of ratios.

    python -m benchmarks.kafka.run [--only STAGE ...] [--quick]

From the root of the checkout. A full run writes `benchmarks/results/local/<commit>-kafka.json`; a
stage that fails ends it, and the next run goes on there. One with `--only` or `--quick` just shows
the table. Exit code 2 if Kafka cannot be had.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import confluent_kafka

from benchmarks.kafka.directories import measure_compaction, measure_dump, measure_recovery
from benchmarks.kafka.exactly_once import measure_exactly_once
from benchmarks.kafka.latency import measure_latency
from benchmarks.kafka.peer import Peer
from benchmarks.kafka.raw import measure_raw
from benchmarks.kafka.records import measure_records
from benchmarks.kafka.requests import measure_requests
from benchmarks.kafka.spark import measure_spark
from benchmarks.kafka.startup import measure_startup
from benchmarks.kafka.tool import measure_tool
from benchmarks.kafka.topics import measure_topics
from benchmarks.kafka.traffic import measure_traffic
from benchmarks.measure import Bench, Figure
from benchmarks.report import checkout_name, comparison, write_results
from benchmarks.stages import FinishedStages, Stage, run_stages
from compat.artifacts import KAFKA
from tailrace.errors import FatalError

STAGES: dict[str, Callable[[Bench, Peer], list[Figure]]] = {
    "startup": measure_startup,
    "traffic": measure_traffic,
    "raw": measure_raw,
    "requests": measure_requests,
    "tool": measure_tool,
    "latency": measure_latency,
    "records": measure_records,
    "topics": measure_topics,
    "recovery": measure_recovery,
    "compaction": measure_compaction,
    "dump": measure_dump,
    "spark": measure_spark,
    "exactly-once": measure_exactly_once,
}


def _against(peer: Peer, measure: Callable[[Bench, Peer], list[Figure]]) -> Stage:
    return lambda bench: measure(bench, peer)


def versions(peer: Peer) -> dict[str, str]:
    """Versions of the software that the figures depend on, other than Tailrace."""
    said = subprocess.run([peer.java, "-version"], capture_output=True, text=True, check=True)
    return {
        "kafka": KAFKA.version,
        "java": said.stderr.splitlines()[0],
        "librdkafka": confluent_kafka.libversion()[0],
    }


def main() -> None:
    """Read the arguments, run, show and write."""
    parser = argparse.ArgumentParser(description="Measure Tailrace against Apache Kafka.")
    parser.add_argument("--only", action="append", choices=STAGES, help="one stage; repeatable")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run; its figures mean nothing"
    )
    chosen = parser.parse_args()
    # Whatever ends us has to end the brokers first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    # Before anything runs: the tree may change in the minutes that a run takes.
    checkout = checkout_name()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    try:
        peer = Peer.find()
    except FatalError as error:
        print(f"bench-kafka: {error}", file=sys.stderr)
        sys.exit(2)

    def tell(_: str, found: list[Figure]) -> None:
        for figure in found:
            say(f"{figure.name}: {figure.ratio:.2f} of {figure.peer_name}")

    is_whole = not (chosen.only or chosen.quick)
    finished = FinishedStages(checkout, "-kafka")
    figures = run_stages(
        {name: _against(peer, STAGES[name]) for name in chosen.only or STAGES},
        finished=finished if is_whole else None,
        is_quick=chosen.quick,
        say=say,
        tell=tell,
    )
    print()
    print(comparison(figures))
    print()
    if is_whole:
        path = write_results(figures, checkout=checkout, kind="-kafka", versions=versions(peer))
        say(f"written to {path}")
        finished.forget()
    else:
        say("nothing written: not a full run")


if __name__ == "__main__":
    main()
