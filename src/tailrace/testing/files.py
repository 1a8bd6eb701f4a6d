"""A disk in memory that can do what real ones do: lose what was not synced, tear, rot, fill, fail.

It keeps two versions of everything: what a running process sees, and what is on the device. File
content gets there by `sync`, names in a directory by `sync_directory`. `crash` throws away the
first version and returns a disk with the second.
"""

import errno
import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.runtime.files import Buffer


@dataclass(slots=True)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    on_device: bytes = b""
    modified_ms: int = 0


@dataclass(slots=True, kw_only=True)
class DiskFault:
    """Which call fails, and how."""

    operation: str
    """A method of `Files` or `File` that changes something: `write`, `sync`, `rename`, …"""
    path_part: str = ""
    """Only calls on paths that contain this."""
    after: int = 0
    """Calls that still go through before the fault."""
    error: int = errno.EIO
    partial_bytes: int = 0
    """Of a failing write, how many bytes reach the page cache all the same."""


class MemoryFile:
    """An open file of a `MemoryFiles`."""

    def __init__(self, disk: "MemoryFiles", path: str, inode: _Inode, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._read_only = read_only

    def size(self) -> int:
        """Current length."""
        return len(self._inode.data)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers from `position` on."""
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        data = b"".join(bytes(buffer) for buffer in buffers)
        allowed = self._disk.allow_write(self._path, position + len(data) - self.size(), len(data))
        self._put(position, data[: allowed.size])
        if allowed.error is not None:
            raise allowed.error

    def _put(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if end > len(self._inode.data):
            self._set_size(end)
        self._inode.data[position:end] = data

    def _set_size(self, size: int) -> None:
        data = self._inode.data
        # A new object: views of the old one stay valid, as maps of a grown file do.
        if size > len(data):
            self._inode.data = data + bytes(size - len(data))
        else:
            self._inode.data = data[:size]

    def read(self, position: int, size: int) -> bytes:
        """A copy of at most `size` bytes."""
        return bytes(self._inode.data[position : position + size])

    def view(self, size: int) -> memoryview:
        """The first `size` bytes, read-only; later writes within them are seen."""
        if size > self.size():
            raise ValueError("a map may not be longer than the file")
        return memoryview(self._inode.data)[:size].toreadonly()

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        self._disk.count("resize", self._path)
        if size != self.size():
            self._set_size(size)

    def sync(self) -> None:
        """Put the content on the device."""
        self._disk.count("sync", self._path)
        self._inode.on_device = bytes(self._inode.data)

    def close(self) -> None:
        """Nothing to release."""


class MemoryLock:
    """A lock that lives as long as its process, which is the disk object."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Let others have it."""
        self._held.discard(self._path)


@dataclass(frozen=True, slots=True)
class _Allowed:
    size: int
    error: OSError | None


class MemoryFiles:
    """The file system double; paths are compared after `normpath`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        """Bytes of file content that fit; more is ENOSPC. None: no limit."""
        self.faults: list[DiskFault] = []
        self.operations: list[tuple[str, str]] = []
        """Every call that changes the disk, in order: name and path."""
        self._entries: dict[str, _Inode | None] = {"/": None, ".": None}
        self._on_device: dict[str, _Inode | None] = dict(self._entries)
        self._locks: set[str] = set()

    def crash(self, *, keep_unsynced: bool = False) -> "MemoryFiles":
        """The disk after the process was killed (`keep_unsynced`) or the machine lost power.

        Locks are gone either way. The old object must not be used any more.
        """
        after = MemoryFiles(capacity_bytes=self.capacity_bytes)
        entries = self._entries if keep_unsynced else self._on_device
        inodes: dict[int, _Inode] = {}
        for path, inode in entries.items():
            if inode is None:
                after._entries[path] = None
                continue
            content = bytes(inode.data) if keep_unsynced else inode.on_device
            copy = _Inode(bytearray(content), content, inode.modified_ms)
            after._entries[path] = inodes.setdefault(id(inode), copy)
        after._on_device = dict(after._entries)
        return after

    def content(self, path: str) -> bytes:
        """What a process would read from a file."""
        return bytes(self._file(path).data)

    def overwrite(self, path: str, data: bytes) -> None:
        """Change a file behind everybody's back, on the device too: rot, or another's hand."""
        inode = self._file(path)
        inode.data = bytearray(data)
        inode.on_device = data

    def count(self, operation: str, path: str) -> None:
        """Note a call; raise what a matching fault asks for."""
        self.operations.append((operation, path))
        fault = self._due_fault(operation, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def allow_write(self, path: str, growth: int, size: int) -> _Allowed:
        """How many bytes of a write go through, and the error behind them."""
        self.operations.append(("write", path))
        fault = self._due_fault("write", path)
        if fault is not None:
            error = OSError(fault.error, os.strerror(fault.error), path)
            return _Allowed(min(fault.partial_bytes, size), error)
        if self.capacity_bytes is not None and growth > 0:
            free = self.capacity_bytes - sum(len(i.data) for i in self._entries.values() if i)
            if growth > free:
                error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                return _Allowed(max(size - growth + max(free, 0), 0), error)
        return _Allowed(size, None)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """Open a file; a new one is on the device only after `sync_directory`."""
        key = posixpath.normpath(path)
        if key not in self._entries:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._need_parent(key)
            self.count("open", key)
            self._entries[key] = _Inode()
        return MemoryFile(self, key, self._file(key), read_only=read_only)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        key = posixpath.normpath(path)
        if not self.is_directory(key):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted(
            posixpath.basename(entry)
            for entry in self._entries
            if entry not in ("/", ".") and (posixpath.dirname(entry) or ".") == key
        )

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        key = posixpath.normpath(path)
        return key in self._entries and self._entries[key] is None

    def exists(self, path: str) -> bool:
        """Whether the path is anything at all."""
        return posixpath.normpath(path) in self._entries

    def modified_ms(self, path: str) -> int:
        """Time of the last write; always 0, since this disk has no clock."""
        return self._file(path).modified_ms

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        key = posixpath.normpath(path)
        if self.is_directory(key):
            return
        if key in self._entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.make_directory(posixpath.dirname(key) or ".")
        self.count("make_directory", key)
        self._entries[key] = None

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory with all that is in it."""
        old, new = posixpath.normpath(source), posixpath.normpath(target)
        if old not in self._entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._need_parent(new)
        self.count("rename", old)
        for key in [key for key in self._entries if key == old or key.startswith(old + "/")]:
            self._entries[new + key[len(old) :]] = self._entries.pop(key)

    def remove(self, path: str) -> None:
        """Delete a file."""
        key = posixpath.normpath(path)
        self._file(key)
        self.count("remove", key)
        del self._entries[key]

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""
        key = posixpath.normpath(path)
        self.count("remove", key)
        for entry in [e for e in self._entries if e == key or e.startswith(key + "/")]:
            del self._entries[entry]

    def sync_directory(self, path: str) -> None:
        """Put the directory's entries on the device; a directory takes its own name along."""
        key = posixpath.normpath(path)
        self.count("sync_directory", key)
        gone = [e for e in self._on_device if self._is_in(e, key) and e not in self._entries]
        for entry in gone:
            below = [e for e in self._on_device if e == entry or e.startswith(entry + "/")]
            for old in below:
                del self._on_device[old]
        self._on_device[key] = None
        for entry, inode in self._entries.items():
            if self._is_in(entry, key):
                self._on_device[entry] = inode
                if inode is None:
                    self._move_synced_content(entry)

    def lock(self, path: str) -> MemoryLock:
        """Take the lock, or raise BlockingIOError at once."""
        key = posixpath.normpath(path)
        if key in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True)
        self._locks.add(key)
        return MemoryLock(self._locks, key)

    def _move_synced_content(self, directory: str) -> None:
        """After a directory was renamed, its files that were on the device are there still."""
        device_inodes = {id(inode) for inode in self._on_device.values() if inode is not None}
        for entry, inode in self._entries.items():
            is_below = entry.startswith(directory + "/")
            if is_below and inode is not None and (inode.on_device or id(inode) in device_inodes):
                self._on_device[entry] = inode

    @staticmethod
    def _is_in(entry: str, directory: str) -> bool:
        return entry not in ("/", ".") and (posixpath.dirname(entry) or ".") == directory

    def _file(self, path: str) -> _Inode:
        key = posixpath.normpath(path)
        if key not in self._entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inode = self._entries[key]
        if inode is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return inode

    def _need_parent(self, key: str) -> None:
        parent = posixpath.dirname(key) or "."
        if not self.is_directory(parent):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent)

    def _due_fault(self, operation: str, path: str) -> DiskFault | None:
        for fault in self.faults:
            if fault.operation == operation and fault.path_part in path:
                if fault.after == 0:
                    return fault
                fault.after -= 1
        return None
