"""Snapshot files: their bytes, and when they are written, put on the device and taken away."""

import struct
from pathlib import Path

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CorruptionError
from tailrace.model import Offset, ProducerId
from tailrace.runtime.files import DiskFiles
from tailrace.storage.producers import ProducerStates
from tailrace.storage.snapshots import (
    SNAPSHOT_BYTES_MAX,
    KnownBatch,
    KnownProducer,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from tailrace.testing import MemoryFiles
from tailrace.testing.files import DiskFault
from tests.unit.storage.builders import FOLDER, NOW, path
from tests.unit.storage.producer_builders import (
    LAST,
    append,
    folder,
    known_batch,
    known_producer,
    known_producers,
    reload,
    segments,
    sent,
    snapshots,
    states,
)


def with_snapshots(files: MemoryFiles, *offsets: int) -> ProducerStates:
    """Producer states of a log with one batch and a snapshot before each of these offsets."""
    known = states(files)
    for sequence, offset in enumerate(offsets):
        append(known, sent(sequence), offset - 1)
        known.write_snapshot(Offset(offset))
    return known


def test_the_bytes_of_a_snapshot() -> None:
    """Field by field, and those of a log without producers, as Kafka writes them."""
    fields = "0000000000000007 0002 00000005 000000000000000b 00000001 0000018bcfe56800 ffffffff"
    one = with_crc(bytes.fromhex(f"0001 00000000 00000001 {fields} ffffffffffffffff"))
    producers = known_producers({7: known_producer(2, (known_batch(5, 11, 1, NOW),), NOW)})
    assert decode_snapshot(one) == producers
    assert encode_snapshot(producers) == one
    empty = bytes.fromhex("0001 48674bc7 00000000")
    assert decode_snapshot(empty) == {}
    assert encode_snapshot({}) == empty


def test_a_snapshot_file_is_read_as_it_was_written() -> None:
    """The file may have an open transaction, no timestamps, or a producer without a batch."""
    producers = known_producers(
        {
            1: known_producer(2, (known_batch(1, 2, 3, -1),), -1, 3, 100),
            11: known_producer(12, (), 123456, 13),
        }
    )
    files = folder()
    write_snapshot(files, path(101, ".snapshot"), producers=producers, is_synced=True)
    assert read_snapshot(files, path(101, ".snapshot")) == producers


def test_of_several_batches_the_last_is_written() -> None:
    """The others are for duplicates that come soon."""
    batches = tuple(known_batch(number, number, 0, NOW) for number in range(5))
    data = encode_snapshot(known_producers({7: known_producer(0, batches, NOW)}))
    assert decode_snapshot(data)[ProducerId(7)].batches == batches[-1:]


INT64 = st.integers(0, 2**63 - 1)
BATCH = st.builds(KnownBatch, st.integers(-1, LAST), INT64, st.integers(0, LAST), INT64)
PRODUCER = st.builds(
    lambda epoch, last, coordinator, start: known_producer(
        epoch, (last,), last.timestamp, coordinator, start
    ),
    st.integers(0, 2**15 - 1),
    BATCH,
    st.integers(-1, LAST),
    st.integers(-1, 2**63 - 1),
)


@given(st.dictionaries(INT64, PRODUCER | st.just(known_producer(3, (), NOW, 1, -1)), max_size=5))
def test_a_snapshot_is_read_back(producers: dict[ProducerId, KnownProducer]) -> None:
    """The fields of transactions and producers without a batch are read back too."""
    assert decode_snapshot(encode_snapshot(producers)) == producers


def with_crc(data: bytes) -> bytes:
    """The same snapshot with a CRC that holds."""
    return data[:2] + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]


GOOD = encode_snapshot(known_producers({7: known_producer(0, (known_batch(4, 9, 4, NOW),), NOW)}))
DAMAGED = {
    "too few": b"",
    "bytes are too few": GOOD[:9],
    "version 2": b"\0\2" + GOOD[2:],
    "entries do not make": GOOD[:-1],
    "1 entries do not make": with_crc(GOOD + b"\0"),
    "-1 entries do not make": with_crc(GOOD[:6] + b"\xff" * 4 + GOOD[10:]),
    "CRC-32C": GOOD[:-1] + b"\0",
    "producer -1": with_crc(GOOD[:10] + b"\xff" * 8 + GOOD[18:]),
    "sequence -2": with_crc(GOOD[:20] + struct.pack(">i", -2) + GOOD[24:]),
    "delta -4": with_crc(GOOD[:32] + struct.pack(">i", -4) + GOOD[36:]),
}


@pytest.mark.parametrize("rule", DAMAGED)
def test_damaged_snapshots_are_refused(rule: str) -> None:
    """One that is empty, cut, too long, or has a wrong version, CRC or number is refused."""
    with pytest.raises(CorruptionError, match=rule):
        decode_snapshot(DAMAGED[rule])


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """The error has its path."""
    files, name = DiskFiles(), str(tmp_path / "00000000000000000001.snapshot")
    file = files.open(name, create=True)
    file.resize(SNAPSHOT_BYTES_MAX + 1)
    file.close()
    with pytest.raises(CorruptionError, match="too many") as raised:
        read_snapshot(files, name)
    assert raised.value.path == name


