"""Reads that may wait for a device, on worker threads.

The event loop reads only from the page cache. If the page cache does not have the bytes, a handler
reads here. Each log directory has its own limit of reads at a time, so that a device that hangs
delays only the readers of that directory.
"""

import errno
from collections.abc import Callable
from typing import Final, TypeVar

from tailrace.errors import CorruptionError
from tailrace.runtime.files import CutMeanwhileError, FileSlice
from tailrace.runtime.threads import BoundedThreads, Threads
from tailrace.storage.log import Log

T = TypeVar("T")

PLACES_PER_DIRECTORY: Final = 4
"""Reads of one log directory at a time: enough to keep a device's queue filled."""

ATTEMPTS_MAX: Final = 5
"""Number of times that a read is tried when the log is cut meanwhile."""


class DeviceReads:
    """Reads on worker threads, with a limit for each log directory."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._directories: dict[str, BoundedThreads] = {}

    async def of_log(self, log: Log, read: Callable[[], T]) -> T:
        """The result of `read` on a log; repeated if the log was cut meanwhile.

        Raises:
            CutMeanwhileError: the log was cut during each try.
            CorruptionError, OSError: from `read`.
        """
        for _ in range(ATTEMPTS_MAX):
            cut_count = log.positions.cut_count
            try:
                found = await self._run(_parent(log.folder.path), read)
            except CutMeanwhileError:
                continue
            except CorruptionError:
                # A read across a cut sees half of what was there, which is no damage.
                if cut_count == log.positions.cut_count:
                    raise
                continue
            except OSError as error:
                # Retention or compaction has just closed the segment: read again.
                if error.errno != errno.EBADF:
                    raise
                continue
            if cut_count == log.positions.cut_count:
                return found
        raise CutMeanwhileError(log.folder.path)

    async def first_bytes(self, stored: FileSlice, size: int) -> bytes:
        """The first `size` bytes of a slice, or all if it has fewer.

        Raises:
            OSError: the device refused, or the bytes are not in the file any more.
        """
        buffer = bytearray(min(size, len(stored)))

        def read() -> None:
            stored.read_into(memoryview(buffer))

        await self._run(_parent(_parent(stored.path)), read)
        return bytes(buffer)

    async def _run(self, directory: str, read: Callable[[], T]) -> T:
        # By directory: one that hangs must not take the threads of the others.
        places = self._directories.get(directory)
        if places is None:
            places = BoundedThreads(self._threads, PLACES_PER_DIRECTORY)
            self._directories[directory] = places
        return await places.run(read)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
