"""A stream on PySpark 4.0 and 4.1, where Spark does not tell `latestOffset` where it stands."""

import json
from pathlib import Path

import pytest

from tailrace import Admin
from tailrace.errors import ConfigError, FatalError
from tailrace.spark.options import parse_options
from tailrace.spark.pyspark_versions import ReadAllAvailable
from tailrace.spark.streaming import StreamReaderWithoutStart, TailraceStreamReader, refuse_limits
from tailrace.testing import TestBroker
from tests.spark.directories import write_numbered
from tests.unit.spark.stream_query import T0, T1, Clock, Offset, span


class Query:
    """Drives a reader as the engine of Spark 4.0 does; `written` is the checkpoint."""

    def __init__(self, path: Path, **options: str) -> None:
        self.path = path
        self.written: list[Offset] = []
        self.start_process(**options)

    def start_process(self, **options: str) -> None:
        """Start, or start again: the reader is told of the last offset by an empty range."""
        clock = Clock()
        named = {"path": str(self.path), "startingOffsets": "earliest", "subscribe": "t"} | options
        self.reader = StreamReaderWithoutStart(
            TailraceStreamReader(
                parse_options(named, is_stream=True),
                columns=["partition", "offset"],
                clock=clock,
                pause=clock.pause,
            )
        )
        if self.written:
            assert self.reader.partitions(self.written[-1], self.written[-1]) == []

    def poll(self) -> bool:
        """Ask for the end of a batch and write it down; whether there is one."""
        end = json.loads(json.dumps(self.reader.latestOffset()))
        if self.written and end == self.written[-1]:
            return False
        self.written.append(end)
        return True

    def read(self) -> list[tuple[int, int]]:
        """Partition and offset of the records of the last batch in the checkpoint."""
        start = self.written[-2] if len(self.written) > 1 else self.reader.initialOffset()
        return sorted(
            (row["partition"], row["offset"])
            for task in self.reader.partitions(start, self.written[-1])
            for batch in self.reader.read(task)
            for row in batch.to_pylist()
        )


def test_each_record_is_read_once_over_restarts(tmp_path: Path) -> None:
    """The reader keeps where it stands, and takes it from the checkpoint after a restart."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    assert query.poll()
    assert query.read() == span(0, 20)
    assert not query.poll()
    write_numbered(tmp_path, T0, limit=30)
    assert query.poll()
    assert query.read() == span(20, 30)
    query.start_process()
    assert not query.poll()
    write_numbered(tmp_path, T0, limit=45)
    write_numbered(tmp_path, T1, limit=5)
    assert query.poll()
    assert query.read() == span(30, 45) + span(0, 5, partition=1)


def test_a_first_batch_that_was_not_committed_is_read_again_as_it_was(tmp_path: Path) -> None:
    """It begins where "latest" was when the query was started first."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path, startingOffsets="latest")
    assert query.poll()
    write_numbered(tmp_path, T0, limit=50)
    query.start_process(startingOffsets="latest")
    assert query.read() == []
    assert query.poll()
    assert query.read() == span(20, 50)


def test_a_loss_fails_before_the_batch_is_noted(tmp_path: Path) -> None:
    """The checkpoint keeps the last offsets that were read, as with newer versions."""
    path = write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    query.poll()
    query.read()
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(FatalError, match="PARTITIONS_DELETED"):
        query.poll()


def test_limits_per_trigger_are_refused() -> None:
    """Each limit is named, with the version that has them."""
    with pytest.raises(ConfigError) as caught:
        refuse_limits({"maxoffsetspertrigger": "5", "maxBytesPerTrigger": "5", "path": "x"})
    assert len(caught.value.faults) == 2
    assert "maxOffsetsPerTrigger: limits per trigger need PySpark 4.2" in caught.value.faults[0]
    refuse_limits({"path": "x"})


@pytest.mark.parametrize("is_told", [True, False])
def test_offsets_are_committed_to_the_group_of_the_option(*, is_told: bool) -> None:
    """Also where Spark does not tell the reader where it stands."""
    with TestBroker(offsets_topic_num_partitions=1) as broker:
        broker.produce("t", b"one")
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": "t",
            "startingOffsets": "earliest",
            "groupId": "g",
        }
        inner = TailraceStreamReader(parse_options(options, is_stream=True), columns=["value"])
        reader = inner if is_told else StreamReaderWithoutStart(inner)
        end = (
            inner.latestOffset(inner.initialOffset(), ReadAllAvailable())
            if is_told
            else StreamReaderWithoutStart(inner).latestOffset()
        )
        reader.partitions(reader.initialOffset(), end)
        # Spark calls it when it plans the next batch.
        reader.commit(end)
        reader.stop()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            [found] = admin.list_group_offsets("g").results().values()
        assert found.offset == 1
