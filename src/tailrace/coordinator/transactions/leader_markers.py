"""Markers on their way to the leaders of partitions.

    LeaderMarkers      of a coordinator: to the leader of the partition, and the errors of Kafka's
      |                TransactionMarkerRequestCompletionHandler
      '- LocalMarkers  of the leader, also for WriteTxnMarkers: to the log, or to the shard of a
                       group, whose pending offsets count or vanish with the marker

This broker leads all partitions. A leader elsewhere would take the marker by WriteTxnMarkers: one
more writer next to `LocalMarkers`.
"""

from collections.abc import Callable
from typing import Protocol

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.shard import PartitionLog
from tailrace.coordinator.transactions.markers import (
    Marker,
    MarkerFencedError,
    MarkerNotNeededError,
)
from tailrace.coordinator.transactions.state import EPOCH_PER_TRANSACTION
from tailrace.model import OFFSETS_TOPIC, LeaderEpoch, TopicPartition
from tailrace.records.control import build_end_marker
from tailrace.runtime.clock import Clock
from tailrace.storage.producers import CoordinatorFencedError, InvalidProducerEpochError


class GroupPartitions(Protocol):
    """The partitions of `__consumer_offsets` that this broker leads."""

    async def end_transaction(
        self,
        number: int,
        producer: TransactionalProducer,
        *,
        is_commit: bool,
        coordinator_epoch: LeaderEpoch,
        raises_epoch: bool,
    ) -> None:
        """Append a marker to a partition, and end the transaction in its groups."""
        ...


class LocalMarkers:
    """Writes markers to partitions that this broker leads."""

    def __init__(
        self,
        log_of: Callable[[TopicPartition], PartitionLog],
        groups: GroupPartitions,
        clock: Clock,
    ) -> None:
        self._log_of = log_of
        self._groups = groups
        self._clock = clock

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Append a marker; returns when it is committed.

        Raises:
            RetriableError: the partition is not here, or its groups are being loaded.
            InvalidProducerEpochError, CoordinatorFencedError: a newer epoch has ended it.
            TailraceError, OSError: the log cannot take it now.
        """
        raises_epoch = marker.transaction_version >= EPOCH_PER_TRANSACTION
        if partition.topic == OFFSETS_TOPIC:
            await self._groups.end_transaction(
                partition.partition,
                TransactionalProducer(marker.producer_id, marker.producer_epoch),
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                raises_epoch=raises_epoch,
            )
            return
        log = self._log_of(partition)
        if (waiting := log.wait_until_free()) is not None:
            await waiting
        batch = build_end_marker(
            marker.producer_id,
            marker.producer_epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        log.append(batch, raises_epoch=raises_epoch)
        committed = log.committed()
        if committed is not None:
            await committed


class LeaderMarkers:
    """See `markers.MarkerWriter`; `has_partition`: whether the cluster has a partition."""

    def __init__(
        self, local: LocalMarkers, *, has_partition: Callable[[TopicPartition], bool]
    ) -> None:
        self._local = local
        self._has_partition = has_partition

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Return when the marker is committed; raises as `MarkerWriter`."""
        if not self._has_partition(partition):
            raise MarkerNotNeededError(f"{partition} is deleted")
        try:
            await self._local.write(partition, marker)
        except (InvalidProducerEpochError, CoordinatorFencedError) as error:
            raise MarkerFencedError(str(error)) from error
        except OSError as error:
            # Its directory has failed: another leader, or a restart, can take the marker.
            raise CoordinatorNotAvailableError(str(error)) from error
