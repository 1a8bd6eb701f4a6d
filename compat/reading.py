"""Checks the readers for people, `tailrace log` and the Spark source, on logs that Kafka wrote.

tailrace log cat      record by record what Kafka's consumer got, in both isolation levels;
                      of `__consumer_offsets`, what Kafka's own admin client answers
tailrace log scan     counts, sizes, codecs and ends as Kafka's tools tell them
Spark's source        row by row, from the files and over the wire from Kafka's broker
our decoders          line by line what Kafka's DumpLogSegments prints of every file
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from compat.bytewise import copy_directory, read_differences
from compat.clients import WAIT_SECONDS, ReadBack, Seen, Sender, read_back
from compat.dump import Lines, dump_differences, dumpable, our_dump, read_dump
from compat.kafka import Kafka
from compat.kafka_to_us import Written
from compat.report import Report
from compat.topics import SMALL, TOPICS, create_topics
from tailrace.spark import session
from tailrace.storage import names

GROUPS = ("readers", "others", "gone")
"""All commit; the offsets of the last are deleted again."""

STARTING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
"""Codes of a Kafka that has just started, and does not have its groups yet."""

OFFSETS_TOPIC = "__consumer_offsets"
PARTED = "parted"
PARTITIONS = 3

_BATCH = re.compile(
    r"baseOffset: .* lastOffset: (\d+) count: (\d+) .* size: (\d+) .* compresscodec: (\w+) "
)

Commits = dict[tuple[str, str], tuple[int, int, str]]
"""Offset, leader epoch and metadata that a group has committed, by group and topic."""


def check(report: Report, kafka: Kafka, written: Written, scratch: Path) -> None:
    """Read a copy of what `kafka` has written, and `written` itself, in every way there is."""
    logs = written.directory / "logs"
    theirs = kafka.moved_to(copy_directory(kafka.directory, scratch / "reading"))
    spark = session(name="compat", master="local[2]", settings={"spark.driver.memory": "512m"})
    try:
        with theirs:
            servers = theirs.bootstrap_servers
            commits, starts, parted = _commit(servers), _starts(servers), _part(servers)
            _check_spark(report, spark, written, place={"kafka.bootstrap.servers": servers})
        _check_spark(report, spark, written, place={"path": str(logs)})
    finally:
        spark.stop()
    _check_cat(report, written)
    report.check(
        f"tailrace log cat {PARTED} has each partition as Kafka's consumer has it",
        list(_parted_differences(theirs.logs, parted)),
    )
    report.check(
        f"tailrace log cat {OFFSETS_TOPIC} has the commits that Kafka's admin client has",
        list(_commit_differences(_commits_by_us(theirs.logs), commits)),
    )
    printed = read_dump(theirs.dump(dumpable(theirs.logs)))
    _check_dump(report, theirs.logs, printed)
    _check_scan(report, theirs.logs, printed, starts=starts)


def _check_spark(
    report: Report, spark: SparkSession, written: Written, *, place: Mapping[str, str]
) -> None:
    """Every topic in one scan; the source reads all records, those of aborted transactions too."""
    rows = (
        spark.read.format("tailrace")
        .options(**place)
        .option("subscribe", ",".join(TOPICS))
        .option("includeHeaders", "true")
        .load()
    )
    found = _collect(rows)
    for topic in TOPICS:
        expected = written.expected[topic, False]
        read = ReadBack(
            tuple(sorted(found.get(topic, []), key=lambda each: each.offset)), expected.end
        )
        report.check(
            f"the Spark source has Kafka's {topic}, by {next(iter(place))}, as its consumer has it",
            read_differences(read, expected),
        )


def _collect(rows: DataFrame) -> dict[str, list[Seen]]:
    """The rows of each topic; a timestamp that is no whole millisecond fails."""
    found: dict[str, list[Seen]] = {}
    for row in rows.withColumn("timestamp", sql.unix_micros("timestamp")).collect():
        assert row.partition == 0, row
        assert row.timestamp % 1000 == 0, row
        seen = Seen(
            row.offset,
            row.timestampType == 0,
            row.timestamp // 1000,
            _bytes(row.key),
            _bytes(row.value),
            tuple((name, _bytes(value)) for name, value in row.headers or ()),
        )
        found.setdefault(row.topic, []).append(seen)
    return found


def _check_cat(report: Report, written: Written) -> None:
    """Check `tailrace log cat`, but not who has set a timestamp: it does not show that."""
    for (topic, is_committed), expected in written.expected.items():
        level = "read_committed" if is_committed else "read_uncommitted"
        shown = _cat(written.directory / "logs", topic, "--isolation", level)
        records = tuple(_seen(each) for each in shown if "decoded" not in each)
        report.check(
            f"tailrace log cat, {level}, has Kafka's {topic} as its consumer has it",
            read_differences(
                ReadBack(records, expected.end),
                ReadBack(
                    tuple(each._replace(is_create_time=True) for each in expected.records),
                    expected.end,
                ),
            ),
        )


def _part(bootstrap_servers: str) -> list[ReadBack]:
    """Have a topic of several partitions written; what a consumer gets of each."""
    create_topics(bootstrap_servers, {PARTED: SMALL}, partition_count=PARTITIONS)
    sender = Sender(bootstrap_servers)
    for number in range(500):
        sender.send(PARTED, b"number %d" % number, partition=number % 7 % PARTITIONS)
    sender.flush()
    assert not sender.refused, sender.refused
    return [
        read_back(bootstrap_servers, PARTED, is_committed=False, partition=partition)
        for partition in range(PARTITIONS)
    ]


def _parted_differences(logs: Path, parted: list[ReadBack]) -> Iterator[str]:
    """All partitions at once, in their order, and each by its name and by the option."""
    whole = [(each["partition"], _seen(each)) for each in _cat(logs, PARTED)]
    expected = [(number, seen) for number, read in enumerate(parted) for seen in read.records]
    if whole != expected:
        yield f"all: {len(whole)} records where Kafka has {len(expected)}, or others"
    for number, read in enumerate(parted):
        for arguments in ((f"{PARTED}-{number}",), (PARTED, "--partition", str(number))):
            found = tuple(map(_seen, _cat(logs, *arguments)))
            yield from read_differences(ReadBack(found, read.end), read)


def _cat(logs: Path, topic: str, *options: str) -> list[dict[str, Any]]:
    return _told("cat", "--data", str(logs), topic, "--format", "json", *options)


def _told(command: str, *arguments: str) -> list[dict[str, Any]]:
    """The objects that a command of `tailrace log` prints.

    Raises:
        CalledProcessError: it failed.
    """
    answer = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "tailrace", "log", command, *arguments],
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in answer.stdout.splitlines()]


def _seen(shown: Mapping[str, Any]) -> Seen:
    return Seen(
        offset=shown["offset"],
        is_create_time=True,
        timestamp=shown["timestamp"],
        key=_shown_bytes(shown["key"]),
        value=_shown_bytes(shown["value"]),
        headers=tuple((name, _shown_bytes(value)) for name, value in shown["headers"]),
    )


def _shown_bytes(shown: str | Mapping[str, str] | None) -> bytes | None:
    if isinstance(shown, Mapping):
        return bytes.fromhex(shown["hex"])
    return None if shown is None else shown.encode()


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def _commit(bootstrap_servers: str) -> Commits:
    """Have groups commit offsets, twice, and one be deleted; what Kafka says they have then."""
    for group in GROUPS:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0}
        )
        for turn in range(2):
            offsets = [
                TopicPartition(topic, 0, 10 * turn + number, f"{group} {turn} é", leader_epoch=0)
                for number, topic in enumerate(TOPICS)
            ]
            _commit_when_loaded(consumer, offsets)
        consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for future in admin.delete_consumer_groups([GROUPS[-1]]).values():
        future.result()
    found: Commits = {}
    for group in GROUPS[:-1]:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        for each in asked[group].result().topic_partitions:
            found[group, each.topic] = each.offset, each.leader_epoch, each.metadata
    assert len(found) == len(TOPICS) * (len(GROUPS) - 1), found
    return found


def _commit_when_loaded(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit; again for as long as a Kafka that has just started reads what it has of groups."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            if error.args[0].code() not in STARTING or time.monotonic() > deadline:
                raise
            consumer.poll(0.1)


def _commits_by_us(logs: Path) -> Commits:
    """Read the commits in `__consumer_offsets`, the last one of each key."""
    found: Commits = {}
    for each in _cat(logs, OFFSETS_TOPIC):
        decoded = each["decoded"]
        if decoded["type"] != "offset-commit":
            continue
        key = decoded["group"], decoded["topic"]
        assert decoded["partition"] == 0, decoded
        if decoded.get("tombstone"):
            found.pop(key, None)
        else:
            # librdkafka commits the NUL that ends a C string, and drops it where it reads.
            metadata = decoded["metadata"].removesuffix("\0")
            found[key] = decoded["offset"], decoded["leader_epoch"], metadata
    return found


def _commit_differences(found: Commits, expected: Commits) -> Iterator[str]:
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            yield f"{key}: {found.get(key)} where Kafka has {expected.get(key)}"


def _starts(bootstrap_servers: str) -> dict[str, int]:
    """The first offset of each topic, as Kafka answers it."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    asked = {TopicPartition(topic, 0): OffsetSpec.earliest() for topic in TOPICS}
    return {
        partition.topic: future.result().offset
        for partition, future in admin.list_offsets(asked).items()
    }


