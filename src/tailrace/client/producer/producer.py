"""`Producer`: sends records from ordinary threads.

with Producer(bootstrap_servers="localhost:9092") as producer:
    receipt = producer.send("flights", b"JFK")
    print(receipt.result().offset)
"""

import atexit
import logging
import os
import random
import time
import weakref
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self, Unpack

from tailrace.client.drive.locks import is_owned
from tailrace.client.drive.operation import BlockingFace
from tailrace.client.drive.steps import Steps, T
from tailrace.client.drive.thread import ThreadDriver
from tailrace.client.interval_call import check_on_metrics
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ClosedProducerError, ReentrantCallError
from tailrace.client.producer.identity import OwnedIdentity
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.metrics import OnMetrics
from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.producer.plugins import (
    BatchHook,
    Plugins,
    ProducerInterceptor,
    ProducerRecord,
    Serializer,
)
from tailrace.client.producer.receipts import Receipt
from tailrace.client.producer.transaction_calls import TransactionCalls
from tailrace.client.producer.waits import memory_granted, topic_known
from tailrace.errors import TailraceError
from tailrace.runtime.polling import PollingNetwork

if TYPE_CHECKING:
    from tailrace.client.keywords import ProducerSettings


class ThreadWaiting:
    """Waits by the producer's driver."""

    def __init__(self, driver: "ThreadDriver") -> None:
        self._driver = driver
        self.engine: Engine

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:
        """Do I/O until the outcome is there; return False after `timeout_s`."""
        engine, driver = self.engine, self._driver
        deadline = inf if timeout_s is None else driver.clock() + timeout_s
        driver.check_not_interrupted()
        with engine.lock:
            if outcome.is_done:
                return True
            engine.flush_batch(outcome)
            # The waiting thread sends by itself: a switch of threads takes longer (decision 14).
            if engine.accumulator.ready:
                driver.move()
            in_time = driver.until(lambda: outcome.is_done, deadline)
            # Nobody works on it any more: another thread has closed the producer meanwhile.
            if driver.is_over:
                engine.fail_outcome(outcome)
            return in_time or outcome.is_done

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Have the own thread call the callback; if the outcome is there, call it here at once."""
        with self.engine.lock:
            if not outcome.is_done:
                outcome.add_callback(index, callback)
                return
        # Without the lock, which user code never holds.
        outcome.call(index, callback)

    def call_back_soon(
        self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback
    ) -> None:
        with self.engine.lock:
            if not self._driver.has_made_calls:
                self._driver.call_soon(partial(outcome.call, index, callback))
                return
        outcome.call(index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Raise TypeError unless the outcome is there: a `Producer` belongs to no event loop."""
        if not outcome.is_done:
            raise TypeError(
                "a receipt of Producer cannot be awaited: call result(), or use AsyncProducer"
            )
        yield from ()

    def batched(self, receipt: Receipt) -> Coroutine[Any, Any, Receipt]:  # noqa: ARG002
        """Always raise TypeError: `send` has waited until the record was in a batch."""
        raise TypeError(
            "send of Producer returns when the record is in a batch: leave batched() out, or use "
            "AsyncProducer"
        )


log = logging.getLogger(__name__)


