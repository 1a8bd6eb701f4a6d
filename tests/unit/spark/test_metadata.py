"""The format `tailrace-metadata` without a session: its options, its rows, and damage."""

import contextlib
import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tailrace.cluster.image import Topic
from tailrace.cluster.metadata.batches import BatchPlace, data_batch
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot, write_snapshot
from tailrace.errors import ConfigError, CorruptionError, TailraceError
from tailrace.offline.metadata_state import NoMetadataError
from tailrace.protocol.fields import Record
from tailrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from tailrace.records.batch import Batch
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.files import DiskFiles
from tailrace.spark.metadata.options import View, parse_metadata_options
from tailrace.spark.metadata.reading import plan_limit, read_view
from tailrace.spark.metadata.source import MetadataDataSource
from tailrace.spark.metadata.views import view_schema
from tests.kraft import DIRECTORY as KRAFT
from tests.unit.cluster.metadata_logs import save_topics
from tests.unit.runtime.object_store import BUCKET, object_store

FIRST_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)
USER = UserScramCredentialRecord(
    name="ann", mechanism=1, salt=b"SALT", stored_key=b"STORED", server_key=b"SERVER",
    iterations=4096,
)  # fmt: skip


def setting(name: str, value: str, *, resource: str = "t", kind: int = 2) -> ConfigRecord:
    """A setting of a topic, or of another resource."""
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def batch(offset: int, *records: Record) -> bytes:
    """A batch, as many seconds after `FIRST_MS` as its offset says."""
    place = BatchPlace(offset, 3, FIRST_MS + offset * 1000)
    return data_batch([(each, each.first_version) for each in records], place)


def write(directory: Path, *batches: bytes) -> Path:
    """A metadata log of one segment; returns its folder."""
    folder = directory / "__cluster_metadata-0"
    folder.mkdir(exist_ok=True)
    first = Batch(memoryview(batches[0])).base_offset
    (folder / f"{first:020}.log").write_bytes(b"".join(batches))
    return folder


def save_snapshot(folder: Path, next_offset: int, *batches: bytes) -> Path:
    """A snapshot of what the batches lead to."""
    replay = MetadataReplay(MetadataImage())
    for each in batches:
        replay.see(Batch(memoryview(each)))
    path = folder / f"{next_offset:020}-{3:010}.checkpoint"
    found = Snapshot(image=replay.image, log_timestamp=replay.timestamp)
    path.write_bytes(write_snapshot(found, epoch=3, timestamp=FIRST_MS))
    return path


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def read(path: object, **options: str) -> list[dict[str, Any]]:
    """All rows of a view, planned and read as Spark does it."""
    parsed = parse_metadata_options({"path": str(path)} | options)
    columns = view_schema(parsed.view).names
    batches = list(read_view(parsed, plan_limit(parsed), columns=columns))
    return pa.Table.from_batches(batches, view_schema(parsed.view)).to_pylist() if batches else []


def values(rows: list[dict[str, Any]]) -> list[str | None]:
    """The values of settings, in their order."""
    return [each["value"] for each in rows]


def test_records_are_those_of_the_log(tmp_path: Path) -> None:
    """Offset, time, epoch, type, version, fields and file of each; fields are JSON."""
    topic = TopicRecord(name="t", topic_id=TOPIC_ID)
    folder = write(tmp_path, batch(0, LEVEL), batch(1, topic, setting("a", "1")))
    first, second, third = read(tmp_path)
    assert [each["offset"] for each in (first, second, third)] == [0, 1, 2]
    assert first["timestamp"].timestamp() * 1000 == FIRST_MS
    assert (second["epoch"], second["type"], second["version"]) == (3, "Topic", 0)
    assert json.loads(second["record"]) == {"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAABw"}
    assert second["source"] == str(folder / f"{0:020}.log")
    assert read(folder) == [first, second, third], "the folder may be named itself"


