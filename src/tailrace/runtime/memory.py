"""Memory of this process, for what receives much: brokers, and workers of Spark."""

import contextlib
import ctypes
import mmap
from typing import Self

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
SLICE_BYTES = 4 * 1024 * 1024
"""How much is given back to the system at once: it takes some 0.3 ms, and 100 MiB take 6."""
LARGE_BUFFER_BYTES = 32 * 1024 * 1024
"""The largest threshold that glibc takes for sure (half of HEAP_MAX_SIZE on 64 bits)."""


def keep_large_buffers() -> None:
    """Have glibc reuse large blocks in this process, instead of giving each back to the kernel.

    A 1 MB buffer otherwise costs 256 page faults every time, two to three times the work of
    receiving it. Other C libraries have no `mallopt`, and no such trouble.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)


class LargeMemory(mmap.mmap):
    """Memory from the system that is there when it is written to, and goes back in slices.

    To fill 100 MiB with zeros takes 60 ms, and to give them back 6, with the interpreter's lock
    held. A worker thread that drops such memory hands the lock on in between.
    The event loop calls `shrink` until nothing is left, with turns for others in between. On a
    system that cannot shrink memory (all but Linux) it goes back at once.
    """

    def __new__(cls, size: int) -> Self:
        """`size` bytes, all zero."""
        # Shared memory, the default, costs three times as much, and does not go back in slices.
        return super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def shrink(self) -> bool:
        """Give back a slice; whether more is left.

        Raises:
            BufferError: something still has a view of it.
        """
        size = len(self) - SLICE_BYTES
        with contextlib.suppress(SystemError):
            if size > 0:
                self.resize(size)
                return True
        self.close()
        return False

    def __del__(self) -> None:
        # Views of this memory may still be open when both are part of the same garbage: then the
        # memory cannot be freed here, and Python frees it together with the last view.
        with contextlib.suppress(BufferError):
            while not self.closed and self.shrink():
                pass
