"""Replicas of several brokers: what committed records they lack, and differences with a reason."""

from collections.abc import Sequence

import pytest

from tailrace.model import METADATA_TOPIC
from tailrace.offline.replica_sets import ComparedReplica, compare_replicas
from tailrace.offline.replicas import DifferenceKind
from tailrace.reading.directory import find_partitions
from tailrace.records.legacy import read_all_batches
from tailrace.storage.checkpoints import write_offset_checkpoint
from tailrace.storage.names import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, PARTITION, filled, stop_cleanly

HOME = FOLDER.rpartition("/")[0]
OTHER, THIRD = "other", "third"
COUNT = 20


@pytest.fixture
def files() -> MemoryFiles:
    """A log of 20 batches."""
    files = MemoryFiles()
    stop_cleanly(filled(files, COUNT))
    note(files, HOME, COUNT)
    return files


def batches(files: MemoryFiles) -> list[bytes]:
    names = sorted(name for name in files.list(FOLDER) if name.endswith(".log"))
    whole = b"".join(files.content(f"{FOLDER}/{name}") for name in names)
    return [bytes(each.view) for _, each in read_all_batches(memoryview(whole))]


def note(
    files: MemoryFiles, directory: str, watermark: int | None, *, cleaned: int | None = None
) -> None:
    """The checkpoints of a directory."""
    for name, offset in ((HIGH_WATERMARKS, watermark), (CLEANER_OFFSETS, cleaned)):
        if offset is not None:
            write_offset_checkpoint(files, directory, name, offsets={PARTITION: offset})


def replica(
    files: MemoryFiles,
    parts: Sequence[bytes],
    *,
    directory: str = OTHER,
    topic: str = PARTITION.topic,
) -> None:
    """Another replica with these batches."""
    folder = f"{directory}/{topic}-{PARTITION.partition}"
    files.make_directory(directory)
    files.make_directory(folder)
    name = f"{folder}/{0:020d}.log"
    files.open(name, create=True)
    files.overwrite(name, b"".join(parts))


def compared(files: MemoryFiles, *directories: str) -> list[ComparedReplica]:
    found = [find_partitions(files, each) for each in directories or (HOME, OTHER)]
    return list(compare_replicas(files, found))


def damaged(part: bytes) -> bytes:
    """Another value in the record."""
    return part[:-3] + bytes([part[-3] ^ 1]) + part[-2:]


def test_equal_replicas_have_no_difference(files: MemoryFiles) -> None:
    """Each replica is compared with the one of the highest watermark."""
    replica(files, batches(files))
    note(files, OTHER, 15)
    replica(files, batches(files), directory=THIRD)
    note(files, THIRD, 10)
    found = compared(files, OTHER, HOME, THIRD)
    assert [(each.folder.partition("/")[0], each.differences) for each in found] == [
        (OTHER, ()),
        (THIRD, ()),
    ]
    assert {each.other_folder for each in found} == {FOLDER}


def test_a_follower_may_lag(files: MemoryFiles) -> None:
    """It lacks what it has not fetched, and knows of nothing that is committed there."""
    replica(files, batches(files)[:12])
    note(files, OTHER, 11)
    [found] = compared(files)
    [difference] = found.differences
    assert difference.difference.kind is DifferenceKind.LOG_END
    assert difference.reason == "not committed: one of them has high watermark 11"
    assert not found.is_wrong


def test_a_log_that_ends_below_its_own_watermark_has_lost_records(files: MemoryFiles) -> None:
    """They were there when the checkpoint was written."""
    replica(files, batches(files)[:12])
    note(files, OTHER, 14)
    [found] = compared(files)
    assert found.is_wrong


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_broker_that_stopped_first_has_less_metadata(*, is_damaged: bool) -> None:
    """Its metadata log is the beginning of the others'; other bytes there are damage."""
    files = MemoryFiles()
    stop_cleanly(filled(files, COUNT))
    parts = batches(files)
    less = [*parts[:11], damaged(parts[11])] if is_damaged else parts[:12]
    for directory, own in ((OTHER, less), (THIRD, parts)):
        replica(files, own, directory=directory, topic=METADATA_TOPIC)
    [found] = compared(files, THIRD, OTHER)
    assert found.partition.topic == METADATA_TOPIC
    assert found.is_wrong is is_damaged
    assert DifferenceKind.LOG_END in {each.difference.kind for each in found.differences}


def test_records_above_the_watermark_may_differ(files: MemoryFiles) -> None:
    """A leader that lost its office had records that nobody else has."""
    parts = batches(files)
    replica(files, [*parts[:15], damaged(parts[15])])
    note(files, OTHER, 15)
    [found] = compared(files)
    assert not found.is_wrong
    assert {each.difference.offset for each in found.differences} >= {15}


def test_committed_records_may_not_differ(files: MemoryFiles) -> None:
    """One bit in one of them is found."""
    parts = batches(files)
    replica(files, [*parts[:9], damaged(parts[9]), *parts[10:]])
    note(files, OTHER, COUNT)
    [found] = compared(files)
    [difference] = found.differences
    assert (difference.difference.offset, difference.reason) == (9, None)
    assert found.is_wrong


def test_without_a_checkpoint_all_counts_as_committed(files: MemoryFiles) -> None:
    """A checkpoint that is lost explains nothing."""
    parts = batches(files)
    replica(files, [*parts[:9], damaged(parts[9]), *parts[10:]])
    [found] = compared(files)
    assert found.is_wrong


@pytest.mark.parametrize(("cleaned", "is_wrong"), [(10, False), (9, True)])
def test_compaction_explains_what_it_may_have_removed(
    files: MemoryFiles, cleaned: int, *, is_wrong: bool
) -> None:
    """Up to the offset that the cleaner of either replica has come to."""
    parts = batches(files)
    replica(files, [*parts[:9], *parts[10:]])
    note(files, OTHER, COUNT, cleaned=cleaned)
    [found] = compared(files)
    assert found.is_wrong is is_wrong


def test_each_replica_deletes_in_its_own_time(files: MemoryFiles) -> None:
    """A log that begins later is in order."""
    write_offset_checkpoint(files, HOME, LOG_START_OFFSETS, offsets={PARTITION: 4})
    replica(files, batches(files))
    note(files, OTHER, COUNT)
    [found] = compared(files)
    [difference] = found.differences
    assert difference.difference.kind is DifferenceKind.LOG_START
    assert difference.reason == "each replica deletes in its own time"
    assert not found.is_wrong
