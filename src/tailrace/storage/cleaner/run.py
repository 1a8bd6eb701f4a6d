"""`Run`: neighbouring batches of a segment, whose records go through the kernels in one call.

A call has a price of its own, many times that of looking at a record, and batches may have few.

Invariant: a run is as large as `RUN_BYTES` and one batch at most, as they are stored.
"""

from array import array
from typing import Final, NamedTuple

from tailrace.kernels import BATCH_ROW_SIZE, BatchRow
from tailrace.records.batch import Batch

RUN_BYTES: Final = 256 * 1024
"""Small enough for what one kernel has read to be in the processor's cache for the next."""

KEEPS_ALL: Final = -(2**63)
"""A latest offset that no record lies before."""

_UNWRITTEN: Final = (0,) * (BATCH_ROW_SIZE - BatchRow.KEPT)


class Choice(NamedTuple):
    """What stays of a batch: the places of a `BatchRow` from KEPT to SIZE."""

    kept: int
    unkeyed: int
    """Records that go because they have no key."""
    tombstones: int
    """Records without a value among those that stay."""
    timestamp_delta_first: int
    """Of the first one that stays."""
    timestamp_delta_max: int
    """Of those that stay; 0 when none does."""
    size: int
    """Bytes of those that stay, before compression."""


class Run:
    """Batches, and what the kernels read and write about them."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.positions: list[int] = []
        """Where they stand in their segment, in bytes."""
        self.rows = array("q")
        """A `BatchRow` for each."""
        self.keeps = bytearray()
        """A byte for each record: 1 if it stays."""
        self.stored_bytes = 0
        """Of everything that was read, batches included that were not added."""
        self.next_offset = 0
        """Behind everything that was read."""
        self._firsts: list[int] = []
        """Where the records of each batch begin in `keeps`."""
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
        """Takes a batch and decompresses it; returns its place among them.

        Raises:
            CorruptCompressionError: the payload cannot be decompressed.
            UnsupportedCodecError: the attributes have a codec that nobody has defined.
        """
        view = batch.records_view()
        start, self._size = self._size, self._size + len(view)
        self.rows.extend((
            start, self._size, batch.record_count, batch.base_offset,
            latest_offset, keeps_tombstones, *_UNWRITTEN,
        ))  # fmt: skip
        self._firsts.append(len(self.keeps))
        # A count that is a lie must not cost memory before a kernel refuses it.
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

    def choice(self, place: int) -> Choice:
        """What stays of a batch, once `KeyMap.choose` has found out."""
        row = BATCH_ROW_SIZE * place
        return Choice._make(self.rows[row + BatchRow.KEPT : row + BatchRow.SIZE + 1])

    def kept_of(self, place: int) -> bytearray:
        """The bytes of `keeps` that are about one batch, which has been chosen from."""
        first = self._firsts[place]
        return self.keeps[first : first + self.batches[place].record_count]
