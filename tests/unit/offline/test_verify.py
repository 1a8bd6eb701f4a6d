"""Every kind of damage is found and located, and what is in order is called clean."""

import crc32c
import pytest

from tailrace.model import Codec
from tailrace.offline.findings import FINDINGS_MAX, Finding, Rule, Severity
from tailrace.offline.repair_plan import plan_repair
from tailrace.offline.scan import scan_partition
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.records.batch import stamp
from tailrace.records.codecs import compress
from tailrace.testing import MemoryFiles, virtual_runtime
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.broker.brokers import batch as produced_batch
from tests.unit.broker.brokers import connect, create_topic, produce, running
from tests.unit.records.framings import batch_of, payloads
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)

SIZE = len(batch(b"value 0"))
FIRST, SECOND = path(0, ".log"), path(5, ".log")


def put(files: MemoryFiles, name: str, text: bytes) -> None:
    """A file with this content."""
    files.open(name, create=True).close()
    files.overwrite(name, text)


def findings(files: MemoryFiles, directory: str = "data") -> list[Finding]:
    """Return all findings, and check that this has changed nothing."""
    files.operations.clear()
    found = list(verify(files, find_partitions(files, directory)))
    assert not files.operations
    return found


def a_log(count: int = 20) -> MemoryFiles:
    """A cleanly closed log with 20 batches of one record in segments of five, indexed densely."""
    files = MemoryFiles()
    stop_cleanly(filled(files, count))
    return files


def only(found: list[Finding], rule: Rule) -> Finding:
    """The one finding there is; it is of this rule."""
    assert [each.rule for each in found] == [rule], found
    return found[0]


def test_a_closed_and_a_live_log_are_clean() -> None:
    """Both have no findings, also with an active segment whose indexes are padded with zeros."""
    files = MemoryFiles()
    log = filled(files, 23)
    assert not findings(files)
    stop_cleanly(log)
    assert not findings(files)
    assert not findings(files, FOLDER)


def test_the_offset_of_a_wrapper_of_format_v0_is_held_against_its_last_record() -> None:
    """No checksum covers it; its records are right all the same, so that it is a warning."""
    inner = [LegacyMessage(0, offset, b"k", b"v", -1) for offset in (0, 1)]
    value = bytes(compress(Codec.GZIP, write_all_legacy(inner)))
    files = MemoryFiles()
    files.make_directory("data")
    files.make_directory(FOLDER)
    for stored, expected in ((1, []), (5, [(Severity.WARNING, Rule.OFFSET_ORDER, 0)])):
        wrapper = LegacyMessage(0, stored, None, value, -1, Codec.GZIP)
        put(files, FIRST, write_legacy(wrapper))
        found = findings(files)
        assert [(each.severity, each.rule, each.position) for each in found] == expected


def test_a_frame_that_kafkas_clients_cannot_read_is_a_warning() -> None:
    """A batch of lz4 with linked blocks is sound, and named with the reason."""
    (linked,) = (each for each in payloads() if each.name == "linked blocks")
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=1 << 20))
    log.append_as_follower(memoryview(bytearray(batch_of(linked))), now_ms=NOW)
    stop_cleanly(log)
    found = only(findings(files), Rule.FRAMING)
    assert found.severity is Severity.WARNING
    assert "linked blocks, which Kafka's Java clients cannot read" in found.sentence


def test_a_running_broker_and_its_directory_after_the_stop_are_clean() -> None:
    """Between its produce requests, and when it has left its checkpoints."""
    with virtual_runtime() as outside:

        async def main() -> None:
            async with running(outside, {"log.index.interval.bytes": "100"}) as broker:
                peer = connect(outside, broker)
                await create_topic(peer, "flights", partitions=2)
                for number in range(20):
                    records = produced_batch(b"value %d" % number)
                    await produce(peer, "flights", records, partition=number % 2)
                    assert not list(verify(outside.files, find_partitions(outside.files, "data")))

        outside.run(main())
        directory = find_partitions(outside.files, "data")
        assert len(directory.partitions) == 3
        assert not list(verify(outside.files, directory))


@pytest.mark.parametrize("field", [21, 23, 30, 40, 57, 61, 70, SIZE - 1])
def test_a_flipped_byte_under_the_checksum_is_located(field: int) -> None:
    """The batch is named and nothing else is, be the byte in its header or in its records."""
    files = a_log()
    flip(files, FIRST, 2 * SIZE + field)
    found = only(findings(files), Rule.CHECKSUM)
    assert (found.severity, found.path, found.position, found.offset) == (
        Severity.ERROR, FIRST, 2 * SIZE, 2,
    )  # fmt: skip


