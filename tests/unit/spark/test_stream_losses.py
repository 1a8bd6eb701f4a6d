"""Tests of a stream when records, partitions or the whole place are gone."""

import shutil
import uuid
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import DirectoryError, FatalError
from tailrace.model import TopicPartition
from tailrace.runtime.files import DiskFiles
from tailrace.spark.progress import DataLossError
from tailrace.spark.streaming import OUTAGE_SECONDS
from tailrace.storage.checkpoints import write_partition_metadata
from tailrace.storage.names import PARTITION_METADATA
from tests.examples import examples
from tests.spark.directories import write_numbered
from tests.unit.spark.stream_query import T0, T1, Query, span


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_run_of_what_is_available_fails_if_it_shrinks(tmp_path: Path, fails: str) -> None:
    """Deleted offsets of the run are an error, whatever failOnDataLoss says."""
    for partition in (T0, T1):
        write_numbered(tmp_path, partition, limit=20)
    query = Query(tmp_path, failOnDataLoss=fails)
    query.reader.prepareForTriggerAvailableNow()
    query.poll()
    shutil.rmtree(tmp_path / "t-1")
    write_numbered(tmp_path, T0, limit=5)
    with pytest.raises(FatalError) as caught:
        query.read()
    message = str(caught.value)
    assert "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST" in message
    assert "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] t-1" in message
    assert message.endswith("run the query again")


def age(path: Path) -> None:
    """Remove the first segment of a partition that has two."""
    (path / "t-0" / f"{0:020}.log").unlink()


def recreate(path: Path) -> None:
    """Delete the topic, and create it again with less in it."""
    shutil.rmtree(path / "t-0")
    write_numbered(path, T0, limit=4)


def delete(path: Path) -> None:
    """Delete one of the partitions."""
    shutil.rmtree(path / "t-1")


def add(path: Path) -> None:
    """A partition whose first records are gone already."""
    write_numbered(path, TopicPartition("t", 2), first=7, limit=9)


LOSSES = {
    "COULD_NOT_READ_OFFSET_RANGE] t-0": (age, span(30, 40), (30, 45), span(40, 45)),
    "PARTITION_OFFSET_CHANGED] t-0": (recreate, [], (0, 6), span(4, 6)),
    "PARTITIONS_DELETED] t-1": (delete, span(20, 40), (30, 45), span(40, 45)),
    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO] t-2": (
        add,
        span(20, 40) + span(7, 9, partition=2),
        (30, 45),
        span(40, 45),
    ),
}
"""By error: the event, the rows left to read, the range appended then, and the rows that follow."""


