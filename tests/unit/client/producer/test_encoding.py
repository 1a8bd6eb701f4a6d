"""Records that wait in lists become the batch that `BatchBuilder` would build of them."""

import subprocess
import sys
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.client.producer.intake.encoding import (
    BATCH_OVERHEAD,
    KERNEL_RECORDS_MIN,
    BatchFields,
    CompressionRatios,
    encode_batch,
    encode_headers,
    encode_plain_headers,
    record_size_bound,
)
from tailrace.model import Codec
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder, records_of

NOW_S = 1_700_000_000.25
NOW_MS = 1_700_000_000_250

PLAIN = BatchFields()

CONTENT = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=140)
HEADERS = st.lists(st.tuples(st.text(max_size=4), CONTENT), max_size=2)


class Row(NamedTuple):
    """A record as it is given to the producer."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds that the caller has given."""
    time: float = NOW_S


ROW = st.builds(
    Row,
    CONTENT,
    CONTENT,
    HEADERS.map(tuple),
    st.none() | st.integers(-1, 2**62),
    st.floats(-100, 2e9, allow_nan=False),
)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Large batches are for the compiled kernel; small ones are plain all the same."""
    kernels.load()


def encoded(
    rows: list[Row], fields: BatchFields = PLAIN, block: bytearray | None = None
) -> memoryview:
    """The batch of these rows, with no more columns than they need."""
    has_keys = any(row.key is not None for row in rows)
    return encode_batch(
        [row.value for row in rows],
        [row.time for row in rows],
        keys=[row.key for row in rows] if has_keys else None,
        headers={i: encode_headers(row.headers) for i, row in enumerate(rows) if row.headers}
        or None,
        explicit={i: row.timestamp for i, row in enumerate(rows) if row.timestamp is not None},
        fields=fields,
        block=bytearray() if block is None else block,
    )


def built(rows: list[Row], fields: BatchFields = PLAIN) -> bytes:
    """The same by the builder."""
    builder = BatchBuilder(
        codec=fields.codec,
        producer_id=fields.producer_id,
        producer_epoch=fields.producer_epoch,
        base_sequence=fields.base_sequence,
        is_transactional=fields.is_transactional,
    )
    for row in rows:
        timestamp = int(row.time * 1000) if row.timestamp is None else row.timestamp
        builder.append(row.key, row.value, timestamp=timestamp, headers=row.headers)
    return builder.build()


@settings(max_examples=200)
@given(st.lists(ROW, min_size=1, max_size=6), st.sampled_from([1, KERNEL_RECORDS_MIN]))
def test_a_batch_is_the_builders_byte_for_byte(rows: list[Row], times: int) -> None:
    """Keys, headers, nulls and timestamps, in small batches and in large ones."""
    assert encoded(rows * times) == built(rows * times)


@settings(max_examples=100)
@given(st.lists(CONTENT, min_size=1, max_size=6), st.sampled_from([1, KERNEL_RECORDS_MIN]))
def test_values_alone_are_the_builders_too(values: list[bytes | None], times: int) -> None:
    """The records that are written fastest differ in nothing."""
    rows = [Row(value, time=NOW_S + place / 7) for place, value in enumerate(values * times)]
    assert encoded(rows) == built(rows)
    assert encoded(rows[::-1]) == built(rows[::-1])


@pytest.mark.parametrize("count", [3, 30, 3000])
@pytest.mark.parametrize("size", [0, 63, 64, 2040, 2048, 9000, 70_000])
def test_sizes_at_the_edges_of_varints_are_right(count: int, size: int) -> None:
    """Records are right at sizes where a varint grows or leaves the table."""
    count = min(count, 3_000_000 // (size + 1))
    rows = [Row(bytes(size), time=NOW_S + index) for index in range(count)]
    assert encoded(rows) == built(rows)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 100])
def test_a_compressed_batch_is_read_back(codec: Codec, count: int) -> None:
    """The header names the codec and the producer, and the records are those that were given."""
    rows = [Row(b"value %d" % i, b"key", (("h", None),), NOW_MS + i) for i in range(count)]
    fields = BatchFields(codec, None, 7, 2, 41, is_transactional=True)
    data = encoded(rows, fields, bytearray(20))
    [(_, batch)] = read_batches(data)
    batch.check()
    assert (batch.codec, batch.producer_id, batch.producer_epoch) == (codec, 7, 2)
    assert (batch.base_sequence, batch.is_transactional) == (41, True)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW_MS, NOW_MS + count - 1)
    assert [
        Row(*record[3:1:-1], record.headers, record.timestamp) for record in records_of(batch)
    ] == rows


def test_a_level_makes_the_batch_smaller() -> None:
    """The compression level reaches the codec."""
    rows = [Row(b"%d" % (index * index)) for index in range(2000)]
    sizes = [len(encoded(rows, BatchFields(Codec.GZIP, level))) for level in (1, 9)]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("count", [2, 200])
def test_the_block_is_used_if_the_batch_fits(count: int) -> None:
    """A block of just the size holds the batch; one byte less and the batch is elsewhere."""
    rows = [Row(b"x" * 50)] * count
    size = len(built(rows))
    for spare in (0, 5, -1):
        block = bytearray(size + spare)
        assert encoded(rows, block=block) == built(rows)
        assert (bytes(block[:size]) == built(rows)) == (spare >= 0)


@settings(max_examples=200)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_the_sum_of_the_bounds_is_never_less_than_the_batch(rows: list[Row]) -> None:
    """The sum of the bounds is never less than the batch, as long as clocks do not jump."""
    rows = [row._replace(time=NOW_S + index) for index, row in enumerate(rows)]
    bound = sum(
        record_size_bound(
            row.key, row.value, encode_headers(row.headers),
            has_timestamp=any(each.timestamp is not None for each in rows),
        )
        for row in rows
    )  # fmt: skip
    assert len(encoded(rows)) <= BATCH_OVERHEAD + bound


def test_the_bound_holds_at_its_own_limits() -> None:
    """1 MiB of records of any size fit, also 17 minutes after the first record."""
    for size, key in ((0, None), (0, b""), (8192, None), (8192, b"k" * 8192), (2**20 - 100, None)):
        count = (2**20 - BATCH_OVERHEAD) // record_size_bound(key, bytes(size))
        row = Row(bytes(size), key, time=NOW_S + (2**20 - 1) / 1000)
        rows = [row._replace(time=NOW_S), *[row] * (count - 1)]
        bound = sum(record_size_bound(row.key, row.value) for row in rows)
        assert len(encoded(rows)) <= BATCH_OVERHEAD + bound


def test_plain_code_needs_no_numpy_and_keeps_the_account() -> None:
    """Without the kernels, large batches are the same, and count as plain work."""
    code = """
