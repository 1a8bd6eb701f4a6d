"""`TransactionCalls`: the transactions of both producers, as a `with` block or by calls.

    READY ── transaction() ── block ──┬── commit ── READY
                                      ├── exception: abort ── READY, and the exception is raised
                                      └── commit not answered in time: outcome unknown
    outcome unknown ── finish_transaction() ──┬── returns: it was committed
                                              ├── not committed: abort ── READY, and an error
                                              └── still unknown

Not here: the requests to the coordinator (`identity`), and the blocks (`producer`, `aio`).

Invariant: no transaction begins before the caller has got the outcome of the previous commit.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from tailrace.client.drive.operation import operation
from tailrace.client.drive.steps import Steps, Until
from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.calls import ProducerCalls
from tailrace.client.producer.errors import (
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
)
from tailrace.client.producer.identity import COMMIT, State, TransactionManager
from tailrace.client.producer.identity.requests import PendingOperation
from tailrace.client.producer.intake.records import plain_group, plain_offsets
from tailrace.client.producer.waits import last_failure
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition

INIT = "init_transactions"
ABORT = "abort_transaction"
OFFSETS = "send_offsets_to_transaction"

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class TransactionCalls(ProducerCalls):
    """The calls of a producer that have to do with transactions."""

    @operation
    def init_transactions(self) -> Steps[None]:
        """Get an id and epoch from the coordinator; does nothing if the producer has them.

        Earlier producers with the same `transactional.id` are fenced, and their open transaction
        is aborted. `transaction` and `begin_transaction` do this by themselves.

        Raises:
            TransactionTimeoutError: it took longer than `max.block.ms`; call it again.
            TransactionStateError: there is no `transactional.id`.
        """
        return self._init()

    @operation
    def begin_transaction(self) -> Steps[None]:
        """Begin a transaction, for which `commit_transaction` or `abort_transaction` must follow.

        These three are for programs in which a `with` block does not fit. Nothing is aborted by
        itself: after a TransactionAbortableError call `abort_transaction`, begin again, and do the
        transaction's work again.

        Raises:
            TransactionAbortableError: the previous transaction has failed and is not aborted.
            TransactionStateError: a transaction is open already, or there is no `transactional.id`.
            TransactionOutcomeUnknownError: the previous commit was not answered in time.
        """
        # Kafka's client asks its users to call init_transactions first.
        yield from self._init()
        self._manager.begin()

    @operation
    def commit_transaction(self) -> Steps[None]:
        """Send what waits, commit the transaction, and wait for that.

        Raises:
            TransactionAbortableError: a record or the commit has failed; abort the transaction.
            TransactionOutcomeUnknownError: it was not answered within `max.block.ms`; call this
                again, which commits nothing else.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: no transaction is open.
        """
        if self._queued is not None:
            yield Until(self._queued.served(), math.inf)
        yield from self._take(COMMIT, self._commit)

    @operation
    def abort_transaction(self) -> Steps[None]:
        """Abort the transaction: none of its records becomes visible to readers of committed ones.

        Records that are not sent yet get a TransactionAbortedError.

        Raises:
            TransactionTimeoutError: it took longer than `max.block.ms`; call it again.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: no transaction is open.
        """
        # Records that are queued still would get into the next transaction.
        self._end_queued(TransactionAbortedError("not sent: its transaction was aborted"))
        yield from self._take(ABORT, self._manager.abort)

    @operation
    def prepare_transaction(self) -> Steps[PreparedTransaction | None]:
        """Send what waits, and give the open transaction away, for somebody else to end it.

        Waits until each record has its outcome. `Admin.end_transactions` commits or aborts what
        this returns, also from another process, until `transaction.timeout.ms` has passed since the
        transaction began. The producer can only be closed then, which leaves the transaction open.
        The name is that of KIP-939, but no broker with two-phase commit is needed: a transaction
        can expire. Returns None if it has neither records nor offsets: there is nothing to end.

        Raises:
            TransactionAbortableError: a record has failed; abort the transaction.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: no transaction is open.
        """
        engine = self._engine
        self._manager.check("prepare_transaction")
        if self._queued is not None:
            yield Until(self._queued.served(), math.inf)
        # Without a deadline: each batch ends after delivery.timeout.ms at the latest.
        with engine.flushing():
            yield Until(lambda: not engine.accumulator.incomplete, math.inf)
        return self._manager.prepare()

    @operation
    def finish_transaction(self) -> Steps[None]:
        """Wait again for a commit whose outcome is not known, for `max.block.ms` at most.

        Call it after a TransactionOutcomeUnknownError. When it returns, the transaction is
        committed, and its work is done.

            try:
                with producer.transaction():
                    ...
            except TransactionOutcomeUnknownError:
                producer.finish_transaction()

        Raises:
            TransactionOutcomeUnknownError: it is still not known; call again, unless `is_final`.
            TransactionAbortableError: it was not committed, and is aborted; do its work again.
            TransactionTimeoutError: it was not committed, and its abort takes longer than
                `max.block.ms`; do its work again.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: there is no commit of unknown outcome.
        """
        pending = self._unknown_commit()
        if pending is None:
            raise TransactionStateError("finish_transaction: there is no commit of unknown outcome")
        if self._engine.closed_error is not None and not pending.is_done:
            raise TransactionOutcomeUnknownError(
                "the producer ended before the coordinator answered the commit, so the transaction "
                "may be committed; read the topic before you do its work again: "
                f"{self._engine.closed_error}",
                is_final=True,
            )
        try:
            yield from self._take(COMMIT, lambda: pending)
        except GeneratorExit:
            raise  # A generator that is closed may not yield.
        except BaseException:
            # It was not committed. An abort makes the producer ready for the next transaction.
            yield from self._abort_open()
            raise

    @operation
    def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group: str | ConsumerGroupMetadata,
    ) -> Steps[None]:
        """Commit a consumer group's offsets together with the open transaction, and wait for it.

        `offsets` are those of the next records to consume. With the group's whole metadata instead
        of its name, an old member of the group is refused (KIP-447).

        Raises:
            TransactionAbortableError: the group's coordinator refuses them.
            TransactionStateError: no transaction is open.
            TransactionTimeoutError: it took longer than `max.block.ms`.
        """
        committed, consumer = plain_offsets(offsets), plain_group(group)
        manager = self._manager
        if committed:
            yield from self._take(OFFSETS, lambda: manager.send_offsets(committed, consumer))

    # -- steps --------------------------------------------------------------------------------

    def _init(self) -> Steps[None]:
        yield from self._settle_earlier()
        if self._manager.state is State.UNINITIALIZED:
            yield from self._take(INIT, self._manager.init_transactions)

    def _commit(self) -> PendingOperation:
        pending = self._manager.commit()
        # Other tasks may have queued records after the block ended. They must fail now, or they
        # would get into the next transaction.
        self._end_queued(TransactionStateError("not sent: its transaction is being committed"))
        return pending

    def _abort_open(self) -> Steps[None]:
        """Abort the transaction, unless its commit or abort was requested."""
        self._end_queued(TransactionAbortedError("not sent: its transaction was aborted"))
        if self._can_abort():
            yield from self._take(ABORT, self._manager.abort)

    def _settle_earlier(self) -> Steps[None]:
        """Wait for an earlier step that timed out, and abort its transaction."""
        # A commit of unknown outcome is the caller's to finish: if the work of its transaction were
        # done again, it could be in the log twice.
        if self._unknown_commit() is not None:
            raise TransactionOutcomeUnknownError(
                "the outcome of the previous transaction is not known: call finish_transaction() "
                "first",
                is_final=False,
            )
        unsettled = self._manager.unsettled
        if unsettled is None:
            return
        step, pending = unsettled
        with suppress(TailraceError):
            yield from self._take(step, lambda: pending)
        if not pending.is_done:
            raise self._no_end(step)
        if self._can_abort():
            yield from self._take(ABORT, self._manager.abort)

    def _take(self, step: str, start: Callable[[], PendingOperation]) -> Steps[None]:
        engine = self._engine
        # EndTxn waits until no batch is incomplete, so none may linger.
        with engine.flushing():
            try:
                pending = start()
            except Exception:
                raise
            except BaseException as error:
                # Ctrl-C: the request may be queued or not.
                self._driver.give_up(error)
                raise
            if not pending.is_done and not (
                yield Until(lambda: pending.is_done, self._max_block())
            ):
                raise self._no_end(step)
        pending.take()

    @property
    def _manager(self) -> TransactionManager:
        """The transaction manager of the producer.

        Raises:
            TransactionStateError: the producer has no `transactional.id`.
        """
        self._engine.check_open()
        found = self._engine.transactions
        if found is None or not found.is_transactional:
            raise TransactionStateError("transactions need the setting transactional.id")
        return found

    def _can_abort(self) -> bool:
        """Return whether a transaction is open, even a failed one, and not being ended."""
        return self._engine.closed_error is None and self._manager.state in {
            State.IN_TRANSACTION,
            State.ABORTABLE_ERROR,
        }

    def _unknown_commit(self) -> PendingOperation | None:
        """The commit whose outcome the caller has not got, if there is one."""
        found = self._engine.transactions
        unsettled = None if found is None else found.unsettled
        return unsettled[1] if unsettled is not None and unsettled[0] == COMMIT else None

    def _no_end(self, step: str) -> Exception:
        reason = last_failure(self._engine) or "the coordinator has not answered"
        limit_ms = self._engine.config.max_block_ms
        why = f"{step} took longer than max.block.ms ({limit_ms} ms): {reason}"
        if step == COMMIT:
            return TransactionOutcomeUnknownError(
                f"{why}; the transaction may be committed: call finish_transaction() to get the "
                "outcome, and do not do its work again before that",
                is_final=False,
            )
        return TransactionTimeoutError(why)
