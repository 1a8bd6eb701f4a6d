"""Small directories that Kafka has written, kept in the tree and checked without Java.

    python -m compat.golden [NAME …]     writes tests/golden/ anew, all of it or these directories

    tests/golden/transactions/
        logs/               as Kafka left it, but for its lock
        expected.json.gz    what Kafka's consumer read, and what its DumpLogSegments said

A directory is written by one start of Kafka and stopped in order. The torn one is killed, and the
last bytes of its topic are cut off; what is expected of it is what Kafka makes of a copy. Formats
v0 and v1 are written by Kafka 3.9; the dump tool is always that of Kafka 4. Kafka's metadata log
lies among the partitions; nothing is expected of it but that nobody touches it.

Invariant: nothing that is expected has been worked out by Tailrace.
"""

import argparse
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

from compat import clients
from compat.artifacts import KAFKA, OLD_KAFKA, Release, class_path
from compat.bytewise import copy_directory
from compat.clients import START_MS, WAIT_SECONDS, ReadBack, Seen
from compat.dump import Lines, dumpable, read_dump
from compat.kafka import Kafka
from compat.kafka_to_us import wait_until_cleaned
from compat.old_kafka import OldKafka
from compat.topics import CODECS, SMALL, create_topics
from tailrace.errors import FatalError
from tailrace.model import METADATA_TOPIC
from tailrace.spark.java import find_java

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
TORN = "torn"
OLD = "old-formats"
KRAFT = "kraft"
CUT_BYTES = 7
DELETED_BEFORE = 57

# Indexes have their full size until Kafka stops, which a killed one does not do.
_SETTINGS = {"log.index.size.max.bytes": "4096"}
_SMALL = {**SMALL, "internal.segment.bytes": "4096", "segment.index.bytes": "1024"}
_OLD_SMALL = {name: value for name, value in SMALL.items() if name != "internal.segment.bytes"}
_OLD = {
    **{
        f"{version}-{codec}": _OLD_SMALL
        for version in ("v0", "v1")
        for codec in ("none", "gzip", "snappy", "lz4")
    },
    "v1-stamped": {**_OLD_SMALL, "message.timestamp.type": "LogAppendTime"},
}
_FORMATS = {"v0": "0.9.0", "v1": "0.10.2"}
_COMPACTED = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

Topics = Mapping[str, Mapping[str, str]]
Broker = Kafka | OldKafka


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One directory, before it is written."""

    topics: Topics
    """Settings by topic, under the names that both brokers' files go by."""
    write: Callable[[Broker], object]
    """Produces everything; what it returns is kept until Kafka has stopped."""
    holds: str
    """Content of the directory, for the README."""
    release: Release = KAFKA
    """The Kafka release that writes it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that override those of all directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Kafka's own account of a directory."""

    made: Mapping[str, str]
    """Versions and the day."""
    topics: Topics
    reads: Mapping[tuple[str, bool], ReadBack]
    """Records that its consumer got, by topic and whether it reads committed records only."""
    dump: Lines
    """Output of its DumpLogSegments for each file; of the torn one, after Kafka's recovery."""


def read_expected(directory: Path) -> Expected:
    """Read the expectations of one directory of `GOLDEN`."""
    with gzip.open(directory / "expected.json.gz", "rt") as file:
        stored = json.load(file)
    return Expected(
        made=stored["made"],
        topics=stored["topics"],
        reads={
            (topic, is_committed): ReadBack(tuple(map(_seen, read["records"])), read["end"])
            for topic, levels in stored["reads"].items()
            for is_committed, read in zip((False, True), levels, strict=True)
        },
        dump=stored["dump"],
    )


def write_golden(name: str, scratch: Path, *, java: Path) -> None:
    """Write one directory of `GOLDEN` anew.

    Raises:
        FatalError: Kafka cannot be had, or does not do what it is asked for.
    """
    golden, target = GOLDENS[name], GOLDEN / name
    settings = {**_SETTINGS, **golden.settings}
    kafka = Kafka(java, class_path(KAFKA, os.environ), scratch / "kafka", settings=settings)
    broker: Broker = kafka
    if golden.release is OLD_KAFKA:
        broker = OldKafka(java, class_path(OLD_KAFKA, os.environ), scratch / "old")
    with broker:
        create_topics(broker.bootstrap_servers, _for_kafka(golden))
        held = golden.write(broker)
        reads = _read(broker.bootstrap_servers, golden.topics)
        if name == TORN:
            broker.kill()
    del held
    if name == TORN:
        _cut(broker.logs / f"{TORN}-0")
    shutil.rmtree(target, ignore_errors=True)
    copy_directory(broker.logs, target / "logs")
    if name == TORN:
        with kafka:
            reads = _read(kafka.bootstrap_servers, golden.topics)
    made = {
        "Kafka": golden.release.version,
        "librdkafka": confluent_kafka.libversion()[0],
        "day": datetime.now(UTC).date().isoformat(),
    }
    dump = read_dump(kafka.dump(dumpable(broker.logs)))
    _store(target, Expected(made=made, topics=golden.topics, reads=reads, dump=dump))


