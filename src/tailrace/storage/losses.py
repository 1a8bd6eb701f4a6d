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
from contextlib import closing
from enum import Enum
from typing import NamedTuple

from tailrace.kernels.records import record_at
from tailrace.model import Offset
from tailrace.records import layout
from tailrace.records.runs import Piece
from tailrace.runtime.files import File, Files, read_exactly
from tailrace.storage.resync import Claim
from tailrace.storage.segment_walk import Damage, Fault, Sound, walk_segment
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


def lost_records(file: File, path: str, damage: Damage) -> LostRecords:
    """The number of records in damaged bytes, as far as they tell.

    Raises:
        OSError: the file cannot be read.
    """
    claim = damage.claim
    if damage.records is not None:
        return LostRecords(damage.records, CountProof.RECORDS)
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


class LossCount:
    """Counts the records of one segment, sound and lost, as a walk over it comes to them."""

    def __init__(self, file: File, path: str, *, due: Offset) -> None:
        self.sound = 0
        """Records of the sound batches."""
        self.due = due
        """The offset after the last sound batch."""
        self._file = file
        self._path = path
        self._is_dense = True
        # Neighbouring damage, and the offset of the sound batch after it; None if none follows.
        self._rows: list[tuple[list[LostRecords], Offset, Offset | None]] = []
        self._lost: list[LostRecords] = []

    def add_sound(self, piece: Piece) -> None:
        """Count a batch or run."""
        count = piece.record_count
        span = piece.last_offset - piece.base_offset + 1
        # A gap right after damage is what the damage held.
        is_gap = self.sound and not self._lost and piece.base_offset > self.due
        if count != span or is_gap:
            self._is_dense = False
        if self._lost:
            self._rows.append((self._lost, self.due, piece.base_offset))
            self._lost = []
        self.sound += count
        self.due = piece.next_offset

    def add_damage(self, damage: Damage) -> None:
        """Count damage that is no padding."""
        self._lost.append(lost_records(self._file, self._path, damage))

    def finish(
        self, following: Offset | None, *, may_have_gaps: bool = True
    ) -> list[tuple[int | None, Offset | None]]:
        """The records that each damage held, and the offset of the sound batch after it.

        `following` is where the next segment begins. Without `may_have_gaps`, no offset is missing
        in this log even if it has no sound batch that could show it.
        """
        rows = [*self._rows]
        if self._lost:
            rows.append((self._lost, self.due, following))
        is_dense = self._is_dense and (self.sound > 0 or not may_have_gaps)
        return [
            (count, end)
            for lost, due, end in rows
            for count in fit_records(lost, None if end is None else end - due, is_dense=is_dense)
        ]


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
    with closing(files.open(path, read_only=True)) as file:
        count = LossCount(file, path, due=base_offset)
        # A start counts what it cuts, perhaps gigabytes of it: nothing is decompressed for that.
        for found in walk_segment(
            file,
            path,
            base_offset=base_offset,
            size=file.size(),
            following=following,
            reads_records=False,
        ):
            if isinstance(found, Sound):
                count.add_sound(found.piece)
            elif found.fault is not Fault.PADDING:
                count.add_damage(found)
        counts = [each for each, _ in count.finish(following, may_have_gaps=may_have_gaps)]
    return RecordTotal(count.sound + sum(each or 0 for each in counts), counts.count(None))


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
