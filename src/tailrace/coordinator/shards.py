"""The shards of one coordinator's topic on this broker, by the keys that they have."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.machine import Machine, TransactionalProducer
from tailrace.coordinator.placement import partition_of
from tailrace.coordinator.shard import PartitionLog, Shard
from tailrace.model import LeaderEpoch

M = TypeVar("M", bound=Machine)

logger = logging.getLogger(__name__)


class Shards(Generic[M]):
    """Loads a shard when this broker begins to lead its partition, and stops it afterwards."""

    def __init__(
        self, make: Callable[[PartitionLog], Shard[M]], *, partition_count: Callable[[], int]
    ) -> None:
        """`partition_count` tells the number of the topic's partitions; 0 until it exists."""
        self._make = make
        self._partition_count = partition_count
        self._shards: dict[int, Shard[M]] = {}
        self._loading: set[asyncio.Task[None]] = set()

    def lead(self, log: PartitionLog) -> None:
        """Begin to load a partition; requests for its keys are refused until it is loaded."""
        number = log.partition.partition
        self.resign(number)
        shard = self._shards[number] = self._make(log)
        task = asyncio.ensure_future(shard.load())
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    def resign(self, number: int) -> None:
        """Stop the shard of a partition that has another leader, or is deleted."""
        shard = self._shards.pop(number, None)
        if shard is not None:
            shard.stop()

    def shard_of(self, key: str) -> Shard[M]:
        """The shard that has a group id or transactional id.

        Raises:
            NotCoordinatorError: its partition does not exist, or another broker leads it.
        """
        count = self._partition_count()
        shard = self._shards.get(partition_of(key, count)) if count else None
        if shard is None:
            raise NotCoordinatorError(f"this broker does not coordinate {key!r}")
        return shard

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
        shard = self._shards.get(number)
        if shard is None:
            raise NotCoordinatorError(f"this broker does not lead partition {number}")
        await shard.end_transaction(
            producer,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            raises_epoch=raises_epoch,
        )

    def __iter__(self) -> Iterator[Shard[M]]:
        """All shards, by partition."""
        return iter([shard for _, shard in sorted(self._shards.items())])

    async def stop(self) -> None:
        """Stop all shards, and wait for those that are loading."""
        for number in tuple(self._shards):
            self.resign(number)
        await asyncio.gather(*self._loading)
