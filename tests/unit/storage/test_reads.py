"""Tests of reads where compaction has left batches without a record."""

import struct
from itertools import accumulate

from tailrace.records import layout
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.testing import MemoryFiles
from tests.naive import LegacyMessage, write_all_legacy
from tests.unit.storage.builders import (
    NOW,
    batch,
    filled,
    open_at,
    path,
    settings,
    stop_cleanly,
)


def log_of(*offsets_with_records: int, end: int, segment_size: int = 4) -> Log:
    """A replica of a compacted log: a batch for each offset, most of them mere headers."""
    log = open_at(MemoryFiles())
    for offset in range(end):
        empty = bytearray(BatchBuilder().build())
        data = batch(b"value") if offset in offsets_with_records else empty
        struct.pack_into(">qii", data, 0, offset, len(data) - 12, 0)
        if offset and offset % segment_size == 0:
            log.roll()
        log.append_as_follower(memoryview(data), now_ms=NOW)
    log.advance_high_watermark(log.end_offset)
    return log


def offsets(log: Log, offset: int, limit: ReadLimit = ReadLimit.HIGH_WATERMARK) -> list[int]:
    """Base offsets of the batches that a read gives."""
    found = log.read(offset, bytes_max=10_000, is_first_whole=True, limit=limit)
    return [each.base_offset for _, each in read_batches(found.read())]


def test_a_consumer_is_led_past_batches_without_records() -> None:
    """It gets the next record, also of a later segment, with any empty batches between records."""
    log = log_of(1, 3, 9, end=12)
    assert offsets(log, 0) == [1, 2, 3]
    assert offsets(log, 4) == [9, 10, 11]
    assert offsets(log, 1) == [1, 2, 3]


def test_at_the_end_the_last_empty_batch_leads_a_consumer_there() -> None:
    """Without it, a consumer would fetch the same offset for ever."""
    log = log_of(1, end=12)
    assert offsets(log, 2) == [11]
    assert offsets(log, 12) == []


def test_nothing_behind_the_high_watermark_is_given_for_it() -> None:
    """The next record is not readable yet, so the last empty batch before it has to do."""
    log = open_at(MemoryFiles())
    for offset in range(6):
        data = batch(b"value") if offset == 5 else bytearray(BatchBuilder().build())
        struct.pack_into(">qii", data, 0, offset, len(data) - 12, 0)
        log.append_as_follower(memoryview(data), now_ms=NOW)
    log.advance_high_watermark(4)
    assert offsets(log, 1) == [3]


def test_a_read_of_more_than_there_is_gives_what_is_left() -> None:
    """Wherever in a segment it begins: no byte behind the last batch, none of the next segment."""
    log = log_of(0, 1, 2, 3, 4, end=5)
    whole = log.read(0, bytes_max=10_000, is_first_whole=True).read()
    assert len(whole) == log.segments.first.size
    size = len(batch(b"value"))
    rest = log.read(1, bytes_max=len(whole) - size + 1, is_first_whole=True).read()
    assert rest == whole[size:]


def test_small_messages_of_old_formats_are_not_taken_for_empty_batches() -> None:
    """They may be smaller than the header of a batch, or just as large."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 0))
    small = [LegacyMessage(0, offset, None, b"v" * size) for offset, size in enumerate((0, 9, 35))]
    data = write_all_legacy(small)
    assert len(write_all_legacy(small[2:])) == layout.HEADER_SIZE
    files.overwrite(path(0, ".log"), data)
    log = open_at(files, config=settings(segment_bytes=2000))
    sizes = (len(write_all_legacy([each])) for each in small)
    for offset, position in enumerate(accumulate(sizes, initial=0)):
        found = log.read(offset, bytes_max=10_000, is_first_whole=True)
        assert bytes(found.read()) == data[position:]


def test_a_replica_gets_every_batch() -> None:
    """Replicas get all batches, or their log would differ from the leader's."""
    log = log_of(9, end=12)
    assert offsets(log, 0, ReadLimit.LOG_END) == [0, 1, 2, 3]
