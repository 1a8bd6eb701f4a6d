"""The log file of a segment."""

import os
import threading
from pathlib import Path

import pytest

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.records.batch import read_batches, stamp
from tailrace.records.search import find_timestamp
from tailrace.runtime.files import CutMeanwhileError, DiskFiles, FileCutError, without_waiting
from tailrace.storage.records_file import (
    CHECK_WINDOW_BYTES,
    FIND_BYTES_MAX,
    BatchPosition,
    RecordsFile,
    open_records_file,
)
from tailrace.storage.walk import WINDOW_BYTES
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import NOW, batch

NAME = "00000000000000000000.log"


def stamped(offset: int, *, timestamps: tuple[int, ...] = (NOW,), epoch: int = 0) -> bytearray:
    """A batch at this offset with one record for each timestamp."""
    data = batch(*(b"value %d" % each for each in timestamps), timestamps=timestamps)
    stamp(memoryview(data), base_offset=offset, leader_epoch=epoch)
    return data


def batch_of_size(size: int, *, base_offset: int) -> bytearray:
    """A batch with one record, of about so many bytes."""
    data = batch(bytes(size - 75))
    stamp(memoryview(data), base_offset=base_offset, leader_epoch=0)
    return data


BATCHES = [stamped(offset, timestamps=(NOW,) * (offset + 1)) for offset in (0, 1, 3)]
SIZES = [len(each) for each in BATCHES]
TOTAL = sum(SIZES)


def filled(files: MemoryFiles) -> RecordsFile:
    """Three batches of different sizes, with offsets 0, 1 to 2, and 3 to 6."""
    log = open_records_file(files, NAME, create=True)
    for each in BATCHES:
        log.append(each)
    return log


def bases(log: RecordsFile, position: int = 0) -> list[int]:
    """Base offsets of the batches from a position on."""
    return [each.base_offset for _, each in log.batches(Position(position))]


def resizes(files: MemoryFiles) -> int:
    """Count the calls that set a file's length."""
    return sum(operation == "resize" for operation, _ in files.operations)


def on_disk(directory: Path, size: int) -> RecordsFile:
    """A log file of the real file system that is one hole."""
    path = directory / NAME
    with path.open("wb") as file:
        file.truncate(size)
    return open_records_file(DiskFiles(), str(path))


def test_the_size_is_that_of_the_file() -> None:
    """The size is right after every append."""
    files = MemoryFiles()
    log = open_records_file(files, NAME, create=True)
    for each in BATCHES:
        log.append(each)
        assert log.size == len(files.content(NAME))
    assert log.size == TOTAL


def test_an_append_beyond_31_bits_is_refused(tmp_path: Path) -> None:
    """Indexes have int32 for a position; nothing is written."""
    log = on_disk(tmp_path, INT32_MAX - 10)
    with pytest.raises(ValueError, match="2147483647"):
        log.append(bytes(11))
    assert log.size == (tmp_path / NAME).stat().st_size == INT32_MAX - 10
    log.append(bytes(10))
    assert log.size == INT32_MAX


def test_a_file_beyond_31_bits_is_not_opened(tmp_path: Path) -> None:
    """One byte more than the largest segment, and the error names file and sizes."""
    on_disk(tmp_path, INT32_MAX).close()
    with pytest.raises(CorruptionError, match="2147483648 bytes, more than the 2147483647") as info:
        on_disk(tmp_path, INT32_MAX + 1)
    assert info.value.path == str(tmp_path / NAME)


def test_no_slice_goes_beyond_the_batches() -> None:
    """Neither its start nor its end, which the callers bound."""
    log = filled(MemoryFiles())
    for start, limit in ((TOTAL + 1, TOTAL + 1), (0, TOTAL + 1), (5, 4), (-1, 4)):
        with pytest.raises(AssertionError):
            log.slice(Position(start), limit)
    assert len(log.slice(Position(TOTAL), TOTAL)) == 0


def test_slices_have_the_bytes_of_the_file() -> None:
    """The whole, the second batch alone, parts of a slice; read at once and piece by piece."""
    log = filled(MemoryFiles())
    content = b"".join(bytes(each) for each in BATCHES)
    first, second = SIZES[0], SIZES[0] + SIZES[1]
    assert log.read(Position(0), TOTAL) == log.slice(Position(0), TOTAL).read() == content
    assert log.slice(Position(first), second).read() == BATCHES[1]
    assert log.slice(Position(0), TOTAL).after(first).upto(SIZES[1]).read() == BATCHES[1]
    rest, pieces, buffer = log.slice(Position(1), TOTAL), b"", bytearray(7)
    while rest:
        count = rest.read_into(memoryview(buffer))
        pieces += buffer[:count]
        rest = rest.after(count)
    assert pieces == content[1:]


