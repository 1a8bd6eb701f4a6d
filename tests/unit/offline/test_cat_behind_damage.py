"""Tests that `cat` steps over damage and shows every sound record, and nothing else."""

import json

import crc32c
import pytest

from tailrace.errors import CorruptionError
from tailrace.kernels.showing import Form
from tailrace.model import AppendOrigin, Codec, IsolationLevel, LeaderEpoch
from tailrace.offline.cat import Choice, show_records
from tailrace.reading.directory import list_segments
from tailrace.reading.located import Skipped
from tailrace.reading.lookup import find_end
from tailrace.records import layout
from tailrace.records.codecs import compress
from tailrace.testing import MemoryFiles
from tests.naive import LegacyMessage, write_legacy
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import COMMIT, marker

SIZE = len(batch(b"value 0"))
EVERYTHING = list(range(20))


def a_log(count: int = 20, *, codec: Codec = Codec.NONE) -> MemoryFiles:
    """Batches of one record in segments of five: 0, 5, 10, 15."""
    files = MemoryFiles()
    config = settings(segment_bytes=5 * len(batch(b"value 00", codec=codec)) + 10)
    log = open_at(files, config=config)
    for number in range(count):
        append(log, batch(b"value %02d" % number, codec=codec, timestamps=[NOW + number]))
    stop_cleanly(log)
    return files


def shown(files: MemoryFiles, **choice: object) -> tuple[list[int], list[Skipped]]:
    """Offsets of the records that are shown, and what is told; each record is the one written."""
    told: list[Skipped] = []
    wanted = Choice(**choice)  # type: ignore[arg-type]
    pages = show_records(files, {PARTITION: FOLDER}, wanted, form=Form.JSON, on_skip=told.append)
    found = [json.loads(line) for line in b"".join(pages).splitlines()]
    return [each["offset"] for each in found], told


def ranges(told: list[Skipped]) -> list[tuple[int, int | None]]:
    """First and next offset of what was left out."""
    return [(each.first_offset, each.next_offset) for each in told]


def without(*offsets: int) -> list[int]:
    """All offsets of `a_log` but these."""
    return [each for each in EVERYTHING if each not in offsets]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("base", [0, 5, 15])
def test_one_damaged_batch_is_left_out_and_told(codec: Codec, number: int, base: int) -> None:
    """The batch may have any codec and be the first, a middle or the last one of any segment."""
    files = a_log(codec=codec)
    content = files.content(path(base, ".log"))
    size = len(content) // 5
    flip(files, path(base, ".log"), number * size + size - 1)
    offsets, told = shown(files)
    lost = base + number
    assert offsets == without(lost)
    (left_out,) = told
    assert left_out[:5] == (PARTITION, path(base, ".log"), number * size, lost, lost + 1)
    assert "CRC-32C" in left_out.reason


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("length", [b"\0\0\0\0", b"\0\0\0\x50", b"\0\0\x10\0", b"\x7f\xff\xff\xff"])
@pytest.mark.parametrize("base", [5, 15])
def test_a_damaged_length_leads_to_the_next_sound_batch(
    number: int, length: bytes, base: int
) -> None:
    """Too small or too large, beyond the end of the file too: one batch is lost."""
    files = a_log()
    content = bytearray(files.content(path(base, ".log")))
    size = len(content) // 5
    content[number * size + 8 : number * size + 12] = length
    files.overwrite(path(base, ".log"), bytes(content))
    offsets, told = shown(files)
    assert offsets == without(base + number)
    assert [each.first_offset for each in told] == [base + number]


@pytest.mark.parametrize("base", [5, 15])
@pytest.mark.parametrize("number", range(5))
def test_zeros_over_a_header_hide_nothing_where_the_index_is_missing(
    number: int, base: int
) -> None:
    """They are no room for appends, since batches follow; one record is left out and counted."""
    files = a_log()
    content = bytearray(files.content(path(base, ".log")))
    size = len(content) // 5
    content[number * size : number * size + layout.HEADER_SIZE] = bytes(layout.HEADER_SIZE)
    files.overwrite(path(base, ".log"), bytes(content))
    files.remove(path(base, ".index"))
    offsets, told = shown(files)
    assert offsets == without(base + number)
    is_end = base + number == 19
    assert ranges(told) == [(base + number, None if is_end else base + number + 1)]
    assert [(each.records, each.size_bytes) for each in told] == [(None if is_end else 1, size)]
    assert find_end(files, list_segments(files, FOLDER)[0]) == (19 if is_end else 20)


