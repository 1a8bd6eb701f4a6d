"""`ColumnsBuilder`: the records of many batches as one Arrow record batch, without objects.

Kernels write into the buffers that Arrow then has, so each byte is copied once. The columns are
those that `schema` declares of records and batches; the caller adds those of the place.

Buffers are used again once no record batch, slice or view of them is left: the system has to clear
each page of new memory first.

Invariant: a batch is appended whole or not at all, and no row comes from bytes that break a rule of
the format. The caller has checked each batch (`Batch.check`), and leaves out control batches and
aborted transactions.

Of this room, only this module and `batch_columns` need pyarrow.
"""

from array import array
from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa

from tailrace import kernels
from tailrace.kernels import PAYLOAD_WIDTH, Payload, RecordFault
from tailrace.kernels.arrays import Int32s, Int64s, UInt8s
from tailrace.kernels.records import WANT_KEY, WANT_OFFSET, WANT_TIMESTAMP, WANT_VALUE
from tailrace.records.batch import Batch
from tailrace.records.batch_columns import ARROW_TYPES, BatchColumns, schema_of
from tailrace.records.checks import check_records
from tailrace.records.column_buffers import HeaderBuffers, RowBuffers
from tailrace.records.payloads import COLUMN_BYTES_MAX, payload_of, payloads_of, readable_view
from tailrace.records.runs import BatchRun
from tailrace.records.schema import Column

__all__ = ["ARROW_TYPES", "RECORD_COLUMNS", "ColumnsBuilder", "schema_of"]

ROWS_TARGET: Final = 65_536
"""A chunk with this many rows is full; it is large enough for its fixed costs to be small."""

BYTES_TARGET: Final = 8 * 1024 * 1024
"""A chunk with this many bytes is full; memory for all its copies is still small."""

KEPT_COUNT: Final = 3
"""Buffers that are kept: those of the batch that is made, of the one before it, which the program
still has, and the next ones."""

KEPT_BYTES_MAX: Final = 2 * BYTES_TARGET
"""Larger buffers are not kept."""

MILLISECONDS_MAX: Final = (2**63 - 1) // 1000
"""The largest timestamp that Arrow's microseconds can hold; it is in the year 294247. Its negative
is the smallest that is kept."""

_HEADERS: Final = ARROW_TYPES[Column.HEADERS]

RECORD_COLUMNS: Final = (
    Column.KEY,
    Column.VALUE,
    Column.OFFSET,
    Column.TIMESTAMP,
    Column.TIMESTAMP_TYPE,
    Column.HEADERS,
)
"""Columns of a record's content, as a consumer sees it."""

_WANTED_BITS: Final = {
    Column.KEY: WANT_KEY,
    Column.VALUE: WANT_VALUE,
    Column.OFFSET: WANT_OFFSET,
    Column.TIMESTAMP: WANT_TIMESTAMP,
    Column.SEQUENCE: WANT_OFFSET,
}


