"""`SealedBatch`: the records of one batch, which do not change any more.

Its records are those of an open batch (`RecordColumns`) or rows of columns (`ColumnSlice`).

Not here: what is known of it once it is being sent (`in_flight_batch`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.producer.intake.encoding import BatchFields, encode_batch
from tailrace.client.producer.outcome import BatchOutcome, run_of
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice


class RecordColumns(NamedTuple):
    """Records that `send` was given, in columns."""

    values: Sequence[bytes | None]
    times: Sequence[float]
    """Wall clock seconds at `send`."""
    keys: Sequence[bytes | None] | None
    headers: Mapping[int, bytes] | None
    """Encoded with their count, by index."""
    explicit: Mapping[int, int] | None
    """Timestamps that callers gave, in ms, by index."""

    def encode(self, block: bytearray | memoryview, fields: BatchFields) -> memoryview:
        """The encoded batch, at the start of `block` if it fits there, else in new memory."""
        return encode_batch(
            self.values,
            self.times,
            keys=self.keys,
            headers=self.headers,
            explicit=self.explicit,
            fields=fields,
            block=block,
        )

    def split(self, parts: int) -> "list[RecordColumns]":
        """Split the records into `parts` consecutive runs of about equal count.

        There must be at least as many records.
        """
        count = len(self.values)
        cuts = [count * part // parts for part in range(parts + 1)]
        return [
            RecordColumns(
                self.values[start:stop],
                self.times[start:stop],
                None if self.keys is None else self.keys[start:stop],
                headers=run_of(self.headers, start, stop),
                explicit=run_of(self.explicit, start, stop),
            )
            for start, stop in pairwise(cuts)
        ]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SealedBatch:
    """Records of one partition that are sent, retried and acknowledged together."""

    outcome: BatchOutcome
    records: "RecordColumns | ColumnSlice"
    record_count: int
    size: int
    """Upper bound of the encoded size in bytes, before compression."""
    created_at: float
    """Monotonic seconds; `delivery.timeout.ms` counts from here."""
    reserved: int
    """Bytes taken from the buffer pool."""

    @property
    def partition(self) -> TopicPartition:
        """The partition of all its records."""
        return self.outcome.partition

    def split(self) -> "list[SealedBatch]":
        """Two batches with the records of this one, which become its outcome's parts.

        They keep `created_at`, so `delivery.timeout.ms` goes on counting.
        """
        halves: Sequence[RecordColumns | ColumnSlice] = self.records.split(2)
        middle = self.record_count // 2
        parts = self.outcome.split([middle, self.record_count - middle])
        batches = []
        for part, records in zip(parts, halves, strict=True):
            batches.append(
                SealedBatch(
                    outcome=part.outcome,
                    records=records,
                    record_count=part.record_count,
                    size=int(self.size * part.record_count / self.record_count),
                    created_at=self.created_at,
                    reserved=0,
                )
            )
        return batches
