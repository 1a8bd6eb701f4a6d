"""Records that are encoded one by one become the batch that `BatchBuilder` would build of them."""

import subprocess
import sys
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, BatchFields, record_size_bound
from tailrace.client.producer.queue.batches import EncodedRecords
from tailrace.client.producer.queue.memory import CompressionRatios
from tailrace.kernels.arrays import int64s
from tailrace.kernels.record_block import NO_ROOM, RecordBlock, pack_headers
from tailrace.model import Codec
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder, records_of
from tests.examples import examples

NOW_MS = 1_700_000_000_250
NOW_NS = NOW_MS * 1_000_000 + 999_999

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
    now_ns: int = NOW_NS
    """The time of `send`."""


ROW = st.builds(
    Row,
    CONTENT,
    CONTENT,
    HEADERS.map(tuple),
    st.none() | st.integers(-(2**61), 2**61),
    st.integers(-(10**11), 2**61),
)


class Batch(RecordBlock):
    """A batch that rows are appended to."""

    def __init__(self, *, size: int, count: int) -> None:
        super().__init__(bytearray(size), int64s(count), BATCH_OVERHEAD, size)

    def add(self, row: Row) -> int:
        """Append the row; returns its index, or `NO_ROOM`."""
        return self.append(
            row.value, row.key, pack_headers(row.headers),
            row.now_ns // 1_000_000 if row.timestamp is None else row.timestamp,
        )  # fmt: skip

    @property
    def records(self) -> EncodedRecords:
        """The records until now."""
        return EncodedRecords.of(self)


def filled(rows: list[Row]) -> Batch:
    """A batch that these rows fill to the last byte."""
    batch = Batch(size=len(built(rows)), count=len(rows))
    assert [batch.add(row) for row in rows] == list(range(len(rows)))
    return batch


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
        timestamp = row.now_ns // 1_000_000 if row.timestamp is None else row.timestamp
        builder.append(row.key, row.value, timestamp=timestamp, headers=row.headers)
    return builder.build()


@settings(max_examples=examples(200))
@given(st.lists(ROW, min_size=1, max_size=6), st.sampled_from([1, 20]))
def test_a_batch_is_the_builders_byte_for_byte(rows: list[Row], times: int) -> None:
    """Keys, headers, nulls and timestamps, in small batches and in large ones."""
    batch = filled(rows * times)
    assert batch.records.encode(PLAIN) == built(rows * times)
    assert list(batch.times) == [
        row.now_ns // 1_000_000 if row.timestamp is None else row.timestamp for row in rows * times
    ]


@settings(max_examples=examples(100))
@given(st.lists(ROW, min_size=1, max_size=9), st.integers(0, 9))
def test_a_record_without_room_changes_nothing(rows: list[Row], spare: int) -> None:
    """The first record that does not fit, and each for a closed batch, is refused."""
    whole = built(rows)
    batch = Batch(size=len(whole) - 1 - spare % len(rows), count=len(rows))
    taken = [index for row in rows if (index := batch.add(row)) != NO_ROOM]
    assert taken == list(range(len(taken))) != list(range(len(rows)))
    batch.close()
    before = bytes(batch.block), bytes(batch.times)
    assert [batch.add(row) for row in rows] == [NO_ROOM] * len(rows)
    assert (bytes(batch.block), bytes(batch.times)) == before
    assert not any(batch.block[batch.position :])


def test_times_that_lie_too_far_apart_do_not_share_a_batch() -> None:
    """The difference of two timestamps has 64 bits in the log, and times of both signs more."""
    early, late = (Row(b"k", b"v", (), each, 0) for each in (-(2**62) + 1, 2**63 - 1))
    for rows in ([early, late], [late, early]):
        batch = Batch(size=1000, count=9)
        assert [batch.add(row) for row in rows] == [0, NO_ROOM]


