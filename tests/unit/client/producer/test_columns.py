"""Tables, columns and rows become batches: the records that were given, where they belong."""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.producer.intake.columns import RefusedRow, chunks_of
from tailrace.client.producer.intake.encoding import BatchFields
from tailrace.client.producer.intake.slices import ColumnSlice, plan_chunk
from tailrace.model import Codec, Offset
from tailrace.records.batch import read_batches
from tailrace.records.builder import Record, records_of
from tests.examples import examples
from tests.unit.records.batches import record_at

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 12_345
PARTITIONS = 3
CHOSEN = 2
"""The partition of rows without one among others."""


def read(data: memoryview) -> list[Record]:
    """The records of a batch, after all its checks."""
    [(_, batch)] = read_batches(data)
    batch.check()
    return list(records_of(batch))


class Sent(NamedTuple):
    """Records, slices and refusals that a source has led to."""

    records: dict[int, Record]
    """By the caller's number of the row, with offset 0."""
    partitions: dict[int | None, list[int]]
    """Rows in the order in which they are sent."""
    slices: list[ColumnSlice]
    refused: list[RefusedRow]


def sent(
    source: object,
    *,
    chunk_size: int = 1 << 20,
    batch_size: int = 16_384,
    request_size_max: int = 1 << 20,
    ignores_keys: bool = False,
) -> Sent:
    """Every row of the source, planned, encoded and read back."""
    result = Sent({}, defaultdict(list), [], [])
    for chunk in chunks_of(source, size=chunk_size):
        plan = plan_chunk(
            chunk, partition_count=PARTITIONS, batch_size=batch_size, now_ms=NOW_MS,
            request_size_max=request_size_max, ignores_keys=ignores_keys, choose=lambda: CHOSEN,
        )  # fmt: skip
        result.slices.extend(plan.slices)
        result.refused.extend(plan.refused)
    for each in result.slices:
        data = each.encode(bytearray(), BatchFields())
        assert len(data) <= each.size_bound
        records = read(data)
        assert len(records) == each.record_count
        for index, record in enumerate(records):
            result.records[each.row_of(index)] = record._replace(offset=Offset(0))
            result.partitions[each.partition].append(each.row_of(index))
    return result


def plain(
    values: list[Any], keys: list[Any] | None = None, timestamp: int = NOW_MS
) -> dict[int, Record]:
    """Records without headers, by row."""
    keys = keys or [None] * len(values)
    return {
        row: record_at(0, timestamp, key, value)
        for row, (key, value) in enumerate(zip(keys, values, strict=True))
    }


VALUES = [b"one", None, b"", b"three" * 30]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(),
        pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("start", [0, 1, 2])
def test_every_binary_type_of_arrow_is_taken(kind: pa.DataType, start: int) -> None:
    """Every binary type is read, also in slices, whose offsets and bitmaps do not start at 0."""
    texts = [None if value is None else value.decode() for value in VALUES]
    array = pa.array(texts, pa.string()).cast(kind).slice(start)
    assert sent(pa.table({"value": array})).records == plain(VALUES[start:])


def test_bytes_of_a_fixed_size_are_taken() -> None:
    """A column of fixed_size_binary is one of binaries."""
    column = pa.array([b"abc", None, b"def"], pa.binary(3))
    assert sent({"value": column}).records == plain([b"abc", None, b"def"])


@pytest.mark.parametrize("chunk_size", [1, 40, 1000])
def test_a_table_in_pieces_is_one_of_rows(chunk_size: int) -> None:
    """Columns may be chunked differently, and chunks be cut anywhere; rows keep their numbers."""
    values = [b"value %d" % row for row in range(20)]
    keys = [b"key %d" % row if row % 3 else None for row in range(20)]
    table = pa.table(
        {
            "key": pa.chunked_array(
                [pa.array(keys[:3]), pa.array(keys[3:17]), pa.array(keys[17:])]
            ),
            "value": pa.chunked_array([pa.array(values[:10]), pa.array(values[10:])]),
        }
    )
    result = sent(table, chunk_size=chunk_size)
    assert result.records == plain(values, keys)
    assert set(result.partitions) - {None} == set(range(PARTITIONS))


def reader(table: pa.Table) -> pa.RecordBatchReader:
    """The table as a stream of batches of two rows."""
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2))


