"""A disk in memory that can do what real ones do: lose what was not synced, tear, rot, fill, fail.

It keeps two versions of everything: what a running process sees, and what is on the device. File
content gets there by `sync`, names in a directory by `sync_directory`. After `crash` there is only
one: what a killed process left, what a machine without power had on the device, or, with `chance`,
anything in between that a real disk could have.
"""

import ctypes
import errno
import os
import posixpath
import random
from dataclasses import dataclass, field
from typing import Union

from tailrace.runtime.files import Buffer

SECTOR_BYTES = 64
"""What reaches the device whole or not at all; smaller than a real sector, so that headers tear."""


@dataclass(slots=True)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    on_device: bytes = b""
    modified_ms: int = 0

    def after_crash(self, *, keep_unsynced: bool, chance: random.Random | None) -> "_Inode":
        content = bytes(self.data) if keep_unsynced else self.on_device
        if chance is not None and not keep_unsynced:
            content = self._torn(chance)
        return _Inode(bytearray(content), content, self.modified_ms)

    def _torn(self, chance: random.Random) -> bytes:
        """A mixture, by sector, of what was synced and what was written since."""
        old, new = self.on_device, bytes(self.data)
        size = chance.choice((len(old), len(new), chance.randint(*sorted((len(old), len(new))))))
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        content = bytearray(size)
        for start in range(0, size, SECTOR_BYTES):
            source = new if chance.random() < share else old
            sector = source[start : min(start + SECTOR_BYTES, size)]
            content[start : start + len(sector)] = sector
        return bytes(content)


class _Directory:
    """Names, and all the sets of names since the last sync: each could be on the device."""

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.since_sync: list[dict[str, _Node]] = [{}]

    def changed(self) -> None:
        self.since_sync.append(dict(self.entries))

    def sync(self) -> None:
        self.since_sync = [dict(self.entries)]

    def after_crash(self, *, keep_unsynced: bool, chance: random.Random | None) -> "_Directory":
        entries = self.entries if keep_unsynced else self.since_sync[0]
        if chance is not None and not keep_unsynced:
            entries = chance.choice(self.since_sync)
        after = _Directory()
        after.entries = {
            name: node.after_crash(keep_unsynced=keep_unsynced, chance=chance)
            for name, node in entries.items()
        }
        after.sync()
        return after


_Node = Union[_Inode, _Directory]  # noqa: UP007 - the classes name each other


