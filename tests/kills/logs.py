"""The logs that jobs read while they are killed; each record tells where it is from."""

from pathlib import Path

from tailrace.model import TopicPartition
from tailrace.records.builder import Record
from tests.spark.directories import batch_of, write_segment
from tests.unit.records.batches import record_at

PARTITIONS = 9
RECORDS = 1100
"""Records of each partition."""


def record(partition: int, offset: int) -> Record:
    """The record of the topic `t` at a place; they are two minutes apart."""
    return record_at(
        offset,
        offset * 120_000,
        b"key-%d" % (offset % 97),
        b"%d/%d" % (partition, offset),
        (("n", b"%d" % offset),),
    )


def source_of(found: Record) -> tuple[int, int]:
    """Partition and offset that a record was written with, wherever it is now."""
    assert found.value is not None
    partition, offset = found.value.split(b"/")
    return int(partition), int(offset)


def write_logs(data: Path, *, limit: int = RECORDS) -> None:
    """The topic `t` up to an offset, in three segments for each partition, from two days."""
    for partition in range(PARTITIONS):
        for first in range(0, limit, 400):
            content = b"".join(
                batch_of(record(partition, offset) for offset in range(start, start + 20))
                for start in range(first, min(first + 400, limit), 20)
            )
            write_segment(data, TopicPartition("t", partition), first, content)
