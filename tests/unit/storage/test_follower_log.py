"""A log that follows a leader: offsets with gaps, several batches at once, what is refused."""

import random

import crc32c
import pytest

from tailrace.errors import CorruptionError, InvalidRecordError, RecordTooLargeError
from tailrace.model import Codec, ProducerId
from tailrace.records.batch import Batch, read_batches, stamp
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.checks import CorruptRecordError
from tailrace.records.codecs import compress
from tailrace.storage.appends import UnexpectedAppendOffsetError
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.recovery import open_log
from tailrace.storage.shrink import truncate_to
from tailrace.testing import DiskFault, MemoryFiles
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    bases,
    filled,
    folder_at,
    open_at,
    path,
    records,
    settings,
    values,
)
from tests.unit.storage.transactional import follow, replicated

BIG = settings(segment_bytes=10**6, segment_index_bytes=1200)
OFFSETS = [*range(50), *range(50, 200, 7)]
"""Offsets with gaps, as compaction leaves them."""


def sequenced(base_offset: int, sequence: int, *contents: bytes, producer_id: int = 1) -> bytearray:
    """A replicated batch of an idempotent producer."""
    return replicated(
        base_offset, *contents, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


def in_format(magic: int, contents: list[bytes], *, base_offset: int, codec: Codec) -> bytes:
    """Records of one of the three formats."""
    if magic == 2:
        return bytes(replicated(base_offset, *contents, codec=codec))
    # Offsets inside of a wrapper are absolute in v0 and relative in v1.
    start = 0 if magic and codec else base_offset
    messages = [
        LegacyMessage(magic, start + number, b"k", value, NOW)
        for number, value in enumerate(contents)
    ]
    if not codec:
        return write_all_legacy(messages)
    value = bytes(compress(codec, write_all_legacy(messages)))
    last_offset = base_offset + len(contents) - 1
    return write_legacy(LegacyMessage(magic, last_offset, None, value, NOW, attributes=codec))


def with_gaps(segment_bytes: int = 150) -> Log:
    """A log with the offsets above, two batches to a segment."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=segment_bytes))
    for offset in OFFSETS:
        follow(log, replicated(offset, b"%d" % offset))
    return log


def started_at(offset: int) -> Log:
    """An empty log whose first offset is not 0."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    return open_log(folder_at(files), config=BIG, is_clean=False, checkpoints=(0, offset))


def test_between_the_batches_the_next_one_is_read() -> None:
    """A read from an offset in a gap gives the next batch, also across segments."""
    log = with_gaps()
    assert len(bases(log)) > 20
    for offset in range(max(OFFSETS)):
        expected = next(each for each in OFFSETS if each >= offset)
        for bytes_max in (1, 100, 100_000):
            view = log.read(
                offset, bytes_max=bytes_max, is_first_whole=True, limit=ReadLimit.LOG_END
            ).read()
            first = next(iter(records_of(next(read_batches(view))[1])))
            assert (first.offset, first.value) == (expected, b"%d" % expected)


def test_too_small_a_limit_cuts_the_next_batch() -> None:
    """If the first batch need not be whole, a limit of 0 gives no byte and 1 gives one."""
    log = with_gaps()
    for offset in range(50, max(OFFSETS)):
        for bytes_max in (0, 1):
            found = log.read(
                offset, bytes_max=bytes_max, is_first_whole=False, limit=ReadLimit.LOG_END
            )
            assert len(found.read()) == bytes_max


def test_a_gap_at_the_end_of_a_segment_is_read_from_the_next() -> None:
    """The read goes to the next segment, though the first has the largest base offset below."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=150))
    follow(log, replicated(0, b"a"))
    log.roll(5)
    follow(log, replicated(5, b"b"))
    assert bases(log) == [0, 5]
    view = log.read(1, bytes_max=200, is_first_whole=True, limit=ReadLimit.LOG_END).read()
    assert next(read_batches(view))[1].last_offset == 5


def test_several_producers_in_one_append_are_read_back() -> None:
    """The producers have the numbers that the leader gave them."""
    log = open_at(MemoryFiles())
    given = [sequenced(each, 0, b"v", producer_id=each + 1) for each in range(4)]
    follow(log, *given)
    log.sync()
    found = list(log.batches(0))
    assert [(each.producer_id, each.base_offset, each.base_sequence) for each in found] == [
        (each + 1, each, 0) for each in range(4)
    ]
    assert b"".join(each.view for each in found) == b"".join(given)


def test_a_follower_takes_what_the_leader_has_twice() -> None:
    """Duplicates were the leader's to refuse."""
    log = open_at(MemoryFiles())
    follow(log, sequenced(0, 0, b"a", b"b"))
    assert follow(log, sequenced(2, 0, b"a", b"b")) == 4


def test_a_follower_takes_duplicates_within_one_append() -> None:
    """One append with duplicates of several producers is accepted."""
    log = open_at(MemoryFiles())
    given = ((1, 0), (2, 0), (1, 1), (2, 1), (1, 1))
    batches = [
        sequenced(offset, sequence, b"v", producer_id=producer_id)
        for offset, (producer_id, sequence) in enumerate(given)
    ]
    assert follow(log, *batches) == 5


def test_a_follower_does_not_look_at_the_size_of_a_batch() -> None:
    """`max.message.bytes` may have been larger when the leader took it; a segment must hold it."""
    log = open_at(MemoryFiles(), config=settings(max_message_bytes=80, segment_bytes=300))
    assert follow(log, replicated(0, b"You", b"bethe"), replicated(5, b"x" * 100)) == 6
    with pytest.raises(RecordTooLargeError) as caught:
        follow(log, replicated(6, b"x" * 300))
    assert (caught.value.setting, log.end_offset) == ("segment.bytes", 6)


def test_a_follower_builds_the_time_index() -> None:
    """An entry for every batch but the first, as its interval asks."""
    config = settings(segment_bytes=10_000, segment_index_bytes=1200, index_interval_bytes=1)
    log = open_at(MemoryFiles(), config=config)
    for number in range(100):
        follow(log, replicated(100 + number, b"%d" % number, timestamps=[NOW + number]))
    entries = sum(segment.time_index.entries.count for segment in log.segments)
    assert entries == 99
    assert log.segments.active.time_index.last.timestamp == NOW + 99


def test_a_follower_keeps_the_epochs_of_its_leader() -> None:
    """The epochs are kept in the batches and in the list of epochs."""
    log = open_at(MemoryFiles())
    for offset in range(50):
        follow(log, replicated(offset, b"v", leader_epoch=42 if offset < 20 else 43))
    assert [tuple(each) for each in log.epochs.entries] == [(42, 0), (43, 20)]
    assert {each.leader_epoch for each in log.batches(20)} == {43}


def test_a_batch_of_an_old_format_makes_epochs_unknown() -> None:
    """An old batch has no epoch, so the list's epochs of the offsets before it prove nothing."""
    log = open_at(MemoryFiles())
    follow(log, replicated(0, b"foo", leader_epoch=5))
    assert log.epochs.latest == 5
    follow(log, in_format(1, [b"foo"], base_offset=1, codec=Codec.NONE))
    assert log.epochs.latest == -1
    assert values(log) == [b"foo", b"foo"]


def test_offsets_that_do_not_rise_are_refused() -> None:
    """The whole append is."""
    log = open_at(MemoryFiles())
    with pytest.raises(InvalidRecordError):
        follow(log, *[replicated(offset, b"v") for offset in (0, 1, 3, 2, 4)])
    assert (log.end_offset, log.size) == (0, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_below_the_log_end_is_unexpected(magic: int, codec: Codec) -> None:
    """A batch below the log end is refused in each format."""
    log = filled(MemoryFiles(), 2)
    with pytest.raises(UnexpectedAppendOffsetError):
        follow(log, in_format(magic, [b"1"], base_offset=0, codec=codec))
    assert log.end_offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_below_the_start_of_an_empty_log_is_told_with_its_offsets(
    magic: int, codec: Codec
) -> None:
    """The error has the batch's offsets, so the follower can restart at the leader's."""
    log = started_at(7)
    assert (log.start_offset, log.end_offset) == (7, 7)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        follow(log, in_format(magic, [b"v1", b"v2", b"v3"], base_offset=4, codec=codec))
    assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)


def test_appends_behind_a_roll_of_an_empty_log_follow_each_other() -> None:
    """A roll at the offset where the log is empty changes nothing; a full index does not hurt."""
    log = open_at(MemoryFiles(), config=BIG)
    log.roll()
    assert len(log.segments) == 1
    follow(log, replicated(0, b"v1"))
    assert bases(log) == [0]
    follow(log, replicated(1, b"v2"))
    log.roll()
    assert bases(log) == [0, 2]
    log.segments.active.offset_index.entries.trim()
    follow(log, replicated(2, b"v3"))
    assert (log.end_offset, len(log.segments)) == (3, 2)
    assert values(log) == [b"v1", b"v2", b"v3"]


def test_a_distant_batch_begins_a_segment() -> None:
    """Its offset does not fit the indexes of the one before."""
    log = open_at(MemoryFiles())
    follow(log, replicated(0, b"near"))
    follow(log, replicated(2**31, b"far"))
    assert bases(log) == [0, 2**31]
    assert values(log) == [b"near", b"far"]


@pytest.mark.parametrize("counts", [(1, 1), (3,)], ids=["both too far", "only its end too far"])
def test_a_start_splits_a_segment_whose_offsets_are_too_far(counts: tuple[int, ...]) -> None:
    """Old compactions have left such; every record stays, under a base that is near enough."""
    offset = 2**31 if len(counts) > 1 else 2**31 - 2
    files = MemoryFiles()
    files.make_directory(FOLDER)
    data = b""
    expected = []
    for count in counts:
        expected += [(offset + number, b"v%d" % number) for number in range(count)]
        data += replicated(offset, *[b"v%d" % number for number in range(count)])
        offset += count
    files.open(path(0, ".log"), create=True).write(0, data)
    log = open_at(files, config=settings(cleanup_policy="compact"))
    assert [(each.offset, each.value) for each in records(log)] == expected
    assert bases(log)[-1] == expected[0][0]
    assert all(
        segment.can_hold(segment.next_offset() - 1) for segment in log.segments if segment.size
    )


def test_a_marker_that_cannot_be_read_is_not_appended() -> None:
    """The log would be ahead of what it knows."""
    builder = BatchBuilder(producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    builder.append(b"", b"", timestamp=NOW)
    data = bytearray(builder.build())
    stamp(memoryview(data), base_offset=1, leader_epoch=0)
    log = filled(MemoryFiles(), 1)
    with pytest.raises(CorruptRecordError):
        follow(log, data)
    assert (log.end_offset, len(records(log))) == (1, 1)


def test_a_damaged_batch_is_not_appended() -> None:
    """The sound batches before it in the same append are not appended either."""
    log = open_at(MemoryFiles())
    damaged = replicated(1, b"value")
    damaged[-1] ^= 1
    with pytest.raises(CorruptionError):
        follow(log, replicated(0, b"sound"), damaged)
    assert log.size == 0


def test_a_failed_append_leaves_the_log_as_it_was() -> None:
    """The log is unchanged, and the append can be repeated."""
    files = MemoryFiles()
    log = open_at(files)
    files.faults.append(DiskFault(operation="write", path_part=".log", partial_bytes=70))
    with pytest.raises(OSError, match="error"):
        follow(log, sequenced(0, 0, b"a"), sequenced(1, 1, b"b"))
    files.faults.clear()
    assert (log.end_offset, log.size, len(log.producers)) == (0, 0, 0)
    assert follow(log, sequenced(0, 0, b"a"), sequenced(1, 1, b"b")) == 2


def compacted(*, keeps: bool) -> bytearray:
    """A batch with offsets 23 to 26, of which compaction has removed some records or all."""
    whole = Batch(memoryview(sequenced(23, 0, b"a", b"b", b"c", b"d")))
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
    for record in list(records_of(whole))[::2]:
        builder.append(record.key, record.value, timestamp=record.timestamp)
    data = bytearray(builder.build()) if keeps else bytearray(whole.view[:61])
    if not keeps:
        data[8:12] = (61 - 12).to_bytes(4, "big")
        data[57:61] = bytes(4)
    data[23:27] = (3).to_bytes(4, "big")
    data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    stamp(memoryview(data), base_offset=23, leader_epoch=0)
    return data


@pytest.mark.parametrize("keeps", [True, False], ids=["some records", "no record"])
def test_a_compacted_batch_keeps_its_producers_sequence(keeps: bool) -> None:  # noqa: FBT001
    """The producer's sequence is known at once, and when its state is rebuilt after a cut."""
    log = open_at(MemoryFiles(), config=BIG)
    follow(log, compacted(keeps=keeps))
    known = log.producers.get(ProducerId(1))
    assert known is not None
    assert (known.last_sequence, known.last_offset) == (3, 26)
    follow(log, replicated(27, b"e", b"f"))
    truncate_to(log, 27)
    known = log.producers.get(ProducerId(1))
    assert known is not None
    assert (known.last_sequence, log.end_offset) == (3, 27)


@pytest.mark.parametrize("seed", range(40))
def test_many_batches_at_once_leave_the_log_as_one_by_one(seed: int) -> None:
    """Epochs, producers, offsets and times, though most batches of a run are not looked at."""
    chance = random.Random(seed)
    batches: list[bytes] = []
    offset, epoch, sequences = 0, 0, dict.fromkeys(range(3), 0)
    for _ in range(60):
        offset += chance.choice((0, 0, 0, 3))
        epoch += chance.random() < 0.05
        count = chance.randint(1, 3)
        options: dict[str, object] = {}
        if seed % 2 and chance.random() < 0.7:
            producer_id = chance.choice(tuple(sequences))
            options |= {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequences[producer_id],
            }
            sequences[producer_id] += count
        codec = Codec.GZIP if chance.random() < 0.1 else Codec.NONE
        times = [NOW + chance.randint(0, 50) for _ in range(count)]
        batches.append(
            bytes(
                replicated(
                    offset,
                    *[b"v"] * count,
                    codec=codec,
                    timestamps=times,
                    leader_epoch=epoch,
                    **options,
                )
            )
        )
        offset += count
    one, many = open_at(MemoryFiles(), config=BIG), open_at(MemoryFiles(), config=BIG)
    epoch_max = chance.choice((epoch, epoch, epoch // 2))
    for each in batches:
        if Batch(memoryview(each)).leader_epoch <= epoch_max:
            one.append_as_follower(memoryview(each), now_ms=NOW)
    many.append_as_follower(memoryview(b"".join(batches)), now_ms=NOW, epoch_max=epoch_max)
    assert values(many) == values(one)
    assert many.epochs.entries == one.epochs.entries
    assert sorted(many.producers.items()) == sorted(one.producers.items())
    assert many.positions == one.positions
    newest, expected = many.segments.active.newest, one.segments.active.newest
    assert newest.timestamp == expected.timestamp
