"""`TransactionManager`: the producer id and epoch and, with a `transactional.id`, transactions.

Without a transactional id there is only the id and epoch, which it requests by itself; the epoch is
bumped locally. With one, its operations are those of Kafka's producer, and each returns a
`PendingOperation`.

Not here: the order of requests and the effect of answers (`flow`), sequence numbers of batches
(`sequences`), threads and sockets.

Invariant: a batch is sent only for a partition that was added to the transaction, and nothing is
sent after a fatal error.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.nodes import AuthenticationError, Backoff
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
)
from tailrace.client.producer.identity.flow import State, TransactionFlow, misplaced
from tailrace.client.producer.identity.requests import FATAL_IN_PRODUCE, PendingOperation
from tailrace.client.producer.identity.sequences import (
    NO_PRODUCER,
    OwnedIdentity,
    ProducerIdAndEpoch,
)
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.client.producer.queue.accumulator import QueuedBatch
    from tailrace.client.producer.queue.batches import ClosedBatch

COMMIT: Final = "commit_transaction"
"""Name of the operation whose unknown outcome the caller must get before the next transaction."""


class TransactionManager:
    """The id and epoch, the sequence numbers and the transaction of one producer."""

    def __init__(
        self, config: ProducerConfig, backoff: Backoff, feature_level: Callable[[str], int]
    ) -> None:
        """`feature_level` returns the cluster's level of a feature."""
        self.is_transactional = config.transactional_id is not None
        self._backoff = backoff
        self.flow = TransactionFlow(config, backoff, feature_level)
        self.sequences = self.flow.sequences
        self._operation: tuple[str, PendingOperation] | None = None

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
        return self.flow.state

    @property
    def error(self) -> Exception | None:
        return self.flow.error

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self.sequences.producer

    @property
    def is_completing(self) -> bool:
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
            self._check_failure("init_transactions")
            self.flow.move(State.INITIALIZING)
            self.flow.ask_for_id(pending)

        return self._started("init_transactions", start)

    def begin(self) -> None:
        self.check("begin_transaction")
        self.flow.move(State.IN_TRANSACTION)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> PendingOperation:
        self.check("send_offsets_to_transaction")
        if self.state is not State.IN_TRANSACTION:
            raise misplaced(self.state, "send_offsets_to_transaction")
        return self.flow.ask_for_offsets(dict(offsets), group)

    def commit(self) -> PendingOperation:
        """Commit the transaction, once every batch is in the log."""

        def start(pending: PendingOperation) -> None:
            self._check_failure(COMMIT)
            self.flow.move(State.COMMITTING)
            self.flow.ask_for_end(pending, is_commit=True)

        return self._started(COMMIT, start)

    def abort(self) -> PendingOperation:
        """Abort the transaction, once no batch is in flight any more."""

        def start(pending: PendingOperation) -> None:
            if self.state is not State.ABORTABLE_ERROR:
                self._check_failure("abort_transaction")
            self.flow.start_abort(pending)

        return self._started("abort_transaction", start)

    def abort_open(self) -> bool:
        """Abort an open or failed transaction, for a producer that ends; False if there is none."""
        # It does not replace the current operation, so a caller that has not seen yet that its
        # commit failed can still get that outcome.
        operation = self.unsettled
        if operation is not None and not operation[1].is_done:
            return False
        if self.state not in {State.IN_TRANSACTION, State.ABORTABLE_ERROR}:
            return False
        self.flow.start_abort(PendingOperation())
        return True

    def prepare(self) -> PreparedTransaction | None:
        """Give the open transaction away, once every batch is in the log; None if it is empty.

        From then on the producer can only be closed, which leaves the transaction open.
        """
        self.check("prepare_transaction")
        flow = self.flow
        if flow.state is not State.IN_TRANSACTION:
            raise misplaced(flow.state, "prepare_transaction")
        flow.move(State.PREPARED)
        if not flow.is_started:
            return None
        known = flow.sequences.producer
        return PreparedTransaction(
            flow.transactional_id or "", known.id, known.epoch, flow.version.level
        )

    @property
    def unsettled(self) -> tuple[str, PendingOperation] | None:
        """The name and operation whose outcome the caller has not got yet, or None."""
        operation = self._operation
        return None if operation is None or operation[1].is_taken else operation

    def _started(self, name: str, start: Callable[[PendingOperation], None]) -> PendingOperation:
        """Start an operation, or return the present one if its caller gave up waiting for it."""
        # As Kafka's `TransactionManager.handleCachedTransactionRequestResult`: after a timeout the
        # same call may be repeated and gets the outcome of the first; others are refused.
        self._check_transactional()
        self._check_settled(name)
        operation = self.unsettled
        if operation is None:
            before = self.flow.state
            # Set first: after Ctrl-C in `start`, a commit that was begun must still be known.
            try:
                operation = self._operation = (name, PendingOperation())
                start(operation[1])
            except BaseException:
                if self.flow.state is before:
                    self._operation = None
                raise
        return operation[1]

    def check(self, name: str) -> None:
        self._check_transactional()
        self._check_settled(name)
        self._check_failure(name)

    def _check_transactional(self) -> None:
        if not self.is_transactional:
            raise TransactionStateError("set transactional.id to use transactions")

    def _check_settled(self, name: str) -> None:
        """Check that the caller has got the outcome of every other operation."""
        operation = self.unsettled
        if operation is not None and operation[0] != name:
            advice = (
                "call finish_transaction() first, which waits for it and commits nothing else"
                if operation[0] == COMMIT
                else "the next transaction() waits for it before it begins"
            )
            raise TransactionStateError(
                f"{name}: the outcome of {operation[0]} has not been reported yet; {advice}"
            )

    def _check_failure(self, name: str) -> None:
        """Check that neither the transaction nor the producer has failed."""
        error = self.flow.error
        if self.state is State.ABORTABLE_ERROR:
            raise TransactionAbortableError(
                f"{name}: the transaction has failed, abort it: {error}"
            ) from error
        if self.state is State.FATAL_ERROR:
            kinds = (ProducerFencedError, AuthenticationError)
            kind = next((each for each in kinds if isinstance(error, each)), None)
            raise (kind or TransactionStateError)(
                f"{name}: the producer has failed, close it: {error}"
            ) from error

    # -- records and batches ----------------------------------------------------------------------

    def may_append(self, partition: TopicPartition) -> None:
        """Return if a record may be sent to the partition now; else raise, as the operations do."""
        # A record that is sent after a commit timed out belongs to no transaction that is known.
        self._check_settled("send")
        self._check_failure("send")
        if self.is_transactional and self.state is not State.IN_TRANSACTION:
            raise misplaced(self.state, f"send to {partition}")

    def note_append(self, partition: TopicPartition) -> None:
        """Add the partition of an appended record to the transaction."""
        if self.is_transactional:
            self.flow.note_partition(partition)

    def record_refused(self, error: Exception) -> None:
        """Fail an open transaction, because a record of it was refused."""
        # As in Kafka's `KafkaProducer.doSend`: a commit would silently leave the record out.
        if self.state is State.IN_TRANSACTION:
            self.flow.to_abortable(error)

    def may_drain(self, batch: "QueuedBatch") -> bool:
        """Return whether the batch, the first in its queue, may be sent now."""
        if self.state is State.FATAL_ERROR:
            return False
        # A batch that comes before its partition is in the transaction would get no marker, and
        # readers of committed records would wait for it for ever.
        if self.is_transactional and batch.partition not in self.flow.added:
            return False
        return self.sequences.may_send(batch)

    def failed(
        self, batch: "ClosedBatch", error: Exception, *, code: int = 0, was_refused: bool
    ) -> None:
        """Note that a batch has failed.

        `code` is the error code of the answer, if that is the reason. `was_refused` says that a
        broker refused it; otherwise it expired or ran out of retries, and may be in the log.
        """
        flow = self.flow
        # The abort itself fails batches with its own error; that is no second failure.
        is_known = error is self.error or isinstance(error, TransactionAbortedError)
        # With an owned identity nothing more is sent: the numbers of later batches count on it.
        is_fatal = code in FATAL_IN_PRODUCE or self.sequences.is_owned
        if is_fatal and self.state is not State.FATAL_ERROR:
            flow.fail(error)
        elif self.is_transactional and not is_known:
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
                self.flow.fail_of_unknown_outcome()
            return
        # Without a transactional id nobody can fence this id, so the epoch is raised locally
        # (KIP-360), without a request to a coordinator.
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
