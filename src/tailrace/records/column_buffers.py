"""Growing buffers in Arrow's layout, which kernels fill with columns.

Not here: the choice of columns, and Arrow itself (`columns`).

Invariant: rows that were kept do not change, even after `undo` or a fault.
"""

import sys
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from tailrace import kernels
from tailrace.kernels import PAYLOAD_WIDTH

if TYPE_CHECKING:
    from array import array

ElementT = TypeVar("ElementT", bound=np.generic)


class RowBuffers:
    """The buffers that `decode_records` fills, and how far they are filled.

    All columns have room for `count_max` rows, and keys and values for `size_max` bytes each. Room
    that is never written costs no memory, because the system gives memory at the first write.
    """

    __slots__ = (
        "count",
        "count_max",
        "cursors",
        "kept",
        "key_data",
        "key_ends",
        "key_valid",
        "offsets",
        "outputs",
        "size",
        "size_max",
        "timestamps",
        "value_data",
        "value_ends",
        "value_valid",
    )

    def __init__(self, count_max: int, size_max: int) -> None:
        self.cursors = np.zeros(4, np.int64)
        # A list of Python's integers: to index a numpy array makes an object each time.
        self.kept = [0, 0, 0, 0]
        self.count = self.size = 0
        self.count_max = count_max
        self.size_max = size_max
        self.offsets, self.timestamps = _empty(count_max, np.int64), _empty(count_max, np.int64)
        self.key_ends = _empty(count_max + 1, np.int32)
        self.value_ends = _empty(count_max + 1, np.int32)
        # Arrow's first end is 0; the kernel only writes those after it.
        self.key_ends[0] = self.value_ends[0] = 0
        self.key_valid, self.value_valid = _empty(count_max, np.uint8), _empty(count_max, np.uint8)
        self.key_data, self.value_data = _empty(size_max, np.uint8), _empty(size_max, np.uint8)
        self._list_outputs()

    def make_room(self, count: int, size: int) -> None:
        """Room for `count` more rows from a payload of `size` bytes."""
        rows, used = self.count, self.size
        if rows + count > self.count_max:
            # Doubled, so that the copies of all growths are at most as many bytes as the last one.
            self.count_max = max(rows + count, 2 * self.count_max)
            self.offsets = _grown(self.offsets, rows, self.count_max)
            self.timestamps = _grown(self.timestamps, rows, self.count_max)
            self.key_ends = _grown(self.key_ends, rows + 1, self.count_max + 1)
            self.key_valid = _grown(self.key_valid, rows, self.count_max)
            self.value_ends = _grown(self.value_ends, rows + 1, self.count_max + 1)
            self.value_valid = _grown(self.value_valid, rows, self.count_max)
            self._list_outputs()
        if used + size > self.size_max:
            # What is copied ends where `keep` has kept it: what a fault has left after that is
            # garbage.
            _, key_end, value_end, _ = self.kept
            self.size_max = max(used + size, 2 * self.size_max)
            self.key_data = _grown(self.key_data, key_end, self.size_max)
            self.value_data = _grown(self.value_data, value_end, self.size_max)
            self._list_outputs()

    @property
    def has_new_headers(self) -> bool:
        """Whether a record that was written since `keep` has headers."""
        return bool(self.cursors[3] != self.kept[3])

    def reference_counts(self) -> list[int]:
        """References to each buffer; they are more than at first while somebody else has one."""
        # Arrow buffers hold a reference to the array that they were made of, and so do their
        # slices.
        return [sys.getrefcount(each) for each in self.outputs]

    def clear(self) -> None:
        """Begins again with no rows."""
        self.cursors[:] = 0
        self.kept = [0, 0, 0, 0]
        self.count = self.size = 0

    def keep(self) -> None:
        """Keeps the rows that the kernel has written."""
        self.kept = self.cursors.tolist()
        self.count, key_end, value_end, _ = self.kept
        self.size = key_end + value_end

    def undo(self) -> None:
        """Forgets the rows that the kernel has written since `keep`."""
        # The bytes stay: the next rows overwrite them, and no column reaches there.
        self.cursors[:] = self.kept

    def _list_outputs(self) -> None:
        self.outputs = (
            self.cursors, self.offsets, self.timestamps,
            self.key_ends, self.key_valid, self.key_data,
            self.value_ends, self.value_valid, self.value_data,
        )  # fmt: skip


