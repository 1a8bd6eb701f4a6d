"""Which records stay, and what the batches and segments look like that they stand in."""

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset, Position, TimestampType
from tailrace.records import layout
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.storage.cleaner.rewrite import CleaningAbortedError, CleaningRound, Pace
from tests.unit.storage.cleaner.shelves import (
    FOLDER,
    LATER,
    MAP_BYTES,
    NOW,
    RETENTION_MS,
    Shelf,
    nothing,
    read_back,
)

pytestmark = pytest.mark.usefixtures("engine")

CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


def segments_of_keys(*rows: tuple[int, ...], **given: object) -> Shelf:
    """A segment for each row, a batch of one record for each key, and an active segment."""
    shelf = Shelf(**given)
    for row in rows:
        for key in row:
            shelf.append_keys(key)
        shelf.roll()
    return shelf


def test_only_the_newest_record_of_a_key_stays_and_what_was_read_is_counted() -> None:
    """Records whose key comes again later go; the others keep their offsets."""
    shelf = segments_of_keys((1, 2, 3), (2, 4), (3, 5))
    size = sum(shelf.sizes())
    cleaned = shelf.clean()
    assert shelf.offsets() == [0, 3, 4, 5, 6]
    assert shelf.keys() == [1, 2, 4, 3, 5]
    assert cleaned.statistics.bytes_read == size
    assert cleaned.end == 7


@CODECS
def test_a_batch_keeps_its_header_when_it_loses_records(codec: Codec) -> None:
    """Offsets, epoch, sequence, codec and base of the timestamps outlive the records that go."""
    shelf = Shelf()
    shelf.append_keys(1, 2, 3, codec=codec, producer_id=7)
    shelf.append_keys(1, 3, codec=codec)
    shelf.roll()
    (before, _) = shelf.batches()
    shelf.clean()
    after = shelf.batches()[0]
    assert [record.offset for record in records_of(after)] == [1]
    assert [record.timestamp for record in records_of(after)] == [NOW + 1]
    assert after.max_timestamp == NOW + 1
    for name in ("base_offset", "last_offset", "leader_epoch", "base_sequence", "producer_id"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.codec is codec


@CODECS
def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(codec: Codec) -> None:
    """A batch that keeps all records is copied, without compressing it again."""
    shelf = Shelf()
    shelf.append_keys(1, 2, 3, codec=codec, producer_id=7)
    shelf.roll()
    before = bytes(shelf.batches()[0].view)
    shelf.clean()
    assert bytes(shelf.batches()[0].view) == before


def test_a_batch_of_append_time_keeps_its_time() -> None:
    """Every remaining record keeps the time that the broker has set."""
    shelf = Shelf()
    builder = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    for key in (b"1", b"2"):
        builder.append(key, None, timestamp=NOW)
    shelf.write(builder.build(), 2, max_timestamp=NOW)
    shelf.append_keys(2)
    shelf.roll()
    shelf.clean()
    batch = shelf.batches()[0]
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(record.offset, record.timestamp) for record in records_of(batch)] == [(0, NOW)]


def test_records_behind_the_map_stay_whatever_they_are() -> None:
    """Records beyond the mapped range stay, even duplicates and those without a key."""
    shelf = Shelf()
    shelf.append_keys(1)
    shelf.append_keys(2)
    shelf.append_keys(1)
    shelf.append((None, b"no key"))
    shelf.roll()
    # Two slots, one of which may be in use.
    cleaned = shelf.clean(map_bytes=64)
    assert cleaned.end == 1
    assert [record.offset for record in shelf.records()] == [0, 1, 2, 3]


def test_a_map_of_one_key_still_gets_through_the_log() -> None:
    """Round after round makes headway, however small the map is."""
    shelf = segments_of_keys((0, 1, 0, 1, 0))
    ends, dirty = [], 0
    while dirty < 5:
        dirty = shelf.clean(dirty, map_bytes=64).end
        ends.append(dirty)
    assert ends == [1, 2, 3, 4, 5]
    assert shelf.offsets() == [3, 4]


def test_partial_rounds_take_only_what_was_mapped() -> None:
    """A round whose map holds one key gives up only the older records of that key."""
    shelf = segments_of_keys((0, 1, 0, 1, 0))
    shelf.clean(2, map_bytes=64)
    assert shelf.offsets() == [1, 2, 3, 4]
    shelf.clean(3, map_bytes=64)
    assert shelf.offsets() == [2, 3, 4]
    shelf.clean(4, map_bytes=64)
    assert shelf.offsets() == [3, 4]


