"""`make bench-kafka`: Apache Kafka and Tailrace in turn on this machine, as tables of ratios.

    python -m benchmarks.kafka.run [--kind KIND] [--only STAGE ...] [--rounds N] [--quick]

From the root of the checkout. Of each kind, single brokers, clusters of three and controllers, a
full run writes `benchmarks/results/local/<commit>-<kind>.json`; a stage that fails ends it, and the
next run goes on there. One with `--only` or `--quick` just shows the table. Exit code 2 if Kafka
cannot be had.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import confluent_kafka

from benchmarks.kafka.controllers import (
    measure_elections,
    measure_start,
    measure_topics_and_rest,
)
from benchmarks.kafka.directories import measure_compaction, measure_dump, measure_recovery
from benchmarks.kafka.exactly_once import measure_exactly_once
from benchmarks.kafka.failover import measure_failover
from benchmarks.kafka.following import measure_catch_up, measure_idle_followers
from benchmarks.kafka.latency import measure_latency
from benchmarks.kafka.peer import Peer
from benchmarks.kafka.raw import measure_raw
from benchmarks.kafka.records import measure_records
from benchmarks.kafka.replicas import measure_replicas
from benchmarks.kafka.requests import measure_requests
from benchmarks.kafka.secured import measure_secured
from benchmarks.kafka.spark import measure_spark
from benchmarks.kafka.startup import measure_startup
from benchmarks.kafka.tool import measure_tool
from benchmarks.kafka.topics import measure_topics
from benchmarks.kafka.traffic import measure_traffic
from benchmarks.measure import ROUNDS, Bench, Figure
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
    "secured": measure_secured,
}

CLUSTER_STAGES: dict[str, Callable[[Bench, Peer], list[Figure]]] = {
    "replicas": measure_replicas,
    "fail-over": measure_failover,
    "idle-followers": measure_idle_followers,
    "catch-up": measure_catch_up,
}

CONTROLLER_STAGES: dict[str, Callable[[Bench, Peer], list[Figure]]] = {
    "elections": measure_elections,
    "controller-start": measure_start,
    "controller-topics": measure_topics_and_rest,
}

KINDS = {"kafka": STAGES, "cluster": CLUSTER_STAGES, "controller": CONTROLLER_STAGES}
"""The stages of each file of results."""


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
    parser.add_argument(
        "--kind", choices=KINDS, help="only single brokers, only clusters, or only controllers"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[name for stages in KINDS.values() for name in stages],
        help="one stage; repeatable",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run; its figures mean nothing"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="instead of five")
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
    for kind in [chosen.kind] if chosen.kind else KINDS:
        stages = {
            name: _against(peer, measure)
            for name, measure in KINDS[kind].items()
            if not chosen.only or name in chosen.only
        }
        finished = FinishedStages(checkout, f"-{kind}")
        figures = run_stages(
            stages,
            finished=finished if is_whole else None,
            is_quick=chosen.quick,
            rounds_max=chosen.rounds,
            say=say,
            tell=tell,
        )
        if figures:
            print(f"\n{comparison(figures)}\n")
        if is_whole:
            path = write_results(
                figures, checkout=checkout, kind=f"-{kind}", versions=versions(peer)
            )
            say(f"written to {path}")
            finished.forget()
    if not is_whole:
        say("nothing written: not a full run")


if __name__ == "__main__":
    main()
