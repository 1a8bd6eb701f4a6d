"""`compare_logs` finds every difference between two logs of one partition, and nothing else."""

import crc32c
import pytest

from tailrace.offline.findings import FINDINGS_MAX
from tailrace.offline.replicas import Comparison, Difference, DifferenceKind, compare_logs
from tailrace.records.batch import stamp
from tailrace.records.legacy import read_all_batches
from tailrace.storage.checkpoints import write_offset_checkpoint
from tailrace.storage.names import LOG_START_OFFSETS
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles
from tests.naive import LegacyMessage, write_legacy
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    filled,
    flip,
    path,
    stop_cleanly,
)

SIZE = len(batch(b"value 0"))
OTHER = "other/flights-0"


def replicas(count: int = 20) -> MemoryFiles:
    """A log in several segments, and the same batches in one segment elsewhere."""
    files = MemoryFiles()
    stop_cleanly(filled(files, count))
    names = sorted(name for name in files.list(FOLDER) if name.endswith(".log"))
    whole = b"".join(files.content(f"{FOLDER}/{name}") for name in names)
    files.make_directory(OTHER)
    put(files, 0, whole)
    return files


def put(files: MemoryFiles, base_offset: int, content: bytes) -> str:
    """A segment of the other replica."""
    name = f"{OTHER}/{base_offset:020d}.log"
    files.open(name, create=True)
    files.overwrite(name, content)
    return name


def bases_of(files: MemoryFiles) -> list[int]:
    """The base offsets of the first replica's segments."""
    return sorted(int(name[:20]) for name in files.list(FOLDER) if name.endswith(".log"))


def compared(files: MemoryFiles) -> Comparison:
    """The first one held against the other."""
    return compare_logs(files, FOLDER, OTHER)


def parts(files: MemoryFiles) -> list[bytes]:
    """The batches of the other replica."""
    data = memoryview(files.content(f"{OTHER}/{0:020d}.log"))
    return [bytes(each.view) for _, each in read_all_batches(data)]


def only(files: MemoryFiles) -> Difference:
    """The one difference there is."""
    [difference] = compared(files).differences
    return difference


def test_logs_that_are_cut_into_other_segments_are_the_same() -> None:
    """Batches are compared from the first offset to the last, whatever the segments."""
    files = replicas()
    found = compared(files)
    assert found.differences == ()
    assert (found.start, found.limit, found.batches) == (0, 20, 20)


def test_a_log_that_is_shorter_is_a_difference() -> None:
    """The difference says by how many records a replica lags, on either side."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    files.overwrite(name, b"".join(parts(files)[:12]))
    found = only(files)
    assert (found.kind, found.offset, found.next_offset) == (DifferenceKind.LOG_END, 12, 20)
    assert found.sentence == (
        "the second ends at offset 12 and is 8 records short: the first ends at 20"
    )
    [found] = compare_logs(files, OTHER, FOLDER).differences
    assert "the first ends at offset 12 and is 8 records short" in found.sentence
    assert compared(files).limit == 12


def test_a_log_that_begins_later_is_a_difference() -> None:
    """Its segments or its checkpoint may begin later; the offsets that both have are the same."""
    files = replicas()
    data = b"".join(parts(files)[7:])
    files.remove(f"{OTHER}/{0:020d}.log")
    put(files, 7, data)
    found = only(files)
    assert (found.kind, found.offset, found.next_offset) == (DifferenceKind.LOG_START, 0, 7)
    assert found.sentence == (
        "the second begins at offset 7, without 7 records that the first has from offset 0 on"
    )
    assert (compared(files).start, compared(files).batches) == (7, 13)
    files = replicas()
    write_offset_checkpoint(files, "other", LOG_START_OFFSETS, offsets={PARTITION: 3})
    assert only(files).kind is DifferenceKind.LOG_START


def test_an_empty_replica_is_not_the_same() -> None:
    """It has nothing, which is all records short."""
    files = replicas()
    files.remove(f"{OTHER}/{0:020d}.log")
    assert "is 20 records short" in only(files).sentence


def test_every_range_that_differs_is_told() -> None:
    """Each range has its number of batches, and the comparison continues behind it."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    whole = [bytearray(each) for each in parts(files)]
    stamp(memoryview(whole[10]), base_offset=10, leader_epoch=9)
    files.overwrite(name, b"".join(whole[:3] + whole[5:18]))
    found = compared(files)
    told = [(each.kind, each.offset, each.next_offset, each.batches) for each in found.differences]
    assert told == [
        (DifferenceKind.CONTENT, 3, 5, 2),
        (DifferenceKind.CONTENT, 10, 11, 2),
        (DifferenceKind.LOG_END, 18, 20, 0),
    ]
    assert (found.limit, found.batches) == (3, 15)
    assert found.counts == {DifferenceKind.CONTENT: 2, DifferenceKind.LOG_END: 1}


def test_of_many_differences_some_are_told_and_all_are_counted() -> None:
    """Every other batch is missing in one."""
    files = replicas(60)
    name = f"{OTHER}/{0:020d}.log"
    files.overwrite(name, b"".join(parts(files)[::2]))
    found = compared(files)
    assert found.counts[DifferenceKind.CONTENT] == 29
    assert len(found.differences) == FINDINGS_MAX + 1


