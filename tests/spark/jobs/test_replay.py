"""Replays into a broker from directories, topics and archives, ended in time and killed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from tailrace import Broker, FatalError
from tailrace.client import ClusterReader, fetch_batches
from tailrace.client.admin import create_topic
from tailrace.client.producer import Producer
from tailrace.errors import ConfigError, RetriableError
from tailrace.model import Offset, TopicPartition
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.records.builder import Record, records_of
from tailrace.runtime.files import DiskFiles
from tailrace.spark.jobs.archive import archive
from tailrace.spark.jobs.replay import (
    ReplaySettings,
    ReplaySummary,
    check_arguments,
    replay,
)
from tailrace.spark.jobs.replay_plan import PlannedRange, SentRange
from tailrace.spark.jobs.replay_send import ReplayItem, send_item
from tailrace.spark.planning import OffsetRange
from tailrace.testing import TestBroker
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.spark.topics import batches, records
from tests.unit.records.batches import record_at
from tests.unit.storage.builders import FOLDER, open_at
from tests.unit.storage.transactional import TransactionalProducer, append_plain

pytestmark = [pytest.mark.spark, pytest.mark.wire]

DAY_MS = 86_400_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all targets."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


def make(bootstrap: str, topic: str, partition_count: int = 1, **settings: str) -> None:
    """A topic that keeps old records; settings have `_` for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    create_topic(
        bootstrap,
        topic,
        partition_count=partition_count,
        settings={"retention.ms": "-1", **named},
    )


def to(
    spark: SparkSession,
    bootstrap: str,
    source: dict[str, str],
    topic: str,
    offset_map: Path,
    *,
    keeps_partitions: bool = False,
    **producer: str,
) -> ReplaySummary:
    """One run of `t`, or all that is selected of it, to a topic."""
    return replay(
        spark,
        {"subscribe": "t", **source},
        {"bootstrap.servers": bootstrap, **producer},
        offset_map=str(offset_map),
        settings=ReplaySettings(topics={"t": topic}, keeps_partitions=keeps_partitions),
    )


