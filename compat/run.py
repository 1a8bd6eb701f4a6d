"""`make compat-kafka`: every check against a real Apache Kafka, one line each.

    python -m compat.run [--keep DIR]

From the root of the checkout. Exit code 1 if a check fails, 2 if Kafka cannot be had or started.
"""

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaException

from compat import cleaning, equality, kafka_to_us, recovering, us_to_kafka
from compat.artifacts import KAFKA, class_path
from compat.kafka import Kafka
from compat.report import Report
from tailrace.errors import FatalError
from tailrace.spark.java import find_java

DISK = "/var/tmp"  # noqa: S108 - a directory of our own is made in it
"""Where everything stands meanwhile."""


def run(report: Report, java: Path, jars: str, directory: Path) -> None:
    """Every check.

    Raises:
        FatalError: Kafka does not do what it has to for a check to mean something.
    """
    kafka = Kafka(java, jars, directory / "kafka")
    written = kafka_to_us.write(kafka)
    kafka_to_us.check_opening(report, written, directory)
    equality.check(report, written, directory)
    recovering.check(report, kafka, directory)
    cleaning.check(report, kafka, directory)
    kafka_to_us.check_after_kill(report, kafka, directory)
    us_to_kafka.check(report, Kafka(java, jars, directory / "ours"), directory)


def main() -> None:
    """Read the arguments, fetch, run, and tell."""
    parser = argparse.ArgumentParser(description="Prove Tailrace against Apache Kafka.")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave all files in a new DIR")
    chosen = parser.parse_args()
    started = time.monotonic()
    logging.disable(logging.CRITICAL)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell has had SIGINT ignored: whatever ends us has to end Kafka first.
        signal.signal(number, signal.default_int_handler)

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    report = Report(say=say)
    try:
        java = find_java(os.environ).home / "bin" / "java"
        jars = class_path(KAFKA, os.environ)
        if chosen.keep is not None:
            chosen.keep.mkdir(parents=True)
            run(report, java, jars, chosen.keep.resolve())
        else:
            with tempfile.TemporaryDirectory(prefix="tailrace-compat-", dir=DISK) as scratch:
                run(report, java, jars, Path(scratch))
    except KeyboardInterrupt:
        sys.exit(130)
    except (FatalError, KafkaException, OSError) as error:
        print(f"compat: {error}", file=sys.stderr)
        sys.exit(2)
    if report.failed:
        print(f"{len(report.failed)} checks failed, {report.passed} passed")
        sys.exit(1)
    print(f"{report.passed} checks passed against Apache Kafka {KAFKA.version}")


if __name__ == "__main__":
    main()
