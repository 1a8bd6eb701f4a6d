"""A disk in memory with the faults of real disks: lost writes, torn writes, rot, full, errors.

Reads can fail too: they can be refused, return fewer bytes than there are, find the file changed by
another process, or have to wait for the device (`make_cold`).

It keeps two versions of everything: the one that a running process sees, and the one on the device.
File content gets to the device by `sync`, names in a directory by `sync_directory`. After `crash`
there is only one: all writes of a killed process; or the device after a power loss; or, with
`chance`, any state in between that a real disk could have.
"""

import errno
import functools
import os
import posixpath
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Union

from tailrace.runtime.files import Buffer, VolumeSpace, may_wait
from tailrace.testing.content import Content
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.testing.hanging import HangingDevice
OnCall = Callable[[str, str], None]
"""Called with an operation and its path."""

SECTOR_BYTES = 64
"""The unit that is written completely or not at all; smaller than a real sector, so that batch
headers can be torn."""


@dataclass(slots=True)
class _Inode:
    data: Content = field(default_factory=Content)
    on_device: Content = field(default_factory=Content)
    modified_ms: int = 0
    is_cold: bool = False
    """Whether the content is not in the page cache."""

    def after_crash(self, *, keep_unsynced: bool, chance: random.Random | None) -> "_Inode":
        content = self.data if keep_unsynced else self.on_device
        if chance is not None and not keep_unsynced:
            content = self._torn(chance)
        return _Inode(content.copy(), content.copy(), self.modified_ms)

    def state(self) -> object:
        return self.data.state(), self.modified_ms

    def _torn(self, chance: random.Random) -> Content:
        """A mixture, by sector, of synced content and later writes."""
        old, new = self.on_device, self.data
        size = chance.choice((len(old), len(new), chance.randint(*sorted((len(old), len(new))))))
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        content = Content()
        # After what was written both have zeros, megabytes of them in an index.
        for start in range(0, min(size, max(old.written_size, new.written_size)), SECTOR_BYTES):
            source = new if chance.random() < share else old
            content.write(start, source.read(start, min(SECTOR_BYTES, size - start)))
        content.resize(size)
        return content


class _Directory:
    """The names of a directory, and all sets of names since the last sync.

    Each of these sets could be on the device after a crash.
    """

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.since_sync: list[dict[str, _Node]] = [{}]

    def changed(self) -> None:
        self.since_sync.append(dict(self.entries))

    def sync(self) -> None:
        self.since_sync = [dict(self.entries)]

    def state(self) -> object:
        return frozenset((name, node.state()) for name, node in self.entries.items())

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


class _Tree:
    """Directories and files by path."""

    def __init__(self, root: _Directory) -> None:
        self.root = root

    def find(self, path: str) -> _Node | None:
        node: _Node | None = self.root
        for part in _parts(path):
            node = node.entries.get(part) if isinstance(node, _Directory) else None
        return node

    def file(self, path: str) -> _Inode:
        node = self.find(path)
        if isinstance(node, _Directory):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        if node is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return node

    def directory(self, path: str) -> _Directory:
        node = self.find(path)
        if not isinstance(node, _Directory):
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return node

    def parent(self, path: str) -> tuple[_Directory, str]:
        key = posixpath.normpath(path)
        return self.directory(posixpath.dirname(key) or "."), posixpath.basename(key)


class ProcessKilledError(BaseException):
    """The process was killed here (`MemoryFiles.stop_at`); no Exception, so nothing handles it."""


