"""Finds the first record of a batch at or after a timestamp, for ListOffsets, without objects."""

from typing import NamedTuple

from tailrace import kernels
from tailrace.kernels import RecordFault
from tailrace.model import Offset, TimestampType
from tailrace.records.batch import Batch
from tailrace.records.checks import record_error


class FoundRecord(NamedTuple):
    """The offset and the timestamp of a record."""

    offset: Offset
    timestamp: int
    """Milliseconds since 1970."""


def find_timestamp(batch: Batch, timestamp: int, *, start_offset: Offset) -> FoundRecord | None:
    """The first record with this timestamp (ms) or a later one, from `start_offset` on, or None.

    The caller has called `batch.check()`.

    Raises:
        CorruptRecordError: a record before it breaks a rule of the format.
        CorruptCompressionError: the payload cannot be decompressed.
        UnsupportedCodecError: the attributes have codec 5, 6 or 7.
    """
    view = batch.records_view()
    is_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    found = kernels.int64s(2)
    status = kernels.find_timestamp(
        view,
        0,
        len(view),
        batch.record_count,
        batch.base_offset,
        # All records of LogAppendTime have the largest timestamp; their deltas are multiplied by 0.
        batch.max_timestamp if is_append_time else batch.base_timestamp,
        0 if is_append_time else 1,
        timestamp,
        start_offset,
        found,
    )
    if status < 0:
        # The kernel gives no index: those who want one walk the batch again by `check_records`.
        raise record_error(batch, RecordFault(-status), index=0, size=len(view))
    return FoundRecord(Offset(found[0]), found[1]) if status else None
