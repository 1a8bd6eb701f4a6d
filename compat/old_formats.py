"""Kafka 3.9 writes formats v0, v1 and v2, Tailrace opens: records, indexes, producers.

Kafka converts to the format of the topic what librdkafka sends as v2; `sent` topics get entries
that an old client built. The mixed topics go from v0 to v1 and v2, and in the end back to v0. The
names of the others begin with their format. The segments of all are small.
"""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka import Producer
from kafka import KafkaProducer

from compat import clients, ours
from compat.bytewise import (
    FILE_KINDS,
    copy_directory,
    differences,
    read_differences,
    snapshot_differences,
)
from compat.clients import START_MS, ReadBack, Seen
from compat.kafka_to_us import Expected, wait_until_cleaned
from compat.old_kafka import OldKafka
from compat.report import Report
from compat.topics import configure, create_topics
from tailrace.errors import FatalError
from tailrace.model import NO_TIMESTAMP
from tailrace.records.layout import LENGTH, LENGTH_POSITION, LOG_OVERHEAD, MAGIC_POSITION
from tailrace.storage.config import usable_configs
from tailrace.storage.log import Log

_VERSIONS: Mapping[str, str] = {"v0": "0.9.0", "v1": "0.10.2", "v2": "2.8"}
"""The setting `message.format.version` for each format."""

_CLIENTS: Mapping[str, tuple[int, int]] = {"v0": (0, 9), "v1": (0, 10)}
"""The broker that an old client takes Kafka for, so that it sends this format."""

_CODECS = ("none", "gzip", "snappy", "lz4")
"""Codecs of v0 and v1."""

_ATTEMPTS_MAX = 20
"""Most times that records are sent until Kafka has written some in the format of a topic."""
_AT_FIRST = {"segment.index.bytes": "65536", "index.interval.bytes": "512"}
"""Settings that a segment keeps as they were when it was created."""

_SMALL = {**_AT_FIRST, "segment.bytes": "8192", "retention.ms": "-1"}
_COMPACTED = {
    **_SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
}
_STAMPED = {**_SMALL, "message.timestamp.type": "LogAppendTime"}
_GZIP = {"compression.type": "gzip"}

CONVERTED: Mapping[str, Mapping[str, str]] = {
    **{
        f"{version}-{codec}": {**_SMALL, "compression.type": codec.replace("none", "uncompressed")}
        for version in ("v0", "v1")
        for codec in _CODECS
    },
    **{f"v2-{codec}": {**_SMALL, "compression.type": codec} for codec in (*_CODECS[1:], "zstd")},
    "v1-stamped": _STAMPED,
    "v1-stamped-gzip": {**_STAMPED, **_GZIP},
    "v1-deleted-gzip": {**_SMALL, **_GZIP},
    "mixed": _SMALL,
    "mixed-gzip": {**_SMALL, **_GZIP},
}
SENT: Mapping[str, Mapping[str, str]] = {
    f"{version}-sent-{codec}": _SMALL
    for version in _CLIENTS
    for codec in _CODECS
    if (version, codec) != ("v0", "lz4")
}
"""Without lz4 in v0, which kafka-python cannot decompress."""

COMPACTED: Mapping[str, Mapping[str, str]] = {
    **{f"{version}-compacted": _COMPACTED for version in (*_VERSIONS, "mixed")},
    **{f"{version}-compacted-gzip": {**_COMPACTED, **_GZIP} for version in ("v0", "v1", "mixed")},
    "v0-tombstones": {**_COMPACTED, "delete.retention.ms": "86400000"},
    "v1-tombstones": {**_COMPACTED, "delete.retention.ms": "86400000"},
}
TRANSACTIONS = "v2-transactions"
TOPICS: Mapping[str, Mapping[str, str]] = {
    **CONVERTED, **SENT, **COMPACTED, TRANSACTIONS: _SMALL
}  # fmt: skip
"""Settings by topic, under Kafka's names."""

MIXED = tuple(topic for topic in TOPICS if topic.startswith("mixed"))
DELETED = "v1-deleted-gzip"
DELETED_BEFORE = 123


def check(report: Report, kafka: OldKafka, scratch: Path) -> None:
    """Check everything, with `kafka` on a new directory."""
    with kafka:
        expected = _write(kafka)
    _check_opening(report, kafka.logs, expected, scratch)
    with kafka:
        expected = _write_more(kafka)
        kafka.kill()
    _check_after_kill(report, kafka.logs, expected, scratch)


