"""The integration tests of Python's Kafka clients, as their authors publish them, on both brokers.

    python -m compat.upstream [--confluent DIR]

kafka-python's come with its source distribution, which pip fetches. confluent-kafka's are in no
registry: they run if `--confluent`, or `CONFLUENT_KAFKA_CHECKOUT`, names a checkout of
confluentinc/confluent-kafka-python. What passes with Kafka has to pass with us.

Invariant: no file of theirs is changed; see `upstream_plugin`.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from compat import ours
from compat.artifacts import KAFKA, cache_directory, class_path
from compat.kafka import Kafka
from compat.processes import bound_to_us, free_ports, run
from compat.report import Report
from compat.upstream_plugin import RESULTS
from tailrace.errors import FatalError
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.spark.java import find_java

KAFKA_PYTHON_VERSION = "3.0.12"
CHECKOUT = "CONFLUENT_KAFKA_CHECKOUT"
"""Environment variable with the path of a checkout of confluent-kafka-python."""

SHARE_MIN = 0.98
"""Least share of the tests which pass with Kafka that has to pass with us."""
TEST_SECONDS_MAX = 120
SUITE_SECONDS_MAX = 3000

SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
"""Settings that the suites expect of both brokers."""
NODE_ID = 0
"""They know of a broker of this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tests of a client, and how they are told of a broker."""

    name: str
    directory: Path
    """The working directory, in which the names of tests begin."""
    targets: tuple[str, ...]
    address_variable: str
    address_form: str = "{}"
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a test."""

    outcome: str
    """One of `passed`, `failed` or `skipped`."""
    message: str


def find_suites(environment: Mapping[str, str], directory: Path) -> list[Suite]:
    """The suites that can be had, unpacked into a directory where that is needed.

    Raises:
        FatalError: kafka-python cannot be fetched, or the checkout is none.
    """
    unpacked = _unpack_kafka_python(cache_directory(environment), directory)
    suites = [
        Suite(
            name=f"kafka-python {KAFKA_PYTHON_VERSION}",
            directory=unpacked,
            targets=("test/integration",),
            address_variable="KAFKA_URI",
            address_form="kafka://{}",
            environment={"KAFKA_VERSION": KAFKA.version, "KAFKA_ROOT": str(unpacked)},
        )
    ]
    checkout = environment.get(CHECKOUT)
    if checkout is None:
        return suites
    root = Path(checkout).resolve()
    if not (root / "tests" / "integration" / "conftest.py").exists():
        raise FatalError(f"{root} is no checkout of confluent-kafka-python: name another")
    # What an administrator asks does not depend on the protocol of groups.
    rooms = {
        "classic": ("admin", "consumer", "producer", "serialization"),
        "consumer": ("consumer", "producer", "serialization"),
    }
    return suites + [
        Suite(
            name=f"confluent-kafka, {protocol} groups",
            directory=root,
            targets=tuple(f"tests/integration/{each}" for each in chosen),
            address_variable="BROKERS",
            environment={"TEST_CONSUMER_GROUP_PROTOCOL": protocol},
        )
        for protocol, chosen in rooms.items()
    ]


def check(report: Report, kafka: Kafka, suites: Sequence[Suite], directory: Path) -> None:
    """Run every suite on both brokers; each test that passes with Kafka is a check."""
    logs = directory / "upstream"
    logs.mkdir()
    kafka.settings |= {**SETTINGS, "node.id": str(NODE_ID)}
    if all("confluent" not in suite.name for suite in suites):
        report.say(f"confluent-kafka's tests are not run: {CHECKOUT} names no checkout")
    with kafka:
        theirs = [_run(suite, kafka.bootstrap_servers, directory) for suite in suites]
    with serving(logs) as servers:
        mine = [_run(suite, servers, directory) for suite in suites]
    counts = Counter[str]()
    for suite, expected, found in zip(suites, theirs, mine, strict=True):
        counts += _compare(report, suite, expected, found)
    total = counts.total()
    report.check(
        f"all suites: of {total} tests that pass with Kafka {counts['passed']} pass",
        [] if total and counts["passed"] / total >= SHARE_MIN else [f"{counts}"],
    )


