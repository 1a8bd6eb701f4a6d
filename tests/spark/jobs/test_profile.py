"""`profile_topics` in a real session, from a directory that is sound and from a damaged one."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import ConfigError, CorruptionError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.pages import profile_page
from tailrace.spark.jobs.profile import profile_topics
from tests.spark.directories import write_numbered

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three partitions of `t`, one of `u`, one of a topic that nobody asks for."""
    for number in range(3):
        write_numbered(tmp_path, TopicPartition("t", number), limit=500 + number)
    write_numbered(tmp_path, TopicPartition("u", 0), limit=40)
    write_numbered(tmp_path, TopicPartition("other", 0), limit=10)
    return tmp_path


@pytest.mark.smoke
@pytest.mark.parametrize("item_bytes", [3000, 1 << 28])
def test_partitions_are_profiled_in_parts_and_as_a_whole(
    spark: SparkSession, data: Path, item_bytes: int
) -> None:
    """Both ways give the same numbers, a row for each partition, and a page."""
    steps: list[tuple[int, int]] = []
    profile = profile_topics(
        spark,
        {"path": str(data), "subscribe": "t,u"},
        item_bytes=item_bytes,
        progress=lambda done, total: steps.append((done, total)),
    )
    rows = {(row["topic"], row["partition"]): row for row in profile.frame(spark).collect()}
    assert {place: row["records"] for place, row in rows.items()} == {
        ("t", 0): 500, ("t", 1): 501, ("t", 2): 502, ("u", 0): 40,
    }  # fmt: skip
    row = rows["t", 2]
    assert (row["distinctKeys"], row["distinctKeysError"], row["superseded"]) == (502, 0.0, 0)
    assert (row["firstTimestamp"], row["lastTimestamp"]) == (0, 501_000)
    assert row["batches"] == 51
    assert row["storedBytes"] == (data / "t-2" / f"{0:020d}.log").stat().st_size
    topic = profile.topics()["t"]
    assert (topic.counters.records, topic.keys.count()) == (1503, 502)
    assert topic.hitters.top(1)[0].count_min == 3
    assert steps[-1] == (1543, 1543)
    assert "key-0" in profile_page(profile)


def test_a_profile_says_that_a_log_begins_above_its_start(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a profile of a part would pass for one of all."""
    write_numbered(tmp_path, TopicPartition("t", 0), first=60, limit=70)
    options = {"path": str(tmp_path), "subscribe": "t", "failOnDataLoss": "false"}
    profile = profile_topics(spark, options | {"startingOffsets": '{"t": {"0": 25}}'})
    assert profile.topics()["t"].counters.records == 10
    [told] = caplog.messages
    assert "t-0 was to be read from offset 25 on, and its log begins at 60: 35 offsets are" in told


def test_damage_ends_a_profile_unless_it_is_to_be_skipped(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    """The error has the file and the position; what is skipped is counted."""
    path = data / "t-1" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[90] ^= 1
    path.write_bytes(content)
    options = {"path": str(data), "subscribe": "t"}
    with pytest.raises(CorruptionError, match=f"{path}, position 0"):
        profile_topics(spark, options)
    report = str(tmp_path / "report")
    found = profile_topics(spark, {**options, "onCorruption": "skip", "corruptionReport": report})
    counters = found.partitions[TopicPartition("t", 1)].counters
    assert (counters.damaged, counters.records) == (1, 491)
    with pytest.raises(ConfigError, match="topic 'x' does not exist"):
        profile_topics(spark, {**options, "subscribe": "x"})
