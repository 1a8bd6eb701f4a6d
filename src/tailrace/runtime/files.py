"""Files and directories, as a seam: the calls that storage needs.

No file is mapped. If a device refuses a mapped page, or another process cuts the file, SIGBUS kills
the process; `pread` returns an error or fewer bytes, and is as fast.

A read takes microseconds if the page cache has the bytes, and an unknown time if the device must be
read. `without_waiting` is for the event loop's thread, which must never wait: within it, a read
that the page cache cannot serve raises BlockingIOError, and the caller repeats it on a thread.

Every method raises OSError as the system call does, with the name of the file. Callers use the name
to find the log directory that failed.
"""

import contextlib
import errno
import fcntl
import os
import resource
import stat
import threading
import weakref
from typing import Final, NamedTuple, Protocol

from tailrace.errors import RetriableError

Buffer = bytes | bytearray | memoryview

# Lock files that this process holds: device and inode.
# A POSIX lock belongs to the process, so it would not refuse a second broker in the same process;
# and if the process opens and closes the file again, the lock is lost.
_LOCKED: set[tuple[int, int]] = set()


class FileCutError(OSError):
    """A file has fewer bytes than expected: another process has cut it."""

    def __init__(self, path: str, *, position: int) -> None:
        super().__init__(errno.EIO, f"the file was cut at or before byte {position}", path)


class CutMeanwhileError(RetriableError, OSError):
    """This process has cut a file while another of its threads read it; read again."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EAGAIN, "the file was cut while it was read", path)


class HeldHereError(BlockingIOError):
    """This process holds the lock itself."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


class File(Protocol):
    """One open file; positions and sizes in bytes."""

    def size(self) -> int:
        """Current length."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on, into the page cache."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from `position` on; fewer only at the end of the file.

        Raises:
            BlockingIOError: within `without_waiting`, and the page cache does not have them all.
        """
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read into `buffer`; returns how many bytes, fewer only at the end of the file.

        Raises:
            BlockingIOError: as `read`; the buffer may have changed.
        """
        ...

    def share(self) -> "File":
        """A second object for the same open file, which can be read after this one is closed."""
        ...

    def resize(self, size: int) -> None:
        """Cut, or grow with a hole of zeros."""
        ...

    def sync(self) -> None:
        """Return when content and length are on the device."""
        ...

    def close(self) -> None:
        """Release the descriptor."""
        ...


def read_exactly(file: File, path: str, *, position: int, size: int) -> bytes:
    """`size` bytes from `position` on.

    Raises:
        FileCutError: the file has fewer.
        OSError: the file cannot be read.
    """
    data = file.read(position, size)
    if len(data) < size:
        raise FileCutError(path, position=position + len(data))
    return data


class _ReadMode(threading.local):
    """Whether reads of the current thread may wait."""

    may_wait = True


_MANNER = _ReadMode()


def may_wait() -> bool:
    """Whether a read of this thread may wait for a device: False within `without_waiting`."""
    return _MANNER.may_wait


class WithoutWaiting:
    """A block in which reads of this thread do not wait for a device; see `without_waiting`."""

    __slots__ = ()

    def __enter__(self) -> None:
        _MANNER.may_wait = False

    def __exit__(self, *_: object) -> None:
        _MANNER.may_wait = True


without_waiting: Final = WithoutWaiting()
"""`with without_waiting:` reads that the page cache cannot serve raise BlockingIOError at once.

Blocks do not nest. It has no effect on a file system that does not report what the page cache has
(on Linux ext4, xfs, btrfs and tmpfs report it; macOS never does).
"""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)

_HAS_PREADV: Final = hasattr(os, "preadv")
# macOS: has the device empty its own cache too, as Java does there; `fsync` alone does not.
_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)

# Most descriptors of a process on macOS, which calls the limit infinite and takes no more.
_OPEN_FILES_MAX: Final = 10_240


class FileSlice(Protocol):
    """A range of bytes of a file, read when they are sent."""

    @property
    def path(self) -> str:
        """The file, for messages."""
        ...

    def __len__(self) -> int: ...

    def read_into(self, buffer: memoryview) -> int:
        """Read the first bytes into `buffer`; returns how many.

        Raises:
            BlockingIOError: within `without_waiting`, and the page cache does not have them all.
            OSError: the device refused, or the bytes are not in the file any more.
        """
        ...

    def after(self, size: int) -> "FileSlice":
        """The slice without its first `size` bytes."""
        ...

    def failed(self, error: OSError) -> None:
        """Report a device error to the slice's owner; on the event loop only."""
        ...


class Lock(Protocol):
    """An exclusive lock on a file, held until released or until the process dies."""

    def release(self) -> None: ...


class VolumeSpace(NamedTuple):
    """The size of a file system, in bytes."""

    total: int
    usable: int
    """Free bytes that this process may use, without those kept for the system's administrator."""


class Files(Protocol):
    """The file system, by absolute or relative path."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file, or with `create` a new or existing one."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory; raises OSError if the device fails."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the path exists; raises OSError if the device fails."""
        ...

    def modified_ms(self, path: str) -> int:
        """Time of the last write, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        ...

    def make_directory(self, path: str, *, is_private: bool = False) -> None:
        """Create a directory and those above it; an existing one is no error.

        No other user can read what is in a private one, whatever the mode of the files.
        """
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

    def space(self, path: str) -> VolumeSpace:
        """The size of the file system that a path is on; waits for the device."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock file at `path`; BlockingIOError when another process has it."""
        ...


