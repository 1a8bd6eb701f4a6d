"""The next epoch of a consumer group, which grows when its topics have changed.

A hash over the topics tells (KIP-1101):

    topic   0:u8  id high, low:i64  name  partition count:i32  then for each partition, rising:
            number:i32  the racks of its replicas, sorted
    group   hash of each topic:i64, in the order of their names

All little-endian; a string is its UTF-16 units and then how many there are, as an i32. Kafka
computes the same number, so a group that moves between brokers of both keeps its epoch.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct, pack
from typing import Final

import xxhash

from tailrace.coordinator.groups.consumer_group import ConsumerGroup
from tailrace.coordinator.groups.consumer_records import epoch_record, topics_tombstone
from tailrace.coordinator.groups.topics import Topic, Topics
from tailrace.coordinator.machine import CoordinatorRecord

_I32: Final = Struct("<i")
_U64: Final = Struct("<Q")
_UNSIGNED: Final = 2**64
_I64_LIMIT: Final = 2**63
_TOPICS_KEPT: Final = 4096
"""Topics whose hashes are kept; one with 10,000 partitions takes milliseconds."""


def next_epoch(
    group: ConsumerGroup, names: Iterable[str], topics: Topics, *, is_forced: bool
) -> tuple[int, list[CoordinatorRecord]]:
    """The epoch of a group that subscribes to `names`, and its records.

    It grows by one if it is forced to, or if one of these topics is not what it was.
    """
    found = map(topics.by_name, names)
    metadata_hash = group_hash([each for each in found if each is not None])
    # Since Kafka 4.1 the hash has replaced this record.
    records = [topics_tombstone(group.group_id)] if group.has_topic_records else []
    if not is_forced and metadata_hash == group.metadata_hash:
        return group.epoch, records
    records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return group.epoch + 1, records


def group_hash(topics: Iterable[Topic]) -> int:
    """The hash over the topics of a group, as a signed number of 64 bits; 0 if there are none."""
    ordered = sorted(topics, key=lambda topic: topic.name)
    if not ordered:
        return 0
    # By name, so that the order in which members subscribe does not count.
    return _signed(
        xxhash.xxh3_64_intdigest(b"".join([_U64.pack(_topic_hash(each)) for each in ordered]))
    )


def topic_hash(topic: Topic) -> int:
    return _signed(_topic_hash(topic))


@lru_cache(_TOPICS_KEPT)
def _topic_hash(topic: Topic) -> int:
    stream = bytearray(1)
    stream += _U64.pack(topic.topic_id.int // _UNSIGNED)
    stream += _U64.pack(topic.topic_id.int % _UNSIGNED)
    _put_string(stream, topic.name)
    stream += _I32.pack(topic.partition_count)
    if topic.racks:
        for partition in range(topic.partition_count):
            stream += _I32.pack(partition)
            for rack in sorted(topic.racks[partition]):
                _put_string(stream, rack)
    else:
        stream += pack(f"<{topic.partition_count}i", *range(topic.partition_count))
    return xxhash.xxh3_64_intdigest(stream)


def _put_string(stream: bytearray, text: str) -> None:
    # Java's strings are UTF-16, and the hash has to be Kafka's.
    units = text.encode("utf-16-le", "surrogatepass")
    stream += units + _I32.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - _UNSIGNED if value >= _I64_LIMIT else value