def by_partition(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """The records of a topic."""
    return {
        number: [record for batch in found for record in records_of(batch)]
        for number, found in batches(bootstrap, topic).items()
    }


def contents(found: list[Record]) -> list[tuple[object, ...]]:
    """Return the parts of records that a replay keeps."""
    return [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in found]


def map_rows(spark: SparkSession, offset_map: Path) -> list[Row]:
    """The offset map as Spark reads it."""
    return list(
        spark.read.parquet(str(offset_map)).orderBy("topic", "partition", "offset").collect()
    )


SOME = [
    record_at(0, 1_700_000_000_123, b"k", b"v\x00\xff", (("h", b"1"), ("h", None))),
    record_at(1, 1_700_000_000_123 + DAY_MS, None, b""),
    record_at(2, 1_700_000_000_124, b"k", None),
    record_at(3, -1, None, b"no time"),
    record_at(4, 5, b"", b"old"),
]


def kill_once_it_has_sent(running: "subprocess.Popen[bytes]", bootstrap: str, count: int) -> None:
    """Kill a replay to `t` when so many records are in partition 0."""
    with closing(ClusterReader(bootstrap)) as cluster:
        start = 0
        try:
            while start < count:
                assert running.poll() is None, "it ended before it could be killed"
                with suppress(RetriableError):  # Nothing has come for some seconds.
                    for batch in fetch_batches(cluster, T0, start_offset=start, limit_offset=count):
                        start = batch.next_offset
        finally:
            running.kill()
            running.wait()


@pytest.mark.timeout(300)
def test_a_killed_replay_is_taken_up_without_doubling(
    request: pytest.FixtureRequest, tailrace_broker: TestBroker, tmp_path: Path
) -> None:
    """The driver is killed while it sends, others write too, and each record is there once."""
    count, killed_at = 30_000, 600
    bootstrap = tailrace_broker.bootstrap_servers
    for each in (T0, T1):
        write_numbered(tmp_path / "data", each, limit=count, per_batch=1000)
    make(bootstrap, "t", 3)
    source = {"path": str(tmp_path / "data"), "subscribe": "t"}
    settings = {"bootstrap.servers": bootstrap, "batch.size": "800"}
    offset_map = tmp_path / "map"
    program = [sys.executable, "-m", "tests.spark.jobs.replays"]
    running = subprocess.Popen(
        [*program, json.dumps(source), json.dumps(settings), str(offset_map)]
    )
    # All of it takes a second, and the kill must come before that.
    with tailrace_broker.delay("Produce", seconds=0.1):
        kill_once_it_has_sent(running, bootstrap, killed_at)
    assert len(records(bootstrap, "t")) < 2 * count
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_many("t", {"value": [b"foreign"] * 50})
    spark = request.getfixturevalue("spark")
    summary = replay(spark, source, settings, offset_map=str(offset_map))
    assert summary.records == 2 * count
    assert summary.found >= killed_at
    there = {
        (number, each.offset): each.value
        for number, found in by_partition(bootstrap, "t").items()
        for each in found
        if each.value != b"foreign"
    }
    mapped = [
        (
            row["partition"],
            row["offset"] + step,
            row["target_partition"],
            row["target_offset"] + step,
        )
        for row in map_rows(spark, offset_map)
        for step in range(row["records"])
    ]
    assert sorted(each[:2] for each in mapped) == [(p, n) for p in (0, 1) for n in range(count)]
    assert {each[2:]: b"value-%d" % each[1] for each in mapped} == there
    for source_partition, target_partition in product((0, 1), (0, 1, 2)):
        offsets = [to for p, _, t, to in mapped if (p, t) == (source_partition, target_partition)]
        assert offsets == sorted(offsets)


def test_attempts_that_send_at_once_do_not_double(bootstrap: str, tmp_path: Path) -> None:
    """Two attempts of a task, as in speculation, send different batches at the same time."""
    count = 5000
    write_numbered(tmp_path / "data", T0, limit=count, per_batch=500)
    make(bootstrap, "rivals", 2)
    with closing(ClusterReader(bootstrap)) as cluster:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        producer = cluster.any_broker().request(request, InitProducerIdResponse)
    planned = PlannedRange(
        topic="t", partition=0, start=0, limit=count, target="rivals", partition_count=2,
        keeps_partition=False, producer_id=producer.producer_id, producer_epoch=0,
        since={0: 0, 1: 0},
    )  # fmt: skip
    wanted = OffsetRange(partition=T0, start=Offset(0), limit=Offset(count), size=0)

    def attempt(batch_size: int) -> SentRange:
        task = check_arguments(
            {"path": str(tmp_path / "data"), "subscribe": "t"},
            {"bootstrap.servers": bootstrap, "batch.size": batch_size},
            offset_map=str(tmp_path / "map"),
            settings=ReplaySettings(),
        )
        return send_item(task, ReplayItem(planned=planned, wanted=(wanted, ()))).entry

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(attempt, [500, 500, 700, 1100]))
    assert {each.records for each in done} == {count}
    values = sorted(record.value or b"" for record in records(bootstrap, "rivals"))
    assert values == sorted(b"value-%d" % number for number in range(count))
    for found in by_partition(bootstrap, "rivals").values():
        times = [each.timestamp for each in found]
        assert times == sorted(times)


