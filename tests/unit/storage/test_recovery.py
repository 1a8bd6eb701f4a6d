"""From a folder in any state to a log."""

import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import ProducerId, SpecialTimestamp
from tailrace.records.batch import stamp
from tailrace.storage.config import DAY_MS
from tailrace.storage.log import Log
from tailrace.storage.producers import ProducerSequenceError
from tailrace.storage.snapshots import encode_snapshot
from tailrace.testing import DiskFault, MemoryFiles

if TYPE_CHECKING:
    from tailrace.storage.recovery import LogCut
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.segment import retention_time_ms
from tailrace.storage.shrink import raise_log_start
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append,
    append_values,
    bases,
    batch,
    filled,
    flip,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
    values,
)
from tests.unit.storage.producer_builders import (
    known_batch,
    known_producer,
    known_producers,
)

SIZE = len(batch(b"value 0"))


def expected_values(count: int) -> list[bytes]:
    """Values of the first batches of `filled`."""
    return [b"value %d" % number for number in range(count)]


def test_a_new_folder_gets_an_empty_log() -> None:
    """The log begins at offset 0, or where the checkpoint says that it starts."""
    log = open_at(MemoryFiles())
    assert (log.start_offset, log.end_offset, log.size) == (0, 0, 0)
    log = open_at(MemoryFiles(), checkpoints=(0, 500))
    assert (log.start_offset, log.end_offset, bases(log)) == (500, 500, [500])


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stopped_log_is_as_it_was(is_clean: bool) -> None:  # noqa: FBT001 - a parameter
    """Records, segments, searches and appends; the next roll is not sooner than it was."""
    files = MemoryFiles()
    log = filled(files, 12)
    before, old_bases = records(log), bases(log)
    stop_cleanly(log)
    files.operations.clear()
    log = open_at(files, is_clean=is_clean, checkpoints=(12, 0))
    assert (records(log), bases(log)) == (before, old_bases)
    assert log.positions.recovery_point == 12
    assert find_offset(log, SpecialTimestamp.MAX_TIMESTAMP) == ((NOW + 11, 11), 0)
    append_values(log, b"next")
    assert values(log) == [*expected_values(12), b"next"]
    assert bases(log) == old_bases


def test_a_killed_process_loses_nothing_and_nothing_is_cut() -> None:
    """All written bytes are in the page cache."""
    files = MemoryFiles()
    before = records(filled(files, 12))
    cuts: list[LogCut] = []
    log = open_at(files.crash(keep_unsynced=True), report=cuts.append)
    assert records(log) == before
    assert not cuts


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\xff" * 30, bytes(batch(b"torn"))[:50], b"x"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_torn_tail_is_cut_and_told(tail: bytes, is_clean: bool) -> None:  # noqa: FBT001
    """Zeros, garbage, a part of a batch; even where the last stop claims to have been orderly."""
    files = MemoryFiles()
    log = filled(files, 3)
    stop_cleanly(log)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log")) + tail)
    cuts: list[LogCut] = []
    log = open_at(files, is_clean=is_clean, report=cuts.append)
    assert values(log) == expected_values(3)
    [cut] = cuts
    assert (cut.path, cut.position, cut.bytes_cut) == (path(0, ".log"), 3 * SIZE, len(tail))
    assert cut.reason
    append_values(log, b"next")
    assert values(log) == [*expected_values(3), b"next"]


def test_a_marker_that_cannot_be_read_is_cut_from_the_indexes_too() -> None:
    """Its checksum holds; retention counts from the records that are left, and appends go on."""
    files = MemoryFiles()
    config = settings(segment_bytes=4000, index_interval_bytes=0)
    log = filled(files, 3, config=config)
    log.close()
    data = batch(
        b"a", b"b", b"c", key=b"?", timestamps=[NOW + DAY_MS] * 3, producer_id=7, producer_epoch=0,
        is_transactional=True, is_control=True,
    )  # fmt: skip
    stamp(memoryview(data), base_offset=3, leader_epoch=0)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log")) + bytes(data))
    log = open_at(files, config=config)
    assert log.end_offset == 3
    assert retention_time_ms(log.segments.first) == NOW + 2
    append_values(log, b"x", b"y")
    assert values(log) == [*expected_values(3), b"x", b"y"]