def test_a_slice_outlives_its_segment_and_not_a_cut(tmp_path: Path) -> None:
    """A deleted and closed file is read to its end; once the log was cut, nothing of it is given.

    Other bytes may stand behind the cut by then, which belong to another batch.
    """
    log = on_disk(tmp_path, 0)
    log.append(BATCHES[0])
    log.append(BATCHES[1])
    held = log.slice(Position(0), SIZES[0])
    log.truncate(Position(SIZES[0]))
    with pytest.raises(CutMeanwhileError):
        held.read()
    again = log.slice(Position(0), SIZES[0])
    (tmp_path / NAME).unlink()
    log.close()
    assert again.read() == BATCHES[0]


def test_a_file_that_something_else_has_cut_is_an_error(tmp_path: Path) -> None:
    """Every reader gets an error with the end of the bytes, and the process survives."""
    log = on_disk(tmp_path, 0)
    log.append(b"".join(BATCHES))
    held = log.slice(Position(0), TOTAL)
    os.truncate(tmp_path / NAME, SIZES[0] + 5)
    for read in (
        held.read,
        lambda: log.read(Position(0), TOTAL),
        lambda: bases(log),
        lambda: list(log.checked()),
        lambda: log.find(Offset(3)),
        lambda: log.offsets_at(Position(SIZES[0])),
        lambda: log.batch(BatchPosition(Position(SIZES[0]), SIZES[1])),
    ):
        with pytest.raises(FileCutError, match=f"byte {SIZES[0] + 5}"):
            read()


@pytest.mark.parametrize("size", [CHECK_WINDOW_BYTES - 70, CHECK_WINDOW_BYTES + 70, WINDOW_BYTES])
def test_batches_around_the_size_of_a_window_are_checked(size: int) -> None:
    """A batch about as large as a window is found right, and found wrong after one flipped bit."""
    large = batch_of_size(size, base_offset=1)
    files = MemoryFiles()
    log = open_records_file(files, NAME, create=True)
    for each in (BATCHES[0], large, stamped(2)):
        log.append(each)
    assert [each.base_offset for each in log.checked()] == bases(log) == [0, 1, 2]
    assert [each.end - each.position for each in log.checked()][1] == len(large)
    data = bytearray(files.content(NAME))
    data[-len(stamped(2)) - 1] ^= 1
    files.overwrite(NAME, bytes(data))
    with pytest.raises(CorruptionError) as caught:
        list(log.checked())
    assert caught.value.position == SIZES[0]


def test_batches_of_a_slice_end_with_the_last_whole_one() -> None:
    """A slice of the second batch has it; a slice one byte shorter has none."""
    log = filled(MemoryFiles())
    place = log.find(Offset(1))
    assert place is not None
    start, size = place
    for limit, found in ((start + size, [1]), (start + size - 1, []), (TOTAL, [1, 3])):
        batches = read_batches(log.slice(start, limit).read())
        assert [each.base_offset for _, each in batches] == found


@pytest.mark.parametrize("size", [0, 2, 4, 5, 6, 16, 17, 60, 61, 62])
def test_a_partial_batch_at_the_end_is_not_given_out(size: int) -> None:
    """Iteration and search end before a partial batch, whatever part of it is there."""
    log = filled(MemoryFiles())
    log.append(stamped(7)[:size])
    assert bases(log) == [0, 1, 3]
    assert log.find(Offset(7)) is None


def test_a_slice_keeps_its_size_while_another_thread_appends() -> None:
    """Slices up to the size of the moment, over a file that grows."""
    log = open_records_file(MemoryFiles(), NAME, create=True)
    wrong: list[int] = []

    def read() -> None:
        size = 0
        while size < 64 * TOTAL:
            size = log.size
            if len(log.read(Position(0), size)) != size:
                wrong.append(size)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(64):
        log.append(b"".join(BATCHES))
    reader.join()
    assert not wrong


def test_reads_do_not_move_where_appends_go() -> None:
    """The next batch follows the last one after any iteration."""
    log = filled(MemoryFiles())
    next(log.batches())
    bases(log)
    log.find(Offset(1))
    assert log.append(stamped(7)) == TOTAL
    assert bases(log) == [0, 1, 3, 7]


