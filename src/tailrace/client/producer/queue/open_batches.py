# cython: auto_pickle=False
"""`OpenBatches`: the batches that take records, and the fast path of `send` into them.

Records go straight into the open batch of their partition, where there is one with room. They are
encoded as they come (`RecordBlock`), so a batch keeps none of the caller's objects but callbacks.
Whatever is not decided here takes the way through `engine`: the first record of a batch, fields of
unusual or wrong types, serializers, interceptors and partitioners of the user.

Not here: when batches are opened and closed (`engine`, `accumulator`), and memory (`memory`).

Invariant: threads may send at any time, and no lock is needed. A record is in a batch as a whole
and with its callback before the batch is closed, or not at all; a batch that was closed since it
was found here refuses the record. All methods of `OpenBatches` but `take` are called under the
producer's lock.
"""

from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import cython

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback
from tailrace.client.producer.partitioners import DEFAULT_RULE, KEY_RULES, NO_PARTITION
from tailrace.client.producer.plugins import Header
from tailrace.client.producer.queue.batches import EncodedRecords, SealedBatch
from tailrace.client.producer.receipts import Receipt
from tailrace.config.settings import INT64_MAX
from tailrace.kernels.arrays import int64s
from tailrace.kernels.record_block import NOW, RecordBlock
from tailrace.model import TopicPartition

if not cython.compiled:
    from tailrace.client.producer.receipts import receipt_of
    from tailrace.kernels.encoding import choose_partition
    from tailrace.kernels.record_block import pack_headers

if TYPE_CHECKING:
    from array import array

    from tailrace.client.producer.partitioners import KeyRule
    from tailrace.client.producer.plugins import Plugins

    system_ms: Any

HeadersLike = Mapping[str, bytes | None] | Sequence[Header]
"""Names and contents of headers."""

_NS_PER_MS: Final = 1_000_000
_NO_PARTITION: Final = NO_PARTITION


class OpenBatch(RecordBlock):
    """Records of one partition, and room for more."""

    if not cython.compiled:
        __slots__ = (
            "_callbacks", "_is_forgotten", "created_at", "outcome", "reserved", "size_max",
        )  # fmt: skip

    if TYPE_CHECKING:
        outcome: BatchOutcome
        created_at: float
        size_max: int
        reserved: int
        _callbacks: list[Any]
        _is_forgotten: bool

    def __init__(
        self,
        outcome: BatchOutcome,
        *,
        created_at: float,
        size_limit: int,
        size_max: int,
        count_limit: int,
        reserved: int,
        block: bytearray | None = None,
    ) -> None:
        """Memory is reserved for `size_limit` bytes before compression, and `count_limit` records.

        `block` is memory to use again, of at least `size_limit` bytes.
        """
        if block is None:
            block = bytearray(size_limit)
        super().__init__(block, int64s(count_limit), BATCH_OVERHEAD, size_limit)
        self.outcome = outcome
        self._callbacks = []
        self._is_forgotten = False
        self.created_at = created_at
        """Monotonic seconds; `delivery.timeout.ms` counts from here."""
        self.size_max = size_max
        """Bytes that it may grow to."""
        self.reserved = reserved
        """Bytes taken from the buffer pool."""

    @property
    def partition(self) -> TopicPartition:
        return self.outcome.partition

    @property
    def count_limit(self) -> int:
        """Records for which memory is reserved."""
        return len(self.times)

    @property
    def size(self) -> int:
        return self.position

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes,
        timestamp: int,
        on_delivery: "DeliveryCallback | None",
        is_forgotten: bool,
    ) -> int:
        """`append` a record that has a callback, or no receipt, in the same step."""
        # One step, also where the interpreter has no global lock: a record has to get into the same
        # batch as its callback, and neither may come after `close` (decision 69).
        with cython.critical_section(self):
            index = self.put(value, key, headers, timestamp)
            if index >= 0:
                if on_delivery is not None:
                    # Flat: a pair for each would be an object that the garbage collector looks at
                    # again and again, which took a fifth of the time of a send (decision 48).
                    self._callbacks.append(index)
                    self._callbacks.append(on_delivery)
                if is_forgotten:
                    self._is_forgotten = True
            return index

    def append_prepared(self, prepared: Prepared, now_ns: int) -> int:
        """Add a record and return its index, or `NO_ROOM`."""
        timestamp = prepared.record.timestamp
        if timestamp is None:
            timestamp = now_ns // _NS_PER_MS
        return self.append(prepared.value, prepared.key, prepared.headers, timestamp)

    def grow(self, *, size_limit: int, count_limit: int) -> None:
        """Have room for these bytes and records; memory is reserved already."""
        block, times = self.block, self.times
        if size_limit > len(block):
            block = bytearray(size_limit)
        if count_limit > len(times):
            times = int64s(count_limit)
        self.set_room(block, times, size_limit)

    def close(self) -> None:
        """Take no more records, and give callbacks to the outcome; under the producer's lock."""
        none: list[Any] = []
        with cython.critical_section(self):
            self.limit = 0  # From now on `put` refuses every record.
            added, self._callbacks = self._callbacks, none
        outcome = self.outcome
        if added:
            later = outcome.callbacks
            # The first record comes on the slow path, and its callback is there already.
            is_sorted = len(later) > 0 and later[len(later) - 2] < added[0]
            outcome.callbacks = later + added if is_sorted else added + later
        if self._is_forgotten:
            outcome.is_forgotten = True

    def seal(self) -> SealedBatch:
        """The batch as it is sent; from now on no record gets into it."""
        self.close()
        self.outcome.timestamps = self.timestamps()
        return SealedBatch(
            outcome=self.outcome,
            records=EncodedRecords.of(self),
            record_count=self.record_count,
            size=self.position,
            created_at=self.created_at,
            reserved=self.reserved,
        )

    def timestamps(self) -> "array[int]":
        return self.times[: self.record_count]