def test_damage_on_both_sides_of_a_segment_border_is_told_twice() -> None:
    """The last batch of one segment and the first of the next."""
    files = a_log()
    size = len(files.content(path(5, ".log"))) // 5
    flip(files, path(5, ".log"), 4 * size + 70)
    flip(files, path(10, ".log"), 70)
    offsets, told = shown(files)
    assert offsets == without(9, 10)
    assert ranges(told) == [(9, 10), (10, 11)]


def test_only_damage_among_the_wanted_offsets_is_told() -> None:
    """Damage before and behind the range is passed over in silence."""
    files = a_log()
    size = len(files.content(path(5, ".log"))) // 5
    for base in (0, 5, 10):
        flip(files, path(base, ".log"), 2 * size + 70)
    offsets, told = shown(files, from_offset=4, to_offset=10)
    assert offsets == [4, 5, 6, 8, 9]
    assert ranges(told) == [(7, 8)]
    assert shown(files, limit=2) == ([0, 1], [])


def test_damage_that_is_not_reached_is_not_told() -> None:
    """Two batches of a segment are damaged, and the second lies behind the last record wanted."""
    files = a_log()
    size = len(files.content(path(5, ".log"))) // 5
    for number in (1, 3):
        flip(files, path(5, ".log"), number * size + 70)
    offsets, told = shown(files, from_offset=5, limit=2)
    assert offsets == [5, 7]
    assert ranges(told) == [(6, 7)]


def legacy(magic: int, codec: Codec, count: int = 6) -> list[bytes]:
    """Entries of v0 or v1; with a codec each is a wrapper of one record."""
    entries = []
    for offset in range(count):
        inner = LegacyMessage(magic, offset, b"k", b"value %d" % offset, NOW + offset)
        if codec is Codec.NONE:
            entries.append(write_legacy(inner))
            continue
        content = bytes(compress(codec, write_legacy(inner)))
        if magic:
            content = bytes(compress(codec, write_legacy(inner._replace(offset=0))))
        entries.append(write_legacy(LegacyMessage(magic, offset, None, content, NOW, codec)))
    return entries


def legacy_log(entries: list[bytes]) -> MemoryFiles:
    """A log of one segment with these entries."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    files.open(path(0, ".log"), create=True).close()
    files.overwrite(path(0, ".log"), b"".join(entries))
    return files


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", [0, 2, 5])
@pytest.mark.parametrize("has_length", [False, True])
def test_messages_of_older_formats_are_stepped_over_one_by_one(
    codec: Codec,
    magic: int,
    number: int,
    has_length: bool,  # noqa: FBT001
) -> None:
    """The damage may be in a value or a length, at the start, in the middle or at the end."""
    entries = legacy(magic, codec)
    damaged = bytearray(entries[number])
    if has_length:
        damaged[8:12] = b"\0\1\0\0"
    else:
        damaged[-1] ^= 0x55
    offsets, told = shown(legacy_log([*entries[:number], bytes(damaged), *entries[number + 1 :]]))
    assert offsets == [each for each in range(6) if each != number]
    assert [each.first_offset for each in told] == [number]


def test_a_batch_inside_of_a_damaged_record_is_no_record() -> None:
    """A producer may have sent anything; a batch in a value leads to no other batch."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100_000))
    forged = batch(b"forged", timestamps=[NOW])
    layout.BASE_OFFSET.pack_into(forged, 0, 1)
    append(log, batch(b"first"))
    append(log, batch(b"x" * 50 + bytes(forged) + b"y" * 50))
    append(log, batch(b"last"))
    stop_cleanly(log)
    content = bytearray(files.content(path(0, ".log")))
    at = len(batch(b"first"))
    content[at + 8 : at + 12] = b"\0\0\0\x40"
    files.overwrite(path(0, ".log"), bytes(content))
    offsets, told = shown(files)
    assert offsets == [0, 2]
    assert ranges(told) == [(1, 2)]