def test_a_round_ends_inside_of_a_batch_that_does_not_fit_the_map() -> None:
    """A batch with more keys than the map is worked through in several rounds."""
    shelf = Shelf()
    shelf.append_keys(1, 2, 3, 4, 5, 6)
    shelf.append_keys(6, 1)
    shelf.roll()
    dirty, rounds = 0, 0
    while dirty < 8:
        cleaned = shelf.clean(dirty, map_bytes=200)
        assert cleaned.end > dirty
        dirty, rounds = cleaned.end, rounds + 1
    assert rounds > 1
    assert shelf.offsets() == [1, 2, 3, 4, 6, 7]


def test_a_key_larger_than_the_map_stays_and_stops_nothing() -> None:
    """Records with a key that no map of this size can hold are kept, counted, and passed."""
    shelf = Shelf()
    huge = b"k" * 500
    shelf.append((huge, b"old"), (b"1", b"old"))
    shelf.append((huge, b"new"), (b"1", b"new"))
    shelf.roll()
    cleaned = shelf.clean(map_bytes=512)
    assert cleaned.end == 4
    assert shelf.offsets() == [0, 2, 3]
    assert cleaned.statistics.unmapped_records == 2


def test_deleted_keys_are_gone() -> None:
    """Only the tombstone is left of a key with a tombstone."""
    shelf = segments_of_keys((0, 1, 2, 3))
    shelf.append((b"0", None), (b"2", None))
    shelf.roll()
    shelf.append_keys(4)
    shelf.roll()
    shelf.clean()
    assert shelf.keys() == [1, 3, 4]
    assert [record.offset for record in shelf.records() if record.value is None] == [4, 5]


def test_a_tombstone_gets_a_horizon_and_goes_once_that_has_passed() -> None:
    """The pass that sees it first sets the horizon; the first pass from then on takes it."""
    shelf = Shelf()
    shelf.append((b"1", b"value"))
    shelf.append((b"0", b"kept"), (b"1", None), timestamp=NOW - 5)
    shelf.append((b"2", b"last"))
    shelf.roll()
    shelf.clean()
    batch = shelf.batches()[0]
    assert batch.delete_horizon_or_none == NOW + RETENTION_MS
    assert [(record.offset, record.timestamp) for record in records_of(batch)] == [
        (1, NOW - 5),
        (2, NOW - 4),
    ]
    assert batch.max_timestamp == NOW - 4
    shelf.clean(now_ms=LATER - 1)
    assert [record.offset for record in shelf.records()] == [1, 2, 3]
    shelf.clean(now_ms=LATER)
    assert [record.offset for record in shelf.records()] == [1, 3]
    assert shelf.records()[0].timestamp == NOW - 5


def test_an_old_timestamp_does_not_take_a_tombstone_early() -> None:
    """The age of a tombstone's own timestamp says nothing: its horizon counts from the cleaning."""
    shelf = Shelf()
    shelf.append((b"0", b"0"), timestamp=NOW + RETENTION_MS + 10_000)
    shelf.roll()
    shelf.clean(0)
    shelf.append((b"0", None), timestamp=NOW - RETENTION_MS - 10_000)
    shelf.roll()
    shelf.clean(1)
    assert shelf.last_offsets()[0] == 1
    shelf.append((b"1", b"1"))
    shelf.roll()
    shelf.clean(2)
    assert shelf.last_offsets()[0] == 1
    assert shelf.records()[0].value is None


def test_records_without_a_key_go_and_are_counted() -> None:
    """Records without a key are dropped within the mapped range, and counted."""
    shelf = Shelf()
    for _ in range(3):
        shelf.append((None, b"no key"))
    size = shelf.segments[-1].size
    shelf.roll()
    for key in range(3):
        shelf.append_keys(key)
    shelf.roll()
    total = sum(shelf.sizes())
    cleaned = shelf.clean()
    assert shelf.offsets() == [3, 4, 5]
    assert sum(shelf.sizes()) == total - size
    assert cleaned.statistics.unkeyed_records == 3


def test_statistics_of_a_round() -> None:
    """Bytes and records, read and written, are those of the segments before and after."""
    shelf = segments_of_keys((0, 1, 0, 1, 0))
    before = sum(shelf.sizes())
    end, statistics = shelf.clean(2, map_bytes=MAP_BYTES)
    assert end == 5
    assert statistics.records_read == 5
    assert statistics.bytes_read == before
    assert statistics.records_written == 2
    assert statistics.bytes_written == sum(shelf.sizes())
    assert statistics.unkeyed_records == 0
    assert statistics.map_records_read == 3
    assert 0 < statistics.map_load < 1


