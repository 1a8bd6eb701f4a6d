"""Checks the records of a batch against the rules of the format, without objects.

`Batch.check` finds bytes that have changed since they were written; the functions here find records
that a wrong writer has made. A broker checks each batch before it appends it, and `tailrace log
verify` checks a whole directory.
"""

from typing import NamedTuple

from tailrace import kernels
from tailrace.kernels import REFUSED_WIDTH, RecordFault, Refusal, Total
from tailrace.model import NO_TIMESTAMP, TimestampType
from tailrace.records.batch import Batch, CorruptBatchError
from tailrace.values import dataclass

_TOTAL_COUNT = len(Total)

REFUSED_LISTED_MAX = 1000
"""Most records that `list_refused` names: enough to see what is wrong, and a batch of 1 MiB may
hold 150 000."""


class CorruptRecordError(CorruptBatchError):
    """A record breaks a rule of the format; the `rule` names it by its index."""

    def __init__(
        self,
        rule: str,
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        fault: RecordFault | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(rule, path=path, position=position, offset=offset)
        self.fault = fault
        """The broken rule."""
        self.index = index
        """Index of the record in its batch; None if no single record is at fault."""

    def located(self, *, path: str, position: int | None = None) -> "CorruptRecordError":
        """A copy of this error that names the file and the position of the batch."""
        found = CorruptRecordError(
            self.rule,
            path=path,
            position=self.position if position is None else position,
            offset=self.offset,
            fault=self.fault,
            index=self.index,
        )
        return found.with_traceback(self.__traceback__)


class RecordTotals(NamedTuple):
    """The result of one walk over the records of a batch."""

    records: int
    is_consecutive: bool
    """Whether the offset deltas are 0, 1, 2 and so on."""
    last_offset_delta: int
    """Offset delta of the last record; -1 if there is no record."""
    null_keys: int
    timestamp_delta_min: int
    timestamp_delta_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A record that a log refuses."""

    index: int
    reason: Refusal
    detail: int
    """The offset delta or the timestamp (ms) that is refused; 0 where a key is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecords:
    """The records of a batch that a log refuses."""

    count: int
    """Number of refused records, listed or not."""
    has_timestamps: bool
    """Whether a record is refused for its timestamp."""
    listed: tuple[RefusedRecord, ...]
    """The first `REFUSED_LISTED_MAX` refused records."""


def check_records(batch: Batch) -> RecordTotals:
    """Walks the records; the caller has called `batch.check()`.

    Raises:
        CorruptRecordError: a record breaks a rule of the format, or there are fewer or more than
            the header's count.
        CorruptCompressionError: the payload cannot be decompressed.
        UnsupportedCodecError: the attributes have codec 5, 6 or 7.
    """
    return check_decompressed(batch, batch.records_view())


def check_decompressed(batch: Batch, view: memoryview) -> RecordTotals:
    """`check_records` for a caller who has `batch.records_view()` at hand.

    Raises:
        CorruptRecordError: as `check_records`.
    """
    # The kernel has no errors with words: it gives a number, and the index of the bad record.
    totals = kernels.int64s(_TOTAL_COUNT)
    status = kernels.walk_records(view, 0, len(view), batch.record_count, totals)
    if status < 0:
        raise record_error(batch, RecordFault(-status), index=totals[Total.RECORDS], size=len(view))
    records, _, is_consecutive, last, null_keys, smallest, largest = totals
    return RecordTotals(records, is_consecutive == 1, last, null_keys, smallest, largest)


def list_refused(
    batch: Batch, view: memoryview, *, needs_keys: bool, allowed: tuple[int, int] | None
) -> RefusedRecords:
    """The records of a batch that a log refuses; `check_decompressed` has found them sound.

    A record is refused if its offset is not the next one, if `needs_keys` and it has no key, or if
    its timestamp is outside of `allowed`, the earliest and the latest timestamp in milliseconds. If
    the earliest is larger than the latest, every timestamp is refused. None allows all timestamps.
    A timestamp of -1 means that the record has none.
    """
    base, keeps_deltas = batch.base_timestamp, 1
    if allowed is None:
        # -1 is always accepted, so all timestamps are when each record has -1.
        base, keeps_deltas = NO_TIMESTAMP, 0
    elif batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # Under LogAppendTime every record has the batch's largest timestamp, and its delta is
        # ignored.
        base, keeps_deltas = batch.max_timestamp, 0
    earliest, latest = allowed or (0, 0)
    totals = kernels.int64s(2)
    found = kernels.int64s(REFUSED_WIDTH * min(batch.record_count, REFUSED_LISTED_MAX))
    listed = kernels.list_refused(
        view, 0, len(view), batch.record_count,
        int(needs_keys), base, keeps_deltas, earliest, latest, totals, found,
    )  # fmt: skip
    # The caller has walked the same bytes, and the list's bound is that of the kernel.
    assert listed >= 0
    rows = (found[REFUSED_WIDTH * row : REFUSED_WIDTH * (row + 1)] for row in range(listed))
    return RefusedRecords(
        count=totals[0],
        has_timestamps=totals[1] > 0,
        listed=tuple(
            RefusedRecord(
                index=index,
                reason=Refusal(reason),
                detail=base + detail if reason == Refusal.TIMESTAMP else detail,
            )
            for index, reason, detail in rows
        ),
    )


def record_error(batch: Batch, fault: RecordFault, *, index: int, size: int) -> CorruptRecordError:
    """The error for a fault that a kernel has found after `index` sound records."""
    # These two are of the payload as a whole, so no index would be right.
    if fault in {RecordFault.RECORD_COUNT, RecordFault.LEFTOVER}:
        return CorruptRecordError(
            f"{fault.rule} (count {batch.record_count}, payload of {size} bytes)",
            offset=batch.base_offset,
            fault=fault,
        )
    return CorruptRecordError(
        f"record {index} of {batch.record_count}: {fault.rule}",
        offset=batch.base_offset,
        fault=fault,
        index=index,
    )