def _check_dump(report: Report, logs: Path, printed: Lines) -> None:
    found = our_dump(logs)
    for suffix, what in _DUMPED.items():
        theirs, ours = (
            {name: lines for name, lines in each.items() if name.endswith(suffix)}
            for each in (printed, found)
        )
        count = sum(map(len, theirs.values()))
        assert count, f"Kafka tells of no {what}"
        report.check(
            f"we have the {what} of DumpLogSegments: {count} lines about {len(theirs)} files",
            dump_differences(ours, theirs),
        )


def _check_scan(report: Report, logs: Path, printed: Lines, *, starts: Mapping[str, int]) -> None:
    scans = {each["topic"]: each for each in _told("scan", "--data", str(logs), "--json")}
    found = []
    for topic in TOPICS:
        scanned, counted = scans[topic], _counted(topic, printed, start=starts[topic])
        found += [
            f"{topic}: {name} is {scanned[name]} where Kafka has {value}"
            for name, value in counted.items()
            if scanned[name] != value
        ]
    report.check("tailrace log scan counts what Kafka's tools count", found)


def _counted(topic: str, printed: Lines, *, start: int) -> dict[str, object]:
    """Return the expected result of a scan, from the batches that the dump tool has printed."""
    logs = [
        lines
        for name, lines in printed.items()
        if name.startswith(f"{topic}-0/") and name.endswith(names.LOG_SUFFIX)
    ]
    batches = [found.groups() for lines in logs for found in map(_BATCH.match, lines) if found]
    return {
        "start_offset": start,
        "end_offset": max(int(last) for last, _, _, _ in batches) + 1,
        "segments": len(logs),
        "batches": len(batches),
        "records": sum(int(count) for _, count, _, _ in batches),
        "bytes": sum(int(size) for _, _, size, _ in batches),
        "codecs": dict(Counter(codec for _, _, _, codec in batches)),
        "tail_bytes": 0,
        "damage": [],
    }


_DUMPED = {
    names.LOG_SUFFIX: "batches and records",
    names.OFFSET_INDEX_SUFFIX: "offset indexes",
    names.TIME_INDEX_SUFFIX: "time indexes",
    names.TRANSACTION_INDEX_SUFFIX: "transaction indexes",
    names.SNAPSHOT_SUFFIX: "producer snapshots",
}