def _write(kafka: OldKafka) -> Expected:
    servers = kafka.bootstrap_servers
    create_topics(servers, {topic: {**_AT_FIRST, **_format(topic[:2])} for topic in TOPICS})
    configure(servers, TOPICS)
    for version in _VERSIONS:
        configure(servers, dict.fromkeys(MIXED, _format(version)))
        for topic in MIXED:
            _produce(servers, topic, is_keyed=topic in COMPACTED)
            # Kafka answers before the log knows its new setting.
            attempts = 1
            while topic not in COMPACTED and int(version[1]) not in _formats(kafka.logs, topic):
                if attempts == _ATTEMPTS_MAX:
                    raise FatalError(f"Kafka does not write {version} to {topic}")
                _produce(servers, topic, is_keyed=False)
                attempts += 1
    for topic in (*CONVERTED, *COMPACTED):
        if topic not in MIXED:
            _produce(servers, topic, is_keyed=topic in COMPACTED)
    wait_until_cleaned(kafka.logs, tuple(COMPACTED))
    for topic in COMPACTED:
        _produce(servers, topic, is_keyed=True)
    wait_until_cleaned(kafka.logs, tuple(COMPACTED))
    for topic in SENT:
        _send(servers, topic)
    clients.delete_records(servers, DELETED, before=DELETED_BEFORE)
    held = clients.produce_transactions(servers, TRANSACTIONS, ends_open=True)
    expected = _read_all(servers)
    assert held
    return expected


def _formats(logs: Path, topic: str) -> set[int]:
    """The formats in the files of a topic, of which a broker may write the last one."""
    found = set()
    for path in (logs / f"{topic}-0").glob("*.log"):
        data, position = path.read_bytes(), 0
        # Each format has a size before the rest, and its number at the same place.
        while position + MAGIC_POSITION < len(data):
            found.add(data[position + MAGIC_POSITION])
            [size] = LENGTH.unpack_from(data, position + LENGTH_POSITION)
            position += LOG_OVERHEAD + size
    return found


def _write_more(kafka: OldKafka) -> Expected:
    """Write more to the topics; the mixed topics go back to v0, behind v2."""
    servers = kafka.bootstrap_servers
    # A producer waits until Kafka knows its topics again, and `configure` does not.
    for topic in SENT:
        _produce(servers, topic, is_keyed=False)
    configure(servers, dict.fromkeys(MIXED, _format("v0")))
    for topic in CONVERTED:
        _produce(servers, topic, is_keyed=False)
    return _read_all(servers)


def _read_all(bootstrap_servers: str) -> Expected:
    return {
        (topic, is_committed): clients.read_back(
            bootstrap_servers, topic, is_committed=is_committed
        )
        for topic in TOPICS
        for is_committed in ((False, True) if topic == TRANSACTIONS else (False,))
    }


def _check_opening(report: Report, logs: Path, expected: Expected, scratch: Path) -> None:
    """Check a directory after a clean stop: verified, opened as it is or recovered, and served."""
    copied = copy_directory(logs, scratch / "old-verified")
    report.check("Kafka 3.9's directory passes tailrace log verify", ours.verify(copied))
    report.check(
        "Kafka 3.9 has written the formats that its topics are named after",
        list(_format_differences(copied)),
    )
    for name, is_clean in (("as it was left", True), ("with everything recovered", False)):
        copied = copy_directory(logs, scratch / f"old-opened-{is_clean}")
        if not is_clean:
            ours.make_unclean(copied)
        _check_reads(report, copied, expected, name)
        for what, suffixes in FILE_KINDS.items():
            report.check(
                f"Kafka 3.9's directory, opened {name} and closed, keeps its {what}",
                differences(logs, copied, suffixes=suffixes, topics=TOPICS),
            )
        report.check(
            f"Kafka 3.9's directory, opened {name} and closed, keeps its producer snapshots",
            snapshot_differences(logs, copied, topics=TOPICS.keys() - {DELETED}),
            explained=f"but for {DELETED}: each side drops those below the log start as it opens",
        )
    _check_serving(report, copy_directory(logs, scratch / "old-served"), expected)