def test_a_header_torn_before_its_magic_is_damage_and_no_old_format() -> None:
    """Offset and length arrived, the rest of the sector is zeros: that is magic 0."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 2))
    torn = struct.pack(">qi", 2, 80) + bytes(80)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log")) + torn)
    assert values(open_at(files)) == expected_values(2)


def test_a_sound_message_of_an_old_format_is_not_cut() -> None:
    """A topic from before Kafka 0.11 is opened, and its bytes stay."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 1))
    body = bytes([1, 0]) + struct.pack(">qii", NOW, -1, -1)
    message = struct.pack(">qiI", 1, len(body) + 4, zlib.crc32(body)) + body
    whole = files.content(path(0, ".log")) + message
    files.overwrite(path(0, ".log"), whole)
    assert values(open_at(files)) == [*expected_values(1), None]
    assert files.content(path(0, ".log")) == whole


def test_damage_in_the_middle_drops_what_lies_behind() -> None:
    """The damaged batch, the rest of its segment, and every later segment; told as it leaves."""
    files = MemoryFiles()
    log = filled(files, 20)
    first, second, *later = bases(log)
    stop_cleanly(log)
    flip(files, path(second, ".log"), SIZE + 65)
    cuts: list[LogCut] = []
    log = open_at(files, report=cuts.append)
    assert values(log) == expected_values(second + 1)
    assert [cut.path for cut in cuts] == [
        *(path(base, ".log") for base in reversed(later)), path(second, ".log"),
    ]  # fmt: skip
    assert bases(log) == [first, second]
    assert not files.exists(path(later[0], ".log"))
    append_values(log, *[b"n%d" % number for number in range(3)])
    assert bases(log) == [first, second]


def test_a_segment_cut_to_nothing_takes_writes_again() -> None:
    """Its indexes have their full size, so it does not roll at once."""
    files = MemoryFiles()
    log = filled(files, 20)
    first, second, *_ = bases(log)
    stop_cleanly(log)
    flip(files, path(second, ".log"), 65)
    log = open_at(files)
    append_values(log, b"a", b"b", b"c")
    assert values(log) == [*expected_values(second), b"a", b"b", b"c"]
    assert bases(log) == [first, second]


def test_only_segments_behind_the_recovery_point_are_checked() -> None:
    """Damage below it is not met at the start; it is met when it is read."""
    files = MemoryFiles()
    log = filled(files, 20)
    _, second, third, *_ = bases(log)
    stop_cleanly(log)
    flip(files, path(0, ".log"), 65)
    log = open_at(files, checkpoints=(third, 0))
    assert log.end_offset == 20
    with pytest.raises(CorruptionError, match="CRC"):
        records(log)
    log = open_at(files, checkpoints=(second - 1, 0))
    assert log.end_offset == 0


def test_a_lost_tail_that_ends_between_batches_drops_what_lies_behind() -> None:
    """No batch is torn, but offsets are missing; below the recovery point none is."""
    files = MemoryFiles()
    log = filled(files, 20)
    second = bases(log)[1]
    stop_cleanly(log)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:-SIZE])
    cuts: list[LogCut] = []
    log = open_at(files, report=cuts.append)
    assert values(log) == expected_values(second - 1)
    assert len(cuts) > 1


def test_on_a_compacted_topic_a_gap_between_segments_is_in_order() -> None:
    """Compaction takes the end of a segment away; nothing is dropped."""
    files = MemoryFiles()
    config = settings(cleanup_policy="compact")
    log = filled(files, 20, config=config)
    second = bases(log)[1]
    stop_cleanly(log)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:-SIZE])
    log = open_at(files, config=config)
    assert log.end_offset == 20
    assert records(log, second - 1)[0].offset == second