@pytest.mark.smoke
def test_an_archive_becomes_the_topic_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """It has its partitions, keys, nulls, headers and times; later parts of the archive follow."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    write_segment(data, T0, 0, batch_of(SOME))
    write_numbered(data, T1, limit=90)
    archive(spark, {"path": str(data), "subscribe": "t"}, str(lake))
    make(bootstrap, "from-archive", 2)

    def run() -> ReplaySummary:
        return to(
            spark, bootstrap, {"archive": str(lake)}, "from-archive", tmp_path / "map",
            keeps_partitions=True, **{"compression.type": "zstd"},
        )  # fmt: skip

    assert run().records == 95
    found = by_partition(bootstrap, "from-archive")
    assert contents(found[0]) == contents(SOME)
    write_numbered(data, T1, first=90, limit=100)
    archive(spark, {"path": str(data), "subscribe": "t"}, str(lake))
    assert run().records == 10
    assert run().records == 0
    again = tmp_path / "again"
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "from-archive"}
    archive(spark, options, str(again))

    def rows(path: Path) -> list[Row]:
        kept = ("partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
        return list(spark.read.parquet(str(path)).select(*kept).orderBy(*kept[:2]).collect())

    assert rows(again) == rows(lake)
    assert [
        (row["topic"], row["partition"], row["offset"], row["target_topic"], row["records"])
        for row in map_rows(spark, tmp_path / "map")
    ] == [
        ("t", 0, 0, "from-archive", 5),
        ("t", 1, 0, "from-archive", 90),
        ("t", 1, 90, "from-archive", 10),
    ]


def test_a_dead_brokers_directory_with_gaps_becomes_a_topic(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers and aborted records stay behind, and the map knows of the gaps."""
    monkeypatch.chdir(tmp_path)
    log = open_at(DiskFiles())
    append_plain(log, 3)
    aborted, committed = TransactionalProducer(log, 7), TransactionalProducer(log, 8)
    aborted.append(2)
    committed.append(2)
    aborted.abort()
    committed.commit()
    append_plain(log, 1)
    log.close()
    [segment] = (tmp_path / FOLDER).glob("*.log")
    # As compaction leaves it: records 10 to 14 are gone.
    segment.write_bytes(segment.read_bytes() + batch_of([record_at(15, 7, b"k", b"last")]))
    make(bootstrap, "from-directory")
    source = {"path": str((tmp_path / FOLDER).parent), "subscribe": "flights"}
    summary = replay(
        spark, source, {"bootstrap.servers": bootstrap}, offset_map=str(tmp_path / "map"),
        settings=ReplaySettings(topics={"flights": "from-directory"}),
    )  # fmt: skip
    assert summary.records == 7
    assert records(bootstrap, "from-directory")[-1].value == b"last"
    rows = map_rows(spark, tmp_path / "map")
    assert [(row["offset"], row["target_offset"], row["records"]) for row in rows] == [
        (0, 0, 3),
        (5, 3, 2),
        (9, 5, 1),
        (15, 6, 1),
    ]


def test_a_topic_is_spread_by_its_keys(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    """Each key is where producers would put it, in its order; from a broker, in small batches."""
    make(bootstrap, "t-one", 2)
    make(bootstrap, "t-three", 3)
    with Producer(bootstrap_servers=bootstrap) as producer:
        keys = [b"key-%d" % (n % 17) for n in range(2000)]
        rows = {"key": keys, "value": [b"%d" % n for n in range(2000)]}
        producer.send_many("t-one", rows)
        make(bootstrap, "t-wanted", 3)
        producer.send_many("t-wanted", rows)
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t-one"}
    replay(
        spark, source, {"bootstrap.servers": bootstrap, "batch.size": "2000"},
        offset_map=str(tmp_path / "map"), settings=ReplaySettings(topics={"t-one": "t-three"}),
    )  # fmt: skip
    found, wanted = by_partition(bootstrap, "t-three"), by_partition(bootstrap, "t-wanted")
    for number in range(3):
        for key in set(keys):
            values = [each.value for each in wanted[number] if each.key == key]
            assert [each.value for each in found[number] if each.key == key] == values


def test_targets_that_do_not_fit_are_refused(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """No topic, too few partitions, the broker's timestamps; and other settings than before."""
    write_numbered(tmp_path / "data", T0, limit=5)
    write_numbered(tmp_path / "data", T1, limit=5)
    source = {"path": str(tmp_path / "data")}
    with pytest.raises(ConfigError, match="topic 'absent' does not exist at the target; make it"):
        to(spark, bootstrap, source, "absent", tmp_path / "1")
    make(bootstrap, "small")
    with pytest.raises(ConfigError, match="'small' has 1 partitions at the target, and keeping"):
        to(spark, bootstrap, source, "small", tmp_path / "2", keeps_partitions=True)
    make(bootstrap, "stamped", message_timestamp_type="LogAppendTime")
    with pytest.raises(FatalError, match="topic 'stamped' sets its own timestamps") as caught:
        to(spark, bootstrap, source, "stamped", tmp_path / "3")
    assert "Traceback" not in str(caught.value)
    assert to(spark, bootstrap, source, "small", tmp_path / "4").records == 10
    with pytest.raises(ConfigError, match="topics: the replay was begun with"):
        to(spark, bootstrap, source, "other", tmp_path / "4")
