"""The logs of coordinators: partitions of internal topics that this broker leads.

Records of a coordinator take the same door as produced ones: the same write, the same durability,
the same handling of a device that fails. Only their bytes are not checked, because this process has
just made them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tailrace.config.settings import INT64_MAX
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.shard import StoredBatches
from tailrace.errors import CorruptionError
from tailrace.model import Offset, ProducerEpoch, ProducerId, TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushed, Flushes
from tailrace.replication.replicas import Replicas
from tailrace.runtime.clock import Clock
from tailrace.storage.log import Log
from tailrace.storage.verification import VerificationGuard

T = TypeVar("T")


class CoordinatorLog:
    """A coordinator's partition on this broker; see `coordinator.shard.PartitionLog`."""

    def __init__(
        self,
        partition: TopicPartition,
        replicas: Replicas,
        *,
        flushes: Flushes,
        device_reads: DeviceReads,
        clock: Clock,
        is_durable: bool,
    ) -> None:
        self.partition = partition
        self._replicas = replicas
        self._flushes = flushes
        self._device_reads = device_reads
        self._clock = clock
        self._is_durable = is_durable

    @property
    def commits_at_once(self) -> bool:
        """Whether an append needs no flush, and no move to another directory is in its way."""
        # Asked for each repeated commit, so nothing here raises or waits. With followers it will be
        # False: what is appended has to reach the replicas in sync first.
        found = self._replicas.get(self.partition)
        return (
            found is not None
            and not self._is_durable
            and self.partition not in self._replicas.held
            and found.log.config.flush_messages == INT64_MAX
        )

    def wait_until_free(self) -> Awaitable[None] | None:
        """An awaitable for the end of a move to another directory; None: there is no move."""
        if self.partition not in self._replicas.held:
            return None
        return self._replicas.wait_until_free(self.partition)

    def begin_verification(
        self, producer: TransactionalProducer, *, begins_at_zero: bool
    ) -> VerificationGuard | None:
        """The guard to append the producer's first batch of a transaction with, or None.

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer.
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
        """
        return self._replicas.find(self.partition).log.producers.begin_verification(
            ProducerId(producer.producer_id),
            epoch=ProducerEpoch(producer.producer_epoch),
            sequence=0,
            now_ms=self._clock.now_ms(),
            begins_at_zero=begins_at_zero,
        )

    def append(
        self,
        batch: bytearray,
        *,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> int:
        """Append one batch; returns its base offset.

        Raises:
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
            TailraceError, OSError: as `storage.log.append_built`.
        """
        found = self._replicas.find(self.partition)
        appended = found.append_built(
            memoryview(batch),
            now_ms=self._clock.now_ms(),
            guard=guard,
            raises_epoch=raises_epoch,
        )
        return appended.base_offset

    def committed(self) -> Awaitable[None] | None:
        """With `tailrace.durability=sync`, or when `flush.messages` is reached, a flush; else None.

        Raises:
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
        """
        # This broker is the only replica: what it has appended is below the high watermark.
        log = self._replicas.find(self.partition).log
        flushed = self._flushes.ask_before_answer(log, is_durable=self._is_durable)
        return None if flushed is None else _until(flushed)

    async def read(self, replay: Callable[[StoredBatches], T]) -> T:
        """The result of `replay` on all batches, on a worker thread.

        Raises:
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
            CorruptionError, OSError: the log cannot be read; or from `replay`, then with the file.
        """
        found = self._replicas.find(self.partition)
        return await found.look(self._device_reads, lambda log: _replayed(log, replay))


async def _until(flushed: Flushed) -> None:
    # `shield`: other requests wait for the same flush if this client disconnects.
    error = await asyncio.shield(flushed)
    if error is not None:
        raise error


def _replayed(log: Log, replay: Callable[[StoredBatches], T]) -> T:
    batches = StoredBatches(log.size, partial(log.batches, log.start_offset))
    try:
        return replay(batches)
    except CorruptionError as error:
        if error.path is not None or error.offset is None:
            raise
        # The operator needs the file to repair it, which only the log knows.
        segment = next(log.segments.from_offset(Offset(error.offset)))
        raise error.located(path=segment.log.path) from error