@pytest.mark.parametrize("name", LOSSES)
def test_lost_records_fail_the_query_or_are_skipped(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With failOnDataLoss nothing is noted, and the loss must show in three looks.

    Without, the rest is read once, the loss is logged once, and the stream goes on.
    """
    happens, left, (first, limit), following = LOSSES[name]
    write_numbered(tmp_path, T0, limit=30)
    write_numbered(tmp_path, T1, limit=1)
    query = Query(tmp_path, startingOffsets='{"t": {"0": 20, "1": 1}}')
    query.poll()
    query.written = [{"t": {"0": 20, "1": 1}}]
    write_numbered(tmp_path, T0, first=30, limit=40)
    happens(tmp_path)
    query.clock.pauses.clear()
    with pytest.raises(DataLossError) as caught:
        query.poll()
    assert f"[KAFKA_DATA_LOSS.{name}" in str(caught.value)
    assert query.clock.pauses[-2:] == [1, 1]
    assert len(query.written) == 1

    query.restart(failOnDataLoss="false")
    assert query.run() == left
    assert [record.message for record in caplog.records if name in record.message]
    caplog.clear()
    write_numbered(tmp_path, T0, first=first, limit=limit)
    assert query.run() == following
    assert not query.poll()
    assert not caplog.records


def test_a_loss_between_the_plan_and_the_batch_is_told_too(tmp_path: Path) -> None:
    """A batch of the checkpoint whose records have aged out fails, or has only what is left."""
    write_numbered(tmp_path, T0, limit=20)
    write_numbered(tmp_path, T0, first=20, limit=30)
    query = Query(tmp_path)
    query.poll()
    age(tmp_path)
    query.restart()
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        query.read()
    query.restart(failOnDataLoss="false")
    assert query.read() == span(20, 30)
    assert not query.poll()


def test_what_is_back_at_the_second_look_was_never_lost(tmp_path: Path) -> None:
    """A broker that has just started may not know all of its topics yet."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    query.run()
    (tmp_path / "t-0").rename(tmp_path / "hidden")
    query.clock.now += 1
    query.clock.meanwhile = lambda: (tmp_path / "hidden").rename(tmp_path / "t-0")
    assert not query.poll()
    write_numbered(tmp_path, T0, limit=22)
    assert query.run() == span(20, 22)


def test_what_is_missing_for_longer_goes_on_where_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that a starting broker does not know yet is told once, and no record comes twice."""
    write_numbered(tmp_path, T0, limit=20)
    write_numbered(tmp_path, T1, limit=5)
    options = {"failOnDataLoss": "false"}
    query = Query(tmp_path, **options)
    query.run()
    (tmp_path / "t-0").rename(tmp_path / "hidden")
    write_numbered(tmp_path, T1, limit=7)
    assert query.run() == span(5, 7, partition=1)
    write_numbered(tmp_path, T1, limit=9)
    assert query.run() == span(7, 9, partition=1)
    assert len([each for each in caplog.messages if "PARTITIONS_DELETED] t-0" in each]) == 1
    assert query.reader.statistics().loss_count == 1
    query.restart(**options)
    (tmp_path / "hidden").rename(tmp_path / "t-0")
    write_numbered(tmp_path, T0, limit=25)
    assert query.run() == span(20, 25)
    query.restart()
    assert not query.poll()


def test_a_batch_that_is_replayed_is_looked_for_three_times(tmp_path: Path) -> None:
    """A broker that starts together with the query may not know all of its topics yet."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path, failOnDataLoss="false")
    query.poll()
    query.restart(failOnDataLoss="false")
    (tmp_path / "t-0").rename(tmp_path / "hidden")
    query.clock.meanwhile = lambda: (tmp_path / "hidden").rename(tmp_path / "t-0")
    assert query.read() == span(0, 20)
    assert query.clock.pauses == [1]


def test_a_stream_says_that_a_log_begins_above_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With failOnDataLoss=false it begins where the log does, once."""
    write_numbered(tmp_path, T0, first=60, limit=70)
    query = Query(tmp_path, startingOffsets='{"t": {"0": 25}}', failOnDataLoss="false")
    query.poll()
    assert query.read() == span(60, 70)
    query.poll()
    [told] = caplog.messages
    assert told == (
        "Skipped: startingOffsets: t-0 was to be read from offset 25 on, and its log begins at 60: "
        "35 offsets are gone"
    )


OLD, NEW = uuid.UUID(int=5), uuid.UUID(int=6)
"""Ids of two topics of one name."""


def name_topic(path: Path, topic_id: uuid.UUID, partition: TopicPartition = T0) -> None:
    """Give the folder of a partition its topic id."""
    folder = str(path / str(partition))
    write_partition_metadata(DiskFiles(), folder, PARTITION_METADATA, topic_id=topic_id)


def make_again(path: Path, limit: int) -> None:
    """Delete the topic, and create it again with so many records."""
    shutil.rmtree(path / "t-0")
    write_numbered(path, T0, limit=limit)
    name_topic(path, NEW)


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("limit", [3, 20, 40])
def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int, *, is_stopped: bool
) -> None:
    """Its id tells, also where the new topic is longer than the old one; it is a loss."""
    write_numbered(tmp_path, T0, limit=20)
    name_topic(tmp_path, OLD)
    query = Query(tmp_path)
    query.run()
    make_again(tmp_path, limit)
    if is_stopped:
        query.restart()
    with pytest.raises(DataLossError, match=r"KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED\] t-0"):
        query.poll()
    query.restart(failOnDataLoss="false")
    assert query.run() == span(0, limit)
    assert "t was deleted and made again" in caplog.text
    caplog.clear()
    write_numbered(tmp_path, T0, limit=limit + 2)
    assert query.run() == span(limit, limit + 2)
    assert not caplog.records


def test_a_topic_made_again_behind_the_plan_of_a_batch_is_read_once(tmp_path: Path) -> None:
    """Nothing of it comes with the batch that was planned for the old one, replayed or not."""
    options = {"failOnDataLoss": "false"}
    for is_stopped in (False, True):
        path = tmp_path / str(is_stopped)
        write_numbered(path, T0, limit=20)
        name_topic(path, OLD)
        query = Query(path, **options)
        query.poll()
        make_again(path, 30)
        if is_stopped:
            query.restart()
            with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
                query.read()
            query.restart(**options)
        assert query.read() == []
        assert query.run() == span(0, 30)
        assert not query.poll()


def test_a_checkpoint_without_topic_ids_gets_them_with_its_next_batch(tmp_path: Path) -> None:
    """Such a checkpoint goes on where it was; its topic is known from then on."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    query.run()
    assert query.written[-1] == {"t": {"0": 20}, "@from": {"t": {"0": 0}}}
    name_topic(tmp_path, NEW)
    assert not query.poll()
    write_numbered(tmp_path, T0, limit=22)
    assert query.run() == span(20, 22)
    assert query.written[-1] == {"t": {"0": 22}, "@id t AAAAAAAAAAAAAAAAAAAABg": {}}
    assert query.reader.reportLatestOffset() == query.written[-1]


def test_a_run_of_what_is_available_fails_if_its_topic_is_made_again(tmp_path: Path) -> None:
    """Deleted offsets of the run are an error there, also where the new topic is longer."""
    write_numbered(tmp_path, T0, limit=20)
    name_topic(tmp_path, OLD)
    query = Query(tmp_path, failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    query.poll()
    make_again(tmp_path, 30)
    with pytest.raises(FatalError, match="its topic was deleted and made again; run the query"):
        query.read()


def test_an_outage_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    """A mount that goes away for minutes costs no record; from the start it is an error."""
    path = tmp_path / "data"
    with pytest.raises(DirectoryError):
        Query(path).poll()
    write_numbered(path, T0, limit=20)
    query = Query(path)
    query.run()
    path.rename(tmp_path / "away")
    assert not query.poll()
    query.clock.now += OUTAGE_SECONDS / 2
    assert not query.poll()
    (tmp_path / "away").rename(path)
    write_numbered(path, T0, limit=25)
    assert query.run() == span(20, 25)
    path.rename(tmp_path / "away")
    query.clock.now += OUTAGE_SECONDS
    with pytest.raises(DirectoryError):
        query.poll()


ACTIONS = st.lists(st.sampled_from(["append", "age", "batch", "crash", "restart"]), max_size=25)


@settings(max_examples=examples(60))
@given(actions=ACTIONS, chosen=st.randoms(use_true_random=False))
def test_whatever_happens_no_record_comes_twice_and_none_is_forgotten(
    actions: list[str], chosen: Random
) -> None:
    """Partitions come, segments age out, batches fail and queries are started again."""
    options = {
        "subscribePattern": "t",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "7",
    }
    with TemporaryDirectory() as directory:
        path = Path(directory)
        query = Query(path, **options)
        segments: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
        read: list[tuple[int, int]] = []
        for action in [*actions, *["batch"] * 60]:
            number = chosen.randrange(3)
            logs = segments[number]
            if action == "append":
                first = logs[-1][1] if logs else 0
                logs.append((first, first + chosen.randint(1, 6)))
                write_numbered(path, TopicPartition("t", number), first=first, limit=logs[-1][1])
            elif action == "age" and len(logs) > 1:
                (path / f"t-{number}" / f"{logs.pop(0)[0]:020}.log").unlink()
            elif action == "restart":
                query.restart(**options)
            elif action in {"batch", "crash"} and query.poll():
                rows = query.read()
                if action == "crash":
                    query.restart(**options)
                    assert query.read() == rows
                read += rows
        assert len(read) == len(set(read))
        there = {
            row
            for number, logs in segments.items()
            for first, limit in logs
            for row in span(first, limit, partition=number)
        }
        assert there <= set(read)
