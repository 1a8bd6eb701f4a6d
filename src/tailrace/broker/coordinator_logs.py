"""The logs of coordinators: partitions of internal topics that this broker leads.

Records of a coordinator take the same door as produced ones with acks=all: the same write, the same
durability, the same replicas in sync, the same handling of a device that fails. Only their bytes
are not checked, because this process has just made them.

Where fewer replicas are in sync than `min.insync.replicas`, Kafka's groups append all the same, and
their clients get COORDINATOR_NOT_AVAILABLE when the wait for the high watermark has timed out. Here
groups do as transactions do in both brokers: nothing is appended, and the client knows at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tailrace.config.settings import INT64_MAX
from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.shard import StoredBatches
from tailrace.errors import CorruptionError
from tailrace.model import Offset, ProducerEpoch, ProducerId, TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushed, Flushes
from tailrace.replication.partition import NotLeaderError, Partition
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
        """Whether an append needs no follower, no flush, and no end of a move."""
        # Asked for each repeated commit, so nothing here raises or waits. With followers what is
        # appended has to reach those in sync first. Not `is_alone`, since a shard that is asked is
        # one of a leader, and a property costs a call.
        found = self._replicas.get(self.partition)
        return (
            found is not None
            and found.leadership is None
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
            NotCoordinatorError: another broker leads the partition.
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
        """
        return self._led().log.producers.begin_verification(
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
            NotCoordinatorError: another broker leads the partition.
            NotEnoughReplicasError: fewer replicas are in sync than `min.insync.replicas`.
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
            TailraceError, OSError: as `storage.log.append_built`.
        """
        # No call that a sole replica does not need: each repeated commit comes here.
        found = self._replicas.get(self.partition)
        if found is None or not found.is_leader:
            found = self._led()
        if found.leadership is not None:
            found.check_replicas()
        appended = found.append_built(
            memoryview(batch),
            now_ms=self._clock.now_ms(),
            guard=guard,
            raises_epoch=raises_epoch,
        )
        return appended.base_offset

    def committed(self) -> Awaitable[None] | None:
        """Wait for the followers in sync, and for a flush; None: for neither.

        A flush with `tailrace.durability=sync`, or when `flush.messages` is reached.

        Raises (also from the awaitable):
            NotCoordinatorError: another broker leads the partition, or does before the end.
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
        """
        found = self._led()
        flushed = self._flushes.ask_before_answer(found.log, is_durable=self._is_durable)
        if found.is_alone:
            # The only replica: what it has appended is below the high watermark.
            return None if flushed is None else _until(flushed)
        # Before any wait: the log end of a later leadership may be another record's.
        acknowledged = found.acknowledged(found.log.end_offset)
        if acknowledged is None and flushed is None:
            return None
        return _until_replicated(acknowledged, flushed)

    async def read(self, replay: Callable[[StoredBatches], T]) -> T:
        """The result of `replay` on all batches, on a worker thread.

        Raises:
            NotCoordinatorError: another broker leads the partition.
            UnknownPartitionError, StorageError: the partition is not here, or its directory failed.
            CorruptionError, OSError: the log cannot be read; or from `replay`, then with the file.
        """
        found = self._led()
        return await found.look(self._device_reads, lambda log: _replayed(log, replay))

    def _led(self) -> Partition:
        try:
            return self._replicas.find(self.partition)
        except NotLeaderError as error:
            # Kafka's translation too: clients of a coordinator do not know the other code.
            raise NotCoordinatorError(str(error)) from error


async def _until_replicated(
    acknowledged: asyncio.Future[None] | None, flushed: Flushed | None
) -> None:
    if acknowledged is not None:
        try:
            await acknowledged
        except NotLeaderError as error:
            raise NotCoordinatorError(str(error)) from error
    if flushed is not None:
        await _until(flushed)


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
