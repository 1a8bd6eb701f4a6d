"""Kafka writes, Tailrace opens: records, positions, aborted transactions and index bytes.

Kafka's own consumer has read everything before the stop; what it got is what must be found.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from compat import clients, ours
from compat.bytewise import (
    FILE_KINDS,
    copy_directory,
    differences,
    read_differences,
    snapshot_differences,
)
from compat.clients import ReadBack
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import TOPICS, create_topics
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint

DELETED_BEFORE = 123
CLEAN_SECONDS_MAX = 40
CLEANED = ("compacted", "tombstones", "compacted-transactions")
PLAIN = tuple(topic for topic in TOPICS if topic != "compacted-transactions")
"""Topics that a recovery rebuilds as they were. Compaction takes the first batches of
transactions away, so neither Kafka nor we can rebuild what was known of them: `recovering` has
both rebuild it."""

Expected = Mapping[tuple[str, bool], ReadBack]
"""Records that a consumer got, by topic and whether it reads committed records only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A directory that Kafka has written, stopped in order, and what is in it."""

    directory: Path
    expected: Expected


def write(kafka: Kafka) -> Written:
    """Have Kafka write everything, twice for the compacted topics, and stop in order."""
    with kafka:
        servers = kafka.bootstrap_servers
        create_topics(servers)
        clients.produce_codecs(servers)
        held = clients.produce_transactions(servers, "transactions", ends_open=True)
        for _ in range(2):
            for topic in ("compacted", "tombstones"):
                clients.produce_keys(servers, topic)
            clients.produce_transactions(servers, "compacted-transactions", ends_open=False)
            wait_until_cleaned(kafka.logs, CLEANED)
        clients.produce_keys(servers, "dirty")
        clients.produce_transactions(servers, "dirty-transactions", ends_open=False)
        clients.delete_records(servers, "deleted", before=DELETED_BEFORE)
        expected = read_all(servers)
        assert held
    return Written(directory=kafka.directory, expected=expected)


def read_all(bootstrap_servers: str) -> Expected:
    """Consume every topic in both isolation levels."""
    return {
        (topic, is_committed): clients.read_back(
            bootstrap_servers, topic, is_committed=is_committed
        )
        for topic in TOPICS
        for is_committed in (False, True)
    }


def wait_until_cleaned(logs: Path, topics: tuple[str, ...]) -> None:
    """Return when a broker's cleaner has come as far as the active segment of each topic.

    Raises:
        FatalError: it has not, in a long time.
    """
    deadline = time.monotonic() + CLEAN_SECONDS_MAX
    for topic in topics:
        while _cleaned_to(logs, topic) < _active_base(logs, topic):
            if time.monotonic() > deadline:
                raise FatalError(f"{topic} was not cleaned in {CLEAN_SECONDS_MAX} s")
            time.sleep(0.1)


def check_opening(report: Report, written: Written, scratch: Path) -> None:
    """Check a directory after a clean stop: verified, opened as it is, opened as after a crash."""
    logs = written.directory / "logs"
    copied = copy_directory(logs, scratch / "verified")
    report.check("Kafka's directory passes tailrace log verify", ours.verify(copied))
    for name, is_clean in (("as it was left", True), ("with everything recovered", False)):
        copied = copy_directory(logs, scratch / f"opened-{is_clean}")
        if not is_clean:
            ours.make_unclean(copied)
        _check_reads(report, copied, written.expected, name)
        compared: Collection[str] = PLAIN if not is_clean else TOPICS
        for what, suffixes in _KINDS.items():
            report.check(
                f"Kafka's directory, opened {name} and closed, keeps its {what}",
                differences(logs, copied, suffixes=suffixes, topics=compared),
            )
        for file in _CHECKPOINTS:
            report.check(
                f"Kafka's directory, opened {name} and closed, keeps its {file}",
                _checkpoint_differences(logs / file, copied / file),
            )
        report.check(
            f"Kafka's directory, opened {name} and closed, keeps its producer snapshots",
            snapshot_differences(logs, copied, topics=compared),
        )


def check_after_kill(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Kafka goes on, is killed, and Tailrace recovers the directory."""
    kafka.start()
    try:
        clients.produce_codecs(kafka.bootstrap_servers)
        held = clients.produce_transactions(kafka.bootstrap_servers, "transactions", ends_open=True)
        expected = read_all(kafka.bootstrap_servers)
        assert held
    finally:
        kafka.kill()
    copied = copy_directory(kafka.logs, scratch / "killed")
    _check_reads(report, copied, expected, "after a kill")
    report.check(
        "Kafka's directory after a kill keeps its log bytes",
        differences(kafka.logs, copied, suffixes=_KINDS["logs"], topics=TOPICS),
    )
    report.check("and passes tailrace log verify", ours.verify(copied))


_KINDS = {**FILE_KINDS, "topic ids": (names.PARTITION_METADATA,)}


_CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.CLEANER_OFFSETS,
    names.HIGH_WATERMARKS,
)


def _checkpoint_differences(before: Path, after: Path) -> list[str]:
    first, second = (read_offset_checkpoint(DiskFiles(), str(each)) for each in (before, after))
    return [
        f"{partition}: {first.get(partition)} and {second.get(partition)}"
        for partition in sorted(first.keys() | second.keys())
        if first.get(partition) != second.get(partition)
    ]


def _check_reads(report: Report, logs: Path, expected: Expected, name: str) -> None:
    with ours.opened(logs) as manager:
        for topic in TOPICS:
            log = ours.log_of(manager, topic)
            found = [
                difference
                for is_committed in (False, True)
                for difference in read_differences(
                    ours.read_log(log, is_committed=is_committed), expected[topic, is_committed]
                )
            ]
            report.check(
                f"Kafka's {topic}, opened {name}, reads as Kafka's consumer read it", found
            )


def _cleaned_to(logs: Path, topic: str) -> int:
    path = str(logs / names.CLEANER_OFFSETS)
    return read_offset_checkpoint(DiskFiles(), path).get(TopicPartition(topic, 0), -1)


def _active_base(logs: Path, topic: str) -> int:
    return max(int(each.stem) for each in (logs / f"{topic}-0").glob("*.log"))
