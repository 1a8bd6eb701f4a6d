"""Memory of this process, for whoever receives much: brokers, and workers of Spark."""

import contextlib
import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
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
