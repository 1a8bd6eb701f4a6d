"""The interface between the state machine of a coordinator and its shard.

    class Machine:
        some_request(request, now_ms) -> Decision     reads the state; changes no stored part of it
        replay(record, origin)                        changes the state by one record
        replay_marker(...)                            ends a transaction that wrote records

Invariant: only `replay` changes what a restart must know. A decision may change what a restart may
forget: parked requests, deadlines, members that have not joined yet.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from tailrace.model import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tailrace.protocol.fields import Record
from tailrace.storage.verification import VerificationGuard

T_co = TypeVar("T_co", covariant=True)


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic, as messages."""

    key: Record
    value: Record | None
    """None: a tombstone."""


class Origin(NamedTuple):
    """The offset of a record, and the transaction that it belongs to."""

    offset: int
    """Its offset in the partition."""
    producer_id: ProducerId = NO_PRODUCER_ID
    """The producer whose open transaction it belongs to; -1: none."""


class Client(NamedTuple):
    """The sender of a request."""

    client_id: str
    host: str
    """Its address."""
    version: int
    """Version of the request."""
    may_describe: Callable[[str], bool] | None = None
    """Whether it may describe a topic of a name; None: every topic."""


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Decision(NamedTuple, Generic[T_co]):
    """The result of a request: records to append, all or none, and a reply once they are committed.

    Without records the reply still waits until everything appended before is committed, so that no
    client learns of a record that may be lost with this broker.
    """

    reply: T_co | Awaitable[T_co]
    """The reply, or a parked one, which comes when other requests or a deadline complete it."""
    records: tuple[CoordinatorRecord, ...] = ()
    """One batch."""
    producer: TransactionalProducer | None = None
    """The producer of a transactional batch; None: the records count at once."""
    guard: VerificationGuard | None = None
    """The guard of the producer, if this batch begins its transaction in the partition."""
    # For what memory alone has: stored state changes by replay, after the append (decision 33).
    undo: Callable[[Exception], None] | None = None
    """Called if the records could not be appended; takes back what the decision has changed."""


Propose = Callable[[Callable[[int], Decision[None]]], Awaitable[None]]
"""Runs a decision, which gets the time of day in milliseconds, as if a client had asked for it.

It runs whether or not it is awaited; awaited, it raises what a client would get.
"""


class Machine(Protocol):
    """The state of one partition of a coordinator's topic."""

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Change the state by one record that is in the log."""
        ...

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """End the transaction of a producer: its records count, or never did."""
        ...

    def start(self, propose: "Propose") -> None:
        """All records are replayed: set deadlines, take up what was interrupted.

        `propose` runs a decision that no client has asked for, as when a deadline has passed.
        """
        ...

    def stop(self, error: Exception) -> None:
        """The partition has gone elsewhere: answer parked requests with `error`."""
        ...


class RecordCodec(Protocol):
    """Between records as messages and the bytes of a log."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record; None if its type is unknown, as one of a newer Kafka, which is skipped.

        Raises:
            CorruptionError: the bytes are not a record of their type.
        """
        ...