def test_a_log_of_kafka_is_read() -> None:
    """Records and snapshots of Kafka 4.3, with control records, and its topics."""
    kinds = [each["type"] for each in read(KRAFT)]
    assert kinds[0] == "LeaderChange"
    assert {"Topic", "Partition", "RegisterBroker"} <= set(kinds)
    assert None not in kinds
    snapshots = read(KRAFT, view="snapshots")
    assert len({each["source"] for each in snapshots}) == 2
    assert snapshots[0]["type"] == "SnapshotHeader"
    assert snapshots[-1]["type"] == "SnapshotFooter"
    topics = [each["topic"] for each in read(KRAFT, view="topics")]
    assert topics == ["__consumer_offsets", "events", "other"]
    before = read(KRAFT, view="topics", at="10")
    assert before == []


def test_a_log_of_our_broker_is_read(tmp_path: Path) -> None:
    """Topics with their partitions and settings, as our broker saves them."""
    topic = Topic(
        name="flights", topic_id=TOPIC_ID, partitions=(0, 1), configs={"retention.ms": "5"}
    )
    save_topics(DiskFiles(), topic, directory=str(tmp_path))
    kinds = [each["type"] for each in read(tmp_path)]
    assert kinds.count("Partition") == 2
    [found] = read(tmp_path, view="topics")
    assert (found["topic"], found["partitions"]) == ("flights", 2)
    assert [each["leader"] for each in read(tmp_path, view="partitions")] == [1, 1]
    assert "5" in values(read(tmp_path, view="configs"))


def test_states_are_typed_columns(tmp_path: Path) -> None:
    """Each view has its rows, with words for Kafka's numbers."""
    partition = PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=4
    )
    acl = AccessControlEntryRecord(
        id=UUID(int=9), resource_type=2, resource_name="t", pattern_type=4, principal="User:ann",
        host="*", operation=99, permission_type=3,
    )  # fmt: skip
    entity = (
        EntityData(entity_type="user", entity_name="ann"),
        EntityData(entity_type="client-id", entity_name=None),
    )
    quota = ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=2.5, remove=False)
    topic = TopicRecord(name="t", topic_id=TOPIC_ID)
    everything = (topic, partition, acl, quota, setting("x", "1", resource="", kind=4))
    write(tmp_path, batch(0, LEVEL), batch(1, *everything))
    assert read(tmp_path, view="features") == [{"feature": "metadata.version", "level": 30}]
    [found] = read(tmp_path, view="topics")
    assert (found["partitions"], found["replicas"], found["outOfSync"]) == (1, 2, 1)
    [found] = read(tmp_path, view="PARTITIONS")
    assert (found["leader"], found["leaderEpoch"], found["replicas"]) == (2, 4, [1, 2])
    assert found["eligibleLeaderReplicas"] == []
    assert read(tmp_path, view="configs") == [
        {"resourceType": "broker", "resource": None, "name": "x", "value": "1"}
    ]
    [found] = read(tmp_path, view="acls")
    assert (found["resourceType"], found["pattern"]) == ("TOPIC", "PREFIXED")
    assert (found["operation"], found["permission"]) == ("99", "ALLOW")
    [found] = read(tmp_path, view="quotas")
    assert found["entity"] == [("user", "ann"), ("client-id", None)]
    assert (found["name"], found["value"]) == ("producer_byte_rate", 2.5)
    [found] = read(KRAFT, view="brokers")
    assert found["listeners"][0]["port"] > 0
    assert found["isShuttingDown"]


def test_no_view_has_a_secret(tmp_path: Path) -> None:
    """Neither records nor states, nor what cannot be decoded; a fingerprint tells of changes."""
    password = setting("listener.name.a.ssl.keystore.password", "hunter2", resource="1", kind=4)
    batches = batch(0, LEVEL), batch(1, USER, password)
    save_snapshot(write(tmp_path, *batches), 3, *batches)
    for view in View:
        text = str(read(tmp_path, view=view.value))
        for secret in ("hunter2", *(each.hex() for each in (b"SALT", b"STORED", b"SERVER"))):
            assert secret not in text, view
    [user] = read(tmp_path, view="users")
    assert (user["user"], user["mechanism"]) == ("ann", "SCRAM-SHA-256")
    assert len(user["fingerprint"]) == 16