def serving(logs: Path) -> AbstractContextManager[str]:
    """Our broker as the suites expect one; it advertises its address as Kafka's does."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{address}"}
    return ours.serving(logs, settings=settings, address=address, node_id=NODE_ID)


def _compare(
    report: Report, suite: Suite, expected: Mapping[str, Outcome], found: Mapping[str, Outcome]
) -> Counter[str]:
    """Check each test that passes with Kafka; how many are `passed` and `failed`."""
    counts = Counter[str]()
    for test, told in expected.items():
        name = f"{suite.name}: {test}"
        if told.outcome != "passed":
            report.say(f"      {name}: {told.outcome} with Kafka")
            continue
        mine = found.get(test, Outcome(outcome="failed", message="it was not run"))
        is_passed = mine.outcome == "passed"
        counts["passed" if is_passed else "failed"] += 1
        report.check(name, [] if is_passed else [f"{mine.outcome}: {mine.message}"])
    others = Counter(told.outcome for told in expected.values() if told.outcome != "passed")
    notes = [f"with Kafka itself {count} are {outcome}" for outcome, count in others.items()]
    report.check(
        f"{suite.name}: of {counts.total()} tests that pass with Kafka {counts['passed']} pass",
        [] if counts["passed"] else ["none"],
        explained="; ".join(notes),
    )
    return counts


def _run(suite: Suite, servers: str, directory: Path) -> dict[str, Outcome]:
    """Run a suite on a broker, and what failed once more; the outcome of each test by its name.

    Many of the tests have time limits of some seconds, which a busy machine does not keep.

    Raises:
        FatalError: it took too long, or no test was run.
    """
    outcomes = _run_once(suite, servers, directory)
    failed = tuple(test for test, told in outcomes.items() if told.outcome == "failed")
    again = replace(suite, targets=failed)
    return outcomes | (_run_once(again, servers, directory) if failed else {})


def _run_once(suite: Suite, servers: str, directory: Path) -> dict[str, Outcome]:
    results = Path(tempfile.mkstemp(dir=directory, suffix=".results")[1])
    command = [
        sys.executable, "-m", "pytest", "-p", "compat.upstream_plugin", *suite.targets,
        "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:logging",
        f"--timeout={TEST_SECONDS_MAX}", "--timeout-method=signal",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        RESULTS: str(results),
        suite.address_variable: suite.address_form.format(servers),
        **suite.environment,
    }
    printed = results.with_suffix(".log")
    with printed.open("wb") as output:
        try:
            subprocess.run(  # noqa: S603 - pytest
                bound_to_us(command), cwd=suite.directory, env=environment, check=False,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=SUITE_SECONDS_MAX,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise FatalError(f"{suite.name} took more than {SUITE_SECONDS_MAX} s") from error
    outcomes: dict[str, Outcome] = {}
    for line in results.read_text().splitlines():
        told = json.loads(line)
        test = told.pop("test")
        if outcomes.get(test) is None or told["outcome"] == "failed":
            outcomes[test] = Outcome(**told)
    if not outcomes:
        raise FatalError(f"{suite.name}: no test was run; {printed.read_text()[-500:]}")
    return outcomes


def _unpack_kafka_python(cache: Path, directory: Path) -> Path:
    name = f"kafka_python-{KAFKA_PYTHON_VERSION}"
    archive = cache / f"{name}.tar.gz"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:",
            f"--dest={cache}", f"kafka-python=={KAFKA_PYTHON_VERSION}",
        ]  # fmt: skip
        run(bound_to_us(command), name="pip download", seconds_max=SUITE_SECONDS_MAX)
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / name


def main() -> None:
    """Read the arguments, fetch, run, and tell."""
    parser = argparse.ArgumentParser(description="Run the tests of Kafka clients on both brokers.")
    parser.add_argument("--confluent", metavar="DIR", help="checkout of confluent-kafka-python")
    chosen = parser.parse_args()
    environment = dict(os.environ)
    if chosen.confluent:
        environment[CHECKOUT] = chosen.confluent
    logging.disable(logging.CRITICAL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    started = time.monotonic()
    report = Report(
        say=lambda line: print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)
    )
    with tempfile.TemporaryDirectory(prefix="tailrace-upstream-", dir="/var/tmp") as scratch:
        directory = Path(scratch)
        suites = find_suites(environment, directory)
        java = find_java(environment).home / "bin" / "java"
        kafka = Kafka(java, class_path(KAFKA, environment), directory / "kafka")
        check(report, kafka, suites, directory)
    print(f"{len(report.failed)} checks failed, {report.passed} passed")
    sys.exit(bool(report.failed))


if __name__ == "__main__":
    main()
