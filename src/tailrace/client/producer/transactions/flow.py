"""`TransactionFlow`: which request of a transaction is next, and what its answer changes.

A retriable answer is asked for again after a pause, also one that never came; an abortable one
leaves `abort` as the way on; a fatal one leaves `close`. Which is which is Kafka's, in
`requests`.

Not here: what the producer's caller may do when (`manager`), and sockets.

Invariant: one request is on its way at a time, and an end is asked for only when no batch is
without an outcome.
"""

import math
from collections.abc import Mapping
from typing import Final

from tailrace.client.nodes import Backoff
from tailrace.client.producer.errors import (
    BrokerRefusedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    producer_error,
)
from tailrace.client.producer.transactions.queue import RequestQueue
from tailrace.client.producer.transactions.requests import (
    GROUP_MEMBER_SINCE,
    PERHAPS_COMMITTED,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Pending,
    Priority,
    TransactionRequest,
    Verdict,
    add_partitions,
    error_codes,
    error_of,
    offset_commit,
    verdict_on,
)
from tailrace.client.producer.transactions.sequences import NO_PRODUCER, Producer, Sequences
from tailrace.client.producer.transactions.state import REACHED_FROM, State
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.find_coordinator import CoordinatorKeyType
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

ADD_PARTITIONS_PAUSE_S: Final = 0.02
"""Longest pause before the first partitions are asked for again while the coordinator still ends
the transaction before (Kafka does the same, KAFKA-5482)."""

EPOCH_BUMP_SINCE: Final = 3
"""First version of InitProducerId that takes an id and an epoch and gives the next (KIP-360)."""

_TIMEOUT_MS_MAX = 2**31 - 1


