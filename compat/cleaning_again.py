"""Logs that were cleaned before: tombstones and markers go, and Kafka and we take turns.

    theirs   Kafka cleans   a second part is written   Kafka cleans   a third part   Kafka cleans
    mine     we clean       the same batches           we clean
    mixed    (of theirs)    (of theirs)                we clean       a third part   Kafka cleans

The first pass gives tombstones their delete horizon, which has passed when the second one comes: it
removes them. Markers come one pass later, since a pass must first have found nothing of their
transactions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from compat import clients, ours
from compat.bytewise import copy_directory, read_differences
from compat.cleaning import RATIO, TOPICS, clean_topic, header_differences
from compat.clients import ReadBack
from compat.kafka import Kafka
from compat.kafka_to_us import wait_until_cleaned
from compat.report import Report
from compat.topics import configure
from tailrace.records.batch import read_batches
from tailrace.runtime.clock import SystemClock
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager

HORIZON = {"delete.retention.ms": "1"}

Reads = Mapping[tuple[str, bool], ReadBack]


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Clean the dirty topics of a copy of what `kafka` has written, several times."""
    theirs = kafka.moved_to(copy_directory(kafka.directory, scratch / "again"))
    mine = copy_directory(theirs.logs, scratch / "again-ours")
    with theirs:
        configure(theirs.bootstrap_servers, dict.fromkeys(TOPICS, HORIZON))
        _clean_by_kafka(theirs)
        first = clients.read_topics(theirs.bootstrap_servers, TOPICS)
        clients.produce_keys(theirs.bootstrap_servers, "dirty", count=300)
        clients.produce_transactions(
            theirs.bootstrap_servers, "dirty-transactions", ends_open=False
        )
    markers = _marker_count(theirs.logs, first)
    mixed = theirs.moved_to(copy_directory(theirs.directory, scratch / "again-mixed"))
    with ours.opened(mixed.logs) as logs:
        _clean_by_us(logs)
    with ours.opened(mine) as logs:
        _clean_by_us(logs)
        for topic in TOPICS:
            _append_later(ours.log_of(logs, topic), theirs.logs / f"{topic}-0")
        _clean_by_us(logs)
        found = _read_by_us(logs)
    with theirs:
        _clean_by_kafka(theirs)
        second = clients.read_topics(theirs.bootstrap_servers, TOPICS)
        headers = {
            topic: list(header_differences(mine / f"{topic}-0", theirs.logs / f"{topic}-0"))
            for topic in TOPICS
        }
        third = _go_on(theirs)
    left = _marker_count(theirs.logs, first)
    counts = {
        "tombstones": (_tombstones(first, first), _tombstones(second, first)),
        "markers": (markers, left),
    }
    report.check(
        "a second pass of Kafka's removes old tombstones, and a third one old markers",
        [
            f"{what}: {before} before, {after} after"
            for what, (before, after) in counts.items()
            if not after < before
        ],
    )
    for topic in TOPICS:
        report.check(
            f"a second pass of ours leaves {topic} with the records that one of Kafka's leaves",
            list(_differences(found, second, topic)),
        )
        report.check(
            f"a second pass of ours leaves {topic} with the batch headers that one of Kafka's does",
            headers[topic],
            explained="but for the moment of the delete horizon",
        )
    with mixed:
        after_ours = clients.read_topics(mixed.bootstrap_servers, TOPICS)
        mixed_third = _go_on(mixed)
        printed = mixed.printed()
    report.check(
        "Kafka takes up our cleaner-offset-checkpoint",
        [line for line in printed if "Resetting first dirty offset" in line],
    )
    for topic in TOPICS:
        report.check(
            f"{topic} cleaned by Kafka, then by us, reads as cleaned by Kafka twice",
            list(_differences(after_ours, second, topic)),
        )
        report.check(
            f"{topic} cleaned by Kafka, by us and by Kafka reads as cleaned by Kafka all along",
            list(_differences(mixed_third, third, topic)),
        )
    left_by_both = _marker_count(mixed.logs, first)
    report.check(
        "as many markers are left by Kafka, us and Kafka as by Kafka all along",
        [] if left_by_both == left else [f"{left_by_both} and {left}"],
    )
    report.check("logs cleaned in turn pass tailrace log verify", ours.verify(mixed.logs))


def _clean_by_kafka(kafka: Kafka) -> None:
    """Have Kafka clean as far as it can, and then no more."""
    configure(kafka.bootstrap_servers, {topic: {RATIO: "0.0"} for topic in TOPICS})
    wait_until_cleaned(kafka.logs, TOPICS)
    configure(kafka.bootstrap_servers, {topic: {RATIO: "1.0"} for topic in TOPICS})


def _clean_by_us(logs: LogManager) -> None:
    for topic in TOPICS:
        log = ours.log_of(logs, topic)
        log.config = replace(log.config, delete_retention_ms=1)
        clean_topic(logs, topic)


def _go_on(kafka: Kafka) -> Reads:
    """The third part, which is the same in each run, and Kafka's pass over it."""
    for topic in TOPICS:
        clients.produce_keys(kafka.bootstrap_servers, topic, count=300)
    _clean_by_kafka(kafka)
    return clients.read_topics(kafka.bootstrap_servers, TOPICS)


def _append_later(log: Log, theirs: Path) -> None:
    """Append what another log has behind the end of this one."""
    for path in sorted(theirs.glob("*.log")):
        for _, batch in read_batches(memoryview(path.read_bytes())):
            if batch.base_offset >= log.end_offset:
                data = memoryview(bytearray(batch.view))
                log.append_as_follower(data, now_ms=SystemClock().now_ms())
    log.advance_high_watermark(log.end_offset)


def _read_by_us(logs: LogManager) -> Reads:
    return {
        (topic, is_committed): ours.read_log(ours.log_of(logs, topic), is_committed=is_committed)
        for topic in TOPICS
        for is_committed in (False, True)
    }


def _differences(mine: Reads, theirs: Reads, topic: str) -> Iterator[str]:
    for is_committed in (False, True):
        yield from read_differences(mine[topic, is_committed], theirs[topic, is_committed])


def _tombstones(reads: Reads, first: Reads) -> int:
    """Tombstones among what was there at the first pass."""
    return sum(
        each.value is None and each.offset < first[place].end
        for place, read in reads.items()
        for each in read.records
    )


def _marker_count(logs: Path, first: Reads) -> int:
    """Control batches among what was there at the first pass."""
    return sum(
        batch.is_control and batch.base_offset < first[topic, False].end
        for topic in TOPICS
        for path in (logs / f"{topic}-0").glob("*.log")
        for _, batch in read_batches(memoryview(path.read_bytes()))
    )
