"""Compaction of formats v0 and v1: entries keep their format, wrappers are written anew in it."""

import pytest

from tailrace.model import Codec, Position, TimestampType
from tailrace.records.batch import LegacyEntry
from tailrace.records.builder import records_of
from tailrace.records.codecs import compress
from tailrace.records.legacy import read_all_batches
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.storage.cleaner.shelves import NOW, RETENTION_MS, Shelf

pytestmark = pytest.mark.usefixtures("engine")

MAGICS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
APPEND_TIME = 8


def message(magic: int, offset: int, key: bytes, value: bytes | None) -> LegacyMessage:
    """A message with a timestamp of its own, if the format has one."""
    return LegacyMessage(magic, offset, key, value, NOW + offset if magic else -1)


def wrapper(*inner: LegacyMessage, codec: Codec, magic: int | None = None, flags: int = 0) -> bytes:
    """A wrapper as a broker stores it: in v1 the offsets inside are relative."""
    first, last = inner[0], inner[-1]
    magic = first.magic if magic is None else magic
    stored = [
        each._replace(offset=each.offset - first.offset if magic else each.offset) for each in inner
    ]
    value = bytes(compress(codec, write_all_legacy(stored)))
    timestamp = max(each.timestamp for each in inner) if magic else -1
    return write_legacy(LegacyMessage(magic, last.offset, None, value, timestamp, codec | flags))


def entry_of(shelf: Shelf, number: int = 0) -> LegacyEntry:
    """A batch of the shelf as it is stored."""
    entry = shelf.batches()[number].legacy
    assert entry is not None
    return entry


@MAGICS
def test_entries_that_stay_are_copied_and_others_go(magic: int) -> None:
    """A single message stays byte for byte in its format, or not at all."""
    shelf = Shelf()
    entries = [write_legacy(message(magic, n, b"%d" % (n % 2), b"v")) for n in range(4)]
    for data in entries:
        shelf.write(data, 1, max_timestamp=NOW, is_stamped=False)
    shelf.roll()
    shelf.clean()
    log = shelf.segments[0].log
    assert bytes(log.read(Position(0), log.size)) == entries[2] + entries[3]


@CODECS
@MAGICS
def test_a_wrapper_that_loses_messages_is_written_anew_in_its_format(
    magic: int, codec: Codec
) -> None:
    """Format, codec, offsets, timestamps, keys and values of what stays are those before."""
    shelf = Shelf()
    inner = [message(magic, n, b"%d" % (n % 3), b"value %d" % n) for n in range(5)]
    shelf.write(wrapper(*inner, codec=codec), 5, max_timestamp=NOW, is_stamped=False)
    shelf.append_keys(1)
    shelf.roll()
    shelf.clean()
    entry = entry_of(shelf)
    assert (entry.magic, entry.codec_number, entry.offset) == (magic, codec, 3)
    found = [
        (record.offset, record.timestamp, record.key, record.value)
        for record in records_of(shelf.batches()[0])
    ]
    assert found == [
        (each.offset, each.timestamp, each.key, each.value) for each in (inner[2], inner[3])
    ]
    if magic:
        assert entry.timestamp == NOW + 3


@CODECS
@MAGICS
def test_a_wrapper_that_loses_nothing_is_copied(magic: int, codec: Codec) -> None:
    """Its bytes are those before."""
    shelf = Shelf()
    data = wrapper(*(message(magic, n, b"%d" % n, b"v") for n in range(3)), codec=codec)
    shelf.write(data, 3, max_timestamp=NOW, is_stamped=False)
    shelf.roll()
    shelf.clean()
    log = shelf.segments[0].log
    assert bytes(log.read(Position(0), log.size)) == data


@MAGICS
def test_a_wrapper_whose_end_cuts_an_entry_is_copied(magic: int) -> None:
    """Kafka's readers leave out such an entry, and it does not stop a compaction."""
    shelf = Shelf()
    inner = [message(magic, n, b"%d" % n, b"v") for n in range(2)]
    value = bytes(compress(Codec.GZIP, write_all_legacy(inner) + write_legacy(inner[0])[:15]))
    timestamp = NOW + 1 if magic else -1
    data = write_legacy(LegacyMessage(magic, 1, None, value, timestamp, Codec.GZIP))
    shelf.write(data, 2, max_timestamp=NOW, is_stamped=False)
    shelf.roll()
    shelf.clean()
    log = shelf.segments[0].log
    assert bytes(log.read(Position(0), log.size)) == data


