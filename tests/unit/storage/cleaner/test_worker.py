"""Which log is cleaned when, what a cleaned log serves, and what becomes of one that cannot be."""

import errno
import gc

import pytest

from tailrace.errors import CorruptionError, StorageError
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tailrace.runtime.memory import LargeMemory
from tailrace.storage import shrink
from tailrace.storage.cleaner.rewrite import CleaningAbortedError
from tailrace.storage.cleaner.worker import (
    CleanerStatistics,
    LogCleaner,
    Throttle,
    clean,
)
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import NOW, SetClock, append, batch, records, settings
from tests.unit.storage.cleaner.houses import COMPACTED, ID, ONE, THREE, TWO, House, keyed, latest


def test_a_cleaned_log_serves_the_last_record_of_each_key() -> None:
    """Fewer records than before, the same answers, the same offsets; and after a start too."""
    house = House()
    log = house.open()
    keyed(log, "abcabcabcabcabcabcabcabc" * 2)
    before, old = latest(log), {(each.offset, each.value) for each in records(log)}
    assert house.clean() == ONE
    assert latest(log) == before
    assert {(each.offset, each.value) for each in records(log)} < old
    assert len(records(log)) < 20
    house.logs.close()
    again = House(house.files).open()
    assert latest(again) == before
    assert again.end_offset == log.end_offset


def test_cleaned_up_to_is_on_the_device() -> None:
    """The next round begins there, in this life and in the next."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    house.clean()
    active = log.segments.active.base_offset
    assert house.home.offsets.cleaner_offset(ONE) == active
    text = house.files.content("data/cleaner-offset-checkpoint")
    assert text == f"0\n1\nflights 0 {active}\n".encode()
    assert House(house.files.crash()).home.offsets.cleaner_offset(ONE) == active
    assert house.clean() is None


def test_the_entry_of_a_deleted_partition_goes() -> None:
    """A new log of that name is dirty from its beginning; others keep theirs."""
    house = House()
    for partition in (ONE, TWO):
        keyed(house.open(partition), "ab" * 20)
        house.clean()
    house.logs.take_out(ONE, "ab" * 16)()
    house.home.checkpoint()
    assert house.home.offsets.cleaner_offset(ONE) is None
    assert b"flights" not in house.files.content("data/cleaner-offset-checkpoint")
    assert house.home.offsets.cleaner_offset(TWO) is not None


def test_the_filthiest_log_comes_first() -> None:
    """The share of bytes that were never cleaned decides."""
    house = House()
    for partition in (ONE, TWO):
        keyed(house.open(partition), "ab" * 20)
        house.clean()
    for partition, count in ((ONE, 30), (TWO, 60)):
        log = house.logs.get(partition)
        assert log is not None
        keyed(log, "ab" * count)
    assert house.clean() == TWO
    assert house.clean() == ONE


@pytest.mark.parametrize("fails", [False, True])
def test_a_round_leaves_no_memory_to_the_garbage_collector(*, fails: bool) -> None:
    """The map of its keys, up to 128 MiB, is freed when it ends, and not some rounds later."""
    house = House()
    keyed(house.open(), "ab" * 20)
    gc.collect()
    gc.disable()
    try:
        if fails:
            job = house.cleaner.next_job()
            assert job is not None
            job.map_keys()
            job.finish(CleaningAbortedError("called off"))
        else:
            assert house.clean() == ONE
        assert not [each for each in gc.get_objects() if isinstance(each, LargeMemory)]
    finally:
        gc.enable()


def test_a_log_that_a_job_has_is_not_taken_again() -> None:
    """A log in a job, or a paused one, is not chosen; afterwards it is."""
    house = House()
    keyed(house.open(), "ab" * 20)
    job = house.cleaner.next_job()
    assert job is not None
    assert house.cleaner.is_cleaning(ONE)
    assert house.cleaner.next_job() is None
    job.finish(CleaningAbortedError("called off"))
    house.cleaner.pause(ONE)
    house.cleaner.pause(ONE)
    house.cleaner.resume(ONE)
    assert house.cleaner.next_job() is None
    house.cleaner.resume(ONE)
    assert house.clean() == ONE


def test_a_job_that_is_called_off_leaves_the_log_as_it_was() -> None:
    """It ends at the next batch, nothing is noted, and no file is left."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    log.sync()
    before, names = records(log), house.files.list("data/flights-0")
    job = house.cleaner.next_job()
    assert job is not None
    groups = job.map_keys()
    house.cleaner.abort(ONE)
    with pytest.raises(CleaningAbortedError) as raised:
        job.rewrite(groups[0])
    job.finish(raised.value)
    assert records(log) == before
    assert house.files.list("data/flights-0") == names
    assert house.home.offsets.cleaner_offset(ONE) is None
    assert not house.cleaner.failures()
    assert house.clean() == ONE


