"""The records of batches, uncompressed, as kernels take them: bytes, and a row of numbers a batch.

Invariant: the rows name only places inside of the bytes.
"""

from typing import TYPE_CHECKING, Final

from tailrace import kernels
from tailrace.kernels import PAYLOAD_WIDTH, RecordFault
from tailrace.model import TimestampType
from tailrace.records.checks import record_error

if TYPE_CHECKING:
    from array import array

    from tailrace.records.batch import Batch
    from tailrace.records.runs import BatchRun

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""The ends of keys and values are int32, as in Arrow's `binary`."""


def readable_view(batch: "Batch", *, collected: int) -> memoryview:
    """The decompressed records of a batch, if they fit after this number of bytes.

    Raises:
        CorruptRecordError: the record count is negative or more than the payload can hold.
        CorruptCompressionError: the payload cannot be decompressed.
        UnsupportedCodecError: the attributes have codec 5, 6 or 7.
        OverflowError: there would be more than 2 GiB.
    """
    view = batch.records_view()
    size = len(view)
    # Keys and values together are less than the payload, so neither column can overflow.
    if collected + size > COLUMN_BYTES_MAX:
        raise OverflowError(f"{collected} bytes are collected, {size} more do not fit")
    # The count is the header's, and memory for that many rows is allocated next: a small batch must
    # not ask for two thousand million rows.
    if not 0 <= batch.record_count <= size // kernels.RECORD_SIZE_MIN:
        raise record_error(batch, RecordFault.RECORD_COUNT, index=0, size=size)
    return view


def payload_of(batch: "Batch", position: int, size: int) -> tuple[int, ...]:
    """The row of a batch whose records have this size and position."""
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    return (
        position,
        position + size,
        batch.record_count,
        batch.base_offset,
        # Of a batch of LogAppendTime all records have the largest timestamp, which the broker has
        # set.
        batch.base_timestamp if is_create_time else batch.max_timestamp,
        is_create_time,
        0,
        batch.leader_epoch,
    )


def payloads_of(run: "BatchRun") -> "array[int]":
    """The rows of a run's batches, one after the other."""
    payloads = kernels.int64s(run.batch_count * PAYLOAD_WIDTH)
    status = kernels.list_payloads(run.view, run.batch_count, payloads)
    assert status >= 0, "the frames of a run are checked"
    return payloads
