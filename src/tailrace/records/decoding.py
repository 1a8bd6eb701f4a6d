"""`RecordDecoder`: the records of many batches, written into buffers by kernels, without objects.

Not here: what is made of the buffers, Arrow (`columns`) or lists of Python objects.

Invariant: a batch is appended whole or not at all, and no row comes from bytes that break a rule of
the format. The caller has checked each batch (`Batch.check`), and leaves out control batches and
aborted transactions.
"""

from array import array

from tailrace import kernels
from tailrace.kernels import RecordFault
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.column_buffers import HeaderBuffers, RowBuffers
from tailrace.records.payloads import COLUMN_BYTES_MAX, payload_of, payloads_of, readable_view
from tailrace.records.runs import BatchRun


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
