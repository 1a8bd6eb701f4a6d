"""Pages of many records are, byte for byte, the lines of one record after the other."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import CorruptionError
from tailrace.kernels.showing import Form
from tailrace.model import OFFSETS_TOPIC, Codec, TimestampType, TopicPartition
from tailrace.offline.cat import Choice, show_records
from tailrace.offline.show import PAGE_BYTES, ShownRecord, to_hex, to_json, to_text
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.storage.names import LOG_SUFFIX, segment_file_name
from tailrace.testing import MemoryFiles
from tests.examples import examples
from tests.fuzz.mending import with_crcs
from tests.unit.records.batches import record_at

LINES = {Form.TEXT: to_text, Form.JSON: to_json, Form.HEX: to_hex}
TOPICS = st.sampled_from(["flights", OFFSETS_TOPIC, "a.b_c-d"])

ODD = (
    "",
    '"',
    "\\",
    "\n",
    "\x00\x1b",
    "\x7f\x80\xa0\xad",
    "Zürich",
    "東京",
    "🛫",
    "\u2028\ufeff\u200e",
)
CUT = (b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80")
CONTENT = (
    st.text(max_size=40).map(str.encode)
    | st.lists(st.sampled_from(ODD), max_size=4).map(lambda parts: "".join(parts).encode())
    | st.tuples(st.binary(max_size=40), st.sampled_from(CUT)).map(b"".join)
    | st.integers(0, 200).map(lambda size: b"plain ascii, " * (size // 13))
)
NAMES = st.text(max_size=8) | st.sampled_from(ODD)
TIMES = st.integers(-1, 300_000_000_000_000) | st.sampled_from(
    [0, 951_782_399_999, 951_782_400_000, 4_107_542_400_000, 253_402_300_799_999, 2**63 - 1]
)
RECORDS = st.lists(
    st.tuples(
        st.none() | CONTENT,
        st.none() | CONTENT,
        TIMES,
        st.lists(st.tuples(NAMES, st.none() | CONTENT), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


def a_folder(partition: TopicPartition, batches: list[bytes]) -> MemoryFiles:
    """One segment with these batches."""
    files = MemoryFiles()
    files.make_directory(f"data/{partition}")
    path = f"data/{partition}/{segment_file_name(0, LOG_SUFFIX)}"
    files.open(path, create=True).write(0, b"".join(batches))
    return files


def shown(
    partition: TopicPartition, batches: list[bytes], form: Form, choice: Choice | None = None
) -> list[bytes]:
    """The pages of a log of these batches."""
    files = a_folder(partition, batches)
    chosen = choice or Choice()
    return list(show_records(files, {partition: f"data/{partition}"}, chosen, form=form))


def at_offset(batch: bytes, offset: int) -> bytes:
    """The batch with another base offset."""
    data = bytearray(batch)
    stamp(memoryview(data), base_offset=offset, leader_epoch=0)
    return bytes(data)


@pytest.mark.parametrize("form", LINES)
@settings(max_examples=examples(100), deadline=None)
@given(
    TOPICS,
    RECORDS,
    st.sampled_from([Codec.NONE, Codec.GZIP]),
    st.sampled_from(TimestampType),
    st.booleans(),
)
def test_pages_are_the_lines_of_the_records(
    form: Form,
    topic: str,
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    codec: Codec,
    timestamp_type: TimestampType,
    is_control: bool,  # noqa: FBT001
) -> None:
    """This holds for any keys, values and headers, compressed or not, and for markers."""
    builder = BatchBuilder(
        codec=Codec.NONE if is_control else codec,
        timestamp_type=timestamp_type,
        is_control=is_control,
    )
    for key, value, timestamp, headers in rows:
        builder.append(key, value, timestamp=timestamp, headers=headers)
    batch = at_offset(builder.build(), 7)
    partition = TopicPartition(topic, 3)
    found = [
        ShownRecord(partition, record, is_control)
        for record in records_of(Batch(memoryview(batch)))
    ]
    expected = "".join(f"{LINES[form](each)}\n" for each in found)
    assert b"".join(shown(partition, [batch], form)).decode() == expected
    key = rows[-1][0]
    if key is not None and not is_control:
        of_key = [each for each in found if each.record.key == key]
        expected = "".join(f"{LINES[form](each)}\n" for each in of_key[:2])
        page = b"".join(shown(partition, [batch], form, Choice(key=key, limit=2)))
        assert page.decode() == expected


@pytest.mark.parametrize("size", [1, 100, PAGE_BYTES // 3, 2 * PAGE_BYTES])
def test_pages_end_behind_a_line_and_have_every_record(size: int) -> None:
    """Pages have all records, also if one fills a page; a page ends after a megabyte of log."""
    builder = BatchBuilder()
    for _ in range(12):
        builder.append(b"k", b"v" * size)
    batch, count = builder.build(), 1 + 3 * PAGE_BYTES // (12 * size + 100)
    batches = [at_offset(batch, 12 * number) for number in range(min(count, 300))]
    pages = shown(TopicPartition("t", 0), batches, Form.JSON)
    assert all(page.endswith(b"\n") for page in pages if page)
    assert max(map(len, pages)) <= 2 * PAGE_BYTES + max(len(batch), PAGE_BYTES)
    lines = b"".join(pages).splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(12 * len(batches)))


def test_nothing_of_a_batch_with_a_bad_record_is_shown() -> None:
    """Batches before that batch are shown."""
    builder = BatchBuilder()
    builder.append(b"k", b"v")
    good = builder.build()
    builder.append(b"k", b"w")
    bad = bytearray(at_offset(builder.build(), 1))
    bad[-1] = 1  # One header, of which there is no byte.
    files = a_folder(TopicPartition("t", 0), [good, bytes(with_crcs(bytes(bad)))])
    pages = show_records(files, {TopicPartition("t", 0): "data/t-0"}, Choice(), form=Form.TEXT)
    assert next(pages).count(b"\n") == 1
    with pytest.raises(CorruptionError, match="record 1 of 2"):
        next(pages)


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    """ISO 8601 as it is common here ends with the year 9999."""
    records = (
        record_at(0, 253_402_300_799_999, None, b""),
        record_at(0, 253_402_300_800_000, None, b""),
    )
    lines = [
        to_text(ShownRecord(TopicPartition("t", 0), each, is_control=False)) for each in records
    ]
    assert "9999-12-31T23:59:59.999Z" in lines[0]
    assert "253402300800000" in lines[1]
