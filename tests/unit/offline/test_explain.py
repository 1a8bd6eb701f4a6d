"""Tests of explaining why segments stay and why compaction waits."""

from uuid import UUID

import pytest

from tailrace.cluster.image import Topic
from tailrace.model import TopicPartition
from tailrace.offline.explain import PartitionReasons, explain_partition
from tailrace.offline.repair import topic_config
from tailrace.storage.config import DAY_MS
from tailrace.storage.retention import explain_retention
from tailrace.storage.shrink import retention_facts
from tailrace.testing import MemoryFiles
from tests.unit.cluster.metadata_logs import save_topics
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    filled,
    open_at,
    settings,
    stop_cleanly,
)

SMALL = {
    "internal.segment.bytes": "400",
    "index.interval.bytes": "100",
    "segment.index.bytes": "120",
}


def told(files: MemoryFiles, *, now_ms: int = NOW, **given: str) -> PartitionReasons:
    """Explain the partition, and check that this has changed nothing."""
    files.operations.clear()
    named = {name.replace("_", "."): value for name, value in given.items()}
    config = topic_config(files, "data", PARTITION, given={**SMALL, **named})
    found = explain_partition(files, "data", PARTITION, folder=FOLDER, config=config, now_ms=now_ms)
    assert not files.operations
    return found


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("age_ms", [0, 7 * DAY_MS + 9, 8 * DAY_MS])
def test_files_say_what_the_broker_would_say(age_ms: int, is_closed: bool) -> None:  # noqa: FBT001
    """Files and broker have the same facts, so each segment has the same sentence."""
    files = MemoryFiles()
    log = filled(files, 18, config=settings(segment_bytes=400))
    expected = explain_retention(
        retention_facts(log),
        config=log.config,
        log_start=log.start_offset,
        high_watermark=log.positions.high_watermark,
        now_ms=NOW + age_ms,
    )
    if is_closed:
        stop_cleanly(log)
    found = told(files, now_ms=NOW + age_ms).segments
    assert [(e.base_offset, e.is_deletable, e.sentence) for e in found] == [
        (e.base_offset, e.is_deletable, e.sentence) for e in expected
    ]


def test_settings_come_from_the_cluster_file_and_the_command_line() -> None:
    """The latter goes over the former; Kafka's own topics are compacted."""
    files = MemoryFiles()
    files.make_directory("data")
    configs = {"retention.ms": "5", "retention.bytes": "6"}
    topic = Topic(name="flights", topic_id=UUID(int=1), partitions=(0,),
                  configs=configs)  # fmt: skip
    save_topics(files, topic)
    config = topic_config(files, "data", PARTITION, given={"retention.ms": "7"})
    assert (config.retention_ms, config.retention_bytes) == (7, 6)
    assert topic_config(files, "data", TopicPartition("__consumer_offsets", 1)).is_compacted


def test_compaction_that_waits_says_for_what() -> None:
    """The sentence names few dirty bytes, the active segment, an open transaction or young data."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=400))
    for _ in range(12):
        append(log, batch(b"value 0"))
    data = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, data)
    for _ in range(7):
        append(log, batch(b"value 0"))
    stop_cleanly(log)
    state = told(files, cleanup_policy="compact").compaction
    assert state is not None
    assert "due at the next round" in state.sentence
    assert "an open transaction holds the last stable offset at 12" in state.sentence
    state = told(files, cleanup_policy="compact", min_compaction_lag_ms="1000").compaction
    assert state is not None
    assert "is too young, min.compaction.lag.ms is 1000" in state.sentence
    cleaner = files.open("data/cleaner-offset-checkpoint", create=True)
    cleaner.write(0, b"0\n1\nflights 0 10\n")
    state = told(files, cleanup_policy="compact").compaction
    assert state is not None
    assert (state.first_dirty_offset, state.first_uncleanable_offset) == (10, 12)
    assert "no whole segment is dirty" in state.sentence
    assert told(files).compaction is None