def test_a_wrapper_of_append_time_keeps_its_time() -> None:
    """The wrapper's time counts for every message inside, before and after."""
    shelf = Shelf()
    inner = [message(1, n, b"%d" % n, b"v") for n in range(3)]
    data = wrapper(*inner, codec=Codec.GZIP, flags=APPEND_TIME)
    shelf.write(data, 3, max_timestamp=NOW + 2, is_stamped=False)
    shelf.append_keys(2)
    shelf.roll()
    shelf.clean()
    batch = shelf.batches()[0]
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(record.offset, record.timestamp) for record in records_of(batch)] == [
        (0, NOW + 2),
        (1, NOW + 2),
    ]


def foreign(offset: int, *keys: int) -> bytes:
    """A wrapper of v1 with messages of v0, as old cleaners wrote it; values are the offsets."""
    inner = [
        LegacyMessage(0, offset + n, b"%d" % key, b"%d" % (offset + n))
        for n, key in enumerate(keys)
    ]
    return wrapper(*inner, codec=Codec.GZIP, magic=1)


def test_messages_of_a_foreign_format_inside_a_wrapper_are_mended() -> None:
    """Each wrapper comes out with messages of its own format, at the offsets they had."""
    shelf = Shelf()
    for offset, keys in ((25, (0, 1, 0, 1)), (50, (3, 4))):
        shelf.end = offset
        shelf.write(foreign(offset, *keys), len(keys), max_timestamp=-1, is_stamped=False)
    shelf.roll()
    shelf.clean()
    assert [record.offset for record in shelf.records()] == [27, 28, 50, 51]
    assert all(record.value == b"%d" % record.offset for record in shelf.records())
    again = bytes(shelf.segments[0].log.read(Position(0), shelf.segments[0].size))
    shelf.clean()
    assert bytes(shelf.segments[0].log.read(Position(0), shelf.segments[0].size)) == again
    inner = [LegacyMessage(1, n, b"%d" % (3 + n), b"%d" % (50 + n), -1) for n in range(2)]
    value = bytes(compress(Codec.GZIP, write_all_legacy(inner)))
    assert write_legacy(LegacyMessage(1, 51, None, value, -1, Codec.GZIP)) in again


def test_a_reader_takes_messages_of_a_foreign_format_inside_a_wrapper() -> None:
    """Offsets count as the wrapper's format says."""
    [(_, batch)] = read_all_batches(memoryview(foreign(50, *range(1, 10))))
    found = [(record.offset, record.value) for record in records_of(batch)]
    assert found == [(offset, b"%d" % offset) for offset in range(50, 59)]


@MAGICS
@pytest.mark.parametrize("age_ms", [0, 1], ids=["at the horizon", "younger"])
def test_a_tombstone_goes_by_the_age_of_its_segment(magic: int, age_ms: int) -> None:
    """It stays while its segment is younger than the last clean one by less than the retention."""
    shelf = Shelf(segment_bytes=1024)
    for offset, value in ((0, b"v"), (1, None)):
        entry = write_legacy(message(magic, offset, b"%d" % offset, value))
        shelf.write(entry, 1, max_timestamp=NOW, is_stamped=False)
        shelf.roll()
    for key in (7, 8):
        shelf.append_keys(key)
        shelf.roll()
    modified = (NOW, NOW - RETENTION_MS + age_ms, NOW)
    for segment, time in zip(shelf.segments, modified, strict=False):
        shelf.files.set_modified_ms(segment.log.path, time)
    shelf.clean(3)
    assert (1 in [record.offset for record in shelf.records()]) == (age_ms > 0)


@MAGICS
def test_the_last_entry_of_a_round_stays_though_it_is_obsolete(magic: int) -> None:
    """An old format has no batch without records, so the offset is kept by the entry itself."""
    shelf = Shelf()
    data = write_legacy(LegacyMessage(magic, 0, None, b"no key", NOW if magic else -1))
    shelf.write(data, 1, max_timestamp=NOW, is_stamped=False)
    shelf.roll()
    shelf.append_keys(1)
    shelf.clean()
    assert bytes(shelf.segments[0].log.read(Position(0), len(data))) == data