@dataclass(slots=True, kw_only=True)
class DiskFault:
    """A fault: which calls fail, and how."""

    operation: str
    """A method of `Files` or `File`: `write`, `sync`, `rename`, `read`, `list`, … Opening an
    existing file is `open_existing`, creating one is `open`."""
    path_part: str = ""
    """Only calls on paths that contain this fail."""
    after: int = 0
    """Number of calls that succeed before the fault."""
    error: int = errno.EIO
    partial_bytes: int = 0
    """Bytes of a failing write that reach the page cache."""
    short_bytes: int | None = None
    """A read returns at most this many bytes instead of an error, as if the file ended there."""


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
        self._disk.look("size", self._path)
        return len(self._inode.data)

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on."""
        self._need_open(writable=True)
        data = bytes(data)
        growth = position + len(data) - len(self._inode.data)
        allowed = _allow_write(self._disk, self._path, growth=growth, size=len(data))
        self._inode.data.write(position, data[: allowed.size])
        if allowed.error is not None:
            raise allowed.error

    def read(self, position: int, size: int) -> bytes:
        """A copy of at most `size` bytes."""
        self._need_open()
        if self._inode.is_cold:
            if not may_wait():
                raise _error(BlockingIOError, errno.EAGAIN, self._path)
            self._inode.is_cold = False
        allowed = self._disk.look("read", self._path)
        return self._inode.data.read(position, min(size, allowed))

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on; returns how many bytes there were."""
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def share(self) -> "MemoryFile":
        """The same open file once more."""
        self._need_open()
        return MemoryFile(self._disk, self._path, self._inode, read_only=self._read_only)

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        self._need_open(writable=True)
        self._disk.count("resize", self._path)
        self._inode.data.resize(size)

    def sync(self) -> None:
        """Put the content on the device."""
        self._need_open()
        self._disk.count("sync", self._path)
        self._inode.on_device = self._inode.data.copy()

    def close(self) -> None:
        """Release the descriptor; objects from `share` keep theirs."""
        self._is_closed = True

    def _need_open(self, *, writable: bool = False) -> None:
        if self._is_closed or (writable and self._read_only):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class MemoryLock:
    """A lock that is held until `release`, or until the disk object is replaced by `crash`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


@dataclass(frozen=True, slots=True)
class _Allowed:
    size: int
    error: BaseException | None


class MemoryFiles:
    """The file system double; paths are compared after `normpath`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        """Bytes of file content before ENOSPC; None for no limit."""
        self.faults: list[DiskFault] = []
        self.operations: list[tuple[str, str]] = []
        """Every call that changes the disk, in order: name and path."""
        self.on_call: OnCall | None = None
        """Called with each of these calls, before it has any effect; see `watchdog`."""
        self.reads: list[tuple[str, str]] = []
        """Every call that only reads, in order: name and path."""
        self.on_read: OnCall | None = None
        """Called before each read, with name and path, so that a test can change the disk."""
        self.stop_at: int | None = None
        """Index in `operations` of the call at which the process is killed; later ones fail too."""
        self.hanging: HangingDevice | None = None
        """The part of the disk that hangs; see `Outside.hang`."""
        self.volume = VolumeSpace(total=2**40, usable=2**39)
        """The size that the disk says it has."""
        self.stop_partial_bytes = 0
        """Bytes that reach the page cache if the process is killed in a write."""
        self._tree = _Tree(_Directory())
        self._locks: set[str] = set()

    def crash(
        self, *, keep_unsynced: bool = False, chance: random.Random | None = None
    ) -> "MemoryFiles":
        """The disk after the process was killed (`keep_unsynced`) or the machine lost power.

        With `chance`, a part of the unsynced changes is on the device: some sectors of each file,
        and the changes of each directory up to some point. Locks are released. The old object must
        not be used any more.
        """
        after = MemoryFiles(capacity_bytes=self.capacity_bytes)
        after._tree = _Tree(self._tree.root.after_crash(keep_unsynced=keep_unsynced, chance=chance))
        return after

    def content(self, path: str) -> bytes:
        """The content of a file as a process reads it."""
        return bytes(self._tree.file(path).data)

    def state(self) -> object:
        """All names, contents and times that a process sees, hashable, to compare disks by."""
        return self._tree.root.state()

    def overwrite(self, path: str, data: bytes) -> None:
        """Change a file directly, on the device too: bit rot, or another process."""
        inode = self._tree.file(path)
        inode.data = Content(data)
        inode.on_device = Content(data)

    def make_cold(self, path_part: str = "") -> None:
        """Remove files whose path contains `path_part` from the page cache.

        A read that may wait loads them again; one that may not wait raises BlockingIOError.
        """
        for path, inode in _inodes_in(self._tree.root, ""):
            if path_part in path:
                inode.is_cold = True

    def look(self, operation: str, path: str) -> int:
        """Note a call that only reads; returns how many bytes it may return, or raises a fault."""
        if self.on_read is not None:
            self.on_read(operation, path)
        self.reads.append((operation, path))
        fault = _due_fault(self.faults, operation, path)
        if fault is None:
            return sys.maxsize
        if fault.short_bytes is not None:
            return fault.short_bytes
        raise OSError(fault.error, os.strerror(fault.error), path)

    def count(self, operation: str, path: str) -> None:
        """Note a call; raises the error of a matching fault."""
        if _is_killed(self, operation, path):
            raise ProcessKilledError(f"{operation} {path}")
        fault = _due_fault(self.faults, operation, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """Open a file; a new one is on the device only after `sync_directory`."""
        if self._tree.find(path) is None:
            if not create:
                raise _error(FileNotFoundError, errno.ENOENT, path)
            directory, name = self._tree.parent(path)
            self.count("open", posixpath.normpath(path))
            directory.entries[name] = _Inode()
            directory.changed()
        else:
            self.look("open_existing", posixpath.normpath(path))
        key = posixpath.normpath(path)
        return MemoryFile(self, key, self._tree.file(path), read_only=read_only)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self.look("list", posixpath.normpath(path))
        return sorted(self._tree.directory(path).entries)

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        self.look("is_directory", posixpath.normpath(path))
        return isinstance(self._tree.find(path), _Directory)

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        self.look("exists", posixpath.normpath(path))
        return self._tree.find(path) is not None

    def space(self, path: str) -> VolumeSpace:
        """The size in `volume`, whatever has been written."""
        self.look("space", posixpath.normpath(path))
        return self.volume

    def modified_ms(self, path: str) -> int:
        """The time from `set_modified_ms`, or 0, because this disk has no clock."""
        self.look("modified_ms", posixpath.normpath(path))
        return self._tree.file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        self.count("set_modified_ms", posixpath.normpath(path))
        self._tree.file(path).modified_ms = modified_ms

    def make_directory(self, path: str, *, is_private: bool = False) -> None:  # noqa: ARG002
        """Make a directory and those above it."""
        found = self._tree.find(path)
        if isinstance(found, _Directory):
            return
        if found is not None:
            raise _error(FileExistsError, errno.EEXIST, path)
        key = posixpath.normpath(path)
        self.make_directory(posixpath.dirname(key) or ".")
        self.count("make_directory", key)
        directory, name = self._tree.parent(path)
        directory.entries[name] = _Directory()
        directory.changed()

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory with all that is in it."""
        if self._tree.find(source) is None:
            raise _error(FileNotFoundError, errno.ENOENT, source)
        old, old_name = self._tree.parent(source)
        new, new_name = self._tree.parent(target)
        self.count("rename", posixpath.normpath(source))
        replaced = new.entries.get(new_name)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise _error(OSError, errno.ENOTEMPTY, target)
        new.entries[new_name] = old.entries.pop(old_name)
        old.changed()
        if new is not old:
            new.changed()

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._tree.file(path)
        self.count("remove", posixpath.normpath(path))
        directory, name = self._tree.parent(path)
        del directory.entries[name]
        directory.changed()

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""
        self._tree.directory(path)
        self.count("remove_tree", posixpath.normpath(path))
        directory, name = self._tree.parent(path)
        del directory.entries[name]
        directory.changed()

    def sync_directory(self, path: str) -> None:
        """Put the directory's names on the device, and the directory's own name too."""
        directory = self._tree.directory(path)
        self.count("sync_directory", posixpath.normpath(path))
        directory.sync()
        parts = _parts(path)
        above = self._tree.root
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


def _is_killed(disk: MemoryFiles, operation: str, path: str) -> bool:
    """Note a call that changes the disk; returns whether the process is killed in it."""
    disk.operations.append((operation, path))
    if disk.on_call is not None:
        disk.on_call(operation, path)
    if disk.hanging is not None:
        disk.hanging.touch(operation, path)
    return disk.stop_at is not None and len(disk.operations) > disk.stop_at


def _allow_write(disk: MemoryFiles, path: str, *, growth: int, size: int) -> _Allowed:
    """Return the bytes of a write that are stored, and the error that it raises after that."""
    if _is_killed(disk, "write", path):
        is_now = len(disk.operations) - 1 == disk.stop_at
        partial = min(disk.stop_partial_bytes, size) if is_now else 0
        return _Allowed(partial, ProcessKilledError(f"write {path}"))
    fault = _due_fault(disk.faults, "write", path)
    if fault is not None:
        error = OSError(fault.error, os.strerror(fault.error), path)
        return _Allowed(min(fault.partial_bytes, size), error)
    if disk.capacity_bytes is not None and growth > 0:
        free = disk.capacity_bytes - _bytes_in(disk._tree.root)
        if growth > free:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return _Allowed(max(size - growth + max(free, 0), 0), error)
    return _Allowed(size, None)


def _due_fault(faults: list[DiskFault], operation: str, path: str) -> DiskFault | None:
    for fault in faults:
        if fault.operation == operation and fault.path_part in path:
            if fault.after == 0:
                return fault
            fault.after -= 1
    return None


@functools.lru_cache(maxsize=1024)
def _parts(path: str) -> tuple[str, ...]:
    # Paths are taken apart at each call of a disk, and most of them again and again.
    return tuple(part for part in posixpath.normpath(path).split("/") if part not in {"", "."})


def _inodes_in(directory: _Directory, path: str) -> Iterator[tuple[str, _Inode]]:
    for name, node in directory.entries.items():
        if isinstance(node, _Directory):
            yield from _inodes_in(node, f"{path}{name}/")
        else:
            yield f"{path}{name}", node


def _bytes_in(directory: _Directory) -> int:
    return sum(
        _bytes_in(node) if isinstance(node, _Directory) else len(node.data)
        for node in directory.entries.values()
    )


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)


def move_content(source: MemoryFiles, target: MemoryFiles) -> None:
    """Give the content of a disk, which must not be used any more, to another one."""
    target._tree = source._tree
