"""Directories that a real Kafka has written, read and recovered without it.

`compat.golden` wrote them, with what Kafka's own consumer and dump tool said of them; they are in
`tests/golden/`, whose README says which is which.
"""

import shutil
from pathlib import Path

import pytest

from compat import ours
from compat.bytewise import read_differences
from compat.clients import ReadBack
from compat.dump import dump_differences, our_dump
from compat.golden import GOLDEN, GOLDENS, OLD, TORN, Expected, read_expected
from tailrace.model import TopicPartition
from tailrace.offline.findings import Finding, Severity
from tailrace.offline.verify import verify
from tailrace.reading import open_log
from tailrace.reading.directory import find_partitions
from tailrace.records.layout import LOG_OVERHEAD
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.log import Log
from tests.unit.records.batches import record_at

STOPPED = [name for name in GOLDENS if name != TORN]

every_directory = pytest.mark.parametrize("name", GOLDENS)


def copied(name: str, target: Path) -> Path:
    """A copy of one directory's logs, to be opened."""
    return shutil.copytree(GOLDEN / name / "logs", target / "logs")


def forget(logs: Path) -> None:
    """Remove all that can be worked out from the logs alone."""
    ours.make_unclean(logs)
    for path in logs.glob("*/*"):
        is_rebuilt = path.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}
        if is_rebuilt and not names.is_metadata_directory_name(path.parent.name):
            path.unlink()


def read_old(log: Log) -> ReadBack:
    """The records of a log of format v0 and v1, which a Fetch answers as they are stored."""
    found = [each for batch in log.batches(log.start_offset) for each in ours.seen_in(batch)]
    # So does librdkafka show a record without a timestamp, as all of v0 are.
    shown = (
        each if each.timestamp >= 0 else each._replace(is_create_time=False, timestamp=0)
        for each in found
    )
    return ReadBack(tuple(shown), log.end_offset)


def reads_otherwise(logs: Path, expected: Expected) -> list[str]:
    """Tell the differences between our log, opened and closed again, and Kafka's consumer."""
    found = []
    with ours.opened(logs, topics=expected.topics) as manager:
        for (topic, is_committed), read in expected.reads.items():
            log = ours.log_of(manager, topic)
            is_old = topic in GOLDENS[OLD].topics
            mine = read_old(log) if is_old else ours.read_log(log, is_committed=is_committed)
            found += read_differences(mine, read)
    return found


def faults(logs: Path) -> list[Finding]:
    """Return the findings of `verify` that are not just information."""
    files = DiskFiles()
    found = verify(files, find_partitions(files, str(logs)))
    return [each for each in found if each.severity is not Severity.INFO]


@every_directory
def test_storage_reads_what_kafkas_consumer_read(name: str, tmp_path: Path) -> None:
    """Opened as it was left, each topic has Kafka's records and end, in both isolation levels."""
    expected = read_expected(GOLDEN / name)
    assert any(read.records for read in expected.reads.values())
    assert reads_otherwise(copied(name, tmp_path), expected) == []


@every_directory
def test_a_program_reads_what_kafkas_consumer_read(name: str) -> None:
    """`open_log` gives Kafka's records and end from the files as they lie, in both levels."""
    for (topic, is_committed), read in read_expected(GOLDEN / name).reads.items():
        log = open_log(
            GOLDEN / name / "logs", topic, 0,
            isolation="read_committed" if is_committed else "read_uncommitted",
        )  # fmt: skip
        # As librdkafka shows a record without a timestamp.
        least = 0 if topic in GOLDENS[OLD].topics else -1
        found = [each._replace(timestamp=max(each.timestamp, least)) for each in log.records()]
        seen = [
            record_at(each.offset, each.timestamp, each.key, each.value, each.headers)
            for each in read.records
        ]
        assert found == seen
        assert log.latest_offset() == read.end


@pytest.mark.parametrize("name", STOPPED)
def test_decoders_say_what_kafkas_dump_tool_said(name: str, tmp_path: Path) -> None:
    """Each batch, record, index entry, aborted transaction and producer is as Kafka shows it."""
    found = our_dump(copied(name, tmp_path))
    assert dump_differences(found, read_expected(GOLDEN / name).dump) == []


@every_directory
def test_recovery_from_the_logs_alone_makes_what_kafka_had(name: str, tmp_path: Path) -> None:
    """Without indexes, snapshots, recovery points and the clean mark, the same ones come back."""
    expected, logs = read_expected(GOLDEN / name), copied(name, tmp_path)
    forget(logs)
    assert reads_otherwise(logs, expected) == []
    assert dump_differences(our_dump(logs), expected.dump) == []


@pytest.mark.parametrize("name", STOPPED)
def test_directory_of_kafka_is_clean(name: str) -> None:
    """`verify` has nothing against a directory that Kafka has stopped with."""
    assert faults(GOLDEN / name / "logs") == []


def test_torn_directory_is_recovered_as_kafka_recovers_it(tmp_path: Path) -> None:
    """After a kill and with a cut tail, logs, indexes and snapshots become those of Kafka."""
    expected, logs = read_expected(GOLDEN / TORN), copied(TORN, tmp_path)
    assert our_dump(logs) != expected.dump
    assert reads_otherwise(logs, expected) == []
    assert dump_differences(our_dump(logs), expected.dump) == []
    assert faults(logs) == []
    ends = read_offset_checkpoint(DiskFiles(), str(logs / names.HIGH_WATERMARKS))
    assert ends[TopicPartition(TORN, 0)] == expected.reads[TORN, False].end


@every_directory
def test_one_flipped_bit_in_any_log_is_found(name: str, tmp_path: Path) -> None:
    """With one bit changed in the first batch of each log, `verify` names each."""
    logs = copied(name, tmp_path)
    flipped = [path for path in logs.glob("*/*.log") if path.stat().st_size]
    for path in flipped:
        data = bytearray(path.read_bytes())
        # In every format a batch ends with what its checksum covers.
        data[LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD]) - 1] ^= 1
        path.write_bytes(data)
    assert {each.path for each in faults(logs)} >= set(map(str, flipped))
