"""`Partitioning`: chooses the partition of each record, by the first of these that applies.

    its own       that of the record
    custom        a `Partitioner`: `RoundRobinPartitioner`, or the user's
    with a key    murmur2 of its bytes, as in all Kafka clients (`choose_partition`), or another of
                  `KEY_RULES` by the setting `partitioner`
    without key   one partition until a batch is full, then another (`StickyPartitioner`)

Not here: which partitions a topic has, and which of them have a leader; see `metadata`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from operator import index

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import RejectedRecordError, UnknownTopicError
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.client.producer.partitioners import KEY_RULES, Partitioner
from tailrace.client.producer.queue.accumulator import Accumulator
from tailrace.model import TopicPartition


class StickyPartitioner:
    """Chooses the partition of records without a key: one at a time, to fill batches (KIP-480).

    A topic's partition changes after `batch_size` bytes, so that all partitions get the same number
    of bytes in the long run, however fast their brokers are (KIP-794). If the queue sizes are
    known, partitions with short queues are chosen more often.
    """

    def __init__(self, batch_size: int, chance: random.Random) -> None:
        if batch_size < 1:
            raise ValueError(f"batch.size is {batch_size}; a partition must take at least 1 byte")
        self._batch_size = batch_size
        self._chance = chance
        self._current: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._queue_sizes: dict[str, Mapping[int, int]] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        """The current partition of a topic.

        If it is time for another one, that is chosen from `available`, or from all partitions if
        `available` is empty.
        """
        # A topic may have got another number of partitions since (one that was deleted and made
        # again has fewer).
        current = self._current.get(topic, -1)
        if 0 <= current < partition_count:
            return current
        chosen = self._choose(topic, partition_count, available)
        self._current[topic] = chosen
        self._bytes[topic] = 0
        return chosen

    def appended(self, topic: str, size: int, *, has_open_batch: bool) -> None:
        """Count `size` bytes that went to the topic's current partition.

        With an open batch, the partition stays for up to twice as many bytes, because changing it
        before the batch is full would send a small batch.
        """
        total = self._bytes.get(topic, 0) + size
        self._bytes[topic] = total
        # By bytes and not by batches: the batches of a slow broker grow larger, so it would get
        # more records than a fast one (KIP-794).
        if total >= self._batch_size * (2 if has_open_batch else 1):
            self._current.pop(topic, None)

    def update_load(self, topic: str, queue_sizes: Mapping[int, int]) -> None:
        """Set the number of waiting batches for each partition that may be chosen from now on.

        A missing partition is not chosen; so one with a slow leader is avoided
        (`partitioner.availability.timeout.ms`). An empty mapping means that nothing is known.
        """
        self._queue_sizes[topic] = queue_sizes

    def _choose(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        sizes = {
            each: size
            for each, size in self._queue_sizes.get(topic, {}).items()
            if 0 <= each < partition_count
        }
        if sizes:
            longest = max(sizes.values())
            # As Kafka's BuiltInPartitioner (KIP-794): the shorter the queue, the more often.
            weights = [longest + 1 - size for size in sizes.values()]
            return self._chance.choices(list(sizes), weights)[0]
        return self._chance.choice(available or range(partition_count))


class Partitioning:
    """Chooses partitions; all but `choose` and `own_choice` is called under the producer's lock."""

    def __init__(
        self,
        config: ProducerConfig,
        partitioner: Partitioner | None,
        *,
        metadata: ProducerMetadata,
        accumulator: Accumulator,
        slow_nodes: Callable[[float], frozenset[int]],
        chance: random.Random,
    ) -> None:
        """`slow_nodes` returns the nodes that have taken no request for these seconds."""
        self._config = config
        self._partitioner = partitioner
        self._by_key = KEY_RULES[config.partitioner]
        self._metadata = metadata
        self._accumulator = accumulator
        self._slow_nodes = slow_nodes
        self._sticky = StickyPartitioner(config.batch_size, chance)

    def choose(self, prepared: Prepared, partition_count: int) -> int:
        """The record's own partition, or that of the partitioner or the key; else `NO_PARTITION`.

        Raises:
            UnknownTopicError: the topic does not have the record's own partition.
            RejectedRecordError: the partitioner failed, or chose a partition that does not exist.
        """
        record = prepared.record
        if record.partition is not None:
            if not 0 <= record.partition < partition_count:
                raise UnknownTopicError(
                    f"{record.topic} has partitions 0 to {partition_count - 1}, "
                    f"and the record is for {record.partition}"
                )
            return record.partition
        if self._partitioner is not None:
            return self.own_choice(
                record.topic, prepared.key, prepared.value, partition_count=partition_count
            )
        key = None if self._config.partitioner_ignore_keys else prepared.key
        return self._by_key(key, partition_count)

    def sticky(self, topic: str) -> int:
        """The topic's current sticky partition.

        Raises:
            UnknownTopicError: the topic's metadata is not known any more.
        """
        counted = self._metadata.partition_count(topic)
        if counted is None:
            raise UnknownTopicError(f"{topic}: its metadata has gone; was the topic deleted?")
        return self._sticky.partition(topic, counted, self._metadata.available_partitions(topic))

    def choose_for_many(self, topic: str) -> int:
        """The sticky partition, for all rows of a chunk without a partition; changes it then.

        Raises:
            UnknownTopicError: the topic's metadata is not known any more.
        """
        # Rows of a chunk fill whole batches, so the next chunk goes elsewhere.
        chosen = self.sticky(topic)
        self._sticky.appended(topic, self._config.batch_size, has_open_batch=False)
        return chosen

    def filled(self, topic: str, size: int, *, size_max: int) -> None:
        """Note that a batch of the sticky partition was sealed; the partition may change then."""
        # A batch is closed when the next record does not fit, so a full one has some bytes left.
        is_full = 8 * size > 7 * size_max
        self._sticky.appended(
            topic, self._config.batch_size if is_full else size, has_open_batch=False
        )
        if self._config.partitioner_adaptive_partitioning_enable:
            self._sticky.update_load(topic, self._load(topic))

    def _load(self, topic: str) -> dict[int, int]:
        """The number of waiting batches of each partition that may be chosen."""
        sizes = dict.fromkeys(self._metadata.available_partitions(topic), 0)
        if len(sizes) <= 1:
            return {}  # Nothing to choose from.
        for partition, queue in self._accumulator.queues.items():
            if partition.topic == topic and partition.partition in sizes:
                sizes[partition.partition] = len(queue)
        timeout_s = self._config.partitioner_availability_timeout_ms / 1000
        slow = self._slow_nodes(timeout_s) if timeout_s else frozenset()
        for number in list(sizes) if slow else ():
            leader = self._metadata.leader(TopicPartition(topic, number))
            if leader is None or leader.node_id in slow:
                del sizes[number]
        return sizes

    def own_choice(
        self, topic: str, key: bytes | None, value: bytes | None, *, partition_count: int
    ) -> int:
        """The partition that the user's partitioner chooses; there must be one.

        Raises:
            RejectedRecordError: the partitioner failed, or chose a partition that does not exist.
        """
        assert self._partitioner is not None, "asked for the choice of no partitioner"
        try:
            chosen = index(
                self._partitioner.partition(
                    topic,
                    key,
                    value,
                    partition_count=partition_count,
                    available=self._metadata.available_partitions(topic),
                )
            )
        except Exception as error:
            raise RejectedRecordError(f"{topic}: the partitioner failed: {error!r}") from error
        if not 0 <= chosen < partition_count:
            raise RejectedRecordError(
                f"{topic}: the partitioner chose {chosen!r}, and the last partition is "
                f"{partition_count - 1}"
            )
        return chosen