class RecordDecoder:
    """Collects the records of batches in `rows` and `headers`."""

    __slots__ = ("_has_headers", "_wanted", "headers", "rows")

    def __init__(self, wanted: int, *, has_headers: bool, rows: RowBuffers | None = None) -> None:
        """`wanted` has the `WANT_` bits of `kernels.records`; `rows` are buffers with no rows."""
        self._wanted = wanted
        self._has_headers = has_headers
        self.rows = RowBuffers(0, 0) if rows is None else rows
        self.headers = HeaderBuffers()

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers."""
        return self.rows.size + self.headers.size

    def clear(self) -> None:
        """Begin again with no rows, in the same buffers; what was decoded is overwritten."""
        self.rows.clear()
        self.headers.clear()

    def append(self, batch: Batch, *, start_offset: int, limit_offset: int) -> int:
        """Appends the records of `start_offset <= offset < limit_offset`; returns how many.

        Raises:
            CorruptRecordError: a record breaks a rule of the format; nothing was appended.
            CorruptCompressionError: the payload cannot be decompressed.
            UnsupportedCodecError: the attributes have codec 5, 6 or 7.
            OverflowError: the chunk has more than 2 GiB in a column; call `finish` first.
        """
        view = readable_view(batch, collected=self.byte_count)
        payloads = array("q", payload_of(batch, 0, len(view)))
        rows = self._decode(
            view, payloads, batch.record_count, start=start_offset, limit=limit_offset
        )
        if rows < 0:
            # The kernel gives only a fault; the walk raises it with the index of the record.
            check_records(batch)
            raise AssertionError(f"decoding said {RecordFault(-rows)!r}, the walk nothing")
        return rows

    def append_run(
        self, run: BatchRun, *, start_offset: int, limit_offset: int
    ) -> "array[int] | None":
        """Appends the records of a run as `append` those of a batch.

        Returns the payloads of the run, with the number of rows of each. None if a record breaks a
        rule of the format; then nothing was appended, and `append` tells the batch and the rule.

        Raises:
            OverflowError: as `append`.
        """
        if self.byte_count + run.size > COLUMN_BYTES_MAX:
            raise OverflowError(
                f"{self.byte_count} bytes are collected, {run.size} more do not fit"
            )
        payloads = payloads_of(run)
        status = self._decode(
            run.view, payloads, run.record_count, start=start_offset, limit=limit_offset
        )
        return None if status < 0 else payloads

    def _decode(
        self, view: memoryview, payloads: "array[int]", count: int, *, start: int, limit: int
    ) -> int:
        """Rows appended, or minus a fault; then nothing was appended."""
        rows, headers = self.rows, self.headers
        # Before the kernel runs: it has no way to grow a buffer, and refuses instead.
        rows.make_room(count, len(view))
        status = kernels.decode_records(
            view, payloads, count, start, limit, self._wanted, *rows.outputs
        )
        if status >= 0 and self._has_headers:
            # Most topics have no headers, and a second walk over the records would find none.
            if not rows.has_new_headers:
                headers.add_none(status)
            elif (fault := headers.decode(view, payloads, start=start, limit=limit)) < 0:
                status = fault
        if status < 0:
            rows.undo()
        else:
            rows.keep()
        return status


class ColumnsBuilder:
    """Collects batches and gives their records as an Arrow record batch."""

    __slots__ = (
        "_batches",
        "_columns",
        "_decoder",
        "_given",
        "_has_headers",
        "_unshared",
        "_wanted",
        "schema",
    )

    def __init__(self, columns: Collection[Column] = RECORD_COLUMNS) -> None:
        self._columns = tuple(columns)
        self.schema = schema_of(self._columns)
        self._wanted = 0
        for column in self._columns:
            self._wanted |= _WANTED_BITS.get(column, 0)
        self._has_headers = Column.HEADERS in self._columns
        self._given: list[RowBuffers] = []
        """Buffers of the last record batches."""
        self._start(RowBuffers(0, 0))
        # Taken while nobody else can have them, so a change of Python's own counting does not
        # matter.
        self._unshared = self._decoder.rows.reference_counts()

    @property
    def row_count(self) -> int:
        """Rows collected since the last `finish`."""
        return self._decoder.rows.count

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers collected since the last `finish`."""
        return self._decoder.byte_count

    @property
    def has_room(self) -> bool:
        """Whether another batch should be appended before `finish`."""
        return self.row_count < ROWS_TARGET and self.byte_count < BYTES_TARGET

    def append(self, batch: Batch, *, start_offset: int, limit_offset: int) -> int:
        """Appends the records of `start_offset <= offset < limit_offset`; returns how many.

        Raises as `RecordDecoder.append`.
        """
        rows = self._decoder.append(batch, start_offset=start_offset, limit_offset=limit_offset)
        self._batches.append(batch, rows)
        return rows

    def append_run(
        self, run: BatchRun, *, start_offset: int, limit_offset: int
    ) -> list[int] | None:
        """Appends the records of a run as `append` those of a batch; returns how many of each.

        None if a record breaks a rule of the format, as with `RecordDecoder.append_run`.

        Raises:
            OverflowError: as `append`.
        """
        payloads = self._decoder.append_run(
            run, start_offset=start_offset, limit_offset=limit_offset
        )
        if payloads is None:
            return None
        counts = payloads[Payload.ROWS :: PAYLOAD_WIDTH].tolist()
        self._batches.append_run(run, payloads, counts)
        return counts

    def finish(self) -> pa.RecordBatch:
        """The rows collected so far, as Arrow; the builder starts again with none."""
        arrays = [self._arrow_of(column) for column in self._columns]
        rows = self._decoder.rows
        # The record batch refers to these buffers and does not own them; see `_unused_buffers`.
        self._given.append(rows)
        self._start(self._unused_buffers() or RowBuffers(rows.count_max, rows.size_max))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _unused_buffers(self) -> RowBuffers | None:
        """Buffers of a record batch that is gone, if there are any."""
        self._given = [each for each in self._given if each.size_max <= KEPT_BYTES_MAX]
        for index, each in enumerate(self._given):
            # Equal counts: no record batch, slice or numpy view of these buffers is left anywhere.
            if each.reference_counts() == self._unshared:
                each.clear()
                return self._given.pop(index)
        # All are in use: forget the oldest ones, which their record batches keep alive.
        del self._given[: len(self._given) + 1 - KEPT_COUNT]
        return None

    def _start(self, rows: RowBuffers) -> None:
        self._decoder = RecordDecoder(self._wanted, has_headers=self._has_headers, rows=rows)
        self._batches = BatchColumns(self._columns)

    def _arrow_of(self, column: Column) -> pa.Array:
        rows = self._decoder.rows
        match column:
            case Column.KEY:
                return _binary(
                    rows.count, valid=rows.key_valid, ends=rows.key_ends, data=rows.key_data
                )
            case Column.VALUE:
                return _binary(
                    rows.count, valid=rows.value_valid, ends=rows.value_ends, data=rows.value_data
                )
            case Column.OFFSET:
                return _integers(column, rows.count, rows.offsets)
            case Column.TIMESTAMP:
                # Producers that send nanoseconds exist; wrapping would give them a plausible date.
                bounded = rows.timestamps[: rows.count].clip(-MILLISECONDS_MAX, MILLISECONDS_MAX)
                return _integers(column, rows.count, bounded * 1000)
            case Column.HEADERS:
                return _header_lists(self._decoder.headers)
            case _:
                return self._batches.array(column, rows.offsets[: rows.count])


