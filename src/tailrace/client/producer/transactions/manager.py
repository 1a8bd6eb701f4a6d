"""`TransactionManager`: the producer id and epoch and, with a `transactional.id`, transactions.

Without a transactional id there is only the id and epoch, which it requests by itself; the epoch is
bumped locally. With one, its operations are those of Kafka's producer, and each returns a
`PendingOperation`. If a caller gave up waiting for an operation, the same call returns the same
one.

These are Kafka's classic transactions (KIP-98, KIP-360, KIP-447): a partition is added before its
first batch is sent, and each commit and abort is an EndTxn. The flow of KIP-890, in which brokers
add partitions and every transaction has its own epoch, needs Produce 12, TxnOffsetCommit 5 and
EndTxn 5, which this client does not speak; brokers of Kafka 4 support both flows.

Not here: the order of requests and the effect of answers (`flow`), sequence numbers of batches
(`sequences`), threads and sockets.

Invariant: a batch is sent only for a partition that was added to the transaction, and nothing is
sent after a fatal error.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tailrace.client.nodes import AuthenticationError, Backoff
from tailrace.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
)
from tailrace.client.producer.transactions.flow import TransactionFlow
from tailrace.client.producer.transactions.requests import (
    FATAL_IN_PRODUCE,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PendingOperation,
)
from tailrace.client.producer.transactions.sequences import NO_PRODUCER, ProducerIdAndEpoch
from tailrace.client.producer.transactions.state import State
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.client.producer.batch import ProducerBatch


COMMIT: Final = "commit_transaction"
"""Name of the operation whose unknown outcome the caller must get before the next transaction."""


class TransactionManager:
    """The id and epoch, the sequence numbers and the transaction of one producer.

    It offers the methods of `TransactionFlow` for requests and those of `Sequences` for batches as
    its own.
    """

    def __init__(
        self, *, transactional_id: str | None, transaction_timeout_ms: int, backoff: Backoff
    ) -> None:
        self.is_transactional = transactional_id is not None
        """Whether the producer has a transactional id."""
        self._backoff = backoff
        self._flow = TransactionFlow(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            backoff=backoff,
        )
        self._sequences = self._flow.sequences
        self._operation: tuple[str, PendingOperation] | None = None

        self.abort_reason = self._flow.abort_reason
        self.next_request = self._flow.next_request
        self.answered = self._flow.answered
        self.put_back = self._flow.queue.put_back
        self.close = self._flow.fail
        self.next_deadline = self._flow.queue.next_deadline
        self.note_coordinator = self._flow.note_coordinator
        self.assign = self._sequences.assign
        self.place_in = self._sequences.place_in
        self.split = self._sequences.split
        self.completed = self._sequences.completed
        self.can_retry = self._sequences.can_retry

    @property
    def state(self) -> State:
        """The state of the producer."""
        return self._flow.state

    @property
    def error(self) -> Exception | None:
        """Why the transaction or the producer failed; None if neither did."""
        return self._flow.error

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The id and epoch."""
        return self._sequences.producer

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
            and self._sequences.is_resolved
        )

    # -- operations -------------------------------------------------------------------------------
    # All raise TransactionStateError in a wrong state, TransactionAbortableError in a failed
    # transaction, and ProducerFencedError once another producer uses the transactional id.

    def init_transactions(self) -> PendingOperation:
        """Get an id and epoch; earlier producers with the same transactional id are fenced."""

        def start(pending: PendingOperation) -> None:
            self._check_error("init_transactions")
            self._flow.move(State.INITIALIZING)
            self._flow.ask_for_id(pending)

        return self._operate("init_transactions", start)

    def begin(self) -> None:
        """Begin a transaction."""
        self._check_call("begin_transaction")
        self._flow.move(State.IN_TRANSACTION)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> PendingOperation:
        """Commit a group's offsets together with the transaction."""
        self._check_call("send_offsets_to_transaction")
        if self.state is not State.IN_TRANSACTION:
            raise self._flow.misplaced("send_offsets_to_transaction")
        return self._flow.ask_for_offsets(dict(offsets), group)

    def commit(self) -> PendingOperation:
        """Commit the transaction, once every batch is in the log."""

        def start(pending: PendingOperation) -> None:
            self._check_error(COMMIT)
            self._flow.move(State.COMMITTING)
            self._flow.ask_for_end(pending, is_commit=True)

        return self._operate(COMMIT, start)

    def abort(self) -> PendingOperation:
        """Abort the transaction, once no batch is in flight any more."""

        def start(pending: PendingOperation) -> None:
            if self.state is not State.ABORTABLE_ERROR:
                self._check_error("abort_transaction")
            self._flow.start_abort(pending)

        return self._operate("abort_transaction", start)

    def abort_open(self) -> bool:
        """Abort an open or failed transaction, for a producer that ends; False if there is none.

        It does not replace the current operation, so a caller that does not know yet that its
        commit failed can still get that outcome.
        """
        operation = self.unsettled
        if operation is not None and not operation[1].is_done:
            return False
        if self.state not in {State.IN_TRANSACTION, State.ABORTABLE_ERROR}:
            return False
        self._flow.start_abort(PendingOperation())
        return True

    @property
    def unsettled(self) -> tuple[str, PendingOperation] | None:
        """The name and operation whose outcome the caller has not got yet, or None."""
        operation = self._operation
        return None if operation is None or operation[1].is_taken else operation

    def _operate(self, name: str, start: Callable[[PendingOperation], None]) -> PendingOperation:
        """Start an operation, or return the same one if its caller gave up waiting for it."""
        self._check_transactional()
        self._check_settled(name)
        operation = self.unsettled
        if operation is None:
            before = self.state
            # Set first: after Ctrl-C in `start`, a commit that was begun must still be known.
            try:
                operation = self._operation = (name, PendingOperation())
                start(operation[1])
            except BaseException:
                if self.state is before:
                    self._operation = None
                raise
        return operation[1]

    def _check_call(self, name: str) -> None:
        self._check_transactional()
        self._check_settled(name)
        self._check_error(name)

    def _check_transactional(self) -> None:
        if not self.is_transactional:
            raise TransactionStateError("set transactional.id to use transactions")

    def _check_settled(self, name: str) -> None:
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

    def _check_error(self, name: str) -> None:
        if self.state is State.ABORTABLE_ERROR:
            raise TransactionAbortableError(
                f"{name}: the transaction has failed, abort it: {self.error}"
            ) from self.error
        if self.state is State.FATAL_ERROR:
            kinds = (ProducerFencedError, AuthenticationError)
            kind = next((each for each in kinds if isinstance(self.error, each)), None)
            raise (kind or TransactionStateError)(
                f"{name}: the producer has failed, close it: {self.error}"
            ) from self.error

    # -- records and batches ----------------------------------------------------------------------

    def may_append(self, partition: TopicPartition) -> None:
        """Return if a record may be sent to the partition now; else raise, as the operations do."""
        self._check_settled("send")
        self._check_error("send")
        if self.is_transactional and self.state is not State.IN_TRANSACTION:
            raise self._flow.misplaced(f"send to {partition}")

    def note_append(self, partition: TopicPartition) -> None:
        """Add the partition of an appended record to the transaction."""
        flow = self._flow
        if self.is_transactional and not (partition in flow.added or partition in flow.adding):
            flow.new.add(partition)

    def record_refused(self, error: Exception) -> None:
        """Fail an open transaction, because a record of it was refused."""
        if self.state is State.IN_TRANSACTION:
            self._flow.to_abortable(error)

    def may_drain(self, batch: "ProducerBatch") -> bool:
        """Return whether the batch, the first in its queue, may be sent now."""
        if self.state is State.FATAL_ERROR:
            return False
        if self.is_transactional and batch.partition not in self._flow.added:
            return False
        return self._sequences.may_send(batch)

    def failed(
        self, batch: "ProducerBatch", error: Exception, *, code: int = 0, was_refused: bool
    ) -> None:
        """Note that a batch has failed.

        `code` is the error code of the answer, if that is the reason. `was_refused` says that a
        broker refused it; otherwise it expired or ran out of retries, and may be in the log.
        """
        flow = self._flow
        is_told = error is self.error or isinstance(error, TransactionAbortedError)
        if code in FATAL_IN_PRODUCE and self.state is not State.FATAL_ERROR:
            flow.fail(error)
        elif self.is_transactional and not is_told:
            flow.needs_bump |= flow.can_bump and not self.is_completing
            flow.to_abortable(error)
        self._sequences.failed(batch, was_refused=was_refused)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._sequences.forget(batch.partition)

    def resolve_sequences(self, now: float) -> None:
        """Check partitions with batches of unknown outcome, and get a new epoch if needed.

        Called at each poll.
        """
        if self.state is State.FATAL_ERROR:
            return
        has_gap = self._sequences.resolve()
        if self.is_transactional:
            if has_gap:
                self._flow.lose_track()
            return
        if self._sequences.needs_bump:
            self._sequences.bump()
        if self.producer == NO_PRODUCER and self.state in {State.UNINITIALIZED, State.READY}:
            if self.state is State.READY:
                self._flow.move(State.UNINITIALIZED)
            self._flow.move(State.INITIALIZING)
            failures = self._flow.init_failures
            pause_s = self._backoff.pause_s(failures - 1) if failures else 0.0
            self._flow.ask_for_id(PendingOperation(), ready_at=now + pause_s)
