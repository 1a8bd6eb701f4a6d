"""Whether the records of a batch are what the format allows, without making an object of any.

`Batch.check` says that the bytes are those that were written; this says that they were worth
writing. A broker asks before it appends; `tailrace verify` asks of a whole directory.
"""

from typing import NamedTuple

from tailrace import kernels
from tailrace.kernels import RecordFault, Total
from tailrace.records.batch import Batch, CorruptBatchError


class CorruptRecordError(CorruptBatchError):
    """A record that breaks a rule of the format; the `rule` names it by its index."""

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
        """Which rule."""
        self.index = index
        """Place of the record in its batch; None where the batch as a whole is at fault."""

    def located(self, *, path: str, position: int | None = None) -> "CorruptRecordError":
        """The same finding with the file it was found in."""
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
    """What one walk over the records of a batch has found."""

    records: int
    is_consecutive: bool
    """Whether the offset deltas are 0, 1, 2 and so on."""
    last_offset_delta: int
    """Of the last record; -1 without records."""
    null_keys: int
    first_null_key: int
    """Index of the first record without a key; -1 if all have one."""
    timestamp_delta_min: int
    timestamp_delta_max: int


def check_records(batch: Batch) -> RecordTotals:
    """Walks the records; the caller has called `batch.check()`.

    Raises:
        CorruptRecordError: a record breaks a rule of the format, or there are fewer or more than
            the header's count.
        CorruptCompressionError: the payload cannot be decompressed.
        UnsupportedCodecError: the attributes have codec 5, 6 or 7.
    """
    view = batch.records_view()
    totals = kernels.int64s(len(Total))
    status = kernels.walk_records(view, 0, len(view), batch.record_count, totals)
    if status < 0:
        raise record_error(batch, RecordFault(-status), index=totals[Total.RECORDS], size=len(view))
    records, _, is_consecutive, *others = totals
    return RecordTotals(records, bool(is_consecutive), *others)


def record_error(batch: Batch, fault: RecordFault, *, index: int, size: int) -> CorruptRecordError:
    """The error for a fault that a kernel has found after `index` sound records."""
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
