"""`ScriptedCoordinator`: producer ids, transactions and the offsets of groups, as in Kafka.

The producer adds partitions (KIP-98, KIP-360, KIP-447), or they are added with its first batch and
the epoch grows at the end (KIP-890); the end writes a marker to each at once, and a new producer
with the same transactional id fences the old one.

`cluster` answers the requests and applies the faults.
"""

from collections.abc import Callable
from dataclasses import field
from enum import Enum

from tailrace.model import PRODUCER_EPOCH_MAX, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.partition_log import ScriptedLog
from tailrace.values import dataclass


class TransactionState(Enum):
    """The state of a transaction."""

    EMPTY = "none was begun"
    ONGOING = "it has partitions or offsets"
    COMMITTED = "the last one was committed"
    ABORTED = "the last one was aborted"


@dataclass(slots=True)
class Transaction:
    """The state of a transactional id."""

    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    """The previous epoch; an InitProducerId request with it is a repetition."""
    ended_as: tuple[int, int] = (-1, -1)
    """Id and epoch with which the last transaction was ended, if that has raised the epoch."""
    phase: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """Offsets that are committed at the end, by group."""


class ScriptedCoordinator:
    """The transactions of a cluster."""

    def __init__(self, log_of: Callable[[TopicPartition], ScriptedLog]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        """Committed offsets by group."""
        self.ends: list[bool] = []
        """For each ended transaction, whether it was committed."""
        self._log_of = log_of
        self._next_id = 1000

    def new_producer(self) -> int:
        """A new producer id."""
        self._next_id += 1
        return self._next_id

    def init(self, name: str, producer_id: int, epoch: int) -> tuple[ErrorCode, int, int]:
        """Return id and epoch for a transactional id; an open transaction is aborted."""
        known = self.transactions.get(name)
        if known is None:
            known = self.transactions[name] = Transaction(self.new_producer())
            return ErrorCode.NONE, known.producer_id, known.epoch
        if producer_id >= 0 and (producer_id, epoch) == (known.producer_id, known.last_epoch):
            return ErrorCode.NONE, known.producer_id, known.epoch
        if producer_id >= 0 and (producer_id, epoch) != (known.producer_id, known.epoch):
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if known.phase is TransactionState.ONGOING:
            self._finish(known, is_commit=False, epoch=known.epoch + 1)
        known.last_epoch = known.epoch
        known.epoch += 1
        if known.epoch >= PRODUCER_EPOCH_MAX:
            known.producer_id, known.epoch, known.last_epoch = self.new_producer(), 0, -1
        known.phase = TransactionState.EMPTY
        return ErrorCode.NONE, known.producer_id, known.epoch

    def check(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        """NONE if this producer owns the transactional id now, else the error code."""
        known = self.transactions.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def add(self, name: str, partitions: set[TopicPartition]) -> None:
        """Add partitions to the transaction."""
        known = self.transactions[name]
        known.phase = TransactionState.ONGOING
        known.partitions |= partitions

    def add_group(self, name: str, group: str) -> None:
        """Add a group's offsets to the transaction."""
        known = self.transactions[name]
        known.phase = TransactionState.ONGOING
        known.groups.add(group)

    def has(self, name: str | None, partition: TopicPartition) -> bool:
        """Whether a batch for the partition belongs to an open transaction."""
        known = self.transactions.get(name or "")
        return (
            known is not None
            and known.phase is TransactionState.ONGOING
            and partition in known.partitions
        )

    def end(self, name: str, *, is_commit: bool) -> ErrorCode:
        """End the transaction; a repeated request for the same end changes nothing."""
        known = self.transactions[name]
        if known.phase is TransactionState.ONGOING:
            self._finish(known, is_commit=is_commit, epoch=known.epoch)
            return ErrorCode.NONE
        is_same = known.phase is (
            TransactionState.COMMITTED if is_commit else TransactionState.ABORTED
        )
        return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE

    def end_with_epoch(
        self, name: str, producer: tuple[int, int], *, is_commit: bool
    ) -> tuple[ErrorCode, int, int]:
        """End the transaction and return the id and epoch of the next one (KIP-890)."""
        known = self.transactions.get(name)
        if known is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        ended = TransactionState.COMMITTED if is_commit else TransactionState.ABORTED
        if producer == known.ended_as and known.phase is ended:
            return ErrorCode.NONE, known.producer_id, known.epoch
        if producer != (known.producer_id, known.epoch):
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if known.phase is TransactionState.ONGOING:
            self._finish(known, is_commit=is_commit, epoch=known.epoch + 1)
        elif is_commit:
            return ErrorCode.INVALID_TXN_STATE, -1, -1
        known.phase = ended
        known.ended_as = producer
        known.last_epoch = known.epoch
        known.epoch += 1
        if known.epoch >= PRODUCER_EPOCH_MAX:
            known.producer_id, known.epoch, known.last_epoch = self.new_producer(), 0, -1
        return ErrorCode.NONE, known.producer_id, known.epoch

    def _finish(self, known: Transaction, *, is_commit: bool, epoch: int) -> None:
        for partition in known.partitions:
            self._log_of(partition).end_transaction(known.producer_id, epoch, is_commit=is_commit)
        if is_commit:
            self.offsets |= known.offsets
        known.phase = TransactionState.COMMITTED if is_commit else TransactionState.ABORTED
        known.partitions.clear()
        known.groups.clear()
        known.offsets.clear()
        self.ends.append(is_commit)
