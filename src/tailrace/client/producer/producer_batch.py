"""`ProducerBatch`: a batch that the program fills itself, and sends whole to one partition.

A program that decides which records belong together, and where they go, fills one of these with
`append` until that returns False. `send_batch` then puts it into the queue of its partition, where
it is one batch as those of `send_many` are.

Not here: memory, which is taken from `buffer.memory` when the batch is sent, and the outcome
(`results`).

Invariant: a record is in the batch completely or not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from tailrace.client.producer.errors import ClosedBatchError, RejectedRecordError
from tailrace.client.producer.intake.encoding import (
    BATCH_OVERHEAD,
    TIMESTAMP_OVERHEAD,
)
from tailrace.client.producer.intake.records import plain_partition, plain_record
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.partitioners import NO_PARTITION
from tailrace.client.producer.plugins import Header, ProducerRecord
from tailrace.client.producer.queue.batches import EncodedRecords, FilledRecords
from tailrace.client.producer.queue.open_batches import OpenBatch
from tailrace.errors import TailraceError, kind_of
from tailrace.kernels.record_block import NO_ROOM
from tailrace.model import TopicPartition
from tailrace.records.builder import RECORD_OVERHEAD_MAX

if TYPE_CHECKING:
    from tailrace.client.producer.engine import Engine

_FIRST_BYTES: Final = 4096
_FIRST_RECORDS: Final = 32
"""Bytes and records for which there is room at first."""

_MORE_ROOM: Final = TIMESTAMP_OVERHEAD + RECORD_OVERHEAD_MAX
"""Bytes by which a record may be larger than its bound: far from the first one in time, or in a
batch of more than a mebibyte."""


class ProducerBatch:
    """Records of one topic, which are sent as one batch; made by `create_batch`.

    One thread or task at a time fills it. It takes nothing from `buffer.memory` before it is sent.
    """

    __slots__ = ("_batch", "_engine", "_is_closed", "_is_sent", "topic")

    def __init__(self, engine: "Engine", topic: str) -> None:
        self.topic = topic
        """The topic to which it is sent."""
        self._engine = engine
        size_max = engine.accumulator.supply.batch_size(topic)
        # Its outcome is not used: the partition is not known yet.
        self._batch = OpenBatch(
            BatchOutcome(TopicPartition(topic, NO_PARTITION), engine.waiting),
            created_at=0.0,
            size_limit=max(BATCH_OVERHEAD, min(_FIRST_BYTES, size_max)),
            size_max=size_max,
            count_limit=_FIRST_RECORDS,
            reserved=0,
        )
        self._is_closed = False
        self._is_sent = False

    @property
    def record_count(self) -> int:
        """Number of records until now."""
        return self._batch.record_count

    @property
    def size(self) -> int:
        """Bytes of the batch until now, before compression."""
        return self._batch.position

    def append(
        self,
        value: object = None,
        key: object = None,
        *,
        headers: Mapping[str, bytes | None] | Sequence[Header] | None = None,
        timestamp: int | None = None,
    ) -> bool:
        """Add a record; returns False, with nothing added, if the batch has no room for it.

        Room is `batch.size` bytes before compression; the first record may be larger, up to
        `max.request.size`. The arguments are those of `send`. Interceptors and serializers are
        called here, also for a record that finds no room. A record that is refused with an error
        does not affect the others.

        Raises:
            TypeError: an argument is of a type that cannot be sent; the message names it.
            RejectedRecordError: the record is too large for any batch, its timestamp is out of
                range, or an interceptor has changed its topic or chosen a partition.
            SerializationError: a serializer failed.
            ClosedBatchError: the batch was closed or sent.
        """
        self._check_open()
        engine = self._engine
        named = () if headers is None else cast("Any", headers)
        given = ProducerRecord(self.topic, value, key, named, timestamp)
        record = plain_record(given, engine.plugins)
        now_ns = engine.now_ns()
        try:
            prepared = engine.preparation.prepare(record)
            if (prepared.record.topic, prepared.record.partition) != (self.topic, None):
                raise RejectedRecordError(
                    f"{self.topic}: an interceptor has changed the topic or chosen a partition; "
                    "all records of a batch go where send_batch says"
                )
        except TailraceError as error:
            engine.interceptors.on_send_error(record, error)
            raise
        # `prepared.size` is the bound of most records; one that is far from the first in time, or
        # beyond a mebibyte, may need more room.
        for extra in (0, _MORE_ROOM, _MORE_ROOM):
            if self._batch.append_prepared(prepared, now_ns) != NO_ROOM:
                return True
            self._check_open()  # Another thread may have sent the batch meanwhile.
            if not self._has_room(prepared.size + extra):
                return False
        raise AssertionError("there was room for the record")

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedBatchError(f"{self.topic}: {self._closed_by}, and takes no more records")

    def _has_room(self, size: int) -> bool:
        """Whether there is room for `size` bytes; makes it, up to `batch.size`."""
        batch = self._batch
        used, count = batch.position, batch.record_count
        if count and used + size > batch.size_max:
            return False
        if used + size > batch.limit or count >= batch.count_limit:
            larger = min(2 * batch.limit, batch.size_max)
            batch.grow(size_limit=max(used + size, larger), count_limit=2 * batch.count_limit)
        return True

    def close(self) -> None:
        """Take no more records; sending does this too. Idempotent."""
        self._is_closed = True

    @contextmanager
    def sending(self, engine: "Engine", partition: object) -> Iterator[FilledRecords]:
        """Close the batch, and give its records to the one block that sends them; under the lock.

        If the block raises, nothing was sent, and the batch may be sent again; not after Ctrl-C,
        which may come when it is in the queue already.

        Raises:
            TypeError, ValueError: the partition is no number from 0 on, the batch has no records,
                or another producer has made it.
            ClosedBatchError: it was sent before.
        """
        plain = plain_partition(partition)
        if engine is not self._engine:
            raise ValueError(f"{self.topic}: the batch belongs to the producer that created it")
        if self._is_sent:
            raise ClosedBatchError(f"{self.topic}: the batch was sent; create another one")
        if not self.record_count:
            raise ValueError(f"{self.topic}: the batch has no records")
        self._is_closed = self._is_sent = True
        try:
            sealed = self._batch.seal()
            assert isinstance(sealed.records, EncodedRecords), "an open batch has its bytes"
            yield FilledRecords(plain, sealed.records, self._batch.timestamps())
        # After Ctrl-C it may be in the queue already; sending it again could write it twice.
        except BaseException as error:
            self._is_sent = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
            raise

    @property
    def _closed_by(self) -> str:
        return "the batch was sent" if self._is_sent else "the batch is closed"

    def __repr__(self) -> str:
        state = (
            self._closed_by if self._is_closed else f"{self.size} of {self._batch.size_max} bytes"
        )
        return f"<ProducerBatch for {self.topic}: {self.record_count} records, {state}>"


def check_batch(batch: object) -> None:
    if not isinstance(batch, ProducerBatch):
        raise TypeError(
            f"batch is {kind_of(batch)}; it has to be a batch from create_batch(), and rows go to "
            "send_many()"
        )
