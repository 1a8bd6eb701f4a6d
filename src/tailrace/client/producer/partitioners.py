"""Partitioners: rules that choose the partition of a record.

    with a key    murmur2 of its bytes, as in all Kafka clients (`choose_partition`), or another of
                  `KEY_RULES` by the setting `partitioner`
    without key   one partition until a batch is full, then another (`StickyPartitioner`)
    custom        a `Partitioner`: `RoundRobinPartitioner`, or yours

Not here: which partitions a topic has, and which of them have a leader; see `metadata`.
"""

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from tailrace.kernels.encoding import choose_partition

NO_PARTITION: Final = -1
"""Stands for the sticky partition, in place of a partition number."""


class Partitioner(Protocol):
    """A custom rule; a producer that has one calls it for all records without a partition."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Return a partition from 0 to `partition_count` - 1.

        `key` and `value` are serialized. `available` are the partitions that have a leader now, in
        rising order; it may be empty. An exception raised here fails the record.
        """
        ...


def fnv1a(data: bytes) -> int:
    """The FNV-1a hash of librdkafka: 32 bits as a signed number, without its sign."""
    mixed = 0x811C9DC5
    for octet in data:
        mixed = (mixed ^ octet) * 0x01000193 & 0xFFFFFFFF
    return (1 << 32) - mixed if mixed >> 31 else mixed


KeyRule: TypeAlias = Callable[[bytes | None, int], int]
"""Chooses a partition by the key, None without one, and the number of partitions.

`NO_PARTITION` leaves the choice to the sticky partitioner.
"""


def _murmur2_or_any(key: bytes | None, partition_count: int) -> int:
    return NO_PARTITION if key is None else choose_partition(key, partition_count)


KEY_RULES: Final[Mapping[str, KeyRule]] = {
    "murmur2_random": _murmur2_or_any,
    "murmur2": lambda key, count: choose_partition(key or b"", count),
    "consistent_random": lambda key, count: zlib.crc32(key) % count if key else NO_PARTITION,
    "consistent": lambda key, count: zlib.crc32(key or b"") % count,
    "fnv1a_random": lambda key, count: NO_PARTITION if key is None else fnv1a(key) % count,
    "fnv1a": lambda key, count: fnv1a(key or b"") % count,
    "random": lambda _, __: NO_PARTITION,
}
"""The rules by librdkafka's names. The first is that of all Kafka clients but librdkafka, whose own
default is `consistent_random`."""

DEFAULT_RULE: Final = "murmur2_random"


class StickyPartitioner:
    """Chooses the partition of records without a key: one at a time, to fill batches (KIP-480).

    A topic's partition changes after `batch_size` bytes, so that all partitions get the same number
    of bytes in the long run, however fast their brokers are (KIP-794). If the queue sizes are
    known, partitions with short queues are chosen more often.
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
        """The current partition of a topic.

        If it is time for another one, that is chosen from `available`, or from all partitions if
        `available` is empty.
        """
        current = self._current.get(topic, -1)
        if 0 <= current < partition_count:
            return current
        chosen = self._choose(topic, partition_count, available)
        self._current[topic] = chosen
        self._bytes[topic] = 0
        return chosen

    def appended(self, topic: str, size: int, *, has_open_batch: bool) -> None:
        """Count `size` bytes that went to the topic's current partition.

        With an open batch, the partition stays for up to twice as many bytes, because changing it
        before the batch is full would send a small batch.
        """
        total = self._bytes.get(topic, 0) + size
        self._bytes[topic] = total
        if total >= self._batch_size * (2 if has_open_batch else 1):
            self._current.pop(topic, None)

    def update_load(self, topic: str, queue_sizes: Mapping[int, int]) -> None:
        """Set the number of waiting batches for each partition that may be chosen from now on.

        A missing partition is not chosen; so one with a slow leader is avoided
        (`partitioner.availability.timeout.ms`). An empty mapping means that nothing is known.
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
    """Sends each record of a topic to the next partition, whatever its key."""

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
        """The next of the available partitions, or of all if none is available."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        partitions = available or range(partition_count)
        return partitions[turn % len(partitions)]
