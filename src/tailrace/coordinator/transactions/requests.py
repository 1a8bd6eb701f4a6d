"""Requests to a machine, and its replies; `handlers` has the messages of the wire."""

from typing import NamedTuple

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.state import CLASSIC
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass

NO_PRODUCER = TransactionalProducer(ProducerId(-1), ProducerEpoch(-1))


class ProducerReply(NamedTuple):
    """An error, or the producer id and epoch with which a client continues."""

    error: ErrorCode
    producer: TransactionalProducer = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer id for a transactional id, or the next epoch of the one that it has."""

    transactional_id: str
    timeout_ms: int
    """Milliseconds for which its transactions may be open."""
    expected: TransactionalProducer | None = None
    """The producer that the client has now; None: it has none, and fences the client before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions that a transaction is about to write to, or that must be in it."""

    transactional_id: str
    producer: TransactionalProducer
    partitions: frozenset[TopicPartition]
    client_version: int = CLASSIC
    """Transaction version of the client: 0, or 2 if its leader asks for it (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The end of a transaction that its client asks for."""

    transactional_id: str
    producer: TransactionalProducer
    is_commit: bool
    client_version: int = CLASSIC
    """Transaction version of the client: 0, or 2 if each end is to raise the epoch (KIP-890)."""