@pytest.mark.parametrize("preallocate", ["true", "false"])
def test_zeros_in_place_of_batches_are_a_lost_tail_on_a_compacted_topic(preallocate: str) -> None:
    """The machine was lost with the file's length written and its data not: no hole is served."""
    files = MemoryFiles()
    config = settings(cleanup_policy="compact", preallocate=preallocate)
    log = filled(files, 20, config=config)
    second, third = bases(log)[1:3]
    stop_cleanly(log)
    sound, size = files.content(path(second, ".log")), len(batch(b"value %d" % (third - 1)))
    files.overwrite(path(second, ".log"), sound[:-size] + bytes(size))
    behind = files.content(path(third, ".log"))
    cuts: list[LogCut] = []
    log = open_at(files, config=config, report=cuts.append)
    assert values(log) == expected_values(third - 1)
    assert log.end_offset == third - 1
    assert cuts[-1].path == path(second, ".log")
    assert (cuts[-1].bytes_cut, cuts[-1].kept) == (size, None)
    assert [cut.kept for cut in cuts if cut.path == path(third, ".log")] == [
        f"{FOLDER}/set-aside-{third:020d}-0.bytes"
    ]
    assert files.content(f"{FOLDER}/set-aside-{third:020d}-0.bytes") == behind


def test_zeros_in_place_of_batches_below_the_recovery_point_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were on the device: it is damage, and the file stays as it is for a repair."""
    files = MemoryFiles()
    config = settings(cleanup_policy="compact")
    log = filled(files, 20, config=config)
    second = bases(log)[1]
    stop_cleanly(log)
    files.remove(path(0, ".index"))
    damaged = files.content(path(0, ".log"))[:-SIZE] + bytes(SIZE)
    files.overwrite(path(0, ".log"), damaged)
    cuts: list[LogCut] = []
    log = open_at(files, config=config, checkpoints=(second + 1, 0), report=cuts.append)
    assert (log.end_offset, cuts) == (20, [])
    assert "segment_damaged" in caplog.text
    assert files.content(path(0, ".log")) == damaged
    with pytest.raises(CorruptionError):
        records(log)


@pytest.mark.parametrize("recovery_point", [0, 20])
def test_zeros_behind_all_batches_of_a_closed_segment_are_cut_and_told(
    recovery_point: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The next segment goes on where they begin, so nothing is lost; a log line tells of them."""
    caplog.set_level("INFO")
    files = MemoryFiles()
    log = filled(files, 20)
    stop_cleanly(log)
    files.remove(path(0, ".index"))
    sound = files.content(path(0, ".log"))
    files.overwrite(path(0, ".log"), sound + bytes(100))
    cuts: list[LogCut] = []
    log = open_at(files, checkpoints=(recovery_point, 0), report=cuts.append)
    assert values(log) == expected_values(20)
    assert cuts == []
    assert files.content(path(0, ".log")) == sound
    assert f"padding_cut path={path(0, '.log')} position={len(sound)} bytes=100" in caplog.text


def test_a_recovery_point_beyond_the_end_is_brought_back() -> None:
    """The device has lied, or another log's checkpoint was left."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 3))
    log = open_at(files, checkpoints=(1000, 0))
    assert (log.end_offset, log.positions.recovery_point) == (3, 3)


def test_a_log_start_offset_above_everything_begins_anew() -> None:
    """The records below were deleted on request, and the tail is lost; what goes is told."""
    files = MemoryFiles()
    log = filled(files, 20)
    last = bases(log)[-1]
    raise_log_start(log, 20)
    stop_cleanly(log)
    files.remove(path(last, ".log"))
    cuts: list[LogCut] = []
    log = open_at(files, checkpoints=(0, 20), report=cuts.append)
    assert (log.start_offset, log.end_offset, bases(log)) == (20, 20, [20])
    assert len(cuts) > 1
    append_values(log, b"next")
    assert records(log)[0].offset == 20


def test_a_log_start_offset_within_hides_what_is_below() -> None:
    """The segments stay; Kafka deletes them when it comes to it."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 12))
    log = open_at(files, is_clean=True, checkpoints=(12, 7))
    assert (log.start_offset, log.end_offset) == (7, 12)


