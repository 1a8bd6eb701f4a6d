"""`DeliveryOutcome`: the result of sending records; `ProducerBatch`: records sent together.

A batch holds references to the caller's objects, in columns: values and times, and keys and headers
only once there are any. The batch is encoded once, when it is drained.

Not here: which batch a record goes to (`accumulator`), and the encoding (`encoding`).

Invariant: `is_done` is set last, so a thread that reads it as True sees the complete outcome. A
batch that is done keeps what its receipts return, but no records and no encoded bytes.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from tailrace.client.producer.buffer_pool import BufferPool
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.encoding import BatchFields, CompressionRatios, encode_batch
from tailrace.client.producer.receipts import (
    DeliveryCallback,
    ProducerRecord,
    RecordMetadata,
    Waiting,
)
from tailrace.client.producer.user_code import call_each, call_user_code
from tailrace.model import TopicPartition
from tailrace.records import layout, packages

if TYPE_CHECKING:
    from tailrace.client.producer.slices import ColumnSlice

NO_SEQUENCE: Final = -1
_SEQUENCES: Final = 1 << 31
_IDENTITY: Final = Struct(">qhi")
"""Producer id, epoch and base sequence, which stand together in the header."""

T = TypeVar("T")

RECORD_MEMORY: Final = 100
"""Bytes that a waiting record takes besides its key, value and headers: two Python objects and
their slots in the columns."""


@dataclass(slots=True)
class Prepared:
    """A serialized record that is not in a batch yet."""

    record: ProducerRecord
    key: bytes | None
    value: bytes | None
    headers: bytes
    """Encoded with their count; empty if there are none."""
    size: int
    """Bytes it takes in a batch, at most."""


class DeliveryOutcome:
    """The result of sending some records; base of a batch, and of records that get into none."""

    __slots__ = (
        "callbacks",
        "errors",
        "failure",
        "is_done",
        "is_forgotten",
        "partition",
        "waiting",
        "watchers",
    )

    def __init__(self, partition: TopicPartition, waiting: Waiting) -> None:
        self.partition = partition
        self.waiting = waiting
        self.is_done = False
        self.is_forgotten = False
        """Some of the records have no receipt, so a failure is logged."""
        self.failure: Exception | None = None
        """The error of all records, except those in `errors`."""
        self.errors: Mapping[int, Exception] = {}
        """Errors of single records, by index."""
        self.callbacks: list[tuple[int, DeliveryCallback]] | None = None
        self.watchers: list[Callable[[], None]] | None = None
        """Called under the producer's lock as soon as it is done; they only wake a waiter."""

    def error_of(self, index: int) -> Exception | None:
        """Return the record's error, or None."""
        return self.errors.get(index, self.failure)

    def metadata_of(self, index: int) -> RecordMetadata:
        """The record's partition, offset and timestamp; raises its error if it failed."""
        error = self.error_of(index)
        if error is not None:
            # Receipts share the error; without this, each raise would add frames to its traceback.
            raise error.with_traceback(None)
        return self.place_of(index)

    def place_of(self, index: int) -> RecordMetadata:  # noqa: ARG002 - a batch knows more
        """Partition, offset and timestamp of the record, as far as they are known."""
        return RecordMetadata(*self.partition, offset=-1, timestamp=-1)

    def finish(self) -> "list[DeliveryOutcome]":
        """Set `is_done` and call the watchers; returns the outcomes whose callbacks are due now."""
        self.is_done = True
        watchers, self.watchers = self.watchers, None
        for wake in watchers or ():
            wake()
        return [self]

    def add_callback(self, index: int, callback: DeliveryCallback) -> None:
        """Have a record's callback called when this is done; not done yet, under the lock."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, callback))

    def add_watcher(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when this is done; not done yet, under the lock."""
        if self.watchers is None:
            self.watchers = []
        self.watchers.append(wake)

    def remove_watcher(self, wake: Callable[[], None]) -> None:
        """Remove a watcher that `add_watcher` added; under the lock."""
        if self.watchers is not None and wake in self.watchers:
            self.watchers.remove(wake)

    def run_callbacks(self) -> None:
        """Call the callbacks in the order in which they were added; their exceptions are logged."""
        callbacks, self.callbacks = self.callbacks, None
        call_each(self._calls(callbacks or ()), about=self._about)

    def _calls(
        self, callbacks: Sequence[tuple[int, DeliveryCallback]]
    ) -> Iterator[tuple[DeliveryCallback, RecordMetadata, Exception | None]]:
        for index, callback in callbacks:
            yield callback, self.place_of(index), self.error_of(index)

    def tell(self, index: int, callback: DeliveryCallback) -> None:
        """Call one callback; its exception is logged."""
        place, error = self.place_of(index), self.error_of(index)
        call_user_code(callback, place, error, about=self._about)

    @property
    def _about(self) -> str:
        return f"on_delivery partition={self.partition}"