def test_a_pause_calls_the_job_off_and_lets_segments_go() -> None:
    """Truncation waits for the job, and no other begins meanwhile."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    job = house.cleaner.next_job()
    assert job is not None
    house.cleaner.pause(ONE)
    with pytest.raises(CleaningAbortedError) as raised:
        job.map_keys()
    job.finish(raised.value)
    assert not house.cleaner.is_cleaning(ONE)
    shrink.truncate_to(log, 7)
    assert house.cleaner.next_job() is None
    house.cleaner.resume(ONE)
    keyed(log, "ab" * 20)
    assert house.clean() == ONE


def test_a_partition_that_is_deleted_meanwhile_is_no_failure() -> None:
    """Its job finds no files, logs nothing, and writes no checkpoint."""
    house = House()
    keyed(house.open(), "ab" * 20)
    job = house.cleaner.next_job()
    assert job is not None
    groups = job.map_keys()
    house.logs.take_out(ONE, "ab" * 16)()
    with pytest.raises((CleaningAbortedError, OSError)) as raised:
        job.rewrite(groups[0])
    job.finish(raised.value)
    assert not house.cleaner.failures()
    assert house.home.offsets.cleaner_offset(ONE) is None
    house.found.clear()
    keyed(house.open(), "ab" * 20)
    assert house.clean() == ONE


def test_an_exchange_touches_no_log_that_has_the_name_of_a_deleted_one() -> None:
    """A topic that was recreated just before the exchange keeps its own files."""
    house = House()
    keyed(house.open(), "ab" * 20)
    job = house.cleaner.next_job()
    assert job is not None
    planned = [job.rewrite(group) for group in job.map_keys()]
    house.logs.take_out(ONE, "ab" * 16)()
    new = house.logs.create(ONE, topic_id=ID, config=COMPACTED)
    keyed(new, "cd" * 10)
    files = house.files.list(new.folder.path)
    with pytest.raises(StorageError):
        job.exchange(planned[0])
    assert house.files.list(new.folder.path) == files
    assert latest(new) == {b"c": b"18", b"d": b"19"}


def test_a_job_notes_nothing_of_a_log_that_has_the_name_of_a_deleted_one() -> None:
    """A new log is all dirty, however far the deleted log of that name was cleaned."""
    house = House()
    keyed(house.open(), "ab" * 20)
    job = house.cleaner.next_job()
    assert job is not None
    for group in job.map_keys():
        job.exchange(job.rewrite(group))
        job.settle()
    house.logs.take_out(ONE, "ab" * 16)()
    house.logs.create(ONE, topic_id=ID, config=COMPACTED)
    job.note_cleaned()
    job.finish()
    assert house.home.offsets.cleaner_offset(ONE) is None


def test_an_exchange_whose_names_cannot_be_flushed_is_left_to_the_next_start() -> None:
    """A second round beside `.swap` names that a crash brings back could undo the first one."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    log.sync()
    before = latest(log)
    job = house.cleaner.next_job()
    assert job is not None
    job.exchange(job.rewrite(job.map_keys()[0]))
    house.files.faults.append(DiskFault(operation="sync_directory", path_part="flights-0"))
    with pytest.raises(OSError, match="Input") as raised:
        job.settle()
    job.finish(raised.value)
    house.files.faults.clear()
    house.clock.time_ms += 10**10
    assert house.clean() is None
    assert latest(House(house.files.crash()).open()) == before


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_exchange_whose_names_lack_descriptors_is_completed_by_the_next_round(
    *, is_killed: bool
) -> None:
    """A shortage is no failure of the device. The round writes nothing before that."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    log.sync()
    before = latest(log)
    job = house.cleaner.next_job()
    assert job is not None
    job.exchange(job.rewrite(job.map_keys()[0]))
    fault = DiskFault(operation="sync_directory", path_part="flights-0", error=errno.EMFILE)
    house.files.faults.append(fault)
    with pytest.raises(OSError, match="Too many open files") as raised:
        job.settle()
    job.finish(raised.value)
    house.clock.time_ms += 60_000
    job = house.cleaner.next_job()
    assert job is not None
    count = len(house.files.operations)
    with pytest.raises(OSError, match="Too many open files") as raised:
        job.map_keys()
    job.finish(raised.value)
    assert [each for each, _ in house.files.operations[count:]] == ["sync_directory"]
    house.files.faults.clear()
    house.clock.time_ms += 120_000
    job = house.cleaner.next_job()
    assert job is not None
    groups = job.map_keys()
    if not is_killed:
        job.exchange(job.rewrite(groups[0]))
        job.settle()
        job.finish()
        assert not house.cleaner.failures()
    after = house.files.crash()
    assert not [each for each in after.list("data/flights-0") if each.endswith(".swap")]
    assert latest(House(after).open()) == before


def flip(house: House, position: int) -> None:
    """Flip one bit in the first segment of ONE."""
    path = f"data/flights-0/{0:020d}.log"
    data = bytearray(house.files.content(path))
    data[position] ^= 1
    house.files.overwrite(path, bytes(data))


def test_a_damaged_log_stops_no_other_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The damage is logged with file and position, and retried after growing pauses."""
    house = House()
    keyed(house.open(), "ab" * 20)
    flip(house, 65)
    with pytest.raises(CorruptionError):
        house.clean()
    assert "flights-0/00000000000000000000.log, position 0" in house.cleaner.failures()[ONE]
    assert "log_not_cleaned partition=flights-0" in caplog.text
    keyed(house.open(TWO), "ab" * 20)
    assert house.clean() == TWO
    house.clock.time_ms += 59_999
    assert house.clean() is None
    house.clock.time_ms += 1
    with pytest.raises(CorruptionError):
        house.clean()
    house.clock.time_ms += 119_999
    assert house.clean() is None
    house.clock.time_ms += 1
    flip(house, 65)
    assert house.clean() == ONE
    assert not house.cleaner.failures()