DAMAGED_INDEXES = {
    "missing": None,
    "zeros": bytes(120),
    "garbage": b"\xff" * 120,
    "odd": b"\0\0\0\1\0\0\0",
    "falling": struct.pack(">qiqi", 9 << 32 | 70, 1, 1 << 32 | 60, 0),
}


@pytest.mark.parametrize("damage", DAMAGED_INDEXES)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_indexes_are_written_anew(
    damage: str,
    suffix: str,
    is_clean: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Indexes of all segments are rebuilt after any stop, and searches find the right records."""
    files = MemoryFiles()
    log = filled(files, 12)
    all_bases = bases(log)
    stop_cleanly(log)
    good = {base: files.content(path(base, suffix)) for base in all_bases}
    for base in all_bases:
        content = DAMAGED_INDEXES[damage]
        if content is None:
            files.remove(path(base, suffix))
        else:
            files.overwrite(path(base, suffix), content)
    log = open_at(files, is_clean=is_clean)
    assert values(log) == expected_values(12)
    for number in range(12):
        assert find_offset(log, NOW + number) == ((NOW + number, number), 0)
        assert records(log, number)[0].offset == number
    stop_cleanly(log)
    for base in all_bases[:-1]:
        assert files.content(path(base, suffix)) == good[base]


def test_rebuilding_with_smaller_indexes_stops_when_they_are_full() -> None:
    """A changed setting makes searches longer, and nothing else."""
    files = MemoryFiles()
    big = settings(segment_bytes=10**5, segment_index_bytes=1200, index_interval_bytes=0)
    stop_cleanly(filled(files, 12, config=big))
    log = open_at(files, config=settings(segment_index_bytes=36, index_interval_bytes=0))
    assert values(log) == expected_values(12)
    assert log.segments.active.offset_index.entries.count == 2
    assert find_offset(log, NOW + 11) == ((NOW + 11, 11), 0)


def test_damage_inside_of_an_index_does_not_mislead_a_reader() -> None:
    """The ends look sound, so it is trusted; an entry that fits no batch is passed over."""
    files = MemoryFiles()
    config = settings(segment_bytes=10**5, index_interval_bytes=0)
    stop_cleanly(filled(files, 9, config=config))
    content = bytearray(files.content(path(0, ".index")))
    content[8:56] = b"\x00\x00\x00\x03\x00\x00\x00\x11" * 6
    files.overwrite(path(0, ".index"), bytes(content))
    log = open_at(files, config=config, is_clean=True)
    for offset in range(9):
        assert records(log, offset)[0].offset == offset


def test_indexes_without_a_log_and_leftovers_are_removed() -> None:
    """Files of deletions and of replaced checkpoints too; strangers stay, whatever their ending."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 2))
    replaced = ("leader-epoch-checkpoint.tmp", "partition.metadata.tmp", "set-aside-" + "0" * 20)
    gone = [path(50, ".index"), path(50, ".timeindex"), path(0, ".log.deleted")]
    gone += [f"{FOLDER}/{name}" for name in (*replaced[:2], f"{replaced[2]}-7.bytes.tmp")]
    strangers = ("notes.txt", "x.tmp", "notes.deleted", "0-0.checkpoint.deleted", "0.checkpoint")
    stays = [path(0, ".txnindex"), *(f"{FOLDER}/{name}" for name in strangers)]
    for name in gone + stays:
        files.open(name, create=True)
    open_at(files)
    assert not any(files.exists(name) for name in gone)
    assert all(files.exists(name) for name in stays)


def test_a_compaction_left_half_done_is_completed() -> None:
    """The new segment serves, and the old ones, which have its name or lie behind it, are gone."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 2))
    data = files.content(path(0, ".log"))
    files.rename(path(0, ".log"), path(0, ".log.deleted"))
    files.open(path(0, ".log.swap"), create=True)
    files.overwrite(path(0, ".log.swap"), data[:SIZE])
    log = open_at(files, config=settings(cleanup_policy="compact"))
    assert values(log) == expected_values(1)
    assert not [name for name in files.list(FOLDER) if name.endswith((".swap", ".deleted"))]


def test_damage_in_a_trusted_segment_that_lacks_an_index_cuts_nothing() -> None:
    """It was on the device, and so is what follows: the damage is told, and met by its readers."""
    files = MemoryFiles()
    log = filled(files, 12)
    first, second = bases(log)[:2]
    stop_cleanly(log)
    files.remove(path(first, ".index"))
    flip(files, path(first, ".log"), SIZE - 1)
    cuts: list[LogCut] = []
    log = open_at(files, is_clean=True, report=cuts.append)
    assert not cuts
    assert log.end_offset == 12
    assert next(iter(log.batches(second))).base_offset == second
    log.close()
    log = open_at(files, checkpoints=(second, 0), report=cuts.append)
    assert not cuts
    assert log.end_offset == 12


def test_epochs_behind_the_end_are_forgotten() -> None:
    """They were noted for records that are lost."""
    files = MemoryFiles()
    log = filled(files, 3)
    append(log, batch(b"lost"), epoch=4)
    log.close()
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[: 3 * SIZE])
    assert open_at(files).epochs.latest == 0


def test_a_device_that_fails_during_recovery_is_an_error_and_not_a_cut() -> None:
    """The next attempt finds everything there."""
    files = MemoryFiles()
    filled(files, 12)
    files = files.crash(keep_unsynced=True)
    files.faults.append(DiskFault(operation="resize", after=2))
    with pytest.raises(OSError, match="error"):
        open_at(files)
    files.faults.clear()
    assert values(open_at(files)) == expected_values(12)


def sequenced(sequence: int) -> bytearray:
    """A batch of one record of idempotent producer 7."""
    return batch(b"v", producer_id=7, producer_epoch=2, base_sequence=sequence)


def with_producer(files: MemoryFiles, count: int = 12) -> Log:
    """A log of several segments, all written by producer 7; sequence equals offset."""
    log = open_at(files)
    for number in range(count):
        append(log, sequenced(number))
    return log


def snapshots(files: MemoryFiles) -> list[int]:
    """Offsets of the snapshots in the folder."""
    found = [name for name in files.list(FOLDER) if name.endswith(".snapshot")]
    return [int(name.partition(".")[0]) for name in found]


def last_sequence(log: Log) -> int:
    """Last sequence number of producer 7."""
    known = log.producers.get(ProducerId(7))
    assert known is not None
    assert known.epoch == 2
    return known.last_sequence


@pytest.mark.parametrize("is_kill", [True, False])
def test_the_sequence_goes_on_after_a_stop(is_kill: bool) -> None:  # noqa: FBT001 - a parameter
    """The last batch sent again gets its offset, a gap is refused, the next one is taken."""
    files = MemoryFiles()
    log = with_producer(files)
    if is_kill:
        files = files.crash(keep_unsynced=True)
    else:
        stop_cleanly(log)
    log = open_at(files, is_clean=not is_kill)
    assert append(log, sequenced(11)).base_offset == 11
    with pytest.raises(ProducerSequenceError):
        append(log, sequenced(13))
    assert append(log, sequenced(12)).base_offset == 12
    assert log.end_offset == 13


def test_a_snapshot_spares_the_batches_before_it() -> None:
    """It counts for what it says, and the batches behind it come on top."""
    files = MemoryFiles()
    log = with_producer(files)
    newest = bases(log)[-1]
    log.close()
    other = known_producers({9: known_producer(4, (known_batch(80, 0, 0, NOW),), NOW)})
    files.overwrite(path(newest, ".snapshot"), encode_snapshot(other))
    log = open_at(files, checkpoints=(newest, 0))
    assert log.producers.get(ProducerId(9)) == other[ProducerId(9)]
    assert last_sequence(log) == 11
    files.overwrite(path(newest, ".log"), b"")
    log = open_at(files, checkpoints=(newest, 0))
    assert log.end_offset == newest
    assert log.producers.get(ProducerId(7)) is None


@pytest.mark.parametrize("damage", [b"", b"\0\1", b"\xff" * 56])
def test_damaged_snapshots_are_removed_and_an_older_one_or_the_log_serves(damage: bytes) -> None:
    """First the newest is damaged, then all of them; sound ones are written in their place."""
    files = MemoryFiles()
    stop_cleanly(with_producer(files))
    offsets = snapshots(files)
    for damaged in (offsets[-1:], offsets):
        for offset in damaged:
            files.overwrite(path(offset, ".snapshot"), damage)
        log = open_at(files, is_clean=True)
        log.close()
        assert last_sequence(log) == 11
        assert damage not in [files.content(path(each, ".snapshot")) for each in snapshots(files)]
        offsets = snapshots(files)
        assert offsets[-1] == log.end_offset


def test_snapshots_of_segments_and_the_newest_stay() -> None:
    """Others go, and so do those behind the end, for good, before offsets are given out again."""
    files = MemoryFiles()
    log = with_producer(files)
    kept = bases(log)[1:]
    stop_cleanly(log)
    for offset in (2, 11, 13, 500):
        files.open(path(offset, ".snapshot"), create=True)
        files.overwrite(path(offset, ".snapshot"), files.content(path(12, ".snapshot")))
    files.sync_directory(FOLDER)
    open_at(files, is_clean=True)
    assert snapshots(files) == [*kept, 12]
    assert 500 not in snapshots(files.crash())


def test_snapshots_below_the_log_start_do_not_count() -> None:
    """The remaining records of the log decide."""
    files = MemoryFiles()
    log = with_producer(files)
    log.close()
    below = [offset for offset in snapshots(files) if offset < 11]
    assert below
    log = open_at(files, checkpoints=(0, 11))
    assert last_sequence(log) == 11
    assert not set(below) & set(snapshots(files))


def test_a_lost_tail_is_lost_for_the_sequence_too() -> None:
    """The producer may send again what the machine has lost."""
    files = MemoryFiles()
    log = with_producer(files, count=2)
    log.sync()
    for number in range(2, 12):
        append(log, sequenced(number))
    log = open_at(files.crash())
    end = log.end_offset
    assert end < 12
    assert last_sequence(log) == end - 1
    assert append(log, sequenced(end)).base_offset == end


def test_damage_in_a_trusted_segment_leaves_the_producers_of_the_others() -> None:
    """The log opens, as it does without producers, and the operator is told."""
    files = MemoryFiles()
    log = with_producer(files)
    stop_cleanly(log)
    for offset in snapshots(files):
        files.remove(path(offset, ".snapshot"))
    flip(files, path(0, ".log"), SIZE + 8)
    log = open_at(files, is_clean=True)
    assert last_sequence(log) == 11


@pytest.mark.parametrize("preallocate", ["true", "false"])
@pytest.mark.parametrize("keeps_indexes", [True, False])
def test_a_segment_that_was_flushed_and_finished_later_is_whole(
    preallocate: str,
    keeps_indexes: bool,  # noqa: FBT001
) -> None:
    """It ends at the recovery point; of what the roll has cut off some is back after a crash."""
    files = MemoryFiles()
    config = settings(preallocate=preallocate)
    log = open_at(files, config=config)
    for number in range(2):
        append(log, batch(b"value %d" % number, timestamps=[NOW + number]))
    log.sync()
    log.roll()
    indexes = {suffix: files.content(path(0, suffix)) for suffix in (".index", ".timeindex")}
    files.sync_directory(FOLDER)
    crashed = files.crash()
    if keeps_indexes:
        for suffix, content in indexes.items():
            # Their new length got there, their last entry did not.
            crashed.overwrite(path(0, suffix), bytes(len(content)))
    cuts: list[LogCut] = []
    again = open_at(crashed, config=config, checkpoints=(2, 0), report=cuts.append)
    assert values(again) == expected_values(2)
    assert again.end_offset == 2
    found = find_offset(again, NOW + 1)
    assert found is not None
    assert found[0].offset == 1
    assert retention_time_ms(again.segments.first) == NOW + 1
    append(again, batch(b"value 2", timestamps=[NOW + 2]))
    assert values(again) == expected_values(3)
    assert cuts == []