def test_find_gives_position_and_size_of_the_batch() -> None:
    """Any offset of a batch, or of the gap before it, finds the batch from any position before."""
    files = MemoryFiles()
    log = filled(files)
    last = stamped(50)
    log.append(last)
    second = SIZES[0]
    third = second + SIZES[1]
    assert log.find(Offset(0)) == (0, SIZES[0])
    assert (
        log.find(Offset(1))
        == log.find(Offset(2))
        == log.find(Offset(1), Position(second))
        == (second, SIZES[1])
    )
    assert log.find(Offset(6), Position(third)) == (third, SIZES[2])
    assert (
        log.find(Offset(7), Position(third))
        == log.find(Offset(49))
        == log.find(Offset(50), Position(TOTAL))
        == (TOTAL, len(last))
    )
    assert log.find(Offset(51)) is None
    assert log.find(Offset(50), Position(TOTAL + len(last))) is None


def test_find_tells_damage_on_the_way() -> None:
    """The error has the file and the position, as that of an iteration has."""
    files = MemoryFiles()
    log = filled(files)
    data = bytearray(files.content(NAME))
    data[SIZES[0] + 16] = 9
    files.overwrite(NAME, bytes(data))
    again = open_records_file(files, NAME)
    assert again.find(Offset(0)) == (0, SIZES[0])
    with pytest.raises(CorruptionError, match="magic is 9") as caught:
        again.find(Offset(3))
    assert (caught.value.path, caught.value.position) == (NAME, SIZES[0])
    assert log.size == again.size


