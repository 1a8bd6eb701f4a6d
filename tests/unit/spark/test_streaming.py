"""Tests of a stream's reads: its start, the ends of its batches, and data that comes meanwhile."""

import pickle
import shutil
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.spark.options import parse_options
from tailrace.spark.streaming import TailraceStreamReader
from tests.spark.directories import batch_of, numbered, write_numbered, write_segment
from tests.unit.spark.stream_query import T0, T1, U0, Query, span


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": "latest"}, 20),
        ({"startingOffsets": '{"t": {"0": 7}}'}, 7),
        ({"startingOffsets": '{"t": {"0": -2}}'}, 0),
        ({"startingOffsets": '{"t": {"0": -1}}'}, 20),
        ({"startingTimestamp": "13000"}, 13),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 13500}}'}, 14),
        (
            {"startingTimestamp": "999999", "startingOffsetsByTimestampStrategy": "latest"},
            20,
        ),
    ],
)
def test_a_stream_starts_where_the_options_say_and_goes_on(
    tmp_path: Path, starting: dict[str, str], first: int
) -> None:
    """Records appended later, also while it is stopped, come once and in order."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path, **starting)
    assert query.run() == span(first, 20)
    write_numbered(tmp_path, T0, limit=30)
    assert query.run() == span(20, 30)
    query.restart(**starting)
    write_numbered(tmp_path, T0, first=30, limit=40)
    assert query.run() == span(30, 40)
    assert not query.poll()
    assert query.reader.reportLatestOffset() == {"t": {"0": 40}}


def test_a_start_that_no_log_has_is_refused(tmp_path: Path) -> None:
    """The errors are those of a batch: a timestamp or offset too large, an unknown topic."""
    write_numbered(tmp_path, T0, limit=20)
    for options in (
        {"startingTimestamp": "999999"},
        {"startingOffsets": '{"t": {"0": 21}}'},
        {"subscribe": "t,x"},
    ):
        with pytest.raises(ConfigError):
            Query(tmp_path, **options).poll()


def test_a_first_batch_that_was_not_committed_is_read_again_as_it_was(tmp_path: Path) -> None:
    """Though "latest" would be elsewhere by now, and a partition has come that has no offset."""
    write_numbered(tmp_path, T0, limit=20)
    latest = Query(tmp_path, startingOffsets="latest")
    specific = Query(tmp_path, startingOffsets='{"t": {"0": 5}}')
    for query in (latest, specific):
        query.poll()
    write_numbered(tmp_path, T0, limit=50)
    write_numbered(tmp_path, T1, limit=5)
    for query, first in ((latest, 20), (specific, 5)):
        query.restart(startingOffsets='{"t": {"0": 5}}')
        assert query.read() == span(first, 20)
        assert query.run() == span(20, 50) + span(0, 5, partition=1)


def test_a_batch_that_failed_is_read_again_as_it_was(tmp_path: Path) -> None:
    """A failed batch has the same rows again; newer ones come in the next batch (SPARK-53560)."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    query.run()
    write_numbered(tmp_path, T0, limit=30)
    assert query.run() == span(20, 30)
    write_numbered(tmp_path, T0, limit=45)
    write_numbered(tmp_path, T1, limit=5)
    for is_available_now in (False, True):
        query.restart()
        if is_available_now:
            query.reader.prepareForTriggerAvailableNow()
        assert query.read() == span(20, 30)
    assert query.run() == span(30, 45) + span(0, 5, partition=1)


def test_new_segments_partitions_and_topics_are_seen(tmp_path: Path) -> None:
    """A pattern takes up a topic when it comes; all start from their first offset."""
    query = Query(tmp_path, subscribePattern="^[tu]$", startingOffsets="latest")
    assert query.run() == []
    assert len(query.written) == 1
    write_numbered(tmp_path, T0, limit=10)
    assert query.run() == span(0, 10)
    write_numbered(tmp_path, T0, first=10, limit=15)
    write_numbered(tmp_path, T1, limit=2)
    write_numbered(tmp_path, TopicPartition("other", 0), limit=2)
    assert query.run() == span(10, 15) + span(0, 2, partition=1)
    write_numbered(tmp_path, U0, limit=3)
    assert query.run() == span(0, 3)
    assert not query.poll()


def test_empty_partitions_are_positions_too(tmp_path: Path) -> None:
    """A partition without a record is in the offset, so its first record is not a surprise."""
    (tmp_path / "t-0").mkdir()
    query = Query(tmp_path)
    assert query.run() == []
    assert query.written == [{"t": {"0": 0}, "@from": {"t": {"0": 0}}}]
    assert not query.poll()


