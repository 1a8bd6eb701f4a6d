"""Snapshots, transaction indexes, sequences, leftovers: what is wrong is found and located."""

from dataclasses import replace

import pytest

from tailrace.model import AppendOrigin, LeaderEpoch, Offset, ProducerId
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.verify import verify
from tailrace.reading.directory import find_partitions
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import find_end
from tailrace.storage.index.transaction import ENTRY
from tailrace.storage.log import Log
from tailrace.storage.shrink import delete_old_segments, raise_log_start, truncate_to
from tailrace.storage.snapshots import encode_snapshot
from tailrace.storage.walk import walk_batches
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append,
    bases,
    batch,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import (
    ABORT,
    COMMIT,
    known_batch,
    known_producer,
    known_producers,
    marker,
)

INDEX = path(0, ".txnindex")


def findings(files: MemoryFiles) -> list[Finding]:
    """Return all findings, and check that this has changed nothing."""
    files.operations.clear()
    found = list(verify(files, find_partitions(files, "data")))
    assert not files.operations
    return found


def only(found: list[Finding], rule: Rule) -> Finding:
    """The one finding there is; it is of this rule."""
    assert [each.rule for each in found] == [rule], found
    return found[0]


def put(files: MemoryFiles, name: str, content: bytes) -> None:
    """A file with this content."""
    files.open(name, create=True).close()
    files.overwrite(name, content)


def send(log: Log, sequence: int, producer_id: int = 7, *, is_transactional: bool = True) -> None:
    """One record of a producer."""
    data = batch(
        b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
        is_transactional=is_transactional,
    )  # fmt: skip
    append(log, data)


def end(log: Log, producer_id: int = 7, *, is_commit: bool = False) -> None:
    """A marker."""
    data = bytearray(marker(COMMIT if is_commit else ABORT, producer_id=producer_id).view)
    log.append(
        memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=AppendOrigin.COORDINATOR
    )
    log.advance_high_watermark(log.end_offset)


def transactions(*, roomy: bool = True) -> MemoryFiles:
    """Two producers whose transactions overlap: both are aborted, at offsets 3 and 5."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=4000 if roomy else 300))
    send(log, 0)
    send(log, 0, producer_id=8)
    send(log, 1)
    end(log)
    send(log, 1, producer_id=8)
    end(log, producer_id=8)
    stop_cleanly(log)
    return files


@pytest.mark.parametrize("roomy", [False, True])
def test_transactions_as_a_broker_leaves_them_are_clean(roomy: bool) -> None:  # noqa: FBT001
    """Transactions are clean in one segment and across several."""
    assert not findings(transactions(roomy=roomy))


def faults(files: MemoryFiles) -> list[str]:
    """Return what is more than information."""
    return [str(each) for each in findings(files) if each.severity is not Severity.INFO]


def restarted(files: MemoryFiles, log: Log) -> Log:
    """The log after an orderly stop and a start, which removes snapshots up to the log start."""
    end, start = log.end_offset, log.start_offset
    stop_cleanly(log)
    return open_at(files, config=log.config, is_clean=True, checkpoints=(end, start))


@pytest.mark.parametrize("is_ended", [False, True])
def test_the_rest_of_a_transaction_after_retention_is_clean(*, is_ended: bool) -> None:
    """Snapshots have what a log has lost: its beginning, or all of it but the marker."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=300))
    for sequence in range(4):
        send(log, sequence)
    if is_ended:
        end(log)
    for sequence in range(8):
        send(log, sequence, producer_id=8, is_transactional=False)
        if not is_ended:
            send(log, 4 + sequence)
    assert bases(log)[1] == 4
    raise_log_start(log, 4)
    delete_old_segments(log, NOW)
    log = restarted(files, log)
    append(log, batch(b"later"))
    stop_cleanly(log)
    assert not faults(files)
    # What it does see is held against the log as ever.
    known = known_producers({8: known_producer(0, (known_batch(41, 9, 0, NOW),), NOW)})
    files.overwrite(path(log.end_offset, ".snapshot"), encode_snapshot(known))
    assert faults(files)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_transaction_from_below_the_log_start_is_clean(*, is_cut: bool) -> None:
    """After a cut a broker reads from the log start on, and forgets what was open there."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=4000))
    for sequence in range(3):
        send(log, sequence)
        send(log, sequence, producer_id=8)
    raise_log_start(log, 5)
    put(files, "data/log-start-offset-checkpoint", b"0\n1\nflights 0 5\n")
    append(log, batch(b"lost"))
    if is_cut:
        truncate_to(log, 6)
        assert log.producers.get(ProducerId(7)) is None
    send(log, 3)
    end(log)
    end(log, producer_id=8)
    log.roll()
    send(log, 4)
    stop_cleanly(log)
    assert not faults(files)
    # The end of the first entry.
    flip(files, INDEX, 2 + 8 + 8 + 7)
    assert faults(files)


@pytest.mark.parametrize("position", range(2 * ENTRY.size))
def test_every_byte_of_a_transaction_index_is_checked(position: int) -> None:
    """The entry that it stands in is named."""
    files = transactions()
    assert len(files.content(INDEX)) == 2 * ENTRY.size
    flip(files, INDEX, position)
    found = findings(files)
    assert {(each.rule, each.path, each.severity) for each in found} == {
        (Rule.TRANSACTION_INDEX, INDEX, Severity.ERROR)
    }
    assert position - position % ENTRY.size in {each.position for each in found}


def test_an_abort_without_its_entry_is_found() -> None:
    """Without it, a consumer would be shown aborted records."""
    files = transactions()
    files.overwrite(INDEX, files.content(INDEX)[: ENTRY.size])
    found = only(findings(files), Rule.TRANSACTION_INDEX)
    assert (found.offset, found.severity) == (5, Severity.ERROR)


def test_a_transaction_index_with_bytes_left_over_is_found() -> None:
    """The finding has the position where they begin."""
    files = transactions()
    files.overwrite(INDEX, files.content(INDEX) + b"\0")
    assert only(findings(files), Rule.TRANSACTION_INDEX).position == 2 * ENTRY.size


@pytest.mark.parametrize("position", range(10 + 46))
def test_every_byte_of_a_snapshot_is_checked(position: int) -> None:
    """The checksum covers all but the version and itself."""
    files = transactions()
    flip(files, path(6, ".snapshot"), position)
    found = only(findings(files), Rule.SNAPSHOT)
    assert (found.severity, found.path) == (Severity.ERROR, path(6, ".snapshot"))


@pytest.mark.parametrize("change", [b"", b"\0"])
def test_a_snapshot_of_another_size_is_found(change: bytes) -> None:
    """A snapshot is found that is cut, or has a byte behind its end."""
    files = transactions()
    name = path(6, ".snapshot")
    files.overwrite(name, files.content(name)[:-1] + change * 2)
    assert only(findings(files), Rule.SNAPSHOT).path == name


def test_a_snapshot_that_says_otherwise_than_the_log_is_a_warning() -> None:
    """A broker that believes it would refuse the producer's next batch."""
    files = transactions()
    known = known_producers({7: known_producer(0, (known_batch(0, 2, 0, NOW),), NOW, 0)})
    files.overwrite(path(6, ".snapshot"), encode_snapshot(known))
    found = only(findings(files), Rule.SNAPSHOT)
    assert (found.severity, found.offset) == (Severity.WARNING, 6)
    assert "last sequence 0, where the log has 1" in found.sentence


