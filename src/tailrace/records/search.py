"""The first record of a batch at or after a timestamp, for ListOffsets; no objects are made."""

from typing import NamedTuple

from tailrace import kernels
from tailrace.kernels import RecordFault
from tailrace.model import TimestampType
from tailrace.records.batch import Batch
from tailrace.records.checks import record_error


class FoundRecord(NamedTuple):
    """Where a record stands, and when it was written."""

    offset: int
    timestamp: int
    """Milliseconds since 1970."""


def find_timestamp(batch: Batch, timestamp: int, *, start_offset: int) -> FoundRecord | None:
    """The first record with at least this timestamp and at least this offset, or None.

    The caller has called `batch.check()`.

    Raises:
        CorruptRecordError: a record on the way breaks a rule of the format.
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
        batch.max_timestamp if is_append_time else batch.base_timestamp,
        0 if is_append_time else 1,
        timestamp,
        start_offset,
        found,
    )
    if status < 0:
        raise record_error(batch, RecordFault(-status), index=0, size=len(view))
    return FoundRecord(found[0], found[1]) if status else None