def test_what_may_not_be_cleaned_is_not_touched() -> None:
    """Segments from the first uncleanable offset on keep every byte."""
    shelf = segments_of_keys((1, 2, 1, 2), (1, 2, 1, 2), (1, 2, 1, 2))
    before = shelf.sizes()
    shelf.clean(limit=8)
    assert shelf.bases() == [0, 8, 12]
    assert shelf.sizes()[0] < before[0]
    assert shelf.sizes()[1] == before[2]
    assert shelf.offsets() == [6, 7, 8, 9, 10, 11]


def test_the_last_batch_of_a_round_stays_as_a_header() -> None:
    """The offset behind the cleaned part is not lost, though no record of the part is left."""
    shelf = Shelf()
    for _ in range(3):
        shelf.append((None, b"goes"))
        shelf.append((None, b"goes"))
        shelf.roll()
    shelf.append_keys(1, 2, 3)
    shelf.clean()
    assert shelf.bases() == [0, 6]
    first, last = shelf.batches()
    assert first.last_offset == 5
    assert first.record_count == 0
    assert first.size == layout.HEADER_SIZE
    assert first.max_timestamp == NOW
    assert last.base_offset == 6


def test_a_log_without_a_record_in_the_dirty_range_is_passed() -> None:
    """A range without records, up to the next segment, counts as cleaned."""
    shelf = segments_of_keys(tuple(range(10)))
    shelf.roll(11)
    assert shelf.clean().end == 11
    shelf = segments_of_keys(tuple(range(10)))
    shelf.roll(15)
    for key in range(15, 25):
        shelf.append_keys(key)
    shelf.roll(30)
    assert shelf.clean().end == 30


def test_segments_that_became_empty_are_merged_whatever_their_offsets_are() -> None:
    """Two rounds over segments 2^31 offsets apart leave no row of empty segments behind."""
    far = 2**31
    shelf = Shelf()
    for number in range(3):
        if number:
            shelf.roll(number * far)
        shelf.append_keys(1)
        shelf.append_keys(1, at=(number + 1) * far - 1)
    shelf.roll(3 * far)
    shelf.append_keys(1)
    assert shelf.bases() == [0, far, 2 * far, 3 * far]
    shelf.clean()
    assert shelf.bases() == [0, far, 2 * far, 3 * far]
    assert shelf.sizes()[:2] == [0, 0]
    shelf.clean()
    assert shelf.bases() == [0, 2 * far, 3 * far]
    assert [record.offset for record in shelf.records()] == [3 * far - 1, 3 * far]


def test_a_batch_larger_than_a_chunk_is_cleaned() -> None:
    """A record of a megabyte passes, and other batches with it."""
    shelf = Shelf(max_message_bytes=2 << 20)
    large = b"\x00" * (1 << 20)
    for key in (b"0", b"1", b"0"):
        shelf.append((key, large))
    shelf.roll()
    shelf.clean()
    assert shelf.offsets() == [1, 2]


def test_a_batch_larger_than_the_topic_now_allows_is_cleaned() -> None:
    """A smaller limit for new batches does not make old ones uncleanable."""
    shelf = Shelf(max_message_bytes=1000)
    for key in (b"0", b"1", b"0"):
        shelf.append((key, b"\x00" * 5000))
    shelf.roll()
    shelf.clean()
    assert shelf.offsets() == [1, 2]


def test_a_preallocated_log_is_cleaned_into_a_trimmed_file() -> None:
    """The new segment's file is as long as its batches."""
    shelf = segments_of_keys((0, 1, 0, 1, 0), preallocate="true", segment_bytes=4096)
    shelf.clean(2)
    path = shelf.segments[0].log.path
    assert len(shelf.files.content(path)) == shelf.segments[0].size < 4096


def damaged(position: int, value: int) -> Shelf:
    """Three large batches, one byte of the first of which is another."""
    shelf = Shelf()
    for key in (0, 1, 0):
        shelf.append((b"%d" % key, b"\x00" * 2000))
    shelf.roll()
    data = bytearray(shelf.files.content(shelf.segments[0].log.path))
    data[position] = value
    shelf.files.overwrite(shelf.segments[0].log.path, bytes(data))
    return shelf


