"""One segment."""

import random

import pytest

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import AppendOrigin, LeaderEpoch, Offset, Position
from tailrace.records.batch import stamp
from tailrace.records.builder import records_of
from tailrace.records.control import build_end_marker
from tailrace.runtime.files import Files
from tailrace.storage.segment import Segment, SegmentAppend, open_segment, retention_time_ms
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append,
    batch,
    filled,
    flip,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import (
    aborted_txn,
)

NAME = "00000000000000000040"


def opened(
    files: Files, base_offset: int = 40, *, is_new: bool = True, **given: str | int
) -> Segment:
    """A segment with dense indexes."""
    config = settings(**{"index_interval_bytes": 10, **given})
    return open_segment(files, ".", base_offset=Offset(base_offset), config=config, create=is_new)


def put(segment: Segment, offset: int, *values: bytes, timestamp: int = -1) -> int:
    """Append a batch at an offset; returns its size. All records have the one timestamp."""
    values = values or (b"value",)
    data = batch(*values, timestamps=[timestamp] * len(values))
    stamp(memoryview(data), base_offset=offset, leader_epoch=0)
    last = offset + len(values) - 1
    segment.append(
        SegmentAppend(
            data=data,
            last_offset=Offset(last),
            max_timestamp=timestamp,
            max_timestamp_offset=Offset(last),
        )
    )
    return len(data)


def timed(files: Files, count: int, **given: int) -> Segment:
    """Offsets from 40 on, each a batch with ten times its offset as timestamp."""
    segment = opened(files, 40, is_new=True, **given)
    for offset in range(40, 40 + count):
        put(segment, offset, b"msg%d" % offset, timestamp=offset * 10)
    return segment


def read(segment: Segment, offset: int) -> list[bytes | None]:
    """The values from the batch that reaches `offset` on."""
    return [
        record.value for _, each in segment.batches(Offset(offset)) for record in records_of(each)
    ]


def content(files: MemoryFiles) -> dict[str, bytes]:
    """Return the content of each file."""
    return {name: files.content(name) for name in files.list(".")}


@pytest.mark.parametrize(
    ("base_offset", "last_offset"),
    [(0, INT32_MAX + 1), (0, -1), (100, 10), (2**33, 0), (2**33, 2**33 + INT32_MAX + 1)],
)
def test_an_offset_that_the_indexes_cannot_hold_is_refused(
    base_offset: int, last_offset: int
) -> None:
    """Below the base, or more than 31 bits above it; the last one that fits is taken."""
    segment = opened(MemoryFiles(), base_offset)
    with pytest.raises(AssertionError):
        put(segment, last_offset)
    assert not segment.size
    put(segment, base_offset + INT32_MAX)
    assert segment.size


def test_an_empty_segment_has_nothing_to_read() -> None:
    """No batch, no place, at the base offset or behind it."""
    segment = opened(MemoryFiles())
    assert [read(segment, offset) for offset in (0, 40, 41)] == [[], [], []]
    assert segment.find(Offset(40)) is None


def test_a_read_before_the_first_offset_begins_with_the_first_batch() -> None:
    """Offsets from 40 on belong to the segment, though the first record has 50."""
    segment = opened(MemoryFiles())
    put(segment, 50, b"hello", b"there", b"little", b"bee")
    assert read(segment, 41) == [b"hello", b"there", b"little", b"bee"]


def test_a_read_behind_the_last_offset_finds_nothing() -> None:
    """52 is the next offset."""
    segment = opened(MemoryFiles())
    put(segment, 50, b"hello", b"there")
    assert read(segment, 52) == []
    assert segment.find(Offset(52)) is None


def test_a_read_from_a_gap_begins_with_the_next_batch() -> None:
    """55 is not there; 60 is the smallest above it."""
    segment = opened(MemoryFiles())
    put(segment, 50, b"hello", b"there")
    put(segment, 60, b"alpha", b"beta")
    assert read(segment, 55) == [b"alpha", b"beta"]


def test_the_newest_append_is_found_behind_a_damaged_batch() -> None:
    """Its position is known, so no header before it is read."""
    files = MemoryFiles()
    segment = opened(files, index_interval_bytes=10**6)
    put(segment, 40)
    second = put(segment, 41)
    third = put(segment, 42)
    assert second == third
    flip(files, f"./{NAME}.log", second + 16)
    assert segment.find(Offset(42)) == (2 * second, third)
    assert segment.find(Offset(43)) is None


