"""Tables over the files of an archive, without Spark: each file is in the table once."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog import load_catalog
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructType
from sqlalchemy import URL

from tailrace.errors import ConfigError, CorruptionError, FatalError, StorageError
from tailrace.model import Offset, TopicPartition
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.archive import FORMAT, LOSSLESS, files_of
from tailrace.spark.jobs.archive_files import NAME, ArchiveTask, write_item
from tailrace.spark.jobs.json_values import arrow_type
from tailrace.spark.jobs.manifest import Manifest, open_manifest
from tailrace.spark.jobs.table_formats import SNAPSHOTS_MAX, Table
from tailrace.spark.jobs.tables import (
    DELTA,
    ICEBERG,
    archive_id_settings,
    changed_table_faults,
    fill_table,
    open_table,
    table_faults,
    table_schema,
    table_settings,
)
from tailrace.spark.jobs.verify_archive import table_findings
from tailrace.spark.options import parse_options
from tailrace.spark.planning import OffsetRange
from tests.spark.directories import batch_of, write_segment
from tests.unit.records.batches import record_at

FLIGHTS = TopicPartition("flights", 0)
DAY_MS = 86_400_000
SCHEMA = (
    StructType()
    .add("a", LongType())
    .add("b", StructType().add("c", ArrayType(DoubleType())))
    .json()
)

pytestmark = pytest.mark.parametrize("form", [DELTA, ICEBERG])


class Lake:
    """An archive that is written without Spark, two records a round."""

    def __init__(self, directory: Path, form: str, *, by: str = "date") -> None:
        self.path = directory / "lake"
        self.form = form
        self.options: dict[str, str] = {}
        self.has_id = True
        """Whether its release knows ids of archives."""
        self._data = directory / "data"
        self._by = by
        self._next = 0

    @contextmanager
    def opened(self) -> Iterator[tuple[Manifest, Table]]:
        """Its manifest and its table, for a run."""
        folder = open_folder(str(self.path))
        manifest = open_manifest(folder, form=FORMAT, files_of=files_of, owned=NAME)
        if not manifest.settings:
            settings = {"by": self._by, "columns": LOSSLESS, "has_json": True, "value_schemas": {}}
            noted = table_settings(self.form, self.options)
            manifest.add([], settings=settings | noted)
            manifest.add([], settings={"value_schemas": {"flights": SCHEMA}})
        if self.has_id and (noted := archive_id_settings(self.form, manifest)):
            manifest.add([], settings=noted)
        try:
            with open_table(self.form, folder, self.options) as table:
                assert table is not None
                yield manifest, table
        finally:
            folder.unlock()

    def add(self, manifest: Manifest, *times: int) -> None:
        """A round of the archive, without the table."""
        values = [b'{"a": %d, "b": {"c": [0.5]}}' % time for time in times]
        start, limit = self._next, self._next + len(times)
        records = [
            record_at(start + n, time, b"k", value, (("h", b"1"),))
            for n, (time, value) in enumerate(zip(times, values, strict=True))
        ]
        write_segment(self._data, FLIGHTS, start, batch_of(records))
        task = ArchiveTask(
            options=parse_options({"path": str(self._data), "subscribe": "flights"}),
            target=str(self.path), columns=LOSSLESS, by=self._by, file_bytes=1 << 20,
            codec="zstd", value_types={"flights": arrow_type(SCHEMA)},
        )  # fmt: skip
        wanted = OffsetRange(partition=FLIGHTS, start=Offset(start), limit=Offset(limit), size=0)
        staged = write_item(task, (wanted,))
        renamed = {old: new for each in staged for old, new in each.renamed.items()}
        manifest.folder.publish(renamed)
        manifest.add([asdict(each.entry) for each in staged])
        self._next = limit

    def rounds(self, count: int) -> None:
        """Rounds that come into the table one by one."""
        with self.opened() as (manifest, table):
            for number in range(count):
                self.add(manifest, number, number + 1)
                fill_table(table, manifest)

    def fill(self) -> None:
        """A start of the next run."""
        with self.opened() as (manifest, table):
            fill_table(table, manifest)

    def read(self) -> pa.Table:
        """The table, as its own library reads it."""
        if self.form == DELTA:
            query = 'SELECT * FROM t ORDER BY "offset"'
            table = DeltaTable(str(self.path))
            return pa.table(QueryBuilder().register("t", table).execute(query))
        return self.iceberg().scan().to_arrow().sort_by("offset")

    def iceberg(self) -> Any:
        """The table of its own catalog."""
        place = URL.create("sqlite", database=f"{self.path}/_iceberg/catalog.db")
        catalog = load_catalog("tailrace", type="sql", uri=place.render_as_string())
        try:
            return catalog.load_table("tailrace.archive")
        finally:
            catalog.close()

    def offsets(self) -> list[int]:
        """The offsets in the table, in their order."""
        found: list[int] = self.read().column("offset").to_pylist()
        return found

    def findings(self) -> list[str]:
        """Findings of a verification that are about the table."""
        found = table_findings(open_folder(str(self.path)), self.options)
        return [str(each) for each in found]

    def begin_again(self) -> None:
        """Remove the archive, and not its table, which may well stand in another place."""
        for name in ("_manifest", "_staging", "topic=flights"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self._next = 0

    def remove_table(self) -> None:
        """Remove all of the table but its files, if there is one."""
        shutil.rmtree(
            self.path / ("_delta_log" if self.form == DELTA else "_iceberg"), ignore_errors=True
        )


@pytest.mark.parametrize("by", ["date", "hour"])
def test_a_table_has_the_rows_of_the_files(form: str, by: str, tmp_path: Path) -> None:
    """Every column, and topic and period from the paths, also where the period is null."""
    lake = Lake(tmp_path, form, by=by)
    with lake.opened() as (manifest, table):
        lake.add(manifest, 0, DAY_MS + 7 * DAY_MS // 24, -1)
        fill_table(table, manifest)
        lake.add(manifest, DAY_MS)
        fill_table(table, manifest)
    found = lake.read()
    files = [pq.ParquetFile(path).read() for path in lake.path.glob("topic=*/**/*.parquet")]
    plain = pa.concat_tables(files).sort_by("offset")
    assert len(found) == 4
    for name in plain.column_names:
        expected = plain.column(name)
        assert found.column(name).cast(expected.type).to_pylist() == expected.to_pylist(), name
    assert found.column("topic").to_pylist() == ["flights"] * 4
    assert [each and str(each) for each in found.column("date").to_pylist()] == [
        "1970-01-01", "1970-01-02", None, "1970-01-02",
    ]  # fmt: skip
    if by == "hour":
        assert found.column("hour").to_pylist() == [0, 7, None, 0]
    assert lake.findings() == []


def test_what_a_killed_run_did_not_bring_into_the_table_comes_at_the_next_start(
    form: str, tmp_path: Path
) -> None:
    """Rounds in the manifest alone are added in one commit, and those in both are not again."""
    lake = Lake(tmp_path, form)
    lake.rounds(2)
    with lake.opened() as (manifest, _):
        for _ in range(3):
            lake.add(manifest, 5, 6)
    assert lake.offsets() == [0, 1, 2, 3]
    assert lake.findings() == []
    for _ in range(2):
        lake.fill()
        assert lake.offsets() == list(range(10))
    lake.rounds(1)
    assert lake.offsets() == list(range(12))
    assert lake.findings() == []


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_rounds_and_ends_of_runs_brings_each_file_once(
    form: str, seed: int, tmp_path: Path
) -> None:
    """Runs that end before a commit or after it, folds, and tables that are removed."""
    chance = random.Random(seed)
    lake = Lake(tmp_path, form)
    count = 0
    for _ in range(25):
        with lake.opened() as (manifest, table):
            for _ in range(chance.randrange(3)):
                lake.add(manifest, *range(chance.randint(1, 3)))
                if chance.random() < 0.6:
                    fill_table(table, manifest)
            count = max((entry["limit"] for entry in manifest.entries), default=0)
        if chance.random() < 0.15:
            lake.remove_table()
        if chance.random() < 0.3 and count:
            lake.fill()
            assert lake.offsets() == list(range(count))
    assert list(lake.path.glob("_manifest/*-*.json"))
    lake.fill()
    assert lake.offsets() == list(range(count))
    assert lake.findings() == []


def test_a_table_that_is_gone_is_made_anew(form: str, tmp_path: Path) -> None:
    """Also when the rounds have been folded, and when a part of a fold was in a table before."""
    lake = Lake(tmp_path, form)
    lake.rounds(8)
    with lake.opened() as (manifest, _):
        for _ in range(20):
            lake.add(manifest, 5, 6)
    assert list(lake.path.glob("_manifest/*-*.json"))
    assert lake.offsets() == list(range(16))
    lake.fill()
    assert lake.offsets() == list(range(56))
    lake.remove_table()
    lake.fill()
    assert lake.offsets() == list(range(56))
    assert lake.findings() == []


def test_a_table_that_is_ahead_of_the_manifest_is_told(form: str, tmp_path: Path) -> None:
    """The next rounds would have numbers that the table has already."""
    lake = Lake(tmp_path, form)
    lake.rounds(2)
    max(lake.path.glob("_manifest/*.json")).unlink()
    with pytest.raises(CorruptionError, match="the table has the files of round 4, and the man"):
        lake.fill()


def test_a_table_of_someone_else_is_refused(form: str, tmp_path: Path) -> None:
    """Its files are not the archive's, so nobody could tell which rounds it has."""
    lake = Lake(tmp_path, form)
    if form == DELTA:
        write_deltalake(str(lake.path), pa.table({"x": [1]}))
        expected = "has a Delta table that no archive made"
    else:
        lake.options = {"table": "a.b", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
        lake.rounds(1)
        lake.path = tmp_path / "other"
        expected = "table a.b of .*/other is of file:///.*/lake; give another table"
    with pytest.raises(FatalError, match=expected):
        lake.fill()


@pytest.mark.parametrize("had_id", [False, True])
def test_the_table_of_an_archive_that_was_begun_again_is_refused(
    form: str, tmp_path: Path, *, had_id: bool
) -> None:
    """Its rounds have the same numbers, and the files of those would never come into the table."""
    lake = Lake(tmp_path, form)
    lake.has_id = had_id
    lake.rounds(1)
    lake.begin_again()
    lake.has_id = True
    with lake.opened() as (manifest, _):
        for _ in range(5):
            lake.add(manifest, 5, 6)
    with pytest.raises(FatalError, match="has the files of another archive, which was there befo"):
        lake.fill()
    with pytest.raises(FatalError, match="drop the table to have it made again"):
        lake.findings()
    lake.remove_table()
    lake.fill()
    assert lake.offsets() == list(range(10))
    assert lake.findings() == []


def test_an_archive_from_before_there_were_ids_keeps_its_table(form: str, tmp_path: Path) -> None:
    """It gets an id at its next run, and the table with the next files."""
    lake = Lake(tmp_path, form)
    lake.has_id = False
    lake.rounds(2)
    lake.has_id = True
    lake.fill()
    lake.fill()
    lake.rounds(2)
    with lake.opened() as (_, table):
        assert table.archive_id() is not None
    lake.has_id = False
    lake.rounds(1)
    assert lake.offsets() == list(range(10))
    assert lake.findings() == []


def test_the_table_of_an_archive_stays_the_one_it_has(form: str, tmp_path: Path) -> None:
    """A verification that is given another table would otherwise find nothing to compare."""
    lake = Lake(tmp_path, form)
    catalog = {"table": "a.b", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    if form == ICEBERG:
        lake.options = catalog
    lake.rounds(1)
    assert lake.findings() == []
    settings = Manifest.open(open_folder(str(lake.path)), form=FORMAT).settings
    assert changed_table_faults(settings, form, lake.options) == []
    assert changed_table_faults({}, form, catalog) == []
    if form == ICEBERG:
        lake.options = {}
        with pytest.raises(ConfigError, match=r"of the archive is a\.b; give it, and its catalog"):
            lake.findings()
        [fault] = changed_table_faults(settings | {"table": None}, form, catalog)
        assert fault.endswith("is in a catalog of its own; give no other")
    [fault] = changed_table_faults(settings, "parquet", {})
    assert fault == f"format: the archive is {form}, and stays so"


def test_an_archive_that_was_moved_keeps_its_table_or_says_how_to_make_it(
    form: str, tmp_path: Path
) -> None:
    """Delta's paths are relative, and Iceberg's are not."""
    lake = Lake(tmp_path, form)
    lake.rounds(2)
    lake.path.rename(tmp_path / "moved")
    lake.path = tmp_path / "moved"
    if form == ICEBERG:
        with pytest.raises(FatalError, match=r"paths are absolute; remove .*/moved/_iceberg, and"):
            lake.fill()
        lake.remove_table()
    lake.rounds(1)
    assert lake.offsets() == list(range(6))


def test_two_runs_at_once_do_not_bring_a_round_twice(form: str, tmp_path: Path) -> None:
    """The second one finds the commit of the first, or fails."""
    lake = Lake(tmp_path, form)
    lake.rounds(1)
    folder = open_folder(str(lake.path))
    with lake.opened() as (manifest, table), open_table(form, folder, {}) as second:
        assert second is not None
        assert second.last_round() == table.last_round()
        lake.add(manifest, 5, 6)
        fill_table(table, manifest)
        fill_table(second, manifest)
    assert lake.offsets() == [0, 1, 2, 3]


def test_what_others_do_to_a_table_is_told_and_does_not_disturb(form: str, tmp_path: Path) -> None:
    """Files that were compacted in the table are not brought again."""
    lake = Lake(tmp_path, form)
    lake.rounds(2)
    if form == DELTA:
        DeltaTable(str(lake.path)).optimize.compact()
        count = 3  # Two that it lacks, and the new one.
    else:
        table = lake.iceberg()
        table.overwrite(table.scan().to_arrow())
        count = 3
    assert len(lake.findings()) == count
    assert all("[table]" in each for each in lake.findings())
    lake.rounds(1)
    assert lake.offsets() == list(range(6))


def test_a_path_and_its_uri_are_one_table(form: str, tmp_path: Path) -> None:
    """A run may name the archive by either."""
    lake = Lake(tmp_path, form)
    lake.rounds(1)
    with lake.opened() as (manifest, _):
        lake.add(manifest, 5, 6)
    folder = open_folder(lake.path.as_uri() + "/")
    with open_table(form, folder, {}) as table:
        assert table is not None
        fill_table(table, Manifest.open(folder, form=FORMAT))
    lake.rounds(1)
    assert lake.offsets() == list(range(6))


def test_a_path_may_have_any_characters(form: str, tmp_path: Path) -> None:
    """Escapes and ends of a URI are none in a path; Delta Lake refuses escapes."""
    directory = tmp_path / ("a b+c#d?e%f" if form == DELTA else "a b+c#d?e%20f")
    directory.mkdir()
    lake = Lake(directory, form)
    assert table_faults(form, str(lake.path), {}) == []
    lake.rounds(2)
    lake.rounds(1)
    assert lake.offsets() == list(range(6))
    assert lake.findings() == []
    assert [each.name for each in tmp_path.iterdir()] == [directory.name]


def test_a_table_has_one_type_of_json(form: str, tmp_path: Path) -> None:
    """Topics of several types need several archives, and the error says so."""
    assert table_faults(form, str(tmp_path), {}) == []
    settings = {
        "by": "date", "columns": LOSSLESS,
        "value_schemas": {"a": SCHEMA, "b": StructType().add("x", LongType()).json()},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="one type of JSON values, and not one for each of a, b"):
        table_schema(settings)


def test_statistics_of_files_help_to_find_offsets(form: str, tmp_path: Path) -> None:
    """A filter on offsets or partitions leaves out files by what the table says of them."""
    lake = Lake(tmp_path, form)
    lake.rounds(4)
    if form == DELTA:
        table = DeltaTable(str(lake.path))
        actions = pa.table(table.get_add_actions(flatten=True))
        assert pc.max(actions.column("max.offset")).as_py() == 7
        assert actions.column("num_records").to_pylist() == [2] * 4
        assert len(table.file_uris(file_pruning_predicate="offset > 5")) == 1
    else:
        files = list(lake.iceberg().scan(row_filter="offset > 5").plan_files())
        assert [each.file.record_count for each in files] == [2]
        assert list(lake.iceberg().scan(row_filter="topic = 'x'").plan_files()) == []


def test_a_table_that_cannot_be_read_is_told(form: str, tmp_path: Path) -> None:
    """The error is ours, and names the table."""
    lake = Lake(tmp_path, form)
    lake.rounds(1)
    pattern = "_delta_log/*.json" if form == DELTA else "_iceberg/metadata/*.json"
    for path in lake.path.glob(pattern):
        path.write_bytes(b"{")
    with pytest.raises(StorageError, match=r"table .*lake cannot be read: "):
        lake.fill()


@pytest.mark.parametrize("count", [pytest.param(SNAPSHOTS_MAX + 30, marks=pytest.mark.slow)])
def test_a_table_stays_small_in_many_rounds(form: str, count: int, tmp_path: Path) -> None:
    """Checkpoints and expired snapshots lose no file and no round."""
    lake = Lake(tmp_path, form)
    lake.rounds(count)
    assert lake.offsets() == list(range(2 * count))
    if form == DELTA:
        assert len(list(lake.path.glob("_delta_log/*.checkpoint.parquet"))) == count // 100
    else:
        assert len(lake.iceberg().metadata.snapshots) < SNAPSHOTS_MAX
        assert len(list(lake.path.glob("_iceberg/metadata/*.metadata.json"))) < 110
    lake.fill()
    assert lake.offsets() == list(range(2 * count))


FAULTS: dict[str, Callable[[str], list[str]]] = {
    "table is a name in a catalog; give catalog, or type and uri, too": lambda _: table_faults(
        ICEBERG, "/lake", {"table": "a.b"}
    ),
    "table, as in table=lake.flights, is missing": lambda _: table_faults(
        ICEBERG, "/lake", {"uri": "x"}
    ),
    "needs a catalog; give type, uri and table": lambda _: table_faults(
        ICEBERG, "s3://bucket/lake", {}
    ),
    "plain Parquet files have none; give the format, too": lambda _: table_faults(
        "parquet", "/lake", {"a": "b"}
    ),
    "deltalake misreads '/a%20b/lake'": lambda _: table_faults(DELTA, "/a%20b/lake", {}),
    r"deltalake misreads '/a\\b'": lambda _: table_faults(DELTA, r"/a\b", {}),
    "one of parquet, delta, iceberg, not 'orc'": lambda _: table_faults("orc", "/lake", {}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_table_options_are_told(form: str, fault: str) -> None:
    """One sentence for each, before anything is begun."""
    [sentence] = FAULTS[fault](form)
    assert fault in sentence
