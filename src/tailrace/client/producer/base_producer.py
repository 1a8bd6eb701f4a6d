"""`BaseProducer`: base class of `Producer` and `AsyncProducer`, with `send` and `metrics`.

`send` has a fast path for plain records (bytes without key, headers, timestamp or partition, to a
topic with an open batch): two list operations inside of the `gate`. All others go through `_send`,
which may have to wait.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, overload

from tailrace.client.producer.arguments import check_callback, plain_record
from tailrace.client.producer.batch import DeliveryOutcome
from tailrace.client.producer.encoding import RECORD_OVERHEAD
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.metrics import ProducerStatistics
from tailrace.client.producer.receipts import DeliveryCallback, Header, ProducerRecord, Receipt

log = logging.getLogger(__name__)

HeadersLike = Mapping[str, bytes | None] | Sequence[Header]


class BaseProducer:
    """Base class of `Producer` and `AsyncProducer`."""

    _engine: Engine

    def _settle(self, engine: Engine) -> None:
        """Set the engine; the last step of a subclass's `__init__`."""
        self._engine = engine
        self._enter = engine.gate.enter
        self._leave = engine.gate.leave
        self._open = engine.gate.open if engine.plugins.is_plain else {}
        self._wall = engine.wall

    @overload
    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: HeadersLike | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        receipt: Literal[True] = True,
    ) -> Receipt: ...
    @overload
    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: HeadersLike | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        receipt: Literal[False],
    ) -> None: ...
    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: HeadersLike | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        receipt: bool = True,
    ) -> Receipt | None:
        """Queue one record to be sent in the background, and return a receipt for it.

        `value` and `key` are bytes, text (UTF-8), None, or any type that the serializers take. A
        None value deletes its key in a compacted topic. `timestamp` is in ms since 1970-01-01 UTC,
        by default the time of this call. Without `partition`, the key decides; records without a
        key go to one partition after the other, a batch at a time.

        `on_delivery(metadata, error)` is called with the outcome, by the producer's own thread or
        the event loop; nothing is sent while it blocks. `receipt=False` returns None instead of a
        receipt, which is cheaper; errors are then only logged and counted.

        An invalid record fails with its receipt; an argument of a wrong type raises here.

        Raises:
            TypeError: an argument is of a type that cannot be sent; the message names it.
            ClosedProducerError: the producer is closed, or was created before a fork.
            ReentrantCallError: called by a signal handler that has interrupted another call.
        """
        if (
            type(value) is bytes
            and type(topic) is str  # a subclass could run its own code inside of the gate
            and key is None
            and partition is None
            and headers is None
            and timestamp is None
            and on_delivery is None
        ):
            index = -1
            size = len(value) + RECORD_OVERHEAD
            try:
                self._enter()
                batch = self._open.get(topic)
                if batch is not None:
                    values = batch.values
                    at = len(values)
                    left = batch.bytes_left - size
                    if left >= 0 and at < batch.count_limit:
                        batch.times.append(self._wall())
                        values.append(value)
                        batch.bytes_left = left
                        index = at
            except IndexError:
                pass
            except BaseException:
                self._engine.gate.undo_and_leave(topic)
                raise
            else:
                self._leave(None)
                if index >= 0:
                    assert batch is not None
                    if receipt:
                        return Receipt(batch, index)
                    batch.is_forgotten = True
                    return None
        check_callback(on_delivery)
        # These may still have wrong types; `plain_record` checks them.
        named = () if headers is None else cast("Any", headers)
        given = ProducerRecord(topic, value, key, named, timestamp, partition)
        record = plain_record(given, self._engine.plugins)
        outcome, index = self._send(record, on_delivery)
        if receipt:
            return Receipt(outcome, index)
        if outcome.is_done and outcome.failure is not None:
            log.warning("record_failed topic=%s reason=%s", record.topic, outcome.failure)
        outcome.is_forgotten = True
        return None

    def metrics(self) -> dict[str, float]:
        """Counts and gauges by Kafka's metric names; those of a topic as `NAME{topic=T}`."""
        with self._engine.lock:
            return self._engine.metrics.snapshot(
                buffer_total_bytes=self._engine.pool.total,
                buffer_available_bytes=self._engine.pool.available,
                waiting_threads=self._engine.pool.waiting,
                batches_in_flight=len(self._engine.sender.in_flight),
            )

    def statistics(self) -> ProducerStatistics:
        """Numbers of the producer at this moment; `metrics` has its totals since it was made."""
        with self._engine.lock:
            pool = self._engine.pool
            return ProducerStatistics(
                record_count=self.held(),
                batches_in_flight=len(self._engine.sender.in_flight),
                buffer_total_bytes=pool.total,
                buffer_available_bytes=pool.available,
                waiting_count=pool.waiting,
                nodes=self._engine.nodes.statistics(),
            )

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        """Send a record on the slow path; returns its outcome and its index in that."""
        raise NotImplementedError

    def _dropped(self) -> None:
        """Close in the background; called when the producer is garbage collected."""
        raise NotImplementedError

    def _placed(
        self,
        outcome: DeliveryOutcome,
        index: int,
        on_delivery: DeliveryCallback | None,
    ) -> None:
        """Add the interceptors and the callback to the outcome of a record; under the lock."""
        interceptors = self._engine.interceptors
        if interceptors:
            outcome.add_callback(index, interceptors.on_acknowledgement)
        if on_delivery is not None:
            outcome.add_callback(index, on_delivery)

    def held(self) -> int:
        """The number of records that are not acknowledged yet."""
        batches = list(self._engine.accumulator.incomplete)
        return sum(each.record_count or len(each.values) for each in batches)

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed_error is not None:
            return
        held = self.held()
        self._dropped()
        if held:
            warnings.warn(
                f"a producer was garbage collected with {held} records that are not acknowledged; "
                "close it, or use it in a `with` block",
                ResourceWarning,
                stacklevel=2,
            )