@pytest.mark.parametrize("field", range(SIZE))
def test_no_byte_of_a_log_can_change_unnoticed(field: int) -> None:
    """An error names the batch that has the byte, whatever the byte means."""
    files = a_log()
    flip(files, FIRST, 2 * SIZE + field)
    errors = [each for each in findings(files) if each.severity is not Severity.INFO]
    assert errors
    assert (errors[0].path, errors[0].position) == (FIRST, 2 * SIZE)


def test_a_base_offset_that_does_not_fit_is_located() -> None:
    """No checksum covers it: the batch is blamed that does not fit its neighbours."""
    files = a_log()
    data = bytearray(files.content(FIRST))
    stamp(memoryview(data)[SIZE:], base_offset=3, leader_epoch=0)
    files.overwrite(FIRST, bytes(data))
    found = findings(files)[0]
    assert (found.rule, found.position, found.offset) == (Rule.OFFSET_ORDER, SIZE, 3)


def test_a_missing_batch_is_information() -> None:
    """Compaction leaves such gaps, so they are no error."""
    files = a_log(3)
    data = files.content(FIRST)
    files.overwrite(FIRST, data[:SIZE] + data[2 * SIZE :])
    for suffix in (".index", ".timeindex"):
        files.remove(path(0, suffix))
    found = only(findings(files), Rule.GAP)
    assert (found.severity, found.position, found.offset) == (Severity.INFO, SIZE, 1)
    assert found.sentence.startswith("offsets are missing in 1 place, first 1 to 1;")


def test_damaged_records_under_a_right_checksum_are_found() -> None:
    """Invalid records are found even if the checksum of their batch is right."""
    files = a_log(1)
    data = bytearray(files.content(FIRST))
    data[61] ^= 0x02
    stamped = _with_right_checksum(data)
    files.overwrite(FIRST, stamped)
    assert only(findings(files), Rule.RECORDS).position == 0


