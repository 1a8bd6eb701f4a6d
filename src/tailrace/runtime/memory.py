"""The memory of this process: large buffers, its size, and what the garbage collector looks at."""

import contextlib
import gc
import mmap
from collections.abc import Iterator
from functools import cache
from typing import Self

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
SLICE_BYTES = 4 * 1024 * 1024
"""Bytes that are released to the system at a time: 4 MiB take some 0.3 ms, 100 MiB take 6 ms."""
OLDEST_GENERATION = 2
COLLECTION_THRESHOLDS = (700, 5, 0)
"""A full collection for each 8,400 objects that were added: 4 ms. Python's defaults, 10 and 10, are
for collections that look at all old objects too."""
LARGE_BUFFER_BYTES = 32 * 1024 * 1024
"""The largest threshold that glibc always accepts (half of HEAP_MAX_SIZE on 64 bits)."""


@cache
def keep_large_buffers() -> None:
    """Make glibc reuse large blocks in this process instead of returning each to the kernel."""
    # By default glibc maps a block of 128 KiB or more by itself, and unmaps it when it is freed (it
    # raises that limit as blocks are freed, but trims the end of its heap all the same). So a
    # buffer of 1 MB costs 256 page faults every time, two to three times the work of receiving
    # it. A limit that is set here stays as it is.
    import ctypes  # Takes 2 ms; nothing else here needs it.

    # Other C libraries (musl, macOS) have no `mallopt`, and do not need it.
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)


def resident_bytes() -> int:
    """Memory of this process that is in RAM now; 0 where the system does not say (not Linux)."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


class _Process:
    """The owner of the objects in this process."""

    __slots__ = ("is_ours",)

    def __init__(self) -> None:
        self.is_ours = False


_process = _Process()


def claim_process() -> None:
    """Let objects be frozen from now on: nobody else's code runs in this process."""
    _process.is_ours = True


def freeze_objects() -> None:
    """Keep the objects that are alive out of collections, in a process that was claimed.

    In a program of the user it does nothing: his objects would never be collected, and nobody can
    freeze only some.
    """
    if _process.is_ours:
        gc.freeze()


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Collect nothing meanwhile, and then `freeze_objects`.

    For the imports of a command that stays. They leave no garbage to speak of, and a tenth of the
    start of a broker was eighty looks at the modules that it had already.
    """
    gc.disable()
    try:
        yield
    finally:
        # What was made counts as young, and the next collection would look at all of it.
        freeze_objects()
        gc.enable()


def freeze_what_survives() -> None:
    """Keep what a full collection has left out of the next ones, in a process that was claimed.

    So each looks at new objects alone, and none takes longer because there are thousands of
    connections or partitions. A cycle of references that becomes garbage after it was frozen is
    never freed (decision 100).
    """
    if not _process.is_ours:
        return
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == OLDEST_GENERATION:
        gc.freeze()


class LargeMemory(mmap.mmap):
    """Anonymous memory that is allocated when it is written to, and released in slices.

    Filling 100 MiB with zeros takes 60 ms, and releasing them 6 ms, with the interpreter's lock
    held. A worker thread that drops such memory passes the lock on between slices. The event loop
    calls `shrink` until nothing is left, with other callbacks in between. On a system that cannot
    shrink memory (all but Linux) it is released at once.
    """

    def __new__(cls, size: int) -> Self:
        """`size` bytes, all zero."""
        # Shared memory, the default, costs three times as much, and cannot be released in slices.
        return super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def shrink(self) -> bool:
        """Release a slice; returns whether more is left.

        Raises:
            BufferError: a view of the memory still exists.
        """
        size = len(self) - SLICE_BYTES
        # mremap is Linux' own.
        with contextlib.suppress(SystemError, AttributeError):
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