def test_a_batch_that_is_not_whole_at_the_end_is_told() -> None:
    """It may be an append in progress; nobody can tell without the broker."""
    files = a_log(5)
    name = path(0, ".log")
    files.overwrite(name, files.content(name) + bytes(batch())[:40])
    offsets, told = shown(files)
    assert offsets == [0, 1, 2, 3, 4]
    assert ranges(told) == [(5, None)]


def test_records_that_break_a_rule_under_a_right_checksum_are_left_out() -> None:
    """Their checksum is right and their content is not; the limit counts none of them."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100_000))
    for value in (b"a", b"b", b"c"):
        append(log, batch(value))
    stop_cleanly(log)
    content = bytearray(files.content(path(0, ".log")))
    size = len(content) // 3
    with memoryview(content) as view:
        second = view[size : 2 * size]
        # The record's declared length is one byte too large.
        second[layout.RECORDS_POSITION] += 2
        crc = crc32c.crc32c(second[layout.ATTRIBUTES_POSITION :])
        layout.CRC.pack_into(second, layout.CRC_POSITION, crc)
    files.overwrite(path(0, ".log"), bytes(content))
    offsets, told = shown(files, limit=2)
    assert offsets == [0, 2]
    assert ranges(told) == [(1, 2)]


def test_without_leave_damage_ends_the_output_and_says_where() -> None:
    """The default: what is before it is shown, and then comes the error."""
    files = a_log()
    size = len(files.content(path(5, ".log"))) // 5
    flip(files, path(5, ".log"), 2 * size + 70)
    lines: list[bytes] = []
    with pytest.raises(CorruptionError, match=r"5\.log, position \d+, offset 7"):
        lines.extend(show_records(files, {PARTITION: FOLDER}, Choice(), form=Form.JSON))
    assert b"".join(lines).count(b"\n") == 7


def test_a_damaged_length_in_the_last_segment_is_an_error_by_default() -> None:
    """It reaches beyond the end of the file, as an append in progress does; what follows tells."""
    files = a_log(3)
    content = bytearray(files.content(path(0, ".log")))
    size = len(content) // 3
    content[size + 8 : size + 12] = b"\0\1\0\0"
    files.overwrite(path(0, ".log"), bytes(content))
    lines: list[bytes] = []
    with pytest.raises(CorruptionError, match="not whole"):
        lines.extend(show_records(files, {PARTITION: FOLDER}, Choice(), form=Form.JSON))
    assert b"".join(lines).count(b"\n") == 1


def test_a_transaction_whose_marker_is_damaged_stays_open() -> None:
    """Readers of committed records see nothing from the transaction's first offset on."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100_000))

    def send(producer_id: int, sequence: int) -> None:
        append(log, batch(b"v", producer_id=producer_id, producer_epoch=0,
                          base_sequence=sequence, is_transactional=True))  # fmt: skip

    def end(producer_id: int) -> None:
        data = bytearray(marker(COMMIT, producer_id=producer_id).view)
        log.append(
            memoryview(data),
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
            origin=AppendOrigin.COORDINATOR,
        )

    append(log, batch(b"plain"))
    damaged = log.segments.active.size
    append(log, batch(b"damaged"))
    send(1, 0)
    end(1)
    send(2, 0)
    append(log, batch(b"plain"))
    stop_cleanly(log)
    for name in list(files.list(FOLDER)):
        if name.endswith(".snapshot"):
            files.remove(f"{FOLDER}/{name}")
    flip(files, path(0, ".log"), damaged + 70)
    offsets, told = shown(files, isolation=IsolationLevel.READ_COMMITTED)
    assert offsets == [0, 2]
    assert ranges(told) == [(1, 2)]
