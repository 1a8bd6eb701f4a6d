"""Tests of tasks that read directories: the rows, the columns, and the place of any damage."""

import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import CorruptionError, FatalError
from tailrace.model import Codec, Offset, TopicPartition
from tailrace.reading.columns import arrow_schema
from tailrace.records import layout
from tailrace.spark.batch_reader import plan_scan, read_task
from tailrace.spark.options import parse_options
from tailrace.spark.planning import OffsetRange, ScanTask
from tailrace.spark.stores import DirectoryStore, open_store
from tests.spark.directories import batch_of, numbered, write_numbered, write_segment
from tests.unit.records.batches import record_at

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def read(data: Path, *columns: str, tasks: int = 1, **options: str) -> list[dict[str, Any]]:
    """All rows of topic `t`, planned and read as Spark would."""
    columns = columns or ("offset",)
    parsed = parse_options(
        {"path": str(data), "subscribe": "t", "minPartitions": str(tasks)} | options
    )
    rows = []
    for task in plan_scan(parsed, open_store(parsed), core_count=1):
        batches = read_task(
            task,
            open_store(parsed),
            columns=columns,
            fails_on_data_loss=parsed.fails_on_data_loss,
            corruption_report=parsed.corruption_report,
        )
        for batch in batches:
            assert batch.schema.equals(arrow_schema(columns))
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def read_range(data: Path, start: int, limit: int, *, fails_on_data_loss: bool = True) -> list[int]:
    """Offsets of a range of `t-0` that was planned earlier."""
    task = ScanTask(
        ranges=(OffsetRange(partition=T0, start=Offset(start), limit=Offset(limit), size=0),),
    )
    batches = read_task(
        task,
        DirectoryStore(str(data)),
        columns=("offset",),
        fails_on_data_loss=fails_on_data_loss,
    )
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    """The column `offset`."""
    return [row["offset"] for row in rows]


def test_every_column_is_as_declared(tmp_path: Path) -> None:
    """All of a record's parts come back, with nulls where there is nothing."""
    records = [
        record_at(0, 1500, b"k", b"v", (("h", b"1"), ("h", None))),
        record_at(1, 2500, None, None),
    ]
    write_segment(tmp_path, T1, 0, batch_of(records))
    first, second = read(tmp_path, *ALL)
    assert first["timestamp"].timestamp() == 1.5
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert [first[name] for name in ALL[:5]] == [b"k", b"v", "t", 1, 0]
    assert [second[name] for name in ALL[:5]] == [None, None, "t", 1, 1]
    assert (second["timestampType"], second["headers"]) == (0, None)


@pytest.mark.parametrize("columns", [("topic",), ("partition", "offset"), ("headers", "key")])
def test_a_choice_of_columns_keeps_its_order(tmp_path: Path, columns: tuple[str, ...]) -> None:
    """Columns come in the order of the schema, also if none is a field of the records."""
    write_numbered(tmp_path, T0, limit=25)
    rows = read(tmp_path, *columns)
    assert len(rows) == 25
    assert tuple(rows[0]) == columns


def test_segments_and_partitions_follow_each_other(tmp_path: Path) -> None:
    """Three segments and two partitions give each offset once, in order, in any number of tasks."""
    write_numbered(tmp_path, T0, limit=40)
    write_numbered(tmp_path, T0, first=40, limit=73)
    write_numbered(tmp_path, T0, first=73, limit=90)
    write_numbered(tmp_path, T1, first=5, limit=20)
    expected = [*range(90), *range(5, 20)]
    for tasks in (1, 2, 7, 105, 200):
        assert offsets(read(tmp_path, tasks=tasks)) == expected
    values = read(tmp_path, "value", "offset", tasks=4)
    assert all(row["value"] == b"value-%d" % row["offset"] for row in values)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(tmp_path: Path, codec: Codec) -> None:
    """The same rows come out whatever the producer compressed with."""
    write_segment(tmp_path, T0, 0, batch_of(numbered(0, 50), codec=codec))
    assert [row["value"] for row in read(tmp_path, "value")] == [
        b"value-%d" % number for number in range(50)
    ]


def test_control_records_are_not_rows(tmp_path: Path) -> None:
    """A commit marker takes an offset and gives no row."""
    marker = record_at(10, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")
    content = (
        batch_of(numbered(0, 10)) + batch_of([marker], is_control=True) + batch_of(numbered(11, 15))
    )
    write_segment(tmp_path, T0, 0, content)
    assert offsets(read(tmp_path)) == [*range(10), *range(11, 15)]
    assert (
        read(tmp_path, startingOffsets='{"t": {"0": 10}}', endingOffsets='{"t": {"0": 11}}') == []
    )


@pytest.mark.parametrize("left", [1, 16, 17, 60, 61, 100])
def test_an_append_in_progress_is_left_out(tmp_path: Path, left: int) -> None:
    """A batch that is not whole at the very end of the log does not exist yet."""
    path = write_numbered(tmp_path, T0, limit=20)
    path.write_bytes(path.read_bytes() + batch_of(numbered(20, 30))[:left])
    assert offsets(read(tmp_path)) == list(range(20))


def test_an_index_padded_with_zeros_is_understood(tmp_path: Path) -> None:
    """The index of a live segment is longer than its entries; ranges are found all the same."""
    path = write_numbered(tmp_path, T0, limit=100)
    position = path.read_bytes().index(batch_of(numbered(50, 60)))
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 59, position) + bytes(8 * 1000))
    for start in (0, 50, 55, 95):
        assert read_range(tmp_path, start, 100) == list(range(start, 100))


