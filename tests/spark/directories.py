"""Data directories for tests, written batch by batch as a broker would leave them."""

from collections.abc import Iterable
from pathlib import Path

from tailrace.model import Codec, TopicPartition
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder, Record
from tailrace.storage.names import LOG_SUFFIX, segment_file_name
from tests.unit.records.batches import record_at


def batch_of(
    records: Iterable[Record], *, codec: Codec = Codec.NONE, is_control: bool = False
) -> bytes:
    """A batch of records with consecutive offsets."""
    records = list(records)
    builder = BatchBuilder(codec=codec, is_control=is_control)
    for record in records:
        builder.append(record.key, record.value, timestamp=record.timestamp, headers=record.headers)
    data = bytearray(builder.build())
    stamp(memoryview(data), base_offset=records[0].offset, leader_epoch=0)
    return bytes(data)


def numbered(first: int, limit: int) -> list[Record]:
    """Records whose key, value and timestamp tell their offset."""
    return [
        record_at(offset, 1000 * offset, b"key-%d" % offset, b"value-%d" % offset)
        for offset in range(first, limit)
    ]


def write_segment(data: Path, partition: TopicPartition, base_offset: int, content: bytes) -> Path:
    """The log file of a segment with this content; returns its path."""
    folder = data / str(partition)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / segment_file_name(base_offset, LOG_SUFFIX)
    path.write_bytes(content)
    return path


def write_numbered(
    data: Path, partition: TopicPartition, *, first: int = 0, limit: int, per_batch: int = 10
) -> Path:
    """A partition of one segment with numbered records; returns the segment's path."""
    content = b"".join(
        batch_of(numbered(start, min(start + per_batch, limit)))
        for start in range(first, limit, per_batch)
    )
    return write_segment(data, partition, first, content)
