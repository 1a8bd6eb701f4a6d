"""Directories beyond one sound log: several of them, transactions, damage, files that go away."""

import json
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import ConfigError, CorruptionError, DirectoryError, FatalError
from tailrace.model import METADATA_TOPIC, Codec, TopicPartition
from tailrace.reading.columns import arrow_schema
from tailrace.records import layout
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.files import DiskFiles
from tailrace.spark.batch_reader import plan_scan, read_task
from tailrace.spark.losses import PartitionGoneError
from tailrace.spark.options import parse_options
from tailrace.spark.options.names import METADATA
from tailrace.spark.planning import ScanTask
from tailrace.spark.stores import open_store
from tailrace.storage.checkpoints import write_partition_metadata
from tailrace.storage.log import Log
from tailrace.storage.names import PARTITION_METADATA
from tests.kraft import DIRECTORY as KRAFT
from tests.spark.directories import batch_of, numbered, write_numbered, write_segment
from tests.unit.records.batches import record_at
from tests.unit.runtime.object_store import BUCKET, object_store
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    filled,
    open_at,
    path,
    stop_cleanly,
)
from tests.unit.storage.transactional import TransactionalProducer, append_plain

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Query:
    """A query of topic `t`, planned when it is made and read later, as Spark would."""

    def __init__(self, *directories: Path, **options: str) -> None:
        given = {"paths": json.dumps([str(each) for each in directories])}
        if len(directories) == 1:
            given = {"path": str(directories[0])}
        given |= {"subscribe": "t", "columns": "offset"}
        self.options = parse_options(given | options)
        self.tasks = plan_scan(self.options, open_store(self.options), core_count=1)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, task by task."""
        return [row for task in self.tasks for batch in self.run(task) for row in batch.to_pylist()]

    def offsets(self) -> list[int]:
        """The column `offset` of all rows."""
        return [row["offset"] for row in self.rows()]

    def run(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """The record batches of a task, as declared."""
        for batch in read_task(
            task,
            open_store(self.options),
            columns=self.options.columns,
            fails_on_data_loss=self.options.fails_on_data_loss,
            corruption_report=self.options.corruption_report,
        ):
            assert batch.schema.equals(arrow_schema(self.options.columns))
            batch.validate(full=True)
            yield batch


def of_producer(first: int, count: int, *, sequence: int) -> bytes:
    """A compressed batch of a transactional producer."""
    builder = BatchBuilder(
        codec=Codec.ZSTD,
        producer_id=4000,
        producer_epoch=3,
        base_sequence=sequence,
        is_transactional=True,
    )
    for _ in range(count):
        builder.append(b"k", b"v", timestamp=0)
    data = bytearray(builder.build())
    stamp(memoryview(data), base_offset=first, leader_epoch=9)
    return bytes(data)


def test_metadata_says_what_the_batch_of_each_record_says(tmp_path: Path) -> None:
    """Every column, for a batch with a producer and for one without; sequences by record."""
    plain = batch_of(numbered(0, 3))
    path = write_segment(tmp_path, T0, 0, plain + of_producer(3, 4, sequence=2**31 - 2))
    rows = Query(tmp_path, columns=",".join(["offset", *METADATA])).rows()
    assert [row["offset"] for row in rows] == list(range(7))
    none = ("none", -1, -1, -1, 0, False, str(path), 0)
    assert [tuple(row[name] for name in METADATA) for row in rows[:3]] == [none] * 3
    for row, sequence in zip(rows[3:], [2**31 - 2, 2**31 - 1, 0, 1], strict=True):
        expected = ("zstd", 4000, 3, sequence, 9, True, str(path), len(plain))
        assert tuple(row[name] for name in METADATA) == expected


@pytest.mark.parametrize("name", METADATA)
def test_a_metadata_column_comes_alone(tmp_path: Path, name: str) -> None:
    """A single metadata column is right, also from the middle of a batch."""
    write_segment(tmp_path, T0, 0, batch_of(numbered(0, 10)) + of_producer(10, 10, sequence=5))
    bounds = {
        "startingOffsets": '{"t": {"0": 7}}',
        "endingOffsets": '{"t": {"0": 13}}',
    }
    alone = Query(tmp_path, columns=name, **bounds).rows()
    among = Query(tmp_path, columns=",".join(METADATA), **bounds).rows()
    assert [row[name] for row in alone] == [row[name] for row in among]
    assert len(alone) == 6


def test_partitions_of_several_directories_are_one_topic(tmp_path: Path) -> None:
    """They are read like the log.dirs of one broker."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_numbered(first, T0, limit=10)
    write_numbered(second, T1, first=20, limit=30)
    query = Query(first, second, minPartitions="4")
    assert len(query.tasks) == 4
    assert query.offsets() == [*range(10), *range(20, 30)]


