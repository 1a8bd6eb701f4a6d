"""Bits of indexes, snapshots and checkpoints of small directories: a flip is told or harmless.

What no check can find is here too: a digit in a file without a checksum that stays plausible.
"""

from collections.abc import Iterator

import pytest

from tailrace.kernels.showing import Form
from tailrace.model import METADATA_TOPIC, IsolationLevel
from tailrace.offline.cat import Choice, show_records
from tailrace.offline.verify import verify
from tailrace.reading.directory import find_partitions
from tailrace.records.builder import records_of
from tailrace.storage import names
from tailrace.storage.checkpoints import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.positions import ReadLimit
from tailrace.testing import MemoryFiles
from tests.fuzz.directories import ROOT, Directory, all_paths, directories
from tests.unit.storage.builders import FOLDER, PARTITION, open_at

CHECKPOINTS = (
    names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS,
)  # fmt: skip


def told(files: MemoryFiles) -> list[str]:
    """All findings."""
    return [str(each) for each in verify(files, find_partitions(files, ROOT))]


def unseen(directory: Directory, suffix: str) -> Iterator[tuple[str, int, MemoryFiles]]:
    """The flips in files of a kind of which nothing is told: path, bit, and the disk with it.

    Those of the metadata log are left out, since a start reads it without its indexes.
    """
    sound = told(directory.files)
    paths = [
        path
        for path in all_paths(directory.files)
        if path.endswith(suffix) and METADATA_TOPIC not in path
    ]
    assert paths
    for path in paths:
        content = directory.files.content(path)
        for bit in range(8 * len(content)):
            files, data = directory.copy(), bytearray(content)
            data[bit // 8] ^= 1 << bit % 8
            files.overwrite(path, bytes(data))
            if told(files) == sound:
                yield path, bit, files


def answers(directory: Directory, disk: MemoryFiles) -> list[object]:
    """Return what `cat` and a broker that trusts the indexes answer for all offsets and times."""
    files = disk.crash(keep_unsynced=True)
    end = directory.written[-1].last_offset + 1
    log = open_at(files, config=directory.config, is_clean=True, checkpoints=(end, 0))
    log.advance_high_watermark(end)
    times = sorted({r.timestamp for each in log.batches(0) for r in records_of(each)})
    assert log.start_offset < end
    assert len(times) > 0
    found: list[object] = []
    for offset in range(log.start_offset, end):
        for limit in (ReadLimit.HIGH_WATERMARK, ReadLimit.LAST_STABLE):
            answer = log.read(offset, bytes_max=150, is_first_whole=True, limit=limit)
            found.append((bytes(answer.read()), answer.aborted))
    for time in times:
        for near in (time - 1, time, time + 1):
            found.append(find_offset(log, near))
            choice = Choice(from_time_ms=near, isolation=IsolationLevel.READ_COMMITTED)
            shown = show_records(files, {PARTITION: FOLDER}, choice, form=Form.JSON)
            found.append(b"".join(shown))
    return found


@pytest.mark.parametrize(
    ("number", "suffix"),
    [(1, ".txnindex"), (1, ".timeindex"), (2, ".timeindex"), (2, ".index"), (3, ".timeindex")],
)
def test_a_flipped_bit_of_an_index_is_told_or_changes_no_answer(number: int, suffix: str) -> None:
    """This holds for a broker that trusts its indexes, and for the offline tools."""
    directory = directories()[number]
    sound = answers(directory, directory.files)
    for path, bit, files in unseen(directory, suffix):
        assert answers(directory, files) == sound, (path, bit)


def test_a_flipped_bit_of_a_producer_snapshot_is_told() -> None:
    """Its checksum covers all but the version, and there is one version."""
    assert not list(unseen(directories()[0], names.SNAPSHOT_SUFFIX))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_no_check_finds_in_a_checkpoint_is_plausible(name: str) -> None:
    """Another topic's name, or an offset that the log has: the file has no checksum."""
    directory = directories()[0]
    end = directory.written[-1].last_offset + 1
    for path, bit, files in unseen(directory, f"{ROOT}/{name}"):
        known = read_offset_checkpoint(files, path)
        assert len(known) == 1, (path, bit)
        if name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS):
            assert known.get(PARTITION, 0) <= end, (path, bit)


def test_what_no_check_finds_in_the_epoch_checkpoint_is_where_the_oldest_begins() -> None:
    """Every other epoch is held against the batches; white space at an end of a line is none."""
    directory = directories()[0]
    sound = read_epoch_checkpoint(directory.files, f"{FOLDER}/{names.LEADER_EPOCHS}")
    found = list(unseen(directory, names.LEADER_EPOCHS))
    assert found
    for path, bit, files in found:
        epochs = read_epoch_checkpoint(files, path)
        assert epochs[0][0] == sound[0][0], (path, bit)
        assert epochs[1:] == sound[1:], (path, bit)


def test_what_no_check_finds_in_partition_metadata_is_another_id() -> None:
    """An undetected flip gives another valid id, version or white space, which can be read."""
    for path, _, files in unseen(directories()[0], names.PARTITION_METADATA):
        assert read_partition_metadata(files, path) is not None
