"""A target for replays in memory: logs with the broker's rules for producers, and bad connections.

What a client sends goes through a queue, as through a socket. When the connection breaks, a part of
the queue is in the log without anybody knowing, and another part may arrive later.

It numbers batches as the producer does under an owned identity, and sends the first of a partition
alone; tests/simulation/test_owned_identity.py has the producer itself.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tailrace.client.producer import OwnedIdentity
from tailrace.client.producer.intake.encoding import BatchFields
from tailrace.client.producer.intake.slices import ColumnSlice
from tailrace.model import Codec, TopicPartition
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.runtime.files import DiskFiles
from tailrace.spark.jobs.replay_ends import OvertakenError, PlacedCallback, TargetSettings
from tailrace.storage.producers import ProducerSequenceError, ProducerStates


class BrokenConnectionError(Exception):
    """Ends an attempt, as the death of its process would."""


class Break(NamedTuple):
    """A way in which a connection ends."""

    sends: int
    """Batches that are sent before."""
    refused: int
    """Number of batches under way, from the first on, that the broker refuses for the moment."""
    arrived: int
    """Number of batches under way that arrive all the same, with the refused ones."""
    late: bool
    """Whether these arrive only when the next attempt has begun to send."""


class Logs:
    """The partitions of a topic."""

    def __init__(self) -> None:
        self.start: dict[TopicPartition, int] = {}
        self._batches: dict[TopicPartition, list[Batch]] = {}
        self._states: dict[TopicPartition, ProducerStates] = {}
        self._late: deque[tuple[TopicPartition, bytes]] = deque()

    def end(self, partition: TopicPartition) -> int:
        """The offset behind the last record."""
        batches = self._batches.get(partition)
        return int(batches[-1].next_offset) if batches else 0

    def batches(self, partition: TopicPartition) -> list[Batch]:
        """Return the batches that were not removed."""
        start = self.start.get(partition, 0)
        return [each for each in self._batches.get(partition, []) if each.base_offset >= start]

    def records(self, partition: TopicPartition) -> list[Record]:
        """Records of all batches of producers."""
        return [
            record
            for batch in self.batches(partition)
            if batch.has_producer
            for record in records_of(batch)
        ]

    def append(self, partition: TopicPartition, data: bytes) -> int:
        """Append a batch as a broker does; return the base offset.

        Raises:
            ProducerSequenceError: the sequence number is not the producer's next one.
        """
        buffer = bytearray(data)
        stamp(memoryview(buffer), base_offset=self.end(partition), leader_epoch=0)
        batch = Batch(memoryview(bytes(buffer)))
        if batch.has_producer:
            states = self._states.setdefault(partition, ProducerStates(DiskFiles(), "unused"))
            repeated = states.check(batch)
            if repeated is not None:
                return repeated.last_offset - repeated.offset_delta
            states.note(
                batch, base_offset=batch.base_offset, last_offset=batch.last_offset, timestamp=0
            )
        self._batches.setdefault(partition, []).append(batch)
        return int(batch.base_offset)

    def append_foreign(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Append records of another program."""
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, timestamp=1)
        self.append(partition, bytes(builder.build()))

    def forget_producers(self) -> None:
        """Forget all producers, as a broker does after `producer.id.expiration.ms`."""
        self._states.clear()

    def deliver(self, sent: Iterable[tuple[TopicPartition, bytes]], *, late: bool) -> None:
        """Let batches arrive although their connection is over."""
        if late:
            self._late.extend(sent)
            return
        for partition, data in sent:
            try:
                self.append(partition, data)
            except ProducerSequenceError:
                return  # What comes behind it on the connection is out of order, too.

    def deliver_late(self) -> None:
        """Let the batches arrive that were under way for so long."""
        sent = [*self._late]
        self._late.clear()
        self.deliver(sent, late=False)


class _Queued(NamedTuple):
    """A batch under way."""

    partition: TopicPartition
    data: bytes
    record_count: int
    placed: PlacedCallback


class Connection:
    """One attempt's way to the logs; a `Target`."""

    def __init__(
        self,
        logs: Logs,
        end: Break | None = None,
        *,
        before_send: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`before_send` is called with the number of each batch, from 0, before it is sent."""
        self._logs = logs
        self._end = end
        self._before_send = before_send
        self._count = 0
        self._bytes = 0
        self._queue: deque[_Queued] = deque()
        self._acknowledged: set[TopicPartition] = set()
        self._identity = OwnedIdentity(producer_id=0, producer_epoch=0, first_sequences={})
        self._sequences: dict[TopicPartition, int] = {}

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the start and the end of the log."""
        return self._logs.start.get(partition, 0), self._logs.end(partition)

    def batches(self, partition: TopicPartition, start: int, limit: int) -> Iterator[Batch]:
        """Yield the batches between two offsets that were not removed."""
        for each in self._logs.batches(partition):
            if start < each.next_offset and each.base_offset < limit:
                yield each

    def begin(self, identity: OwnedIdentity) -> None:
        """Number batches from here on."""
        self._queue.clear()
        self._acknowledged.clear()
        self._identity = identity
        self._sequences = {**identity.first_sequences}

    def send(self, topic: str, rows: ColumnSlice, placed: PlacedCallback) -> None:
        """Has at most five under way, and one of a partition until it is acknowledged."""
        assert rows.partition is not None
        partition = TopicPartition(topic, rows.partition)
        if self._end is not None and self._count == self._end.sends:
            sent = [(each.partition, each.data) for each in self._queue]
            self._queue.clear()
            sent = sent[self._end.refused : self._end.arrived]
            self._logs.deliver(sent, late=self._end.late)
            raise BrokenConnectionError
        self._before_send(self._count)
        self._count += 1
        if self._count == 2:
            self._logs.deliver_late()
        data = self._encoded(partition, rows)
        self._bytes += len(data)
        self._queue.append(_Queued(partition, data, rows.record_count, placed))
        if partition not in self._acknowledged:
            self.settle()
        elif len(self._queue) == 5:
            self._answer()

    def settle(self) -> int:
        """Answer all batches under way."""
        while self._queue:
            self._answer()
        return self._bytes

    def _encoded(self, partition: TopicPartition, rows: ColumnSlice) -> bytes:
        identity, sequence = self._identity, self._sequences[partition]
        self._sequences[partition] += rows.record_count
        fields = BatchFields(
            Codec.NONE, None, identity.producer_id, identity.producer_epoch, sequence
        )
        return bytes(rows.encode(bytearray(rows.size_bound), fields))

    def _answer(self) -> None:
        queued = self._queue.popleft()
        try:
            base_offset = self._logs.append(queued.partition, queued.data)
        except ProducerSequenceError as error:
            self._queue.clear()
            raise OvertakenError(str(error)) from error
        self._acknowledged.add(queued.partition)
        queued.placed(0, base_offset, queued.record_count)


def settings_of(batch_size: int) -> TargetSettings:
    """A target's settings with batches of this size."""
    return TargetSettings(
        bootstrap="nowhere:1",
        producer_settings={},
        batch_size=batch_size,
        request_size_max=1 << 20,
    )
