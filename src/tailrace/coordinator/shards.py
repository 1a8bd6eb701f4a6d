"""The shards of one coordinator's topic on this broker, by the keys that they have."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.machine import Machine, TransactionalProducer
from tailrace.coordinator.shard import PartitionLog, Shard, ShardState
from tailrace.coordinator.statistics import ShardCounts, ShardsStatistics, shards_statistics
from tailrace.model import LeaderEpoch
from tailrace.protocol.java_strings import java_hash
from tailrace.runtime.background import BackgroundTasks

M = TypeVar("M", bound=Machine)

_SIGN: Final = 0x8000_0000


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a group id or transactional id; `partition_count` is at least 1.

    The absolute value of the hash, with 0 for -2^31, whose absolute value is no int32.

    Example:
        >>> partition_of("polygenelubricants", 50)
        0
    """
    # Kafka's clients and tools compute the same: a group must be found where Kafka has put it.
    value = java_hash(key)
    return 0 if value == -_SIGN else abs(value) % partition_count


class _Led(NamedTuple, Generic[M]):
    """The shard of a partition, and the leader epoch in which this broker leads it."""

    shard: Shard[M]
    leader_epoch: LeaderEpoch


class Shards(Generic[M]):
    """Loads a shard when this broker begins to lead its partition, and stops it afterwards.

    Changes of leaders may arrive late and in any order; the newest leader epoch counts.
    """

    def __init__(
        self,
        make: Callable[[PartitionLog], Shard[M]],
        *,
        partition_count: Callable[[], int],
        is_of_epoch: bool = False,
    ) -> None:
        """`partition_count` gives the number of the topic's partitions; 0 until it exists.

        `is_of_epoch`: a shard belongs to the leader epoch in which it was made, as one whose
        markers have the epoch in them. Others serve on when this broker leads in a newer epoch.
        """
        self._is_of_epoch = is_of_epoch
        self._make = make
        self._partition_count = partition_count
        self._led: dict[int, _Led[M]] = {}
        self._loading = BackgroundTasks()
        self.counts = ShardCounts()
        """Totals, for the shards that `make` makes to share."""

    def lead(self, log: PartitionLog, *, leader_epoch: LeaderEpoch) -> None:
        """Begin to load a partition; requests for its keys are refused until it is loaded.

        Does nothing if the partition is led in this epoch or a newer one already, and loads nothing
        again that is loaded, or being loaded, unless shards are `is_of_epoch`.
        """
        number = log.partition.partition
        led = self._led.get(number)
        if led is not None and led.leader_epoch >= leader_epoch:
            return
        # Its state is that of this broker's log, which nobody has cut: for that the broker would
        # have had to follow, and to resign before. So Kafka's groups stay loaded too, with their
        # parked members: each reassignment of replicas raises the epoch of the same leader.
        if led is not None and not self._is_of_epoch and led.shard.is_serving:
            self._led[number] = _Led(led.shard, leader_epoch)
            return
        self.resign(number)
        shard = self._make(log)
        self._led[number] = _Led(shard, leader_epoch)
        # There at once, and loading: NOT_COORDINATOR would send clients elsewhere.
        self._loading.start(shard.load())

    def resign(self, number: int, *, leader_epoch: LeaderEpoch | None = None) -> None:
        """Stop the shard of a partition that another broker leads since `leader_epoch`.

        Does nothing if this broker leads it in that epoch or a newer one. None: the partition is
        not here any more.
        """
        led = self._led.get(number)
        if led is None or (leader_epoch is not None and led.leader_epoch >= leader_epoch):
            return
        del self._led[number]
        led.shard.stop()

    def number_of(self, key: str) -> int | None:
        """The partition that a group id or transactional id belongs to; None: there is none yet."""
        # The topic is created by the first FindCoordinator: until then no key has a place.
        count = self._partition_count()
        return partition_of(key, count) if count else None

    def shard_of(self, key: str) -> Shard[M]:
        """The shard that has a group id or transactional id.

        Raises:
            NotCoordinatorError: its partition does not exist, or another broker leads it.
        """
        number = self.number_of(key)
        led = None if number is None else self._led.get(number)
        if led is None:
            raise NotCoordinatorError(f"this broker does not coordinate {key!r}")
        return led.shard

    async def end_transaction(
        self,
        number: int,
        producer: TransactionalProducer,
        *,
        is_commit: bool,
        coordinator_epoch: LeaderEpoch,
        raises_epoch: bool,
    ) -> None:
        """End a producer's transaction in a partition, as `Shard.end_transaction`.

        Raises:
            NotCoordinatorError: the partition does not exist, or another broker leads it.
        """
        led = self._led.get(number)
        if led is None:
            raise NotCoordinatorError(f"this broker does not lead partition {number}")
        await led.shard.end_transaction(
            producer,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            raises_epoch=raises_epoch,
        )

    def __iter__(self) -> Iterator[Shard[M]]:
        """All shards, by partition."""
        return iter([self._led[number].shard for number in sorted(self._led)])

    def machines(self) -> Iterator[M]:
        """The machines of the partitions that are loaded, by partition."""
        return (each.machine for each in self if each.state is ShardState.ACTIVE)

    def statistics(self) -> ShardsStatistics:
        """The partitions by state, and totals since the start; looks at each partition."""
        states = Counter(each.state for each in self)
        return shards_statistics(
            self.counts,
            loading_count=states[ShardState.LOADING],
            active_count=states[ShardState.ACTIVE],
            failed_count=states[ShardState.FAILED],
        )

    async def stop(self) -> None:
        """Stop all shards, and wait for those that are loading."""
        stopped = list(self)
        for number in tuple(self._led):
            self.resign(number)
        await asyncio.gather(*self._loading)
        for each in stopped:
            each.abandon()