def _check_after_kill(report: Report, logs: Path, expected: Expected, scratch: Path) -> None:
    """Check the directory of a killed Kafka."""
    copied = copy_directory(logs, scratch / "old-killed")
    _check_reads(report, copied, expected, "after a kill")
    report.check(
        "Kafka 3.9's directory after a kill keeps its logs",
        differences(logs, copied, suffixes=FILE_KINDS["logs"], topics=TOPICS),
    )
    report.check("and passes tailrace log verify", ours.verify(copied))


def _format_differences(logs: Path) -> Iterator[str]:
    with ours.opened(logs, topics=TOPICS) as manager:
        for topic in TOPICS:
            batches = ours.log_of(manager, topic).batches(0)
            found = {
                batch.magic if (old := batch.legacy) is None else old.magic for batch in batches
            }
            expected = {0, 1, 2} if topic in MIXED else {int(topic[1])}
            # Compaction may leave nothing of one.
            if not found or found - expected or (topic not in COMPACTED and expected - found):
                yield f"{topic} has the formats {found}"


def _check_reads(report: Report, logs: Path, expected: Expected, name: str) -> None:
    with ours.opened(logs, topics=TOPICS) as manager:
        for (topic, is_committed), read in expected.items():
            found = _read(ours.log_of(manager, topic), is_committed=is_committed)
            level = "committed" if is_committed else "uncommitted"
            report.check(
                f"Kafka 3.9's {topic}, {level}, opened {name}, reads as Kafka's consumer read it",
                read_differences(
                    found, ReadBack(tuple(map(_without_time, read.records)), read.end)
                ),
            )


def _read(log: Log, *, is_committed: bool) -> ReadBack:
    if log.partition.topic == TRANSACTIONS:
        return ours.read_log(log, is_committed=is_committed)
    start = log.start_offset
    seen = (each for batch in log.batches(start) for each in ours.seen_in(batch))
    return ReadBack(tuple(each for each in seen if each.offset >= start), log.end_offset)


def _without_time(seen: Seen) -> Seen:
    """Records of v0 as we return them, with no timestamp; librdkafka returns a timestamp of 0."""
    if seen.is_create_time or seen.timestamp:
        return seen
    return seen._replace(is_create_time=True, timestamp=NO_TIMESTAMP)


def _check_serving(report: Report, logs: Path, expected: Expected) -> None:
    with ours.serving(logs) as servers:
        configure(servers, {topic: usable_configs(TOPICS[topic]) for topic in TOPICS})
        for (topic, is_committed), read in expected.items():
            found = clients.read_back(servers, topic, is_committed=is_committed)
            level = "committed" if is_committed else "uncommitted"
            report.check(
                f"Kafka 3.9's {topic}, {level}, served by Tailrace, reads as from Kafka",
                read_differences(found, read),
            )


def _format(version: str) -> Mapping[str, str]:
    """The setting with which Kafka writes a format."""
    return {"message.format.version": _VERSIONS[version]} if version in _VERSIONS else {}


def _produce(bootstrap_servers: str, topic: str, *, is_keyed: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 5,
            "batch.num.messages": 20,
            "log_level": 0,
        }
    )
    failures = []
    for key, value, timestamp in _records(topic, is_keyed=is_keyed):
        producer.produce(
            topic, value, key, timestamp=timestamp,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert not producer.flush(60)
    assert not failures, failures[0]


def _send(bootstrap_servers: str, topic: str) -> None:
    version, _, codec = topic.partition("-sent-")
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        api_version=_CLIENTS[version],
        compression_type=None if codec == "none" else codec,
        batch_size=2000,
        linger_ms=5,
    )
    sent = [
        producer.send(topic, value, key, timestamp_ms=timestamp)
        for key, value, timestamp in _records(topic, is_keyed=False)
    ]
    for each in sent:
        each.get(60)
    producer.close()


def _records(topic: str, *, is_keyed: bool) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    chance = random.Random(topic)  # noqa: S311 - the same in every run
    for number in range(400):
        key = b"key %d" % chance.randrange(40) if is_keyed or number % 5 else None
        filler = bytes(chance.choices(b"abcdefgh", k=chance.randrange(200)))
        value = None if key and number % 7 == 0 else b"%d %s" % (number, filler)
        yield key, value, START_MS + number * 10 - chance.randrange(500)
