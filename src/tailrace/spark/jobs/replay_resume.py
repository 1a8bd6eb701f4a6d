"""`find_arrived`: how much of an interrupted range is in a partition of the target.

A range's producer numbers its records from 0, so the last number in the log tells how many arrived,
whatever stands between them. The log is read from where it ended before the range was sent.

    since                                                    end
      │ 0-2 of P │ others │ 3-7 of P │ others ... │            next sequence number of P: 8
                            └ all that matters

If offsets are missing behind the last batch of the producer, more of its batches may have been
there: compaction or retention was faster. Then nobody can tell, and it is an error.

Not here: what of the source that is; see `replay_send`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.errors import FatalError
from tailrace.kernels.arrays import Int64s
from tailrace.model import TimestampType, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.schema import Column
from tailrace.spark.digests import Digest
from tailrace.spark.jobs.replay_source import COLUMNS, in_milliseconds
from tailrace.values import dataclass

_SEQUENCE: Final = Column.SEQUENCE.value


class Placed(NamedTuple):
    """Records that follow on each other in the target."""

    sequence: int
    """Sequence number of the first."""
    offset: int
    """Offset of the first."""
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Records of one range in one partition of the target."""

    next_sequence: int
    """Number of records that arrived, with those that compaction or retention took away since."""
    placed: tuple[Placed, ...]
    sequences: Int64s
    """Numbers of those that are there."""
    digest: str
    """Digest of the records that are there: `tailrace.spark.digests` over `COLUMNS`."""


NOTHING: Final = Arrived(
    next_sequence=0, placed=(), sequences=np.empty(0, np.int64), digest=Digest().hexdigest()
)


def find_arrived(
    batches: Iterable[Batch],
    partition: TopicPartition,
    *,
    start: int,
    limit: int,
    producer_id: int,
) -> Arrived:
    """Find the batches of a producer in a log from `start` to `limit`, in order.

    Raises:
        FatalError: batches are missing, so that it cannot be told; or the topic has put its own
            timestamps in place of the source's.
        CorruptionError: a record of the producer breaks a rule of the format.
    """
    content = _Content()
    placed: list[Placed] = []
    next_sequence, next_offset, is_gap = 0, start, False
    for batch in batches:
        is_gap = is_gap or batch.base_offset > next_offset
        next_offset = batch.next_offset
        if batch.producer_id != producer_id:
            continue
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
            raise FatalError(
                f"topic {partition.topic!r} sets its own timestamps, so those of the source are "
                "lost; set its message.timestamp.type to CreateTime, and delete the sent records"
            )
        is_gap = False
        next_sequence = batch.last_sequence + 1
        placed.append(Placed(batch.base_sequence, batch.base_offset, batch.last_offset_delta + 1))
        content.append(batch)
    if is_gap or next_offset < limit:
        raise FatalError(
            f"{partition} has lost records since offset {start}, to retention or compaction, and "
            "it is not known whether some were of an interrupted replay; let it keep all while a "
            "replay runs (retention.ms=-1, retention.bytes=-1, cleanup.policy=delete), delete "
            "the sent records, and begin again with another offset map"
        )
    return Arrived(
        next_sequence=next_sequence,
        placed=tuple(placed),
        sequences=content.sequences(),
        digest=content.hexdigest(),
    )


class _Content:
    """The records of batches, as a digest and their numbers."""

    def __init__(self) -> None:
        columns = (Column.KEY, Column.VALUE, Column.TIMESTAMP, Column.HEADERS, Column.SEQUENCE)
        self._builder = ColumnsBuilder(columns)
        self._digest = Digest()
        self._sequences: list[Int64s] = []

    def append(self, batch: Batch) -> None:
        """Take the next batch."""
        self._builder.append(batch, start_offset=batch.base_offset, limit_offset=batch.next_offset)
        if not self._builder.has_room:
            self._take()

    def sequences(self) -> Int64s:
        """The sequence numbers of all records."""
        self._take()
        return np.concatenate([NOTHING.sequences, *self._sequences])

    def hexdigest(self) -> str:
        """The digest of all records."""
        self._take()
        return self._digest.hexdigest()

    def _take(self) -> None:
        if self._builder.row_count:
            table = in_milliseconds(pa.Table.from_batches([self._builder.finish()]))
            self._sequences.append(table.column(_SEQUENCE).to_numpy())
            self._digest.update(table.select(COLUMNS))
