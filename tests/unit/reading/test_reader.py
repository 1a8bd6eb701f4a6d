"""A folder read beside a broker, or without one."""

import pytest

from tailrace.errors import CorruptionError, DirectoryError, OffsetOutOfRangeError
from tailrace.model import Offset, TopicPartition
from tailrace.offline.scan import scan_partition
from tailrace.reading.listing import SegmentFiles, settled
from tailrace.reading.reader import LogReader, open_log_reader, partition_folders
from tailrace.records.builder import records_of
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    PARTITION,
    append,
    append_values,
    bases,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)

SIZE = len(batch(b"value 0"))


def offsets(reader: LogReader, start: int, limit: int) -> list[int]:
    """Offsets of the records in the batches of a range."""
    return [
        r.offset for each in reader.batches(Offset(start), Offset(limit)) for r in records_of(each)
    ]


def test_every_range_of_a_live_log_is_read() -> None:
    """Indexes may be padded and ranges cross segments; nothing on the disk changes."""
    files = MemoryFiles()
    filled(files, 20)
    files.operations.clear()
    reader = open_log_reader(files, FOLDER)
    assert (reader.start_offset, reader.end_offset) == (0, 20)
    for start in range(21):
        for limit in range(start, 21):
            assert offsets(reader, start, limit) == list(range(start, limit))
    assert not files.operations


def test_what_comes_later_is_not_seen() -> None:
    """A reader keeps the offsets of its opening while the log grows and rolls."""
    files = MemoryFiles()
    log = filled(files, 5)
    reader = open_log_reader(files, FOLDER)
    append_values(log, *[b"later"] * 10)
    assert len(bases(log)) > 1
    assert reader.end_offset == 5
    assert offsets(reader, 0, 5) == [0, 1, 2, 3, 4]
    with pytest.raises(OffsetOutOfRangeError):
        offsets(reader, 0, 6)


def test_an_append_in_progress_is_left_out() -> None:
    """A batch that is not whole at the very end is no damage."""
    files = MemoryFiles()
    filled(files, 3)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log")) + bytes(batch())[:40])
    reader = open_log_reader(files, FOLDER)
    assert offsets(reader, 0, reader.end_offset) == [0, 1, 2]


def test_a_preallocated_file_ends_where_its_zeros_begin() -> None:
    """A broker leaves such a file if it preallocates, or if it was killed."""
    files = MemoryFiles()
    filled(files, 3)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log")) + bytes(10_000))
    reader = open_log_reader(files, FOLDER)
    assert offsets(reader, 0, reader.end_offset) == [0, 1, 2]
    assert reader.segments[-1].size == 3 * SIZE


def test_the_bytes_behind_the_last_whole_batch_can_be_judged() -> None:
    """The reader reports where they begin, and its caller decides where the log ends."""
    files = MemoryFiles()
    filled(files, 3)
    whole = files.content(path(0, ".log"))
    seen = []

    def judge(last: SegmentFiles, end: Offset, error: CorruptionError | None) -> Offset:
        seen.append((last.size, end, error is None))
        return Offset(end + 4)

    for tail in (bytes(batch())[:40], b"\xff" * 40):
        files.overwrite(path(0, ".log"), whole + tail)
        assert open_log_reader(files, FOLDER, resolve_tail=judge).end_offset == 7
    assert seen == [(len(whole) + 40, 3, True), (len(whole) + 40, 3, False)]
    with pytest.raises(CorruptionError):
        open_log_reader(files, FOLDER)


