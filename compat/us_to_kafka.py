"""Tailrace writes, Kafka opens: it changes nothing, reads everything, and goes on; and back again.

1  Kafka makes the topics, so that its metadata knows them, and stops
2  our broker serves the directory: every codec over the wire, keys, deleted records
3  our storage goes on without a broker: transactions, compaction, retention, truncation
4  Kafka starts on it: nothing cut, nothing rebuilt, no byte changed; everything is read
5  Kafka's dump tool reads every file
6  Kafka appends to every topic, and we open what it leaves
"""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from compat import clients, ours
from compat.bytewise import (
    copy_directory,
    differences,
    epoch_differences,
    partition_folders,
    read_differences,
    snapshot_differences,
)
from compat.cleaning import clean_topic
from compat.clients import KEYS, START_MS, ReadBack
from compat.kafka import Kafka
from compat.kafka_to_us import DELETED_BEFORE, Expected, read_all
from compat.report import Report
from compat.topics import TOPICS, configure, create_topics
from tailrace.model import AppendOrigin, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names, shrink
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager

FIRST_PRODUCER_ID = 500_000
"""Above those that either broker gives out: ids of one cluster mean nothing in the other."""

KEPT_BYTES = 40_000
"""Bytes of `codec-none` that retention keeps."""

TRUNCATED_BY = 60
"""Records that `codec-snappy` loses at its end."""

_STORAGE = re.compile(r" org\.apache\.kafka\.storage| kafka\.log\.")
"""Log lines of the classes that open logs."""

_MENDING = re.compile(
    r" WARN | ERROR |truncating|recovering unflushed|rebuilding|invalid|corrupt|interrupted|stray"
    r"|overflow|resetting|inconsistent|could not",
    re.IGNORECASE,
)
_LOADING = re.compile(r"Reloading from producer snapshot and rebuilding producer state from offset")
"""Logged for every log: that it reads from its newest snapshot to its end."""

_OTHERS = re.compile(r"__cluster_metadata|__consumer_offsets|__transaction_state")
"""Kafka's own topics, which it wrote itself."""

_FAULT = re.compile(
    r"mismatch|exception|corrupt|isvalid: false|error|not indexed|does not match|invalid|found ",
    re.IGNORECASE,
)
_GAP = re.compile(r"\s*(-?\d+) is followed by (\d+)")


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """The whole way, with `kafka` on a directory of its own."""
    with kafka:
        create_topics(kafka.bootstrap_servers)
    _write(kafka.logs)
    report.check("our directory passes tailrace log verify", ours.verify(kafka.logs))
    expected = _read_by_us(copy_directory(kafka.logs, scratch / "read-by-us"))
    report.check(
        "our stop leaves the high watermarks at the ends of the logs",
        list(_watermark_differences(kafka.logs, expected)),
    )
    before = copy_directory(kafka.logs, scratch / "before-kafka")
    _check_dump(report, kafka, before)
    with kafka:
        read = read_all(kafka.bootstrap_servers)
        printed = kafka.printed()
    _check_reads(report, read, expected, "read by Kafka's consumer is what we wrote")
    _check_words(report, printed)
    for what, suffixes in _KINDS.items():
        found = differences(before, kafka.logs, suffixes=suffixes, topics=TOPICS)
        report.check(f"Kafka opens our directory and leaves its {what}", found)
    report.check(
        "Kafka opens our directory and leaves its producer snapshots",
        snapshot_differences(before, kafka.logs, topics=TOPICS),
    )
    report.check(
        "Kafka opens our directory and goes on with our leader epochs",
        list(epoch_differences(before, kafka.logs, topics=TOPICS)),
        explained="it adds the one that it leads with",
    )
    with kafka:
        for topic in TOPICS:
            clients.produce_more(kafka.bootstrap_servers, topic)
        clients.produce_transactions(kafka.bootstrap_servers, "transactions", ends_open=False)
        read = read_all(kafka.bootstrap_servers)
    expected = _read_by_us(copy_directory(kafka.logs, scratch / "back-by-us"))
    _check_reads(report, read, expected, "that Kafka has gone on with reads the same to us")
    report.check("what Kafka has gone on with passes verify", ours.verify(kafka.logs))


_KINDS = {
    "logs": (names.LOG_SUFFIX,),
    "offset indexes": (names.OFFSET_INDEX_SUFFIX,),
    "time indexes": (names.TIME_INDEX_SUFFIX,),
    "transaction indexes": (names.TRANSACTION_INDEX_SUFFIX,),
    "topic ids": (names.PARTITION_METADATA,),
}


def _write(logs: Path) -> None:
    with ours.serving(logs) as servers:
        configure(servers, TOPICS)
        clients.produce_codecs(servers)
        for topic in ("compacted", "tombstones", "dirty"):
            clients.produce_keys(servers, topic)
        clients.delete_records(servers, "deleted", before=DELETED_BEFORE)
    with ours.opened(logs) as manager:
        for topic in ("transactions", "compacted-transactions", "dirty-transactions"):
            _append_transactions(ours.log_of(manager, topic), ends_open=topic == "transactions")
        for topic in ("compacted", "tombstones", "compacted-transactions"):
            clean_topic(manager, topic)
        _shorten(manager)


def _shorten(manager: LogManager) -> None:
    """Retention on one topic, a cut tail on another."""
    old = ours.log_of(manager, "codec-none")
    old.config = replace(old.config, retention_bytes=KEPT_BYTES)
    assert shrink.delete_old_segments(old, SystemClock().now_ms()), "retention has deleted nothing"
    cut = ours.log_of(manager, "codec-snappy")
    shrink.truncate_to(cut, cut.end_offset - TRUNCATED_BY)