def test_after_a_truncation_the_newest_append_is_the_next_one() -> None:
    """A batch that was cut away is not found, nor taken for the one that came in its place."""
    segment = opened(MemoryFiles())
    size = put(segment, 40)
    put(segment, 41)
    segment.truncate_to(Offset(41))
    assert segment.find(Offset(41)) is None
    assert segment.find(Offset(40)) == (0, size)
    longer = put(segment, 41, b"two", b"records")
    assert segment.find(Offset(42)) == (size, longer)


def test_a_place_is_found_without_reading_records() -> None:
    """Before the first offset, at it, at the last; None at the end and beyond."""
    segment = opened(MemoryFiles())
    size = put(segment, 50, b"hello")
    second = put(segment, 51, b"there")
    assert [segment.find(Offset(offset)) for offset in (48, 50, 51, 52, 53)] == [
        (0, size), (0, size), (size, second), None, None,
    ]  # fmt: skip


def test_truncation_keeps_what_is_before_the_offset() -> None:
    """Two are appended and the second is cut, thirty times over."""
    segment = opened(MemoryFiles(), segment_index_bytes=2000)
    for offset in range(40, 100, 2):
        put(segment, offset, b"first")
        second = put(segment, offset + 1, b"second")
        assert segment.truncate_to(Offset(offset + 1)) == second
        assert read(segment, offset) == [b"first"]
        assert segment.next_offset() == offset + 1
        put(segment, offset + 1, b"again")


def test_a_batch_that_holds_the_offset_goes_whole() -> None:
    """Offsets 42 to 44 are one batch; a cut at 43 leaves 40 and 41."""
    segment = opened(MemoryFiles())
    put(segment, 40, b"a", b"b")
    size = put(segment, 42, b"c", b"d", b"e")
    assert segment.truncate_to(Offset(43)) == size
    assert read(segment, 40) == [b"a", b"b"]


def test_truncation_to_an_offset_in_a_gap_cuts_what_is_behind_it() -> None:
    """41 and 42 were compacted away; 43 goes all the same."""
    segment = opened(MemoryFiles())
    put(segment, 40, b"first message")
    put(segment, 43, b"message after gap")
    segment.truncate_to(Offset(41))
    assert read(segment, 40) == [b"first message"]


def test_an_empty_segment_is_as_new_after_truncation() -> None:
    """Its indexes have room again, so it is not full; its age is counted anew; reach is reach."""
    files = MemoryFiles()
    segment = opened(files, 0)
    segment.finish()
    segment.close()
    again = opened(files, 0, is_new=False)
    again.offset_index.entries.trim()
    again.time_index.entries.trim()
    again.created_ms = 500
    assert (again.offset_index.is_full, again.time_index.is_full) == (True, True)
    assert again.truncate_to(Offset(57)) == 0
    assert (again.offset_index.is_full, again.time_index.is_full) == (False, False)
    assert [again.created_ms, again.first_timestamp] == [None, None]
    assert not again.size
    assert (again.can_hold(100), again.can_hold(INT32_MAX + 200)) == (True, False)


def test_the_largest_timestamp_and_next_offset_come_from_what_is_left() -> None:
    """After a cut to the first of thirty batches, both are those of that batch."""
    size = put(opened(MemoryFiles()), 40, b"msg40")
    segment = timed(MemoryFiles(), 30, index_interval_bytes=2 * size - 1, segment_index_bytes=1000)
    assert segment.next_offset() == 70
    assert segment.time_index.entries.count == 14
    segment.truncate_to(Offset(41))
    assert (segment.time_index.entries.count, segment.offset_index.entries.count) == (0, 0)
    assert (segment.newest, segment.next_offset()) == ((400, 40), 41)


@pytest.mark.parametrize("offset", range(40, 72))
def test_after_truncation_every_offset_and_time_is_found(offset: int) -> None:
    """The answers are those of a segment that was never longer, for every cut between entries."""
    segment = timed(MemoryFiles(), 30, index_interval_bytes=150, segment_index_bytes=1000)
    segment.truncate_to(Offset(offset))
    count = min(offset, 70) - 40
    fresh = timed(MemoryFiles(), count, index_interval_bytes=150, segment_index_bytes=1000)
    assert segment.newest == fresh.newest
    for wanted in range(40, 71):
        assert read(segment, wanted) == read(fresh, wanted)
        times = [
            each.find_timestamp(wanted * 10, start_offset=Offset(0)) for each in (segment, fresh)
        ]
        assert times[0] == times[1]


