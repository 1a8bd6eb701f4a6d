"""Checksums of any ranges of one file, each at the price of two blocks.

A search for batches in damaged bytes asks for the checksum of many ranges that overlap: a producer
may have sent values that look like the headers of a thousand large batches. So the checksum of the
bytes from the start to each block border is kept, 4 bytes for 1 KiB of file, and a range that
begins in one block and ends in a later one is worked out from two of them.

    start                      first                                        limit
      |-- block --|-- block --|--:--------|-- block --|-- block --|-- block --|:--|
                                 |  head  |                                   |t|
                                          border i                     border j

CRCs are linear: with zlib's conventions `crc(a + b) == shift(crc(a), len(b)) ^ crc(b)`, where
`shift` appends zeros. `shift` by one block is a matrix of 32 columns, and its powers double.

Invariant: every byte of the file is read at most once for the borders.
"""

from array import array
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

Checksum: TypeAlias = Callable[[memoryview, int], int]
"""`zlib.crc32` or `crc32c.crc32c`: continues a checksum over more bytes."""

BLOCK_BYTES: Final = 1024
_WINDOW_BYTES: Final = 1024 * BLOCK_BYTES


class RangeChecksums:
    """Checksums of ranges of a file from `start` on."""

    def __init__(
        self, read: Callable[[int, int], bytes], checksum: Checksum, *, start: int
    ) -> None:
        self._read = read
        """Takes position and size; may give fewer bytes at the end of the file."""
        self._checksum = checksum
        self._start = start
        self._borders = array("I", [0])
        """Checksum of the bytes from `start` to each block border."""

    def checksum(self, first: int, limit: int) -> int:
        """The checksum of the bytes from `first`, which is not before the start, to `limit`.

        Raises:
            OSError: the file cannot be read.
        """
        # The first border at or after the range's start, and the last one at or before its end.
        head = -(-(first - self._start) // BLOCK_BYTES)
        tail = (limit - self._start) // BLOCK_BYTES
        # The range has no whole block inside: read it as it is.
        if head >= tail:
            return self._continued(0, first, limit)
        self._extend(tail)
        # crc(first..tail) is shift(crc(first..head)) ^ crc(head..tail), and the second part is
        # shift(border head) ^ border tail. `shift` is linear, so both are shifted at once.
        value = self._continued(0, first, self._position(head)) ^ self._borders[head]
        value = self._shifted(value, tail - head) ^ self._borders[tail]
        return self._continued(value, self._position(tail), limit)

    def _position(self, border: int) -> int:
        return self._start + border * BLOCK_BYTES

    def _continued(self, value: int, first: int, limit: int) -> int:
        if first == limit:
            return value
        return self._checksum(memoryview(self._read(first, limit - first)), value)

    def _extend(self, border: int) -> None:
        """Work out the checksums up to a border."""
        while len(self._borders) <= border:
            position = self._position(len(self._borders) - 1)
            wanted = min(_WINDOW_BYTES, self._position(border) - position)
            data = memoryview(self._read(position, wanted))
            value = self._borders[-1]
            for at in range(0, wanted, BLOCK_BYTES):
                value = self._checksum(data[at : at + BLOCK_BYTES], value)
                self._borders.append(value)

    def _shifted(self, value: int, blocks: int) -> int:
        """The checksum `value` of data that this number of zero blocks is appended to."""
        power = 0
        while blocks:
            # Matrices of 1, 2, 4, 8 … blocks reach any distance in a few steps.
            if blocks & 1:
                value = _times(_shift(self._checksum, power), value)
            blocks >>= 1
            power += 1
        return value


@cache
def _shift(checksum: Checksum, power: int) -> tuple[int, ...]:
    """The matrix that appends 2 ** `power` blocks of zeros to a checksum, by columns."""
    if power:
        half = _shift(checksum, power - 1)
        return tuple(_times(half, column) for column in half)
    # What zeros do to each bit alone; the checksum of nothing is taken out, as it is not linear.
    zeros = memoryview(bytes(BLOCK_BYTES))
    nothing = checksum(zeros, 0)
    return tuple(checksum(zeros, 1 << bit) ^ nothing for bit in range(32))


def _times(matrix: tuple[int, ...], value: int) -> int:
    product = 0
    for column in matrix:
        if value & 1:
            product ^= column
        value >>= 1
        if not value:
            break
    return product