def test_a_snapshot_behind_the_log_or_ahead_of_itself_is_found() -> None:
    """A snapshot beyond the log's end, or with offsets beyond its own, is a finding."""
    files = transactions()
    put(files, path(9, ".snapshot"), encode_snapshot({}))
    found = only(findings(files), Rule.SNAPSHOT)
    assert (found.severity, found.offset) == (Severity.WARNING, 9)
    files.remove(path(9, ".snapshot"))
    known = known_producers({7: known_producer(0, (known_batch(0, 6, 0, NOW),), NOW, 0)})
    files.overwrite(path(6, ".snapshot"), encode_snapshot(known))
    assert only(findings(files), Rule.SNAPSHOT).severity is Severity.ERROR


def test_a_sequence_that_leaves_a_gap_is_a_warning() -> None:
    """No broker takes such a batch from a producer that it knows."""
    files = MemoryFiles()
    log = open_at(files)
    send(log, 0, is_transactional=False)
    log.producers.truncate_fully(Offset(0))
    send(log, 5, is_transactional=False)
    stop_cleanly(log)
    found = only(findings(files), Rule.SEQUENCE)
    assert (found.severity, found.offset) == (Severity.WARNING, 1)
    assert "sequence 5, where 1 is due" in found.sentence


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_sequences_of_coordinators_are_no_findings(topic: str) -> None:
    """A group coordinator begins with 0 in each batch of a transaction."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=4000))
    for _ in range(3):
        for _ in range(2):
            send(log, 0, is_transactional=True)
            log.producers.truncate_fully(log.end_offset)
        end(log, is_commit=True)
    stop_cleanly(log)
    found = MemoryFiles()
    for name in files.list(FOLDER):
        if not name.endswith(".snapshot"):
            found.make_directory(f"data/{topic}-0")
            put(found, f"data/{topic}-0/{name}", files.content(f"{FOLDER}/{name}"))
    assert not [each for each in findings(found) if each.severity is not Severity.INFO]


@pytest.mark.parametrize(("hours", "rules"), [(1, [Rule.SEQUENCE]), (24, [])])
def test_a_producer_that_a_broker_has_forgotten_may_begin_anywhere(
    hours: int, rules: list[Rule]
) -> None:
    """By default it does so after a day of silence, and takes any sequence then."""
    files = MemoryFiles()
    log = open_at(files)
    send(log, 0, is_transactional=False)
    log.producers.truncate_fully(Offset(0))
    later = NOW + hours * 3600 * 1000
    data = batch(
        b"v", producer_id=7, producer_epoch=0, base_sequence=5, timestamps=[later]
    )  # fmt: skip
    append(log, data, now_ms=later)
    stop_cleanly(log)
    assert [each.rule for each in findings(files)] == rules


def test_a_sequence_behind_missing_offsets_is_excused() -> None:
    """Compaction takes batches out, and the ones left have the sequences they had."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=4000))
    for number in range(4):
        send(log, number, is_transactional=False)
    stop_cleanly(log)
    size = len(files.content(path(0, ".log"))) // 4
    data = files.content(path(0, ".log"))
    files.overwrite(path(0, ".log"), data[:size] + data[2 * size :])
    for suffix in (".index", ".timeindex"):
        files.remove(path(0, suffix))
    assert only(findings(files), Rule.GAP).severity is Severity.INFO


