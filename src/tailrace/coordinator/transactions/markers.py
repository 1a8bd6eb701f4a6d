"""The way from a prepared end to its completion: a marker at each partition, then a record.

    PrepareX committed --> markers, all at once --> CompleteX committed
                               |    ^                   |   ^
                               '----' again later       '---' again later

    Completions            the task of each transaction
    LeaderMarkers          a marker to the leader of a partition, looked up at each attempt
      |- LocalMarkers      where this broker leads, also for WriteTxnMarkers: to the log, or to the
      |                    shard of a group, whose pending offsets count or vanish with the marker
      '- MarkersElsewhere  where another does: by WriteTxnMarkers (`between_brokers`)

A leader that has written a marker may be lost with it, or only its answer: then it is written once
more, and partitions take it twice. It has the effect of one, since a marker ends what is open.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from tailrace.coordinator.errors import CoordinatorNotAvailableError, NotCoordinatorError
from tailrace.coordinator.machine import Decision, Propose, TransactionalProducer
from tailrace.coordinator.shard import PartitionLog
from tailrace.coordinator.statistics import TransactionCounts
from tailrace.coordinator.transactions.state import EPOCH_PER_TRANSACTION, Transaction
from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.model import OFFSETS_TOPIC, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.records.control import build_end_marker
from tailrace.runtime.clock import Clock
from tailrace.storage.producers import CoordinatorFencedError, InvalidProducerEpochError
from tailrace.values import dataclass

BACKOFF_S = 0.1
"""Time before a marker or a completion is tried again; it doubles each time."""
BACKOFF_S_MAX = 5.0
CLUSTER_BACKOFF_S_MAX = 1.0
"""The same where another broker may lead the partition soon, for readers of committed records wait
until its marker is there. Attempts that fail are cheap: one request a broker has all markers."""
PATIENCE_S = 0.005
"""Longest time that the answer to an end waits for its markers."""
DELAYS_SILENT = 6
"""Delays of a marker, 4 to 6 seconds together, after which a warning is logged."""

logger = logging.getLogger(__name__)


class MarkerNotNeededError(FatalError):
    """The partition takes no marker and never had the transaction's records.

    It is deleted, or its broker or message format is too old for transactions (35, 43).
    """


class MarkerRefusedError(RetriableError):
    """The partition has no leader now, its leader cannot be asked, or does not take the marker."""


class MarkerFencedError(FatalError):
    """A newer coordinator or a newer epoch of the producer has ended the transaction (47, 52)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A marker for the partitions of a transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    coordinator_epoch: LeaderEpoch
    """Leader epoch of the coordinator's partition."""
    transaction_version: int
    """2: `producer_epoch` is one above that of the transaction's records."""


class MarkerWriter(Protocol):
    """Writes markers to partitions, on other brokers, too."""

    @property
    def backoff_s_max(self) -> float:
        """Longest time before a marker is tried again."""
        ...

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Return when the marker is committed.

        Raises:
            RetriableError: it may be written later: no leader, too few replicas, no connection
                (3, 6, 7, 19, 20, 56).
            MarkerNotNeededError: the partition is done without a marker.
            MarkerFencedError: no more markers of this transaction are to be written.
        """
        ...


class Completions:
    """The tasks that bring prepared transactions to their end."""

    def __init__(
        self,
        writer: MarkerWriter,
        complete: Callable[[Transaction, int], Decision[None]],
        *,
        coordinator_epoch: LeaderEpoch,
        counts: TransactionCounts,
    ) -> None:
        self._counts = counts
        self._writer = writer
        self._complete = complete
        self._coordinator_epoch = coordinator_epoch
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By transactional id: its next transaction is not ended before this one is complete."""
        self._late: set[TopicPartition] = set()
        """Partitions that take no markers; each has had its warning."""

    def begin(self, transaction: Transaction, propose: Propose) -> None:
        """Bring a prepared transaction to its end, as soon as its record is committed."""
        transactional_id = transaction.transactional_id
        task = asyncio.ensure_future(self._run(transaction, propose))
        self._tasks[transactional_id] = task

        def forget(ended: asyncio.Task[None]) -> None:
            # The next transaction of the id may have its task already.
            if self._tasks.get(transactional_id) is ended:
                del self._tasks[transactional_id]

        task.add_done_callback(forget)

    async def wait_for_markers(self, transactional_id: str) -> None:
        """Return when the end of its transaction is complete, or `PATIENCE_S` later."""
        # A client that has its answer before that sends its next request too early, and the pause
        # before it, or this broker, tries again is much longer than the markers take.
        task = self._tasks.get(transactional_id)
        if task is not None:
            await asyncio.wait({task}, timeout=PATIENCE_S)

    def stop(self) -> None:
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def _run(self, transaction: Transaction, propose: Propose) -> None:
        marker = Marker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_commit=transaction.is_commit,
            coordinator_epoch=self._coordinator_epoch,
            transaction_version=transaction.client_version,
        )
        try:
            # No marker before the prepared end is committed: a new leader could abort what readers
            # have seen as committed.
            await _until_decided(propose, lambda _: Decision(reply=None))
            await self._write_all(transaction, marker)
            await _until_decided(propose, lambda now_ms: self._complete(transaction, now_ms))
        except NotCoordinatorError:
            pass  # The next leader completes it.
        except MarkerFencedError as error:
            logger.info(
                "transaction_markers_fenced transactional_id=%s reason=%s",
                transaction.transactional_id,
                error,
            )
        except (TailraceError, OSError):
            logger.exception(
                "transaction_markers_failed transactional_id=%s", transaction.transactional_id
            )

    async def _write_all(self, transaction: Transaction, marker: Marker) -> None:
        # All at once: a partition that has no leader must not hold up the readers of the others.
        writes = [
            asyncio.ensure_future(self._write(each, marker))
            for each in sorted(transaction.partitions)
        ]
        try:
            await asyncio.gather(*writes)
        finally:
            for write in writes:
                write.cancel()  # If one was refused, the others must not continue by themselves.

    async def _write(self, partition: TopicPartition, marker: Marker) -> None:
        self._counts.waiting_markers += 1
        try:
            await self._until_written(partition, marker)
        finally:
            self._counts.waiting_markers -= 1

    # The task of a transaction runs as long as it takes, or until the shard stops; the next leader
    # begins again with all markers, which partitions take twice. As in Kafka it waits for a
    # partition until that is back or deleted, whatever the partition answers, for only then the
    # transaction has ended for its readers.
    async def _until_written(self, partition: TopicPartition, marker: Marker) -> None:
        for count, delay_s in enumerate(_delays(self._writer.backoff_s_max), 1):
            try:
                await self._writer.write(partition, marker)
                self._counts.markers += 1
            except MarkerNotNeededError as error:
                logger.info("transaction_marker_skipped partition=%s reason=%s", partition, error)
            except RetriableError as error:
                # As long as it takes: readers of committed records stop at the open transaction.
                self._counts.marker_retries += 1
                if count > DELAYS_SILENT and partition not in self._late:
                    self._late.add(partition)
                    logger.warning(
                        "transaction_markers_delayed partition=%s reason=%s action=%s",
                        partition,
                        error,
                        "tried again until the partition is back or deleted",
                    )
                await asyncio.sleep(delay_s)
                continue
            if partition in self._late:
                self._late.discard(partition)
                logger.info("transaction_markers_resumed partition=%s", partition)
            return


