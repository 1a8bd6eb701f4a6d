"""Files and directories, as a seam: the calls that storage makes, and no others.

Reads that must not copy go through `File.view`, a memory map. Writes never go through a map: a
store into a hole of a full disk is a SIGBUS that kills the process, while `pwrite` returns ENOSPC.
Both see the same page cache, so a write is visible in every map at once.

Invariant: a mapped file is never made shorter below a byte that somebody may still read.

Every method raises OSError as the system call does; rooms above translate it.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import resource
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

    def forget(self, view: memoryview, size: int) -> None:
        """Give up the memory behind the first `size` bytes of a view; they stay readable."""
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

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
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


class _Descriptor:
    """A descriptor that is given back when nobody holds it any more.

    A thread that waits for the device keeps it through the call. Were it given back under that
    thread, the next file to be opened could get the same number, and be flushed in its place.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        weakref.finalize(self, os.close, number)


class DiskFile:
    """A descriptor of the real file system; may be closed while other threads use it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: _Descriptor | None = _Descriptor(descriptor)

    def size(self) -> int:
        """Current length in bytes."""
        held = self._held()
        return os.fstat(held.number).st_size

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on; a short write is continued."""
        held = self._held()
        written = os.pwrite(held.number, data, position)
        while written < len(data):
            written += os.pwrite(held.number, memoryview(data)[written:], position + written)

    def read(self, position: int, size: int) -> bytes:
        """A copy of at most `size` bytes from `position` on."""
        held = self._held()
        return os.pread(held.number, size, position)

    def view(self, size: int) -> memoryview:
        """A read-only map of the first `size` bytes."""
        if size == 0:
            return memoryview(b"")
        held = self._held()
        return memoryview(mmap.mmap(held.number, size, access=mmap.ACCESS_READ))

    def forget(self, view: memoryview, size: int) -> None:
        """Unmap pages until they are touched again: they no longer count as this process's."""
        mapped = view.obj
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED, 0, size - size % mmap.PAGESIZE)

    def resize(self, size: int) -> None:
        """Cut, or grow with a hole."""
        held = self._held()
        os.ftruncate(held.number, size)

    def sync(self) -> None:
        """Wait for the device: content and length, not access times."""
        held = self._held()
        os.fdatasync(held.number)

    def close(self) -> None:
        """Release the descriptor, once no thread is in a call that uses it."""
        self._descriptor = None

    def _held(self) -> _Descriptor:
        """The descriptor, for as long as the caller keeps it in a variable."""
        held = self._descriptor
        if held is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return held


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

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

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


def raise_descriptor_limit() -> None:
    """Use all the file descriptors that the process may have: a partition takes six, or more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _unlock(descriptor: int, identity: tuple[int, int]) -> None:
    _LOCKED.discard(identity)
    os.close(descriptor)