def test_a_partition_in_two_directories_is_refused_with_both(tmp_path: Path) -> None:
    """The driver refuses it; if the second one came later, a task does."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_numbered(first, T0, limit=10)
    write_numbered(second, T1, limit=10)
    query = Query(first, second)
    write_numbered(second, T0, limit=10)
    for attempt in (query.rows, lambda: Query(first, second)):
        with pytest.raises(ConfigError) as caught:
            attempt()
        [fault] = caught.value.faults
        assert fault.startswith(f"paths: t-0 is in {first} and in {second};")


def test_partitions_that_are_not_selected_may_be_in_several_directories(tmp_path: Path) -> None:
    """Brokers have replicas of their internal topics, which nobody reads here."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_numbered(first, T0, limit=10)
    write_numbered(second, T1, first=20, limit=30)
    for directory in (first, second):
        write_numbered(directory, TopicPartition("__consumer_offsets", 7), limit=5)
        write_numbered(directory, TopicPartition("other", 0), limit=5)
    paths = json.dumps([str(first), str(second)])
    for name, text in (
        ("subscribe", "t"),
        ("subscribePattern", "^t$"),
        ("assign", '{"t": [0, 1]}'),
    ):
        options = parse_options({"paths": paths, name: text})
        tasks = plan_scan(options, open_store(options), core_count=1)
        found = [each.partition for task in tasks for each in task.ranges]
        assert found == [T0, T1]
    for name, text in (("subscribe", "t,other"), ("subscribePattern", ".*")):
        options = parse_options({"paths": paths, name: text})
        with pytest.raises(
            ConfigError, match=r"other-0 is in .*; a partition has one log"
        ) as caught:
            plan_scan(options, open_store(options), core_count=1)
        assert len(caught.value.faults) == 1


def test_a_path_that_a_host_cannot_see_is_told_with_its_name(tmp_path: Path) -> None:
    """The driver and a task say the same: which host, and what to do."""
    data = tmp_path / "data"
    write_numbered(data, T0, limit=10)
    query = Query(data)
    shutil.rmtree(data)
    for attempt in (query.rows, lambda: Query(data)):
        with pytest.raises(DirectoryError) as caught:
            attempt()
        assert f"{data} is not a directory that host {socket.gethostname()} can see" in str(
            caught.value
        )
        assert "shared file system" in str(caught.value)


def test_a_uri_names_what_a_path_names(tmp_path: Path) -> None:
    """`file:` is this machine's disk; of an unknown scheme the message has the whole URI."""
    write_numbered(tmp_path, T0, limit=10)
    for uri in (f"file://{tmp_path}", f"file:{tmp_path}"):
        options = parse_options({"path": uri, "subscribe": "t"})
        [task] = plan_scan(options, open_store(options), core_count=1)
        [batch] = read_task(task, open_store(options), columns=["offset"], fails_on_data_loss=True)
        assert batch.num_rows == 10
    with pytest.raises(ConfigError, match="path: floppy://a/b cannot be opened"):
        open_store(parse_options({"path": "floppy://a/b", "subscribe": "t"}))


def test_an_object_store_is_read_like_a_directory(tmp_path: Path) -> None:
    """Any range and in any number of tasks, window by window, and with its damage."""
    path = write_numbered(tmp_path, T0, limit=40)
    write_numbered(tmp_path, T0, first=40, limit=90)
    write_numbered(tmp_path, T1, limit=5)
    objects = {
        f"data/{each.relative_to(tmp_path)}": each.read_bytes() for each in path.parent.iterdir()
    }
    objects["data/t-1/" + path.name] = (tmp_path / "t-1" / path.name).read_bytes()
    with object_store(objects) as query:
        uri = f"s3://key:secret@{BUCKET}/data?{query}"
        for options in (
            {},
            {"minPartitions": "7"},
            {"startingOffsets": '{"t": {"0": 33, "1": 4}}'},
        ):
            given = {"subscribe": "t", "columns": "topic,partition,offset,value"} | options
            found = [_rows(given | {"path": path}) for path in (uri, str(tmp_path))]
            assert found[0] == found[1]
        name = f"data/t-0/{path.name}"
        position = objects[name].index(batch_of(numbered(20, 30)))
        content = bytearray(objects[name])
        content[position + 100] ^= 4
        objects[name] = bytes(content)
        with pytest.raises(CorruptionError) as caught:
            _rows({"path": uri, "subscribe": "t"})
        assert (caught.value.path, caught.value.position) == (f"{BUCKET}/{name}", position)


