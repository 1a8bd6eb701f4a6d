"""`ScriptedLog`: the log of one partition on a Kafka leader, in memory.

It checks each batch's CRC and reads its records, and applies the leader's rules for producers with
an id (KIP-98, KIP-360): the next sequence number, the last five batches, epochs that never fall. It
also knows which records the end of a transaction has made visible.

`cluster` has the leaders, `coordinator` the transactions over several partitions.

Invariant: a record is in `records` if and only if a leader appended it.
"""

from collections import deque
from dataclasses import field
from typing import NamedTuple

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Buffer
from tailrace.records.batch import Batch, CorruptBatchError, read_batches
from tailrace.records.builder import records_of
from tailrace.values import dataclass

REMEMBERED = 5
"""Number of a producer's batches that a leader remembers, to detect duplicates."""


class AppendedRecord(NamedTuple):
    """A record in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    is_transactional: bool


class ScriptedAppend(NamedTuple):
    """The result of an append: error code and base offset."""

    error: ErrorCode
    base_offset: int = -1


@dataclass(slots=True)
class ScriptedProducer:
    """The state of a producer on its leader."""

    epoch: int
    last_sequence: int = -1
    """-1 if nothing was written in this epoch."""
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """First sequence, last sequence and base offset of the newest batches."""


class ScriptedLog:
    """One partition's records."""

    def __init__(self) -> None:
        self.records: list[AppendedRecord] = []
        self.producers: dict[int, ScriptedProducer] = {}
        self.start_offset = 0
        self.end_offset = 0
        self.batch_bytes_max = 1 << 30
        """Larger batches get MESSAGE_TOO_LARGE."""
        self._outcomes: dict[int, bool] = {}
        """Whether a transactional record was committed, by offset; open ones have no entry."""

    def values(self) -> list[bytes | None]:
        """The values of all records, in order, whether visible or not."""
        return [each.value for each in self.records]

    def visible(self) -> list[AppendedRecord]:
        """The records that a `read_committed` consumer gets: up to the first open transaction."""
        seen = []
        for each in self.records:
            if each.is_transactional and each.offset not in self._outcomes:
                break
            if not each.is_transactional or self._outcomes[each.offset]:
                seen.append(each)
        return seen

    def forget_producers(self) -> None:
        """Drop all producer state, as if all records were deleted."""
        self.producers.clear()
        self.start_offset = self.end_offset

    def append(self, data: Buffer) -> ScriptedAppend:
        """Append one batch, if the rules allow it."""
        try:
            ((_, batch),) = read_batches(memoryview(data))
            batch.check()
            records = list(records_of(batch))
        except (CorruptBatchError, ValueError):
            return ScriptedAppend(ErrorCode.CORRUPT_MESSAGE)
        if len(memoryview(data)) > self.batch_bytes_max:
            return ScriptedAppend(ErrorCode.MESSAGE_TOO_LARGE)
        if batch.producer_id >= 0:
            refused = self._check(batch)
            if refused is not None:
                return refused
        base_offset = self.end_offset
        self.end_offset += batch.record_count
        self.records += (
            AppendedRecord(
                base_offset + place,
                each.timestamp,
                each.key,
                each.value,
                tuple((key, value) for key, value in each.headers),
                batch.producer_id,
                batch.is_transactional,
            )
            for place, each in enumerate(records)
        )
        if batch.producer_id >= 0:
            known = self.producers[batch.producer_id]
            known.last_sequence = batch.last_sequence
            known.batches.append((batch.base_sequence, batch.last_sequence, base_offset))
        return ScriptedAppend(ErrorCode.NONE, base_offset)

    def end_transaction(self, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        """Write the marker that commits or aborts the producer's open records."""
        self.end_offset += 1
        for each in self.records:
            if each.producer_id == producer_id and each.is_transactional:
                self._outcomes.setdefault(each.offset, is_commit)
        known = self.producers.get(producer_id)
        if known is None or known.epoch < epoch:
            self.producers[producer_id] = ScriptedProducer(epoch)

    def _check(self, batch: Batch) -> ScriptedAppend | None:
        """The result for a batch that is not appended, or None; notes the epoch of one that is."""
        known = self.producers.get(batch.producer_id)
        if known is None:
            # Kafka accepts any sequence from a producer without state.
            self.producers[batch.producer_id] = ScriptedProducer(batch.producer_epoch)
            return None
        if batch.producer_epoch < known.epoch:
            return ScriptedAppend(ErrorCode.INVALID_PRODUCER_EPOCH)
        if batch.producer_epoch > known.epoch:
            if batch.base_sequence != 0:
                return ScriptedAppend(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            self.producers[batch.producer_id] = ScriptedProducer(batch.producer_epoch)
            return None
        for first, last, base_offset in known.batches:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ScriptedAppend(ErrorCode.NONE, base_offset)
        if batch.base_sequence != (known.last_sequence + 1) % (1 << 31):
            return ScriptedAppend(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return None
