"""`TransactionFlow`: which request of a transaction is sent next, and what its answer changes.

    UNINITIALIZED ─ INITIALIZING ─ READY ─ IN_TRANSACTION ─┬─ COMMITTING ── READY, or INITIALIZING
          ▲                                    │           └─ ABORTING ──── for a new epoch
          └─────────────────────────── ABORTABLE_ERROR ────────┘
                                         PREPARED: the transaction is in other hands
                                         FATAL_ERROR: from anywhere, and only `close` is left

Without a transactional id it goes to READY by itself and stays there. Where a cluster uses
`transaction.version` 2, brokers add partitions, and every transaction has its own epoch (KIP-890).
Elsewhere a partition is added before its first batch is sent (KIP-98, KIP-360, KIP-447). Which of
them it is may change from one transaction to the next.

After a retriable error or a lost connection, the request is sent again after a pause. After an
abortable error only `abort` is possible, after a fatal one only `close`. `requests` classifies the
error codes as Kafka does.

Not here: which calls are allowed in which state (`manager`), and sockets.

Invariant: one request is in flight at a time, and EndTxn is sent only when every batch has its
outcome.
"""

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.nodes import Backoff
from tailrace.client.nodes.versions import BEFORE_KIP_890
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import (
    BrokerRefusedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    producer_error,
)
from tailrace.client.producer.identity.requests import (
    GROUP_MEMBER_SINCE,
    PERHAPS_COMMITTED,
    EpochAfterCommit,
    PendingOperation,
    Priority,
    RequestQueue,
    TransactionRequest,
    Verdict,
    add_partitions,
    error_codes,
    error_of,
    offset_commit,
    verdict_on,
)
from tailrace.client.producer.identity.sequences import NO_PRODUCER, ProducerIdAndEpoch, Sequences
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse


class State(Enum):
    """The states of an idempotent producer; `value` completes "the producer is ..."."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a failed transaction"
    PREPARED = "done with its transaction, which others end"
    FATAL_ERROR = "failed"


REACHED_FROM: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.IN_TRANSACTION, State.COMMITTING, State.INITIALIZING}),
    State.PREPARED: frozenset({State.IN_TRANSACTION}),
    State.FATAL_ERROR: frozenset(State),
}
"""The states from which each state may be reached."""


def misplaced(state: State, call: str) -> TransactionStateError:
    return TransactionStateError(f"{call} is not allowed: the producer is {state.value}")


_FEATURE: Final = "transaction.version"
_KIP_890_SINCE: Final = 2

EPOCH_BUMP_SINCE: Final = 3
"""First version of InitProducerId that takes an id and epoch and returns the next (KIP-360)."""


class TransactionVersion:
    """Whether the present transaction follows version 2 of KIP-890, by the cluster's feature."""

    def __init__(self, feature_level: Callable[[str], int], *, is_transactional: bool) -> None:
        """`feature_level` returns the cluster's level of a feature."""
        self._feature_level = feature_level
        self._is_transactional = is_transactional
        self.is_v2 = False
        """Whether brokers add the partitions, and the end of a transaction brings a new epoch."""
        self.gives_epochs = False
        """Whether the coordinator gives a new epoch when it is asked for one."""

    def refresh(self) -> bool:
        """Take what the cluster has now, between transactions; returns whether that is newer."""
        level = self._feature_level(_FEATURE) if self._is_transactional else 0
        was_v2, self.is_v2 = self.is_v2, level >= _KIP_890_SINCE
        return self.is_v2 and not was_v2

    @property
    def level(self) -> int:
        """The feature's level that the present transaction began with."""
        return _KIP_890_SINCE if self.is_v2 else 0

    def note_coordinator(self, *, init_producer_id_version: int) -> None:
        """Note the highest InitProducerId version of the connected transaction coordinator."""
        self.gives_epochs = init_producer_id_version >= EPOCH_BUMP_SINCE

    @property
    def asks_for_epochs(self) -> bool:
        """Whether a new epoch after a failure has to be asked for, and is given."""
        return self.gives_epochs and not self.is_v2

    @property
    def can_go_on(self) -> bool:
        """Whether there is a new epoch after an abort, in which sequence numbers restart."""
        return self.is_v2 or self.gives_epochs

    def highest(self, key: ApiKey) -> int | None:
        """The highest version that a request of this API may have; None for any."""
        return None if self.is_v2 else BEFORE_KIP_890[key]


