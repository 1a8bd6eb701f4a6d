"""`TransactionManager`: the producer id and epoch and, with a `transactional.id`, transactions.

Without a transactional id there is only the id and epoch, which it requests by itself; the epoch is
bumped locally. With one, its operations are those of Kafka's producer, and each returns a
`PendingOperation`. If a caller gave up waiting for an operation, the same call returns the same
one.

Where a cluster uses `transaction.version` 2, brokers add partitions, and every transaction has its
own epoch (KIP-890, version 2). Elsewhere a partition is added before its first batch is sent
(KIP-98, KIP-360, KIP-447). Which of them it is may change from one transaction to the next.

Not here: the order of requests and the effect of answers (`flow`), sequence numbers of batches
(`sequences`), which call is allowed now (`operations`), threads and sockets.

Invariant: a batch is sent only for a partition that was added to the transaction, and nothing is
sent after a fatal error.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.nodes import Backoff
from tailrace.client.producer.errors import (
    TransactionAbortedError,
)
from tailrace.client.producer.identity.flow import TransactionFlow
from tailrace.client.producer.identity.operations import COMMIT, Operations
from tailrace.client.producer.identity.requests import FATAL_IN_PRODUCE, PendingOperation
from tailrace.client.producer.identity.sequences import (
    NO_PRODUCER,
    OwnedIdentity,
    ProducerIdAndEpoch,
)
from tailrace.client.producer.identity.state import State, misplaced
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.client.producer.queue.accumulator import QueuedBatch
    from tailrace.client.producer.queue.in_flight_batch import ClosedBatch


class TransactionManager:
    """The id and epoch, the sequence numbers and the transaction of one producer."""

    def __init__(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        backoff: Backoff,
        feature_level: Callable[[str], int],
    ) -> None:
        """`feature_level` returns the cluster's level of a feature."""
        self.is_transactional = transactional_id is not None
        """Whether the producer has a transactional id."""
        self._backoff = backoff
        self.flow = TransactionFlow(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            backoff=backoff,
            feature_level=feature_level,
        )
        """The requests, and what their answers change."""
        self.sequences = self.flow.sequences
        """The sequence numbers of the batches."""
        self.operations = Operations(self.flow)
        """The calls of the user."""

    def adopt(self, identity: OwnedIdentity) -> None:
        """Use an identity that the caller owns, and never ask for another; nothing was sent yet.

        Raises:
            ConfigError: the producer is transactional.
        """
        if self.is_transactional:
            raise ConfigError(["identity: transactional.id brings an identity of its own"])
        self.sequences.adopt(identity)
        self.flow.move(State.INITIALIZING)
        self.flow.move(State.READY)

    @property
    def state(self) -> State:
        """The state of the producer."""
        return self.flow.state

    @property
    def error(self) -> Exception | None:
        """Error of the transaction or of the producer; None if neither failed."""
        return self.flow.error

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The id and epoch."""
        return self.sequences.producer

    @property
    def is_completing(self) -> bool:
        """Whether a commit or an abort is under way."""
        return self.state in {State.COMMITTING, State.ABORTING}

    @property
    def is_aborting_batches(self) -> bool:
        """Whether batches without a sequence number fail; after a fatal error, all do."""
        return self.state in {State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}

    @property
    def is_quiet(self) -> bool:
        """Whether a poll has nothing to do here: there is an id, and every batch is resolved."""
        return (
            self.state is State.READY
            and not self.is_transactional
            and self.producer is not NO_PRODUCER
            and self.sequences.is_resolved
        )

    # -- operations -------------------------------------------------------------------------------
    # All raise TransactionStateError in a wrong state, TransactionAbortableError in a failed
    # transaction, and ProducerFencedError once another producer uses the transactional id.

    def init_transactions(self) -> PendingOperation:
        """Get an id and epoch; earlier producers with the same transactional id are fenced."""

        def start(pending: PendingOperation) -> None:
            self.operations.check_failure("init_transactions")
            self.flow.move(State.INITIALIZING)
            self.flow.ask_for_id(pending)

        return self.operations.begin("init_transactions", start)

    def begin(self) -> None:
        """Begin a transaction."""
        self.operations.check("begin_transaction")
        self.flow.move(State.IN_TRANSACTION)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> PendingOperation:
        """Commit a group's offsets together with the transaction."""
        self.operations.check("send_offsets_to_transaction")
        if self.state is not State.IN_TRANSACTION:
            raise misplaced(self.state, "send_offsets_to_transaction")
        return self.flow.ask_for_offsets(dict(offsets), group)

    def commit(self) -> PendingOperation:
        """Commit the transaction, once every batch is in the log."""

        def start(pending: PendingOperation) -> None:
            self.operations.check_failure(COMMIT)
            self.flow.move(State.COMMITTING)
            self.flow.ask_for_end(pending, is_commit=True)

        return self.operations.begin(COMMIT, start)

    def abort(self) -> PendingOperation:
        """Abort the transaction, once no batch is in flight any more."""

        def start(pending: PendingOperation) -> None:
            if self.state is not State.ABORTABLE_ERROR:
                self.operations.check_failure("abort_transaction")
            self.flow.start_abort(pending)

        return self.operations.begin("abort_transaction", start)

    def abort_open(self) -> bool:
        """Abort an open or failed transaction, for a producer that ends; False if there is none.

        It does not replace the current operation, so a caller that does not know yet that its
        commit failed can still get that outcome.
        """
        operation = self.operations.unsettled
        if operation is not None and not operation[1].is_done:
            return False
        if self.state not in {State.IN_TRANSACTION, State.ABORTABLE_ERROR}:
            return False
        self.flow.start_abort(PendingOperation())
        return True

    # -- records and batches ----------------------------------------------------------------------

    def may_append(self, partition: TopicPartition) -> None:
        """Return if a record may be sent to the partition now; else raise, as the operations do."""
        self.operations.check_settled("send")
        self.operations.check_failure("send")
        if self.is_transactional and self.state is not State.IN_TRANSACTION:
            raise misplaced(self.state, f"send to {partition}")

    def note_append(self, partition: TopicPartition) -> None:
        """Add the partition of an appended record to the transaction."""
        if self.is_transactional:
            self.flow.note_partition(partition)

    def record_refused(self, error: Exception) -> None:
        """Fail an open transaction, because a record of it was refused."""
        if self.state is State.IN_TRANSACTION:
            self.flow.to_abortable(error)

    def may_drain(self, batch: "QueuedBatch") -> bool:
        """Return whether the batch, the first in its queue, may be sent now."""
        if self.state is State.FATAL_ERROR:
            return False
        if self.is_transactional and batch.partition not in self.flow.added:
            return False
        return self.sequences.may_send(batch)

    def failed(
        self, batch: "ClosedBatch", error: Exception, *, code: int = 0, was_refused: bool
    ) -> None:
        """Note that a batch has failed.

        `code` is the error code of the answer, if that is the reason. `was_refused` says that a
        broker refused it; otherwise it expired or ran out of retries, and may be in the log.

        With an owned identity, nothing more is sent: the numbers of later batches count on it.
        """
        flow = self.flow
        is_told = error is self.error or isinstance(error, TransactionAbortedError)
        is_fatal = code in FATAL_IN_PRODUCE or self.sequences.is_owned
        if is_fatal and self.state is not State.FATAL_ERROR:
            flow.fail(error)
        elif self.is_transactional and not is_told:
            flow.needs_bump |= flow.version.asks_for_epochs and not self.is_completing
            flow.to_abortable(error)
        self.sequences.failed(batch, was_refused=was_refused)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self.sequences.forget(batch.partition)

    def resolve_sequences(self, now: float) -> None:
        """Check partitions with batches of unknown outcome, and get a new epoch if needed.

        Called at each poll.
        """
        if self.state is State.FATAL_ERROR:
            return
        has_gap = self.sequences.resolve()
        if self.is_transactional:
            if has_gap:
                self.flow.lose_track()
            return
        if self.sequences.needs_bump:
            self.sequences.bump()
        if self.producer == NO_PRODUCER and self.state in {State.UNINITIALIZED, State.READY}:
            if self.state is State.READY:
                self.flow.move(State.UNINITIALIZED)
            self.flow.move(State.INITIALIZING)
            failures = self.flow.init_failures
            pause_s = self._backoff.pause_s(failures - 1) if failures else 0.0
            self.flow.ask_for_id(PendingOperation(), ready_at=now + pause_s)


def adopt_identity(transactions: TransactionManager | None, identity: OwnedIdentity | None) -> None:
    """Have a new producer use the identity that its caller owns, if there is one.

    Raises:
        ConfigError: the settings turn idempotence off, or transactions on.
    """
    if identity is None:
        return
    if transactions is None:
        raise ConfigError(["identity: enable.idempotence must be true"])
    transactions.adopt(identity)