def test_a_segment_truncated_to_nothing_takes_the_same_offsets_again() -> None:
    """Its age is counted anew, its timestamps are forgotten, its indexes are not full."""
    segment = opened(MemoryFiles())
    put(segment, 40, b"hello", b"there", timestamp=7)
    segment.created_ms = 500
    segment.truncate_to(Offset(0))
    assert [segment.created_ms, segment.first_timestamp] == [None, None]
    assert segment.newest == (-1, 40)
    assert (segment.offset_index.is_full, segment.time_index.is_full) == (False, False)
    assert (read(segment, 0), segment.next_offset()) == ([], 40)
    put(segment, 40, b"hello", b"there")
    assert segment.next_offset() == 42


def test_truncation_cuts_the_transaction_index() -> None:
    """An abort whose marker goes is no longer known."""
    segment = timed(MemoryFiles(), 10)
    entries = [aborted_txn(1, 40, 42, 43), aborted_txn(2, 41, 47, 48)]
    for entry in entries:
        segment.transactions.append(entry)
    segment.truncate_to(Offset(47))
    assert segment.transactions.entries() == (entries[0],)


def test_a_finished_segment_takes_appends_again_after_truncation() -> None:
    """It is the active one again, with the full room of its indexes."""
    files = MemoryFiles()
    segment = timed(files, 10)
    segment.finish()
    with pytest.raises(AssertionError):
        put(segment, 50)
    segment.truncate_to(Offset(45))
    assert len(files.content(f"{NAME}.index")) == len(files.content(f"{NAME}.timeindex")) == 120
    put(segment, 45, b"new", timestamp=1000)
    assert (segment.newest, read(segment, 45)) == ((1000, 45), [b"new"])


@pytest.mark.parametrize(
    "fault", [DiskFault(operation="write"), DiskFault(operation="resize", path_part=".log")]
)
def test_a_truncation_that_failed_may_be_repeated(fault: DiskFault) -> None:
    """In between everything that is in the log is found; the indexes may be shorter."""
    files = MemoryFiles()
    segment = timed(files, 10)
    whole = read(segment, 40)
    files.faults.append(fault)
    with pytest.raises(OSError, match="error"):
        segment.truncate_to(Offset(44))
    assert read(segment, 40) == whole
    assert read(segment, 47) == whole[7:]
    files.faults.clear()
    segment.truncate_to(Offset(44))
    assert read(segment, 40) == whole[:4]


def test_offsets_are_found_by_timestamp() -> None:
    """Indexed or not, between two, before the first; none behind the last."""
    size = put(opened(MemoryFiles()), 40, b"msg40", timestamp=400)
    segment = timed(MemoryFiles(), 10, index_interval_bytes=2 * size - 1)
    assert segment.newest.timestamp == 490
    found = {}
    for timestamp in (420, 421, 430, 431, 491, 401, 399):
        place = segment.find_timestamp(timestamp, start_offset=Offset(0))
        found[timestamp] = place and place.offset
    assert found == {420: 42, 421: 43, 430: 43, 431: 44, 491: None, 401: 41, 399: 40}


def test_a_search_by_time_keeps_to_the_start_offset() -> None:
    """Records below it do not count, however young."""
    segment = timed(MemoryFiles(), 10)
    assert segment.find_timestamp(400, start_offset=Offset(44)) == (440, 44)
    assert segment.find_timestamp(400, start_offset=Offset(50)) is None


def test_a_search_by_time_checks_the_batch_that_it_answers_from() -> None:
    """A damaged value may have changed the timestamps beside it."""
    files = MemoryFiles()
    segment = timed(files, 3)
    data = bytearray(files.content(f"{NAME}.log"))
    data[-1] ^= 1
    files.overwrite(f"{NAME}.log", bytes(data))
    again = opened(files, is_new=False)
    again.clear_indexes(1000)
    again.newest = segment.newest
    assert again.find_timestamp(410, start_offset=Offset(0)) == (410, 41)
    with pytest.raises(CorruptionError, match="CRC"):
        again.find_timestamp(420, start_offset=Offset(0))