class Frame:
    """Somebody's data frame, of which only Arrow's interface is known."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "form",
    [lambda table: table, lambda table: table.to_batches()[0], reader, Frame, pa.Table.to_pydict],
    ids=["table", "record batch", "reader", "frame", "mapping"],
)
def test_tables_come_in_many_forms(form: Any) -> None:
    """All of them are the same rows."""
    table = pa.table({"value": pa.array(VALUES), "key": pa.array([b"k", None, b"", b"kk"])})
    assert sent(form(table)).records == plain(VALUES, [b"k", None, b"", b"kk"])


class Row(NamedTuple):
    """A row with all fields."""

    value: Any
    key: Any = None
    headers: Any = ()
    timestamp: int | None = None
    partition: int | None = None


@pytest.mark.parametrize(
    ("rows", "records"),
    [
        (VALUES, plain(VALUES)),
        (["é", "b"], plain(["é".encode(), b"b"])),
        ([bytearray(b"a"), None, memoryview(b"b")], plain([b"a", None, b"b"])),
        ([(b"k", b"v"), (None, "w"), ("l", None)], plain([b"v", b"w", None], [b"k", None, b"l"])),
        ([Row("v", b"k"), Row(None)], plain([b"v", None], [b"k", None])),
        ([Row("v", headers=[("h", b"1")])], {0: record_at(0, NOW_MS, None, b"v", (("h", b"1"),))}),
        ([Row("v", timestamp=5)], plain([b"v"], timestamp=5)),
        ([], {}),
    ],
)
def test_rows_are_values_pairs_or_named_tuples(rows: list[Any], records: dict[int, Record]) -> None:
    """Any iterable of them will do, and text is UTF-8."""
    assert sent(iter(rows)).records == records


def test_rows_are_taken_as_they_are_needed() -> None:
    """An endless iterable gives chunks; it is not read to its end first."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 100

    chunks = chunks_of(endless(), size=1_000_000)
    assert next(chunks).first_row == 0
    second = next(chunks)
    assert second.size == pytest.approx(1_000_000, rel=0.01)
    assert next(chunks).first_row == second.first_row + second.row_count


@pytest.mark.parametrize(
    "column",
    [
        np.array([b"a", None, b"bc"], object),
        ("a", None, b"bc"),
        pa.array([b"a", None, b"bc"]),
        pa.chunked_array([[b"a"], [None, b"bc"]]),
    ],
    ids=["numpy", "tuple", "arrow", "chunked"],
)
def test_a_mapping_has_columns_of_any_kind(column: object) -> None:
    """Sequences, numpy arrays and Arrow arrays may stand beside each other."""
    records = sent({"value": column, "key": ["k", "l", "m"]}).records
    assert records == plain([b"a", None, b"bc"], [b"k", b"l", b"m"])


MOMENT = dt.datetime.fromtimestamp(LATER_MS / 1000, dt.UTC)


@pytest.mark.parametrize(
    "column",
    [
        [LATER_MS, None],
        np.array([LATER_MS * 1000 + 7, "NaT"], "datetime64[us]"),
        pa.array([LATER_MS, None]),
        pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        pa.array([MOMENT, None], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([LATER_MS // 1000, None], pa.timestamp("s")),
    ],
    ids=["list", "datetime64", "integers", "us", "ns", "s"],
)
def test_timestamps_are_milliseconds(column: object) -> None:
    """All units become milliseconds; a row without a timestamp has the time of sending."""
    records = sent({"value": [b"a", b"b"], "timestamp": column}).records
    assert records[0].timestamp in {LATER_MS, LATER_MS // 1000 * 1000}
    assert records[1].timestamp == NOW_MS


FAR_S = 2**54 + 2**53
"""Seconds that come to a multiple of 2^64 milliseconds, or near it."""


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62, 5, None, FAR_S], pa.timestamp("s")),
        pa.array([2**62, 5, None, FAR_S], pa.timestamp("s", "UTC")),
        np.array([2**62, 5, -(2**63), FAR_S], np.int64).view("datetime64[s]"),
        np.array([2**62, 5, -(2**63), FAR_S], np.int64).view("datetime64[Y]"),
        np.array([2**63, 5, 7, 2**64 - 1], np.uint64),
        pa.array([2**63, 5, None, 2**64 - 1], pa.uint64()),
    ],
    ids=["arrow", "zoned", "seconds", "years", "unsigned", "arrow-unsigned"],
)
def test_a_timestamp_that_does_not_fit_is_an_error_of_its_row(column: object) -> None:
    """It is not taken for another time, and the other rows are sent."""
    result = sent({"value": [b"a", b"b", b"c", b"d"], "timestamp": column})
    assert [(each.row, str(each.error)) for each in result.refused] == [
        (row, "its timestamp, in milliseconds, does not fit 64 bits") for row in (0, 3)
    ]
    assert sorted(result.records) == [1, 2]