def test_batches_come_with_their_places() -> None:
    """File and position of each, across segments."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    reader = open_log_reader(files, FOLDER)
    found = [
        stored
        for piece in reader.stored_runs(Offset(3), Offset(17))
        for stored in piece.batches(Offset(3), Offset(17))
    ]
    assert [stored.batch.base_offset for stored in found] == list(range(3, 17))
    for stored in found:
        content = files.content(stored.path)[stored.position :][: stored.batch.size]
        assert content == bytes(stored.batch.view)


def test_segments_of_a_range_are_those_that_may_hold_it() -> None:
    """They begin with the segment of the first offset and end with that of the last."""
    files = MemoryFiles()
    log = filled(files, 20)
    found, reader = bases(log), open_log_reader(files, FOLDER)
    assert len(found) > 2
    between = reader.segments_between(Offset(found[1]), Offset(found[2] + 1))
    assert [segment.base_offset for segment in between] == found[1:3]
    assert [s.base_offset for s in reader.segments_between(Offset(0), Offset(20))] == found
    assert [s.base_offset for s in reader.segments_between(Offset(19), Offset(20))] == found[-1:]


@pytest.mark.parametrize("position", [2 * SIZE + 65, 2 * SIZE + 7, 2 * SIZE + 10, 2 * SIZE + 16])
def test_damage_is_located_and_never_returned(position: int) -> None:
    """Damage is found in records, and in base offset, length and magic outside of the checksum."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    flip(files, path(0, ".log"), position)
    reader = open_log_reader(files, FOLDER)
    found = []
    with pytest.raises(CorruptionError) as caught:  # noqa: PT012 - what came before counts
        for each in reader.batches(Offset(0), Offset(20)):
            found += [record.offset for record in records_of(each)]
    assert found == list(range(len(found)))
    assert len(found) <= 2
    assert caught.value.path == path(0, ".log")


def test_a_closed_segment_that_is_too_short_is_damage() -> None:
    """Half a batch is only in order at the end of the log."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:-5])
    with pytest.raises(CorruptionError, match="not whole"):
        offsets(open_log_reader(files, FOLDER), 0, 20)


def test_a_log_that_was_cut_after_the_opening_is_not_just_shorter() -> None:
    """Reading offsets that existed at the opening raises an error if they are gone."""
    files = MemoryFiles()
    filled(files, 3)
    reader = open_log_reader(files, FOLDER)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:SIZE])
    with pytest.raises(CorruptionError, match="ends at offset 1"):
        offsets(reader, 0, 3)


@pytest.mark.parametrize("content", [b"\xff" * 64, b"\0" * 13, b"\0\0\0\1\0\0\0\x11" * 5, None])
def test_damaged_indexes_do_not_matter(content: bytes | None) -> None:
    """The log is read from the segment's start instead."""
    files = MemoryFiles()
    log = filled(files, 20)
    for base in bases(log):
        if content is None:
            files.remove(path(base, ".index"))
        else:
            files.overwrite(path(base, ".index"), content)
    reader = open_log_reader(files, FOLDER)
    for start in range(20):
        assert offsets(reader, start, 20) == list(range(start, 20))


def test_the_log_start_offset_comes_from_the_checkpoint_beside_the_folder() -> None:
    """The log start offset comes from that checkpoint, or from the caller."""
    files = MemoryFiles()
    filled(files, 5)
    files.open("data/log-start-offset-checkpoint", create=True)
    files.overwrite("data/log-start-offset-checkpoint", b"0\n1\nflights 0 3\n")
    reader = open_log_reader(files, FOLDER)
    assert (reader.start_offset, offsets(reader, 3, 5)) == (3, [3, 4])
    assert open_log_reader(files, FOLDER, log_start_offset=Offset(2)).start_offset == 2


def test_a_log_start_beyond_the_end_counts_if_the_log_knows_of_it() -> None:
    """Its leader epochs do; one of another life of the log hides nothing."""
    files = MemoryFiles()
    log = filled(files, 5)
    reader = open_log_reader(files, FOLDER, log_start_offset=Offset(9))
    assert (reader.start_offset, reader.end_offset) == (0, 5)
    raise_log_start(log, 5)
    log.epochs.save()
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:-SIZE])
    reader = open_log_reader(files, FOLDER, log_start_offset=Offset(5))
    assert (reader.start_offset, reader.end_offset) == (5, 5)


