"""Framings of compressed batches: what Kafka's broker and ours take, and what clients read.

    tests/unit/records/framings.py    the payloads: sound, odd and damaged ones, by codec and name
    tests/unit/records/framings.tsv   what Kafka answers to a producer of each; tests go by it
    Framing.java                      reads batches with the classes of Kafka's consumer

Payloads in wrappers of v0 and v1, which neither broker takes from a producer, are read only.
"""

import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from socket import create_connection, socket
from tempfile import TemporaryDirectory

from confluent_kafka import KafkaException

from compat import ours
from compat.artifacts import KAFKA, class_path
from compat.clients import WAIT_SECONDS, read_back
from compat.kafka import Kafka, run_java
from compat.report import Report
from compat.topics import create_topics
from tailrace.errors import TailraceError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import decode_response, encode_request
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import records_of
from tailrace.records.legacy import read_all_batches
from tailrace.spark.java import find_java
from tests.unit.records.framings import (
    DEPARTURES,
    Payload,
    answers_of_kafka,
    batch_of,
    legacy_payloads,
    payloads,
)

TOPIC = "framings"
_VERSION = 9
_NOT_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_PROGRAM = Path(__file__).with_name("Framing.java")

_UNREAD_BY_JAVA: Mapping[str, str] = {
    "lz4: an empty block first": "which Kafka takes, though its consumer does not read it",
}
"""Payloads that our broker takes as Kafka does, and that Kafka's consumer cannot read."""

_UNSUPPORTED_BY_LIBRDKAFKA = re.compile(
    r"gzip: (.* member|reserved flag)|snappy: (the header again|two headers|.* after$)"
    r"|lz4: (.* after$|a wrong content|content size, |a frame too many|an? .* frame last)"
    r"|zstd: a (second|cut) frame|zstd: .*, cut"
)
"""Payloads that Kafka takes and librdkafka 2.16 does not read; it waits for ever or aborts at some
gzip members."""

_READ_BY_US_ALONE = (
    "lz4: linked blocks", "lz4: linked flag alone", "lz4: dictionary id",
    "lz4: an empty block first",
)  # fmt: skip
"""Payloads that logs may have, because librdkafka reads them or earlier versions took them."""


def check(report: Report, kafka: Kafka, java: Path, class_path: str, directory: Path) -> None:
    """Produce each payload to both brokers, and have each client read it."""
    sent = list(payloads())
    with kafka:
        create_topics(
            kafka.bootstrap_servers, {TOPIC: {"retention.ms": "-1"}}, partition_count=len(sent)
        )
        theirs = _produce_all(kafka.bootstrap_servers, sent)
    logs = directory / "framings-ours"
    logs.mkdir()
    with ours.serving(logs) as servers:
        create_topics(servers, {TOPIC: {"retention.ms": "-1"}}, partition_count=len(sent))
        mine = _produce_all(servers, sent)
        by_librdkafka = _read_by_librdkafka(servers, sent, mine)
    report.check(
        f"Kafka answers to {len(sent)} framings what our tests expect",
        list(_differences(answers_of_kafka(), theirs)),
    )
    report.check(
        f"our broker answers to {len(sent)} framings what Kafka answers",
        list(_differences(_without(theirs, DEPARTURES), _without(mine, DEPARTURES))),
        explained="but for " + "; ".join(f"{name}: {why}" for name, why in DEPARTURES.items()),
    )
    taken = {name for name, code in mine.items() if code == ErrorCode.NONE}
    read = _read_by_java(java, class_path, map(batch_of, sent), directory)
    by_java = dict(zip(map(str, sent), read, strict=True))
    unread = {name: by_java[name] for name in taken if by_java[name].startswith("error")}
    report.check(
        "Kafka's consumer reads what our broker takes",
        [f"{name}: {error}" for name, error in _without(unread, _UNREAD_BY_JAVA).items()],
        explained="but for " + "; ".join(f"{n}, {why}" for n, why in _UNREAD_BY_JAVA.items()),
    )
    report.check(
        f"librdkafka reads {len(by_librdkafka)} framings that our broker takes",
        list(_differences(dict.fromkeys(by_librdkafka, by_java["gzip: plain"]), by_librdkafka)),
        explained="it does not support the others, which it gets from Kafka alike",
    )
    _check_reading(report, "v2", [(str(each), batch_of(each)) for each in sent], by_java)
    for magic in (0, 1):
        entries = list(legacy_payloads(magic))
        read = _read_by_java(java, class_path, (data for _, data in entries), directory)
        names = [name for name, _ in entries]
        _check_reading(report, f"v{magic}", entries, dict(zip(names, read, strict=True)))


