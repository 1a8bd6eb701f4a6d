"""`OpenBatches`: the open batches of each topic, and the fast path of `send` into them.

Records go straight into the open batch of their partition, where there is one with room. Whatever
is not decided here takes the way through `engine`: the first record of a batch, fields of unusual
or wrong types, serializers, interceptors and partitioners of the user.

Not here: when batches are opened and closed (`engine`, `accumulator`).

Invariant: threads may send at any time, and no lock is needed. A batch that was closed since it was
found here refuses the record. All methods but `take` are called under the producer's lock.
"""

from collections.abc import Callable
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

import cython

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.partitioners import DEFAULT_RULE, KEY_RULES, NO_PARTITION
from tailrace.client.producer.queue.open_batch import OpenBatch
from tailrace.config.settings import INT64_MAX
from tailrace.kernels.record_block import NOW

if not cython.compiled:
    from tailrace.client.producer.receipts import receipt_of
    from tailrace.kernels.encoding import choose_partition
    from tailrace.kernels.record_block import pack_headers

if TYPE_CHECKING:
    from tailrace.client.producer.intake.plugins import Plugins
    from tailrace.client.producer.partitioners import KeyRule
    from tailrace.client.producer.receipts import Receipt

    system_ms: Any

_NS_PER_MS: Final = 1_000_000
_NO_PARTITION: Final = NO_PARTITION


class OpenBatches:
    """The open batches of one producer."""

    if not cython.compiled:
        __slots__ = ("_now_ns", "_places", "_rule", "_sticky", "_takes_keys", "_takes_records")

    if TYPE_CHECKING:
        _sticky: dict[str, OpenBatch]
        _places: dict[str, list[OpenBatch | None]]
        _takes_records: bool
        _takes_keys: bool
        _rule: KeyRule | None
        _now_ns: Callable[[], int] | None

    def __init__(
        self, config: ProducerConfig, plugins: "Plugins", now_ns: Callable[[], int]
    ) -> None:
        self._sticky = {}
        self._places = {}
        self._takes_records = plugins.is_plain
        self._takes_keys = plugins.key_serializer is None
        rule = KEY_RULES[config.partitioner]
        if config.partitioner_ignore_keys:
            self._rule = lambda _, count: rule(None, count)
        else:
            self._rule = None if config.partitioner == DEFAULT_RULE else rule
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
        index = batch.add(octets, key_octets, encoded, time, on_delivery, not wants_receipt)
        if index < 0:
            return False
        return receipt_of(batch.outcome, index) if wants_receipt else True

    def _batch_for(self, topic: str, key: bytes | None, partition: object) -> OpenBatch | None:
        """The open batch for a record with this key and this partition of its own, if any."""
        places = self._places.get(topic)
        if places is None:
            return None
        chosen = _NO_PARTITION
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(places):
                return None
            chosen = partition
        elif self._rule is not None:
            chosen = self._rule(key, len(places))
        elif key is not None:
            chosen = choose_partition(key, len(places))
        return self._sticky.get(topic) if chosen == _NO_PARTITION else places[chosen]

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
            places = self._places.setdefault(topic, [None] * partition_count)
            if partition < len(places):
                places[partition] = batch

    def hide(self, batch: OpenBatch) -> bool:
        """Let no record get into a batch on the fast path; returns whether it is the sticky one."""
        topic, partition = batch.partition
        places = self._places.get(topic, [])
        if partition < len(places) and places[partition] is batch:
            places[partition] = None
        if self._sticky.get(topic) is not batch:
            return False
        del self._sticky[topic]
        return True

    def forget_places(self, topic: str) -> None:
        """Turn the fast path off for records of a topic with a key or a partition of their own.

        For a topic that has other partitions now: keys belong to others of them.
        """
        self._places.pop(topic, None)

    def shut(self, topic: str) -> None:
        """Turn the fast path off for a topic, until a new batch is opened for its records.

        The present batch stays open for records that come on the slow path.
        """
        self._sticky.pop(topic, None)
        self._places.pop(topic, None)

    def clear(self) -> None:
        """Forget all batches."""
        self._sticky.clear()
        self._places.clear()

    def halt(self) -> None:
        """Take no more records; the engine goes on to open batches for those that it has."""
        self._takes_records = False


def octets_of(data: object) -> bytes | None:
    """A key or value as it is sent; raises TypeError for unusual types, and UnicodeEncodeError."""
    if data is None or type(data) is bytes:
        return data
    if type(data) is str:
        return data.encode()
    raise TypeError("an unusual type")
