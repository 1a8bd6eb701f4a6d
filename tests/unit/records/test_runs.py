"""Runs of batches: the same batches as one by one, and the same columns from one call."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset, TimestampType
from tailrace.records import layout
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import Record
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.legacy import read_all_batches
from tailrace.records.runs import RUN_BYTES, BatchRun, batches_of, read_runs
from tests.examples import examples
from tests.naive import LegacyMessage, write_all_legacy
from tests.unit.records.batches import (
    DECODED,
    GOOD,
    ROWS,
    batch_with,
    built,
    record_at,
)


def stored(data: bytes, base_offset: int) -> bytes:
    """A batch where a broker has put it."""
    written = bytearray(data)
    stamp(memoryview(written), base_offset=base_offset, leader_epoch=3)
    return bytes(written)


def plain(count: int, *, size: int = 10, since: int = 0) -> bytes:
    """Return `count` batches of one record each."""
    rows = [record_at(0, 1000, b"key", b"v" * size)]
    return b"".join(stored(built(rows), since + number) for number in range(count))


def run_of(data: bytes) -> BatchRun:
    """The run that the bytes are."""
    [(_, piece)] = read_runs(memoryview(data))
    assert isinstance(piece, BatchRun)
    return piece


def test_what_will_not_do_in_a_run_comes_alone() -> None:
    """Compressed, transactional and control batches and old formats; all at their positions."""
    rows = [record_at(0, 5, b"key", b"value")]
    alone = [
        stored(built(rows, Codec.LZ4), 3),
        stored(built(rows, is_transactional=True, producer_id=7, producer_epoch=0,
                     base_sequence=0), 4),
        write_all_legacy([LegacyMessage(1, 5, b"key", b"value", 17)]),
    ]  # fmt: skip
    data = plain(3) + b"".join(alone) + plain(2, since=6) + plain(1)[:-1]
    reader = read_runs(memoryview(data))
    found = list(reader)
    assert [type(piece) for _, piece in found] == [BatchRun, Batch, Batch, Batch, BatchRun]
    one_by_one = [
        (position + at, bytes(batch.view), batch.base_offset)
        for position, piece in found
        for at, batch in batches_of(piece, Offset(0), Offset(INT64_MAX))
    ]
    expected = read_all_batches(memoryview(data))
    assert one_by_one == [(at, bytes(each.view), each.base_offset) for at, each in expected]
    assert reader.position == expected.position == len(data) - len(plain(1)) + 1


def test_damage_ends_a_run_before_it() -> None:
    """A wrong checksum, a negative count, more records than bytes."""
    good = plain(2)
    for position, value in (
        (len(plain(1)) - 1, 9),
        (layout.RECORD_COUNT_POSITION, 0xFF),
        (layout.RECORD_COUNT_POSITION + 1, 0xFF),
    ):
        bad = bytearray(plain(1, since=2))
        bad[position] = value
        reader = read_runs(memoryview(good + bad))
        at, run = next(reader)
        assert (at, run.next_offset, run.size) == (0, 2, len(good))
        at, batch = next(reader)
        assert at == len(good)
        assert isinstance(batch, Batch)
        with pytest.raises(CorruptionError):
            batch.check()


def test_offsets_that_decrease_end_a_run() -> None:
    """The batch before a decrease is alone, since no checksum covers its base offset."""
    size = len(plain(1))
    data = plain(4) + plain(1, since=90) + plain(2, since=5)
    found = [(at // size, piece.base_offset) for at, piece in read_runs(memoryview(data))]
    assert found == [(0, 0), (4, 90), (5, 5)]


def test_an_offset_that_has_no_next_one_is_not_in_a_run() -> None:
    """Its batch comes alone; the largest offsets before it are in a run."""
    size = len(plain(1))
    data = plain(2, since=INT64_MAX - 2) + plain(1, since=INT64_MAX)
    found = list(read_runs(memoryview(data)))
    assert [(at // size, type(piece)) for at, piece in found] == [(0, BatchRun), (2, Batch)]


def test_a_run_knows_the_sums_of_its_batches() -> None:
    """Records and offsets, whether one is missing, and whether a batch has a producer."""
    rows = [record_at(number, 0, b"k", b"v") for number in range(3)]
    batch = built(rows)
    run = run_of(b"".join(stored(batch, base) for base in (5, 8, 11)))
    assert (run.batch_count, run.record_count) == (3, 9)
    assert (run.base_offset, run.due_offset, run.last_offset) == (5, 11, 13)
    assert (run.is_dense, run.has_producers) == (True, False)
    assert [header[0] for header in (run.first_header, run.last_header)] == [5, 11]
    assert not run_of(stored(batch, 5) + stored(batch, 9)).is_dense
    produced = built(rows, producer_id=0, producer_epoch=0, base_sequence=0)
    assert run_of(stored(batch, 5) + stored(produced, 8)).has_producers
    newer = bytearray(stored(batch, 8))
    stamp(memoryview(newer), base_offset=8, leader_epoch=4)
    assert not run_of(stored(batch, 5) + newer).is_dense


def test_a_run_has_an_end() -> None:
    """It is handed out once it has its bytes, though more batches would do."""
    data = plain(40, size=RUN_BYTES // 16)
    runs = [piece for _, piece in read_runs(memoryview(data))]
    assert [run.size // len(plain(1, size=RUN_BYTES // 16)) for run in runs] == [16, 16, 8]
    assert [run.base_offset for run in runs] == [0, 16, 32]


def test_a_run_can_begin_later() -> None:
    """Without the batches before an offset; one that holds it stays."""
    rows = [record_at(number, 0, b"k", b"v") for number in range(3)]
    run = run_of(b"".join(stored(built(rows), base) for base in (0, 3, 10)))
    assert run.since(Offset(0)) is run
    assert (run.since(Offset(4)).base_offset, run.since(Offset(6)).base_offset) == (3, 10)
    assert run.since(Offset(4)).positions == [0, run.positions[1]]
    assert [each.base_offset for _, each in run.batches(Offset(5), Offset(11))] == [3, 10]
    assert [each.base_offset for _, each in run.batches(Offset(0), Offset(3))] == [0]


@settings(max_examples=examples(100), deadline=None, database=None)
@given(
    batches=st.lists(st.tuples(ROWS, st.sampled_from(TimestampType)), min_size=1, max_size=4),
    start=st.integers(0, 12),
    limit=st.integers(0, 24),
)
def test_a_run_gives_the_rows_of_its_batches(
    batches: list[tuple[list[Record], TimestampType]], start: int, limit: int
) -> None:
    """All columns of the records of the range, headers and those of the header of a batch too."""
    data, base = b"", 0
    for records, kind in batches:
        data += stored(
            built(
                records, timestamp_type=kind, producer_id=9, producer_epoch=1, base_sequence=base
            ),
            base,
        )
        base += len(records)
    whole, apart = ColumnsBuilder(DECODED), ColumnsBuilder(DECODED)
    counts = whole.append_run(run_of(data), start_offset=start, limit_offset=limit)
    assert counts == [
        apart.append(batch, start_offset=start, limit_offset=limit)
        for _, batch in read_all_batches(memoryview(data))
    ]
    rows = whole.finish()
    rows.validate(full=True)
    assert rows == apart.finish()


def test_a_record_that_is_not_sound_keeps_the_run_out() -> None:
    """No record of the run is added, and the builder can be used as before."""
    builder = ColumnsBuilder()
    everything = {"start_offset": 0, "limit_offset": INT64_MAX}
    builder.append_run(run_of(plain(2)), **everything)
    bad = bytes(batch_with(GOOD[:-1] + b"\x09", 1).view)
    assert builder.append_run(run_of(plain(2, since=2) + bad), **everything) is None
    assert builder.append_run(run_of(plain(1, since=9)), **everything) == [1]
    assert builder.finish()["offset"].to_pylist() == [0, 1, 9]
