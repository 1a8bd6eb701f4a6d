"""A coordinator of transactions in memory, what gets its markers, and short ways to ask it.

error, producer = await stage.init("t")
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.shard import Shard, ShardState
from tailrace.coordinator.shards import Shards
from tailrace.coordinator.statistics import (
    TransactionCounts,
    TransactionsStatistics,
    transactions_statistics,
)
from tailrace.coordinator.transactions.add_partitions_to_txn import add_partitions_to_txn
from tailrace.coordinator.transactions.coordinator import TransactionCoordinator
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.markers import BACKOFF_S_MAX, Marker
from tailrace.coordinator.transactions.records import (
    TransactionCodec,
    stored_transaction,
    transaction_record,
)
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.records import TransactionLogKey, TransactionLogValue
from tailrace.records.batch import Batch
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime

TOPIC = "__transaction_state"
A = TopicPartition("flights", 0)
B = TopicPartition("flights", 1)
C = TopicPartition("planes", 0)


def producer_at(producer_id: int, epoch: int) -> TransactionalProducer:
    """A producer by its numbers."""
    return TransactionalProducer(ProducerId(producer_id), ProducerEpoch(epoch))


PRODUCER = producer_at(7, 3)
"""The producer of `stored` transactions."""
NOBODY = producer_at(-1, -1)
COORDINATOR_EPOCH = 9
NOW = 1_700_000_000_000
"""The time of day when a test begins."""


class Answer(NamedTuple):
    """A reply with a producer in it."""

    error: ErrorCode
    producer: TransactionalProducer


class Partitions:
    """Takes markers, as the leaders of partitions would."""

    backoff_s_max = BACKOFF_S_MAX

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, Marker]] = []
        self.faults: dict[TopicPartition, list[Exception]] = defaultdict(list)
        """The error that the next markers of a partition raise."""
        self.is_free = asyncio.Event()
        """Not set while markers have to wait."""
        self.is_free.set()
        self.waiting = 0

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Take a marker, when `is_free` is set."""
        self.waiting += 1
        await self.is_free.wait()
        self.waiting -= 1
        if self.faults[partition]:
            raise self.faults[partition].pop(0)
        self.written.append((partition, marker))

    @property
    def ends(self) -> list[tuple[TopicPartition, int, int, bool]]:
        """Partition, producer id and epoch of each marker, and whether it commits."""
        return [
            (partition, marker.producer_id, marker.producer_epoch, marker.is_commit)
            for partition, marker in self.written
        ]