def test_a_partition_that_does_not_fit_is_an_error_of_its_row() -> None:
    """2^64 - 1 is not the -1 that leaves the choice to the producer."""
    result = sent({"value": [b"a", b"b"], "partition": np.array([2**64 - 1, 0], np.uint64)})
    assert [each.row for each in result.refused] == [0]


@pytest.mark.parametrize(
    "column",
    [
        [-1, -62_135_596_800_000, None],
        pa.array([-1, -62_135_596_800_000, None]),
        pa.array([-1, -62_135_596_800_000, None], pa.timestamp("ms", "UTC")),
        np.array([-1, -62_135_596_800_000, "NaT"], "datetime64[ms]"),
    ],
    ids=["list", "int64", "timestamp", "numpy"],
)
def test_timestamps_before_1970_are_sent_as_they_are(column: object) -> None:
    """Also -1, which is that of a record without a time, as by `send`; only null means now."""
    result = sent({"value": [b"none", b"year 1", b"now"], "timestamp": column})
    assert [result.records[row].timestamp for row in range(3)] == [-1, -62_135_596_800_000, NOW_MS]


def test_timestamps_further_apart_than_64_bits_go_to_several_batches() -> None:
    """The difference to the first one of a batch would not fit; the order stays."""
    timestamps = [5, 2**63 - 1, -(2**62) + 1, -7, 2**63 - 2, 6]
    columns = {"value": [b"v"] * 6, "timestamp": timestamps, "partition": [0, 1, 0, 0, 0, 1]}
    result = sent(columns)
    assert [result.records[row].timestamp for row in range(6)] == timestamps
    assert result.partitions == {0: [0, 2, 3, 4], 1: [1, 5]}


def test_timestamps_go_with_their_rows() -> None:
    """Each record carries its own row's, whatever the order in which partitions are sent."""
    columns = {"value": [b"v"] * 5, "partition": [2, 0, 1, 2, 0], "timestamp": [5, 4, 3, 2, 1]}
    result = sent(columns)
    assert result.partitions == {2: [0, 3], 0: [1, 4], 1: [2]}
    assert {row: record.timestamp for row, record in result.records.items()} == {
        0: 5, 1: 4, 2: 3, 3: 2, 4: 1,
    }  # fmt: skip


def test_timestamps_may_lie_before_the_first() -> None:
    """The batch has the first one as its base and the latest as its maximum."""
    timestamps = [5000, 0, 2**62, 4999]
    [part] = sent({"value": [b"v"] * 4, "timestamp": timestamps}).slices
    [(_, batch)] = read_batches(part.encode(bytearray(), BatchFields()))
    assert [record.timestamp for record in records_of(batch)] == timestamps
    assert (batch.base_timestamp, batch.max_timestamp) == (5000, 2**62)


HEADERS = [[("a", b"1"), ("b", None)], None, [("c", b"")], [], [("d", b"4" * 100)]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
        None,
    ],
    ids=["list", "large list", "map", "sequences"],
)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_headers_come_as_lists_or_maps(kind: pa.DataType | None, start: int) -> None:
    """Null and empty ones are none, and a sliced column has its own rows' headers."""
    column: Any = HEADERS
    if kind is not None:
        rows: list[Any] = HEADERS
        if not pa.types.is_map(kind):
            rows = [row and [{"key": k, "value": v} for k, v in row] for row in HEADERS]
        column = pa.array(rows, kind)
    values = [b"%d" % row for row in range(5)]
    records = sent({"value": values[start:], "headers": column[start:]}).records
    assert [records[row].headers for row in sorted(records)] == [
        tuple(row or ()) for row in HEADERS[start:]
    ]
    assert [records[row].value for row in sorted(records)] == values[start:]


def test_keys_choose_partitions_as_kafka_does() -> None:
    """The hash of a key chooses; rows without a key stand among those of a chosen partition."""
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    result = sent([*((key, b"v") for key in hashes), (None, b"v")])
    expected: dict[int | None, list[int]] = defaultdict(list)
    for row, number in enumerate(hashes.values()):
        expected[(number & 0x7FFFFFFF) % PARTITIONS].append(row)
    expected[CHOSEN].append(3)
    assert result.partitions == expected