def test_the_next_offset_follows_the_last_batch() -> None:
    """The base offset as long as there is none."""
    segment = opened(MemoryFiles())
    seen = [segment.next_offset()]
    put(segment, 50, b"hello", b"there", b"you")
    assert [*seen, segment.next_offset()] == [40, 53]


def test_suffixes_change_with_files_and_names() -> None:
    """A file that was never made stays absent; later appends go to the renamed files."""
    files = MemoryFiles()
    segment = opened(files)
    put(segment, 40)
    names = [f"{NAME}.index", f"{NAME}.log", f"{NAME}.timeindex"]
    assert files.list(".") == names
    segment.change_suffix("", ".deleted")
    assert files.list(".") == [f"{name}.deleted" for name in names]
    assert sorted(segment.paths()) == [f"./{name}.deleted" for name in names]
    assert segment.transactions.path == f"./{NAME}.txnindex.deleted"
    segment.transactions.append(aborted_txn(1, 40, 40, 41))
    segment.change_suffix(".deleted", "")
    assert files.list(".") == sorted([*names, f"{NAME}.txnindex"])


def test_a_change_of_suffixes_that_failed_may_be_repeated() -> None:
    """Some files have the new name then; the rest follow."""
    files = MemoryFiles()
    segment = opened(files)
    files.faults.append(DiskFault(operation="rename", after=1))
    with pytest.raises(OSError, match="error"):
        segment.change_suffix("", ".deleted")
    files.faults.clear()
    segment.change_suffix("", ".deleted")
    assert {name[-8:] for name in files.list(".")} == {".deleted"}


def test_the_transaction_index_outlives_a_new_name() -> None:
    """Entries from before and from after are in one file."""
    files = MemoryFiles()
    segment = opened(files)
    entries = (aborted_txn(1, 40, 50, 42), aborted_txn(2, 45, 55, 56))
    segment.transactions.append(entries[0])
    segment.change_suffix("", ".swap")
    segment.transactions.append(entries[1])
    assert segment.transactions.entries() == entries
    assert len(files.content(f"{NAME}.txnindex.swap")) == 68


def test_a_segment_names_the_files_that_it_has() -> None:
    """The log first; the transaction index once it exists; nothing once they are gone."""
    files = MemoryFiles()
    segment = opened(files)
    kinds = [".log", ".index", ".timeindex"]
    assert segment.paths() == [f"./{NAME}{kind}" for kind in kinds]
    segment.transactions.append(aborted_txn(1, 40, 50, 42))
    assert segment.paths() == [f"./{NAME}{kind}" for kind in [*kinds, ".txnindex"]]
    for each in segment.paths():
        files.remove(each)
    assert (segment.paths(), files.list(".")) == ([], [])


def test_a_segment_in_the_making_has_a_suffix_on_every_name() -> None:
    """Files that the cleaner writes cannot be taken for a segment."""
    files = MemoryFiles()
    segment = open_segment(
        files, ".", base_offset=Offset(40), config=settings(), create=True, suffix=".cleaned"
    )
    segment.transactions.append(aborted_txn(1, 40, 50, 42))
    assert files.list(".") == [
        f"{NAME}{kind}.cleaned" for kind in (".index", ".log", ".timeindex", ".txnindex")
    ]


def test_a_preallocated_segment_reads_what_was_appended() -> None:
    """The zeros behind it are not in the way."""
    segment = opened(MemoryFiles(), preallocate="true", segment_bytes=4096)
    put(segment, 50, b"hello", b"there")
    put(segment, 60, b"alpha", b"beta")
    assert read(segment, 55) == [b"alpha", b"beta"]


def test_a_preallocated_segment_is_trimmed_when_it_closes() -> None:
    """Opened again it has its batches, its size, and no new zeros."""
    files = MemoryFiles()
    segment = opened(files, preallocate="true", segment_bytes=4096)
    put(segment, 50, b"hello", b"there")
    put(segment, 60, b"alpha", b"beta")
    size = segment.size
    assert len(files.content(f"{NAME}.log")) == 4096
    segment.finish()
    segment.close()
    assert len(files.content(f"{NAME}.log")) == size
    again = opened(files, is_new=False, preallocate="true", segment_bytes=4096)
    assert read(again, 55) == [b"alpha", b"beta"]
    assert (again.size, len(files.content(f"{NAME}.log"))) == (size, size)


