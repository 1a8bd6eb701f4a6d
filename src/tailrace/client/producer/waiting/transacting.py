"""Transactions of both producers: as a `with` block, or begun and ended by calls.

    READY ── transaction() ── block ──┬── commit ── READY
                                      ├── exception: abort ── READY, and the exception goes on
                                      └── commit not answered in time: outcome unknown
    outcome unknown ── finish_transaction() ──┬── returns: it was committed
                                              ├── not committed: abort ── READY, and an error
                                              └── still unknown

Not here: the requests to the coordinator (`identity`).

Invariant: no transaction begins before the caller has got the outcome of the previous commit.
"""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import (
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
)
from tailrace.client.producer.identity import COMMIT, State, TransactionManager
from tailrace.client.producer.identity.requests import PendingOperation
from tailrace.client.producer.intake.arguments import plain_group, plain_offsets
from tailrace.client.producer.waiting.driver import ThreadDriver
from tailrace.client.producer.waiting.explanations import why_no_end
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition

INIT = "init_transactions"
ABORT = "abort_transaction"
OFFSETS = "send_offsets_to_transaction"

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class _Transactions:
    """The part that does not wait, for threads and event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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
        unsettled = None if found is None else found.operations.unsettled
        return unsettled[1] if unsettled is not None and unsettled[0] == COMMIT else None

    def _commit_to_finish(self) -> PendingOperation:
        """The commit that `finish` waits for.

        Raises:
            TransactionStateError: there is no commit of unknown outcome.
            TransactionOutcomeUnknownError: the producer was closed before the outcome came.
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
        return pending

    def _unsettled(self) -> tuple[str, PendingOperation] | None:
        """The step of an earlier transaction that timed out, if there is one.

        Raises:
            TransactionOutcomeUnknownError: it is the commit, whose outcome the caller must get.
        """
        if self._unknown_commit() is not None:
            raise TransactionOutcomeUnknownError(
                "the outcome of the previous transaction is not known: call finish_transaction() "
                "first",
                is_final=False,
            )
        return self._manager.operations.unsettled

    def _no_end(self, step: str) -> Exception:
        """The error of a step that timed out."""
        why = why_no_end(self._engine, step)
        if step == COMMIT:
            return TransactionOutcomeUnknownError(
                f"{why}; the transaction may be committed: call finish_transaction() to get the "
                "outcome, and do not do its work again before that",
                is_final=False,
            )
        return TransactionTimeoutError(why)