def test_a_copy_of_a_planned_topic_under_another_id_is_not_read(tmp_path: Path) -> None:
    """Files that look as planned are of another topic, if the folder says so."""

    def name_topic(number: int) -> None:
        folder, topic_id = str(tmp_path / "t-0"), uuid.UUID(int=number)
        write_partition_metadata(DiskFiles(), folder, PARTITION_METADATA, topic_id=topic_id)

    write_numbered(tmp_path, T0, limit=20)
    name_topic(5)
    query = Query(tmp_path)
    name_topic(6)
    with pytest.raises(PartitionGoneError, match="t-0 is another topic's: t-0 is gone"):
        query.rows()


def test_a_scan_says_that_a_log_begins_above_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With failOnDataLoss=false; the earliest offset is whatever the log has first."""
    write_numbered(tmp_path, T0, first=60, limit=70)
    assert Query(tmp_path, startingOffsets="earliest").offsets() == [*range(60, 70)]
    assert not caplog.messages
    asked = '{"t": {"0": 25}}'
    query = Query(tmp_path, startingOffsets=asked, failOnDataLoss="false")
    assert query.offsets() == [*range(60, 70)]
    [told] = caplog.messages
    assert told == (
        "Skipped: startingOffsets: t-0 was to be read from offset 25 on, and its log begins at 60: "
        "35 offsets are gone"
    )


def _rows(given: dict[str, str]) -> list[dict[str, Any]]:
    options = parse_options(given)
    return [
        row
        for task in plan_scan(options, open_store(options), core_count=1)
        for batch in read_task(
            task, open_store(options), columns=options.columns, fails_on_data_loss=True
        )
        for row in batch.to_pylist()
    ]


class TestTransactions:
    """`kafka.isolation.level`, told from the files alone."""

    @pytest.fixture
    def log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
        """The log of a broker, in the folder of `flights-0` on the disk; segments are small."""
        monkeypatch.chdir(tmp_path)
        return open_at(DiskFiles())

    def read(self, level: str, **options: str) -> list[int]:
        """Offsets that a query sees."""
        query = {"subscribe": "flights", "kafka.isolation.level": level}
        return Query(Path(FOLDER).parent, **query, **options).offsets()

    def test_nothing_of_an_open_transaction_is_committed(self, log: Log) -> None:
        """read_committed ends where an open transaction begins; read_uncommitted has all."""
        append_plain(log, 3)
        TransactionalProducer(log, 7).append(2)
        append_plain(log, 2)
        assert self.read("read_uncommitted") == list(range(7))
        assert self.read("read_committed") == [0, 1, 2]

    def test_a_commit_makes_records_visible(self, log: Log) -> None:
        """The marker takes an offset and is no row."""
        producer = TransactionalProducer(log, 7)
        producer.append(5)
        producer.commit()
        append_plain(log)
        for level in ("read_committed", "read_uncommitted"):
            assert self.read(level) == [0, 1, 2, 3, 4, 6]

    def test_an_abort_hides_them_from_readers_of_committed_records(self, log: Log) -> None:
        """Readers of all records still see them."""
        producer = TransactionalProducer(log, 7)
        producer.append(5)
        producer.abort()
        append_plain(log)
        assert self.read("read_committed") == [6]
        assert self.read("read_uncommitted") == [0, 1, 2, 3, 4, 6]

    def test_a_commit_after_an_abort_shows_its_own_records(self, log: Log) -> None:
        """The producer goes on with its next transaction."""
        producer = TransactionalProducer(log, 7)
        producer.append(2)
        producer.abort()
        producer.append(2)
        producer.commit()
        assert self.read("read_committed") == [3, 4]

    def test_transactions_over_many_segments_are_told_apart(self, log: Log) -> None:
        """Two concurrent producers' transactions are separated, for any tasks and start offset."""
        committed, aborted = TransactionalProducer(log, 7), TransactionalProducer(log, 8)
        expected = []
        for _ in range(20):
            expected += [committed.append(2).base_offset]
            aborted.append(3)
        committed.commit()
        aborted.abort()
        assert len(log.segments) > 3
        rows = [offset for base in expected for offset in (base, base + 1)]
        for tasks in ("1", "7", "50"):
            assert self.read("read_committed", minPartitions=tasks) == rows
        later = self.read("read_committed", startingOffsets='{"flights": {"0": 51}}')
        assert later == [offset for offset in rows if offset >= 51]

    def test_a_range_without_a_visible_record_ends_without_rows(self, log: Log) -> None:
        """It is aborted as a whole."""
        producer = TransactionalProducer(log, 7)
        producer.append(4)
        producer.abort()
        assert self.read("read_committed") == []

    def test_an_offset_behind_the_last_stable_one_is_not_there_yet(self, log: Log) -> None:
        """An end that is asked for by number is refused, as one behind the log's end is."""
        append_plain(log, 3)
        TransactionalProducer(log, 7).append(2)
        ending = {"endingOffsets": '{"flights": {"0": 5}}'}
        assert self.read("read_uncommitted", **ending) == [0, 1, 2, 3, 4]
        with pytest.raises(ConfigError, match="flights-0 has offsets 0 to 3, not 5"):
            self.read("read_committed", **ending)