def test_a_snapshot_is_named_after_the_log_end() -> None:
    """The snapshot at the log end is the only file, and has the producers."""
    files = folder()
    known = with_snapshots(files, 2)
    assert files.list(FOLDER) == ["00000000000000000002.snapshot"]
    assert known.snapshots.paths == [path(2, ".snapshot")]
    assert decode_snapshot(files.content(path(2, ".snapshot"))).keys() == {7}


def test_there_is_no_snapshot_that_nobody_has_written() -> None:
    """Neither in the list nor among those that leave service."""
    known = states()
    assert known.snapshots.paths == []
    assert known.snapshots.remove_at([Offset(1)]) == []
    assert known.snapshots.remove_before(Offset(10)) == []


def test_a_snapshot_is_written_once_for_an_offset() -> None:
    """A second one would have the same content, and a log without batches needs none."""
    files = folder()
    known = with_snapshots(files, 1)
    operations = len(files.operations)
    known.write_snapshot(Offset(1))
    assert len(files.operations) == operations
    assert snapshots(files) == [1]
    states(files).write_snapshot(Offset(0))
    assert snapshots(files) == [1]


def test_a_failed_snapshot_can_be_written_again() -> None:
    """The error comes through, and the next call does not take it for written."""
    files = folder()
    known = states(files)
    append(known, sent(0), 0)
    files.faults.append(DiskFault(operation="write", path_part=".snapshot", partial_bytes=20))
    with pytest.raises(OSError, match="error"):
        known.write_snapshot(Offset(1))
    files.faults.clear()
    known.write_snapshot(Offset(1))
    assert decode_snapshot(files.content(path(1, ".snapshot"))).keys() == {7}
    assert known.snapshots.paths == [path(1, ".snapshot")]


def test_a_snapshot_is_on_the_device_when_asked_for() -> None:
    """A snapshot is synced at once, later by its offset, or when it is asked for again."""
    for way in ("at once", "later", "again", "never"):
        files = folder()
        files.sync_directory(FOLDER.rpartition("/")[0])
        files.sync_directory(".")
        known = states(files)
        append(known, sent(0), 0)
        known.write_snapshot(Offset(1), is_synced=way == "at once")
        if way == "later":
            known.snapshots.sync(Offset(1))
        if way == "again":
            known.write_snapshot(Offset(1), is_synced=True)
        files.sync_directory(FOLDER)
        on_device = files.crash().content(path(1, ".snapshot"))
        assert bool(on_device) is (way != "never"), way


def test_to_sync_a_snapshot_that_is_not_there_is_no_error() -> None:
    """There was no need for one, or it was removed with its segment."""
    states().snapshots.sync(Offset(5))


def test_snapshots_before_an_offset_leave_service() -> None:
    """The caller gets the files and removes them; the others stay."""
    files = folder()
    known = with_snapshots(files, 2, 3)
    assert known.snapshots.remove_before(Offset(3)) == [path(2, ".snapshot")]
    assert known.snapshots.paths == [path(3, ".snapshot")]
    assert known.snapshots.remove_before(Offset(4)) == [path(3, ".snapshot")]
    assert known.snapshots.paths == []


def test_snapshots_of_segments_leave_service() -> None:
    """Snapshots leave by offset; the caller gets the files, to rename and delete them later."""
    files = folder()
    known = with_snapshots(files, 5, 8)
    assert known.snapshots.remove_at([Offset(5), Offset(6)]) == [path(5, ".snapshot")]
    assert known.snapshots.paths == [path(8, ".snapshot")]


def test_a_snapshot_that_is_gone_already_leaves_service_without_a_file() -> None:
    """Somebody has deleted it: the list forgets it, and there is nothing to rename."""
    files = folder()
    known = with_snapshots(files, 5)
    files.remove(path(5, ".snapshot"))
    assert known.snapshots.remove_at([Offset(5)]) == []
    assert known.snapshots.paths == []


def test_to_begin_anew_removes_all_snapshots_and_producers() -> None:
    """All snapshots go, and the next one is the first, whatever offset the log goes on with."""
    files = folder()
    known = with_snapshots(files, 2, 3)
    known.truncate_fully(Offset(0))
    assert snapshots(files) == []
    assert len(known) == 0
    assert known.snapshots.paths == []
    append(known, sent(0), 0)
    known.write_snapshot(Offset(1))
    assert snapshots(files) == [1]


def test_snapshots_are_looked_for_in_the_folder_again() -> None:
    """One that was put there since is found, and read."""
    files = folder()
    known = with_snapshots(files, 3)
    copy = files.content(path(3, ".snapshot"))
    append(known, sent(1), 4)
    known.write_snapshot(Offset(5))
    reload(known, segments(files), log_start=3, log_end=5)
    assert snapshots(files) == [5]
    known.truncate_fully(Offset(0))
    files.open(path(3, ".snapshot"), create=True).write(0, copy)
    reload(known, segments(files), log_start=0, log_end=3)
    assert known.snapshots.paths == [path(3, ".snapshot")]
    found = known.get(ProducerId(7))
    assert found is not None
    assert found.last_sequence == 0
