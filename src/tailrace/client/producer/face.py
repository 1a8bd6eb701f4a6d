"""`Face`: what `Producer` and `AsyncProducer` have in common: the way of a record into its batch.

A plain record (bytes without key, headers, timestamp or partition, to a topic with an open batch)
takes a short way: two list operations inside of the `gate`. All others go through `_send`, where a
face may have to wait.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, overload

from tailrace.client.producer.arguments import check_callback, plain_record
from tailrace.client.producer.batch import Outcome
from tailrace.client.producer.encoding import RECORD_OVERHEAD
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.receipts import DeliveryCallback, Header, ProducerRecord, Receipt

log = logging.getLogger(__name__)

HeadersLike = Mapping[str, bytes | None] | Sequence[Header]


class Face:
    """Base of both producers; see theirs."""

    _engine: Engine

    def _settle(self, engine: Engine) -> None:
        """Take an engine; the last step of making a producer."""
        self._engine = engine
        self._enter = engine.gate.enter
        self._leave = engine.gate.leave
        self._open = engine.gate.open if engine.is_plain else {}
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
        """Send one record, soon and in the background, and return a receipt for it.

        `value` and `key` are bytes, text (UTF-8), None, or whatever the serializers take. A None
        value deletes its key in a compacted topic. `timestamp` is in ms since 1970-01-01 UTC, the
        time of sending by default. Without `partition` the key decides, or records without a key
        are spread in runs.

        `on_delivery(metadata, error)` is called with the outcome, by the producer's own thread or
        the event loop; while it blocks, the bytes lie still. `receipt=False` returns None
        instead, which is cheaper: errors are then logged and counted.

        Whatever is wrong with the record itself becomes the outcome of its receipt; an argument of
        a wrong type is an error of the call.

        Raises:
            TypeError: an argument is of a type that cannot be sent; the message names it.
            ClosedProducerError: the producer is closed, or was made before a fork.
            ReentrantCallError: a signal handler calls it that has interrupted another call.
        """
        if (
            type(value) is bytes
            and type(topic) is str  # Another type may run code of its own inside of the gate.
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
                self._engine.gate.mend(topic)
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
        # What the caller gives has the types of a record only after this.
        named = () if headers is None else cast("Any", headers)
        given = ProducerRecord(topic, value, key, named, timestamp, partition)
        record = plain_record(given, self._engine.parts)
        outcome, index = self._send(record, on_delivery)
        if receipt:
            return Receipt(outcome, index)
        if outcome.is_done and outcome.failure is not None:
            log.warning("a record was not sent: %s", outcome.failure)
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

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[Outcome, int]:
        """The outcome of a record that goes the long way, and its place in it."""
        raise NotImplementedError

    def _dropped(self) -> None:
        """Nobody holds the producer any more."""
        raise NotImplementedError

    def _placed(
        self,
        outcome: Outcome,
        index: int,
        on_delivery: DeliveryCallback | None,
    ) -> None:
        """A record has its outcome to come, under the lock: note who wants to hear of it."""
        interceptors = self._engine.interceptors
        if interceptors:
            outcome.add_callback(index, interceptors.on_acknowledgement)
        if on_delivery is not None:
            outcome.add_callback(index, on_delivery)

    def held(self) -> int:
        """How many records are not acknowledged yet."""
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
                f"a producer was dropped with {held} records that are not acknowledged; close it, "
                "or use it in a `with` block",
                ResourceWarning,
                stacklevel=2,
            )