def test_an_open_transaction_and_a_lonely_marker_are_information() -> None:
    """Both are in order; the first keeps readers of committed records from going on."""
    files = MemoryFiles()
    log = open_at(files)
    end(log, producer_id=9, is_commit=True)
    send(log, 0)
    stop_cleanly(log)
    lonely, still_open = findings(files)
    assert {lonely.rule, still_open.rule} == {Rule.TRANSACTION}
    assert (lonely.offset, still_open.offset) == (0, 1)
    assert {lonely.severity, still_open.severity} == {Severity.INFO}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"version=2\n", "version '2'"),
        (b"version=1\nnode.id=1\n", "cluster.id missing"),
        (b"version=1\nnode.id=x\ncluster.id=c\n", "node.id is 'x'"),
        (b"version=0\n", "broker.id missing"),
        (b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=d\n", "directory.id"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_damaged_meta_properties_are_found(content: bytes, told: str) -> None:
    """A broker would not start on them."""
    files = transactions()
    put(files, "data/meta.properties", content)
    found = only(findings(files), Rule.IDENTITY)
    assert (found.severity, found.path) == (Severity.ERROR, "data/meta.properties")
    assert told in found.sentence


def test_meta_properties_of_both_versions_are_in_order() -> None:
    """A file of version 0, which brokers with ZooKeeper wrote, is as good as one of version 1."""
    files = transactions()
    for content in (b"version=0\nbroker.id=3\n", b"version=1\nnode.id=1\ncluster.id=c\n"):
        put(files, "data/meta.properties", content)
        assert not findings(files)


@pytest.mark.parametrize(
    ("name", "severity", "told"),
    [
        (f"{0:020d}.log.cleaned", Severity.WARNING, "a broker removes it"),
        (f"{0:020d}.log.swap", Severity.WARNING, "puts it in place"),
        (f"{9:020d}.log.deleted", Severity.INFO, "a broker removes it"),
        ("leader-epoch-checkpoint.tmp", Severity.INFO, "a broker removes it"),
    ],
)
def test_leftovers_of_a_partition_are_told(name: str, severity: Severity, told: str) -> None:
    """The finding says what a broker does about them."""
    files = transactions()
    # What is put in place counts already, so it has to be a whole segment.
    content = files.content(path(0, ".log")) if name.endswith("swap") else b""
    put(files, f"{FOLDER}/{name}", content)
    [found] = [each for each in findings(files) if each.rule is Rule.LEFTOVER]
    assert (found.severity, found.path) == (severity, f"{FOLDER}/{name}")
    assert told in found.sentence


@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
def test_folders_out_of_service_are_information(kind: str) -> None:
    """They hold no partition that is served."""
    files = transactions()
    name = f"data/planes-0.0123456789abcdef0123456789abcdef-{kind}"
    files.make_directory(name)
    found = only(findings(files), Rule.LEFTOVER)
    assert (found.severity, found.path) == (Severity.INFO, name)


def test_offsets_missing_between_two_segments_are_information() -> None:
    """They are named; compaction leaves them, and so does a lost machine."""
    files = transactions(roomy=False)
    name = path(0, ".log")
    data = files.content(name)
    log = SegmentFiles(base_offset=Offset(0), path=name, size=len(data))
    end = find_end(files, [log])
    positions = [at for at, _ in walk_batches(files.open(name), name, start=0, limit=len(data))]
    files.overwrite(name, data[: positions[-1]])
    assert find_end(files, [replace(log, size=positions[-1])]) == end - 1
    for suffix in (".index", ".timeindex"):
        files.remove(path(0, suffix))
    gaps = [each for each in findings(files) if each.rule is Rule.GAP]
    assert [(each.offset, each.path) for each in gaps] == [(end - 1, path(end, ".log"))]
