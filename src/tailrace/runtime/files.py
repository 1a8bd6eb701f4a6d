"""Files and directories, as a seam: the calls that storage makes, and no others.

Reads that must not copy go through `File.view`, a memory map. Writes never go through a map: a
store into a hole of a full disk is a SIGBUS that kills the process, while `pwrite` returns ENOSPC.
Both see the same page cache, so a write is visible in every map at once.

Invariant: a mapped file is never made shorter below a byte that somebody may still read.

Every method raises OSError as the system call does; rooms above translate it.
"""

import errno
import fcntl
import mmap
import os
import shutil
import weakref
from typing import Protocol

Buffer = bytes | bytearray | memoryview

_LOCKED: set[tuple[int, int]] = set()
"""Lock files that this process holds: device and inode.

A POSIX lock belongs to the process, so it would let a second broker of the same process in; and to
open and close the file once more would drop it.
"""


class File(Protocol):
    """One open file; positions and sizes in bytes."""

    def size(self) -> int:
        """Current length."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on, into the page cache."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """A copy of at most `size` bytes; fewer at the end of the file."""
        ...

    def view(self, size: int) -> memoryview:
        """The first `size` bytes, read-only and without a copy; lives until it is released."""
        ...

    def resize(self, size: int) -> None:
        """Cut, or grow with a hole of zeros."""
        ...

    def sync(self) -> None:
        """Return when content and length are on the device."""
        ...

    def close(self) -> None:
        """Release the descriptor; views stay valid."""
        ...


class Lock(Protocol):
    """An exclusive lock on a file, held until released or until the process dies."""

    def release(self) -> None:
        """Let others have it."""
        ...


class Files(Protocol):
    """The file system, by absolute or relative path."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file, or with `create` a new or existing one."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the path is anything at all."""
        ...

    def modified_ms(self, path: str) -> int:
        """Time of the last write, in milliseconds since 1970."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move within a file system, atomically, over an existing file."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on the device."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock file at `path`; BlockingIOError when another process has it."""
        ...


class DiskFile:
    """A descriptor of the real file system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def size(self) -> int:
        """Current length in bytes."""
        return os.fstat(self._descriptor).st_size

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on; a short write is continued."""
        written = os.pwrite(self._descriptor, data, position)
        while written < len(data):
            written += os.pwrite(self._descriptor, memoryview(data)[written:], position + written)

    def read(self, position: int, size: int) -> bytes:
        """A copy of at most `size` bytes from `position` on."""
        return os.pread(self._descriptor, size, position)

    def view(self, size: int) -> memoryview:
        """A read-only map of the first `size` bytes."""
        if size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))

    def resize(self, size: int) -> None:
        """Cut, or grow with a hole."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Wait for the device: content and length, not access times."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Release the descriptor."""
        self._close()


class DiskLock:
    """A lock file held through `lockf`, which Java's FileLock sees too."""

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._release = weakref.finalize(self, _unlock, descriptor, identity)

    def release(self) -> None:
        """Close the file, which drops the lock."""
        self._release()


class DiskFiles:
    """The real file system."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open a file; the descriptor is not inherited by child processes."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return DiskFile(os.open(path, flags | os.O_CLOEXEC, 0o644))

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        """Whether the path is anything at all."""
        return os.path.exists(path)

    def modified_ms(self, path: str) -> int:
        """Time of the last write."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Move atomically, over an existing file."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Wait until the directory's entries are on the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> DiskLock:
        """Take the lock, or raise BlockingIOError at once."""
        if os.path.exists(path) and _identity(os.stat(path)) in _LOCKED:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        identity = _identity(os.fstat(descriptor))
        _LOCKED.add(identity)
        return DiskLock(descriptor, identity)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _unlock(descriptor: int, identity: tuple[int, int]) -> None:
    _LOCKED.discard(identity)
    os.close(descriptor)