class ThreadTransactions(_Transactions):
    """The transactions of `Producer`."""

    def __init__(self, engine: Engine, driver: ThreadDriver) -> None:
        super().__init__(engine)
        self._driver = driver

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Producer.transaction`."""
        self.begin()
        with self._aborting():
            yield
            self.commit()

    def init(self) -> None:
        """See `Producer.init_transactions`."""
        self._driver.check_wait()
        with self._engine.lock:
            self._settle()
            if self._manager.state is State.UNINITIALIZED:
                self._take(INIT, self._manager.init_transactions)

    def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        self.init()
        with self._engine.lock:
            self._manager.begin()

    def commit(self) -> None:
        """See `Producer.commit_transaction`."""
        self._driver.check_wait()
        with self._engine.lock:
            self._take(COMMIT, self._manager.commit)

    def abort(self) -> None:
        """See `Producer.abort_transaction`."""
        self._driver.check_wait()
        with self._engine.lock:
            self._take(ABORT, self._manager.abort)

    def prepare(self) -> PreparedTransaction | None:
        """See `Producer.prepare_transaction`."""
        self._driver.check_wait()
        engine = self._engine
        with engine.lock:
            self._manager.operations.check("prepare_transaction")
            with engine.flushing():
                self._driver.until(lambda: not engine.accumulator.incomplete, math.inf)
            return self._manager.operations.prepare()

    def finish(self) -> None:
        """See `Producer.finish_transaction`."""
        self._driver.check_wait()
        pending = self._commit_to_finish()
        with self._aborting(), self._engine.lock:
            self._take(COMMIT, lambda: pending)

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        committed, consumer = plain_offsets(offsets), plain_group(group)
        self._driver.check_wait()
        with self._engine.lock:
            manager = self._manager
            if committed:
                self._take(OFFSETS, lambda: manager.send_offsets(committed, consumer))

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Abort the transaction if the block fails before its commit or abort was requested."""
        try:
            yield
        except BaseException:
            with self._engine.lock:
                if self._can_abort():
                    self._take(ABORT, self._manager.abort)
            raise

    def _settle(self) -> None:
        """Wait for an earlier step that timed out, and abort its transaction."""
        unsettled = self._unsettled()
        if unsettled is None:
            return
        step, pending = unsettled
        with suppress(TailraceError):
            self._take(step, lambda: pending)
        if not pending.is_done:
            raise self._no_end(step)
        if self._can_abort():
            self._take(ABORT, self._manager.abort)

    def _take(self, step: str, start: Callable[[], PendingOperation]) -> None:
        """Start a step and wait for its outcome, under the lock."""
        engine = self._engine
        with engine.flushing():
            try:
                pending = start()
            except Exception:
                raise
            except BaseException as error:
                # Ctrl-C: the request may be queued or not.
                self._driver.give_up(error)
                raise
            deadline = time.monotonic() + engine.config.max_block_ms / 1000
            if not pending.is_done and not self._driver.until(lambda: pending.is_done, deadline):
                raise self._no_end(step)
        pending.take()


class LoopTransactions(_Transactions):
    """The transactions of `AsyncProducer`."""

    def __init__(
        self,
        engine: Engine,
        *,
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        serve_lines: Callable[[], Awaitable[None]],
        end_lines: Callable[[Exception], None],
    ) -> None:
        super().__init__(engine)
        self._until = until
        self._serve_lines = serve_lines
        self._end_lines = end_lines

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """See `Producer.transaction`."""
        await self.begin()
        async with self._aborting():
            yield
            await self.commit()

    async def init(self) -> None:
        """See `Producer.init_transactions`."""
        await self._settle()
        if self._manager.state is State.UNINITIALIZED:
            await self._take(INIT, self._manager.init_transactions)

    async def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        await self.init()
        self._manager.begin()

    async def commit(self) -> None:
        """See `Producer.commit_transaction`."""
        await self._serve_lines()
        await self._take(COMMIT, self._commit)

    async def abort(self) -> None:
        """See `Producer.abort_transaction`."""
        self._end_lines(TransactionAbortedError("not sent: its transaction was aborted"))
        await self._take(ABORT, self._manager.abort)

    def _commit(self) -> PendingOperation:
        pending = self._manager.commit()
        # Other tasks may have queued records after the block ended. They must fail now, or they
        # would get into the next transaction.
        self._end_lines(TransactionStateError("not sent: its transaction is being committed"))
        return pending

    async def finish(self) -> None:
        """See `Producer.finish_transaction`."""
        pending = self._commit_to_finish()
        async with self._aborting():
            await self._take(COMMIT, lambda: pending)

    async def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        committed, consumer = plain_offsets(offsets), plain_group(group)
        manager = self._manager
        if committed:
            await self._take(OFFSETS, lambda: manager.send_offsets(committed, consumer))

    @asynccontextmanager
    async def _aborting(self) -> AsyncIterator[None]:
        """Abort the transaction if the block fails before its commit or abort was requested."""
        try:
            yield
        except BaseException:
            self._end_lines(TransactionAbortedError("not sent: its transaction was aborted"))
            if self._can_abort():
                await self._take(ABORT, self._manager.abort)
            raise

    async def _settle(self) -> None:
        """Wait for an earlier step that timed out, and abort its transaction."""
        unsettled = self._unsettled()
        if unsettled is None:
            return
        step, pending = unsettled
        with suppress(TailraceError):
            await self._take(step, lambda: pending)
        if not pending.is_done:
            raise self._no_end(step)
        if self._can_abort():
            await self._take(ABORT, self._manager.abort)

    async def _take(self, step: str, start: Callable[[], PendingOperation]) -> None:
        """Start a step and wait for its outcome."""
        import asyncio  # A producer for threads does without it: it takes 20 ms.

        engine = self._engine
        with engine.flushing():
            pending = start()
            try:
                async with asyncio.timeout(engine.config.max_block_ms / 1000):
                    await self._until(lambda: pending.is_done)
            except TimeoutError:
                raise self._no_end(step) from None
        pending.take()