def test_a_partition_goes_before_a_key() -> None:
    """A row that names a partition goes there; null and -1 name none."""
    columns = {"value": [b"v"] * 5, "partition": [2, 0, None, 2, -1]}
    assert sent(columns).partitions == {2: [0, 2, 3, 4], 0: [1]}
    assert sent({**columns, "key": [b"abc"] * 5}).partitions[2][:2] == [0, 3]
    assert None not in sent({**columns, "key": [b"abc"] * 5}).partitions


def test_keys_can_be_ignored() -> None:
    """With `partitioner.ignore.keys` keys are sent but do not choose the partition."""
    result = sent([(b"a", b"v"), (b"b", b"v")], ignores_keys=True)
    assert result.partitions == {None: [0, 1]}
    assert result.records[1].key == b"b"


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from([b"a", b"b", b"c", b"d"]),
            st.none() | st.binary(max_size=300),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([62, 200, 1000, 16_384]),
    st.sampled_from([100, 1000, 1 << 20]),
)
def test_batches_are_full_and_keep_the_order(
    rows: list[tuple[bytes | None, bytes | None]], batch_size: int, chunk_size: int
) -> None:
    """No batch is over its size but for a single record, and each partition's rows are in order."""
    result = sent(rows, batch_size=batch_size, chunk_size=chunk_size)
    assert result.records == plain([value for _, value in rows], [key for key, _ in rows])
    for each in result.slices:
        assert each.size_bound <= batch_size or each.record_count == 1
    for places in result.partitions.values():
        assert all(before < after for before, after in pairwise(places))
    firsts = [each.row_of(0) for each in result.slices]
    assert firsts == sorted(firsts)


def test_rows_that_cannot_be_sent_are_told() -> None:
    """Each with its number and the reason; the others go their way."""
    result = sent(
        {
            "value": [b"ok", b"x" * 3000, b"early", b"far", b"x" * 3000, b"ok"],
            "timestamp": [None, None, -(2**62) - 1, None, -(2**63), 7],
            "partition": [1, 1, 1, PARTITIONS, -2, None],
        },
        request_size_max=2000,
    )
    assert sorted(result.records) == [0, 5]
    assert result.partitions == {1: [0], CHOSEN: [5]}
    assert [each.row for each in result.refused] == [1, 2, 3, 4]
    words = [
        "more than max.request.size (2000)",
        f"{-(2**62) - 1} ms, before {1 - 2**62}",
        "of 3 from 0",
        "max.request",
    ]
    for refused, word in zip(result.refused, words, strict=True):
        assert word in str(refused.error)


def test_a_chunk_of_refused_rows_has_no_slice() -> None:
    """If all rows are refused, the plan has no slice."""
    result = sent([b"x" * 100] * 3, request_size_max=50)
    assert (result.slices, len(result.refused)) == ([], 3)


def test_many_rows_of_a_partition_keep_their_order() -> None:
    """More than any sort takes for few."""
    rows = [(b"%d" % (row * row % 7), b"%d" % row) for row in range(20_000)]
    for places in sent(rows).partitions.values():
        assert all(before < after for before, after in pairwise(places))


def test_bounds_hold_for_timestamps_far_apart() -> None:
    """`sent` compares them; here nearly all that a record has is its timestamp."""
    columns = {"value": [b""] * 1000, "timestamp": [0] + [2**62] * 999}
    assert len(sent(columns).records) == 1000


@pytest.mark.parametrize("parts", [2, 3, 100])
def test_a_slice_is_split_into_its_records(parts: int) -> None:
    """The parts hold the same records in the same order, and know their rows and sizes."""
    rows = [(b"%d" % (row % 7), b"%d" % row * row) for row in range(60)]
    slices = [each for each in sent(rows, batch_size=1000).slices if each.record_count > 1]
    assert len(slices) > PARTITIONS
    for whole in slices:
        pieces = whole.split(parts)
        assert len(pieces) == min(parts, whole.record_count)
        records, places = [], []
        for piece in pieces:
            data = piece.encode(bytearray(), BatchFields())
            assert len(data) <= piece.size_bound < whole.size_bound
            assert piece.partition == whole.partition
            records += [record.value for record in read(data)]
            places += [piece.row_of(index) for index in range(piece.record_count)]
        assert records == [
            record.value for record in read(whole.encode(bytearray(), BatchFields()))
        ]
        assert places == [whole.row_of(index) for index in range(whole.record_count)]