def damaged(path: Path, *spots: int) -> None:
    """Flip a bit at each of these positions."""
    content = bytearray(path.read_bytes())
    for spot in spots:
        content[spot] ^= 4
    path.write_bytes(content)


class TestDamage:
    """`onCorruption=skip`, with its report."""

    def query(self, data: Path, report: Path, **options: str) -> Query:
        """A query that leaves out what is damaged."""
        skip = {"onCorruption": "skip", "corruptionReport": str(report)}
        return Query(data, **skip, **options)

    def told(self, report: Path) -> list[dict[str, Any]]:
        """All lines of all files, in the order of their names."""
        return [
            json.loads(line)
            for path in sorted(report.glob("*"))
            for line in path.read_text().splitlines()
        ]

    def test_only_the_damaged_batch_is_left_out(self, tmp_path: Path) -> None:
        """A flipped bit under a checksum costs ten records, and one line says which and why."""
        path = write_numbered(tmp_path / "data", T0, limit=50)
        position = path.read_bytes().index(batch_of(numbered(20, 30)))
        damaged(path, position + 100)
        query = self.query(tmp_path / "data", tmp_path / "report")
        assert query.offsets() == [*range(20), *range(30, 50)]
        [line] = self.told(tmp_path / "report")
        assert "CRC-32C" in line.pop("reason")
        assert (line.pop("records"), line.pop("size_bytes")) == (10, 281)
        assert line == {
            "topic": "t",
            "partition": 0,
            "file": str(path),
            "position": position,
            "first_offset": 20,
            "next_offset": 30,
        }

    def test_what_cannot_be_framed_is_left_out_up_to_the_next_sound_batch(
        self, tmp_path: Path
    ) -> None:
        """A damaged length says nothing of where the next batch is; it is found all the same."""
        path = write_numbered(tmp_path / "data", T0, limit=50)
        position = path.read_bytes().index(batch_of(numbered(20, 30)))
        damaged(path, position + 9, position + 10)
        write_numbered(tmp_path / "data", T0, first=50, limit=70)
        query = self.query(tmp_path / "data", tmp_path / "report")
        assert query.offsets() == [*range(20), *range(30, 70)]
        [line] = self.told(tmp_path / "report")
        assert (line["first_offset"], line["next_offset"]) == (20, 30)

    def test_tasks_report_what_is_theirs_and_once_more_the_same(self, tmp_path: Path) -> None:
        """A damaged batch in two tasks has two reports; a retry overwrites its own."""
        path = write_numbered(tmp_path / "data", T0, limit=50)
        damaged(path, path.read_bytes().index(batch_of(numbered(20, 30))) + 100)
        query = self.query(tmp_path / "data", tmp_path / "report", minPartitions="2")
        assert len(query.tasks) == 2
        found = []
        for _ in range(2):
            assert query.offsets() == [*range(20), *range(30, 50)]
            told = self.told(tmp_path / "report")
            found.append([(line["first_offset"], line["next_offset"]) for line in told])
        assert found == [[(20, 25), (25, 30)]] * 2

    def test_records_that_break_a_rule_under_a_right_checksum_are_told_too(
        self, tmp_path: Path
    ) -> None:
        """Only the decoder finds them."""
        import crc32c

        bad = bytearray(batch_of(numbered(10, 20)))
        bad[layout.RECORDS_POSITION] = 0xFF
        crc = crc32c.crc32c(bad[layout.ATTRIBUTES_POSITION :])
        layout.CRC.pack_into(bad, layout.CRC_POSITION, crc)
        good = batch_of(numbered(0, 10))
        write_segment(tmp_path / "data", T0, 0, good + bad + batch_of(numbered(20, 25)))
        query = self.query(tmp_path / "data", tmp_path / "report")
        assert query.offsets() == [*range(10), *range(20, 25)]
        [line] = self.told(tmp_path / "report")
        assert (line["position"], line["first_offset"], line["next_offset"]) == (len(good), 10, 20)

    def test_damage_at_the_end_of_a_log_is_reported_by_the_driver(self, tmp_path: Path) -> None:
        """No task reads there: what stood there, and how much of it, is lost with its header."""
        path = write_numbered(tmp_path / "data", T0, limit=30)
        position = path.read_bytes().index(batch_of(numbered(20, 30)))
        damaged(path, position + layout.MAGIC_POSITION)
        with pytest.raises(CorruptionError):
            Query(tmp_path / "data")
        query = self.query(tmp_path / "data", tmp_path / "report")
        assert query.offsets() == list(range(20))
        [line] = self.told(tmp_path / "report")
        assert (tmp_path / "report" / "log-ends.jsonl").exists()
        assert (line["position"], line["first_offset"]) == (position, 20)
        assert line["next_offset"] is None

    def test_a_damaged_length_does_not_end_the_log(self, tmp_path: Path) -> None:
        """It seems to reach beyond the file, as an append in progress; but sound batches follow."""
        path = write_numbered(tmp_path / "data", T0, limit=30)
        position = path.read_bytes().index(batch_of(numbered(10, 20)))
        damaged(path, position + 9)
        with pytest.raises(CorruptionError) as caught:
            Query(tmp_path / "data")
        assert (caught.value.path, caught.value.position) == (str(path), position)
        query = self.query(tmp_path / "data", tmp_path / "report")
        assert query.offsets() == [*range(10), *range(20, 30)]

    def test_a_sound_log_has_no_report(self, tmp_path: Path) -> None:
        """For a sound log there is no report, and no directory for it."""
        write_numbered(tmp_path / "data", T0, limit=30)
        assert len(self.query(tmp_path / "data", tmp_path / "report").offsets()) == 30
        assert not (tmp_path / "report").exists()

    def test_any_flipped_bit_costs_its_batch_at_most_and_is_told(self, tmp_path: Path) -> None:
        """The others' rows are all there, none is wrong, and what is missing is in the report."""
        path = write_numbered(tmp_path / "data", T0, limit=30)
        sound = path.read_bytes()
        start = sound.index(batch_of(numbered(10, 20)))
        end = sound.index(batch_of(numbered(20, 30)))
        for position in range(start, end, 3):
            path.write_bytes(sound)
            damaged(path, position)
            report = tmp_path / f"report-{position}"
            rows = self.query(tmp_path / "data", report, columns="offset,value").rows()
            assert all(row["value"] == b"value-%d" % row["offset"] for row in rows)
            found = {row["offset"] for row in rows}
            assert found >= {*range(10), *range(20, 30)}
            told = self.told(report)
            missing = {o for line in told for o in range(line["first_offset"], line["next_offset"])}
            assert found | missing == set(range(30))