def _for_kafka(golden: Golden) -> Topics:
    """The settings under which Kafka makes the topics; the format is in the name of an old one."""
    if golden.release is KAFKA:
        return golden.topics
    return {
        topic: {**settings, "message.format.version": _FORMATS[topic[:2]]}
        for topic, settings in golden.topics.items()
    }


def _store(target: Path, expected: Expected) -> None:
    stored = {
        "made": expected.made,
        "topics": expected.topics,
        "reads": {
            topic: [_plain(expected.reads[topic, is_committed]) for is_committed in (False, True)]
            for topic in expected.topics
        },
        "dump": expected.dump,
    }
    text = json.dumps(stored, separators=(",", ":"))
    # Without a time in it, so that the same content is the same bytes.
    (target / "expected.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _plain(read: ReadBack) -> dict[str, object]:
    records = [
        (*each[:3], _text(each.key), _text(each.value), [(k, _text(v)) for k, v in each.headers])
        for each in read.records
    ]
    return {"end": read.end, "records": records}


def _seen(stored: list[Any]) -> Seen:
    offset, is_create_time, timestamp, key, value, headers = stored
    return Seen(
        offset, is_create_time, timestamp, _data(key), _data(value),
        tuple((name, _data(content)) for name, content in headers),
    )  # fmt: skip


def _text(data: bytes | None) -> str | None:
    """Each byte as the character of its number."""
    return None if data is None else data.decode("latin-1")


def _data(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _read(bootstrap_servers: str, topics: Topics) -> dict[tuple[str, bool], ReadBack]:
    return {
        (topic, is_committed): clients.read_back(
            bootstrap_servers, topic, is_committed=is_committed
        )
        for topic in topics
        for is_committed in (False, True)
    }


def _cut(folder: Path) -> None:
    active = max(folder.glob("*.log"))
    data = active.read_bytes()
    active.write_bytes(data[:-CUT_BYTES])


def _produce(
    kafka: Broker, topic: str, *, count: int = 100, has_headers: bool = True, **settings: object
) -> None:
    """Records with headers, nulls, and timestamps that go up and down."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "linger.ms": 20,
            "batch.num.messages": 10,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    for number in range(count):
        producer.produce(
            topic,
            None if number % 19 == 0 else b"value %d " % number + b"abcdefgh" * (number % 9),
            None if number % 5 == 0 else b"key %d" % (number % 8),
            timestamp=START_MS + number * 10 - number * 37 % 101,
            headers=[("n", b"%d" % number), ("nothing", None)]
            if has_headers and number % 4 == 0
            else [],
        )
    if producer.flush(WAIT_SECONDS):
        raise FatalError(f"{topic}: Kafka has not taken everything in {WAIT_SECONDS} s")


def _write_codecs(kafka: Broker) -> None:
    for codec in CODECS:
        _produce(kafka, f"codec-{codec}", compression_type=codec)
    _produce(kafka, "stamped")


def _write_segments(kafka: Broker) -> None:
    _produce(kafka, "segments", count=600)


def _write_transactions(kafka: Broker) -> object:
    _produce(kafka, "idempotent", enable_idempotence=True)
    return clients.produce_transactions(kafka.bootstrap_servers, "transactions", ends_open=True)


def _write_compacted(kafka: Broker) -> None:
    topics = ("compacted", "tombstones")
    for _ in range(2):
        for topic in topics:
            clients.produce_keys(kafka.bootstrap_servers, topic, count=300)
        wait_until_cleaned(kafka.logs, topics)


def _write_deleted(kafka: Broker) -> None:
    _produce(kafka, "deleted", count=200)
    clients.delete_records(kafka.bootstrap_servers, "deleted", before=DELETED_BEFORE)


def _write_kraft(kafka: Broker) -> None:
    for topic in ("events", "other"):
        _produce(kafka, topic, count=60)
    clients.delete_records(kafka.bootstrap_servers, "other", before=DELETED_BEFORE)
    deadline = time.monotonic() + WAIT_SECONDS
    while not list(kafka.logs.glob(f"{METADATA_TOPIC}-0/*[1-9]-*.checkpoint")):
        if time.monotonic() > deadline:
            raise FatalError(f"Kafka has made no snapshot of its metadata in {WAIT_SECONDS} s")
        time.sleep(0.1)


def _write_torn(kafka: Broker) -> None:
    _produce(kafka, TORN, count=200, enable_idempotence=True)


def _write_old_formats(kafka: Broker) -> None:
    for topic in _OLD:
        # Without a codec each record is a batch, and Kafka has index entries for whole appends.
        codec = topic.partition("-")[2]
        batch = 1 if codec in {"none", "stamped"} else 10
        _produce(
            kafka,
            topic,
            has_headers=False,
            compression_type=codec if codec in CODECS else "none",
            batch_num_messages=batch,
        )


GOLDENS: Mapping[str, Golden] = {
    "codecs": Golden(
        topics={
            **{f"codec-{codec}": _SMALL for codec in CODECS},
            "stamped": {**_SMALL, "message.timestamp.type": "LogAppendTime"},
        },
        write=_write_codecs,
        holds="every codec; headers, nulls, timestamps up and down; LogAppendTime",
    ),
    "segments": Golden(
        topics={"segments": _SMALL}, write=_write_segments, holds="about ten segments"
    ),
    "transactions": Golden(
        topics={"idempotent": _SMALL, "transactions": _SMALL},
        write=_write_transactions,
        holds="an idempotent producer; transactions committed, aborted, and one left open",
    ),
    "compacted": Golden(
        topics={
            "compacted": {**_COMPACTED, "delete.retention.ms": "1"},
            "tombstones": {**_COMPACTED, "delete.retention.ms": "86400000"},
        },
        write=_write_compacted,
        holds="compaction, twice; tombstones gone from one topic and kept in the other",
    ),
    "deleted": Golden(
        topics={"deleted": _SMALL},
        write=_write_deleted,
        holds=f"a log that starts at offset {DELETED_BEFORE}, by DeleteRecords",
    ),
    KRAFT: Golden(
        topics={"events": _SMALL, "other": _SMALL},
        write=_write_kraft,
        holds="Kafka's metadata log with a snapshot, among the partitions as by default",
        settings={"metadata.log.max.record.bytes.between.snapshots": "800"},
    ),
    TORN: Golden(
        topics={TORN: _SMALL},
        write=_write_torn,
        holds=f"a kill: no mark of a clean stop, and the last {CUT_BYTES} bytes are cut off",
    ),
    OLD: Golden(
        topics=_OLD,
        write=_write_old_formats,
        holds="messages of format v0 and v1, with every codec they can have",
        release=OLD_KAFKA,
    ),
}

_README = """# Directories that Apache Kafka has written

<!-- Written by `python -m compat.golden`; do not edit. -->

Each was written by a real Kafka, with librdkafka as its client, and stopped in order, but for the
torn one. `expected.json.gz` beside the logs has what Kafka's own consumer read in both isolation
levels and what DumpLogSegments of Kafka 4 printed of every file; of the torn directory, after Kafka
itself had recovered a copy. `tests/test_golden.py` holds Tailrace to it, without Java.

To write all of them anew, with Java 17 and Maven: `python -m compat.golden`; only some, with their
names behind it.

| Directory | What it holds | Kafka | librdkafka | Written |
|---|---|---|---|---|
"""


def _readme() -> Iterator[str]:
    yield _README
    for name, golden in GOLDENS.items():
        made = read_expected(GOLDEN / name).made
        yield (
            f"| {name} | {golden.holds} | {made['Kafka']} | {made['librdkafka']} "
            f"| {made['day']} |\n"
        )


def main() -> None:
    """Write every directory or those that are named, and say what stands in each."""
    parser = argparse.ArgumentParser(description="Have Apache Kafka write tests/golden/ anew.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of tests/golden/, or all")
    try:
        java = find_java(os.environ).home / "bin" / "java"
        for name in parser.parse_args().names or GOLDENS:
            with tempfile.TemporaryDirectory(prefix="tailrace-golden-") as scratch:
                write_golden(name, Path(scratch), java=java)
            print(name, flush=True)
    except FatalError as error:
        print(f"golden: {error}", file=sys.stderr)
        sys.exit(2)
    (GOLDEN / "README.md").write_text("".join(_readme()))


if __name__ == "__main__":
    main()