class _Descriptor:
    """A file descriptor that is closed when the last reference to this object is gone.

    A thread in a system call keeps a reference. Otherwise the descriptor could be closed and reused
    for another file, which the thread would then read or flush by mistake.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        weakref.finalize(self, os.close, number)


class DiskFile:
    """A descriptor of the real file system; may be closed while other threads use it."""

    def __init__(self, descriptor: _Descriptor, path: str, *, is_synced: bool) -> None:
        self._descriptor: _Descriptor | None = descriptor
        self._is_synced = is_synced
        # The path at the time of opening, for errors: calls on a descriptor have no path.
        self._path = path
        # Whether the file system supports RWF_NOWAIT.
        self._tells_cached = True

    def size(self) -> int:
        """Current length in bytes."""
        held = self._held()
        try:
            return os.fstat(held.number).st_size
        except OSError as error:
            raise self._named(error) from None

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on; a short write is continued."""
        held = self._held()
        try:
            written = os.pwrite(held.number, data, position)
            while written < len(data):
                written += os.pwrite(held.number, memoryview(data)[written:], position + written)
        except OSError as error:
            raise self._named(error) from None

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from `position` on; fewer only at the end of the file."""
        held = self._held()
        if not _MANNER.may_wait:
            buffer = bytearray(size)
            count = self._fill(held, position, buffer)
            return bytes(buffer if count == size else buffer[:count])
        try:
            data = os.pread(held.number, size, position)
            while len(data) < size:
                # A signal or a device may end a read early; an empty one is the end of file.
                more = os.pread(held.number, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._named(error) from None
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on; returns how many bytes there were."""
        return self._fill(self._held(), position, buffer)

    def _fill(self, held: _Descriptor, position: int, buffer: bytearray | memoryview) -> int:
        count = self._read_some(held, position, buffer)
        while 0 < count < len(buffer):
            received = self._read_some(held, position + count, memoryview(buffer)[count:])
            if not received:
                break
            count += received
        return count

    def _read_some(self, held: _Descriptor, position: int, buffer: bytearray | memoryview) -> int:
        if not _MANNER.may_wait and _NOWAIT is not None and self._tells_cached:
            try:
                return os.preadv(held.number, (buffer,), position, _NOWAIT)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise self._named(error) from None
                self._tells_cached = False
        try:
            if _HAS_PREADV:
                return os.preadv(held.number, (buffer,), position)
            data = os.pread(held.number, len(buffer), position)
        except OSError as error:
            raise self._named(error) from None
        buffer[: len(data)] = data
        return len(data)

    def share(self) -> "DiskFile":
        """A second object for the same descriptor; it is closed with the last of them."""
        return DiskFile(self._held(), self._path, is_synced=self._is_synced)

    def resize(self, size: int) -> None:
        """Cut, or grow with a hole."""
        held = self._held()
        try:
            os.ftruncate(held.number, size)
        except OSError as error:
            raise self._named(error) from None

    def sync(self) -> None:
        """Wait for the device: content and length, not access times."""
        held = self._held()
        if not self._is_synced:
            return
        try:
            _sync(held.number)
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        """Release the descriptor, once no thread is in a call that uses it."""
        self._descriptor = None

    def _held(self) -> _Descriptor:
        """The descriptor; it stays open as long as the caller keeps it in a variable."""
        held = self._descriptor
        if held is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return held

    def _named(self, error: OSError) -> OSError:
        return _named(error, self._path)


class DiskLock:
    """A lock file held through `lockf`, which Java's FileLock sees too."""

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._release = weakref.finalize(self, _unlock, descriptor, identity)

    def release(self) -> None:
        """Close the file, which drops the lock."""
        self._release()


class DiskFiles:
    """The real file system."""

    def __init__(self, *, is_synced: bool = True) -> None:
        """Without `is_synced` no call waits for the device: for files that nobody needs later."""
        self._is_synced = is_synced

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open a file; the descriptor is not inherited by child processes."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        descriptor = _Descriptor(os.open(path, flags | os.O_CLOEXEC, 0o644))
        return DiskFile(descriptor, path, is_synced=self._is_synced)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def exists(self, path: str) -> bool:
        return _status(path) is not None

    def modified_ms(self, path: str) -> int:
        """Time of the last write."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def make_directory(self, path: str, *, is_private: bool = False) -> None:
        """Create a directory and those above it."""
        # The mode is that of the last one; those above keep to the mask of the process.
        os.makedirs(path, 0o700 if is_private else 0o777, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Move atomically, over an existing file."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.unlink(path)

    def space(self, path: str) -> VolumeSpace:
        """The size of the file system that a path is on."""
        found = os.statvfs(path)
        return VolumeSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""
        import shutil  # With the modules of three compressions, for what a broker does rarely.

        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Wait until the directory's entries are on the device."""
        if not self._is_synced:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _named(error, path) from None
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> DiskLock:
        """Take the lock, or raise BlockingIOError at once; HeldHereError if it is ours."""
        if os.path.exists(path) and _identity(os.stat(path)) in _LOCKED:
            raise HeldHereError(path)
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
    """Raise the limit of file descriptors to the hard limit: a partition needs six or more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, max(soft, _OPEN_FILES_MAX)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def _sync(descriptor: int) -> None:
    """Content and length onto the device."""
    if _FULL_SYNC is not None:
        with contextlib.suppress(OSError):  # not every file system has it
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _named(error: OSError, path: str) -> OSError:
    """The same error with the path, which calls on a descriptor do not have."""
    return OSError(error.errno, error.strerror, path)


def _status(path: str) -> os.stat_result | None:
    """The status of a path, or None; `os.path.exists` returns False for a failing device."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _unlock(descriptor: int, identity: tuple[int, int]) -> None:
    _LOCKED.discard(identity)
    os.close(descriptor)
