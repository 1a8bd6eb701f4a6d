"""A work item by itself: log in, Parquet out, without Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.model import Offset, TopicPartition
from tailrace.records.builder import Record
from tailrace.records.schema import Column
from tailrace.spark.jobs.archive import LOSSLESS
from tailrace.spark.jobs.archive_files import (
    NAME,
    PERIODS_MAX,
    ArchiveTask,
    StagedRange,
    split_by_period,
    write_item,
)
from tailrace.spark.options import parse_options
from tailrace.spark.planning import OffsetRange
from tests.spark.directories import batch_of, write_segment
from tests.unit.records.batches import record_at

FLIGHTS = TopicPartition("flights", 0)
DAY_MS = 86_400_000


def written(
    tmp_path: Path, records: list[Record], *, limit: int, by: str = "date"
) -> list[StagedRange]:
    """Do one work item with all these records, and return its ranges."""
    write_segment(tmp_path / "data", FLIGHTS, 0, batch_of(records))
    task = ArchiveTask(
        options=parse_options({"path": str(tmp_path / "data"), "subscribe": "flights"}),
        target=str(tmp_path / "lake"),
        columns=LOSSLESS,
        by=by,
        file_bytes=1 << 20,
        codec="zstd",
    )
    wanted = OffsetRange(partition=FLIGHTS, start=Offset(0), limit=Offset(limit), size=0)
    return write_item(task, (wanted,))


def test_a_new_column_of_the_source_asks_whether_archives_have_it() -> None:
    """Each column is in new archives, or is one of those that are left out."""
    in_the_path = {"topic"}
    changed_by_compaction_and_copies = {"file", "position"}
    left_out = in_the_path | changed_by_compaction_and_copies
    assert {*LOSSLESS} | left_out == {column.value for column in Column}
    assert left_out.isdisjoint(LOSSLESS)


def test_files_are_named_by_their_range_and_period(tmp_path: Path) -> None:
    """All of a range have its offsets in their names, and stand in staging under others."""
    records = [record_at(n, n * DAY_MS // 2, b"", b"") for n in range(3)]
    [staged] = written(tmp_path, records, limit=3)
    assert [(file.name, file.rows, file.first, file.last) for file in staged.entry.files] == [
        (
            "topic=flights/date=1970-01-01/0-00000000000000000000-00000000000000000003.parquet",
            2, 0, 1,
        ),
        (
            "topic=flights/date=1970-01-02/0-00000000000000000000-00000000000000000003.parquet",
            1, 2, 2,
        ),
    ]  # fmt: skip
    assert sorted(staged.renamed.values()) == [file.name for file in staged.entry.files]
    assert all(NAME.fullmatch(name) for name in staged.renamed.values())
    for temporary, name in staged.renamed.items():
        path = tmp_path / "lake" / temporary
        [file] = [each for each in staged.entry.files if each.name == name]
        assert path.stat().st_size == file.bytes
        assert pq.ParquetFile(path).metadata.num_rows == file.rows
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2


def test_two_attempts_do_not_meet(tmp_path: Path) -> None:
    """The same work twice gives the same entry in other files."""
    records = [record_at(0, 0, b"k", b"v")]
    [first], [second] = (written(tmp_path, records, limit=1) for _ in range(2))
    assert first.entry == second.entry
    assert not first.renamed.keys() & second.renamed.keys()


def test_records_of_many_periods_come_as_they_are(tmp_path: Path) -> None:
    """More dates than files may be open are files all the same, with every row."""
    count = 3 * PERIODS_MAX
    records = [record_at(n, (n * 7 % count) * DAY_MS, b"", b"") for n in range(count)]
    staged = written(tmp_path, records, limit=count)
    assert sum(len(each.entry.files) for each in staged) == count
    assert sum(file.rows for each in staged for file in each.entry.files) == count
    assert [each.entry.start for each in staged] == [0]


def test_a_range_without_records_is_an_entry_without_files(tmp_path: Path) -> None:
    """Compaction and control records leave such ranges, and the archive continues behind them."""
    write_segment(
        tmp_path / "data", FLIGHTS, 0, batch_of([record_at(0, 0, None, b"")], is_control=True)
    )
    task = ArchiveTask(
        options=parse_options({"path": str(tmp_path / "data"), "subscribe": "flights"}),
        target=str(tmp_path / "lake"), columns=LOSSLESS, by="date", file_bytes=1, codec="none",
    )  # fmt: skip
    wanted = OffsetRange(partition=FLIGHTS, start=Offset(0), limit=Offset(1), size=0)
    [staged] = write_item(task, (wanted,))
    assert (staged.entry.limit, staged.entry.rows, staged.entry.files) == (1, 0, ())


def test_periods_are_of_utc_and_of_years_that_exist() -> None:
    """A time that no calendar has, and none at all, are in the directory for null."""
    times = [0, DAY_MS - 1, DAY_MS, 1_700_000_000_123, -1, 9_223_372_036_854_775]
    table = pa.table({"timestamp": pa.array(times, pa.timestamp("ms", tz="UTC"))})
    null = "date=__HIVE_DEFAULT_PARTITION__"
    assert [(name, len(part)) for name, part in split_by_period(table, "date")] == [
        (null, 2), ("date=1970-01-01", 2), ("date=1970-01-02", 1), ("date=2023-11-14", 1),
    ]  # fmt: skip
    assert [name for name, _ in split_by_period(table.slice(3), "hour")] == [
        f"{null}/hour=__HIVE_DEFAULT_PARTITION__", "date=2023-11-14/hour=22",
    ]  # fmt: skip