class RefusedRecordOutcome(DeliveryOutcome):
    """The outcome of a record that got into no batch."""

    __slots__ = ()

    def __init__(self, partition: TopicPartition, waiting: Waiting, error: Exception) -> None:
        super().__init__(partition, waiting)
        self.failure = error
        self.is_done = True


class ProducerBatch(DeliveryOutcome):
    """Records of one partition that are sent, retried and acknowledged together."""

    __slots__ = (
        "_identity",
        "attempts",
        "base_offset",
        "base_sequence",
        "block",
        "bytes_left",
        "columns",
        "count_limit",
        "created_at",
        "encoded",
        "explicit",
        "headers",
        "in_flight",
        "is_closed",
        "is_transactional",
        "is_urgent",
        "keys",
        "last_attempt_at",
        "last_error",
        "leader",
        "log_append_time",
        "may_be_written",
        "number",
        "on_delivery",
        "parent",
        "parts",
        "pause_s",
        "producer_epoch",
        "producer_id",
        "record_count",
        "reserved",
        "size_limit",
        "size_max",
        "times",
        "values",
        "was_sequence_reset",
    )

    def __init__(
        self,
        partition: TopicPartition,
        waiting: Waiting,
        *,
        created_at: float,
        size_limit: int,
        size_max: int,
        count_limit: int,
        reserved: int,
    ) -> None:
        super().__init__(partition, waiting)
        self.created_at = created_at
        """Monotonic seconds; `delivery.timeout.ms` counts from here."""
        self.size_limit = size_limit
        """Bytes before compression for which memory is reserved."""
        self.bytes_left = size_limit
        """Unused part of `size_limit`."""
        self.size_max = size_max
        """Bytes that it may grow to."""
        self.reserved = reserved
        """Bytes taken from the buffer pool."""
        self.count_limit = count_limit
        """Records for which memory is reserved."""
        self.values: list[bytes | None] = []
        self.times: list[float] | array[float] = []
        """Wall clock seconds at `send`."""
        self.keys: list[bytes | None] | None = None
        """Up to the last record that has a key; None if none has."""
        self.headers: dict[int, bytes] | None = None
        """Encoded with their count, by index."""
        self.on_delivery: list[tuple[int, DeliveryCallback]] | None = None
        """Callbacks that came with their records on the fast path, while the batch is open."""
        self.explicit: dict[int, int] | None = None
        """Timestamps that callers gave, in ms, by index."""
        self.columns: ColumnSlice | None = None
        """The records, if they came from `send_many`; then the lists above are empty."""
        self.record_count = 0
        """Set when the batch is closed."""
        self.is_closed = False
        """No record is added any more."""
        self.is_urgent = False
        """A caller waits for it, so it does not linger."""
        self.encoded: memoryview | None = None
        self.block: bytearray | None = None
        """Memory of `encoded` that is returned to the pool."""
        self.number = -1
        """Its number in `BatchInfo`; -1 until a hook was called for it."""
        self.in_flight = False
        """It is in a request that has not been answered."""
        self.may_be_written = False
        """An attempt failed, and the broker may have written the batch all the same."""
        self.attempts = 0
        """Number of times that it was sent and not acknowledged."""
        self.last_attempt_at = created_at
        self.last_error: Exception | None = None
        """The error of the last attempt."""
        self.leader: object = None
        """The partition's leader at the last attempt."""
        self.pause_s = 0.0
        """Seconds to wait after the last attempt."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.was_sequence_reset = False
        self.parent: ProducerBatch | None = None
        self.parts: list[tuple[int, ProducerBatch]] | None = None
        self._identity = (-1, -1, NO_SEQUENCE)
        self.base_offset = -1
        self.log_append_time = -1

    @property
    def is_retry(self) -> bool:
        """Whether it has been sent before."""
        return self.attempts > 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record; -1 without a producer id."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.record_count - 1) % _SEQUENCES

    @property
    def size(self) -> int:
        """Bytes of the encoded batch; before it is encoded, an upper bound."""
        return self.size_limit - self.bytes_left if self.encoded is None else len(self.encoded)

    def append(self, prepared: Prepared, wall_s: float) -> int:
        """Add a record and return its index; the caller has checked that there is room."""
        index = len(self.values)
        if prepared.key is not None:
            self.add_key(index, prepared.key)
        self.add_rare(index, headers=prepared.headers, timestamp=prepared.record.timestamp)
        self.times.append(wall_s)
        self.values.append(prepared.value)
        self.bytes_left -= prepared.size
        return index

    def add_key(self, index: int, key: bytes) -> None:
        """Set the key of the record that is being added."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        if len(keys) < index:
            keys.extend([None] * (index - len(keys)))
        keys.append(key)

    def add_rare(
        self,
        index: int,
        *,
        headers: bytes,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Set the fields of the record that is being added which most records do not have."""
        if headers:
            if self.headers is None:
                self.headers = {}
            self.headers[index] = headers
        if timestamp is not None:
            if self.explicit is None:
                self.explicit = {}
            self.explicit[index] = timestamp
        if on_delivery is not None:
            if self.on_delivery is None:
                self.on_delivery = []
            self.on_delivery.append((index, on_delivery))

    def remove_partial_append(self) -> None:
        """Remove a record that an interrupted `append` has added in part.

        A record is complete once its value is in `values`.
        """
        count = len(self.values)
        del self.times[count:]
        if self.keys is not None:
            del self.keys[count:]
        for sparse in (self.headers, self.explicit):
            if sparse is not None:
                sparse.pop(count, None)
        if self.on_delivery and self.on_delivery[-1][0] >= count:
            del self.on_delivery[-1]

    def close(self) -> None:
        """Take no more records; under the lock."""
        if not self.is_closed:
            self.is_closed = True
            if self.on_delivery is not None:
                others = self.callbacks or []
                self.callbacks = sorted(self.on_delivery + others, key=itemgetter(0))
                self.on_delivery = None
            if self.columns is None:
                self.record_count = len(self.values)

    def encode(self, pool: BufferPool, config: ProducerConfig, ratios: CompressionRatios) -> None:
        """Encode the batch into a block of the pool; a later call only updates the producer fields.

        A retry may have another producer id, epoch or sequence number than the attempt before.
        """
        identity = (self.producer_id, self.producer_epoch, self.base_sequence)
        if self.encoded is not None:
            if identity != self._identity:
                self._identity = identity
                _IDENTITY.pack_into(self.encoded, layout.PRODUCER_ID_POSITION, *identity)
                crc = packages.crc32c.crc32c(self.encoded[layout.ATTRIBUTES_POSITION :])
                layout.CRC.pack_into(self.encoded, layout.CRC_POSITION, crc)
            return
        self._identity = identity
        codec = config.compression_type
        fields = BatchFields(
            codec, config.compression_level, *identity, is_transactional=self.is_transactional
        )
        block = pool.take_block() if 2 * self.size > pool.block_size else bytearray(self.size)
        if self.columns is not None:
            self.encoded = self.columns.encode(block, fields)
        else:
            if self.keys is not None:
                self.keys.extend([None] * (self.record_count - len(self.keys)))
            self.encoded = encode_batch(
                self.values,
                self.times,
                keys=self.keys,
                headers=self.headers,
                explicit=self.explicit,
                fields=fields,
                block=block,
            )
        if self.encoded.obj is block:
            self.block = block
        else:
            pool.give_block(block)
        if codec:
            ratios.observe(self.partition.topic, codec, self.ratio)

    @property
    def ratio(self) -> float:
        """Encoded size divided by the upper bound of the size without compression."""
        assert self.encoded is not None, "the batch has no bytes yet"
        return len(self.encoded) / max(1, self.size_limit - self.bytes_left)

    def split(self) -> "list[tuple[int, ProducerBatch]]":
        """Two batches with the records of this one, each with the index of its first record.

        They keep `created_at`, so `delivery.timeout.ms` goes on counting; `attempts` starts at 0.
        """
        middle = self.record_count // 2
        columns = [None, None] if self.columns is None else self.columns.split(2)
        self.parts = []
        for start, stop, slice_ in zip(
            (0, middle), (middle, self.record_count), columns, strict=True
        ):
            part = ProducerBatch(
                self.partition,
                self.waiting,
                created_at=self.created_at,
                size_limit=self.size_limit,
                size_max=self.size_max,
                count_limit=0,
                reserved=0,
            )
            part.columns = slice_
            part.parent = self
            part._take_from(self, start, stop)
            self.parts.append((start, part))
        self._give_up_records()
        return self.parts

    def _take_from(self, whole: "ProducerBatch", start: int, stop: int) -> None:
        """Take the records of another batch from `start` to before `stop`."""
        self.values = whole.values[start:stop]
        self.times = whole.times[start:stop]
        self.keys = None if whole.keys is None else whole.keys[start:stop]
        self.headers = _between(whole.headers, start, stop)
        self.explicit = _between(whole.explicit, start, stop)
        share = (stop - start) / max(1, whole.record_count)
        self.bytes_left = whole.size_limit - int((whole.size_limit - whole.bytes_left) * share)
        self.is_transactional = whole.is_transactional
        self.is_forgotten = whole.is_forgotten
        self.is_closed = True
        self.record_count = stop - start

    def finish(self) -> list[DeliveryOutcome]:
        """Set `is_done`, and also that of the batch it was split from, if all parts are done."""
        self._give_up_records()
        ended = super().finish()
        parent = self.parent
        if parent is not None and all(part.is_done for _, part in parent.parts or ()):
            ended += parent.finish()
        return ended

    def _give_up_records(self) -> None:
        """Drop everything but the timestamps: a receipt may live long, and keeps its batch alive.

        A failed batch keeps its columns, since `send_many` reports their rows; it has no receipts.
        """
        self.values, self.times = [], array("d", self.times if self.log_append_time < 0 else ())
        self.keys = self.headers = self.encoded = None
        if self.failure is None or self.parts is not None:
            self.columns = None

    def _calls(
        self, callbacks: Sequence[tuple[int, DeliveryCallback]]
    ) -> Iterator[tuple[DeliveryCallback, RecordMetadata, Exception | None]]:
        if self.parts is not None or self.failure is not None or self.errors or self.explicit:
            yield from super()._calls(callbacks)
            return
        make, (topic, partition) = RecordMetadata, self.partition
        base, times, written = self.base_offset, self.times, self.log_append_time
        for index, callback in callbacks:
            offset = base + index if base >= 0 else -1
            timestamp = int(times[index] * 1000) if written < 0 else written
            yield callback, make(topic, partition, offset, timestamp), None

    def place_of(self, index: int) -> RecordMetadata:
        """The record's partition, offset and timestamp."""
        if self.parts is not None:
            start, part = next(each for each in reversed(self.parts) if each[0] <= index)
            return part.place_of(index - start)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.log_append_time
        if timestamp < 0 and index < len(self.times):
            explicit = self.explicit or {}
            timestamp = explicit.get(index, int(self.times[index] * 1000))
        return RecordMetadata(*self.partition, offset, timestamp)

    def error_of(self, index: int) -> Exception | None:
        """Return the record's error, or None."""
        if self.parts is not None:
            start, part = next(each for each in reversed(self.parts) if each[0] <= index)
            return part.error_of(index - start)
        return super().error_of(index)


def _between(sparse: dict[int, T] | None, start: int, stop: int) -> dict[int, T] | None:
    if sparse is None:
        return None
    return {place - start: each for place, each in sparse.items() if start <= place < stop} or None