def test_a_field_of_a_header_is_named_with_both_values() -> None:
    """The leader epoch, which no checksum covers."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = bytearray(files.content(name))
    stamp(memoryview(data)[3 * SIZE :], base_offset=3, leader_epoch=9)
    files.overwrite(name, bytes(data))
    difference = only(files)
    assert (difference.offset, difference.path, difference.position) == (
        3, path(0, ".log"), 3 * SIZE,
    )  # fmt: skip
    assert (difference.other_path, difference.other_position) == (name, 3 * SIZE)
    assert difference.sentence == "leader epoch 0 and 9"


def test_a_record_is_named_with_both_values() -> None:
    """If both checksums are right, the first different record is shown from both."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = bytearray(files.content(name))
    changed = batch(b"valve 1", timestamps=[NOW + 1])
    stamp(memoryview(changed), base_offset=1, leader_epoch=0)
    data[SIZE : 2 * SIZE] = changed
    files.overwrite(name, bytes(data))
    difference = only(files)
    assert difference.offset == 1
    assert "record 1: value b'value 1' and b'valve 1'" in difference.sentence
    assert "damaged" not in difference.sentence
    assert f"crc {crc32c.crc32c(bytes(changed[21:]))}" not in difference.sentence.split(" and ")[0]


@pytest.mark.parametrize(
    ("which", "name"), [("first", path(0, ".log")), ("second", f"{OTHER}/{0:020d}.log")]
)
def test_the_damaged_one_is_named(which: str, name: str) -> None:
    """The replica with the wrong checksum is named as damaged."""
    files = replicas()
    flip(files, name, 5 * SIZE + 70)
    difference = only(files)
    assert difference.offset == 5
    assert f"the {which} is damaged: the stored CRC-32C" in difference.sentence


def test_a_missing_batch_is_a_difference() -> None:
    """The difference has the offsets at which the two go on."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = files.content(name)
    files.overwrite(name, data[: 2 * SIZE] + data[3 * SIZE :])
    found = compared(files)
    assert found.limit == 2
    assert found.differences[0].sentence == "the next batch begins at offset 2 and at 3"


def test_a_log_that_cannot_be_read_on_is_a_difference() -> None:
    """The difference names the place where the bytes stop being batches."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = bytearray(files.content(name))
    data[4 * SIZE + 8 : 4 * SIZE + 12] = b"\xff\xff\xff\xff"
    files.overwrite(name, bytes(data))
    difference = only(files)
    assert (difference.offset, difference.other_position) == (4, 4 * SIZE)
    assert difference.sentence.startswith("the second cannot be read on: the batch length is -1")


@pytest.mark.parametrize("number", [0, -1])
def test_room_for_appends_is_no_difference(number: int) -> None:
    """Preallocation makes it, and a kill leaves it behind the last batch of a segment."""
    files = replicas()
    name = path(bases_of(files)[number], ".log")
    files.overwrite(name, files.content(name) + bytes(5000))
    assert not compared(files).differences


def test_zeros_in_place_of_batches_are_a_difference() -> None:
    """The next segment tells how many offsets there were."""
    files = replicas()
    name = path(0, ".log")
    files.overwrite(name, files.content(name)[:-SIZE] + bytes(5000))
    (difference,) = compared(files).differences
    assert difference.kind is DifferenceKind.UNREADABLE
    assert difference.path == name


def test_a_log_start_without_a_checkpoint_is_that_of_the_leader_epochs() -> None:
    """A broker takes the same start; a replica with a later start is reported with that offset."""
    files = replicas()
    log = filled(files, 0)
    raise_log_start(log, 3)
    log.epochs.save()
    files.open(f"data/{LOG_START_OFFSETS}", create=True)
    files.overwrite(f"data/{LOG_START_OFFSETS}", b"0\n7\n")
    assert (only(files).kind, compared(files).start) == (DifferenceKind.LOG_START, 3)


def test_a_batch_that_is_written_twice_makes_a_replica_unreadable() -> None:
    """Its offsets do not rise there, so the comparison ends with what a reader would say."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    whole = parts(files)
    files.overwrite(name, b"".join(whole[:3] + whole[1:]))
    difference = only(files)
    assert (difference.kind, difference.offset) == (DifferenceKind.UNREADABLE, 3)
    assert difference.other_position == sum(map(len, whole[:3]))
    assert "the batch begins at offset 1, where 3 or more is due" in difference.sentence
    assert str(difference).endswith("[unreadable]")


@pytest.mark.parametrize("is_later", [True, False])
def test_a_batch_across_the_log_start_is_compared(*, is_later: bool) -> None:
    """Records were deleted up to its middle in both logs, or in one of them."""
    files = MemoryFiles()
    log = filled(files, 0)
    for values in ((b"a", b"b", b"c"), (b"d",)):
        append(log, batch(*values))
    stop_cleanly(log)
    files.make_directory(OTHER)
    name = put(files, 0, files.content(path(0, ".log")))
    for root in ("other",) if is_later else ("data", "other"):
        write_offset_checkpoint(files, root, LOG_START_OFFSETS, offsets={PARTITION: 1})
    found = compared(files)
    assert (found.start, found.limit, found.batches) == (1, 4, 2)
    assert all("without 1 records" in each.sentence for each in found.differences)
    flip(files, name, len(batch(b"a", b"b", b"c")) - 3)
    damaged = compared(files).differences[-1]
    assert (damaged.kind, damaged.offset) == (DifferenceKind.CONTENT, 0)
    assert "the second is damaged" in damaged.sentence


def test_an_entry_of_an_older_format_is_compared_as_it_is_stored() -> None:
    """The same record in format v0 and in v1 is not the same log."""
    files = MemoryFiles()
    for magic, folder in enumerate((FOLDER, OTHER)):
        files.make_directory(folder)
        name = f"{folder}/{0:020d}.log"
        files.open(name, create=True)
        files.overwrite(name, write_legacy(LegacyMessage(magic, 0, b"k", b"old")))
    assert "stored in format v0 with codec 0" in only(files).sentence