@pytest.mark.parametrize(
    ("position", "value"), [(16, 0xFF), (500, 1), (8, 0x7F)], ids=["magic", "record", "length"]
)
def test_a_damaged_batch_stops_the_round(position: int, value: int) -> None:
    """The error has the place of the damage, and the segments are unchanged."""
    shelf = damaged(position, value)
    before = shelf.files.content(shelf.segments[0].log.path)
    with pytest.raises(CorruptionError) as caught:
        shelf.clean()
    assert caught.value.path == shelf.segments[0].log.path
    assert caught.value.position == 0
    assert shelf.files.content(shelf.segments[0].log.path) == before
    assert not [name for name in shelf.files.list(FOLDER) if name.endswith(".cleaned")]


def test_a_damaged_magic_is_corruption() -> None:
    """An unknown magic is reported as damage, not as a large batch."""
    with pytest.raises(CorruptionError, match="magic"):
        damaged(16, 0xFF).clean()


def test_a_batch_that_is_cut_short_is_corruption() -> None:
    """A size that is more than the file has left is damage in a segment that is closed."""
    shelf = Shelf()
    shelf.append((b"0", b"\x00" * 2000))
    shelf.append((b"1", b"\x00" * 2000))
    shelf.roll()
    shelf.segments[0].log.truncate(Position(3000))
    with pytest.raises(CorruptionError, match="not whole"):
        shelf.clean()


def test_a_damage_that_only_the_second_pass_meets_leaves_no_output() -> None:
    """The clean part is checked as well, and a half-made segment is removed."""
    shelf = damaged(500, 1)
    cleaning = shelf.round(3)
    cleaning.map_keys()
    (group,) = cleaning.groups()
    with pytest.raises(CorruptionError):
        cleaning.rewrite(group, producers={})
    assert not [name for name in shelf.files.list(FOLDER) if name.endswith(".cleaned")]


@pytest.mark.parametrize("runs", [0, 2, 4], ids=["map", "first segment", "second segment"])
def test_a_round_that_is_called_off_changes_nothing(runs: int) -> None:
    """After a cancelled round all files are as before."""
    shelf = segments_of_keys((1, 2, 3), (1, 2, 3), (4,))
    names = shelf.files.list(FOLDER)
    seen = 0

    def check() -> None:
        nonlocal seen
        if seen == runs:
            raise CleaningAbortedError
        seen += 1

    cleaning = shelf.round(pace=Pace(pause=nothing, check=check))
    with pytest.raises(CleaningAbortedError):
        _run(cleaning)
    assert shelf.files.list(FOLDER) == names
    assert [record.offset for record in shelf.records()] == list(range(7))


def _run(cleaning: CleaningRound) -> None:
    cleaning.map_keys()
    for group in cleaning.groups():
        cleaning.rewrite(group, producers={})


def test_every_byte_read_or_written_is_told_to_the_throttle() -> None:
    """Both passes and the output add up to what the pauses were told."""
    shelf = segments_of_keys((1, 2, 3), (1, 2, 3))
    paused: list[int] = []
    cleaning = shelf.round(pace=Pace(pause=paused.append, check=nothing))
    _run(cleaning)
    done = cleaning.statistics()
    assert sum(paused) == done.map_bytes_read + done.bytes_read + done.bytes_written


def test_the_new_segment_is_as_old_as_the_last_of_its_sources() -> None:
    """Retention by age goes on counting from when the data was written."""
    shelf = segments_of_keys((1, 2), (1, 3))
    shelf.files.set_modified_ms(shelf.segments[0].log.path, 1_000)
    shelf.files.set_modified_ms(shelf.segments[1].log.path, 2_000)
    shelf.clean()
    assert shelf.segments[0].modified_ms() == 2_000


def test_indexes_of_a_new_segment_lead_to_its_batches() -> None:
    """Every batch is found by each of its offsets and by its timestamp, through real entries."""
    shelf = Shelf(index_interval_bytes=1000, segment_index_bytes=8000)
    for key in range(300):
        shelf.append((b"%d" % (key % 250), b"\x00" * 1000), timestamp=NOW + key)
    shelf.roll()
    shelf.clean()
    segment = shelf.segments[0]
    assert segment.offset_index.entries.count > 1
    assert segment.time_index.last == (NOW + 299, 299)
    for batch in shelf.batches():
        _, found = next(segment.batches(batch.last_offset))
        assert found.base_offset == batch.base_offset
        found_timestamp = segment.find_timestamp(batch.max_timestamp, start_offset=Offset(0))
        assert found_timestamp == (batch.max_timestamp, batch.last_offset)
    assert [record.offset for record in read_back(shelf.files)] == shelf.offsets()
