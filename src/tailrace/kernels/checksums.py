# cython: boundscheck=False
"""CRC-32C inside of kernels, by the processor's own instruction where it has one.

Not here: checksums outside of kernels, which the package `crc32c` computes.
"""

from typing import TYPE_CHECKING, Any, Final

import cython

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints

    tailrace_crc: Any
    tailrace_crc_begin: Any

_POLYNOMIAL: Final = 0x82F63B78
_START: Final = 0xFFFFFFFF

# Fills the table of the three lanes, once, while the import lock keeps other threads out.
if cython.compiled:
    tailrace_crc_begin()  # noqa: F821


def crc32c(data: "Ints", position: int, limit: int) -> int:
    """The CRC-32C of `data[position:limit]`."""
    crc = _START
    if cython.compiled:
        # C code in the .pxd file, for the processor's own CRC instruction, which Cython cannot
        # name.
        crc = tailrace_crc(crc, data + position, limit - position)  # noqa: F821
    else:
        for at in range(position, limit):
            crc ^= data[at]
            for _ in range(8):
                # The polynomial is bit-reversed, so the lowest bit goes first, without a branch.
                crc = (crc >> 1) ^ (_POLYNOMIAL & -(crc & 1))
    return crc ^ _START