import sys
from tailrace import kernels
from tailrace.client.producer.intake.encoding import BatchFields, encode_batch
from tailrace.records.builder import BatchBuilder
values, builder = [b"%d" % i for i in range(3000)], BatchBuilder()
for value in values:
    builder.append(None, value, timestamp=5000)
batch = encode_batch(values, [5.0] * 3000, fields=BatchFields(), block=bytearray())
print(batch == builder.build(), 'numpy' in sys.modules, kernels.plain_records() > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "True"]


def test_the_estimate_of_compression_rises_fast_and_falls_slowly() -> None:
    """The estimate falls by 0.005 at most, not below the ratio seen, and rises by 0.05 or more."""
    ratios = CompressionRatios()
    assert ratios.estimate("t", Codec.LZ4) == 1.0
    ratios.observe("t", Codec.LZ4, 0.5)
    assert ratios.estimate("t", Codec.LZ4) == pytest.approx(0.995)
    ratios.observe("t", Codec.LZ4, 0.993)
    assert ratios.estimate("t", Codec.LZ4) == pytest.approx(0.993)
    ratios.observe("t", Codec.LZ4, 0.994)
    assert ratios.estimate("t", Codec.LZ4) == pytest.approx(1.043)
    ratios.observe("t", Codec.LZ4, 1.5)
    assert ratios.estimate("t", Codec.LZ4) == 1.5
    assert ratios.estimate("t", Codec.ZSTD) == ratios.estimate("u", Codec.LZ4) == 1.0


def test_a_batch_that_was_too_large_resets_the_estimate() -> None:
    """The estimate restarts at 1.0, or at the seen ratio if that is more."""
    ratios = CompressionRatios()
    ratios.observe("t", Codec.LZ4, 0.1)
    ratios.reset("t", Codec.LZ4, 0.4)
    assert ratios.estimate("t", Codec.LZ4) == 1.0
    ratios.reset("t", Codec.LZ4, 1.2)
    assert ratios.estimate("t", Codec.LZ4) == 1.2


HEADERS = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=9)


@given(HEADERS)
def test_plain_headers_are_encoded_alike(headers: list[tuple[str, bytes | None]]) -> None:
    """Given as a list, a tuple or a mapping, they are the bytes of the general encoder."""
    expected = encode_headers(headers)
    assert encode_plain_headers(headers) == encode_plain_headers(tuple(headers)) == expected
    assert encode_plain_headers(dict(headers)) == encode_headers(list(dict(headers).items()))


@pytest.mark.parametrize(
    "headers", ["ab", b"ab", [["a", b""]], [("a",)], [("a", "b")], [(b"a", b"")], {"a": 1}, 3]
)
def test_other_headers_are_left_to_the_general_encoder(headers: object) -> None:
    """Types that need a conversion or an error are not decided here."""
    assert encode_plain_headers(headers) is None