async def _until_decided(propose: Propose, decide: Callable[[int], Decision[None]]) -> None:
    """Return when a decision and everything before it is committed.

    Raises:
        NotCoordinatorError: the shard takes no decisions any more.
    """
    for delay_s in _delays():
        try:
            await propose(decide)
        except CoordinatorNotAvailableError:
            await asyncio.sleep(delay_s)
        else:
            return


def _delays(longest_s: float = BACKOFF_S_MAX) -> Iterator[float]:
    delay_s = BACKOFF_S
    while True:
        yield delay_s
        delay_s = min(2 * delay_s, longest_s)


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
            RetriableError: the partition is not here or led by another broker, too few replicas are
                in sync, or its groups are being loaded.
            InvalidProducerEpochError, CoordinatorFencedError: a newer epoch has ended it.
            TailraceError, OSError: the log cannot take it now.
        """
        # Since KIP-890 the marker has the epoch after that of the records, which fences late ones.
        raises_epoch = marker.transaction_version >= EPOCH_PER_TRANSACTION
        # Through the shard of the groups, so that their pending offsets follow in the same turn.
        if partition.topic == OFFSETS_TOPIC:
            await self._groups.end_transaction(
                partition.partition,
                TransactionalProducer(marker.producer_id, marker.producer_epoch),
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                raises_epoch=raises_epoch,
            )
            return
        # A move to another directory holds appends up for moments, also those of markers.
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


class OwnMarkers(Protocol):
    """Writes markers to partitions that this broker leads; see `LocalMarkers`."""

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Return when the marker is committed; raises as `LocalMarkers.write`."""
        ...


class RemoteMarkers(Protocol):
    """Writes markers to partitions that other brokers lead; see `MarkersElsewhere`."""

    async def write(self, broker_id: int, partition: TopicPartition, marker: Marker) -> None:
        """Return when the marker is committed; raises as `MarkerWriter.write`."""
        ...


class Leaders(Protocol):
    """The leaders of partitions, by what this broker knows of the cluster now."""

    @property
    def node_id(self) -> int:
        """This broker."""
        ...

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether the cluster has a partition; one without a leader is there too."""
        ...

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The broker that leads a partition; None: there is none, or it is not alive."""
        ...


class LeaderMarkers:
    """Writes each marker to the leader of its partition; see `MarkerWriter`."""

    def __init__(
        self, own: OwnMarkers, leaders: Leaders, *, elsewhere: RemoteMarkers | None = None
    ) -> None:
        """`elsewhere` is None where this broker leads everything."""
        self._own = own
        self._leaders = leaders
        self._elsewhere = elsewhere
        self.backoff_s_max = BACKOFF_S_MAX if elsewhere is None else CLUSTER_BACKOFF_S_MAX

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Return when the marker is committed; raises as `MarkerWriter`."""
        # Asked at each attempt: a marker may wait for hours, and leaders change meanwhile.
        if not self._leaders.has_partition(partition):
            raise MarkerNotNeededError(f"{partition} is deleted")
        leader = self._leaders.leader_of(partition)
        if leader is None:
            raise MarkerRefusedError(f"{partition} has no leader that is alive")
        if leader != self._leaders.node_id:
            assert self._elsewhere is not None
            await self._elsewhere.write(leader, partition, marker)
            return
        try:
            await self._own.write(partition, marker)
        except (InvalidProducerEpochError, CoordinatorFencedError) as error:
            # The log has seen a newer epoch, so somebody else has ended this transaction.
            raise MarkerFencedError(str(error)) from error
        except OSError as error:
            # Its directory has failed: another leader, or a restart, can take the marker.
            raise CoordinatorNotAvailableError(str(error)) from error
