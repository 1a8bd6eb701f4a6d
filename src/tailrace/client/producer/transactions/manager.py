"""`TransactionManager`: the producer's identity and, with a `transactional.id`, its transactions.

Without a transactional id there is only the identity, which it asks for by itself; the epoch is
bumped locally. With one, its operations are those of Kafka's producer, and each gives a `Pending`.
An operation that its caller gave up waiting for is found again by the same call.

These are Kafka's classic transactions (KIP-98, KIP-360, KIP-447): a partition is added before its
first batch is sent, and the coordinator hears of every end. The flow of KIP-890, in which brokers
add partitions and every transaction has its own epoch, needs Produce 12, TxnOffsetCommit 5 and
EndTxn 5, which are not spoken; brokers of Kafka 4 serve both.

Not here: which request goes when and what its answer changes (`flow`), the numbers of
batches (`sequences`), threads and sockets.

Invariant: a batch is sent only for a partition that the coordinator has in the transaction, and
nothing is sent after a fatal error.
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
    Pending,
)
from tailrace.client.producer.transactions.sequences import NO_PRODUCER, Producer
from tailrace.client.producer.transactions.state import State
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.client.producer.batch import ProducerBatch


COMMIT: Final = "commit_transaction"
"""The name of the operation whose outcome decides whether its work may be done again."""


class TransactionManager:
    """The identity, the numbers of the batches, and the transaction of one producer.

    What is asked of the coordinator is handed out as `TransactionFlow` does it, and batches are
    numbered as `Sequences` does it: those methods are found here too.
    """

    def __init__(
        self, *, transactional_id: str | None, transaction_timeout_ms: int, backoff: Backoff
    ) -> None:
        self.is_transactional = transactional_id is not None
        """Whether there is a transactional id."""
        self._backoff = backoff
        self._flow = TransactionFlow(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            backoff=backoff,
        )
        self._sequences = self._flow.sequences
        self._operation: tuple[str, Pending] | None = None

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
        """Where the producer is."""
        return self._flow.state

    @property
    def error(self) -> Exception | None:
        """Why the transaction or the producer failed."""
        return self._flow.error

    @property
    def producer(self) -> Producer:
        """The id and epoch."""
        return self._sequences.producer

    @property
    def is_completing(self) -> bool:
        """Whether a commit or an abort is under way."""
        return self.state in {State.COMMITTING, State.ABORTING}

    @property
    def is_aborting_batches(self) -> bool:
        """Whether batches without a number (after a fatal error: all) fail with `abort_reason`."""
        return self.state in {State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}

    @property
    def is_quiet(self) -> bool:
        """Whether a poll has nothing to see to here: there is an identity, and all is well."""
        return (
            self.state is State.READY
            and not self.is_transactional
            and self.producer is not NO_PRODUCER
            and self._sequences.is_resolved
        )

    # -- operations -------------------------------------------------------------------------------
    # All raise TransactionStateError where they do not fit, TransactionAbortableError in a failed
    # transaction, ProducerFencedError once another producer has the transactional id.

    def init_transactions(self) -> Pending:
        """Get an id and epoch; producers that had the transactional id before are fenced."""

        def start(pending: Pending) -> None:
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
    ) -> Pending:
        """Have a group's offsets committed together with the transaction."""
        self._check_call("send_offsets_to_transaction")
        if self.state is not State.IN_TRANSACTION:
            raise self._flow.misplaced("send_offsets_to_transaction")
        return self._flow.ask_for_offsets(dict(offsets), group)

    def commit(self) -> Pending:
        """Commit, once every batch is in the log."""

        def start(pending: Pending) -> None:
            self._check_error(COMMIT)
            self._flow.move(State.COMMITTING)
            self._flow.ask_for_end(pending, is_commit=True)

        return self._operate(COMMIT, start)

    def abort(self) -> Pending:
        """Abort, once no batch is in flight any more."""

        def start(pending: Pending) -> None:
            if self.state is not State.ABORTABLE_ERROR:
                self._check_error("abort_transaction")
            self._flow.start_abort(pending)

        return self._operate("abort_transaction", start)

    def abort_open(self) -> bool:
        """Abort the transaction that is open or has failed; False if there is none.

        For a producer that ends. If the caller has not learnt yet that the commit failed, it can
        still ask for that.
        """
        operation = self.unsettled
        if operation is not None and not operation[1].is_done:
            return False
        if self.state not in {State.IN_TRANSACTION, State.ABORTABLE_ERROR}:
            return False
        self._flow.start_abort(Pending())
        return True

    @property
    def unsettled(self) -> tuple[str, Pending] | None:
        """The operation whose outcome its caller has not learnt, by its name; None if all have."""
        operation = self._operation
        return None if operation is None or operation[1].is_taken else operation

    def _operate(self, name: str, start: Callable[[Pending], None]) -> Pending:
        """Start an operation, or find the one that its caller gave up waiting for."""
        self._check_transactional()
        self._check_settled(name)
        operation = self.unsettled
        if operation is None:
            before = self.state
            # Noted first: Ctrl-C in `start` must not leave a commit of which nobody knows.
            try:
                operation = self._operation = (name, Pending())
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
                "call finish_transaction() first, which waits for it and commits nothing more"
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
        """Return if a record may be sent to the partition now; raises as the operations do."""
        self._check_settled("send")
        self._check_error("send")
        if self.is_transactional and self.state is not State.IN_TRANSACTION:
            raise self._flow.misplaced(f"send to {partition}")

    def note_append(self, partition: TopicPartition) -> None:
        """A record was appended for the partition, so it has to be in the transaction."""
        flow = self._flow
        if self.is_transactional and not (partition in flow.added or partition in flow.adding):
            flow.new.add(partition)

    def record_refused(self, error: Exception) -> None:
        """A record got into no batch, so the transaction lacks it."""
        if self.state is State.IN_TRANSACTION:
            self._flow.to_abortable(error)

    def may_drain(self, batch: "ProducerBatch") -> bool:
        """Whether the batch, the first in its queue, may be sent now."""
        if self.state is State.FATAL_ERROR:
            return False
        if self.is_transactional and batch.partition not in self._flow.added:
            return False
        return self._sequences.may_send(batch)

    def failed(
        self, batch: "ProducerBatch", error: Exception, *, code: int = 0, was_refused: bool
    ) -> None:
        """The batch is given up.

        `code` is the answer's, if one is the reason. `was_refused`: a broker said that it does not
        take it; else it expired or ran out of retries, and may be in the log if it was sent.
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
        """Look at what is not known of failed batches, and see to a new epoch; at each poll."""
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
            self._flow.ask_for_id(Pending(), ready_at=now + pause_s)
