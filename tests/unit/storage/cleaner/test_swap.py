"""The exchange of segments: at every point where the process dies there are the old or the new."""

import contextlib
import random
from collections.abc import Iterator

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.records.builder import Record
from tailrace.storage import names
from tailrace.storage.cleaner import swap
from tailrace.storage.cleaner.rewrite import SegmentOverflowError
from tailrace.storage.segment import open_segment
from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError
from tests.unit.storage.cleaner.shelves import FOLDER, Shelf, read_back
from tests.unit.storage.producer_builders import (
    aborted_txn,
)

pytestmark = pytest.mark.usefixtures("engine")

FAR = 2**31


def three_segments() -> Shelf:
    """Two segments that become one, with an aborted transaction, and one that is never cleaned."""
    shelf = Shelf(index_interval_bytes=0)
    shelf.append_keys(1, 2)
    shelf.append_transaction(1, 3)
    shelf.roll()
    shelf.append_keys(1, 4)
    shelf.abort(1)
    shelf.append_keys(5)
    shelf.roll()
    shelf.append_keys(6)
    shelf.segments[-1].sync()
    return shelf


def crashed(files: MemoryFiles) -> Iterator[MemoryFiles]:
    """The disk after a kill, after a loss of power, and after some that leave a part."""
    yield files.crash(keep_unsynced=True)
    yield files.crash()
    for seed in range(4):
        yield files.crash(chance=random.Random(seed))


def views() -> tuple[list[Record], list[Record], int]:
    """Return the records before and after a cleaning, and its number of operations."""
    shelf = three_segments()
    before = read_back(shelf.files)
    start = len(shelf.files.operations)
    shelf.clean()
    return before, read_back(shelf.files), len(shelf.files.operations) - start


def has_leftovers(files: MemoryFiles) -> bool:
    """Whether a file still carries a suffix of the exchange."""
    return any(
        name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX, names.DELETED_SUFFIX))
        for name in files.list(FOLDER)
    )


def test_a_crash_at_any_operation_leaves_the_old_records_or_the_new() -> None:
    """Never a mixture and never a hole, whatever of the unsynced part is on the device."""
    before, after, total = views()
    assert before != after
    seen = set()
    for stop in range(total + 1):
        shelf = three_segments()
        shelf.files.stop_at = len(shelf.files.operations) + stop
        with contextlib.suppress(ProcessKilledError):
            shelf.clean()
        for disk in crashed(shelf.files):
            swap.finish_swaps(disk, FOLDER)
            found = read_back(disk)
            assert found in (before, after), f"stopped at operation {stop}"
            assert not has_leftovers(disk)
            seen.add(found == after)
    assert seen == {False, True}


def test_a_crash_while_a_start_finishes_the_exchange_ends_well() -> None:
    """The start may die at any of its own operations, and the next one does the rest."""
    before, after, total = views()
    for stop in range(0, total + 1, 2):
        shelf = three_segments()
        shelf.files.stop_at = len(shelf.files.operations) + stop
        with contextlib.suppress(ProcessKilledError):
            shelf.clean()
        for second_stop in range(12):
            disk = shelf.files.crash(keep_unsynced=True)
            disk.stop_at = second_stop
            with contextlib.suppress(ProcessKilledError):
                swap.finish_swaps(disk, FOLDER)
            for third in (disk.crash(), disk.crash(chance=random.Random(second_stop))):
                swap.finish_swaps(third, FOLDER)
                assert read_back(third) in (before, after)


def test_what_was_acknowledged_as_published_is_the_new() -> None:
    """Once `publish` has returned, a crash can only go forward."""
    _, after, _ = views()
    shelf = three_segments()
    cleaning = shelf.round()
    cleaning.map_keys()
    (group,) = cleaning.groups()
    swap.publish(shelf.files, FOLDER, cleaning.rewrite(group, producers=shelf.producers))
    for disk in crashed(shelf.files):
        swap.finish_swaps(disk, FOLDER)
        assert read_back(disk) == after


def test_an_exchange_by_file_names() -> None:
    """Old files wait under `.deleted`, and the new segment has its final names and its old base."""
    shelf = three_segments()
    shelf.clean()
    stems = [f"{0:020d}", f"{6:020d}"]
    live = [name for name in shelf.files.list(FOLDER) if not name.endswith(".deleted")]
    assert live == [
        f"{stems[0]}.index", f"{stems[0]}.log", f"{stems[0]}.timeindex", f"{stems[0]}.txnindex",
        f"{7:020d}.index", f"{7:020d}.log", f"{7:020d}.timeindex",
    ]  # fmt: skip
    assert shelf.segments[0].log.path == f"{FOLDER}/{stems[0]}.log"
    reopened = open_segment(shelf.files, FOLDER, base_offset=Offset(0), config=shelf.config)
    assert reopened.transactions.entries() == (aborted_txn(1, 2, 5, 6),)
    assert reopened.offset_index.entries.count == shelf.segments[0].offset_index.entries.count