def test_a_state_without_room_for_a_timestamp_refuses_the_record() -> None:
    """The number of records is bounded as their bytes are."""
    batch = Batch(size=1000, count=2)
    assert [batch.add(Row(b"x")) for _ in range(3)] == [0, 1, NO_ROOM]


@pytest.mark.parametrize("count", [3, 30, 3000])
@pytest.mark.parametrize("size", [0, 63, 64, 2040, 2048, 9000, 70_000])
def test_sizes_at_the_edges_of_varints_are_right(count: int, size: int) -> None:
    """Records are right at sizes where a varint grows or leaves the table."""
    count = min(count, 3_000_000 // (size + 1))
    rows = [Row(bytes(size), now_ns=NOW_NS + index * 10**9) for index in range(count)]
    assert filled(rows).records.encode(PLAIN) == built(rows)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 100])
def test_a_compressed_batch_is_read_back(codec: Codec, count: int) -> None:
    """The header names the codec and the producer, and the records are those that were given."""
    rows = [Row(b"value %d" % i, b"key", (("h", None),), NOW_MS + i) for i in range(count)]
    fields = BatchFields(codec, None, 7, 2, 41, is_transactional=True)
    data = filled(rows).records.encode(fields)
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
    records = filled(rows).records
    sizes = [len(records.encode(BatchFields(Codec.GZIP, level))) for level in (1, 9)]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@settings(max_examples=examples(50))
@given(st.lists(ROW, min_size=2, max_size=12), st.integers(2, 4))
def test_parts_have_the_records_of_the_whole(codec: Codec, rows: list[Row], parts: int) -> None:
    """Each part is the batch of its records alone, also after the whole was encoded."""
    parts = min(parts, len(rows))
    whole = filled(rows).records
    whole.encode(BatchFields(codec))
    made = whole.split(parts)
    cuts = [len(rows) * part // parts for part in range(parts + 1)]
    assert [part.encode(PLAIN) for part in made] == [
        built(rows[start:stop]) for start, stop in pairwise(cuts)
    ]


@settings(max_examples=examples(200))
@given(st.lists(ROW, min_size=1, max_size=30))
def test_the_sum_of_the_bounds_is_never_less_than_the_batch(rows: list[Row]) -> None:
    """The sum of the bounds is never less than the batch, as long as clocks do not jump."""
    rows = [row._replace(now_ns=NOW_NS + index * 10**9) for index, row in enumerate(rows)]
    bound = sum(
        record_size_bound(
            row.key, row.value, pack_headers(row.headers),
            has_timestamp=any(each.timestamp is not None for each in rows),
        )
        for row in rows
    )  # fmt: skip
    assert len(built(rows)) <= BATCH_OVERHEAD + bound


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 2**20, 2**27])
def test_the_bound_holds_for_a_first_record_of_any_size(size: int) -> None:
    """A batch that is opened for a record has room for it."""
    for key in (None, b"", bytes(size)):
        row = Row(bytes(size), key, timestamp=2**62)
        bound = record_size_bound(key, row.value, b"\2\2h\2x", has_timestamp=True)
        batch = Batch(size=BATCH_OVERHEAD + bound, count=1)
        assert batch.add(row._replace(headers=(("h", b"x"),))) == 0


def test_the_bound_holds_at_its_own_limits() -> None:
    """1 MiB of records of any size fit, also 17 minutes after the first record."""
    for size, key in ((0, None), (0, b""), (8192, None), (8192, b"k" * 8192), (2**20 - 100, None)):
        count = (2**20 - BATCH_OVERHEAD) // record_size_bound(key, bytes(size))
        row = Row(bytes(size), key, now_ns=NOW_NS + (2**20 - 1) * 10**6)
        rows = [row._replace(now_ns=NOW_NS), *[row] * (count - 1)]
        bound = sum(record_size_bound(row.key, row.value) for row in rows)
        assert len(built(rows)) <= BATCH_OVERHEAD + bound


def test_send_needs_no_numpy() -> None:
    """A process that sends records one by one imports no numpy."""
    code = "import sys, tailrace.client.producer.producer; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]


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