class Producer(BlockingFace, TransactionCalls):
    """Sends records to a Kafka cluster, from any number of threads.

    With the default settings, each record is written exactly once and in order. `send` returns at
    once, except while the buffer is full or the topic's metadata is missing: then it waits, for
    `max.block.ms` at most. The producer need not be polled.

    Settings have Kafka's names, dotted in a mapping or with underscores as keyword arguments; see
    docs/configuration.md. With an `identity` the producer asks for none, and numbers records as its
    owner says; see docs/producer.md. `on_metrics(metrics, statistics)` is called every
    `statistics.interval.ms` with what the methods of these names return, by the thread that calls
    `on_delivery` (with `AsyncProducer` by the event loop), and not once `close` was called.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
        TypeError: `settings` is no mapping of names to values.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | str | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        hooks: Sequence[BatchHook] = (),
        identity: OwnedIdentity | None = None,
        on_metrics: OnMetrics | None = None,
        **more_settings: "Unpack[ProducerSettings]",
    ) -> None:
        check_on_metrics(on_metrics)
        more: dict[str, object] = {**more_settings}
        if isinstance(partitioner, str):
            more["partitioner"], partitioner = partitioner, None
        config = parse_producer_config(settings, more)
        network = PollingNetwork.open()
        self._driver: ThreadDriver = ThreadDriver(network)
        self._waiting = ThreadWaiting(self._driver)
        try:
            engine = Engine(
                config,
                Plugins(
                    key_serializer=key_serializer,
                    value_serializer=value_serializer,
                    partitioner=partitioner,
                    interceptors=interceptors,
                    hooks=hooks,
                ),
                network=network,
                now_ns=time.time_ns,
                monotonic=time.monotonic,
                chance=random.Random(os.urandom(16)),  # noqa: S311 - spreads load and pauses
                waiting=self._waiting,
                wake=_nothing,
            )
            self._waiting.engine = engine
            self._attach(engine, identity, on_metrics)
            self._driver.start(engine)
        except BaseException:
            network.close()
            raise
        _living.add(self)

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
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            self._run(self._abort_open())
            raise

    def close(self, timeout: float | None = None) -> None:
        """Send records that wait, wait for the outcomes, and end; a second call does nothing.

        Records without an outcome after `timeout` seconds get a `ClosedProducerError`; 0 gives up
        all of them at once, and so does Ctrl-C during the close. If several threads close the
        producer, the shortest timeout counts.

        An open transaction is aborted, so that readers of committed records need not wait for
        `transaction.timeout.ms`; its records that are not sent yet get a `TransactionAbortedError`.
        The close waits `max.block.ms` at most for the end of a transaction. If that is a commit,
        `finish_transaction` returns its outcome, also after the close.

        Then the producer's own thread calls `close` of the interceptors, serializers and
        partitioner that have it; their exceptions are logged.

        Raises:
            ReentrantCallError: called by a signal handler that has interrupted another call; the
                producer stays open.
        """
        self._run(self._close_steps(timeout))
        self._driver.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C, do not make the user wait.
        self.close(0 if kind is KeyboardInterrupt else None)

    # -- the slow path of `send` --------------------------------------------------------------

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        # Not `check_not_interrupted`: a handler may send while its thread leads. With the lock, the
        # interrupted call has left the state half changed.
        if is_owned(engine.lock):
            raise engine.reentrant_error()
        engine.check_open()
        deadline = self._max_block()
        # The time of the call, and not of the end of a wait for memory.
        now_ns = engine.now_ns()
        prepared = None
        try:
            prepared = engine.preparation.prepare(record)
            count = engine.metadata.partition_count(record.topic)
            if count is None or (record.partition or 0) >= count:
                count = self._run(topic_known(engine, prepared.record, deadline))
            partition = engine.partitioning.choose(prepared, count)
            with engine.lock:
                engine.check_open()
                return self._append_or_wait(
                    prepared,
                    partition,
                    deadline=deadline,
                    now_ns=now_ns,
                    on_delivery=on_delivery,
                )
        except (ClosedProducerError, ReentrantCallError):
            raise
        except TailraceError as error:
            refused = engine.refuse(prepared.record if prepared else record, error)
            if on_delivery is not None:
                self._waiting.call_back_soon(refused, 0, on_delivery)
            return refused, 0

    def _append_or_wait(
        self,
        prepared: Prepared,
        partition: int,
        *,
        deadline: float,
        now_ns: int,
        on_delivery: DeliveryCallback | None,
    ) -> tuple[DeliveryOutcome, int]:
        engine, driver = self._engine, self._driver
        append = partial(engine.append, prepared, partition, now_ns=now_ns)
        # Once without and once with granted memory: a waiter of the pool gets it in its turn.
        placed = self._appended(partial(append, now=time.monotonic()))
        if placed is None:
            size = engine.accumulator.supply.memory_for(prepared.size)
            granted = driver.run_locked(memory_granted(engine, size, deadline))
            # The producer may have been closed, or the transaction have failed, meanwhile.
            with engine.pool.returning(granted):
                placed = self._appended(partial(append, now=time.monotonic(), granted=granted))
            assert placed is not None, "memory was granted for this record"
        self._add_callbacks(*placed, on_delivery)
        driver.moved()
        return placed

    def _run(self, steps: Steps[T]) -> T:
        return self._driver.run(steps)


# Records of a producer that was never closed are lost when the interpreter ends, which would go
# unnoticed.
_living: "weakref.WeakSet[Producer]" = weakref.WeakSet()


@atexit.register
def _log_lost_records() -> None:
    for producer in list(_living):
        if producer.held():
            log.warning(
                "producer_not_closed client_id=%s unacknowledged_records=%d",
                producer._engine.config.client_id,
                producer.held(),
            )


def _nothing() -> None:
    """Ignore a socket event; the driver polls after each wait anyway."""