def large(*offsets: int) -> bytes:
    """A batch of three megabytes for each offset."""
    return b"".join(batch_of([record_at(each, 0, None, bytes(3_000_000))]) for each in offsets)


class TestFilesThatGoAway:
    """Retention, compaction and a topic made anew, between the plan and the task."""

    def log(self, data: Path) -> list[Path]:
        """Three segments of thirty records."""
        return [write_numbered(data, T0, first=first, limit=first + 30) for first in (0, 30, 60)]

    def fails(self, query: Query, words: str) -> None:
        """A task says what has become of its segment, and which offsets it should have read."""
        with pytest.raises(FatalError) as caught:
            query.rows()
        message = str(caught.value)
        assert message.startswith("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] ")
        assert "offsets 0 to 90 were planned" in message
        assert words in message

    @pytest.mark.parametrize("number", [0, 1])
    def test_a_segment_that_is_gone(self, tmp_path: Path, number: int) -> None:
        """A missing segment is a loss at the front, and also in the middle of the log."""
        segments = self.log(tmp_path)
        query = Query(tmp_path)
        segments[number].unlink()
        self.fails(query, f"the segment from offset {30 * number} on is gone")

    def test_a_compacted_segment(self, tmp_path: Path) -> None:
        """A compacted segment has fewer bytes than the plan assumed."""
        segments = self.log(tmp_path)
        query = Query(tmp_path)
        segments[1].write_bytes(batch_of(numbered(50, 60)))
        self.fails(query, f"{segments[1]} had ")

    def test_a_compacted_segment_that_has_taken_in_the_next_one(self, tmp_path: Path) -> None:
        """It is not smaller; the bytes at its old end are others."""
        segments = self.log(tmp_path)
        query = Query(tmp_path)
        sound = [path.read_bytes() for path in segments]
        first = sound[0][: len(batch_of(numbered(0, 10)))]
        segments[0].write_bytes(first + sound[0][len(first) * 2 :] + sound[1])
        self.fails(query, f"{segments[0]} was rewritten")

    def test_a_topic_that_was_made_anew(self, tmp_path: Path) -> None:
        """Other records at the same offsets and positions are noticed."""
        self.log(tmp_path)
        query = Query(tmp_path)
        for segment in self.log(tmp_path):
            content = b"".join(
                batch_of(
                    record._replace(value=record.value.replace(b"value", b"other"))
                    for record in numbered(first, first + 10)
                    if record.value
                )
                for first in range(int(segment.stem), int(segment.stem) + 30, 10)
            )
            assert len(content) == segment.stat().st_size
            segment.write_bytes(content)
        self.fails(query, "was rewritten")

    def test_only_the_segments_of_a_task_count(self, tmp_path: Path) -> None:
        """Segments of other tasks may be deleted."""
        segments = self.log(tmp_path)
        query = Query(tmp_path, minPartitions="3")
        segments[0].unlink()
        with pytest.raises(FatalError):
            list(query.run(query.tasks[0]))
        assert sum(batch.num_rows for batch in query.run(query.tasks[2])) == 30

    def test_an_append_is_no_loss(self, tmp_path: Path) -> None:
        """The last segment grows, and gets a follower."""
        segments = self.log(tmp_path)
        query = Query(tmp_path)
        segments[2].write_bytes(segments[2].read_bytes() + batch_of(numbered(90, 100)))
        write_numbered(tmp_path, T0, first=100, limit=110)
        assert query.offsets() == list(range(90))

    def test_what_is_left_is_read_if_loss_is_no_failure(self, tmp_path: Path) -> None:
        """A compacted, a removed, and at last no folder at all; never a row twice."""
        segments = self.log(tmp_path)
        query = Query(tmp_path, minPartitions="2", failOnDataLoss="false")
        segments[1].write_bytes(batch_of(numbered(50, 60)))
        assert query.offsets() == [*range(30), *range(50, 90)]
        segments[0].unlink()
        assert query.offsets() == [*range(50, 90)]
        shutil.rmtree(tmp_path / "t-0")
        assert query.offsets() == []

    def changing(self, data: Path, **options: str) -> tuple[Iterator[int], Path]:
        """The offsets of a task that has read the first of three large segments, and the second."""
        paths = [
            write_segment(data, T0, first, large(*range(first, first + 3))) for first in (0, 3, 6)
        ]
        skip = {"onCorruption": "skip", "corruptionReport": str(data / "report")}
        query = Query(data, columns="offset,value", **skip, **options)
        [task] = query.tasks
        rows = (offset for batch in query.run(task) for offset in batch["offset"].to_pylist())
        assert [next(rows) for _ in range(3)] == [0, 1, 2]
        return rows, paths[1]

    def test_a_segment_that_is_rewritten_under_a_task_is_not_damaged(self, tmp_path: Path) -> None:
        """In the same file, as by who copies a directory: it is read anew from the next offset."""
        for value, rest in (("true", None), ("false", [4, 5, 6, 7, 8])):
            rows, second = self.changing(tmp_path / value, failOnDataLoss=value)
            second.write_bytes(batch_of([record_at(4, 0, None, b"")]) + large(5))
            if rest is None:
                with pytest.raises(FatalError, match="COULD_NOT_READ_OFFSET_RANGE"):
                    list(rows)
            else:
                assert list(rows) == rest
            assert not (tmp_path / value / "report").exists()

    def test_a_log_that_ends_earlier_is_read_to_its_end(self, tmp_path: Path) -> None:
        """A log that was made again with fewer records is a loss, not a damaged one."""
        for value, rest in (("true", None), ("false", [3])):
            rows, second = self.changing(tmp_path / value, failOnDataLoss=value)
            second.write_bytes(batch_of([record_at(3, 0, None, b"")]))
            (second.parent / f"{6:020}.log").unlink()
            if rest is None:
                with pytest.raises(FatalError, match="COULD_NOT_READ_OFFSET_RANGE"):
                    list(rows)
            else:
                assert list(rows) == rest
            assert not (tmp_path / value / "report").exists()

    def test_a_partition_that_goes_under_a_task_has_sparks_name(self, tmp_path: Path) -> None:
        """The rows of before stay, or the task fails with the error class of Spark."""
        for value in ("true", "false"):
            rows, _ = self.changing(tmp_path / value, failOnDataLoss=value)
            shutil.rmtree(tmp_path / value / "t-0")
            if value == "true":
                with pytest.raises(FatalError, match=r"KAFKA_DATA_LOSS.PARTITIONS_DELETED\]"):
                    list(rows)
            else:
                assert list(rows) == []

    def test_retention_in_the_middle_of_a_task_is_a_loss_too(self, tmp_path: Path) -> None:
        """Rows read before stay; then the task fails, or continues with the remaining records."""
        big = bytes(9_000_000)
        for value, rest in (("true", None), ("false", [2])):
            data = tmp_path / value
            segments = [
                write_segment(data, T0, offset, batch_of([record_at(offset, 0, None, big)]))
                for offset in range(3)
            ]
            query = Query(data, failOnDataLoss=value, columns="offset,value")
            [task] = query.tasks
            rows = query.run(task)
            assert next(rows)["offset"].to_pylist() == [0]
            segments[0].unlink()
            segments[1].unlink()
            if rest is None:
                with pytest.raises(FatalError, match="were planned, but"):
                    next(rows)
            else:
                assert [offset for b in rows for offset in b["offset"].to_pylist()] == rest