def test_a_base_offset_that_was_damaged_is_not_made_permanent() -> None:
    """No checksum covers it; it is held against its neighbours, and is no reason to split."""
    house = House()
    keyed(house.open(), "ab" * 20)
    flip(house, len(batch(b"0", key=b"a")))
    with pytest.raises(CorruptionError, match="are valid here"):
        house.clean()
    assert len(house.cleaner.failures()) == 1


def test_logs_that_failed_and_logs_at_work_are_both_passed_over() -> None:
    """With one of each there is nothing to do."""
    house = House()
    keyed(house.open(), "ab" * 20)
    flip(house, 65)
    with pytest.raises(CorruptionError):
        house.clean()
    keyed(house.open(TWO), "ab" * 20)
    assert house.cleaner.next_job() is not None
    assert house.cleaner.next_job() is None


def test_a_failed_directory_takes_its_logs_out_and_no_others() -> None:
    """Its logs are not considered; the other directory keeps its logs and its checkpoint."""
    house = House()
    other = House(house.files, path="more")
    logs = LogManager([house.home, other.home])
    cleaner = LogCleaner(logs, house.config, house.clock)
    for partition in (ONE, TWO):
        keyed(logs.create(partition, topic_id=ID, config=COMPACTED), "ab" * 20)
        job = cleaner.next_job()
        assert job is not None
        clean(job)
    logs.fail(house.home, OSError(5, "Input/output error"))
    assert [log.partition for log, _ in cleaner.weigh()] == [TWO]
    assert other.home.offsets.cleaner_offset(TWO) is not None