class ProcessKilledError(BaseException):
    """The process died here (`MemoryFiles.stop_at`); not an Exception, so nothing handles it."""


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
        self._is_closed = False

    def size(self) -> int:
        """Current length."""
        return len(self._inode.data)

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on."""
        self._need_open(writable=True)
        data = bytes(data)
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
        self._need_open()
        return bytes(self._inode.data[position : position + size])

    def view(self, size: int) -> memoryview:
        """The first `size` bytes, read-only; later writes within them are seen."""
        if size > self.size():
            raise ValueError("a map may not be longer than the file")
        if size == 0:
            return memoryview(b"")
        # An object of its own, as a map is: whoever truncates can tell whether it is still held.
        mapped = (ctypes.c_ubyte * size).from_buffer(self._inode.data)
        return memoryview(mapped).cast("B").toreadonly()

    def forget(self, view: memoryview, size: int) -> None:
        """Nothing to give up."""
        assert 0 <= size <= len(view)

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        self._need_open(writable=True)
        self._disk.count("resize", self._path)
        if size != self.size():
            self._set_size(size)

    def sync(self) -> None:
        """Put the content on the device."""
        self._need_open()
        self._disk.count("sync", self._path)
        self._inode.on_device = bytes(self._inode.data)

    def close(self) -> None:
        """Release the descriptor; views stay valid."""
        self._is_closed = True

    def _need_open(self, *, writable: bool = False) -> None:
        if self._is_closed or (writable and self._read_only):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


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
    error: BaseException | None


class MemoryFiles:
    """The file system double; paths are compared after `normpath`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        """Bytes of file content that fit; more is ENOSPC. None: no limit."""
        self.faults: list[DiskFault] = []
        self.operations: list[tuple[str, str]] = []
        """Every call that changes the disk, in order: name and path."""
        self.stop_at: int | None = None
        """Place in `operations` of the call at which the process dies; later ones die too."""
        self.stop_partial_bytes = 0
        """If the process dies in a write: how many bytes still reach the page cache."""
        self._root = _Directory()
        self._locks: set[str] = set()

    def crash(
        self, *, keep_unsynced: bool = False, chance: random.Random | None = None
    ) -> "MemoryFiles":
        """The disk after the process was killed (`keep_unsynced`) or the machine lost power.

        With `chance`, a part of what was not synced is on the device after all: of each file some
        sectors, of each directory the changes up to some point. Locks are gone either way. The old
        object must not be used any more.
        """
        after = MemoryFiles(capacity_bytes=self.capacity_bytes)
        after._root = self._root.after_crash(keep_unsynced=keep_unsynced, chance=chance)
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
        self._note(operation, path)
        if self._is_stopped:
            raise ProcessKilledError(f"{operation} {path}")
        fault = self._due_fault(operation, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def allow_write(self, path: str, growth: int, size: int) -> _Allowed:
        """How many bytes of a write go through, and the error behind them."""
        self._note("write", path)
        if self._is_stopped:
            is_now = len(self.operations) - 1 == self.stop_at
            partial = min(self.stop_partial_bytes, size) if is_now else 0
            return _Allowed(partial, ProcessKilledError(f"write {path}"))
        fault = self._due_fault("write", path)
        if fault is not None:
            error = OSError(fault.error, os.strerror(fault.error), path)
            return _Allowed(min(fault.partial_bytes, size), error)
        if self.capacity_bytes is not None and growth > 0:
            free = self.capacity_bytes - _bytes_in(self._root)
            if growth > free:
                error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                return _Allowed(max(size - growth + max(free, 0), 0), error)
        return _Allowed(size, None)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """Open a file; a new one is on the device only after `sync_directory`."""
        if self._find(path) is None:
            if not create:
                raise _error(FileNotFoundError, errno.ENOENT, path)
            directory, name = self._parent(path)
            self.count("open", posixpath.normpath(path))
            directory.entries[name] = _Inode()
            directory.changed()
        key = posixpath.normpath(path)
        return MemoryFile(self, key, self._file(path), read_only=read_only)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(self._directory(path).entries)

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return isinstance(self._find(path), _Directory)

    def exists(self, path: str) -> bool:
        """Whether the path is anything at all."""
        return self._find(path) is not None

    def modified_ms(self, path: str) -> int:
        """What `set_modified_ms` has set, or 0: this disk has no clock."""
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        self.count("set_modified_ms", posixpath.normpath(path))
        self._file(path).modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        found = self._find(path)
        if isinstance(found, _Directory):
            return
        if found is not None:
            raise _error(FileExistsError, errno.EEXIST, path)
        key = posixpath.normpath(path)
        self.make_directory(posixpath.dirname(key) or ".")
        self.count("make_directory", key)
        directory, name = self._parent(path)
        directory.entries[name] = _Directory()
        directory.changed()

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory with all that is in it."""
        if self._find(source) is None:
            raise _error(FileNotFoundError, errno.ENOENT, source)
        old, old_name = self._parent(source)
        new, new_name = self._parent(target)
        self.count("rename", posixpath.normpath(source))
        new.entries[new_name] = old.entries.pop(old_name)
        old.changed()
        if new is not old:
            new.changed()

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._file(path)
        self.count("remove", posixpath.normpath(path))
        directory, name = self._parent(path)
        del directory.entries[name]
        directory.changed()

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""
        self._directory(path)
        self.count("remove_tree", posixpath.normpath(path))
        directory, name = self._parent(path)
        del directory.entries[name]
        directory.changed()

    def sync_directory(self, path: str) -> None:
        """Put the directory's names on the device; a directory takes its own name along."""
        directory = self._directory(path)
        self.count("sync_directory", posixpath.normpath(path))
        directory.sync()
        parts = _parts(path)
        above = self._root
        for part in parts:
            node = above.entries[part]
            assert isinstance(node, _Directory)
            for names in above.since_sync:
                names.setdefault(part, node)
            above = node

    def lock(self, path: str) -> MemoryLock:
        """Take the lock, or raise BlockingIOError at once."""
        key = posixpath.normpath(path)
        if key in self._locks:
            raise _error(BlockingIOError, errno.EAGAIN, path)
        self.open(path, create=True)
        self._locks.add(key)
        return MemoryLock(self._locks, key)

    @property
    def _is_stopped(self) -> bool:
        return self.stop_at is not None and len(self.operations) > self.stop_at

    def _note(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for part in _parts(path):
            node = node.entries.get(part) if isinstance(node, _Directory) else None
        return node

    def _file(self, path: str) -> _Inode:
        node = self._find(path)
        if isinstance(node, _Directory):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        if node is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        key = posixpath.normpath(path)
        return self._directory(posixpath.dirname(key) or "."), posixpath.basename(key)

    def _due_fault(self, operation: str, path: str) -> DiskFault | None:
        for fault in self.faults:
            if fault.operation == operation and fault.path_part in path:
                if fault.after == 0:
                    return fault
                fault.after -= 1
        return None


def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath(path).split("/") if part not in {"", "."}]


def _bytes_in(directory: _Directory) -> int:
    return sum(
        _bytes_in(node) if isinstance(node, _Directory) else len(node.data)
        for node in directory.entries.values()
    )


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
