"""Which bytes of a file the page cache has, without reading them: Linux's `cachestat` (6.5).

`sendfile` has no flag that keeps it from waiting for a device, so whoever may not wait asks first.
"""

import mmap
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

_NUMBER: Final = 451
"""Of the system call, the same on every architecture that has it."""

_RANGE: Final = struct.Struct("=QQ")
"""Position and size."""

_STATISTICS: Final = struct.Struct("=QQQQQ")
"""Pages that are cached, dirty, in writeback, evicted, recently evicted."""


def is_cached(descriptor: int, position: int, size: int) -> bool | None:
    """Whether the page cache has all pages with these bytes; None where the kernel does not tell.

    They may leave it at any time. Of pages behind the end of the file, False.
    """
    found = bytearray(_STATISTICS.size)
    if size <= 0 or not _ask()(descriptor, _RANGE.pack(position, size), found):
        return None
    first, last = position // mmap.PAGESIZE, (position + size - 1) // mmap.PAGESIZE
    return bool(_STATISTICS.unpack(found)[0] >= last - first + 1)


@cache
def _ask() -> Callable[[int, bytes, bytearray], bool]:
    """The system call: fills the statistics of a range, and says whether it could."""
    if sys.platform != "linux":
        return lambda *_: False
    # Not at import: a broker that starts has no use for it yet.
    import ctypes

    # Holds the interpreter's lock through the call, which takes a microsecond: to get the lock back
    # may take as long as a turn of another thread.
    call = ctypes.PyDLL(None).syscall
    statistics = ctypes.c_ubyte * _STATISTICS.size

    def ask(descriptor: int, wanted: bytes, found: bytearray) -> bool:
        return not call(
            ctypes.c_long(_NUMBER), ctypes.c_int(descriptor), wanted,
            ctypes.byref(statistics.from_buffer(found)), ctypes.c_uint(0),
        )  # fmt: skip

    return ask