@pytest.mark.parametrize("renamed", range(5), ids=lambda count: f"{count} files")
def test_a_start_drops_a_set_that_is_not_wholly_published(renamed: int) -> None:
    """While one `.cleaned` file is left, files with `.swap` names do not count."""
    before, after, _ = views()
    shelf = three_segments()
    cleaning = shelf.round()
    cleaning.map_keys()
    (group,) = cleaning.groups()
    new = cleaning.rewrite(group, producers=shelf.producers)
    paths = new.paths()
    for path in paths[:renamed]:
        swapped = path.removesuffix(names.CLEANED_SUFFIX) + names.SWAP_SUFFIX
        shelf.files.rename(path, swapped)
    swap.finish_swaps(shelf.files, FOLDER)
    assert read_back(shelf.files) == (after if renamed >= len(paths) else before)
    assert not has_leftovers(shelf.files)


@pytest.mark.parametrize("renamed", range(5), ids=lambda count: f"{count} files")
def test_a_start_finishes_what_was_renamed_in_part(renamed: int) -> None:
    """Once the old files are out of the way, any of the new ones may have its final name."""
    _, after, _ = views()
    shelf = three_segments()
    shelf.clean()
    for path in shelf.segments[0].paths()[renamed:]:
        shelf.files.rename(path, path + names.SWAP_SUFFIX)
    swap.finish_swaps(shelf.files, FOLDER)
    assert read_back(shelf.files) == after
    assert not has_leftovers(shelf.files)


def test_a_start_keeps_a_published_segment_before_one_that_is_being_made() -> None:
    """A `.cleaned` file of a later group does not take back what an earlier one has done."""
    _, after, _ = views()
    shelf = three_segments()
    cleaning = shelf.round()
    cleaning.map_keys()
    (group,) = cleaning.groups()
    swap.publish(shelf.files, FOLDER, cleaning.rewrite(group, producers=shelf.producers))
    shelf.files.open(f"{FOLDER}/{7:020d}.log.cleaned", create=True)
    swap.finish_swaps(shelf.files, FOLDER)
    assert read_back(shelf.files) == after


def test_a_start_removes_the_old_index_of_transactions() -> None:
    """A transaction index of old segments does not stay beside a new segment without one."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.abort(1)
    shelf.append_keys(1)
    shelf.roll()
    shelf.clean(producers={})
    assert f"{0:020d}.txnindex" in shelf.files.list(FOLDER)
    cleaning = shelf.round()
    cleaning.map_keys()
    (group,) = cleaning.groups()
    swap.publish(shelf.files, FOLDER, cleaning.rewrite(group, producers={}))
    swap.finish_swaps(shelf.files, FOLDER)
    assert f"{0:020d}.txnindex" not in shelf.files.list(FOLDER)


def test_old_segments_of_which_nothing_was_kept_may_come_back_whole() -> None:
    """They are older versions of records that stand in the log, and the next round takes them."""
    shelf = Shelf()
    shelf.append_keys(1, 2)
    shelf.roll()
    shelf.append_keys(3, 4)
    shelf.roll()
    shelf.append_keys(3, 4)
    for each in shelf.segments:
        each.sync()
    shelf.roll()
    cleaning = shelf.round()
    cleaning.map_keys()
    group = tuple(shelf.segments[:2])
    swap.publish(shelf.files, FOLDER, cleaning.rewrite(group, producers={}))
    swap.finish_swaps(shelf.files, FOLDER)
    found = [(record.offset, record.key) for record in read_back(shelf.files)]
    assert found == [(0, b"1"), (1, b"2"), (2, b"3"), (3, b"4"), (4, b"3"), (5, b"4")]


def test_snapshots_between_the_new_bases_go_with_their_segments() -> None:
    """A producer snapshot belongs to a segment's base; that of the new base is still right."""
    shelf = three_segments()
    for offset in (0, 3, 7):
        shelf.files.open(f"{FOLDER}/{offset:020d}.snapshot", create=True)
    cleaning = shelf.round()
    cleaning.map_keys()
    (group,) = cleaning.groups()
    swap.publish(shelf.files, FOLDER, cleaning.rewrite(group, producers=shelf.producers))
    swap.finish_swaps(shelf.files, FOLDER)
    found = [name[:20] for name in shelf.files.list(FOLDER) if name.endswith(".snapshot")]
    assert [int(stem) for stem in found] == [0, 7]


def test_a_folder_without_an_exchange_is_left_alone() -> None:
    """The start writes, renames and syncs nothing there."""
    shelf = three_segments()
    done = len(shelf.files.operations)
    swap.finish_swaps(shelf.files, FOLDER)
    assert len(shelf.files.operations) == done