def _integers(column: Column, count: int, values: Int64s) -> pa.Array:
    return pa.Array.from_buffers(ARROW_TYPES[column], count, [None, pa.py_buffer(values)])


def _binary(count: int, *, valid: UInt8s, ends: Int32s, data: UInt8s) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), count, [_bitmap(valid[:count]), pa.py_buffer(ends), pa.py_buffer(data)]
    )


def _header_lists(headers: HeaderBuffers) -> pa.Array:
    row_count, count = map(int, headers.cursors[:2])
    entries = pa.StructArray.from_arrays(
        [
            _strings(count, headers),
            _binary(
                count,
                valid=headers.value_valid,
                ends=headers.value_ends,
                data=headers.value_data,
            ),
        ],
        fields=list(_HEADERS.value_type),
    )
    return pa.Array.from_buffers(
        _HEADERS,
        row_count,
        [_bitmap(headers.row_valid[:row_count]), pa.py_buffer(headers.row_ends)],
        children=[entries],
    )


def _strings(count: int, headers: HeaderBuffers) -> pa.Array:
    """The header keys, with replacement characters for what is not UTF-8, as in Java."""
    ends, data = headers.key_ends, headers.key_data
    keys = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    try:
        # Nearly all names are UTF-8, and Arrow validates a whole column in one call.
        keys.validate(full=True)
    except pa.ArrowInvalid:
        pieces = (bytes(data[ends[i] : ends[i + 1]]) for i in range(count))
        return pa.array([piece.decode(errors="replace") for piece in pieces], pa.string())
    return keys


def _bitmap(valid: UInt8s) -> pa.Buffer | None:
    """Arrow's validity bits, or None where every row is valid."""
    # Arrow needs no bitmap for a column without nulls, and readers skip a test for each row.
    if valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