def test_what_is_appended_behind_a_cut_counts_as_dirty() -> None:
    """A checkpoint above the cut comes down to it; one below stays."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    house.clean()
    cleaned = house.home.offsets.cleaner_offset(ONE) or 0
    assert cleaned > 10
    for offset, expected in ((cleaned + 1, cleaned), (7, None)):
        house.cleaner.pause(ONE)
        shrink.truncate_to(log, offset)
        house.cleaner.note_truncated(log)
        house.cleaner.resume(ONE)
        assert house.home.offsets.cleaner_offset(ONE) == (expected or log.end_offset)
    assert log.end_offset <= 7


def test_a_log_that_cannot_be_weighed_is_left_alone() -> None:
    """Its first batch cannot be read; the others are weighed all the same."""
    files = MemoryFiles()
    house = House(files)
    keyed(house.open(), "ab" * 20)
    house.logs.close()
    path = f"data/flights-0/{0:020d}.log"
    files.overwrite(path, bytes(12) + files.content(path)[12:])
    house = House(files)
    house.open()
    keyed(house.open(TWO), "ab" * 20)
    assert house.clean() == TWO
    assert list(house.cleaner.failures()) == [ONE]


def test_a_full_disk_is_tried_again_and_leaves_nothing_behind() -> None:
    """The new segment's files go at once, since the disk needs the room."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    house.files.faults.append(DiskFault(operation="write", path_part=".cleaned", error=28))
    with pytest.raises(OSError, match="No space"):
        house.clean()
    names = house.files.list("data/flights-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    house.files.faults.clear()
    house.clock.time_ms += 60_000
    assert house.clean() == ONE


def test_an_exchange_that_fails_halfway_waits_for_the_next_start() -> None:
    """Another `.cleaned` file would undo it; the start completes it."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    before = latest(log)
    house.files.faults.append(DiskFault(operation="rename", path_part=".log", after=1))
    with pytest.raises(OSError, match="error"):
        house.clean()
    house.files.faults.clear()
    assert latest(log) == before
    house.clock.time_ms += 10**10
    assert house.clean() is None
    again = House(house.files.crash(keep_unsynced=True))
    assert latest(again.open()) == before
    assert not [name for name in again.files.list("data/flights-0") if name.endswith(".swap")]


@pytest.mark.parametrize("checkpoint", [10_000, 3])
def test_a_checkpoint_outside_of_its_log_is_put_right(checkpoint: int) -> None:
    """Above the end or below the start; also of a log that needs no cleaning."""
    house = House()
    log = house.open()
    keyed(log, "abcdefghij")
    raise_log_start(log, 5)
    house.home.offsets.note_cleaned(ONE, checkpoint)
    before = len(house.files.operations)
    house.cleaner.weigh()
    assert house.home.offsets.cleaner_offset(ONE) == 5
    # Weighing is done on the event loop; the directory's next checkpoint tells the device.
    assert house.files.operations[before:] == []
    house.home.checkpoint()
    assert House(house.files.crash()).home.offsets.cleaner_offset(ONE) == 5


def test_logs_that_are_only_deleted_from_are_not_weighed() -> None:
    """The cleaner weighs compacted logs only, with those that are deleted from as well."""
    house = House()
    house.open(ONE, settings())
    house.open(TWO, settings(cleanup_policy="compact,delete"))
    house.open(THREE, COMPACTED)
    assert [log.partition for log, _ in house.cleaner.weigh()] == [TWO, THREE]


def test_small_maps_take_several_rounds() -> None:
    """Each one gets further, and the answers stay right."""
    house = House(map_bytes=200)
    log = house.open()
    keyed(log, "abcdefgh" * 8)
    before, rounds = latest(log), []
    while house.clean() is not None:
        rounds.append(house.home.offsets.cleaner_offset(ONE) or 0)
        assert latest(log) == before
    assert len(rounds) > 2
    assert rounds == sorted(rounds)


def test_offsets_behind_the_last_record_are_still_cleaned() -> None:
    """A range that holds nothing but gaps does not stop the log for ever."""
    house = House()
    log = house.open()
    keyed(log, "a" * 30)
    house.clean()
    keyed(log, "b" * 30)
    assert house.clean() == ONE
    assert house.clean() is None


def test_duplicates_are_known_after_cleaning_and_a_start() -> None:
    """The last batch of a producer stays, if only as a header, and its sequence with it."""
    house = House()
    log = house.open()
    for sequence in range(3):
        append(log, batch(b"v", key=b"a", producer_id=7, producer_epoch=0, base_sequence=sequence))
    keyed(log, "a" * 30)
    house.clean()
    house.logs.close()
    for name in house.files.list("data/flights-0"):
        if name.endswith(".snapshot"):
            house.files.remove(f"data/flights-0/{name}")
    again = House(house.files).open()
    repeated = batch(b"v", key=b"a", producer_id=7, producer_epoch=0, base_sequence=2)
    assert append(again, repeated).base_offset == 2


def test_snapshots_of_segments_that_are_gone_go() -> None:
    """Snapshots of merged segments are removed, except that of the first in each group."""
    house = House()
    log = house.open()
    for sequence in range(30):
        append(log, batch(b"v", key=b"a", producer_id=7, producer_epoch=0, base_sequence=sequence))
    house.clean()
    snapshots = {
        int(name[:20]) for name in house.files.list("data/flights-0") if name.endswith(".snapshot")
    }
    assert snapshots == {segment.base_offset for segment in log.segments} - {0}


def test_open_transactions_hold_cleaning_back() -> None:
    """No record at or behind the first undecided one is compacted before its marker comes."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 10)
    data = batch(
        b"t", key=b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    undecided = append(log, data).base_offset
    keyed(log, "ab" * 10)
    house.clean()
    assert (house.home.offsets.cleaner_offset(ONE) or 0) <= undecided
    marker = build_end_marker(7, 0, is_commit=True, coordinator_epoch=0, timestamp=NOW)
    log.append_as_follower(_at(log, marker), now_ms=NOW)
    log.advance_high_watermark(log.end_offset)
    keyed(log, "ab" * 10)
    house.clean()
    assert (house.home.offsets.cleaner_offset(ONE) or 0) > undecided


def _at(log: Log, data: bytearray) -> memoryview:
    data[:8] = log.end_offset.to_bytes(8, "big")
    return memoryview(data)


def test_statistics_tell_the_longest_round_and_the_fullest_map() -> None:
    """The figures are zero before the first round; a log that cannot be cleaned is counted."""
    house = House()
    assert house.cleaner.statistics() == CleanerStatistics()
    keyed(house.open(), "abcdefghij" * 8)
    job = house.cleaner.next_job()
    assert job is not None
    house.clock.time_ms += 2500
    clean(job)
    told = house.cleaner.statistics()
    assert (told.rounds, told.seconds_max, told.failed_logs) == (1, 2.5, 0)
    assert 0 < told.map_load_max < 1
    keyed(house.open(TWO), "ab" * 20)
    house.files.faults.append(DiskFault(operation="write", path_part=".cleaned", error=28))
    with pytest.raises(OSError, match="No space"):
        house.clean()
    assert house.cleaner.statistics().failed_logs == 1


def test_a_batch_that_loses_its_first_record_begins_with_the_next_ones_time() -> None:
    """Apache Kafka writes the same header; the records keep their times."""
    house = House()
    log = house.open()
    append(log, batch(b"1", b"2", b"3", key=b"k", timestamps=[NOW, NOW + 7, NOW + 5]))
    keyed(log, "ab" * 20)
    house.clean()
    first = next(iter(log.batches(0)))
    assert (first.record_count, first.base_timestamp, first.max_timestamp) == (1, NOW + 5, NOW + 5)
    assert records(log)[0].timestamp == NOW + 5


def test_a_throttle_keeps_the_rate() -> None:
    """Bytes read and written take as long as they should, also in many small pieces."""
    clock = SetClock()
    throttle = Throttle(clock, 1000.0)
    for _ in range(100):
        throttle.pause(50)
    assert clock.time_ms - NOW == 5000
    throttle.bytes_per_second = 10_000.0
    throttle.pause(5000)
    assert clock.time_ms - NOW == 5500


def test_a_throttle_does_not_notice_that_the_time_of_day_is_set() -> None:
    """A step back of an hour would otherwise stop all cleaners and moves for an hour."""
    clock = SetClock()
    throttle = Throttle(clock, 1000.0)
    throttle.pause(1000)
    clock.time_ms -= 3_600_000
    set_to_ms = clock.time_ms
    throttle.pause(1000)
    assert clock.time_ms - set_to_ms == 1000


def test_a_higher_rate_holds_for_what_was_asked_at_a_lower_one() -> None:
    """After the rate rises, present and later waiters wait for less time."""
    clock = SetClock()
    throttle = Throttle(clock, 1.0)

    def raise_rate() -> bool:
        if clock.time_ms - NOW >= 1000:
            throttle.bytes_per_second = 10_000.0
        return False

    throttle.pause(10_000, is_over=raise_rate)
    assert clock.time_ms - NOW <= 2500
    throttle.bytes_per_second = 1.0
    throttle.pause(10_000, is_over=lambda: True)
    throttle.bytes_per_second = 10_000.0
    begun_ms = clock.time_ms
    throttle.pause(10_000)
    assert clock.time_ms - begun_ms <= 2000


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 1 - NOW])
def test_tombstones_may_be_kept_for_ever(retention_ms: int) -> None:
    """A horizon beyond the last time is the last time, as in Kafka; compaction goes on."""
    house = House()
    config = settings(
        cleanup_policy="compact", segment_bytes=400, delete_retention_ms=retention_ms,
        min_cleanable_dirty_ratio=0.01,
    )  # fmt: skip
    log = house.open(ONE, config)
    keyed(log, "abcabc")
    tombstone = BatchBuilder()
    tombstone.append(b"a", None, timestamp=NOW)
    append(log, bytearray(tombstone.build()))
    keyed(log, "defdefdefdef")
    assert house.clean() is not None
    assert latest(log)[b"a"] is None