class TransactionFlow:
    """The state, the requests, and what the coordinator has in the transaction."""

    def __init__(
        self, *, transactional_id: str | None, transaction_timeout_ms: int, backoff: Backoff
    ) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms if transactional_id else _TIMEOUT_MS_MAX
        self.sequences = Sequences(is_transactional=transactional_id is not None)
        self.queue = RequestQueue(backoff, transactional_id=transactional_id or "")
        self.state = State.UNINITIALIZED
        self.error: Exception | None = None
        """Why the transaction or the producer failed."""
        self.new: set[TopicPartition] = set()
        """Partitions with records that the coordinator has not been asked for."""
        self.adding: set[TopicPartition] = set()
        """Those it has been asked for."""
        self.added: set[TopicPartition] = set()
        """Those that are in the transaction."""
        self.can_bump = False
        """Whether the coordinator gives a new epoch after an abort (KIP-360)."""
        self.needs_bump = False
        """Whether the numbers of the batches can only go on in a new epoch."""
        self.init_failures = 0
        """Refusals of InitProducerId in a row."""
        self._is_started = False
        """Whether the coordinator has something in the transaction."""

    @property
    def _id(self) -> str:
        """The transactional id, of a producer that has one."""
        assert self.transactional_id is not None
        return self.transactional_id

    def next_request(self, now: float, *, has_incomplete: bool) -> TransactionRequest | None:
        """What to send now, if anything; then `answered` or `put_back` must follow.

        It goes to `request.node`, or to any node if `request.coordinator` is None, in at least
        `request.first_version`. `has_incomplete`: there are batches without an outcome, which the
        end of the transaction has to wait for.
        """
        if self.state is State.ABORTABLE_ERROR and self.init_failures:
            self.move(State.UNINITIALIZED)
        if self.queue.in_flight is not None:
            return None
        self._ask_for_partitions()
        request = self.queue.first()
        if request is not None and request.priority is Priority.END_TXN:
            if has_incomplete:
                return None
            if not self._is_started:
                self.queue.remove(request)
                self._ended(request.pending)
        return self.queue.take(now)

    def note_coordinator(self, *, init_producer_id_version: int) -> None:
        """The transaction's coordinator is connected, and takes InitProducerId up to this."""
        self.can_bump = init_producer_id_version >= EPOCH_BUMP_SINCE

    def answered(
        self, request: TransactionRequest, answer: Message | Exception, now: float
    ) -> None:
        """Take the answer to a request, or why there is none."""
        if self.queue.in_flight is not request:
            return
        self.queue.in_flight = None
        if request.is_sent and request.is_commit:
            is_lost = isinstance(answer, RetriableError)
            request.pending.is_in_doubt |= is_lost or (
                isinstance(answer, EndTxnResponse) and answer.error_code in PERHAPS_COMMITTED
            )
        request.is_sent = False
        if self.state is State.FATAL_ERROR:
            request.pending.finish(self.error)
        elif isinstance(answer, RetriableError):
            self._retry(request, now, is_relocated=True)
        elif isinstance(answer, Exception):
            self.fail(producer_error(answer), request)
        else:
            self._judge(request, answer, now)

    def _judge(self, request: TransactionRequest, answer: Message, now: float) -> None:
        key = request.key
        codes = error_codes(key, answer)
        verdict = max((verdict_on(key, code) for _, code in codes), default=Verdict.DONE)
        if verdict is Verdict.DONE:
            try:
                request.accept(answer)
            except BrokerRefusedError as error:
                self.fail(error, request)
        elif verdict in {Verdict.RETRY, Verdict.RELOCATE}:
            is_early = any(code == ErrorCode.CONCURRENT_TRANSACTIONS for _, code in codes)
            is_early = is_early and key is ApiKey.ADD_PARTITIONS_TO_TXN and not self.added
            self._retry(
                request,
                now,
                is_relocated=verdict is Verdict.RELOCATE,
                limit_s=ADD_PARTITIONS_PAUSE_S if is_early else math.inf,
            )
        else:
            self._refused(request, verdict, codes, now=now)

    def _refused(
        self,
        request: TransactionRequest,
        verdict: Verdict,
        codes: list[tuple[str, int]],
        *,
        now: float,
    ) -> None:
        can_abort = verdict is not Verdict.ABORT_AND_BUMP or self.can_bump
        is_end_of_abort = request.key is ApiKey.END_TXN and self.state is State.ABORTING
        is_fatal = verdict is Verdict.FATAL or not can_abort or is_end_of_abort
        error = error_of(request.key, verdict, codes, is_fatal=is_fatal)
        if is_fatal:
            self.fail(error, request)
            return
        if self.state is State.ABORTING and request.key is ApiKey.FIND_COORDINATOR:
            self._retry(request, now, is_relocated=False)
            return
        if verdict is Verdict.ABORT_AND_BUMP:
            self.needs_bump = True
        if request.key is ApiKey.INIT_PRODUCER_ID:
            self.init_failures += 1
        request.pending.finish(error)
        self.to_abortable(error)

    def _retry(
        self,
        request: TransactionRequest,
        now: float,
        *,
        is_relocated: bool,
        limit_s: float = math.inf,
    ) -> None:
        """Send it again, unless the transaction has failed meanwhile: then only look-ups go on."""
        if is_relocated:
            self.queue.forget_coordinator(request)
        if self.state is State.ABORTABLE_ERROR and request.key is not ApiKey.FIND_COORDINATOR:
            request.pending.finish(self.error)
            return
        self.queue.retry(request, now, limit_s=limit_s)

    def ask_for_id(self, pending: Pending, *, is_bump: bool = False, ready_at: float = 0.0) -> None:
        """Ask for an id and epoch, or (`is_bump`) for the next epoch of the id that it has."""

        def make() -> Message:
            known = self.sequences.producer if is_bump else NO_PRODUCER
            return InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=known.id,
                producer_epoch=known.epoch,
            )

        self.queue.add(
            TransactionRequest(
                key=ApiKey.INIT_PRODUCER_ID,
                priority=Priority.INIT_PRODUCER_ID,
                coordinator=CoordinatorKeyType.TRANSACTION if self.transactional_id else None,
                pending=pending,
                make=make,
                accept=lambda answer: self._identified(answer, pending),
                ready_at=ready_at,
            )
        )

    def _identified(self, answer: InitProducerIdResponse, pending: Pending) -> None:
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            raise BrokerRefusedError(
                f"InitProducerId gave the id {answer.producer_id}, epoch {answer.producer_epoch}"
            )
        if self.transactional_id:
            self.sequences.clear()
        self.sequences.become(Producer(answer.producer_id, answer.producer_epoch))
        self.init_failures = 0
        self.move(State.READY)
        pending.finish()

    def _ask_for_partitions(self) -> None:
        self.adding |= self.new
        if self.new and not self.queue.has(ApiKey.ADD_PARTITIONS_TO_TXN):
            self.queue.add(
                TransactionRequest(
                    key=ApiKey.ADD_PARTITIONS_TO_TXN,
                    priority=Priority.ADD_PARTITIONS_OR_OFFSETS,
                    pending=Pending(),
                    make=lambda: add_partitions(self._id, self.sequences.producer, self.adding),
                    accept=self._partitions_added,
                )
            )
        self.new.clear()

    def _partitions_added(self, answer: AddPartitionsToTxnResponse) -> None:
        added = {
            TopicPartition(topic.name, each.partition_index)
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        if added != self.adding:
            raise BrokerRefusedError("AddPartitionsToTxn was answered for other partitions")
        self.added |= added
        self.adding.clear()
        self._is_started = True

    def ask_for_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Pending:
        """Have a group's offsets in the transaction, and then the offsets themselves."""
        pending = Pending()
        self.queue.add(
            TransactionRequest(
                key=ApiKey.ADD_OFFSETS_TO_TXN,
                priority=Priority.ADD_PARTITIONS_OR_OFFSETS,
                pending=pending,
                make=lambda: AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self.sequences.producer.id,
                    producer_epoch=self.sequences.producer.epoch,
                    group_id=group.group_id,
                ),
                accept=lambda _: self._offsets_added(offsets, group, pending),
            )
        )
        return pending

    def _offsets_added(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        pending: Pending,
    ) -> None:
        self._is_started = True
        if self.state is not State.IN_TRANSACTION and self.state is not State.COMMITTING:
            pending.finish(self.error or TransactionAbortedError("the transaction was aborted"))
            return
        self.queue.add(
            TransactionRequest(
                key=ApiKey.TXN_OFFSET_COMMIT,
                priority=Priority.ADD_PARTITIONS_OR_OFFSETS,
                coordinator=CoordinatorKeyType.GROUP,
                group_id=group.group_id,
                first_version=GROUP_MEMBER_SINCE if group.names_member else 0,
                pending=pending,
                make=lambda: offset_commit(self._id, self.sequences.producer, offsets, group=group),
                accept=lambda answer: self._offsets_committed(answer, offsets, pending),
            )
        )

    def _offsets_committed(
        self,
        answer: TxnOffsetCommitResponse,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        pending: Pending,
    ) -> None:
        committed = {
            TopicPartition(topic.name, each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
        }
        if committed != set(offsets):
            raise BrokerRefusedError("TxnOffsetCommit was answered for other partitions")
        pending.finish()

    def start_abort(self, pending: Pending) -> None:
        """Abort the transaction, and drop the offsets that were not committed with it yet."""
        self.move(State.ABORTING)
        self.new.clear()
        aborted = TransactionAbortedError("the transaction was aborted")
        self.queue.drop(aborted, lambda request: bool(request.group_id))
        self.ask_for_end(pending, is_commit=False)

    def abort_reason(self) -> Exception:
        """What batches without a number fail with while the transaction is aborted."""
        return self.error or TransactionAbortedError("not sent: its transaction was aborted")

    def ask_for_end(self, pending: Pending, *, is_commit: bool) -> None:
        """End the transaction, and see to a new epoch if one is needed."""
        self.queue.add(
            TransactionRequest(
                key=ApiKey.END_TXN,
                priority=Priority.END_TXN,
                pending=pending,
                make=lambda: EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=self.sequences.producer.id,
                    producer_epoch=self.sequences.producer.epoch,
                    committed=is_commit,
                ),
                accept=lambda _: self._ended(pending),
                is_commit=is_commit,
            )
        )

    def _ended(self, pending: Pending) -> None:
        """The transaction is over, or the coordinator never knew of it."""
        needs_bump, self.needs_bump = self.needs_bump, False
        self._is_started = False
        self.new.clear()
        self.adding.clear()
        self.added.clear()
        if needs_bump:
            self.move(State.INITIALIZING)
            self.ask_for_id(pending, is_bump=True)
        else:
            self.move(State.READY)
            pending.finish()

    def misplaced(self, call: str) -> TransactionStateError:
        """The error for what does not fit the state."""
        return TransactionStateError(f"{call} does not fit: the producer is {self.state.value}")

    def move(self, target: State) -> None:
        """Go to a state; raises TransactionStateError if it is not reached from this one."""
        if self.state not in REACHED_FROM[target]:
            raise self.misplaced(f"to be {target.value}")
        self.state = target
        self.error = None

    def to_abortable(self, error: Exception) -> None:
        """The transaction cannot be committed; while it is aborted anyhow, that changes nothing."""
        if self.state in {State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}:
            return
        if self.state not in REACHED_FROM[State.ABORTABLE_ERROR]:
            self.fail(self.misplaced(f"outside of a transaction: {error}"))
            return
        self.state, self.error = State.ABORTABLE_ERROR, error
        self.queue.drop(error, lambda request: request.key is not ApiKey.FIND_COORDINATOR)

    def fail(self, error: Exception, request: TransactionRequest | None = None) -> None:
        """Nothing works any more."""
        self.state, self.error = State.FATAL_ERROR, error
        request = request or self.queue.in_flight
        if request is not None:
            request.pending.is_in_doubt |= request.is_sent and request.is_commit
            request.pending.finish(error)
        self.queue.drop(error)

    def lose_track(self) -> None:
        """Nobody knows what became of a batch: only a new epoch lets the numbers go on."""
        message = "a batch was sent and never acknowledged, so that the numbers cannot go on"
        if self.can_bump:
            self.needs_bump = True
            self.to_abortable(TransactionAbortableError(f"{message}: abort the transaction"))
        else:
            self.fail(
                BrokerRefusedError(
                    f"{message}, and the coordinator is too old to give a new epoch: that takes "
                    f"InitProducerId v{EPOCH_BUMP_SINCE}"
                )
            )