def test_a_full_disk_leaves_the_log_and_no_output() -> None:
    """When the new segment cannot be written, its files are removed and the error comes through."""
    shelf = three_segments()
    listed = shelf.files.list(FOLDER)
    shelf.files.faults.append(DiskFault(operation="write", path_part=".log.cleaned", error=28))
    with pytest.raises(OSError, match="No space"):
        shelf.clean()
    assert shelf.files.list(FOLDER) == listed


def test_output_that_cannot_be_removed_is_told_with_the_error() -> None:
    """The first error stays the one that counts, and names what is left."""
    shelf = three_segments()
    shelf.files.faults.append(DiskFault(operation="write", path_part=".log.cleaned", error=28))
    shelf.files.faults.append(DiskFault(operation="remove", path_part=".cleaned"))
    with pytest.raises(OSError, match="No space") as caught:
        shelf.clean()
    assert "stays until the next start" in caught.value.__notes__[0]


def overflowed() -> Shelf:
    """A segment with batches 2^31 and more behind its base."""
    shelf = Shelf()
    shelf.append_keys(1, 2)
    shelf.append_transaction(1, 3)
    shelf.abort(1)
    log = shelf.segments[-1].log
    for offset in (FAR, FAR + 1, 2 * FAR + 5):
        other = Shelf()
        other.roll(offset)
        other.append_keys(1, at=offset)
        log.append(bytes(other.segments[-1].log.read(Position(0), other.segments[-1].size)))
        shelf.end = other.end
    shelf.roll()
    return shelf


def test_a_segment_with_offsets_too_far_apart_is_refused_and_split() -> None:
    """The round is called off before anything is lost; after the split it goes through."""
    shelf = overflowed()
    with pytest.raises(SegmentOverflowError) as caught:
        shelf.clean()
    assert caught.value.base_offset == 0
    assert caught.value.offset == 2 * FAR + 5
    before = [record.offset for record in read_back(shelf.files)]
    shelf.segments[0].close()
    bases = swap.split_overflowed(shelf.files, FOLDER, base_offset=0, config=shelf.config)
    assert bases == [0, FAR, 2 * FAR + 5]
    assert [record.offset for record in read_back(shelf.files)] == before
    shelf.segments[:1] = [
        open_segment(shelf.files, FOLDER, base_offset=Offset(base), config=shelf.config)
        for base in bases
    ]
    for segment in shelf.segments[:-1]:
        segment.finish()
        last = max(batch.last_offset for _, batch in segment.log.batches())
        assert segment.can_hold(last)
    assert shelf.aborted() == [aborted_txn(1, 2, 3, 4)]
    shelf.clean()
    assert [record.offset for record in shelf.records()] == [1, 2 * FAR + 5]


def test_a_crash_at_any_operation_of_a_split_keeps_every_record() -> None:
    """The segment is there, or its parts are."""
    total_start = len(overflowed().files.operations)
    shelf = overflowed()
    swap.split_overflowed(shelf.files, FOLDER, base_offset=0, config=shelf.config)
    total = len(shelf.files.operations) - total_start
    expected = [record.offset for record in read_back(shelf.files)]
    for stop in range(total + 1):
        shelf = overflowed()
        shelf.files.stop_at = len(shelf.files.operations) + stop
        with contextlib.suppress(ProcessKilledError):
            swap.split_overflowed(shelf.files, FOLDER, base_offset=0, config=shelf.config)
        for disk in crashed(shelf.files):
            swap.finish_swaps(disk, FOLDER)
            assert [record.offset for record in read_back(disk)] == expected


def test_a_segment_whose_first_batch_is_too_far_keeps_an_empty_part_at_its_base() -> None:
    """A start finds the old segment by the base of the first part."""
    shelf = Shelf()
    other = Shelf()
    other.roll(FAR)
    other.append_keys(1)
    shelf.segments[-1].log.append(
        bytes(other.segments[-1].log.read(Position(0), other.segments[-1].size))
    )
    shelf.segments[-1].close()
    bases = swap.split_overflowed(shelf.files, FOLDER, base_offset=0, config=shelf.config)
    assert bases == [0, FAR]
    assert [record.offset for record in read_back(shelf.files)] == [FAR]


def test_a_split_of_a_damaged_segment_changes_nothing() -> None:
    """The parts are removed, and the segment is as it was."""
    shelf = overflowed()
    size = shelf.segments[0].size
    shelf.segments[0].log.truncate(Position(size - 10))
    shelf.segments[0].close()
    listed = shelf.files.list(FOLDER)
    with pytest.raises(CorruptionError, match="not whole"):
        swap.split_overflowed(shelf.files, FOLDER, base_offset=0, config=shelf.config)
    assert shelf.files.list(FOLDER) == listed