def test_a_search_on_the_loop_reads_a_limited_part_of_the_file() -> None:
    """Without an index entry nearby it is for a thread, and so is what is no batch of format v2."""
    files = MemoryFiles()
    log = open_records_file(files, NAME, create=True)
    data, count = bytes(batch(b"v")), 2 * FIND_BYTES_MAX // len(batch(b"v"))
    whole = bytearray(data * count)
    for number in range(count):
        stamp(memoryview(whole)[number * len(data) :], base_offset=number, leader_epoch=0)
    log.append(whole)
    middle = log.find(Offset(count // 3))
    with without_waiting:
        assert log.find(Offset(count // 3)) == middle
        with pytest.raises(BlockingIOError):
            log.find(Offset(count - 1))
    assert log.find(Offset(count - 1)) == BatchPosition(
        Position((count - 1) * len(data)), len(data)
    )
    log.append(bytes(100))
    with without_waiting, pytest.raises(BlockingIOError):
        log.find(Offset(count), Position(count * len(data)))
    with pytest.raises(CorruptionError):
        log.find(Offset(count), Position(count * len(data)))


def test_find_by_timestamp_gives_the_first_young_enough_batch() -> None:
    """A search by time gives the record's timestamp, the start offset and the leader epoch."""
    log = open_records_file(MemoryFiles(), NAME, create=True)
    for offset, timestamps, epoch in (
        (10, (10, 15), 0), (12, (30, 20), 1), (14, (25, 40), 2),
    ):  # fmt: skip
        log.append(stamped(offset, timestamps=timestamps, epoch=epoch))
    found = []
    for timestamp, start_offset in ((5, 0), (16, 0), (16, 13), (31, 0)):
        place = log.find(Offset(start_offset), timestamp=timestamp)
        assert place is not None
        _, each = next(log.batches(place.position))
        record = find_timestamp(each, timestamp, start_offset=Offset(start_offset))
        assert record is not None
        found.append((*record, each.leader_epoch))
    assert found == [(10, 10, 0), (12, 30, 1), (13, 20, 1), (15, 40, 2)]
    assert log.find(Offset(0), timestamp=41) is None


@pytest.mark.parametrize("position", [-606051304, -1, 1, SIZES[0], TOTAL - 60, TOTAL, 2**31])
def test_a_search_that_is_sent_to_a_wrong_place_begins_at_the_start(position: int) -> None:
    """The index names a place without a batch, or with one beyond the wanted offset."""
    log = filled(MemoryFiles())
    assert log.find(Offset(0), Position(position), first=(Offset(0), Offset(0))) == BatchPosition(
        Position(0), SIZES[0]
    )
    assert log.find(Offset(3), Position(position), first=(Offset(0), Offset(0))) == BatchPosition(
        Position(SIZES[0] + SIZES[1]), SIZES[2]
    )


def test_offsets_at_a_position_are_those_of_its_batch() -> None:
    """They are None if no whole batch can be at that position."""
    log = filled(MemoryFiles())
    assert [log.offsets_at(Position(each)) for each in (0, SIZES[0], SIZES[0] + SIZES[1])] == [
        (0, 0), (1, 2), (3, 6),
    ]  # fmt: skip
    for position in (-1, 7, TOTAL - 60, TOTAL, TOTAL + 100):
        assert log.offsets_at(Position(position)) is None


def test_truncate_cuts_file_and_size() -> None:
    """The first batch is left, and the next append follows it."""
    files = MemoryFiles()
    log = filled(files)
    log.truncate(Position(SIZES[0]))
    assert (log.size, bases(log)) == (SIZES[0], [0])
    assert files.content(NAME) == BATCHES[0]
    assert log.append(BATCHES[1]) == SIZES[0]
    assert bases(log) == [0, 1]


def test_truncate_to_the_same_size_does_not_touch_the_file() -> None:
    """A truncation to the same size does not reach the disk."""
    files = MemoryFiles()
    log = filled(files)
    log.truncate(Position(TOTAL))
    assert (resizes(files), log.size) == (0, TOTAL)


def test_truncate_does_not_make_the_file_longer() -> None:
    """A target behind the last batch is a mistake of ours; nothing changes."""
    files = MemoryFiles()
    log = filled(files)
    with pytest.raises(AssertionError):
        log.truncate(Position(TOTAL + 1))
    assert (resizes(files), log.size) == (0, TOTAL)


def test_truncate_to_a_smaller_size_is_one_call() -> None:
    """The file's length is set once, to the target."""
    files = MemoryFiles()
    log = filled(files)
    log.truncate(Position(23))
    assert (resizes(files), log.size, len(files.content(NAME))) == (1, 23, 23)


def test_a_truncation_that_fails_changes_nothing() -> None:
    """The device refused: all batches are there and are read."""
    files = MemoryFiles()
    log = filled(files)
    files.faults.append(DiskFault(operation="resize"))
    with pytest.raises(OSError, match="error"):
        log.truncate(Position(SIZES[0]))
    assert (log.size, bases(log)) == (TOTAL, [0, 1, 3])


def test_a_preallocated_file_has_its_length_and_no_batch() -> None:
    """Appends go to position 0, and the zeros behind them are not read."""
    files = MemoryFiles()
    log = open_records_file(files, NAME, create=True, preallocated_bytes=4096)
    assert (log.size, len(files.content(NAME)), bases(log)) == (0, 4096, [])
    assert log.append(BATCHES[0]) == 0
    assert (log.size, len(files.content(NAME)), bases(log)) == (SIZES[0], 4096, [0])


def test_a_file_that_is_not_preallocated_is_empty() -> None:
    """Its length is that of its batches."""
    files = MemoryFiles()
    assert open_records_file(files, NAME, create=True).size == 0
    assert files.content(NAME) == b""


def test_a_trimmed_preallocated_file_opens_with_its_batches() -> None:
    """The zeros are gone, and opening it again brings none back."""
    files = MemoryFiles()
    log = open_records_file(files, NAME, create=True, preallocated_bytes=4096)
    log.append(BATCHES[0])
    log.trim()
    log.close()
    assert files.content(NAME) == BATCHES[0]
    again = open_records_file(files, NAME, preallocated_bytes=4096)
    assert (again.size, bases(again)) == (SIZES[0], [0])
    assert files.content(NAME) == BATCHES[0]


def test_what_an_attempt_to_make_the_file_has_left_is_emptied() -> None:
    """Zeros of a roll that failed are no batches."""
    files = MemoryFiles()
    open_records_file(files, NAME, create=True, preallocated_bytes=4096).close()
    log = open_records_file(files, NAME, create=True)
    assert (log.size, files.content(NAME)) == (0, b"")


def test_a_failed_append_leaves_no_trace() -> None:
    """A full disk took a part of the batch; it is cut, and the next append stands in its place."""
    files = MemoryFiles()
    log = filled(files)
    files.faults.append(DiskFault(operation="write", partial_bytes=20))
    with pytest.raises(OSError, match="error"):
        log.append(stamped(7))
    assert (log.size, len(files.content(NAME))) == (TOTAL, TOTAL)
    files.faults.clear()
    assert log.append(stamped(7)) == TOTAL


def test_a_flush_that_failed_fails_for_every_thread_that_asks_later() -> None:
    """The kernel reports lost pages once, but every later caller must get the error."""
    files = MemoryFiles()
    log = open_records_file(files, "log", create=True)
    log.append(b"batch")
    files.faults.append(DiskFault(operation="sync"))
    with pytest.raises(OSError, match="error"):
        log.sync()
    files.faults.clear()
    with pytest.raises(OSError, match="an earlier flush"):
        log.sync()