def test_a_state_is_that_of_an_offset_or_a_time(tmp_path: Path) -> None:
    """The options are those of `tailrace cluster describe --at`."""
    write(tmp_path, batch(0, LEVEL), batch(1, setting("a", "1")), batch(2, setting("a", "2")))
    for at, value in (("2", "1"), ("3", "2"), ("2023-11-14T22:13:21", "1")):
        assert values(read(tmp_path, view="configs", at=at)) == [value], at
    assert values(read(tmp_path, view="configs")) == ["2"]
    with pytest.raises(TailraceError, match="goes back to offset 0"):
        read(tmp_path, view="configs", at="0")


def test_nothing_behind_the_plan_is_read(tmp_path: Path) -> None:
    """A log that goes on gives the same rows again."""
    batches = batch(0, LEVEL), batch(1, setting("a", "1"))
    write(tmp_path, *batches)
    plans = {}
    for view in ("records", "configs"):
        options = parse_metadata_options({"path": str(tmp_path), "view": view})
        plans[view] = options, plan_limit(options)
    write(tmp_path, *batches, batch(2, setting("a", "2")))
    rows = {
        view: [row for each in read_view(*plan, columns=view_schema(plan[0].view).names)
               for row in each.to_pylist()]
        for view, plan in plans.items()
    }  # fmt: skip
    assert len(rows["records"]) == 2
    assert values(rows["configs"]) == ["1"]


@pytest.mark.parametrize("position", [-1, 10])
def test_damage_is_an_error_or_skipped_with_a_report(tmp_path: Path, position: int) -> None:
    """In records and in length; records behind it count as records, and not in a state."""
    batches = [batch(0, LEVEL), batch(1, setting("a", "1")), batch(2, setting("a", "2"))]
    damaged = bytearray(batches[1])
    damaged[position] ^= 1
    path = write(tmp_path, batches[0], bytes(damaged), batches[2]) / f"{0:020}.log"
    report = tmp_path / "report"
    skip = {"onCorruption": "skip", "corruptionReport": str(report)}
    for view in ("records", "configs"):
        with pytest.raises(CorruptionError, match=r"\.log, position .*onCorruption=skip"):
            read(tmp_path, view=view)
        found = read(tmp_path, view=view, **skip)
        if view == "records":
            assert [each["offset"] for each in found] == [0, 2]
        else:
            assert found == []
        [line] = (report / "metadata.jsonl").read_text().splitlines()
        told = json.loads(line)
        assert (told["file"], told["first_offset"]) == (str(path), 1)
        assert told["position"] == len(batches[0])


def test_a_damaged_snapshot_is_an_error_or_skipped(tmp_path: Path) -> None:
    """Without it the log leads to the state; a snapshot that lost its end is damaged too."""
    batches = batch(0, LEVEL), batch(1, setting("a", "1"))
    path = save_snapshot(write(tmp_path, *batches), 2, *batches)
    whole = path.read_bytes()
    skip = {"onCorruption": "skip", "corruptionReport": str(tmp_path / "report")}
    flip(path, -1)
    damaged = path.read_bytes()
    for data in (damaged, whole[:-1], whole[:-75], b""):
        path.write_bytes(data)
        for view, rows in (("configs", ["1"]), ("snapshots", [])):
            with pytest.raises(CorruptionError, match="onCorruption=skip"):
                read(tmp_path, view=view)
            assert values(read(tmp_path, view=view, **skip)) == rows
    lines = (tmp_path / "report" / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(each)["file"] for each in lines] == [str(path)]


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_no_flipped_bit_is_returned_as_data(tmp_path: Path, *, is_snapshot: bool) -> None:
    """In each byte of a file: every row is one that was written, or it is an error."""
    batches = batch(0, LEVEL), batch(1, USER, setting("a", "1"))
    folder = write(tmp_path, *batches)
    path, views = folder / f"{0:020}.log", ("records", "configs")
    if is_snapshot:
        path, views = save_snapshot(folder, 3, *batches), ("snapshots", "configs")
    whole = {view: _checked(read(tmp_path, view=view)) for view in views}
    skip = {"onCorruption": "skip", "corruptionReport": str(tmp_path / "report")}
    data = path.read_bytes()
    for position in range(len(data)):
        flip(path, position)
        for view, options in itertools.product(views, ({}, skip)):
            with contextlib.suppress(CorruptionError, NoMetadataError):
                found = _checked(read(tmp_path, view=view, **options))
                assert all(row in whole[view] for row in found), position
        path.write_bytes(data)


