"""Records of coordinators: Kafka's, decoded and encoded again by us, and ours, decoded by Kafka.

    Kafka writes     groups of both protocols, static members, a regular expression, transactions
    we write         each type in each version: every field set, all at defaults, and with nulls

Ours are put into a segment file, which Kafka's DumpLogSegments reads with the decoders of its two
coordinators, and prints as JSON.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from compat import ours
from compat.clients import START_MS, WAIT_SECONDS
from compat.encoding import as_json, samples
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import SMALL, create_topics
from tailrace.model import OFFSETS_TOPIC
from tailrace.protocol.coordinator_records import (
    GroupRecordType,
    RecordType,
    TransactionRecordType,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_class,
    record_type,
    value_class,
)
from tailrace.protocol.fields import Record
from tailrace.protocol.records import GroupMetadataValue
from tailrace.records.builder import BatchBuilder
from tests.unit.protocol.strategies import full_message, versions_of

TOPIC = "coordinated"
TRANSACTION_TOPIC = "__transaction_state"
NOT_WRITTEN = {
    GroupRecordType.LEGACY_OFFSET_COMMIT,
    GroupRecordType.CONSUMER_GROUP_PARTITION_METADATA,
}
"""Types that Kafka 4.3 reads, and writes no more."""

_KINDS: tuple[tuple[str, type[RecordType], str], ...] = (
    (OFFSETS_TOPIC, GroupRecordType, "--offsets-decoder"),
    (TRANSACTION_TOPIC, TransactionRecordType, "--transaction-log-decoder"),
)


def check(report: Report, kafka: Kafka, directory: Path) -> None:
    """Have Kafka write on a directory of its own, which is new; then have it read ours."""
    with kafka:
        _write(kafka.bootstrap_servers)
    with ours.opened(kafka.logs, topics={TOPIC: SMALL}) as logs:
        for topic, kinds, _ in _KINDS:
            read = ours.read_log(ours.log_of(logs, topic), is_committed=False)
            found = [(each.key or b"", each.value) for each in read.records]
            report.check(
                f"our records of {topic} are Kafka's, byte for byte", [*_same(kinds, found)]
            )
    for topic, kinds, decoder in _KINDS:
        written = [each for kind in kinds for each in _samples(kind)]
        path = directory / f"{topic}-0" / f"{0:020d}.log"
        path.parent.mkdir()
        path.write_bytes(_segment(written))
        lines = [each for each in kafka.dump([path], decoder) if each.startswith("| offset:")]
        report.check(
            f"Kafka's decoder reads our records of {topic}, {len(written)} of all versions",
            [*_read_alike(written, lines)],
        )
    alone = kafka.moved_to(directory / "classic-group")
    mine = directory / "classic-group-ours" / "logs"
    mine.mkdir(parents=True)
    _check_classic_group(report, alone, mine)


def _check_classic_group(report: Report, kafka: Kafka, mine: Path) -> None:
    """The same life of a classic group on both brokers, on directories with no other group."""
    stored = []
    with kafka:
        _live(kafka.bootstrap_servers)
    with ours.serving(mine, settings={"offsets.topic.num.partitions": "1"}) as servers:
        _live(servers)
    for path in (kafka.logs, mine):
        with ours.opened(path, topics={TOPIC: {}}) as logs:
            read = ours.read_log(ours.log_of(logs, OFFSETS_TOPIC), is_committed=False)
            stored.append(
                [*_classic_groups((each.key or b"", each.value) for each in read.records)]
            )
    theirs, found = stored
    report.check(
        "a classic group that joins and leaves has the records that Kafka writes",
        [] if found == theirs and theirs else [f"{found} from us, {theirs} from Kafka"],
        explained="but for ids, addresses and times",
    )


def _live(bootstrap_servers: str) -> None:
    create_topics(bootstrap_servers, {TOPIC: {}})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    producer.produce(TOPIC, b"value")
    producer.flush(WAIT_SECONDS)
    _consume(bootstrap_servers, {"partition.assignment.strategy": "range"}, TOPIC)


def _classic_groups(records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[object]:
    """The records of classic groups, without ids, addresses and times."""
    for key, value in records:
        if record_type(GroupRecordType, key) is not GroupRecordType.GROUP_METADATA:
            continue
        if value is None:
            yield None
            continue
        version, found = decode_value(GroupMetadataValue, value)
        leader = found.leader and "the member"
        yield (
            version,
            replace(
                found,
                leader=leader,
                current_state_timestamp=0,
                members=tuple(
                    replace(each, member_id="the member", client_host="") for each in found.members
                ),
            ),
        )


def _write(bootstrap_servers: str) -> None:
    """Groups and transactions that leave a record of each type."""
    create_topics(bootstrap_servers, {TOPIC: SMALL})
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": "coordinated", "log_level": 0}
    )
    producer.init_transactions(WAIT_SECONDS)
    for ended in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, b"value")
        ended(WAIT_SECONDS)
    modern = {"group.protocol": "consumer", "group.remote.assignor": "uniform"}
    for options, subscription in (
        ({"partition.assignment.strategy": "range"}, TOPIC),
        ({"group.instance.id": "static", "client.rack": "r"}, TOPIC),
        (modern, TOPIC),
        (modern | {"group.instance.id": "static"}, "^coord.*"),
    ):
        _consume(bootstrap_servers, options, subscription)


def _consume(bootstrap_servers: str, options: dict[str, str], subscription: str) -> None:
    """A member that joins a group of its own, commits, and leaves."""
    group = f"{subscription} {sorted(options)}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **options,
        }
    )
    consumer.subscribe([subscription])
    # A regular expression is looked up every ten seconds.
    deadline = time.monotonic() + 2 * WAIT_SECONDS
    while (message := consumer.poll(1)) is None or message.error():
        assert time.monotonic() < deadline, f"{group} has got no record"
    consumer.commit(asynchronous=False)
    consumer.close()


def _same(kinds: type[RecordType], records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[str]:
    """The records that are others when they are encoded again, and the types that are missing."""
    missing = {*kinds} - NOT_WRITTEN
    for key, value in records:
        kind = record_type(kinds, key)
        again = encode_key(decode_key(key_class(kind), key))
        if again != key:
            yield f"{kind.name} key {key.hex()} is {again.hex()}"
        if value is not None:
            missing.discard(kind)
            version, found = decode_value(value_class(kind), value)
            again = encode_value(found, version)
            if again != value:
                yield f"{kind.name} value {value.hex()} is {again.hex()}"
    yield from (f"Kafka has written no {kind.name}" for kind in missing)


_Sample = tuple[Record, int, Record]
"""A key, the version of a value, and the value."""


def _samples(kind: RecordType) -> Iterator[_Sample]:
    key: Any = full_message(key_class(kind), 0)
    message = value_class(kind)
    for version in versions_of(message):
        for value in samples(message, version):
            yield key, version, value


def _segment(written: Sequence[_Sample]) -> bytes:
    """One batch of all records."""
    builder = BatchBuilder()
    for key, version, value in written:
        builder.append(encode_key(key), encode_value(value, version), timestamp=START_MS)
    return bytes(builder.build())


def _read_alike(written: Sequence[_Sample], lines: Sequence[str]) -> Iterator[str]:
    if len(lines) != len(written):
        yield f"{len(lines)} records are read, {len(written)} were written"
    for (key, version, value), line in zip(written, lines, strict=False):
        shown = line.partition(" key: ")[2]
        told_key, told_value = (json.loads(each) for each in shown.split(" payload: ", 1))
        expected = {"type": str(key.record_type), "data": as_json(key, 0)}
        if told_key != expected:
            yield f"{expected} is read as {told_key}"
        expected = {"version": str(version), "data": as_json(value, version)}
        if told_value != expected:
            yield f"{type(value).__name__} {expected} is read as {told_value}"
