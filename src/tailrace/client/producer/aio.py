"""`AsyncProducer`: sends records from an event loop, without a thread.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send("flights", b"JFK")          # its offset: one request
        for value in values:
            await producer.send("flights", value).batched()        # many go into one request

A record that cannot get into a batch yet, because memory or metadata is missing, waits in a queue
(`queued_records`). So `send` never blocks the loop, and the order is kept.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, Unpack

from tailrace.client.drive.loop import LoopDriver
from tailrace.client.drive.operation import AwaitingFace
from tailrace.client.drive.steps import Steps, T
from tailrace.client.interval_call import check_on_metrics
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.identity import OwnedIdentity
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
from tailrace.client.producer.queued_records import LoopWaiting, RecordQueues
from tailrace.client.producer.transaction_calls import TransactionCalls
from tailrace.errors import TailraceError
from tailrace.runtime.system import Runtime, system_runtime

if TYPE_CHECKING:
    from tailrace.client.keywords import ProducerSettings


class AsyncProducer(AwaitingFace, TransactionCalls):
    """Sends records to a Kafka cluster from the event loop on which it is created.

    The same as `Producer`, except that `flush()`, `close()` and a receipt are awaited. `send`
    always returns a receipt at once. `await producer.send(...)` waits for the broker's answer, so a
    loop of them sends one record in each request; `await producer.send(...).batched()` waits only
    until the record is in a batch, as `await` of aiokafka's `send` does. While there is no memory,
    or the topic's metadata is missing, the record waits in a queue, for `max.block.ms` at most, and
    then fails.

    `await producer.send(...)` waits while the buffer is full, as a thread does in `Producer.send`;
    any number of tasks may wait so. If that await is cancelled, a record that is still queued is
    removed and gets a `SendCancelledError`; one that is in a batch is sent all the same. After a
    timeout of `asyncio.wait_for`, `receipt.exception()` tells which it was. Records that are not
    awaited may take `buffer.memory` bytes in the queue; a record beyond that fails with a
    `BufferExhaustedError`.

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
        runtime: Runtime | None = None,
        **more_settings: "Unpack[ProducerSettings]",
    ) -> None:
        check_on_metrics(on_metrics)
        more: dict[str, object] = {**more_settings}
        if isinstance(partitioner, str):
            more["partitioner"], partitioner = partitioner, None
        config = parse_producer_config(settings, more)
        outside = runtime or system_runtime()
        self._driver: LoopDriver = LoopDriver()
        self._waiting = LoopWaiting(self._driver)
        engine = Engine(
            config,
            Plugins(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                interceptors=interceptors,
                hooks=hooks,
            ),
            network=outside.network,
            # A simulation has its own clock; with the system's the fast path reads it in C.
            now_ns=time.time_ns if runtime is None else lambda: outside.clock.now_ms() * 1_000_000,
            monotonic=self._driver.loop.time,
            chance=outside.chance,
            waiting=self._waiting,
            wake=self._driver.wake,
        )
        self._waiting.engine = engine
        self._attach(engine, identity, on_metrics)
        self._queued: RecordQueues = RecordQueues(engine, self._driver, self._waiting)
        self._driver.start(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Records sent in the block are visible together, or never; see `Producer.transaction`."""
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except GeneratorExit:
            # The loop is gone: nothing can be awaited any more.
            raise
        except BaseException:
            await self._run(self._abort_open())
            raise

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `Producer`
        """Refuse new records, send those that wait, wait for the outcomes, and end.

        A second call does nothing. Records without an outcome after `timeout` seconds get a
        `ClosedProducerError`; 0 gives up all of them at once. An open transaction is aborted, so
        that readers of committed records need not wait for `transaction.timeout.ms`; its records
        that are not sent yet get a `TransactionAbortedError`. The close waits `max.block.ms` at
        most for the end of a transaction. If that is a commit, `finish_transaction` returns its
        outcome, also after the close.
        """
        await self._run(self._close_steps(timeout))
        await self._queued.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A cancelled task or Ctrl-C must not wait for brokers; `sys.exit` is an end in order.
        is_leaving = kind is not None and not issubclass(kind, (Exception, SystemExit))
        await self.close(0 if is_leaving else None)

    # -- the slow path of `send` --------------------------------------------------------------

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        if self._is_closing or engine.closed_error is not None:
            self._check_open()
        now_ns = engine.now_ns()
        prepared = None
        try:
            prepared = engine.preparation.prepare(record)
            placed = self._queued.put(prepared, now_ns)
        except ClosedProducerError:
            raise
        except TailraceError as error:
            refused = engine.refuse(prepared.record if prepared else record, error)
            if on_delivery is not None:
                self._waiting.call_back(refused, 0, on_delivery)
            return refused, 0
        self._add_callbacks(*placed, on_delivery)
        self._queued.send_ready()
        return placed

    def held(self) -> int:
        """The number of records that are not acknowledged yet, including queued ones."""
        return super().held() + self._queued.held()

    async def _run(self, steps: Steps[T]) -> T:
        return await self._driver.run(steps)
