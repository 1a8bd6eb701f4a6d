"""`Run`: neighbouring batches of a segment, whose records go through the kernels in one call.

A kernel call takes many times as long as the work on one record, and batches may have few records.

Invariant: a run has at most `RUN_BYTES` of stored bytes, plus one batch.
"""

from array import array
from typing import Final, NamedTuple

from tailrace.kernels import BATCH_ROW_SIZE, BatchRow
from tailrace.records.batch import Batch

RUN_BYTES: Final = 256 * 1024
"""Small enough that the records stay in the processor's cache between two kernel calls."""

KEEPS_ALL: Final = -(2**63)
"""A latest offset below every record, so that all records are kept."""

_UNWRITTEN: Final = (0,) * (BATCH_ROW_SIZE - BatchRow.KEPT)


class RetainedRecords(NamedTuple):
    """Counts of the kept records of a batch: the fields of a `BatchRow` from KEPT to SIZE."""

    kept: int
    unkeyed: int
    """Records that are removed because they have no key."""
    tombstones: int
    """Kept records without a value."""
    timestamp_delta_first: int
    """Timestamp delta of the first kept record."""
    timestamp_delta_max: int
    """Largest timestamp delta of the kept records; 0 if there are none."""
    size: int
    """Bytes of the kept records, uncompressed."""


class Run:
    """Batches with the arrays that the kernels read and write."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.positions: list[int] = []
        """Position of each batch in its segment, in bytes."""
        self.rows = array("q")
        """A `BatchRow` for each batch."""
        self.keeps = bytearray()
        """A byte for each record: 1 if it is kept."""
        self.stored_bytes = 0
        """Stored bytes of all batches that were read, also of those that were not added."""
        self.next_offset = 0
        """The offset after the last batch that was read."""
        self._firsts: list[int] = []
        """Index in `keeps` of the first record of each batch."""
        self._views: list[memoryview] = []
        self._size = 0

    def add(
        self,
        batch: Batch,
        *,
        position: int = 0,
        latest_offset: int = KEEPS_ALL,
        keeps_tombstones: bool = True,
    ) -> int:
        """Decompresses and adds a batch; returns its index in the run.

        Raises:
            CorruptCompressionError: the payload cannot be decompressed.
            UnsupportedCodecError: the codec number is undefined.
        """
        view = batch.records_view()
        start, self._size = self._size, self._size + len(view)
        self.rows.extend((
            start, self._size, batch.record_count, batch.base_offset,
            latest_offset, keeps_tombstones, *_UNWRITTEN,
        ))  # fmt: skip
        self._firsts.append(len(self.keeps))
        # A wrong record count must not cost much memory before a kernel refuses it.
        self.keeps += bytes(max(0, min(batch.record_count, len(view))))
        self._views.append(view)
        self.batches.append(batch)
        self.positions.append(position)
        return len(self.batches) - 1

    def data(self) -> memoryview:
        """The records of all batches, one behind the other."""
        if len(self._views) > 1:
            self._views = [memoryview(b"".join(self._views))]
        return self._views[0] if self._views else memoryview(b"")

    def choice(self, place: int) -> RetainedRecords:
        """The counts of the kept records of a batch, after `KeyMap.choose`."""
        row = BATCH_ROW_SIZE * place
        return RetainedRecords._make(self.rows[row + BatchRow.KEPT : row + BatchRow.SIZE + 1])

    def kept_of(self, place: int) -> bytearray:
        """The bytes of `keeps` for one batch, after `KeyMap.choose`."""
        first = self._firsts[place]
        return self.keeps[first : first + self.batches[place].record_count]