def test_a_slice_is_compressed_and_stamped() -> None:
    """The header has the producer's fields, and the block is used."""
    [part] = sent({"value": [b"x" * 100] * 50}).slices
    block = bytearray(part.size_bound)
    data = part.encode(block, BatchFields(Codec.ZSTD, 3, 9, 1, 77, is_transactional=True))
    assert len(data) < 1000
    assert data.obj is block
    [(_, batch)] = read_batches(data)
    assert (batch.codec, batch.producer_id, batch.base_sequence) == (Codec.ZSTD, 9, 77)
    assert read(data) == [record_at(index, NOW_MS, None, b"x" * 100) for index in range(50)]


def test_batches_over_one_mebibyte_stay_within_their_bound() -> None:
    """The bound holds for batches over 1 MiB, whose sizes take a byte more."""
    result = sent([b"x" * (1 << 20)] * 40, batch_size=20 << 20, request_size_max=40 << 20)
    assert sum(each.record_count for each in result.slices) == 40


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"vaule": [b"v"]}, "did you mean 'value'"),
        ({"value": [b"v"], "topic": ["t"]}, "no column 'topic'"),
        ({"timestamp": [1]}, "neither a column 'value' nor"),
        ({}, "neither"),
        (pa.table({"a": [1]}), "no column 'a'"),
        ({"value": [b"v", b"w"], "key": [b"k"]}, "differ in length"),
    ],
)
def test_wrong_columns_are_refused(source: object, words: str) -> None:
    """The error names the column and what to do."""
    with pytest.raises(ValueError, match=words):
        list(chunks_of(source))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"bytes", "not as bytes"),
        ("text", "not as str"),
        (5, "not as int"),
        ([1, 2], "row 0 is a int"),
        ([b"v", (b"k", b"v")], "row 1 is a tuple"),
        ([(b"k", b"v", b"w")], "pairs"),
        ([(1, b"v")], "column 'key' has a int"),
        ({"value": [b"v", 1.5]}, "column 'value' has a float"),
        ({"value": pa.array([1])}, "column 'value' is int64; cast it"),
        ({"value": [b"v"], "partition": [1.5]}, "'partition' is float64"),
        ({"value": [b"v"], "partition": pa.array(["a"])}, "'partition' is string"),
        ({"value": [b"v"], "timestamp": ["now"]}, "'timestamp' is"),
        ({"value": [b"v"], "timestamp": pa.array([1.5])}, "'timestamp' is double"),
        ({"value": [b"v"], "timestamp": pa.array([1], pa.time64("us"))}, "'timestamp' is time64"),
        (
            {"value": [b"v"], "timestamp": pa.array([1], pa.duration("s"))},
            "'timestamp' is duration",
        ),
        ({"value": [b"v"], "headers": pa.array([["a"]])}, "list<struct<key, value>> or map"),
        ({"value": [b"v"] * 2, "headers": [[], [(None, b"1")]]}, "row 1: the name of a header is"),
    ],
)
def test_wrong_kinds_are_refused(source: object, words: str) -> None:
    """The error names the row or the column, and its type."""
    with pytest.raises(TypeError, match=words):
        list(chunks_of(source))


@pytest.mark.parametrize("start", [0, 2])
def test_a_header_needs_a_key(start: int) -> None:
    """A row with a header without one is refused by its number, and the others have their own."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    good, bad = {"key": "h", "value": b"1"}, {"key": None, "value": b"2"}
    headers = [[good], [], [good, bad, good], None, [good, good], [bad], [good]]
    columns = {"value": [b"v"] * (7 - start), "headers": pa.array(headers, kind)[start:]}
    result = sent(columns)
    assert [(start + each.row, str(each.error)) for each in result.refused] == [
        (2, "a header has no key"),
        (5, "a header has no key"),
    ]
    counts = {start + row: len(record.headers) for row, record in result.records.items()}
    assert counts == {row: n for row, n in {0: 1, 1: 0, 3: 0, 4: 2, 6: 1}.items() if row >= start}


def test_a_column_of_headers_without_keys_refuses_each_row_with_one() -> None:
    """Its type is null, and rows without headers are sent."""
    kind = pa.list_(pa.struct([("key", pa.null()), ("value", pa.binary())]))
    headers = pa.array([[], [{"value": b"1"}]], kind)
    result = sent({"value": [b"v"] * 2, "headers": headers})
    assert ([each.row for each in result.refused], list(result.records)) == ([1], [0])


@pytest.mark.parametrize(
    "source", [[], {"value": []}, pa.table({"value": pa.array([], pa.binary())}), iter(())]
)
def test_no_rows_give_no_chunks(source: object) -> None:
    """A source without rows has no chunks."""
    assert list(chunks_of(source)) == []