def test_a_time_is_found_by_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older segments are not read, even damaged ones; short or missing indexes give the same."""
    monkeypatch.chdir(tmp_path)
    stop_cleanly(filled(DiskFiles(), 40))
    store = open_store(parse_options({"path": "data", "subscribe": "flights"}))

    def found() -> list[int | None]:
        return [store.offset_at(PARTITION, NOW + number) for number in range(42)]

    assert found() == [*range(40), None, None]
    first = Path(path(0, ".log"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + b"!")
    assert store.offset_at(PARTITION, NOW + 30) == 30
    first.write_bytes(whole)
    indexes = sorted(Path(FOLDER).glob("*.timeindex"))
    for index in indexes:
        index.write_bytes(index.read_bytes()[:12])
    assert found() == [*range(40), None, None]
    for index in indexes:
        index.unlink()
    assert found() == [*range(40), None, None]


def test_kafkas_metadata_log_is_read_by_name_only(tmp_path: Path) -> None:
    """A pattern matches what a broker would list; and each broker's directory has one."""
    other = shutil.copytree(KRAFT, tmp_path / "other")
    for folder in ("events-0", "other-0", "__consumer_offsets-0"):
        shutil.rmtree(other / folder)
    options = parse_options({"path": str(KRAFT), "subscribePattern": ".*"})
    listed = open_store(options).partitions(options.selection)
    assert {each.topic for each in listed} == {"__consumer_offsets", "events", "other"}
    assert len(Query(KRAFT, other, subscribe="events").offsets()) == 60
    assert len(Query(KRAFT, subscribe=METADATA_TOPIC).offsets()) > 20
    named = json.dumps({METADATA_TOPIC: [0]})
    options = parse_options({"path": str(KRAFT), "assign": named})
    assert open_store(options).partitions(options.selection) >= {TopicPartition(METADATA_TOPIC, 0)}
    with pytest.raises(ConfigError, match="a partition has one log"):
        Query(KRAFT, other, subscribe=METADATA_TOPIC)