def _check_reading(
    report: Report, version: str, batches: Sequence[tuple[str, bytes]], by_java: Mapping[str, str]
) -> None:
    by_us = {name: _read_by_us(data) for name, data in batches}
    errors = {name: "error" for name, read in by_java.items() if read.startswith("error")}
    report.check(
        f"our reader has of {len(batches)} framings in {version} what Kafka's consumer has",
        list(
            _differences(
                _without({**by_java, **errors}, _READ_BY_US_ALONE),
                _without(by_us, _READ_BY_US_ALONE),
            )
        ),
        explained="and reads more: " + "; ".join(_READ_BY_US_ALONE),
    )


def _produce_all(servers: str, sent: Sequence[Payload]) -> dict[str, int]:
    """The error code for each payload, each of which has a partition of its own."""
    host, port = servers.split(":")
    with create_connection((host, int(port)), WAIT_SECONDS) as connection:
        codes = {}
        for index, each in enumerate(sent):
            code = int(_NOT_YET[0])
            # A partition has its leader a little after its topic.
            while code in _NOT_YET:
                code = _produce(connection, index, batch_of(each))
            codes[str(each)] = code
    return codes


def _produce(connection: socket, partition: int, batch: bytes) -> int:
    api = APIS[ApiKey.PRODUCE]
    data = PartitionProduceData(index=partition, records=batch)
    topic = TopicProduceData(name=TOPIC, partition_data=(data,))
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))
    connection.sendall(
        encode_request(api, request, version=_VERSION, correlation_id=partition, client_id="compat")
    )
    with connection.makefile("rb") as answers:
        frame = answers.read(int.from_bytes(answers.read(4), "big"))
    answer = decode_response(api, _VERSION, memoryview(frame))
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def _read_by_librdkafka(
    servers: str, sent: Sequence[Payload], codes: Mapping[str, int]
) -> dict[str, str]:
    """The records of each partition that it supports, or an error."""
    names = {
        index: str(each)
        for index, each in enumerate(sent)
        if not codes[str(each)] and not _UNSUPPORTED_BY_LIBRDKAFKA.match(str(each))
    }
    found = {}
    for index, name in names.items():
        try:
            read = read_back(servers, TOPIC, is_committed=False, partition=index)
            found[name] = _summary([each.value or b"" for each in read.records])
        except KafkaException as error:
            found[name] = f"error {error}"
    return found


def _read_by_java(
    java: Path, class_path: str, batches: Iterable[bytes], directory: Path
) -> list[str]:
    path = directory / "framings.bin"
    path.write_bytes(b"".join(struct.pack(">i", len(each)) + each for each in batches))
    return run_java(java, class_path, [str(_PROGRAM), str(path)]).splitlines()


def _read_by_us(data: bytes) -> str:
    try:
        return _summary(
            [
                record.value or b""
                for _, batch in read_all_batches(memoryview(data))
                for record in records_of(batch)
            ]
        )
    except TailraceError:
        return "error"


def _summary(values: Sequence[bytes]) -> str:
    return f"{len(values)} {hashlib.sha256(b''.join(values)).hexdigest()}"


def _without(found: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    return {name: value for name, value in found.items() if name not in set(names)}


def _differences(expected: Mapping[str, object], found: Mapping[str, object]) -> Iterator[str]:
    for name in sorted({*expected, *found}):
        if expected.get(name) != found.get(name):
            yield f"{name}: {found.get(name)}, and {expected.get(name)} was expected"


def main() -> None:
    """This check alone: `python -m compat.framing`."""
    java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
    report = Report(say=print)
    with TemporaryDirectory(prefix="tailrace-compat-", dir="/var/tmp") as scratch:
        directory = Path(scratch)
        check(report, Kafka(java, jars, directory / "kafka"), java, jars, directory)


if __name__ == "__main__":
    main()