class HeaderBuffers:
    """The buffers that `decode_headers` fills, and how far they are filled."""

    __slots__ = (
        "count_max",
        "cursors",
        "key_data",
        "key_ends",
        "outputs",
        "row_ends",
        "row_valid",
        "size",
        "spare_max",
        "value_data",
        "value_ends",
        "value_valid",
    )

    def __init__(self) -> None:
        self.cursors = np.zeros(4, np.int64)
        self.size = self.count_max = self.spare_max = 0
        self.row_ends, self.row_valid = np.zeros(1, np.int32), _empty(0, np.uint8)
        self.key_ends, self.key_data = np.zeros(1, np.int32), _empty(0, np.uint8)
        self.value_ends, self.value_valid = np.zeros(1, np.int32), _empty(0, np.uint8)
        self.value_data = _empty(0, np.uint8)
        self._list_outputs()

    def make_room(self, count: int, size: int) -> None:
        """Room for `count` more rows from a payload of `size` bytes."""
        row, header, key_end, value_end = self.cursors.tolist()
        # Headers can only use the bytes that the records' own fields leave; each takes two or more.
        spare = size - count * kernels.RECORD_SIZE_MIN
        if row + count > self.count_max:
            self.count_max = max(row + count, 2 * self.count_max)
            self.row_ends = _grown(self.row_ends, row + 1, self.count_max + 1)
            self.row_valid = _grown(self.row_valid, row, self.count_max)
            self._list_outputs()
        if 2 * header + key_end + value_end + spare > self.spare_max:
            self.spare_max = max(2 * header + key_end + value_end + spare, 2 * self.spare_max)
            self.key_ends = _grown(self.key_ends, header + 1, self.spare_max + 1)
            self.key_data = _grown(self.key_data, key_end, self.spare_max)
            self.value_ends = _grown(self.value_ends, header + 1, self.spare_max + 1)
            self.value_valid = _grown(self.value_valid, header, self.spare_max)
            self.value_data = _grown(self.value_data, value_end, self.spare_max)
            self._list_outputs()

    def decode(self, source: memoryview, payloads: "array[int]", *, start: int, limit: int) -> int:
        """Appends the headers of these batches; 0, or minus a fault, and then none is appended."""
        before = self.cursors.tolist()
        for at in range(0, len(payloads), PAYLOAD_WIDTH):
            position, end, count, base_offset = payloads[at : at + 4]
            self.make_room(count, end - position)
            status = kernels.decode_headers(
                source, position, end, count, base_offset, start, limit, *self.outputs
            )
            # Headers of earlier batches of this call go too: a run is appended whole or not at all.
            if status < 0:
                self.cursors[:] = before
                return status
        _, _, key_end, value_end = self.cursors.tolist()
        self.size = key_end + value_end
        return 0

    def clear(self) -> None:
        """Begins again with no headers."""
        self.cursors[:] = 0
        self.size = 0

    def add_none(self, count: int) -> None:
        """Appends `count` records without headers."""
        # A payload of records without headers has no spare bytes, so only rows get room.
        self.make_room(count, count * kernels.RECORD_SIZE_MIN)
        row, header = self.cursors[:2].tolist()
        self.row_ends[row + 1 : row + count + 1] = header
        self.row_valid[row : row + count] = 0
        self.cursors[0] = row + count

    def _list_outputs(self) -> None:
        self.outputs = (
            self.cursors, self.row_ends, self.row_valid,
            self.key_ends, self.key_data, self.value_ends, self.value_valid, self.value_data,
        )  # fmt: skip


def _empty(count: int, dtype: type[ElementT]) -> npt.NDArray[ElementT]:
    # Not zeroed: the kernel writes each place before anybody reads it.
    return np.empty(count, dtype)


def _grown(array: npt.NDArray[ElementT], used: int, count_max: int) -> npt.NDArray[ElementT]:
    """An array of `count_max` items that begins with the first `used` items of `array`."""
    larger = np.empty(count_max, array.dtype)
    larger[:used] = array[:used]
    return larger
