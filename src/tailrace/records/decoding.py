"""`RecordDecoder`: the records of many batches, written into buffers by kernels, without objects.

Not here: what is made of the buffers, Arrow (`columns`) or lists of Python objects.

Invariant: a batch is appended whole or not at all, and no row comes from bytes that break a rule of
the format. The caller has checked each batch (`Batch.check`), and leaves out control batches and
aborted transactions.
"""

from typing import Final

import numpy as np

from tailrace import kernels
from tailrace.kernels import PAYLOAD_WIDTH, RecordFault
from tailrace.kernels.arrays import Int64s
from tailrace.model import TimestampType
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records, record_error
from tailrace.records.column_buffers import HeaderBuffers, RowBuffers
from tailrace.records.runs import BatchRun

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""The ends of keys and values are int32, as in Arrow's `binary`."""


class RecordDecoder:
    """Collects the records of batches in `rows` and `headers`."""

    __slots__ = ("_has_headers", "_payload", "_wanted", "headers", "rows")

    def __init__(self, wanted: int, *, has_headers: bool, rows: RowBuffers | None = None) -> None:
        """`wanted` has the `WANT_` bits of `kernels.records`; `rows` are buffers with no rows."""
        self._wanted = wanted
        self._has_headers = has_headers
        self._payload = np.zeros(PAYLOAD_WIDTH, np.int64)
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
        size, count = len(view), batch.record_count
        is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
        self._payload[:] = (
            0,
            size,
            count,
            batch.base_offset,
            batch.base_timestamp if is_create_time else batch.max_timestamp,
            is_create_time,
            0,
        )
        rows = self._decode(view, self._payload, count, start=start_offset, limit=limit_offset)
        if rows < 0:
            check_records(batch)
            raise AssertionError(f"decoding said {RecordFault(-rows)!r}, the walk nothing")
        return rows

    def append_run(self, run: BatchRun, *, start_offset: int, limit_offset: int) -> "Int64s | None":
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
        payloads, count = payloads_of(run)
        status = self._decode(
            run.view, payloads.reshape(-1), count, start=start_offset, limit=limit_offset
        )
        return None if status < 0 else payloads

    def _decode(
        self, view: memoryview, payloads: Int64s, count: int, *, start: int, limit: int
    ) -> int:
        """Rows appended, or minus a fault; then nothing was appended."""
        rows, headers = self.rows, self.headers
        rows.make_room(count, len(view))
        status = kernels.decode_records(
            view, payloads, count, start, limit, self._wanted, *rows.outputs
        )
        if status >= 0 and self._has_headers:
            if not rows.has_new_headers:
                headers.add_none(status)
            elif (fault := headers.decode(view, payloads, start=start, limit=limit)) < 0:
                status = fault
        if status < 0:
            rows.undo()
        else:
            rows.keep()
        return status


def readable_view(batch: Batch, *, collected: int) -> memoryview:
    """The decompressed records of a batch, if they fit behind so many bytes.

    Raises:
        CorruptRecordError: the record count is negative or more than the payload can hold.
        CorruptCompressionError, UnsupportedCodecError, OverflowError: as `RecordDecoder.append`.
    """
    view = batch.records_view()
    size = len(view)
    if collected + size > COLUMN_BYTES_MAX:
        raise OverflowError(f"{collected} bytes are collected, {size} more do not fit")
    if not 0 <= batch.record_count <= size // kernels.RECORD_SIZE_MIN:
        raise record_error(batch, RecordFault.RECORD_COUNT, index=0, size=size)
    return view


def payloads_of(run: BatchRun) -> tuple[Int64s, int]:
    """Return `payloads` for `decode_records`, a row for each batch of a run, and their records."""
    payloads = np.empty((len(run.headers), PAYLOAD_WIDTH), np.int64)
    count = kernels.list_payloads(run.view, len(payloads), payloads.reshape(-1))
    assert count >= 0, "the frames of a run are checked"
    return payloads, count
