"""Archives of directories and brokers in a real session: what is there after runs, ended or not."""

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from tailrace import Broker, FatalError
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.archive import (
    ArchiveSettings,
    ArchiveSummary,
    archive,
    follow_archive,
)
from tailrace.spark.jobs.manifest import sealed
from tailrace.spark.jobs.verify_archive import ArchiveReport, verify_archive
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`flights` with 300 and 50 numbered records, a second apart."""
    directory = tmp_path / "data"
    write_numbered(directory, FLIGHTS, limit=300)
    write_numbered(directory, TopicPartition("flights", 1), limit=50)
    return directory


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return the directory of archives."""
    return tmp_path / "lake"


def run(spark: SparkSession, data: Path, lake: Path, **settings: object) -> ArchiveSummary:
    """One run of all that a directory has."""
    chosen = ArchiveSettings(**settings)  # type: ignore[arg-type]
    return archive(spark, everything(data), str(lake), settings=chosen)


def everything(data: Path) -> dict[str, str]:
    """Options for all topics of a directory."""
    return {"path": str(data), "subscribePattern": ".*"}


def verified(spark: SparkSession, data: Path | None, lake: Path) -> ArchiveReport:
    """The report of a verification, with the log if there is one."""
    return verify_archive(spark, None if data is None else everything(data), str(lake))


def rules(report: ArchiveReport) -> list[str]:
    """The rules of its findings."""
    return sorted({finding.rule for finding in report.findings})


def rows(spark: SparkSession, lake: Path) -> list[Row]:
    """All rows of an archive, as Spark reads it without knowing of us, in their order."""
    frame = spark.read.parquet(str(lake)).selectExpr("*", "unix_millis(timestamp) AS ms")
    return list(frame.orderBy("topic", "partition", "offset").collect())


def parquet_files(lake: Path) -> list[str]:
    """Names of the data files that Spark would read."""
    return sorted(str(path.relative_to(lake)) for path in lake.glob("topic=*/**/*.parquet"))


