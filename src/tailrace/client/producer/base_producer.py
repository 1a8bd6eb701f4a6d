"""`BaseProducer`: base class of `Producer` and `AsyncProducer`, with `send` and `metrics`.

`send` encodes a record into the open batch of its partition, where there is one with room: with one
call of `OpenBatch.append` if it has a value of bytes and perhaps a key, and with some more steps
(`_append_open`) if it is of bytes or text with whatever fields. All others go through `_send`,
which may have to wait: the first record of each batch, and all with serializers, interceptors or a
partitioner of the user.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from tailrace.client.producer.delivery.metrics import ProducerStatistics
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.intake.arguments import check_callback, plain_record, plain_topic
from tailrace.client.producer.intake.encoding import encode_plain_headers
from tailrace.client.producer.intake.record import Header, ProducerRecord
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import (
    DEFAULT_RULE,
    KEY_RULES,
    NO_PARTITION,
)
from tailrace.client.producer.producer_batch import ProducerBatch
from tailrace.client.producer.queue.open_batch import OpenBatch
from tailrace.client.producer.receipts import Receipt, receipt_of
from tailrace.config.settings import INT64_MAX
from tailrace.kernels.encoding import choose_partition
from tailrace.kernels.record_block import NO_ROOM, NOW

if TYPE_CHECKING:
    from tailrace.client.producer.intake.columns import RefusedRow
    from tailrace.client.producer.intake.slices import ColumnSlice

log = logging.getLogger(__name__)

HeadersLike = Mapping[str, bytes | None] | Sequence[Header]

_Fields = tuple[object, object, HeadersLike | None, int | None, int | None]
"""Value, key, headers, timestamp and partition, as the caller gave them."""


class BaseProducer:
    """Base class of `Producer` and `AsyncProducer`."""

    _engine: Engine

    def _settle(self, engine: Engine) -> None:
        """Set the engine; the last step of a subclass's `__init__`."""
        self._engine = engine
        self._enter = engine.gate.enter
        self._leave = engine.gate.leave
        plugins, gate = engine.plugins, engine.gate
        self._open = gate.open if plugins.is_plain else {}
        has_places = plugins.is_plain and plugins.key_serializer is None
        self._places = gate.places if has_places else {}
        config = engine.config
        self._sticky = self._open
        self._by_key = KEY_RULES[config.partitioner]
        self._ignores_keys = config.partitioner_ignore_keys
        is_default = config.partitioner == DEFAULT_RULE and not self._ignores_keys
        self._keyed = self._places if is_default else {}
        if self._by_key(None, 1) != NO_PARTITION:
            self._open = {}  # Records without a key have a partition of their own.
        self._now_ns = engine.now_ns

    def _end_fast_path(self) -> None:
        """Have each further record go through `_send`."""
        self._open, self._sticky, self._places, self._keyed = {}, {}, {}, {}

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
        by default the time of this call; before 1970 it is negative, and -1 stands for no time.
        Without `partition`, the key decides; records without a key go to one partition after the
        other, a batch at a time.

        `on_delivery(metadata, error)` is called with the outcome, by the producer's own thread or
        the event loop; nothing is sent while it blocks. `receipt=False` returns None instead of a
        receipt, which is cheaper; errors are then only logged and counted.

        An invalid record fails with its receipt; an argument of a wrong type raises here.

        Raises:
            TypeError: an argument is of a type that cannot be sent; the message names it.
            ClosedProducerError: the producer is closed, or was created before a fork.
            ReentrantCallError: called by a signal handler that has interrupted another call.
        """
        batch = None
        if (
            type(value) is bytes
            and type(topic) is str  # a subclass could run its own code
            and headers is None
            and partition is None
            and timestamp is None
            and on_delivery is None
        ):
            index = NO_ROOM
            if key is None:
                batch = self._open.get(topic)
                if batch is not None:
                    index = batch.append(value, None, b"", NOW, self._now_ns())
            elif type(key) is bytes:
                places = self._keyed.get(topic)
                if places is not None:
                    batch = places[choose_partition(key, len(places))]
                    if batch is not None:
                        index = batch.append(value, key, b"", NOW, self._now_ns())
        else:
            check_callback(on_delivery)
            fields = value, key, headers, timestamp, partition
            batch, index = self._append_open(topic, fields, on_delivery)
        if index >= 0:
            assert batch is not None
            if receipt:
                made = Receipt()
                made._outcome, made._index = batch.outcome, index
                return made
            batch.outcome.is_forgotten = True
            return None
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

    def _append_open(
        self, topic: object, fields: _Fields, on_delivery: DeliveryCallback | None
    ) -> tuple[OpenBatch | None, int]:
        """Append a record to the open batch of its partition; returns the batch and the index.

        Returns `NO_ROOM` as the index, with nothing done, if that needs the producer's lock or a
        closer look: there is no such batch or no room in it, a field is of an unusual type or
        wrong.
        """
        value, key, headers, timestamp, partition = fields
        if type(topic) is not str:
            return None, NO_ROOM
        places = self._places.get(topic)
        if places is None:
            return None, NO_ROOM
        encoded = b""
        try:
            if headers:
                found = encode_plain_headers(headers)
                if found is None:
                    return None, NO_ROOM
                encoded = found
            if type(value) is str:
                value = value.encode()
            if type(key) is str:
                key = key.encode()
        except UnicodeEncodeError:
            return None, NO_ROOM
        batch = None
        if partition is None:
            if key is None:
                batch = self._open.get(topic)
            if batch is None and (key is None or type(key) is bytes):
                partition = self._by_key(None if self._ignores_keys else key, len(places))
                batch = self._sticky.get(topic) if partition == NO_PARTITION else places[partition]
        elif type(partition) is int and 0 <= partition < len(places):
            batch = places[partition]
        if (
            batch is None
            or (value is not None and type(value) is not bytes)
            or (key is not None and type(key) is not bytes)
        ):
            return None, NO_ROOM
        if timestamp is None:
            timestamp = NOW
        elif type(timestamp) is not int or not NOW < timestamp <= INT64_MAX:
            return None, NO_ROOM
        record = value, key, encoded, timestamp, self._now_ns()
        if on_delivery is None:
            return batch, batch.append(*record)
        try:
            self._enter()
            index = batch.append(*record)
            if index >= 0:
                batch.outcome.callbacks.extend((index, on_delivery))
        except IndexError:
            return None, NO_ROOM
        except BaseException:
            self._leave(None)
            raise
        self._leave(None)
        return batch, index

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
        self._dropped()
        if held:
            warnings.warn(
                f"a producer was garbage collected with {held} records that are not acknowledged; "
                "close it, or use it in a `with` block",
                ResourceWarning,
                stacklevel=2,
            )