def test_damage_is_located_and_never_a_row(tmp_path: Path) -> None:
    """A flipped bit in a record fails the task, with file, position and offset."""
    path = write_numbered(tmp_path, T0, limit=30)
    content = bytearray(path.read_bytes())
    position = content.index(batch_of(numbered(10, 20)))
    content[position + 100] ^= 4
    path.write_bytes(content)
    with pytest.raises(CorruptionError) as caught:
        read_range(tmp_path, 0, 30)
    assert (caught.value.path, caught.value.position) == (str(path), position)
    assert caught.value.offset == 10
    assert read_range(tmp_path, 20, 30) == list(range(20, 30))


def test_a_broken_record_under_a_right_checksum_is_located_too(tmp_path: Path) -> None:
    """A fault that only the decoder finds is reported with file, position and offset."""
    import crc32c

    bad = bytearray(batch_of(numbered(10, 20)))
    bad[layout.RECORDS_POSITION] = 0xFF
    layout.CRC.pack_into(bad, layout.CRC_POSITION, crc32c.crc32c(bad[layout.ATTRIBUTES_POSITION :]))
    good = batch_of(numbered(0, 10))
    path = write_segment(tmp_path, T0, 0, good + bad)
    with pytest.raises(CorruptionError) as caught:
        read(tmp_path)
    assert (caught.value.path, caught.value.position) == (str(path), len(good))


def test_an_old_format_is_read(tmp_path: Path) -> None:
    """A message of format v1 is a row like any other."""
    message = struct.pack(">bbqii", 1, 0, 0, -1, 1) + b"v"
    old = struct.pack(">qiI", 0, 4 + len(message), zlib.crc32(message)) + message
    write_segment(tmp_path, T0, 0, old)
    assert read(tmp_path, "offset", "key", "value") == [{"offset": 0, "key": None, "value": b"v"}]


def test_records_that_went_between_plan_and_task_are_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error by default; with failOnDataLoss=false the rest, and a line says what is gone."""
    write_numbered(tmp_path, T0, first=20, limit=40)
    with pytest.raises(FatalError, match=r"offsets 0 to 40 were planned.*failOnDataLoss=false"):
        read_range(tmp_path, 0, 40)
    assert read_range(tmp_path, 0, 40, fails_on_data_loss=False) == list(range(20, 40))
    assert read_range(tmp_path, 0, 20, fails_on_data_loss=False) == []
    assert read_range(tmp_path, 30, 50, fails_on_data_loss=False) == list(range(30, 40))
    assert [each.partition("t-0: offsets ")[2] for each in caplog.messages] == [
        "0 to 40 were planned, of which 0 to 20 are gone: 20 offsets",
        "0 to 20 were planned, of which 0 to 20 are gone: 20 offsets",
        "30 to 50 were planned, of which 40 to 50 are gone: 10 offsets",
    ]


def test_offsets_are_found_by_timestamp(tmp_path: Path) -> None:
    """The first record at or after a time begins the range, and ends it."""
    write_numbered(tmp_path, T0, limit=50)
    rows = read(tmp_path, startingTimestamp="12500", endingTimestamp="31000")
    assert offsets(rows) == list(range(13, 31))
    assert offsets(read(tmp_path, endingTimestamp="999999")) == list(range(50))


def test_deleted_offsets_are_not_read(tmp_path: Path) -> None:
    """The checkpoint of the log start counts, not the start of the file."""
    write_numbered(tmp_path, T0, limit=50)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 33\n")
    assert offsets(read(tmp_path)) == list(range(33, 50))


def test_large_data_comes_in_chunks(tmp_path: Path) -> None:
    """A task never holds much more than 8 MiB of rows."""
    records = [record_at(offset, 0, None, bytes(500_000)) for offset in range(4)]
    content = b"".join(
        batch_of([record._replace(offset=Offset(4 * number + record.offset)) for record in records])
        for number in range(10)
    )
    write_segment(tmp_path, T0, 0, content)
    parsed = parse_options({"path": str(tmp_path), "subscribe": "t"})
    [task] = plan_scan(parsed, DirectoryStore(str(tmp_path)), core_count=1)
    store = DirectoryStore(str(tmp_path))
    batches = list(read_task(task, store, columns=("topic", "value"), fails_on_data_loss=True))
    assert sum(batch.num_rows for batch in batches) == 40
    assert len(batches) == 2
    assert max(batch.nbytes for batch in batches) < 12 * 1024 * 1024


def test_the_folder_of_a_partition_is_told_from_a_data_directory(tmp_path: Path) -> None:
    """A path that is one level too deep, and one that is nowhere."""
    write_numbered(tmp_path, T0, limit=5)
    with pytest.raises(FatalError, match="is the folder of one partition"):
        read(tmp_path / "t-0")
    with pytest.raises(FatalError, match="is not a directory"):
        read(tmp_path / "nowhere")


def test_a_log_without_records_has_no_rows(tmp_path: Path) -> None:
    """An empty segment, and a partition whose folder is empty."""
    write_segment(tmp_path, T0, 0, b"")
    (tmp_path / "t-1").mkdir()
    assert read(tmp_path) == []


def test_the_schema_has_sparks_types() -> None:
    """Spark refuses a first batch with any other."""
    assert arrow_schema(ALL).field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert arrow_schema(ALL).field("partition").type == pa.int32()
    assert all(field.nullable for field in arrow_schema(ALL))
