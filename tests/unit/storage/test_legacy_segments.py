"""A log that Kafka began before 0.11: messages of v0 and v1 in front of record batches."""

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset
from tailrace.reading.reader import open_log_reader
from tailrace.records.builder import records_of
from tailrace.records.codecs import compress
from tailrace.storage.offset_lookup import find_offset
from tailrace.testing import MemoryFiles
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append_values,
    filled,
    flip,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
    values,
)


def old_segment() -> tuple[bytes, list[bytes]]:
    """A segment's bytes with offsets 0 to 11, and the values in it."""
    contents = [b"old %02d" % offset for offset in range(12)]
    v0 = [LegacyMessage(0, offset, None, contents[offset]) for offset in range(4)]
    v1 = [LegacyMessage(1, offset, b"k", contents[offset], NOW + offset) for offset in range(4, 8)]
    inner = [message._replace(offset=place) for place, message in enumerate(v1)]
    inner = [
        message._replace(value=contents[place + 8], timestamp=NOW + place + 8)
        for place, message in enumerate(inner)
    ]
    value = bytes(compress(Codec.GZIP, write_all_legacy(inner)))
    wrapper = LegacyMessage(1, 11, None, value, NOW + 11, Codec.GZIP)
    return write_all_legacy([*v0, *v1]) + write_legacy(wrapper), contents


def upgraded() -> tuple[MemoryFiles, list[bytes]]:
    """A closed log whose segment holds all formats, and the values in it."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 0))
    data, contents = old_segment()
    files.overwrite(path(0, ".log"), data)
    for suffix in (".index", ".timeindex"):
        files.remove(path(0, suffix))
    log = open_at(files, config=settings(segment_bytes=4000))
    append_values(log, b"new 12", b"new 13")
    stop_cleanly(log)
    return files, [*contents, b"new 12", b"new 13"]


def test_an_upgraded_log_is_recovered_read_and_appended_to() -> None:
    """Recovery cuts nothing, rebuilds the indexes, and the next offset follows the last wrapper."""
    files, expected = upgraded()
    log = open_at(files, config=settings(segment_bytes=4000))
    assert values(log) == expected
    assert [record.offset for record in records(log)] == list(range(14))
    assert files.content(path(0, ".log")).startswith(old_segment()[0])


def test_a_record_is_found_by_its_timestamp() -> None:
    """Alone or in a wrapper; those of v0 have none."""
    files, _ = upgraded()
    log = open_at(files, config=settings(segment_bytes=4000))
    for offset in range(4, 12):
        found = find_offset(log, NOW + offset)
        assert found is not None
        assert found[0] == (NOW + offset, offset)
    found = find_offset(log, 0)
    assert found is not None
    assert found[0].offset == 4


def test_every_range_is_read_without_a_broker() -> None:
    """Positions in the file are those of the entries, not of what they are converted to."""
    files, expected = upgraded()
    reader = open_log_reader(files, FOLDER)
    assert reader.end_offset == len(expected)
    for start in range(len(expected)):
        batches = list(reader.batches(Offset(start), Offset(len(expected))))
        assert batches[0].base_offset <= start <= batches[0].last_offset
        found = [record.value for batch in batches for record in records_of(batch)]
        assert found[start - batches[0].base_offset :] == expected[start:]


def test_damage_in_an_old_message_is_located() -> None:
    """The error names the file and the position of the entry."""
    files, _ = upgraded()
    size = len(write_legacy(LegacyMessage(0, 0, None, b"old 00")))
    flip(files, path(0, ".log"), 2 * size + 20)
    with pytest.raises(CorruptionError, match="CRC-32") as caught:
        list(open_log_reader(files, FOLDER).batches(Offset(0), Offset(14)))
    assert (caught.value.path, caught.value.position) == (path(0, ".log"), 2 * size)
