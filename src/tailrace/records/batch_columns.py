"""Columns that come from the header of a record's batch, such as its codec or producer id.

Not here: the fields of the records (`columns`).

Invariant: Python does nothing for each record; numpy repeats a batch's value for all its records.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.kernels import PAYLOAD_WIDTH, Payload
from tailrace.kernels.arrays import Bools, Int64s
from tailrace.model import Codec
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.runs import BatchRun, Field
from tailrace.records.schema import Column, ColumnType, DeclaredColumn

if TYPE_CHECKING:
    from array import array


# Arrow's `string` has int32 ends.
_STRING_BYTES_MAX: Final = 2**31 - 1

_NO_TIMESTAMP_TYPE: Final = -1
"""The timestamp type of records of format v0, as in Kafka's clients."""


_ARROW: Final = {
    ColumnType.BINARY: pa.binary(),
    ColumnType.STRING: pa.string(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def schema_of(columns: Iterable[DeclaredColumn]) -> pa.Schema:
    """The Arrow schema of these columns, in their order; every one may be null."""
    return pa.schema([pa.field(column.value, _ARROW[column.type]) for column in columns])


ARROW_TYPES: Final = {column: _ARROW[column.type] for column in Column}
"""The Arrow type of each column."""


class BatchColumns:
    """Collects the headers of a chunk's batches, and makes columns of them."""

    __slots__ = ("_counts", "_values")

    def __init__(self, columns: Collection[Column]) -> None:
        # Columns that were not asked for are not collected at all.
        self._values: dict[Column, list[int]] = {
            column: [] for column in columns if column in _SOURCES
        }
        self._counts: list[tuple[int, int]] = []

    def append(self, batch: Batch, count: int) -> None:
        """Adds a batch that has `count` records in the chunk."""
        self._counts.append((count, batch.base_offset))
        for column, values in self._values.items():
            values.append(_SOURCES[column].of_batch(batch))

    def append_run(self, run: BatchRun, payloads: "array[int]", counts: Sequence[int]) -> None:
        """Adds the batches of a run; `counts` are their records in the chunk."""
        self._counts += zip(counts, payloads[Payload.BASE_OFFSET :: PAYLOAD_WIDTH], strict=True)
        headers: Int64s | None = None
        for column, values in self._values.items():
            # The kernel has this fact already, so a plan that asks for no other column unpacks no
            # header. `KEEPS_DELTAS` is 0 for LogAppendTime, whose number is 1.
            if column is Column.TIMESTAMP_TYPE:
                values += [1 - each for each in payloads[Payload.KEEPS_DELTAS :: PAYLOAD_WIDTH]]
                continue
            if headers is None:
                headers = np.array(run.headers, np.int64)
            values.extend(_SOURCES[column].of_headers(headers).tolist())

    def array(self, column: Column, offsets: Int64s) -> pa.Array:
        """The column; `offsets` are those of the chunk's rows, which `sequence` needs."""
        counts, bases = np.array(self._counts, np.int64).reshape(-1, 2).T
        if column is Column.CODEC:
            return repeated_strings([_CODEC_NAMES[each] for each in self._values[column]], counts)
        if column is not Column.SEQUENCE:
            return repeated_numbers(self._values[column], counts, ARROW_TYPES[column])
        # A record's sequence number is the batch's plus its offset delta: compaction removes
        # records and keeps the offsets, so it cannot be counted by rows.
        firsts = np.repeat(np.array(self._values[column], np.int64), counts)
        following = firsts + offsets - np.repeat(bases, counts) & layout.SEQUENCE_MAX
        # The mask wraps after 2147483647, as in Kafka. -1 stays: the batch has no producer.
        values = np.where(firsts < 0, -1, following).astype(np.int32)
        return pa.Array.from_buffers(ARROW_TYPES[column], len(values), [None, pa.py_buffer(values)])


# Arrow's own `take` and `cast` import `pyarrow.compute`, which takes 300 ms at the first call.


def repeated_numbers(
    values: Sequence[int], counts: "Sequence[int] | Int64s", kind: pa.DataType
) -> pa.Array:
    """A column of integers or booleans, each of them as often as its count says."""
    rows = np.repeat(np.array(values, kind.to_pandas_dtype()), counts)
    # Arrow packs booleans into bits, lowest first; numpy has a byte for each.
    data = np.packbits(rows, bitorder="little") if pa.types.is_boolean(kind) else rows
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(data)])


def repeated_strings(values: Sequence[str], counts: "Sequence[int] | Int64s") -> pa.Array:
    """A column of text, likewise.

    Raises:
        OverflowError: it has more than 2 GiB.
    """
    octets = [each.encode() for each in values]
    times = np.array(counts, np.int64)
    sizes = np.array([len(each) for each in octets], np.int64)
    # Before anything is allocated: int32 ends would wrap silently.
    if int(sizes @ times) > _STRING_BYTES_MAX:
        raise OverflowError(f"{int(sizes @ times)} bytes in a column; read fewer records at once")
    ends = np.zeros(int(times.sum()) + 1, np.int32)
    np.repeat(sizes, times).cumsum(out=ends[1:])
    data = b"".join(each * count for each, count in zip(octets, times.tolist(), strict=True))
    return pa.Array.from_buffers(
        pa.string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )


def _timestamp_type(batch: Batch) -> int:
    # Format v0 has no timestamps; the batch that was made of it says CreateTime.
    if batch.legacy is not None and not batch.legacy.magic:
        return _NO_TIMESTAMP_TYPE
    return batch.timestamp_type


def _codec(batch: Batch) -> int:
    # The batch that stands for a wrapper is decompressed, and the stored codec is the wrapper's.
    return batch.codec if batch.legacy is None else batch.legacy.codec_number


class _Source(NamedTuple):
    """Two readers of a column's values: from one batch, and from all headers of a run."""

    of_batch: Callable[[Batch], int]
    of_headers: "Callable[[Int64s], Int64s | Bools]"


def _field(name: str, field: Field) -> _Source:
    return _Source(attrgetter(name), lambda headers: headers[:, field])


_SOURCES: Final = {
    Column.TIMESTAMP_TYPE: _Source(
        _timestamp_type, lambda headers: _flags(headers, layout.LOG_APPEND_TIME_FLAG)
    ),
    Column.CODEC: _Source(_codec, lambda headers: headers[:, Field.ATTRIBUTES] & layout.CODEC_MASK),
    Column.PRODUCER_ID: _field("producer_id", Field.PRODUCER_ID),
    Column.PRODUCER_EPOCH: _field("producer_epoch", Field.PRODUCER_EPOCH),
    Column.SEQUENCE: _field("base_sequence", Field.BASE_SEQUENCE),
    Column.LEADER_EPOCH: _field("leader_epoch", Field.LEADER_EPOCH),
    Column.IS_TRANSACTIONAL: _Source(
        attrgetter("is_transactional"), lambda headers: _flags(headers, layout.TRANSACTIONAL_FLAG)
    ),
}


def _flags(headers: Int64s, flag: int) -> Bools:
    is_set: Bools = headers[:, Field.ATTRIBUTES] & flag != 0
    return is_set


_CODEC_NAMES: Final = [codec.label for codec in Codec]