@pytest.mark.parametrize("log_start", [0, 3])
def test_a_malformed_log_start_checkpoint_is_replaced_by_the_leader_epochs(log_start: int) -> None:
    """Readers, brokers and tools find the same log start."""
    files = MemoryFiles()
    log = filled(files, 5)
    raise_log_start(log, log_start)
    log.epochs.save()
    files.open("data/log-start-offset-checkpoint", create=True)
    files.overwrite("data/log-start-offset-checkpoint", b"0\n7\n")
    reader = open_log_reader(files, FOLDER)
    assert (reader.start_offset, reader.end_offset) == (log_start, 5)
    scan = scan_partition(files, "data", PARTITION, folder=FOLDER)
    assert (scan.start_offset, scan.end_offset) == (log_start, 5)


def test_an_empty_folder_is_an_empty_log() -> None:
    """It begins and ends at 0; a missing folder is an error."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    reader = open_log_reader(files, FOLDER)
    assert (reader.start_offset, reader.end_offset, offsets(reader, 0, 0)) == (0, 0, [])
    with pytest.raises(FileNotFoundError):
        open_log_reader(files, "data/none-0")


def test_sizes_of_ranges_add_up() -> None:
    """About the bytes of the range; the whole log is exact."""
    files = MemoryFiles()
    log = filled(files, 9)
    reader = open_log_reader(files, FOLDER)
    assert reader.size_between(Offset(0), Offset(9)) == log.size
    assert abs(reader.size_between(Offset(2), Offset(4)) - 2 * SIZE) <= 2
    assert reader.size_between(Offset(4), Offset(4)) == 0


def test_partitions_are_listed_without_those_on_their_way_out() -> None:
    """The list has live partition folders only."""
    files = MemoryFiles()
    open_at(files)
    for name in ("data/flights-1.ab-delete", "data/other", "data/a-b-7"):
        files.make_directory(name)
    files.open("data/file-3", create=True)
    assert partition_folders(files, "data") == {
        TopicPartition("a-b", 7): "data/a-b-7",
        TopicPartition("flights", 0): FOLDER,
    }


def test_what_is_sound_before_damage_is_read() -> None:
    """A range that ends before a bad frame is whole, and one across it gives all up to there."""
    files = MemoryFiles()
    log = filled(files, 0, config=settings(segment_bytes=1000))
    for number in range(20):
        append(log, batch(b"value %d" % number))
    stop_cleanly(log)
    data = bytearray(files.content(path(0, ".log")))
    data[5 * SIZE + 16] = 9
    files.overwrite(path(0, ".log"), bytes(data))
    reader = open_log_reader(files, FOLDER)
    assert [each.base_offset for each in reader.batches(Offset(0), Offset(3))] == [0, 1, 2]
    batches = reader.batches(Offset(0), Offset(10))
    assert [next(batches).base_offset for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptionError, match="the magic is 9"):
        next(batches)


def test_a_folder_that_changes_at_each_try_is_an_error() -> None:
    """No result is given out that was read from files of two different times."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    name, tries = path(0, ".log"), 0

    def work(*_: object) -> int:
        nonlocal tries
        tries += 1
        files.overwrite(name, files.content(name)[:-1])
        return tries

    reader = open_log_reader(files, FOLDER)
    with pytest.raises(DirectoryError, match="exchanged or deleted at each of 10 tries"):
        reader.settled(Offset(0), Offset(20), work)
    with pytest.raises(DirectoryError, match="exchanged or deleted at each of 10 tries"):
        settled(files, FOLDER, work)
    assert tries == 20


def test_a_batch_whose_base_offset_is_wrong_is_not_handed_out_before_the_error() -> None:
    """It passes its checksum, and only the batch behind it shows that it cannot stand there."""
    files = MemoryFiles()
    log = filled(files, 0, config=settings(segment_bytes=1000))
    for number in range(3):
        append(log, batch(b"%d" % number, b"second"))
    stop_cleanly(log)
    data = bytearray(files.content(path(0, ".log")))
    data[len(batch(b"0", b"second")) + 6] ^= 1
    files.overwrite(path(0, ".log"), bytes(data))
    batches = open_log_reader(files, FOLDER).batches(Offset(0), Offset(6))
    assert next(batches).base_offset == 0
    with pytest.raises(CorruptionError, match="offsets 258 to 259, and only"):
        next(batches)
