"""The state machine of one partition of `__transaction_state`.

A request is decided on the state that all earlier ones have left, committed or not, and its reply
waits for its own records and for those. So there is no pending transition as in Kafka, and
CONCURRENT_TRANSACTIONS is left for transactions whose end is prepared and not complete: there Kafka
has the completion pending all the time.

Only records change a transaction. What a restart forgets: the epoch before the last change,
deadlines, and the tasks that write markers, which begin again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from tailrace.coordinator.deadlines import Timers
from tailrace.coordinator.machine import CoordinatorRecord, Decision, Origin, Propose
from tailrace.coordinator.statistics import TransactionCounts
from tailrace.coordinator.transactions.markers import Completions, MarkerWriter
from tailrace.coordinator.transactions.records import (
    stored_transaction,
    transaction_record,
    transaction_tombstone,
)
from tailrace.coordinator.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerReply,
    plan_add,
    plan_end,
    plan_init,
    verify,
)
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.coordinator.transactions.state import (
    IDLE,
    Transaction,
    TransactionStatus,
    aborted_by_coordinator,
    completed,
)
from tailrace.errors import TailraceError
from tailrace.model import LeaderEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.records import TransactionLogKey, TransactionLogValue
from tailrace.runtime.background import BackgroundTasks
from tailrace.values import replace

ReplyT = TypeVar("ReplyT")

LOOKED_AT_MAX: Final = 5_000
"""Ids that are looked at in one turn of the event loop."""
BATCH_BYTES_MAX: Final = 500_000
"""Size of one batch of tombstones, about half of what `max.message.bytes` is by default."""
_TOMBSTONE_BYTES: Final = 32
"""Size of a tombstone without its id, at most."""

logger = logging.getLogger(__name__)


class TransactionMachine:
    """Transactions by id; `coordinator_epoch` is the leader epoch of the partition."""

    def __init__(
        self,
        settings: TransactionSettings,
        writer: MarkerWriter,
        *,
        coordinator_epoch: LeaderEpoch,
        new_producer_id: Callable[[], Awaitable[ProducerId]],
        counts: TransactionCounts | None = None,
    ) -> None:
        """`new_producer_id` returns one that no producer has had, or raises a TailraceError.

        `counts` is shared by the partitions of a broker; None: it is this partition's own.
        """
        self._new_producer_id = new_producer_id
        self._obtaining = BackgroundTasks()
        """Aborts that wait for a producer id."""
        self._counts = TransactionCounts() if counts is None else counts
        self._settings = settings
        self._transactions: dict[str, Transaction] = {}
        self._open: set[str] = set()
        """Ids whose transaction is ongoing, so that the search for old ones is short."""
        self._decided: Transaction | None = None
        """The newest decision. The replay of its record, in the same turn of the event loop, takes
        from it what records do not have."""
        self._completions = Completions(
            writer, self._complete, coordinator_epoch=coordinator_epoch, counts=self._counts
        )
        self._timers = Timers()
        self._propose: Propose | None = None

    def init_producer_id(
        self, request: InitProducerId, now_ms: int, *, new_producer_id: ProducerId | None = None
    ) -> Decision[ProducerReply | None]:
        """Give a client a producer id and epoch; the reply None: ask with a `new_producer_id`."""
        current = self._transactions.get(request.transactional_id)
        planned = plan_init(current, request, now_ms=now_ms, new_producer_id=new_producer_id)
        if planned is None:
            return Decision(reply=None)
        if isinstance(planned, ErrorCode):
            return Decision(reply=ProducerReply(planned))
        if planned.is_prepared:
            # The open transaction is aborted first: the client asks again until that is complete.
            return self._change(planned, ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS))
        return self._change(planned, ProducerReply(ErrorCode.NONE, planned.producer))

    def add_partitions(self, request: AddPartitions, now_ms: int) -> Decision[ErrorCode]:
        """Add partitions to a transaction, and begin it if none is open; all or none."""
        current = self._transactions.get(request.transactional_id)
        planned = plan_add(current, request, now_ms=now_ms)
        if isinstance(planned, ErrorCode):
            return Decision(reply=planned)
        return self._change(planned, ErrorCode.NONE)

    def verify_partitions(
        self, request: AddPartitions
    ) -> Decision[dict[TopicPartition, ErrorCode]]:
        return Decision(reply=verify(self._transactions.get(request.transactional_id), request))

    def end(
        self, request: EndTransaction, now_ms: int, *, new_producer_id: ProducerId | None = None
    ) -> Decision[ProducerReply | None]:
        """Decide the end of a transaction; the reply None: ask with a `new_producer_id`.

        The reply comes before the markers; `wait_for_markers` waits for these a short time.
        """
        current = self._transactions.get(request.transactional_id)
        planned = plan_end(current, request, now_ms=now_ms, new_producer_id=new_producer_id)
        if planned is None:
            return Decision(reply=None)
        if isinstance(planned, ProducerReply):
            return Decision(reply=planned)
        return self._change(planned, ProducerReply(ErrorCode.NONE, planned.next_producer))

    async def wait_for_markers(self, transactional_id: str) -> None:
        await self._completions.wait_for_markers(transactional_id)

    def describe(self, transactional_id: str) -> Decision[Transaction | None]:
        return Decision(reply=self._transactions.get(transactional_id))

    def __iter__(self) -> Iterator[Transaction]:
        """All transactional ids, each with its newest transaction."""
        return iter(self._transactions.values())

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:  # noqa: ARG002 - no record depends on its place
        """Change the state by one record; a prepared end is carried out if the shard is active."""
        key, value = record
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self._open.discard(transactional_id)
        if value is None:
            self._transactions.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = stored_transaction(transactional_id, value)
        decided = self._decided
        # The record lacks the last epoch. Decide and replay are one turn, so this is its decision.
        if decided is not None and decided.transactional_id == transactional_id:
            transaction = replace(transaction, last_epoch=decided.last_epoch)
        self._transactions[transactional_id] = transaction
        if transaction.status is TransactionStatus.ONGOING:
            self._open.add(transactional_id)
        # During a load `start` does it, for those whose completion does not follow in the log.
        if transaction.is_prepared and self._propose is not None:
            self._completions.begin(transaction, self._propose)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Nothing: records of this topic are in no transaction."""

    def start(self, propose: Propose) -> None:
        """Set deadlines, and carry out the ends that were prepared and not complete."""
        self._propose = propose
        for transaction in self._transactions.values():
            if transaction.is_prepared:
                self._completions.begin(transaction, propose)
        self._every(self._settings.abort_interval_ms, self._abort_timed_out)
        self._every(self._settings.expiry_interval_ms, self._remove_expired)

    def stop(self, error: Exception) -> None:  # noqa: ARG002 - no reply is parked
        """Leave everything to the next leader."""
        self._timers.clear()
        self._completions.stop()
        self._obtaining.cancel()

    def _change(self, planned: Transaction, reply: ReplyT) -> Decision[ReplyT]:
        # The state changes when the record is replayed; the reply leaves when it is committed.
        self._decided = planned
        return Decision(reply=reply, records=(transaction_record(planned),))

    def _complete(self, prepared: Transaction, now_ms: int) -> Decision[None]:
        """The end of a transaction whose markers are all written, unless it is in the log."""
        current = self._transactions.get(prepared.transactional_id)
        # The completion may be in the log although its append was answered with an error.
        if current != prepared:
            return Decision(reply=None)
        return self._change(completed(prepared, now_ms), None)

    def _every(self, interval_ms: int, search: Callable[[int], Decision[None]]) -> None:
        def expire() -> None:
            assert self._propose is not None
            self._propose(search)
            self._every(interval_ms, search)

        self._timers.set(search, interval_ms, expire)

    def _abort_timed_out(self, now_ms: int) -> Decision[None]:
        """Propose the abort of each transaction that is open for too long."""
        assert self._propose is not None
        # Each abort is a decision of its own: many that end together must not hold up the loop.
        for transactional_id in self._open:
            if _is_timed_out(self._transactions[transactional_id], now_ms):
                self._propose(partial(self._abort, transactional_id))
        return Decision(reply=None)

    def _abort(
        self, transactional_id: str, now_ms: int, *, new_producer_id: ProducerId | None = None
    ) -> Decision[None]:
        current = self._transactions.get(transactional_id)
        if current is None or not _is_timed_out(current, now_ms):
            return Decision(reply=None)
        planned = aborted_by_coordinator(current, now_ms, new_producer_id=new_producer_id)
        if planned is None:
            # Its epochs are used up, and a new producer id may have to come from the device.
            self._obtaining.start(self._abort_with_new_producer_id(transactional_id))
            return Decision(reply=None)
        decision = self._change(planned, None)
        return decision._replace(undo=self._counts.timed_out.add(1))

    async def _abort_with_new_producer_id(self, transactional_id: str) -> None:
        try:
            producer_id = await self._new_producer_id()
        except TailraceError as error:
            logger.warning(
                "transaction_abort_delayed transactional_id=%s reason=%s; the next search for "
                "transactions that are open for too long tries again",
                transactional_id,
                error,
            )
            return
        assert self._propose is not None
        self._propose(partial(self._abort, transactional_id, new_producer_id=producer_id))

    def _remove_expired(self, now_ms: int) -> Decision[None]:
        """Look at all ids there are now, some thousands at a time."""
        return self._remove_expired_of(iter(tuple(self._transactions)), now_ms)

    def _remove_expired_of(self, ids: Iterator[str], now_ms: int) -> Decision[None]:
        # Some thousand ids in a turn, and tombstones that fit into one batch (decision 34).
        expired: list[str] = []
        size = looked_at = 0
        for transactional_id in islice(ids, LOOKED_AT_MAX):
            looked_at += 1
            current = self._transactions.get(transactional_id)
            if current is None or current.status not in IDLE:
                continue
            if current.updated_ms + self._settings.id_expiration_ms <= now_ms:
                expired.append(transactional_id)
                size += len(transactional_id.encode()) + _TOMBSTONE_BYTES
                # An id that does not fit into a batch beside others is the last of its batch.
                if size > BATCH_BYTES_MAX:
                    break
        if size > BATCH_BYTES_MAX or looked_at == LOOKED_AT_MAX:
            assert self._propose is not None
            self._propose(partial(self._remove_expired_of, ids))
        return Decision(reply=None, records=tuple(map(transaction_tombstone, expired)))


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether the coordinator aborts it, because its client has not ended it in time."""
    return (
        transaction.status is TransactionStatus.ONGOING
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )
