"""`make bench`: measure, show a table, and write `benchmarks/results/local/<commit>.json`.

    python -m benchmarks.run [--only STAGE ...] [--rounds N] [--quick]

From the root of the checkout. Only a full run writes the file: a stage that fails ends the run with
its error, and the next run goes on there; one with an option just shows the table.
"""

import argparse
import time

from benchmarks.macro.consumers import measure_consumers
from benchmarks.macro.directories import (
    measure_compaction,
    measure_partitions,
    measure_recovery,
    measure_verify,
)
from benchmarks.macro.fetch import measure_fetch
from benchmarks.macro.first import measure_first
from benchmarks.macro.groups import measure_groups
from benchmarks.macro.pipeline import measure_pipeline
from benchmarks.macro.produce import measure_produce
from benchmarks.macro.producers import measure_producers
from benchmarks.macro.records import measure_records
from benchmarks.macro.requests import measure_requests
from benchmarks.macro.rights import measure_rights
from benchmarks.macro.startup import measure_memory, measure_startup
from benchmarks.measure import ROUNDS
from benchmarks.micro.metadata import measure_metadata
from benchmarks.micro.records.columns import measure_decode
from benchmarks.micro.storage.log import measure_append, measure_lookup
from benchmarks.report import checkout_name, table, write_results
from benchmarks.stages import FinishedStages, Stage, run_stages

STAGES: dict[str, Stage] = {
    "first": measure_first,
    "startup": measure_startup,
    "memory": measure_memory,
    "produce": measure_produce,
    "producers": measure_producers,
    "records": measure_records,
    "consumers": measure_consumers,
    "fetch": measure_fetch,
    "requests": measure_requests,
    "rights": measure_rights,
    "groups": measure_groups,
    "append": measure_append,
    "lookup": measure_lookup,
    "decode": measure_decode,
    "metadata": measure_metadata,
    "recovery": measure_recovery,
    "verify": measure_verify,
    "compaction": measure_compaction,
    "partitions": measure_partitions,
    "pipeline": measure_pipeline,
}


def main() -> None:
    """Read the arguments, run, show and write."""
    parser = argparse.ArgumentParser(description="Measure Tailrace against its peers.")
    parser.add_argument("--only", action="append", choices=STAGES, help="one stage; repeatable")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run; its figures mean nothing"
    )
    parser.add_argument("--rounds", type=int, help="instead of five")
    chosen = parser.parse_args()
    started = time.monotonic()
    # Before anything runs: the tree may change in the minutes that a run takes.
    checkout = checkout_name()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    is_whole = not (chosen.only or chosen.quick or chosen.rounds)
    finished = FinishedStages(checkout)
    figures = run_stages(
        {name: STAGES[name] for name in chosen.only or STAGES},
        finished=finished if is_whole else None,
        is_quick=chosen.quick,
        rounds_max=chosen.rounds or ROUNDS,
        say=say,
        tell=lambda name, found: say(f"{name}:\n\n{table(found)}\n"),
    )
    if is_whole:
        say(f"written to {write_results(figures, checkout=checkout)}")
        finished.forget()
    else:
        say("nothing written: not a full run")


if __name__ == "__main__":
    main()