@dataclass
class Stage:
    """A coordinator, what it stands on, and what it talks to."""

    outside: Outside
    log: MemoryPartitionLog
    settings: TransactionSettings
    partitions: Partitions = field(default_factory=Partitions)
    producer_ids: list[int] = field(default_factory=lambda: [1000])
    """The next producer id, as the last element."""
    producer_id_fault: Exception | None = None
    has_producer_ids: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while a request for a producer id has to wait."""
    counts: TransactionCounts = field(default_factory=TransactionCounts)

    def __post_init__(self) -> None:
        self.has_producer_ids.set()
        self.shards = Shards[TransactionMachine](self._shard, partition_count=lambda: 1)
        self.coordinator = TransactionCoordinator(self.shards, self._next_id, self.settings)

    def _shard(self, log: object) -> Shard[TransactionMachine]:
        assert log is self.log
        return Shard(
            self.log,
            lambda: TransactionMachine(
                self.settings,
                self.partitions,
                coordinator_epoch=LeaderEpoch(COORDINATOR_EPOCH),
                new_producer_id=self._next_id,
                counts=self.counts,
            ),
            TransactionCodec,
            clock=self.outside.runtime.clock,
        )

    async def _next_id(self) -> ProducerId:
        if self.producer_id_fault is not None:
            raise self.producer_id_fault
        await self.has_producer_ids.wait()
        self.producer_ids.append(self.producer_ids[-1] + 1)
        return ProducerId(self.producer_ids[-2])

    async def load(self) -> None:
        """Lead the partition, and take requests."""
        self.shards.lead(self.log, leader_epoch=LeaderEpoch(0))
        await self.outside.pass_time(0.001)

    async def restart(self) -> None:
        """Lead the partition anew: all that is not in its log is forgotten."""
        await self.shards.stop()
        await self.load()

    async def init(
        self,
        transactional_id: str | None = "t",
        *,
        expected: TransactionalProducer = NOBODY,
        timeout_ms: int = 60_000,
        version: int = 5,
        **more: bool,
    ) -> Answer:
        """Ask InitProducerId."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
            **more,
        )
        found = await self.coordinator.init_producer_id(request, version)
        return Answer(
            ErrorCode(found.error_code),
            producer_at(found.producer_id, found.producer_epoch),
        )

    async def add(
        self,
        producer: TransactionalProducer = PRODUCER,
        partitions: Iterable[TopicPartition] = (A,),
        *,
        transactional_id: str = "t",
        client_version: int = 2,
    ) -> ErrorCode:
        """Add partitions."""
        return await self.coordinator.add_partitions(
            AddPartitions(
                transactional_id=transactional_id,
                producer=producer,
                partitions=frozenset(partitions),
                client_version=client_version,
            )
        )

    async def verify(
        self, producer: TransactionalProducer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Verify that partitions are in the transaction."""
        return await self.coordinator.verify_partitions(
            AddPartitions(transactional_id="t", producer=producer, partitions=frozenset(partitions))
        )

    async def add_by_version(
        self,
        version: int,
        producer: TransactionalProducer = PRODUCER,
        *,
        errors: dict[TopicPartition, ErrorCode] | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask AddPartitionsToTxn v0 to v3 for A and C, some of which have these errors."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=each.topic, partitions=(each.partition,))
                for each in (A, C)
            ),
        )
        response = await add_partitions_to_txn(
            self.coordinator,
            request,
            version=version,
            check=lambda partition: (errors or {}).get(partition, ErrorCode.NONE),
        )
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    async def end(
        self,
        producer: TransactionalProducer = PRODUCER,
        *,
        is_commit: bool = True,
        transactional_id: str = "t",
        version: int = 5,
    ) -> Answer:
        """Ask EndTxn."""
        found = await self.coordinator.end(
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=is_commit,
            ),
            version,
        )
        return Answer(
            ErrorCode(found.error_code),
            producer_at(found.producer_id, found.producer_epoch),
        )

    def statistics(self) -> TransactionsStatistics:
        """The transactions in numbers."""
        return transactions_statistics(self.shards.machines(), self.counts)

    def machine(self) -> TransactionMachine:
        """The machine of the partition."""
        [shard] = self.shards
        assert shard.state is ShardState.ACTIVE
        return shard.machine

    def transaction(self, transactional_id: str = "t") -> Transaction:
        """The state of an id."""
        [found] = [each for each in self.machine() if each.transactional_id == transactional_id]
        return found

    def records(self) -> list[tuple[str, Transaction | None]]:
        """The records of the log, as ids and states."""
        found = []
        for content in self.log.content:
            for record in records_of(Batch(memoryview(content))):
                assert record.key is not None
                decoded = TransactionCodec().decode(record.key, record.value)
                assert decoded is not None
                key, value = decoded
                assert isinstance(key, TransactionLogKey)
                assert value is None or isinstance(value, TransactionLogValue)
                state = None if value is None else stored_transaction(key.transactional_id, value)
                found.append((key.transactional_id, state))
        return found

    def statuses(self) -> list[TransactionStatus | None]:
        """The statuses in the log; None: a tombstone."""
        return [None if state is None else state.status for _, state in self.records()]


def stored(
    status: TransactionStatus = TransactionStatus.EMPTY,
    *,
    transactional_id: str = "t",
    epoch: int = PRODUCER.producer_epoch,
    partitions: Iterable[TopicPartition] | None = None,
    client_version: int = 2,
    start_ms: int | None = None,
    updated_ms: int = NOW,
    next_producer_id: int = -1,
    previous_producer_id: int = PRODUCER.producer_id,
) -> Transaction:
    """A transaction of `PRODUCER`, with partitions and start if its status has them."""
    is_open = TransactionStatus.ONGOING <= status <= TransactionStatus.PREPARE_ABORT
    if partitions is None:
        partitions = (A, C) if is_open else ()
    if start_ms is None:
        start_ms = -1 if status is TransactionStatus.EMPTY else NOW
    return Transaction(
        transactional_id=transactional_id,
        producer_id=PRODUCER.producer_id,
        producer_epoch=ProducerEpoch(epoch),
        previous_producer_id=ProducerId(previous_producer_id),
        next_producer_id=ProducerId(next_producer_id),
        timeout_ms=60_000,
        status=status,
        partitions=frozenset(partitions),
        updated_ms=updated_ms,
        start_ms=start_ms,
        client_version=client_version,
    )


def log_of(*transactions: Transaction) -> MemoryPartitionLog:
    """A log with a record for each of these states."""
    log = MemoryPartitionLog(TopicPartition(TOPIC, 0))
    for each in transactions:
        builder = BatchBuilder()
        key, value = TransactionCodec().encode(transaction_record(each))
        builder.append(key, value, timestamp=each.updated_ms)
        log.append(bytearray(builder.build()))
    return log


def play(
    scenario: Callable[[Stage], Awaitable[None]],
    *transactions: Transaction,
    settings: TransactionSettings | None = None,
    are_markers_held: bool = False,
    producer_id: int = 1000,
) -> Stage:
    """Run a scenario on a coordinator whose log has these states.

    `producer_id` is the next new one.
    """
    with virtual_runtime() as outside:

        async def main() -> Stage:
            stage = Stage(outside, log_of(*transactions), settings or TransactionSettings())
            stage.producer_ids = [producer_id]
            if are_markers_held:
                stage.partitions.is_free.clear()
            await stage.load()
            await scenario(stage)
            await stage.shards.stop()
            await outside.pass_time(0.001)  # What was cancelled ends.
            return stage

        return outside.run(main())
