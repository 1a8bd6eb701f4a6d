"""`BaseProducer`: base class of `Producer` and `AsyncProducer`, with `send` and `metrics`.

`send` appends a record to the open batch of its partition inside of the `gate`, where there is one
with room: in a few list operations if the record is a value of bytes and nothing else, and in some
more (`_append_open`) if it is of bytes or text with whatever fields. All others go through `_send`,
which may have to wait: the first record of each batch, and all with serializers, interceptors or a
partitioner of the user.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, cast, overload

from tailrace.client.producer.delivery.metrics import ProducerStatistics
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.intake.arguments import check_callback, plain_record
from tailrace.client.producer.intake.encoding import (
    KEY_OVERHEAD,
    RECORD_OVERHEAD,
    TIMESTAMP_OVERHEAD,
    encode_plain_headers,
)
from tailrace.client.producer.intake.record import Header, ProducerRecord
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import (
    DEFAULT_RULE,
    KEY_RULES,
    NO_PARTITION,
    partition_of_key,
)
from tailrace.client.producer.receipts import Receipt
from tailrace.config.settings import INT64_MAX
from tailrace.kernels.encoding import choose_partition

if TYPE_CHECKING:
    from tailrace.client.producer.intake.columns import RefusedRow
    from tailrace.client.producer.intake.slices import ColumnSlice

log = logging.getLogger(__name__)

HeadersLike = Mapping[str, bytes | None] | Sequence[Header]

_KEYED_OVERHEAD: Final = RECORD_OVERHEAD + KEY_OVERHEAD

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
        self._wall = engine.wall

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
                        return Receipt(batch.outcome, index)
                    batch.outcome.is_forgotten = True
                    return None
        check_callback(on_delivery)
        if (
            type(key) is bytes
            and type(value) is bytes
            and type(topic) is str
            and partition is None
            and headers is None
            and timestamp is None
            and on_delivery is None
        ):
            found = self._append_keyed(topic, value, key)
        else:
            fields = value, key, headers, timestamp, partition
            found = self._append_open(topic, fields, on_delivery)
        if found is not None:
            if receipt:
                return Receipt(*found)
            found[0].is_forgotten = True
            return None
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

    def _append_keyed(
        self, topic: str, value: bytes, key: bytes
    ) -> tuple[DeliveryOutcome, int] | None:
        """Do the same as `_append_open` for a record that has just a value and a key."""
        places = self._keyed.get(topic)
        if places is None:
            return None
        if choose_partition.is_compiled:
            partition = choose_partition.run(key, len(key), len(places), 1)
        else:
            partition = partition_of_key(key, len(places))
        size = len(value) + len(key) + _KEYED_OVERHEAD
        found = None
        try:
            self._enter()
            # Another thread may have taken the batches out of service, or put others there.
            if self._keyed.get(topic) is places:
                batch = places[partition]
                if batch is not None:
                    values, keys = batch.values, batch.keys
                    index = len(values)
                    left = batch.bytes_left - size
                    if left >= 0 and index < batch.count_limit:
                        if keys is not None and len(keys) == index:
                            keys.append(key)
                        else:
                            batch.add_key(index, key)
                        batch.times.append(self._wall())
                        values.append(value)
                        batch.bytes_left = left
                        found = batch.outcome, index
        except IndexError:
            return None
        except BaseException:
            self._engine.gate.undo_and_leave(topic)
            raise
        self._leave(None)
        return found

    def _append_open(
        self, topic: object, fields: _Fields, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int] | None:
        """Append a record to the open batch of its partition; returns its outcome and the index.

        Returns None, with nothing done, if that needs the producer's lock or a closer look: there
        is no such batch or no room in it, a field is of an unusual type or wrong.
        """
        value, key, headers, timestamp, partition = fields
        if type(topic) is not str:
            return None
        places = self._places.get(topic)
        if places is None:
            return None
        encoded = b""
        try:
            if type(value) is str:
                value = value.encode()
            if type(key) is str:
                key = key.encode()
            if headers:
                found_headers = encode_plain_headers(headers)
                if found_headers is None:
                    return None
                encoded = found_headers
        except UnicodeEncodeError:
            return None
        size = RECORD_OVERHEAD + len(encoded)
        if type(value) is bytes:
            size += len(value)
        elif value is not None:
            return None
        if type(key) is bytes:
            size += KEY_OVERHEAD + len(key)
        elif key is not None:
            return None
        if timestamp is not None:
            if type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX:
                return None
            size += TIMESTAMP_OVERHEAD
        if partition is None:
            partition = self._by_key(None if self._ignores_keys else key, len(places))
        elif type(partition) is not int or not 0 <= partition < len(places):
            return None
        found = None
        gate = self._engine.gate
        try:
            self._enter()
            # Another thread may have taken the batches out of service, or put others there.
            if self._places.get(topic) is places:
                is_sticky = partition == NO_PARTITION
                batch = self._sticky.get(topic) if is_sticky else places[partition]
                if batch is not None:
                    index = len(batch.values)
                    left = batch.bytes_left - size
                    if left >= 0 and index < batch.count_limit:
                        if key is not None:
                            batch.add_key(index, key)
                        if encoded or timestamp is not None or on_delivery is not None:
                            batch.add_rare(
                                index,
                                headers=encoded,
                                timestamp=timestamp,
                                on_delivery=on_delivery,
                            )
                        batch.times.append(self._wall())
                        batch.values.append(value)
                        batch.bytes_left = left
                        found = batch.outcome, index
        except IndexError:
            return None
        except BaseException:
            gate.undo_and_leave(topic)
            raise
        self._leave(None)
        return found

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
            outcome.explicit = dict(enumerate(rows.timestamps().tolist()))
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
