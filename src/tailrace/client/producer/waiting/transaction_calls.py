"""The calls of a producer's user that have to do with transactions, for threads and event loop.

Not here: how they wait, and what they may do when (`transacting`).
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tailrace.client.group_offsets import ConsumerGroupMetadata
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.waiting.transacting import (
    LoopTransactions,
    Offsets,
    ThreadTransactions,
)


class ThreadTransactionCalls:
    """The transactions of `Producer`."""

    _transactions: ThreadTransactions

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Records sent in the block are visible together, or never.

        Needs `transactional.id`. The end of the block commits the transaction and waits for that;
        an exception in the block aborts it. If the commit fails, the transaction is aborted too,
        and the producer is ready for the next one unless the error is fatal.

        What to do after an error:

        -   RetriableError: nothing was committed; run the block again.
        -   TransactionOutcomeUnknownError: the transaction may be committed. Do not run the block
            again; call `finish_transaction` until it returns or raises something else.
        -   FatalError: close the producer.

        A commit that was interrupted by Ctrl-C or a cancellation has an unknown outcome too; the
        next `transaction` raises that error.

        Raises:
            TransactionAbortableError: the transaction was aborted; do its work again.
            TransactionOutcomeUnknownError: the commit of this transaction, or of the one before it,
                was not answered within `max.block.ms`.
            TransactionTimeoutError: another step took longer than `max.block.ms`.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: a transaction is open already, or there is no `transactional.id`.
        """
        with self._transactions.transaction():
            yield

    def init_transactions(self) -> None:
        """Get an id and epoch from the coordinator; does nothing if the producer has them.

        Earlier producers with the same `transactional.id` are fenced, and their open transaction
        is aborted. `transaction` and `begin_transaction` do this by themselves.

        Raises:
            TransactionTimeoutError: it took longer than `max.block.ms`; call it again.
            TransactionStateError: there is no `transactional.id`.
        """
        self._transactions.init()

    def begin_transaction(self) -> None:
        """Begin a transaction, for which `commit_transaction` or `abort_transaction` must follow.

        These three are for programs in which a `with` block does not fit. Nothing is aborted by
        itself: after a TransactionAbortableError call `abort_transaction`, begin again, and do the
        transaction's work again.

        Raises:
            TransactionAbortableError: the previous transaction has failed and is not aborted.
            TransactionStateError: a transaction is open already, or there is no `transactional.id`.
            TransactionOutcomeUnknownError: the previous commit was not answered in time.
        """
        self._transactions.begin()

    def commit_transaction(self) -> None:
        """Send what waits, commit the transaction, and wait for that.

        Raises:
            TransactionAbortableError: a record or the commit has failed; abort the transaction.
            TransactionOutcomeUnknownError: it was not answered within `max.block.ms`; call this
                again, which commits nothing else.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: no transaction is open.
        """
        self._transactions.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction: none of its records becomes visible to readers of committed ones.

        Records that are not sent yet get a TransactionAbortedError.

        Raises:
            TransactionTimeoutError: it took longer than `max.block.ms`; call it again.
            ProducerFencedError: another producer uses the `transactional.id` now.
            TransactionStateError: no transaction is open.
        """
        self._transactions.abort()

    def prepare_transaction(self) -> PreparedTransaction | None:
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
        return self._transactions.prepare()

    def finish_transaction(self) -> None:
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
        self._transactions.finish()

    def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Commit a consumer group's offsets together with the open transaction, and wait for it.

        `offsets` are those of the next records to consume. With the group's whole metadata instead
        of its name, an old member of the group is refused (KIP-447).

        Raises:
            TransactionAbortableError: the group's coordinator refuses them.
            TransactionStateError: no transaction is open.
            TransactionTimeoutError: it took longer than `max.block.ms`.
        """
        self._transactions.send_offsets(offsets, group)


class LoopTransactionCalls:
    """The transactions of `AsyncProducer`."""

    _transactions: LoopTransactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Records sent in the block are visible together, or never; see `Producer.transaction`."""
        async with self._transactions.transaction():
            yield

    async def init_transactions(self) -> None:
        """Get an id and epoch, if there are none; see `Producer.init_transactions`."""
        await self._transactions.init()

    async def begin_transaction(self) -> None:
        """Begin a transaction without a block; see `Producer.begin_transaction`."""
        await self._transactions.begin()

    async def commit_transaction(self) -> None:
        """Send what waits, and commit; see `Producer.commit_transaction`."""
        await self._transactions.commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction; see `Producer.abort_transaction`."""
        await self._transactions.abort()

    async def finish_transaction(self) -> None:
        """Wait again for a commit of unknown outcome; see `Producer.finish_transaction`."""
        await self._transactions.finish()

    async def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Commit a group's offsets with the transaction; see `Producer`."""
        await self._transactions.send_offsets(offsets, group)
