"""Rules that choose the partition of a record by its key, and `Partitioner` for rules of users.

Not here: which rule applies to a record, and records without a key (`partitioning`).
"""

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
        # Kafka's RoundRobinPartitioner too counts for each topic, and skips what has no leader.
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        partitions = available or range(partition_count)
        return partitions[turn % len(partitions)]
