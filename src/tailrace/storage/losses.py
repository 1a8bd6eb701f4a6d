"""Count the records that damaged bytes had: what their headers say, held against missing offsets.

    offsets    0 ... 9    | 10 .. 19 lost |    20 ... 29
    header                  10 records                     the same number: believed
                            7 records                      compacted, or a damaged header
                            none                           10, if no offset is missing elsewhere

No checksum holds here, so a header alone proves little. Records that can be walked from the first
to the last prove their number. Where neither tells, each missing offset had a record if the sound
batches around it lack none. In a compacted log nobody knows then, and None says so.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tailrace.kernels.records import record_at
from tailrace.model import Offset
from tailrace.records import layout
from tailrace.runtime.files import File, Files, read_exactly
from tailrace.storage.damage import DamagedRange, batches_across_damage
from tailrace.storage.resync import Claim
from tailrace.storage.walk import WINDOW_BYTES


class CountProof(Enum):
    """Reasons to believe a number of records."""

    NONE = "none"
    """There is no number."""
    HEADER = "header"
    """A damaged header has as many records as offsets."""
    DOUBT = "doubt"
    """A damaged header has fewer records than offsets, as compaction leaves them."""
    RECORDS = "records"
    """The records themselves can be walked from the first to the last, or the checksum holds."""


class LostRecords(NamedTuple):
    """The number of records in bytes that are lost, and why it may be believed."""

    records: int | None = None
    proof: CountProof = CountProof.NONE


class RecordTotal(NamedTuple):
    """A number of records that may leave some out."""

    records: int
    unknown_ranges: int
    """Damaged ranges of which nobody knows how many records they had."""


def claimed_records(file: File, path: str, claim: Claim | None) -> LostRecords:
    """The number of records in a damaged batch whose header is plausible.

    Raises:
        OSError: the file cannot be read.
    """
    if claim is None:
        return LostRecords()
    if claim.records is not None and claim.records == claim.next_offset - claim.base_offset:
        return LostRecords(claim.records, CountProof.HEADER)
    walked = _walked_records(file, path, claim)
    if walked is not None:
        return LostRecords(walked, CountProof.RECORDS)
    if claim.records is None:
        return LostRecords()
    return LostRecords(claim.records, CountProof.DOUBT)


def fit_records(
    lost: Sequence[LostRecords], room: int | None, *, is_dense: bool
) -> list[int | None]:
    """The records of neighbouring damaged ranges, which have `room` offsets between them.

    `room` is None if nothing sound follows. With `is_dense` each offset had a record; otherwise
    there were no more records than offsets.
    """
    if room is None:
        return [None if each.proof is CountProof.DOUBT else each.records for each in lost]
    counts: list[int | None] = []
    left = max(room, 0)
    for each in lost:
        count = None if each.records is None else min(each.records, left)
        left -= count or 0
        counts.append(count)
    if not left:
        return [each or 0 for each in counts]
    if not is_dense:
        return counts
    doubts = [n for n, each in enumerate(lost) if each.proof is CountProof.DOUBT]
    if doubts:
        # Either the header is damaged, or compaction has been here.
        return [None if n in doubts else count for n, count in enumerate(counts)]
    open_to_more = [n for n, each in enumerate(lost) if each.proof is CountProof.NONE] or [
        n for n, each in enumerate(lost) if each.proof is CountProof.HEADER
    ]
    if not open_to_more:
        return counts
    at = open_to_more[-1]
    counts[at] = (counts[at] or 0) + left
    return [each or 0 for each in counts]


def count_records(
    files: Files,
    path: str,
    *,
    base_offset: Offset,
    following: Offset | None,
    may_have_gaps: bool,
) -> RecordTotal:
    """The records in a file of batches from `base_offset` on, damaged ones included.

    `may_have_gaps` says that the log may have been compacted.

    Raises:
        OSError: the file cannot be read.
    """
    sound, is_dense, due = 0, True, base_offset
    rows: list[tuple[list[LostRecords], int | None]] = []
    lost: list[LostRecords] = []
    file = files.open(path, read_only=True)
    try:
        for found in batches_across_damage(
            file, path, base_offset=base_offset, size=file.size(), following=following
        ):
            if isinstance(found, DamagedRange):
                if not found.is_blank or following not in {None, due}:
                    lost.append(claimed_records(file, path, found.claim))
                continue
            _, batch = found
            is_whole = batch.record_count == batch.last_offset_delta + 1
            if not is_whole or (sound and not lost and batch.base_offset > due):
                is_dense = False
            if lost:
                rows.append((lost, batch.base_offset - due))
                lost = []
            sound += batch.record_count
            due = batch.next_offset
    finally:
        file.close()
    if lost:
        rows.append((lost, None if following is None else following - due))
    counts = [
        count
        for row, room in rows
        for count in fit_records(row, room, is_dense=is_dense and (sound > 0 or not may_have_gaps))
    ]
    return RecordTotal(sound + sum(each or 0 for each in counts), counts.count(None))


def _walked_records(file: File, path: str, claim: Claim) -> int | None:
    """The number of records that lead from the header of a batch to its end, not compressed."""
    size = claim.end - claim.position
    if claim.magic != layout.MAGIC or claim.is_compressed or size > WINDOW_BYTES:
        return None
    data = read_exactly(file, path, position=claim.position, size=size)
    at, count = layout.RECORDS_POSITION, 0
    while at < len(data):
        at = record_at(data, at, len(data))[0]
        if at <= 0:
            return None
        count += 1
    return count