@pytest.mark.smoke
def test_spark_reads_every_record_with_every_byte(spark: SparkSession, tmp_path: Path) -> None:
    """Keys, values, headers, nulls and milliseconds come back, by topic and date."""
    records = [
        record_at(0, 1_700_000_000_123, b"k", b"v\x00\xff", (("h", b"1"), ("h", None))),
        record_at(1, 1_700_000_000_123 + DAY_MS, None, b""),
        record_at(2, 1_700_000_000_124, b"k", None),
        record_at(3, -1, None, b"no time"),
    ]
    write_segment(tmp_path / "data", FLIGHTS, 0, batch_of(records))
    summary = run(spark, tmp_path / "data", tmp_path / "lake")
    assert (summary.rows, summary.files, summary.dead_letters) == (4, 3, 0)
    found = rows(spark, tmp_path / "lake")
    assert [
        (
            row["offset"], row["ms"], row["key"], row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for row in found
    ] == [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in records
    ]  # fmt: skip
    assert {row["topic"] for row in found} == {"flights"}
    assert [str(row["date"]) for row in found] == ["2023-11-14", "2023-11-15", "2023-11-14", "None"]
    assert verified(spark, tmp_path / "data", tmp_path / "lake").findings == ()


@pytest.mark.smoke
def test_a_run_goes_on_where_the_last_one_ended(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    """New records come on top, and a run with nothing new changes nothing."""
    assert run(spark, data, lake).rows == 350
    before = parquet_files(lake)
    assert run(spark, data, lake).rows == 0
    assert parquet_files(lake) == before
    write_numbered(data, FLIGHTS, first=300, limit=320)
    write_numbered(data, TopicPartition("other", 0), limit=5)
    assert run(spark, data, lake).rows == 25
    assert set(before) < set(parquet_files(lake))
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows(spark, lake)] == [
        *(("flights", 0, n) for n in range(320)),
        *(("flights", 1, n) for n in range(50)),
        *(("other", 0, n) for n in range(5)),
    ]
    report = verified(spark, data, lake)
    assert (report.findings, report.rows, report.compared) == ((), 375, 375)


def test_files_end_at_the_target_size(spark: SparkSession, data: Path, lake: Path) -> None:
    """The ranges in the names of small files cover all offsets."""
    run(spark, data, lake, target_file_bytes=4000)
    found = [Path(name).stem.split("-") for name in parquet_files(lake) if "/0-" in name]
    assert len(found) > 2
    assert [int(start) for _, start, _ in found] == [0, *(int(end) for _, _, end in found[:-1])]
    assert int(found[-1][2]) == 300
    assert verified(spark, data, lake).findings == ()


def test_a_run_killed_before_the_manifest_leaves_no_trace(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    """Files that were written and named but do not count go, and the rows come once."""
    run(spark, data, lake)
    manifest = max(lake.glob("_manifest/*.json"))
    manifest.unlink()
    (lake / "_staging").mkdir(exist_ok=True)
    (lake / "_staging" / "left.parquet").write_bytes(b"half")
    write_numbered(data, FLIGHTS, first=300, limit=310)
    assert run(spark, data, lake).rows == 360
    assert len(rows(spark, lake)) == 360
    assert list(lake.glob("_staging/*")) == []
    assert verified(spark, data, lake).findings == ()


def test_hours_have_directories_of_their_own(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    """Records of three hours are in three directories, and stay by hour."""
    records = [record_at(n, n * 1_800_000, b"", b"") for n in range(6)]
    write_segment(tmp_path / "data", FLIGHTS, 0, batch_of(records))
    run(spark, tmp_path / "data", lake, by="hour")
    end = "0-00000000000000000000-00000000000000000006.parquet"
    assert parquet_files(lake) == [
        f"topic=flights/date=1970-01-01/hour={hour:02}/{end}" for hour in range(3)
    ]
    with pytest.raises(ConfigError, match="the archive is by hour, and stays so"):
        run(spark, tmp_path / "data", lake, by="date")


@pytest.mark.smoke
def test_json_becomes_columns_and_the_rest_dead_letters(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    """A value that does not fit is kept as it is, and told with its place and the reason."""
    values = [b'{"a": 1, "b": {"c": [0.5]}}', b"oops", None, b'{"a": "x"}', b'{"a": 2, "z": 0}']
    records = [record_at(n, n, b"k", value) for n, value in enumerate(values)]
    write_segment(tmp_path / "data", FLIGHTS, 0, batch_of(records))
    schema = "a BIGINT, b STRUCT<c: ARRAY<DOUBLE>>"
    summary = run(spark, tmp_path / "data", lake, value_schema=schema)
    assert (summary.rows, summary.dead_letters) == (5, 2)
    found = rows(spark, lake)
    assert [row["value"] for row in found] == values
    assert [row["json"] and row["json"]["a"] for row in found] == [1, None, None, None, 2]
    assert found[0]["json"]["b"]["c"] == [0.5]
    [dead] = lake.glob("_dead_letters/**/*.parquet")
    letters = spark.read.option("basePath", f"{lake}/_dead_letters").parquet(str(dead)).collect()
    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in letters] == [
        ("flights", 0, 1, b"oops"),
        ("flights", 0, 3, b'{"a": "x"}'),
    ]
    assert "Invalid value" in letters[0]["reason"]
    assert "changed from number to string" in letters[1]["reason"]
    assert verified(spark, tmp_path / "data", lake).findings == ()
    with pytest.raises(ConfigError, match="begun with another one"):
        run(spark, tmp_path / "data", lake, value_schema="a STRING")


def test_times_in_json_are_the_same_instants_in_spark(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    """Times with a zone, times without, and dates, from DDL to Parquet."""
    value = b'{"at": "2024-02-29T12:30:00+02:00", "local": "2024-02-29T12:30", "d": "2024-02-29"}'
    late = b'{"at": "2024-02-29T12:30:00Z", "d": "2024-02-29T12:30:00Z"}'
    records = [record_at(0, 0, b"k", value), record_at(1, 1, b"k", late)]
    write_segment(tmp_path / "data", FLIGHTS, 0, batch_of(records))
    schema = "at TIMESTAMP, local TIMESTAMP_NTZ, d DATE NOT NULL"
    summary = run(spark, tmp_path / "data", lake, value_schema=schema)
    assert (summary.rows, summary.dead_letters) == (2, 1)
    table = spark.read.parquet(str(lake)).where("offset = 0")
    assert dict(table.select("json.*").dtypes) == {
        "at": "timestamp",
        "local": "timestamp_ntz",
        "d": "date",
    }
    [row] = table.selectExpr(
        "unix_micros(json.at)", "string(json.local)", "string(json.d)"
    ).collect()
    instant = datetime(2024, 2, 29, 10, 30, tzinfo=UTC)
    assert tuple(row) == (instant.timestamp() * 1_000_000, "2024-02-29 12:30:00", "2024-02-29")


def test_a_type_that_json_lacks_ends_no_run_with_a_foreign_error(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    """The column, its type and what to use instead, also for what only the JVM refuses."""
    write_numbered(tmp_path / "data", FLIGHTS, limit=1)
    with pytest.raises(ConfigError, match=r"value_schema: a is char\(3\), .*; use string"):
        run(spark, tmp_path / "data", lake, value_schema="a CHAR(3)")
    with pytest.raises(ConfigError, match="value_schema: neither DDL nor JSON of Spark: "):
        run(spark, tmp_path / "data", lake, value_schema="a TIMESTAMP_LTZ(99)")


def test_a_schema_is_inferred_once(spark: SparkSession, tmp_path: Path, lake: Path) -> None:
    """The first values decide; later ones that differ are dead letters."""
    first = [
        record_at(0, 0, b"", b'{"n": 1, "t": "2024-01-02T03:04:05"}'),
        record_at(1, 0, b"", b"-"),
    ]
    write_segment(tmp_path / "data", FLIGHTS, 0, batch_of(first))
    assert run(spark, tmp_path / "data", lake, value_schema="infer").dead_letters == 1
    write_segment(
        tmp_path / "data", FLIGHTS, 2, batch_of([record_at(2, 0, b"", b'{"n": true, "m": 2}')])
    )
    assert run(spark, tmp_path / "data", lake, value_schema="infer").dead_letters == 1
    kind = spark.read.parquet(str(lake)).schema["json"].dataType.simpleString()
    assert kind == "struct<n:bigint,t:string>"


def rewrite(lake: Path, name: str, change: object) -> None:
    """The file with its table changed, as somebody's hand might."""
    table = pq.ParquetFile(lake / name).read()
    pq.write_table(change(table), lake / name)  # type: ignore[operator]


def accept_size(lake: Path) -> None:
    """Have the manifest say the sizes that the files have now, to reach the checks behind it."""
    for path in lake.glob("_manifest/*.json"):
        content = json.loads(path.read_text())
        for entry in content["entries"]:
            for file in entry["files"]:
                file["bytes"] = (lake / file["name"]).stat().st_size
        del content["digest"]
        path.write_bytes(sealed(content))


@pytest.mark.smoke
def test_verify_finds_what_is_missing_double_or_changed(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    """With a log the fault is found by offset, without one by the digest."""
    run(spark, data, lake)
    [first, second] = parquet_files(lake)
    (lake / "topic=flights/date=1970-01-01/copy.parquet").write_bytes((lake / second).read_bytes())
    [stray] = verified(spark, None, lake).findings
    assert (stray.rule, stray.path) == ("stray", "topic=flights/date=1970-01-01/copy.parquet")
    (lake / stray.path).unlink()

    whole = (lake / first).read_bytes()
    rewrite(lake, first, lambda table: table.take([n for n in range(300) if n != 17]))
    assert rules(verified(spark, None, lake)) == ["size"]
    accept_size(lake)
    assert rules(verified(spark, None, lake)) == ["digest", "rows"]
    report = verified(spark, data, lake)
    assert [(each.rule, each.offset) for each in report.findings if each.offset is not None] == [
        ("log", 17)
    ]

    (lake / first).write_bytes(whole)

    def changed(table: object) -> object:
        values = table.column("value").to_pylist()  # type: ignore[attr-defined]
        values[123] = b"forged"
        index = table.schema.get_field_index("value")  # type: ignore[attr-defined]
        return table.set_column(index, "value", [values])  # type: ignore[attr-defined]

    rewrite(lake, first, changed)
    accept_size(lake)
    report = verified(spark, data, lake)
    assert rules(report) == ["content", "digest"]
    assert [str(each) for each in report.findings if each.rule == "content"] == [
        f"{first}, offset 123: value is not as in the log [content]"
    ]

    (lake / second).unlink()
    assert {"missing", "digest"} <= set(rules(verified(spark, None, lake)))


def test_verify_finds_that_the_log_was_changed(spark: SparkSession, data: Path, lake: Path) -> None:
    """Other bytes at the same offsets are told; what retention took away is not."""
    run(spark, data, lake)
    other = [record_at(n, 1000 * n, b"key-%d" % n, b"other") for n in range(40, 50)]
    write_segment(data, TopicPartition("flights", 1), 0, b"")
    (data / "flights-1" / "00000000000000000000.log").unlink()
    write_segment(data, TopicPartition("flights", 1), 40, batch_of(other))
    report = verified(spark, data, lake)
    assert rules(report) == ["content"]
    assert (report.findings[0].offset, report.compared) == (40, 310)


def test_what_retention_took_before_it_was_archived_is_an_error(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    """A run that is told to go on says what the archive has lost."""
    run(spark, data, lake)
    (data / "flights-1" / "00000000000000000000.log").unlink()
    write_numbered(data, TopicPartition("flights", 1), first=60, limit=70)
    with pytest.raises(
        ConfigError, match="archived so far: flights-1 has offsets 60 to 70, not 50"
    ):
        run(spark, data, lake)
    options = everything(data) | {"failOnDataLoss": "false"}
    summary = archive(spark, options, str(lake))
    assert (summary.rows, summary.lost) == (10, 10)
    assert verified(spark, data, lake).findings == ()


def test_a_first_run_says_what_was_gone_before_it(
    spark: SparkSession, data: Path, lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if nothing is left, which would look like a topic that nobody has written to."""
    for partition, first in ((FLIGHTS, 300), (TopicPartition("flights", 1), 40)):
        (data / str(partition) / f"{0:020}.log").unlink()
        write_segment(data, partition, first, b"")
    summary = run(spark, data, lake)
    assert (summary.rows, summary.lost, summary.never_archived) == (0, 0, 340)
    assert caplog.messages == [
        f"startingOffsets: flights-{number} was to be read from offset 0 on, and its log begins at "
        f"{first}: {first} offsets are gone"
        for number, first in ((0, 300), (1, 40))
    ]
    write_numbered(data, TopicPartition("flights", 1), first=40, limit=50)
    assert run(spark, data, lake).never_archived == 340
    assert run(spark, data, lake).never_archived == 300, "flights-1 has begun"


def test_what_retention_took_counts_before_anything_comes(
    spark: SparkSession, data: Path, lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run that finds the log empty says what the archive lacks, and the manifest has it."""
    run(spark, data, lake)
    partition = TopicPartition("flights", 1)
    (data / "flights-1" / f"{0:020}.log").unlink()
    write_segment(data, partition, 90, b"")
    options = everything(data) | {"failOnDataLoss": "false"}
    summary = archive(spark, options, str(lake))
    assert (summary.rows, summary.lost, summary.never_archived) == (0, 40, 0)
    assert caplog.messages[-1] == (
        "archived so far: flights-1 was to be read from offset 50 on, and its log begins at 90: "
        "40 offsets are gone"
    )
    assert archive(spark, options, str(lake)).lost == 0
    write_numbered(data, partition, first=90, limit=100)
    assert archive(spark, options, str(lake)).rows == 10
    assert verified(spark, data, lake).findings == ()


@pytest.mark.smoke
def test_a_broker_is_followed(spark: SparkSession, tmp_path: Path, lake: Path) -> None:
    """Each round takes what came since, also from a URI's directory, and a stop loses nothing."""
    with Broker(tmp_path / "broker") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

        def produce(first: int, limit: int) -> None:
            for number in range(first, limit):
                producer.produce("t", b"%d" % number, key=b"k", headers=[("h", b"%d" % number)])
            producer.flush(60)

        produce(0, 100)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        runs = follow_archive(spark, options, lake.as_uri(), trigger_seconds=0)
        assert next(runs).rows == 100
        produce(100, 130)
        assert sum(each.rows for each in islice(runs, 1)) == 30
        runs.close()
        produce(130, 140)
        assert archive(spark, options, str(lake)).rows == 10
        report = verify_archive(spark, options, str(lake))
    assert (report.findings, report.rows, report.ahead) == ((), 140, 0)
    assert [int(bytes(row["value"])) for row in rows(spark, lake)] == list(range(140))


def test_damage_ends_a_run_with_its_place(spark: SparkSession, data: Path, lake: Path) -> None:
    """One sentence with file and offset, no traceback, and nothing of the round counts."""
    path = data / "flights-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-20] ^= 4
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"flights-0/0+\.log.*CRC-32C") as caught:
        run(spark, data, lake)
    assert "Traceback" not in str(caught.value)
    assert parquet_files(lake) == []


def test_uris_of_this_machine_name_data_and_archive(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    """Both forms of them, wherever a path may be given; the archive is where its path says."""
    options = everything(data) | {"path": f"file:{data}"}
    archive(spark, options, f"file:{lake}")
    assert archive(spark, everything(data) | {"path": data.as_uri()}, lake.as_uri()).rows == 0
    assert verified(spark, data, lake).findings == ()
    assert parquet_files(lake)


@pytest.mark.smoke
def test_two_runs_at_once_are_refused(spark: SparkSession, data: Path, lake: Path) -> None:
    """The second is told that there is a first."""
    runs = follow_archive(spark, everything(data), str(lake), trigger_seconds=0)
    next(runs)
    with pytest.raises(FatalError, match="another run is writing to it"):
        run(spark, data, lake)
    runs.close()
