"""`BaseProducer`: base class of `Producer` and `AsyncProducer`: what both have besides sending.

A record that no open batch takes goes through `_send`, which may have to wait: the first record of
each batch, and all with serializers, interceptors or a partitioner of the user.
"""

import logging
import warnings
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, cast

from tailrace.client.drive.steps import T
from tailrace.client.producer.delivery.metrics import ProducerStatistics
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.intake.arguments import check_callback, plain_record, plain_topic
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.producer_batch import ProducerBatch
from tailrace.client.producer.receipts import Receipt, receipt_of
from tailrace.client.producer.send_call import SendCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.client.drive.loop import LoopDriver
    from tailrace.client.drive.thread import ThreadDriver
    from tailrace.client.producer.intake.columns import RefusedRow
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.send_call import HeadersLike
    from tailrace.client.producer.waiting.lines import Lines

log = logging.getLogger(__name__)


class BaseProducer(SendCall):
    """Base class of `Producer` and `AsyncProducer`."""

    _engine: Engine
    _driver: "ThreadDriver | LoopDriver"
    _lines: "Lines | None" = None
    """Records of an `AsyncProducer` that cannot get into a batch yet."""
    _is_closing = False
    """`close` was called: no new records are taken, but queued ones still go into batches."""

    def _settle(self, engine: Engine) -> None:
        """Set the engine; the last step of a subclass's `__init__`."""
        self._engine = engine
        self._send_into(engine.open_batches)

    def _send_slowly(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        headers: "HeadersLike | None",
        timestamp: int | None,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        receipt: bool,
    ) -> Receipt | None:
        check_callback(on_delivery)
        # These may still have wrong types; `plain_record` checks them.
        named = () if headers is None else cast("Any", headers)
        given = ProducerRecord(topic, value, key, named, timestamp, partition)
        record = plain_record(given, self._engine.plugins)
        outcome, index = self._send(record, on_delivery)
        if receipt:
            return receipt_of(outcome, index)
        if outcome.is_done and outcome.failure is not None:
            log.warning("record_failed topic=%s reason=%s", record.topic, outcome.failure)
        outcome.is_forgotten = True
        return None

    def create_batch(self, topic: str) -> ProducerBatch:
        """An empty batch, which the program fills with `append` and sends with `send_batch`.

        Raises:
            TypeError, InvalidTopicError: `topic` is no name of a topic.
        """
        topic = plain_topic(topic)
        self._engine.preparation.check_name(topic)
        return ProducerBatch(self._engine, topic)

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

    def _check_open(self) -> None:
        """Raise ClosedProducerError once `close` was called, or the producer has ended."""
        self._engine.check_open()
        if self._is_closing:
            raise ClosedProducerError("the producer is closed")

    def _deadline(self, timeout: float | None) -> float:
        return inf if timeout is None else self._driver.clock() + timeout

    def _max_block(self) -> float:
        """The time `max.block.ms` from now."""
        return self._driver.clock() + self._engine.config.max_block_ms / 1000

    def _appended(self, append: Callable[[], T]) -> T:
        """The result of `Engine.append`; Ctrl-C in it ends the producer, its state is unknown."""
        try:
            return append()
        except Exception:
            raise
        except BaseException as error:
            self._driver.give_up(error)
            raise

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        """Send a record on the slow path; returns its outcome and its index in that."""
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

    def _rows_placed(self, outcome: BatchOutcome, rows: "ColumnSlice") -> None:
        """Have the interceptors told of the outcome of rows; under the lock."""
        interceptors = self._engine.interceptors
        if interceptors:
            outcome.timestamps = rows.timestamps().tolist()
            for index in range(rows.record_count):
                outcome.add_callback(index, interceptors.on_acknowledgement)

    def _refuse_rows(self, summary: SendSummary, rows: "Sequence[RefusedRow]") -> None:
        """Note rows that cannot be sent; an open transaction has failed then, as by `send`."""
        for row, error in rows:
            named = type(error)(f"row {row}: {error}")
            named.__cause__ = error.__cause__
            summary.errors[row] = named
            self._engine.refuse(ProducerRecord(summary.topic), named)

    def held(self) -> int:
        """The number of records that are not acknowledged yet."""
        return sum(each.record_count for each in list(self._engine.accumulator.incomplete.values()))

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed_error is not None:
            return
        held = self.held()
        self._driver.abandon()
        if held:
            warnings.warn(
                f"a producer was garbage collected with {held} records that are not acknowledged; "
                "close it, or use it in a `with` block",
                ResourceWarning,
                stacklevel=2,
            )