def test_polls_take_turns_and_no_answer_is_old(tmp_path: Path) -> None:
    """There are 50 ms from one look to the next, and what stands there by then is seen."""
    write_numbered(tmp_path, T0, limit=10)
    query = Query(tmp_path)
    query.run()
    assert query.clock.pauses == []
    for _ in range(70):
        assert not query.poll()
    assert query.clock.pauses == [pytest.approx(0.05)] * 70
    query.clock.meanwhile = lambda: write_numbered(tmp_path, T0, limit=11)
    assert query.run() == span(10, 11)


def test_offsets_are_limited_in_proportion_also_after_a_restart(tmp_path: Path) -> None:
    """The backlog of three partitions shrinks evenly; Trigger.Once takes the rest at once."""
    write_numbered(tmp_path, T0, limit=101)
    write_numbered(tmp_path, T1, limit=11)
    write_numbered(tmp_path, TopicPartition("t", 2), limit=1)
    query = Query(tmp_path, maxOffsetsPerTrigger="10")
    assert query.run() == span(0, 8) + span(0, 1, partition=1) + span(0, 1, partition=2)
    query.restart(maxOffsetsPerTrigger="10")
    assert query.run() == span(8, 17) + span(1, 2, partition=1)
    assert query.run(is_limited=False) == span(17, 101) + span(2, 11, partition=1)