def _checked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without offset and epoch, which no checksum covers."""
    return [{name: row[name] for name in row if name not in {"offset", "epoch"}} for row in rows]


def test_snapshots_alone_have_a_state_and_no_log(tmp_path: Path) -> None:
    """The rest of a disk will do; the error of the default view names the one that has records."""
    batches = batch(0, LEVEL), batch(1, setting("a", "1"))
    folder = write(tmp_path, *batches)
    save_snapshot(folder, 2, *batches)
    (folder / f"{0:020}.log").unlink()
    assert values(read(tmp_path, view="configs")) == ["1"]
    assert [each["type"] for each in read(tmp_path, view="snapshots")][1:-1]
    with pytest.raises(TailraceError, match="view=snapshots reads their records"):
        read(tmp_path)


def test_a_record_of_a_later_release_has_no_fields(tmp_path: Path) -> None:
    """It is a row with its place; a state cannot be had, and the reason is said."""
    builder = BatchBuilder()
    builder.append(None, bytes([1, 124, 0, 0]), timestamp=FIRST_MS)
    write(tmp_path, bytes(builder.build()))
    [row] = read(tmp_path)
    assert (row["offset"], row["type"], row["record"]) == (0, None, None)
    with pytest.raises(TailraceError, match="type 124"):
        read(tmp_path, view="topics")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "path: give the directory of a node"),
        ({"path": "d", "veiw": "topics"}, "veiw: no such option; did you mean view?"),
        ({"path": "d", "view": "topic"}, "view: 'topic' is not one of records, snapshots, topics"),
        ({"path": "d", "at": "3"}, "at: it needs the view of a state, such as view=topics"),
        ({"path": "d", "view": "acls", "at": "noon"}, "at: 'noon' is neither an offset nor a time"),
        ({"path": "d", "onCorruption": "skip"}, "corruptionReport: onCorruption=skip needs"),
        ({"path": "d", "corruptionReport": "r"}, "it is written only with onCorruption=skip"),
        ({"paths": '["a", "b"]'}, "paths: a cluster has one metadata log"),
        ({"path": "d", "subscribe": "t"}, "subscribe: the format reads one topic"),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(
    options: Mapping[str, str], fault: str
) -> None:
    """One sentence, before anything is read."""
    with pytest.raises(ConfigError) as caught:
        parse_metadata_options(options)
    [found] = caught.value.faults
    assert fault in found


def test_a_directory_without_the_log_is_said(tmp_path: Path) -> None:
    """Which directory, and which one to name."""
    with pytest.raises(TailraceError, match=r"no folder __cluster_metadata-0; name the metadata"):
        read(tmp_path)


def test_a_log_in_an_object_store_is_read_by_its_uri() -> None:
    """Log and snapshots, over HTTP."""
    folder = KRAFT / "__cluster_metadata-0"
    stored = {f"data/{folder.name}/{each.name}": each.read_bytes() for each in folder.iterdir()}
    with object_store(stored) as query:
        uri = f"s3://key:secret@{BUCKET}/data?{query}"
        assert read(uri, view="partitions") == read(KRAFT, view="partitions")
        assert len(read(uri)) == len(read(KRAFT))


def test_the_source_has_the_types_of_the_view(tmp_path: Path) -> None:
    """Columns of Spark, and a choice of them; others are refused with those that there are."""
    shutil.copytree(KRAFT / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    source = MetadataDataSource({"path": str(tmp_path)})
    assert source.schema().simpleString() == (
        "struct<offset:bigint,timestamp:timestamp,epoch:int,type:string,version:int,"
        "record:string,source:string>"
    )
    chosen = source.schema()
    chosen.fields = [chosen["type"], chosen["offset"]]
    chosen.names = ["type", "offset"]
    reader = source.reader(chosen)
    [task] = reader.partitions()
    rows = [row for each in reader.read(task) for row in each.to_pylist()]
    assert rows[0] == {"type": "LeaderChange", "offset": 0}
    topics = MetadataDataSource({"path": str(tmp_path), "view": "topics"})
    with pytest.raises(ConfigError, match="no column 'type'; there are: topic, topicId"):
        topics.reader(chosen)