@pytest.mark.parametrize(("field", "size"), [(23, 4), (35, 8)])
def test_a_header_below_its_records_is_found(field: int, size: int) -> None:
    """Last offset and largest timestamp decide where a search goes, so they must cover all."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 0))
    data = bytearray(batch(b"a", b"b", timestamps=[NOW, NOW + 5]))
    data[field : field + size] = bytes(size)
    files.overwrite(FIRST, _with_right_checksum(data))
    assert [each.rule for each in findings(files)] == [Rule.RECORDS]


def test_a_tail_is_a_warning_at_the_end_and_an_error_before() -> None:
    """At the end of the last segment a broker may just be writing."""
    files = a_log()
    last = f"{FOLDER}/{max(name for name in files.list(FOLDER) if name.endswith('.log'))}"
    size = len(files.content(last))
    files.overwrite(last, files.content(last) + bytes(batch())[:40])
    found = only(findings(files), Rule.TAIL)
    assert (found.severity, found.path, found.position) == (Severity.WARNING, last, size)
    files = a_log()
    files.overwrite(FIRST, files.content(FIRST)[:-1])
    assert (Rule.TAIL, Severity.ERROR) in {(f.rule, f.severity) for f in findings(files)}


@pytest.mark.parametrize(("suffix", "size"), [(".index", 8), (".timeindex", 12)])
def test_every_byte_of_an_index_is_checked(suffix: str, size: int) -> None:
    """A flipped one is found in the entry that it stands in."""
    name = path(0, suffix)
    length = len(a_log().content(name))
    assert length >= 3 * size
    for position in range(length):
        files = a_log()
        flip(files, name, position)
        found = findings(files)
        assert {each.path for each in found} == {name}, position
        assert position - position % size in {each.position for each in found}, position
        # Of two entries that stand in the wrong order, the right one may be blamed as well.
        assert len(found) <= 2, position


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_odd_size_is_found(suffix: str) -> None:
    """Entries have a fixed size, so nothing may be left over."""
    files = a_log()
    files.overwrite(path(0, suffix), files.content(path(0, suffix)) + b"\0")
    assert {each.path for each in findings(files)} == {path(0, suffix)}


def test_an_index_without_a_log_is_a_warning() -> None:
    """A missing index is no finding, since a broker rebuilds it."""
    files = a_log()
    files.remove(path(0, ".index"))
    assert not findings(files)
    put(files, path(77, ".index"), b"")
    found = only(findings(files), Rule.ORPHAN)
    assert (found.severity, found.path) == (Severity.WARNING, path(77, ".index"))


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("data/recovery-point-offset-checkpoint", b"0\n1\nflights 0 21\n", Rule.CHECKPOINT),
        ("data/log-start-offset-checkpoint", b"0\n1\nflights 0 21\n", Rule.CHECKPOINT),
        ("data/recovery-point-offset-checkpoint", b"0\n2\nflights 0 20\n", Rule.CHECKPOINT),
        ("data/cleaner-offset-checkpoint", b"0\n1\nflights zero 20\n", Rule.CHECKPOINT),
        (f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 21\n", Rule.CHECKPOINT),
        (f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n1 0\n0 5\n", Rule.LEADER_EPOCH),
        (f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: short", Rule.METADATA),
    ],
)
def test_damaged_small_files_are_found(name: str, content: bytes, rule: Rule) -> None:
    """Malformed, or behind the end of the log."""
    files = a_log()
    put(files, name, content)
    found = only(findings(files), rule)
    assert (found.severity, found.path) == (Severity.ERROR, name)


def test_leader_epochs_agree_with_their_checkpoint_and_do_not_fall() -> None:
    """A wrong epoch is found although no checksum covers epochs."""
    files = a_log(3)
    put(files, f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n0 0\n1 2\n")
    found = only(findings(files), Rule.LEADER_EPOCH)
    assert (found.severity, found.position, found.offset) == (Severity.WARNING, 2 * SIZE, 2)
    put(files, f"{FOLDER}/leader-epoch-checkpoint", b"")
    data = bytearray(files.content(FIRST))
    stamp(memoryview(data), base_offset=0, leader_epoch=5)
    files.overwrite(FIRST, bytes(data))
    falling = findings(files)
    assert [each.position for each in falling] == [SIZE, 2 * SIZE]
    assert {each.severity for each in falling} == {Severity.ERROR}


def test_much_of_the_same_is_cut_short() -> None:
    """Twenty findings of a rule in a file, and how many more there are."""
    files = a_log(30)
    entries = b"".join(number.to_bytes(4, "big") * 2 for number in range(50, 0, -1))
    files.overwrite(path(0, ".index"), entries)
    found = findings(files)
    assert [each.rule for each in found].count(Rule.OFFSET_INDEX) == FINDINGS_MAX
    assert found[-1].rule is Rule.MORE


def test_bytes_are_reported_as_they_are_looked_at() -> None:
    """The progress bar has counted all bytes at the end."""
    files = a_log()
    seen: list[int] = []
    assert not list(verify(files, find_partitions(files, "data"), progress=seen.append))
    assert sum(seen) == 20 * SIZE + 10 * (len(batch(b"value 10")) - SIZE)


def _with_right_checksum(data: bytearray) -> bytes:
    """The batch with its checksum made anew."""
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("kind", ["running", "killed", "stopped"])
def test_a_preallocated_log_is_clean(kind: str) -> None:
    """Its last segment has zeros while a broker runs and after a kill; cat and repair agree."""
    files = MemoryFiles()
    log = filled(files, 20, config=settings(preallocate="true", segment_bytes=700))
    log.roll()
    append(log, batch(b"last"))
    if kind == "killed":
        files = files.crash(keep_unsynced=True)
    elif kind == "stopped":
        stop_cleanly(log)
    newest = max(name for name in files.list(FOLDER) if name.endswith(".log"))
    is_trimmed = not files.content(f"{FOLDER}/{newest}").endswith(bytes(100))
    assert is_trimmed == (kind == "stopped")
    directory = find_partitions(files, "data")
    assert not list(verify(files, directory))
    assert plan_repair(files, directory, OnDamage.SKIP).is_empty
    found = scan_partition(files, "data", PARTITION, folder=FOLDER)
    assert (found.records, found.end_offset, found.tail_bytes, found.damage) == (21, 21, 0, [])


def test_zeros_of_preallocation_in_a_closed_segment_are_information() -> None:
    """A kill may come before they are cut; where offsets are missing behind, they are an error."""
    files = a_log()
    files.overwrite(FIRST, files.content(FIRST) + bytes(200))
    assert only(findings(files), Rule.TAIL).severity is Severity.INFO
    files.overwrite(FIRST, files.content(FIRST)[: -200 - SIZE] + bytes(200))
    found = [each for each in findings(files) if each.rule is Rule.TAIL]
    assert [each.severity for each in found] == [Severity.ERROR]


@pytest.mark.parametrize(("is_in_use", "rules"), [(True, []), (False, [Rule.LEADER_EPOCH])])
def test_a_new_epoch_may_come_before_its_checkpoint_while_a_broker_works(
    is_in_use: bool,  # noqa: FBT001 - a parameter
    rules: list[Rule],
) -> None:
    """A start takes it from the batches; after an orderly stop the checkpoint has it."""
    files = MemoryFiles()
    log = filled(files, 3)
    append(log, batch(b"later"), epoch=1)
    stop_cleanly(log)
    put(files, f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    put(files, "data/meta.properties", b"version=1\nnode.id=1\ncluster.id=c\n")
    if not is_in_use:
        put(files, "data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":-1}')
    assert [each.rule for each in findings(files)] == rules
