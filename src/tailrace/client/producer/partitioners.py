"""Which partition a record goes to: by its key, by turns, or where it makes the fullest batches.

    a key         murmur2 of its bytes, so that every Kafka client agrees (`partition_of_key`)
    no key        one partition until a batch's worth is in it, then another (`StickyPartitioner`)
    as one wishes a `Partitioner`: `RoundRobinPartitioner`, `ConsistentRandomPartitioner`, or an own

Not here: which partitions a topic has, and which of them can be written to; see `metadata`.
"""

import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

_CACHED_KEY_BYTES_MAX = 64
"""Longer keys are hashed each time, so that the cache stays within some megabytes."""

_CACHED_KEYS = 1 << 14


class Partitioner(Protocol):
    """A rule of one's own; given to a producer, it decides about all records with no partition."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """A partition from 0 to `partition_count` - 1.

        `key` and `value` are as they will be written. `available` are the partitions that have a
        leader at the moment, in rising order; it may be empty. An error that is raised here fails
        the record.
        """
        ...


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 that Kafka's clients take of a key, signed as Java has it."""
    length = len(data)
    whole = length >> 2
    mixed = 0x9747B28C ^ length
    for word in struct.unpack_from(f"<{whole}I", data):
        scrambled = word * 0x5BD1E995 & 0xFFFFFFFF
        mixed = (mixed * 0x5BD1E995 ^ (scrambled ^ scrambled >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if rest := length & 3:
        mixed = (mixed ^ int.from_bytes(data[-rest:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    mixed ^= mixed >> 15
    return mixed - (1 << 32) if mixed >> 31 else mixed


@lru_cache(_CACHED_KEYS)
def _partition_of_short_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that all Kafka clients with default settings choose for a key."""
    if len(key) <= _CACHED_KEY_BYTES_MAX:
        return _partition_of_short_key(key, partition_count)
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """The partition of records without a key: one at a time, so that batches get full (KIP-480).

    The partition of a topic changes after `batch_size` bytes, so that all get the same number of
    bytes in the long run, whatever the brokers' pace (KIP-794). Where the sizes of the queues are
    known, partitions with short ones are chosen more often.
    """

    def __init__(self, batch_size: int, chance: random.Random) -> None:
        if batch_size < 1:
            raise ValueError(f"batch.size is {batch_size}; a partition must take at least 1 byte")
        self._batch_size = batch_size
        self._chance = chance
        self._current: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._queue_sizes: dict[str, Mapping[int, int]] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        """The partition that the topic's records go to at the moment.

        When it is time for another one, that is chosen among those `available`, or among all if
        none is.
        """
        current = self._current.get(topic, -1)
        if 0 <= current < partition_count:
            return current
        chosen = self._choose(topic, partition_count, available)
        self._current[topic] = chosen
        self._bytes[topic] = 0
        return chosen

    def appended(self, topic: str, size: int, *, has_open_batch: bool) -> None:
        """Note `size` bytes that went to the topic's present partition.

        While a batch is open there, the partition stays for up to twice as long, for a batch that
        is left behind before it is full would be sent small.
        """
        total = self._bytes.get(topic, 0) + size
        self._bytes[topic] = total
        if total >= self._batch_size * (2 if has_open_batch else 1):
            self._current.pop(topic, None)

    def update_load(self, topic: str, queue_sizes: Mapping[int, int]) -> None:
        """Say how many batches wait for each partition that may be chosen from now on.

        A partition that is missing is not chosen: that is how one with a slow leader is spared
        (`partitioner.availability.timeout.ms`). An empty mapping says that nothing is known.
        """
        self._queue_sizes[topic] = queue_sizes

    def _choose(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        sizes = {
            each: size
            for each, size in self._queue_sizes.get(topic, {}).items()
            if 0 <= each < partition_count
        }
        if sizes:
            longest = max(sizes.values())
            weights = [longest + 1 - size for size in sizes.values()]
            return self._chance.choices(list(sizes), weights)[0]
        return self._chance.choice(available or range(partition_count))


class RoundRobinPartitioner:
    """Each record of a topic to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,  # noqa: ARG002 - the rule is the same for all keys.
        value: bytes | None,  # noqa: ARG002
        *,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """The next of those available, or of all if none is."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        partitions = available or range(partition_count)
        return partitions[turn % len(partitions)]


class ConsistentRandomPartitioner:
    """librdkafka's `consistent_random`, for topics that its clients also write to by key.

    CRC-32 of the key; any partition without a key or with an empty one.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def partition(
        self,
        topic: str,  # noqa: ARG002 - the rule is the same for all topics.
        key: bytes | None,
        value: bytes | None,  # noqa: ARG002
        *,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """By the key, or by chance."""
        if key:
            return zlib.crc32(key) % partition_count
        return self._chance.choice(available or range(partition_count))