class OpenBatches:
    """The open batches of one producer."""

    if not cython.compiled:
        __slots__ = (
            "_by_partition",
            "_now_ns",
            "_rule",
            "_sticky",
            "_takes_keys",
            "_takes_records",
        )

    if TYPE_CHECKING:
        _sticky: dict[str, OpenBatch]
        _by_partition: dict[str, list[OpenBatch | None]]
        _takes_records: bool
        _takes_keys: bool
        _rule: KeyRule | None
        _now_ns: Callable[[], int] | None

    def __init__(
        self, config: ProducerConfig, plugins: "Plugins", now_ns: Callable[[], int]
    ) -> None:
        self._sticky = {}
        self._by_partition = {}
        self._takes_records = plugins.is_plain
        self._takes_keys = plugins.key_serializer is None
        rule = KEY_RULES[config.partitioner]
        if config.partitioner_ignore_keys:
            self._rule = lambda _, count: rule(None, count)
        else:
            self._rule = None if config.partitioner == DEFAULT_RULE else rule
        # The system's clock is read in C, without a call of Python's function (decision 69).
        self._now_ns = None if cython.compiled and now_ns is time_ns else now_ns

    def take(
        self,
        topic: object,
        value: object,
        key: object,
        headers: object,
        timestamp: object,
        partition: object,
        on_delivery: object,
        wants_receipt: bool,
    ) -> "Receipt | bool":
        """Add a record, as `send` gets it, to the open batch of its partition.

        Returns:
            Its receipt, or True if none is wanted; False, with nothing done, where the engine has
            to decide.
        """
        if not self._takes_records or type(topic) is not str:
            return False
        if on_delivery is not None and not callable(on_delivery):
            return False
        # All is decided before anything changes, since the engine repeats the whole of it.
        try:
            octets = octets_of(value)
            key_octets = octets_of(key)
            encoded = b"" if headers is None else pack_headers(headers)
        except (TypeError, UnicodeEncodeError):
            return False
        if key_octets is not None and not self._takes_keys:
            return False
        batch = self._batch_for(topic, key_octets, partition)
        if batch is None:
            return False
        if timestamp is None:
            time = self._now_ms()
        elif type(timestamp) is int and NOW < timestamp <= INT64_MAX:
            time = timestamp
        else:
            return False
        # The batch may have been closed by another thread since it was found.
        index = batch.add(octets, key_octets, encoded, time, on_delivery, not wants_receipt)
        if index < 0:
            return False
        return receipt_of(batch.outcome, index) if wants_receipt else True

    def _batch_for(self, topic: str, key: bytes | None, partition: object) -> OpenBatch | None:
        """The open batch for a record with this key and this partition of its own, if any."""
        batches = self._by_partition.get(topic)
        if batches is None:
            return None
        chosen = _NO_PARTITION
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(batches):
                return None
            chosen = partition
        elif self._rule is not None:
            chosen = self._rule(key, len(batches))  # One of KEY_RULES: no user code.
        elif key is not None:
            chosen = choose_partition(key, len(batches))
        return self._sticky.get(topic) if chosen == _NO_PARTITION else batches[chosen]

    def _now_ms(self) -> int:
        if self._now_ns is None:
            return system_ms()  # type: ignore[no-any-return]  # noqa: F821
        return self._now_ns() // _NS_PER_MS

    def sticky(self, topic: str) -> OpenBatch | None:
        """The open batch for records of a topic that may go to any partition."""
        return self._sticky.get(topic)

    def show(self, batch: OpenBatch, partition_count: int | None, *, is_sticky: bool) -> None:
        """Let records get into an open batch on the fast path, by their key or partition too.

        Not by these while the number of the topic's partitions is not known.
        """
        topic, partition = batch.partition
        if is_sticky:
            self._sticky[topic] = batch
        if partition_count is not None:
            batches = self._by_partition.setdefault(topic, [None] * partition_count)
            if partition < len(batches):
                batches[partition] = batch

    def hide(self, batch: OpenBatch) -> bool:
        """Let no record get into a batch on the fast path; returns whether it is the sticky one."""
        topic, partition = batch.partition
        batches = self._by_partition.get(topic, [])
        if partition < len(batches) and batches[partition] is batch:
            batches[partition] = None
        if self._sticky.get(topic) is not batch:
            return False
        del self._sticky[topic]
        return True

    def forget_partitions(self, topic: str) -> None:
        """Turn the fast path off for records of a topic with a key or a partition of their own.

        For a topic that has other partitions now: keys belong to others of them.
        """
        self._by_partition.pop(topic, None)

    def shut(self, topic: str) -> None:
        """Turn the fast path off for a topic, until a new batch is opened for its records.

        The present batch stays open for records that come on the slow path.
        """
        self._sticky.pop(topic, None)
        self._by_partition.pop(topic, None)

    def clear(self) -> None:
        self._sticky.clear()
        self._by_partition.clear()

    def halt(self) -> None:
        """Take no more records; the engine still opens batches for those that it has."""
        self._takes_records = False


