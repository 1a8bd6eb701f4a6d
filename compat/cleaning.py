"""Compares the cleaning of the same dirty logs by both: records and batch headers that are left.

The delete horizon of a batch is the time of cleaning plus `delete.retention.ms`, so it differs; it
and the checksum over it are not compared.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compat import clients, ours
from compat.bytewise import copy_directory, read_differences
from compat.kafka import Kafka
from compat.kafka_to_us import wait_until_cleaned
from compat.report import Report
from compat.topics import configure
from tailrace.records.batch import Batch, read_batches
from tailrace.runtime.clock import SystemClock
from tailrace.storage.cleaner.worker import CleanerConfig, LogCleaner, clean
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager

TOPICS = ("dirty", "dirty-transactions")
MAP_BYTES = 4 * 1024 * 1024
RATIO = "min.cleanable.dirty.ratio"


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Clean the dirty topics of a copy of what `kafka` has written, on both sides."""
    theirs = kafka.moved_to(copy_directory(kafka.directory, scratch / "cleaned"))
    mine = copy_directory(theirs.logs, scratch / "cleaned-ours")
    with theirs:
        configure(theirs.bootstrap_servers, {key: {RATIO: "0.0"} for key in TOPICS})
        wait_until_cleaned(theirs.logs, TOPICS)
        reads = {
            topic: clients.read_back(theirs.bootstrap_servers, topic, is_committed=False)
            for topic in TOPICS
        }
    with ours.opened(mine) as logs:
        for topic in TOPICS:
            clean_topic(logs, topic)
            found = ours.read_log(ours.log_of(logs, topic), is_committed=False)
            report.check(
                f"{topic} cleaned by us has the records that it has cleaned by Kafka",
                read_differences(found, reads[topic]),
            )
    report.check("our cleaned directory passes tailrace log verify", ours.verify(mine))
    for topic in TOPICS:
        found_headers = header_differences(mine / f"{topic}-0", theirs.logs / f"{topic}-0")
        report.check(
            f"{topic} cleaned by us has the segments and batch headers of Kafka's",
            list(found_headers),
            explained="but for the moment of the delete horizon",
        )


def clean_topic(logs: LogManager, topic: str) -> int:
    """Clean one log until there is nothing more to do; returns the number of rounds."""
    cleaner = LogCleaner(
        logs, CleanerConfig(map_bytes_max=MAP_BYTES, io_bytes_per_second=math.inf), SystemClock()
    )
    log = ours.log_of(logs, topic)
    log.config = replace(log.config, min_cleanable_dirty_ratio=0.0)
    for other in logs:
        if other is not log:
            cleaner.pause(other.partition)
    rounds = 0
    while (job := cleaner.next_job()) is not None:
        clean(job)
        rounds += 1
    assert not cleaner.failures(), cleaner.failures()
    return rounds


def batches_of(log: Log) -> Iterator[Batch]:
    """Every batch of a log, including those that compaction has emptied."""
    return log.batches(log.start_offset)


def header_differences(mine: Path, theirs: Path) -> Iterator[str]:
    """Tell the differences between segments and batch headers in two folders of one partition."""
    first, second = (
        sorted(each.name for each in folder.glob("*.log")) for folder in (mine, theirs)
    )
    if first != second:
        yield f"segments {first} and {second}"
    for name in sorted({*first} & {*second}):
        ours_seen, theirs_seen = (list(_headers(folder / name)) for folder in (mine, theirs))
        for mine_header, their_header in zip(ours_seen, theirs_seen, strict=False):
            if mine_header != their_header:
                yield f"{name}: batch {mine_header} where Kafka has {their_header}"
                break
        if len(ours_seen) != len(theirs_seen):
            yield f"{name}: {len(ours_seen)} batches where Kafka has {len(theirs_seen)}"


def _headers(path: Path) -> Iterator[tuple[object, ...]]:
    for _, batch in read_batches(memoryview(path.read_bytes())):
        has_horizon = batch.delete_horizon_or_none is not None
        yield (
            batch.base_offset, batch.last_offset_delta, batch.size, batch.leader_epoch,
            batch.attributes, "horizon" if has_horizon else batch.base_timestamp,
            batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence,
            batch.record_count,
        )  # fmt: skip