def test_bytes_are_limited_by_the_sizes_of_segments(tmp_path: Path) -> None:
    """A batch ends where its share of the bytes does, and offsets may limit it further."""
    size = write_numbered(tmp_path, T0, limit=100).stat().st_size
    size += write_numbered(tmp_path, T0, first=100, limit=200).stat().st_size
    query = Query(tmp_path, maxBytesPerTrigger=str(size // 4))
    counts = []
    while query.poll():
        counts.append(len(query.read()))
    assert sum(counts) == 200
    assert all(45 <= count <= 55 for count in counts[:3])
    both = Query(tmp_path, maxBytesPerTrigger=str(size // 4), maxOffsetsPerTrigger="7")
    assert both.run() == span(0, 7)
    assert Query(tmp_path, maxBytesPerTrigger="1").run() == span(0, 1)
    assert len(Query(tmp_path, maxBytesPerTrigger=str(2**63 - 1)).run()) == 200


def test_a_minimum_holds_a_batch_back_until_the_delay_is_over(tmp_path: Path) -> None:
    """The first batch of each run comes at once; with a maximum, what comes is capped."""
    options = {
        "minOffsetsPerTrigger": "15",
        "maxOffsetsPerTrigger": "20",
        "maxTriggerDelay": "30s",
    }
    write_numbered(tmp_path, T0, limit=10)
    query = Query(tmp_path, **options)
    assert query.run() == span(0, 10)
    write_numbered(tmp_path, T0, limit=20)
    assert not query.poll()
    write_numbered(tmp_path, T0, limit=40)
    assert query.run() == span(10, 30)
    assert not query.poll()
    query.clock.now += 30
    assert query.run() == span(30, 40)
    query.clock.now += 1
    write_numbered(tmp_path, T0, limit=42)
    assert not query.poll()
    query.restart(**options)
    assert query.run() == span(40, 42)
    write_numbered(tmp_path, T0, limit=44)
    assert query.run(is_limited=False) == span(42, 44)


def test_a_run_of_what_is_available_ends_where_it_was_told(tmp_path: Path) -> None:
    """The batches of such a run are capped, have no minimum, and leave out what comes meanwhile."""
    write_numbered(tmp_path, T0, limit=25)
    query = Query(tmp_path, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="8")
    query.reader.prepareForTriggerAvailableNow()
    write_numbered(tmp_path, T0, limit=60)
    write_numbered(tmp_path, T1, limit=5)
    assert [query.run(), query.run(), query.run()] == [span(0, 10), span(10, 20), span(20, 25)]
    assert not query.poll()
    assert query.clock.pauses == []


def test_a_run_of_nothing_at_all_ends_at_once(tmp_path: Path) -> None:
    """A topic that comes after the run began is none of its business."""
    query = Query(tmp_path, subscribePattern="t")
    query.reader.prepareForTriggerAvailableNow()
    write_numbered(tmp_path, T0, limit=5)
    assert query.run() == []
    assert not query.poll()
    query.restart(subscribePattern="t")
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == span(0, 5)


def test_when_all_topics_are_gone_new_ones_still_start_at_their_first_offset(
    tmp_path: Path,
) -> None:
    """A stream that is left without a partition does not take itself for a new one."""
    options = {"subscribePattern": "[tu]", "failOnDataLoss": "false"}
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path, startingOffsets="latest", **options)
    query.run()
    shutil.rmtree(tmp_path / "t-0")
    assert query.run() == []
    assert query.written[-1] == {"@gone t 0 20": {}}
    write_numbered(tmp_path, U0, limit=3)
    assert query.run() == span(0, 3)


def test_a_topic_that_is_added_to_the_options_must_be_there(tmp_path: Path) -> None:
    """A missing topic fails the restart; with failOnDataLoss=false it may come later."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    query.run()
    query.restart(subscribe="t,u")
    with pytest.raises(ConfigError, match="topic 'u' does not exist; there are: t"):
        query.poll()
    query.restart(subscribe="t,u", failOnDataLoss="false")
    assert not query.poll()
    write_numbered(tmp_path, U0, limit=3)
    assert query.run() == span(0, 3)


def of_transaction(first: int, *, count: int) -> bytes:
    """Records of a transaction from an offset on, or with a count of 0 the marker that commits."""
    builder = BatchBuilder(
        producer_id=7,
        producer_epoch=0,
        base_sequence=first if count else -1,
        is_transactional=True,
        is_control=not count,
    )
    commit = bytes([0, 0, 0, 1])
    for _ in range(count or 1):
        builder.append(None if count else commit, bytes(6), timestamp=0)
    data = bytearray(builder.build())
    stamp(memoryview(data), base_offset=first, leader_epoch=0)
    return bytes(data)


def test_a_stream_of_committed_records_waits_for_a_transaction(tmp_path: Path) -> None:
    """Records of an open transaction wait; markers are offsets without a row."""
    plain = batch_of(numbered(0, 5))
    write_segment(tmp_path, T0, 0, plain + of_transaction(5, count=3))
    query = Query(tmp_path, **{"kafka.isolation.level": "read_committed"})
    assert query.run() == span(0, 5)
    assert not query.poll()
    committed = plain + of_transaction(5, count=3) + of_transaction(8, count=0)
    write_segment(tmp_path, T0, 0, committed)
    assert query.run() == span(5, 8)
    assert query.written[-1] == {"t": {"0": 9}}
    write_segment(tmp_path, T0, 0, committed + of_transaction(9, count=0))
    assert query.poll()
    assert query.read() == []
    assert not query.poll()


def test_statistics_tell_how_far_a_stream_is_behind(tmp_path: Path) -> None:
    """By the log ends of the last look, and by what was planned up to then."""
    write_numbered(tmp_path, T0, limit=20)
    write_numbered(tmp_path, T1, limit=5)
    query = Query(tmp_path, maxOffsetsPerTrigger="10")
    before = query.reader.statistics()
    assert (before.behind_offsets_max, before.seen_seconds_ago) == (None, None)
    read = len(query.run())
    found = query.reader.statistics()
    assert (found.partition_count, found.batch_count, found.batch_offsets_total) == (2, 1, read)
    assert (found.behind_offsets_total, found.behind_offsets_max) == (25 - read, 12)
    query.clock.pause(3)
    while query.run():
        pass
    found = query.reader.statistics()
    assert (found.behind_offsets_total, found.batch_offsets_total) == (0, 25)
    assert found.loss_count == 0


def test_statistics_count_looks_and_losses(tmp_path: Path) -> None:
    """A look that fails counts, and the time since the last good one grows."""
    write_numbered(tmp_path, T0, limit=20)
    write_numbered(tmp_path, T1, limit=5)
    query = Query(tmp_path, failOnDataLoss="false")
    query.run()
    looks = query.reader.statistics().looks.look_count
    shutil.rmtree(tmp_path / "t-1")
    query.run()
    found = query.reader.statistics()
    assert (found.loss_count, found.looks.failure_count) == (1, 0)
    assert found.looks.look_count > looks
    tmp_path.rename(tmp_path.with_name("gone"))
    query.clock.pause(5)
    query.poll()
    found = query.reader.statistics()
    assert found.looks.failure_count == 1
    assert found.seen_seconds_ago == pytest.approx(5)


def test_a_commit_and_a_stop_leave_the_reader_usable(tmp_path: Path) -> None:
    """Spark repeats commits after a restart, and stops rarely."""
    write_numbered(tmp_path, T0, limit=20)
    query = Query(tmp_path)
    query.run()
    query.reader.commit(query.written[-1])
    query.reader.stop()
    write_numbered(tmp_path, T0, limit=21)
    assert query.run() == span(20, 21)


def test_a_reader_of_a_broker_travels_to_the_workers() -> None:
    """Spark pickles one that has not been asked for anything; no connection is in it."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    reader = TailraceStreamReader(parse_options(options, is_stream=True), columns=["offset"])
    travelled = pickle.loads(pickle.dumps(reader))
    assert travelled.initialOffset() == reader.initialOffset() == {}
    assert list(travelled.read(InputPartition(None))) == []