def octets_of(data: object) -> bytes | None:
    """A key or value as it is sent; raises TypeError for unusual types, and UnicodeEncodeError."""
    if data is None or type(data) is bytes:
        return data
    if type(data) is str:
        return data.encode()
    raise TypeError("an unusual type")


class SendCall:
    """Sends a record into an open batch, and leaves the others to its subclass."""

    if TYPE_CHECKING:
        _batches: OpenBatches

    def _send_into(self, batches: OpenBatches) -> None:
        self._batches = batches

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
    # A producer whose `__init__` has failed has no `_batches`; elsewhere the check is for nothing.
    @cython.nonecheck(True)  # type: ignore[untyped-decorator]
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
        by default the time of this call; before 1970 it is negative, and -1 means no time.
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
        taken = self._batches.take(
            topic, value, key, headers, timestamp, partition, on_delivery, receipt
        )
        if taken is False:
            return self._send_slowly(
                topic, value, key, headers=headers, timestamp=timestamp, partition=partition,
                on_delivery=on_delivery, receipt=receipt,
            )  # fmt: skip
        return None if taken is True else taken

    def _send_slowly(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        headers: HeadersLike | None,
        timestamp: int | None,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        receipt: bool,
    ) -> Receipt | None:
        """Send a record that needs the engine."""
        raise NotImplementedError
