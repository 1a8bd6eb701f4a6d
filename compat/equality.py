"""Appends Kafka's batches to our own logs one by one: the files must be equal byte for byte.

Each batch of librdkafka was one append in Kafka too. Compacted topics are left out, since their
batches are not those that were appended; so is the topic whose records were deleted.
"""

import uuid
from pathlib import Path

from compat import ours
from compat.bytewise import differences, snapshot_differences
from compat.kafka_to_us import Written
from compat.report import Report
from compat.topics import TOPICS
from tailrace.model import AppendOrigin, TopicPartition
from tailrace.records.batch import Batch, read_batches
from tailrace.runtime.clock import SystemClock
from tailrace.storage import names
from tailrace.storage.log import Log

APPENDED = tuple(
    topic
    for topic, settings in TOPICS.items()
    if topic.startswith("dirty") or (topic != "deleted" and "cleanup.policy" not in settings)
)
FOLLOWED = ("stamped",)
"""Taken as a follower takes them: a leader would put its own time into the records."""

_KINDS = {
    "log": (names.LOG_SUFFIX,),
    "offset index": (names.OFFSET_INDEX_SUFFIX,),
    "time index": (names.TIME_INDEX_SUFFIX,),
    "transaction index": (names.TRANSACTION_INDEX_SUFFIX,),
    "producer snapshots": (names.SNAPSHOT_SUFFIX,),
    "epoch checkpoint": (names.LEADER_EPOCHS,),
}


def check(report: Report, written: Written, scratch: Path) -> None:
    """Append everything once more, to logs of our own, and hold the folders against each other."""
    theirs, mine = written.directory / "logs", scratch / "appended"
    with ours.opened(mine) as logs:
        for topic in APPENDED:
            log = logs.create(
                TopicPartition(topic, 0), topic_id=uuid.uuid4(), config=ours.config_of(topic)
            )
            for path in sorted((theirs / f"{topic}-0").glob("*.log")):
                for _, batch in read_batches(memoryview(path.read_bytes())):
                    _append(log, batch, is_follower=topic in FOLLOWED)
    for what, suffixes in _KINDS.items():
        for topic in APPENDED:
            report.check(
                f"the same appends give {topic} the same {what} as in Kafka",
                differences(theirs, mine, suffixes=suffixes, topics=[topic]),
            )
    report.check(
        "and the same producers in every snapshot",
        snapshot_differences(theirs, mine, topics=APPENDED),
    )


def _append(log: Log, batch: Batch, *, is_follower: bool) -> None:
    data, now_ms = memoryview(bytearray(batch.view)), SystemClock().now_ms()
    if is_follower:
        log.append_as_follower(data, now_ms=now_ms)
    else:
        data[:8] = bytes(8)  # As a client sends it: its first offset is not known yet.
        guard = None
        if batch.is_transactional and not batch.is_control:
            guard = log.producers.begin_verification(
                batch.producer_id,
                epoch=batch.producer_epoch,
                sequence=batch.base_sequence,
                now_ms=now_ms,
            )
        origin = AppendOrigin.COORDINATOR if batch.is_control else AppendOrigin.CLIENT
        log.append(data, leader_epoch=batch.leader_epoch, now_ms=now_ms, origin=origin, guard=guard)
    log.advance_high_watermark(log.end_offset)
