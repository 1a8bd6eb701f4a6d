"""Jobs whose topics were deleted and created again: refused where ids tell, with a line otherwise.

Each job has a state by topic, partition and offset: the manifest of an archive, and that of an
offset map for its source and for its target.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrameReader, SparkSession

from tailrace import Admin, Broker, Producer
from tailrace.client.admin import create_topic
from tailrace.errors import ConfigError, FatalError
from tailrace.model import TopicPartition
from tailrace.runtime.files import DiskFiles
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.archive import FORMAT, archive, follow_archive
from tailrace.spark.jobs.manifest import Manifest, sealed
from tailrace.spark.jobs.query import query
from tailrace.spark.jobs.replay import FORMAT as REPLAY_FORMAT
from tailrace.spark.jobs.replay import ReplaySettings, ReplaySummary, replay
from tailrace.spark.jobs.topics import SOURCES, TARGETS
from tailrace.spark.jobs.verify_archive import verify_archive
from tailrace.storage.checkpoints import format_topic_id, write_partition_metadata
from tailrace.storage.directories import MetaProperties, write_identity
from tailrace.storage.names import PARTITION_METADATA
from tests.spark.directories import write_numbered
from tests.spark.topics import values

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)
OLD, NEW = uuid.UUID(int=5), uuid.UUID(int=6)
CLUSTER, OTHER_CLUSTER = "the-cluster", "another-one"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for topics that are written."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


def make(
    data: Path, limit: int, *, topic_id: uuid.UUID | None = OLD, cluster_id: str | None = CLUSTER
) -> None:
    """The topic `t` in a directory, in place of what is there."""
    shutil.rmtree(data, ignore_errors=True)
    write_numbered(data, T0, limit=limit)
    if topic_id is not None:
        folder = str(data / "t-0")
        write_partition_metadata(DiskFiles(), folder, PARTITION_METADATA, topic_id=topic_id)
    if cluster_id is not None:
        identity = MetaProperties(cluster_id=cluster_id, node_id=1, directory_id="")
        write_identity(DiskFiles(), str(data), identity)


def options(data: Path) -> dict[str, str]:
    """The topic in a directory."""
    return {"path": str(data), "subscribe": "t"}


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic, if there is one."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        if topic in {each.name for each in admin.list_topics()}:
            admin.delete_topics([topic]).results()


def send(bootstrap: str, topic: str, count: int) -> None:
    """Create a topic with numbered records, in place of what is there."""
    delete(bootstrap, topic)
    create_topic(bootstrap, topic, partition_count=1, settings={"retention.ms": "-1"})
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def forget_identities(folder: Path, form: str) -> None:
    """Have a manifest as it was before it had identities."""
    for path in sorted((folder / "_manifest").glob("*.json")):
        content = json.loads(path.read_bytes())
        del content["digest"]
        for name in (SOURCES, TARGETS):
            content.get("settings", {}).pop(name, None)
        path.write_bytes(sealed(content))
    assert SOURCES not in Manifest.open(open_folder(str(folder)), form=form).settings


@pytest.mark.parametrize("limit", [60, 300])
def test_an_archive_refuses_another_topic_of_the_name(
    spark: SparkSession, tmp_path: Path, limit: int
) -> None:
    """Whether it is longer or not, and whatever failOnDataLoss says; the archive stays as it is."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 100)
    assert archive(spark, options(data), str(lake)).rows == 100
    make(data, limit, topic_id=NEW)
    for is_tolerant in ("true", "false"):
        with pytest.raises(ConfigError) as caught:
            archive(spark, options(data) | {"failOnDataLoss": is_tolerant}, str(lake))
        [fault] = caught.value.faults
        assert fault == (
            f"t: the archive has records of topic {format_topic_id(OLD)} of cluster {CLUSTER}, "
            f"and this is topic {format_topic_id(NEW)} of cluster {CLUSTER}: it was deleted and "
            "created again, or is another cluster's; choose another target"
        )
    with pytest.raises(ConfigError, match="t: the archive has records of topic"):
        query(spark, str(lake), options(data))
    report = verify_archive(spark, options(data), str(lake))
    assert [(each.rule, each.path) for each in report.findings] == [("topic", "t")]
    assert (report.rows, report.compared) == (100, 0)
    assert archive(spark, options(data), str(tmp_path / "new")).rows == limit