def _append_transactions(log: Log, *, ends_open: bool) -> None:
    """Three producers at once; one transaction in three is aborted."""
    chance = random.Random(5)  # noqa: S311 - the same records in every run
    sequences = [0, 0, 0]
    for turn in range(24):
        for step in range(5):
            for which in range(3):
                _append_batch(log, which, sequences, b"turn %d step %d" % (turn, step), chance)
        for which in range(3):
            _append_marker(log, which, is_commit=(turn + which) % 3 != 0)
    if ends_open:
        _append_batch(log, 0, sequences, b"never decided", chance)
        builder = BatchBuilder()
        builder.append(b"key", b"behind it", timestamp=START_MS)
        _append(log, bytearray(builder.build()))


def _append_batch(
    log: Log, which: int, sequences: list[int], value: bytes, chance: random.Random
) -> None:
    count = chance.randrange(1, 4)
    builder = BatchBuilder(
        producer_id=FIRST_PRODUCER_ID + which,
        producer_epoch=0,
        base_sequence=sequences[which],
        is_transactional=True,
    )
    for _ in range(count):
        builder.append(b"key %d" % chance.randrange(KEYS), value, timestamp=START_MS)
    guard = log.producers.begin_verification(
        ProducerId(FIRST_PRODUCER_ID + which),
        epoch=ProducerEpoch(0),
        sequence=sequences[which],
        now_ms=SystemClock().now_ms(),
    )
    log.append(
        memoryview(bytearray(builder.build())),
        leader_epoch=LeaderEpoch(0),
        now_ms=SystemClock().now_ms(),
        guard=guard,
    )
    log.advance_high_watermark(log.end_offset)
    sequences[which] += count


def _append_marker(log: Log, which: int, *, is_commit: bool) -> None:
    now_ms = SystemClock().now_ms()
    marker = build_end_marker(
        FIRST_PRODUCER_ID + which, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=now_ms
    )
    _append(log, marker, origin=AppendOrigin.COORDINATOR)


def _append(log: Log, batch: bytearray, *, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    now_ms = SystemClock().now_ms()
    log.append(memoryview(batch), leader_epoch=LeaderEpoch(0), now_ms=now_ms, origin=origin)
    log.advance_high_watermark(log.end_offset)


def _read_by_us(logs: Path) -> dict[tuple[str, bool], ReadBack]:
    with ours.opened(logs) as manager:
        return {
            (topic, is_committed): ours.read_log(
                ours.log_of(manager, topic), is_committed=is_committed
            )
            for topic in TOPICS
            for is_committed in (False, True)
        }


def _check_reads(report: Report, read: Expected, expected: Expected, words: str) -> None:
    for topic in TOPICS:
        found = [
            each
            for is_committed in (False, True)
            for each in read_differences(expected[topic, is_committed], read[topic, is_committed])
        ]
        report.check(f"our {topic} {words}", found)


def _check_words(report: Report, printed: list[str]) -> None:
    """Check that Kafka's own log tells of no repair."""
    found = [
        line
        for line in printed
        if _STORAGE.search(line)
        and _MENDING.search(line)
        and not _LOADING.search(line)
        and not _OTHERS.search(line)
    ]
    report.check("Kafka says nothing of cutting, rebuilding or recovering", found)
    trusted = [line for line in printed if "Skipping recovery" in line]
    report.check("Kafka trusts our mark of a clean stop", [] if trusted else ["it does not say so"])
    unclean = [line for line in printed if "using an unclean election" in line]
    report.check("Kafka's controller takes our stop for a clean one", unclean)


def _check_dump(report: Report, kafka: Kafka, logs: Path) -> None:
    paths = [
        path
        for folder in partition_folders(logs, TOPICS)
        for path in sorted(_dumpable(logs / folder))
    ]
    printed = kafka.dump(paths)
    found = list(_dump_faults(printed))
    dumped = sum(line.startswith("Dumping ") for line in printed)
    if dumped != len(paths):
        found.append(f"{dumped} files dumped of {len(paths)}")
    report.check("Kafka's DumpLogSegments reports no fault in our files", found)


def _watermark_differences(logs: Path, expected: Expected) -> Iterator[str]:
    path = str(logs / names.HIGH_WATERMARKS)
    noted = read_offset_checkpoint(DiskFiles(), path)
    for topic in TOPICS:
        offset, end = noted.get(TopicPartition(topic, 0)), expected[topic, False].end
        if offset != end:
            yield f"{topic}: {offset} in {names.HIGH_WATERMARKS}, and the log ends at {end}"


def _dumpable(folder: Path) -> Iterator[Path]:
    for each in folder.iterdir():
        is_dumped = each.suffix in {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
        if is_dumped:
            yield each


def _dump_faults(lines: Iterable[str]) -> Iterator[str]:
    """Tell the faults that the dump tool finds.

    It tells of every gap in the offsets, also of the one before a segment's first record, which it
    counts from -1, and of those that compaction leaves.
    """
    about = ""
    for line in lines:
        gap = _GAP.match(line)
        if line.startswith("Non-consecutive"):
            about = line
        elif gap:
            is_due = int(gap[1]) == -1 or "compacted" in about or "tombstones" in about
            if not is_due or int(gap[2]) <= int(gap[1]):
                yield f"{about} {line}"
        elif not line.startswith("|") and _FAULT.search(line.replace("isvalid: true", "")):
            yield line[:300]
