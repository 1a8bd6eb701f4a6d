"""Columns that come from the header of a record's batch, such as its codec or producer id.

Not here: the fields of the records (`columns`).

Invariant: Python does nothing for each record; numpy repeats a batch's value for all its records.
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tailrace.model import Codec
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.runs import Field

Array: TypeAlias = "np.ndarray[Any, Any]"

_NO_TIMESTAMP_TYPE: Final = -1
"""The timestamp type of records of format v0, as in Kafka's clients."""


class Column(Enum):
    """A column that a `ColumnsBuilder` can fill; the value is its name."""

    KEY = "key"
    VALUE = "value"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestampType"
    HEADERS = "headers"
    CODEC = "codec"
    PRODUCER_ID = "producerId"
    PRODUCER_EPOCH = "producerEpoch"
    SEQUENCE = "sequence"
    LEADER_EPOCH = "leaderEpoch"
    IS_TRANSACTIONAL = "isTransactional"


BATCH_TYPES: Final = {
    Column.TIMESTAMP_TYPE: pa.int32(),
    Column.CODEC: pa.string(),
    Column.PRODUCER_ID: pa.int64(),
    Column.PRODUCER_EPOCH: pa.int32(),
    Column.SEQUENCE: pa.int32(),
    Column.LEADER_EPOCH: pa.int32(),
    Column.IS_TRANSACTIONAL: pa.bool_(),
}
"""The columns of this module, and their types."""


class BatchColumns:
    """Collects the headers of a chunk's batches, and makes columns of them."""

    __slots__ = ("_counts", "_values")

    def __init__(self, columns: Collection[Column]) -> None:
        self._values: dict[Column, list[int]] = {
            column: [] for column in columns if column in BATCH_TYPES
        }
        self._counts: list[tuple[int, int]] = []

    def append(self, batch: Batch, count: int) -> None:
        """Adds a batch that has `count` records in the chunk."""
        self._counts.append((count, batch.base_offset))
        for column, values in self._values.items():
            values.append(_VALUE_OF[column](batch))

    def append_run(self, headers: Array, counts: Sequence[int]) -> None:
        """Adds the batches of a run by their `Header`s; `counts` are their records in the chunk."""
        self._counts += zip(counts, headers[:, Field.BASE_OFFSET].tolist(), strict=True)
        for column, values in self._values.items():
            values.extend(_OF_HEADERS[column](headers).tolist())

    def array(self, column: Column, offsets: Array) -> pa.Array:
        """The column; `offsets` are those of the chunk's rows, which `sequence` needs."""
        counts, bases = np.array(self._counts, np.int64).reshape(-1, 2).T
        values = np.repeat(np.array(self._values[column], np.int64), counts)
        match column:
            case Column.CODEC:
                return pa.array(_CODEC_NAMES).take(pa.array(values))
            case Column.SEQUENCE:
                following = values + offsets - np.repeat(bases, counts) & layout.SEQUENCE_MAX
                values = np.where(values < 0, -1, following)
        return pa.array(values).cast(BATCH_TYPES[column])


def _timestamp_type(batch: Batch) -> int:
    if batch.legacy is not None and not batch.legacy.magic:
        return _NO_TIMESTAMP_TYPE
    return batch.timestamp_type


def _codec(batch: Batch) -> int:
    return batch.codec if batch.legacy is None else batch.legacy.codec_number


_VALUE_OF: Final[dict[Column, Callable[[Batch], int]]] = {
    Column.TIMESTAMP_TYPE: _timestamp_type,
    Column.CODEC: _codec,
    Column.PRODUCER_ID: attrgetter("producer_id"),
    Column.PRODUCER_EPOCH: attrgetter("producer_epoch"),
    Column.SEQUENCE: attrgetter("base_sequence"),
    Column.LEADER_EPOCH: attrgetter("leader_epoch"),
    Column.IS_TRANSACTIONAL: attrgetter("is_transactional"),
}

_OF_HEADERS: Final[dict[Column, Callable[[Array], Array]]] = {
    Column.TIMESTAMP_TYPE: lambda headers: _flags(headers, layout.LOG_APPEND_TIME_FLAG),
    Column.CODEC: lambda headers: headers[:, Field.ATTRIBUTES] & layout.CODEC_MASK,
    Column.PRODUCER_ID: lambda headers: headers[:, Field.PRODUCER_ID],
    Column.PRODUCER_EPOCH: lambda headers: headers[:, Field.PRODUCER_EPOCH],
    Column.SEQUENCE: lambda headers: headers[:, Field.BASE_SEQUENCE],
    Column.LEADER_EPOCH: lambda headers: headers[:, Field.LEADER_EPOCH],
    Column.IS_TRANSACTIONAL: lambda headers: _flags(headers, layout.TRANSACTIONAL_FLAG),
}
"""The values of a column for all headers of a run."""


def _flags(headers: Array, flag: int) -> Array:
    is_set: Array = headers[:, Field.ATTRIBUTES] & flag != 0
    return is_set


_CODEC_NAMES: Final = [codec.label for codec in Codec]