def test_the_first_timestamp_is_that_of_the_first_batch() -> None:
    """The first batch's largest timestamp counts, also after a start; None if there is no batch."""
    files = MemoryFiles()
    segment = opened(files)
    seen = [segment.first_timestamp]
    put(segment, 40, timestamp=1000)
    put(segment, 41, timestamp=500)
    seen.append(segment.first_timestamp)
    segment.close()
    assert [*seen, opened(files, is_new=False).first_timestamp] == [None, 1000, 1000]


def test_a_segment_without_timestamps_has_no_first_one() -> None:
    """Its age for retention is that of its file, until a record has a timestamp."""
    files = MemoryFiles()
    segment = opened(files)
    put(segment, 40)
    files.set_modified_ms(f"{NAME}.log", 777)
    assert segment.first_timestamp is None
    assert (segment.modified_ms(), retention_time_ms(segment)) == (777, 777)
    put(segment, 41, timestamp=0)
    assert retention_time_ms(segment) == 0


def test_cleared_indexes_know_no_aborted_transaction() -> None:
    """Recovery writes all three anew."""
    segment = timed(MemoryFiles(), 5)
    segment.transactions.append(aborted_txn(1, 40, 43, 44))
    segment.clear_indexes(1000)
    assert segment.transactions.entries() == ()
    assert segment.offset_index.entries.count == segment.time_index.entries.count == 0


def test_a_new_segment_does_not_take_over_what_it_finds() -> None:
    """Files of an attempt that failed are emptied."""
    files = MemoryFiles()
    old = timed(files, 5)
    old.transactions.append(aborted_txn(1, 40, 43, 44))
    old.close()
    segment = opened(files)
    assert (not segment.size, segment.transactions.entries(), read(segment, 0)) == (True, (), [])
    assert segment.newest == (-1, 40)


def test_synced_segments_survive_the_loss_of_the_machine() -> None:
    """The log and all three indexes are on the device."""
    files = MemoryFiles()
    segment = timed(files, 10)
    segment.transactions.append(aborted_txn(1, 40, 43, 44))
    segment.finish()
    segment.sync()
    files.sync_directory(".")
    assert content(files.crash()) == content(files)


def test_an_append_that_failed_leaves_log_and_indexes_as_they_were() -> None:
    """A write that fails at the log takes the entries made for it back."""
    files = MemoryFiles()
    segment = timed(files, 3)
    counts = segment.offset_index.entries.count, segment.time_index.entries.count
    files.faults.append(DiskFault(operation="write", path_part=".log", partial_bytes=9))
    with pytest.raises(OSError, match="error"):
        put(segment, 43, timestamp=999)
    assert (segment.offset_index.entries.count, segment.time_index.entries.count) == counts
    assert (segment.newest, segment.next_offset()) == ((420, 42), 43)


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_in_an_offset_index_do_not_lead_astray(seed: int) -> None:
    """An entry is used only if a batch that fits stands where it points."""
    files = MemoryFiles()
    segment = timed(files, 10)
    segment.finish()
    chance = random.Random(seed)
    size = len(files.content(f"{NAME}.index"))
    segment.close()
    files.overwrite(f"{NAME}.index", bytes(chance.randrange(128) for _ in range(size)))
    again = opened(files, is_new=False)
    for offset in range(40, 50):
        assert read(again, offset)[0] == b"msg%d" % offset
    places = [(position, each.last_offset) for position, each in again.batches(Offset(0))]
    for position in range(again.size + 1):
        limit = again.limit_near(Position(position))
        assert limit is None or all(last < limit for start, last in places if start < position)


def overwritten(files: MemoryFiles, name: str, chance: random.Random) -> MemoryFiles:
    """The disk with random bytes in one file."""
    size = len(files.content(name))
    assert size
    files.overwrite(name, chance.randbytes(size))
    return files


@pytest.mark.parametrize("seed", range(5))
def test_recovery_writes_a_random_offset_index_anew(seed: int) -> None:
    """Every offset is readable, through the index that the log gives."""
    files = MemoryFiles()
    config = settings(segment_bytes=10_000, segment_index_bytes=2000, index_interval_bytes=60)
    stop_cleanly(filled(files, 20, config=config))
    sound = files.content(path(0, ".index"))
    overwritten(files, path(0, ".index"), random.Random(seed))
    log = open_at(files, config=config, is_clean=False)
    for offset in range(20):
        assert records(log, offset)[0].offset == offset
    stop_cleanly(log)
    assert files.content(path(0, ".index")) == sound