ADD_PARTITIONS_PAUSE_S: Final = 0.02
"""Longest pause before the first AddPartitionsToTxn is retried, as in Kafka."""

_TIMEOUT_MS_MAX = 2**31 - 1


class TransactionFlow:
    """The state, the requests, and the partitions in the transaction."""

    def __init__(
        self, config: ProducerConfig, backoff: Backoff, feature_level: Callable[[str], int]
    ) -> None:
        """`feature_level` returns the cluster's level of a feature."""
        self.transactional_id = transactional_id = config.transactional_id
        self._id = transactional_id or ""
        # As Kafka's client asks: without transactions nothing expires.
        self._timeout_ms = config.transaction_timeout_ms if transactional_id else _TIMEOUT_MS_MAX
        self.sequences = Sequences(is_transactional=transactional_id is not None)
        self.queue = RequestQueue(backoff, transactional_id=self._id)
        self.state = State.UNINITIALIZED
        self.error: Exception | None = None
        """Why the transaction or the producer failed."""
        self.new: set[TopicPartition] = set()
        """Partitions with records for which no AddPartitionsToTxn was made yet."""
        self.adding: set[TopicPartition] = set()
        """Partitions for which AddPartitionsToTxn is waiting or in flight."""
        self.added: set[TopicPartition] = set()
        """Partitions that are in the transaction."""
        self.version = TransactionVersion(
            feature_level, is_transactional=transactional_id is not None
        )
        self.needs_bump = False
        """Whether the sequence numbers need a new epoch to continue."""
        self.init_failures = 0
        """Consecutive refusals of InitProducerId."""
        self.is_started = False
        """Whether partitions or offsets were added at the coordinator, so that EndTxn is needed."""

    def next_request(self, now: float, *, has_incomplete: bool) -> TransactionRequest | None:
        """The request to send now, or None; `answered` or `requeue` must follow.

        It goes to `request.node`, or to any node if `request.coordinator` is None, in at least
        version `request.first_version`. `has_incomplete` says that batches have no outcome yet;
        EndTxn waits for them.
        """
        # InitProducerId was refused with an abortable error: there is no transaction to abort, so
        # `init_transactions` may be called again, and other producers ask again by themselves.
        if self.state is State.ABORTABLE_ERROR and self.init_failures:
            self.move(State.UNINITIALIZED)
        if self.queue.in_flight is not None:
            return None
        self._ask_for_partitions()
        request = self.queue.first()
        if request is not None and request.priority is Priority.END_TXN:
            if has_incomplete:
                return None
            # The coordinator knows nothing of a transaction without partitions and offsets, and
            # would answer INVALID_TXN_STATE.
            if not self.is_started:
                self.queue.remove(request)
                self._ended(request.pending)
        return self.queue.take(now)

    def note_partition(self, partition: TopicPartition) -> None:
        """Add the partition of an appended record to the transaction."""
        # In version 2 the leader of the partition adds it, by the first Produce (KIP-890).
        if self.version.is_v2:
            self.added.add(partition)
            self.is_started = True
        elif not (partition in self.added or partition in self.adding):
            self.new.add(partition)

    def answered(
        self, request: TransactionRequest, answer: Message | Exception, now: float
    ) -> None:
        """Handle the answer to a request, or the error that came instead."""
        if self.queue.in_flight is not request:
            return
        self.queue.in_flight = None
        # A commit whose answer is lost may have been carried out. If the producer fails before it
        # gets another answer, the outcome is unknown, and must not be reported as an abort.
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
            # The markers of the previous transaction are written within milliseconds, so a pause of
            # retry.backoff.ms would make short transactions slow (KAFKA-5482).
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
        # Without a new epoch (InitProducerId before v3), numbers could not restart after the abort.
        can_abort = verdict is not Verdict.ABORT_AND_BUMP or self.version.can_go_on
        is_end_of_abort = request.key is ApiKey.END_TXN and self.state is State.ABORTING
        is_fatal = verdict is Verdict.FATAL or not can_abort or is_end_of_abort
        error = error_of(
            request.key,
            verdict,
            codes,
            is_fatal=is_fatal,
            commit_timeout_ms=self._timeout_ms if request.is_commit else None,
        )
        if is_fatal:
            self.fail(error, request)
            return
        # The abort itself needs the coordinator, and cannot be aborted once more.
        if self.state is State.ABORTING and request.key is ApiKey.FIND_COORDINATOR:
            self._retry(request, now, is_relocated=False)
            return
        if verdict is Verdict.ABORT_AND_BUMP:
            self.needs_bump |= self.version.asks_for_epochs
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
        """Queue a request again; if the transaction has failed, only coordinator look-ups."""
        if is_relocated:
            self.queue.forget_coordinator(request)
        if self.state is State.ABORTABLE_ERROR and request.key is not ApiKey.FIND_COORDINATOR:
            request.pending.finish(self.error)
            return
        self.queue.retry(request, now, limit_s=limit_s)

    def ask_for_id(
        self, pending: PendingOperation, *, is_bump: bool = False, ready_at: float = 0.0
    ) -> None:
        """Queue InitProducerId, for an id and epoch, or (`is_bump`) for the id's next epoch."""

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

    def _identified(self, answer: InitProducerIdResponse, pending: PendingOperation) -> None:
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            raise BrokerRefusedError(
                f"InitProducerId gave the id {answer.producer_id}, epoch {answer.producer_epoch}"
            )
        # A coordinator gives an epoch only after it has ended what was open, so numbers restart.
        # Without transactions, batches in flight keep the id and numbers that they have.
        if self.transactional_id:
            self.sequences.clear()
        self.sequences.become(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        self.init_failures = 0
        self.version.refresh()
        self.move(State.READY)
        pending.finish()

    def _ask_for_partitions(self) -> None:
        # Partitions that get records while a request waits go with it: `make` runs when it is sent.
        self.adding |= self.new
        if self.new and not self.queue.has(ApiKey.ADD_PARTITIONS_TO_TXN):
            self.queue.add(
                TransactionRequest(
                    key=ApiKey.ADD_PARTITIONS_TO_TXN,
                    priority=Priority.ADD_PARTITIONS_OR_OFFSETS,
                    pending=PendingOperation(),
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
        # A missing partition would get no marker: its records stay invisible to read_committed.
        if added != self.adding:
            raise BrokerRefusedError("AddPartitionsToTxn was answered for other partitions")
        self.added |= added
        self.adding.clear()
        self.is_started = True

    def ask_for_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> PendingOperation:
        """Queue TxnOffsetCommit with the offsets; before KIP-890, AddOffsetsToTxn precedes it."""
        pending = PendingOperation()
        if self.version.is_v2:
            self._offsets_added(offsets, group, pending)
            return pending
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
        pending: PendingOperation,
    ) -> None:
        self.is_started = True
        # The transaction may have failed while AddOffsetsToTxn was in flight.
        if self.state is not State.IN_TRANSACTION and self.state is not State.COMMITTING:
            pending.finish(self.error or TransactionAbortedError("the transaction was aborted"))
            return

        def committed(answer: TxnOffsetCommitResponse) -> None:
            found = {
                TopicPartition(topic.name, each.partition_index)
                for topic in answer.topics
                for each in topic.partitions
            }
            if found != set(offsets):
                raise BrokerRefusedError("TxnOffsetCommit was answered for other partitions")
            pending.finish()

        self.queue.add(
            TransactionRequest(
                key=ApiKey.TXN_OFFSET_COMMIT,
                priority=Priority.ADD_PARTITIONS_OR_OFFSETS,
                coordinator=CoordinatorKeyType.GROUP,
                group_id=group.group_id,
                first_version=GROUP_MEMBER_SINCE if group.names_member else 0,
                pending=pending,
                version_max=self.version.highest(ApiKey.TXN_OFFSET_COMMIT),
                make=lambda: offset_commit(self._id, self.sequences.producer, offsets, group=group),
                accept=committed,
            )
        )

    def start_abort(self, pending: PendingOperation) -> None:
        """Abort the transaction, and drop TxnOffsetCommit requests that were not sent yet."""
        self.move(State.ABORTING)
        self.new.clear()
        aborted = TransactionAbortedError("the transaction was aborted")
        self.queue.drop(aborted, lambda request: bool(request.group_id))
        self.ask_for_end(pending, is_commit=False)

    def abort_reason(self) -> Exception:
        return self.error or TransactionAbortedError("not sent: its transaction was aborted")

    def ask_for_end(self, pending: PendingOperation, *, is_commit: bool) -> None:
        """Queue EndTxn; after it, a new epoch is requested if one is needed."""
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
                version_max=self.version.highest(ApiKey.END_TXN),
                accept=lambda answer: self._ended(pending, answer),
                is_commit=is_commit,
            )
        )

    def _ended(self, pending: PendingOperation, answer: EndTxnResponse | None = None) -> None:
        """Note that the transaction has ended, or that it was empty and needs no EndTxn."""
        # Since v5 (KIP-890) a broker gives the id and epoch of the next transaction.
        if answer is not None and answer.producer_id >= 0 and answer.producer_epoch >= 0:
            self.sequences.clear()
            self.sequences.become(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        needs_bump, self.needs_bump = self.needs_bump, False
        if self.version.refresh() and self.version.gives_epochs:
            # The cluster has switched to version 2. Late records of this transaction would be taken
            # for those of the next one, which needs no AddPartitionsToTxn, if it had no new epoch.
            needs_bump = True
        self.is_started = False
        self.new.clear()
        self.adding.clear()
        self.added.clear()
        if needs_bump:
            is_commit = self.state is State.COMMITTING
            self.move(State.INITIALIZING)
            self.ask_for_id(EpochAfterCommit(pending) if is_commit else pending, is_bump=True)
        else:
            self.move(State.READY)
            pending.finish()

    def move(self, target: State) -> None:
        """Change the state; raises TransactionStateError if that is not allowed."""
        if self.state not in REACHED_FROM[target]:
            raise misplaced(self.state, f"to be {target.value}")
        self.state = target
        self.error = None

    def to_abortable(self, error: Exception) -> None:
        """Note an error after which the transaction must be aborted; no effect in an abort."""
        # The first error is the cause; those that follow from it would hide it.
        if self.state in {State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}:
            return
        if self.state not in REACHED_FROM[State.ABORTABLE_ERROR]:
            self.fail(misplaced(self.state, f"outside of a transaction: {error}"))
            return
        self.state, self.error = State.ABORTABLE_ERROR, error
        # Look-ups continue, since the abort needs the coordinator too.
        self.queue.drop(error, lambda request: request.key is not ApiKey.FIND_COORDINATOR)

    def fail(self, error: Exception, request: TransactionRequest | None = None) -> None:
        """Note a fatal error: all requests fail, and the producer can only be closed."""
        self.state, self.error = State.FATAL_ERROR, error
        request = request or self.queue.in_flight
        if request is not None:
            request.pending.is_in_doubt |= request.is_sent and request.is_commit
            request.pending.finish(error)
        self.queue.drop(error)

    def fail_of_unknown_outcome(self) -> None:
        """Handle a batch of unknown outcome: its partition needs a new epoch, or all fails."""
        # The coordinator may write the commit marker before or after the lost batch arrives, so the
        # transaction must not be committed.
        message = "a batch was sent and never acknowledged, so sequence numbers need a new epoch"
        if self.version.can_go_on:
            self.needs_bump |= self.version.asks_for_epochs
            self.to_abortable(TransactionAbortableError(f"{message}: abort the transaction"))
        else:
            self.fail(
                BrokerRefusedError(
                    f"{message}, and the coordinator is too old to give one: that needs "
                    f"InitProducerId v{EPOCH_BUMP_SINCE}"
                )
            )