def test_an_archive_that_follows_a_topic_ends_with_it(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """The round after the topic was created again takes none of its records."""
    send(bootstrap, "followed", 20)
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": "followed"}
    rounds = follow_archive(spark, where, str(tmp_path / "lake"), trigger_seconds=0.01)
    assert next(rounds).rows == 20
    send(bootstrap, "followed", 50)
    with pytest.raises(ConfigError, match="followed: the archive has records of topic"):
        next(rounds)


@pytest.mark.parametrize("topic_id", [OLD, None])
def test_the_cluster_tells_where_the_topic_does_not(
    spark: SparkSession, tmp_path: Path, topic_id: uuid.UUID | None
) -> None:
    """Topics without ids of two clusters are two; one with its id is the same wherever it is."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 10, topic_id=topic_id)
    archive(spark, options(data), str(lake))
    make(data, 30, topic_id=topic_id, cluster_id=OTHER_CLUSTER)
    if topic_id is not None:
        assert archive(spark, options(data), str(lake)).rows == 20
        return
    with pytest.raises(ConfigError, match=f"and this is .* of cluster {OTHER_CLUSTER}"):
        archive(spark, options(data), str(lake))


def test_an_older_archive_is_taken_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said that nobody knows its topic, which is noted, and holds from then on."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 10)
    archive(spark, options(data), str(lake))
    forget_identities(lake, FORMAT)
    assert archive(spark, options(data), str(lake)).rows == 0
    [told] = caplog.messages
    assert told == (
        "t: the archive has records, and whether of this topic is not checked: its manifest has no "
        f"topic id; it has {format_topic_id(OLD)} from now on"
    )
    caplog.clear()
    assert archive(spark, options(data), str(lake)).rows == 0
    assert not caplog.messages
    make(data, 30, topic_id=NEW)
    with pytest.raises(ConfigError, match="the archive has records of topic"):
        archive(spark, options(data), str(lake))


def test_a_log_without_ids_is_taken_with_a_line(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker before Kafka 2.8 has none: a line says it, and known ids are not forgotten."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 10)
    archive(spark, options(data), str(lake))
    make(data, 15, topic_id=None, cluster_id=None)
    assert archive(spark, options(data), str(lake)).rows == 5
    assert [each for each in caplog.messages if "the log does not tell its topic id" in each]
    make(data, 30, topic_id=NEW)
    with pytest.raises(ConfigError, match="the archive has records of topic"):
        archive(spark, options(data), str(lake))


def test_a_directory_of_two_topics_of_a_name_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One may have been put together from two brokers; `assign` names one of them."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 10)
    write_numbered(data, TopicPartition("t", 1), limit=10)
    folder = str(data / "t-1")
    write_partition_metadata(DiskFiles(), folder, PARTITION_METADATA, topic_id=NEW)
    with pytest.raises(ConfigError, match=r"t-1 is of topic .* one topic with assign"):
        archive(spark, options(data), str(lake))
    chosen = {"path": str(data), "assign": '{"t": [1]}'}
    assert archive(spark, chosen, str(lake)).rows == 10


class MeanwhileSession:
    """A session in which something happens before the log is read, after the archive's files."""

    def __init__(self, spark: SparkSession, happen: Callable[[], None]) -> None:
        self._spark = spark
        self._happen = [lambda: None, happen]

    @property
    def read(self) -> DataFrameReader:
        """The session's own reader."""
        self._happen.pop(0)()
        return self._spark.read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


def test_a_query_ends_if_its_topic_is_created_again_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Between the look at the log and the source's own, which goes by names."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 10)
    archive(spark, options(data), str(lake))
    make(data, 20)
    session = MeanwhileSession(spark, lambda: make(data, 40, topic_id=NEW))
    with pytest.raises(FatalError, match="t was deleted and created again meanwhile"):
        query(cast("SparkSession", session), str(lake), options(data))


def to(
    spark: SparkSession, bootstrap: str, source: dict[str, str], topic: str, offset_map: Path
) -> ReplaySummary:
    """One run of `t` to a topic."""
    return replay(
        spark,
        {"subscribe": "t", **source},
        {"bootstrap.servers": bootstrap},
        offset_map=str(offset_map),
        settings=ReplaySettings(topics={"t": topic}),
    )


@pytest.mark.smoke
def test_a_replay_refuses_another_source_of_the_name(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """From a directory, and from an archive of another topic; that of the same one goes on."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    make(data, 100)
    send(bootstrap, "from", 0)
    source = {"path": str(data)}
    assert to(spark, bootstrap, source, "from", tmp_path / "moved").records == 100
    make(data, 120)
    archive(spark, options(data), str(lake))
    archived = {"archive": str(lake)}
    assert to(spark, bootstrap, archived, "from", tmp_path / "moved").records == 20
    make(data, 300, topic_id=NEW)
    archive(spark, options(data), str(tmp_path / "new"))
    for other in (source, {"archive": str(tmp_path / "new")}):
        with pytest.raises(ConfigError, match="t: the replay has sent records of topic"):
            to(spark, bootstrap, other, "from", tmp_path / "moved")
    assert len(values(bootstrap, "from")) == 120


def test_a_replay_refuses_another_target_of_the_name(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """Also if there is nothing to send, as its map says of records that they are there."""
    data = tmp_path / "data"
    make(data, 100)
    send(bootstrap, "into", 0)
    moved = tmp_path / "moved"
    assert to(spark, bootstrap, {"path": str(data)}, "into", moved).records == 100
    send(bootstrap, "into", 0)
    for limit in (100, 150):
        make(data, limit)
        with pytest.raises(ConfigError) as caught:
            to(spark, bootstrap, {"path": str(data)}, "into", moved)
        [fault] = caught.value.faults
        assert fault.startswith("into: the replay has written to this name of topic ")
        assert "; choose another offset map, and a topic that has no records of this" in fault
    delete(bootstrap, "into")
    with pytest.raises(ConfigError, match="'into', which the replay has written, does not exist"):
        to(spark, bootstrap, {"path": str(data)}, "into", moved)
    send(bootstrap, "into", 0)
    assert to(spark, bootstrap, {"path": str(data)}, "into", tmp_path / "new").records == 150


def test_an_older_offset_map_is_taken_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said of source and target, and both are known from then on."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    make(data, 10)
    send(bootstrap, "older", 0)
    to(spark, bootstrap, {"path": str(data)}, "older", moved)
    forget_identities(moved, REPLAY_FORMAT)
    assert to(spark, bootstrap, {"path": str(data)}, "older", moved).records == 0
    told = [each for each in caplog.messages if "its manifest has no topic id" in each]
    assert [each.split(":")[0] for each in told] == ["t", "older"]
    send(bootstrap, "older", 0)
    make(data, 10, topic_id=NEW)
    with pytest.raises(ConfigError) as caught:
        to(spark, bootstrap, {"path": str(data)}, "older", moved)
    assert [each.split(":")[0] for each in caught.value.faults] == ["t", "older"]


def test_a_target_that_has_lost_records_is_refused_without_ids(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """An older map knows no ids, and the log is shorter than what the replay has sent."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    make(data, 30)
    send(bootstrap, "shorter", 0)
    to(spark, bootstrap, {"path": str(data)}, "shorter", moved)
    forget_identities(moved, REPLAY_FORMAT)
    send(bootstrap, "shorter", 20)
    with pytest.raises(ConfigError, match="shorter-0: the replay has written it up to offset 30 a"):
        to(spark, bootstrap, {"path": str(data)}, "shorter", moved)


def test_a_replay_ends_if_its_target_is_created_again_meanwhile(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """The round that may be in either of the two topics does not count."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    make(data, 10)
    for number in range(1, 9):
        write_numbered(data, TopicPartition("t", number), limit=10)
    send(bootstrap, "meanwhile", 0)
    with pytest.raises(FatalError, match="'meanwhile' was deleted while a replay sent to it"):
        replay(
            spark,
            options(data),
            {"bootstrap.servers": bootstrap},
            offset_map=str(moved),
            settings=ReplaySettings(topics={"t": "meanwhile"}),
            progress=lambda done, _: send(bootstrap, "meanwhile", 0) if done <= 40 else None,
        )
    sent = [
        each
        for each in Manifest.open(open_folder(str(moved)), form=REPLAY_FORMAT).entries
        if "sent" in each
    ]
    assert len(sent) == 4, "those of the round before"