@pytest.mark.parametrize("seed", range(5))
def test_recovery_writes_a_random_time_index_anew(seed: int) -> None:
    """Every timestamp leads to its record."""
    files = MemoryFiles()
    config = settings(segment_bytes=10_000, segment_index_bytes=2000, index_interval_bytes=60)
    stop_cleanly(filled(files, 20, config=config))
    sound = files.content(path(0, ".timeindex"))
    overwritten(files, path(0, ".timeindex"), random.Random(seed))
    log = open_at(files, config=config, is_clean=False)
    for offset in range(20):
        found = log.segments.active.find_timestamp(NOW + offset, start_offset=Offset(0))
        assert found == (NOW + offset, offset)
    stop_cleanly(log)
    assert files.content(path(0, ".timeindex")) == sound


def test_recovery_makes_the_leader_epochs_anew() -> None:
    """If the epoch checkpoint is lost, the leader epochs come from the batches."""
    files = MemoryFiles()
    log = open_at(files)
    for epoch in (0, 1, 1, 3):
        append(log, batch(b"value"), epoch=epoch)
    stop_cleanly(log)
    files.remove(f"{FOLDER}/leader-epoch-checkpoint")
    epochs = open_at(files, is_clean=False).epochs
    assert [epochs.at(Offset(offset)) for offset in range(4)] == [0, 1, 1, 3]
    assert epochs.latest == 3


@pytest.mark.parametrize("seed", range(10))
def test_recovery_cuts_where_random_damage_begins(seed: int) -> None:
    """From the middle of a record to the end everything is noise; what is before it stays."""
    chance = random.Random(seed)
    files = MemoryFiles()
    config = settings(segment_bytes=10_000, segment_index_bytes=2000)
    log = filled(files, 20, config=config)
    damaged = chance.randrange(20)
    place = log.segments.active.find(Offset(damaged))
    assert place is not None
    stop_cleanly(log)
    data = files.content(path(0, ".log"))
    start = place.position + chance.randrange(17, place.size)
    files.overwrite(path(0, ".log"), data[:start] + chance.randbytes(len(data) - start))
    again = open_at(files, config=config, is_clean=False)
    assert [record.offset for record in records(again)] == list(range(damaged))
    assert files.content(path(0, ".log"))[: again.size] == data[: place.position]
    assert again.segments.active.size == place.position


def test_recovery_makes_the_transaction_index_anew() -> None:
    """The index has aborts that began in the segment before, and no committed transactions."""
    files = MemoryFiles()
    log = open_at(files)
    for producer_id in (7, 8, 9):
        sent = batch(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        append(log, sent)
    log.roll()
    for producer_id, is_commit in ((8, False), (9, True), (7, False)):
        marker = build_end_marker(
            producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW
        )
        log.append(
            memoryview(marker),
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
            origin=AppendOrigin.COORDINATOR,
        )
    written = log.segments.active.transactions.entries()
    assert [entry[:3] for entry in written] == [(8, 1, 3), (7, 0, 5)]
    stop_cleanly(log)
    files.remove(path(3, ".txnindex"))
    again = open_at(files, is_clean=False)
    assert again.segments.active.transactions.entries() == written
    assert not files.exists(path(0, ".txnindex"))


def test_a_segment_is_settled_once_it_was_flushed_behind_its_end() -> None:
    """A flush before says nothing, and a cut has it take appends again."""
    segment = timed(MemoryFiles(), 3)
    seen = []
    for step in (
        segment.sync,
        segment.finish,
        segment.sync,
        lambda: segment.truncate_to(Offset(41)),
        segment.sync,
        segment.finish,
        segment.sync,
    ):
        step()
        seen.append(segment.is_settled)
    assert seen == [False, False, True, False, False, False, True]


def test_a_segment_that_is_finished_during_a_flush_is_not_settled() -> None:
    """The flush may have passed by what was finished."""

    class Interrupted(MemoryFiles):
        def count(self, operation: str, path: str) -> None:
            super().count(operation, path)
            if operation == "sync" and path.endswith(".timeindex") and not segment.is_settled:
                segment.finish()

    segment = timed(Interrupted(), 3)
    segment.sync()
    assert not segment.is_settled
