"""A directory that a job writes: on a local disk, or at a URI that PyArrow can reach.

Names are relative to the directory and have `/` between their parts.

Invariant: `replace` and `publish` are atomic for readers, and on a local disk what they have
returned from outlives a loss of power.
"""

import errno
import os
import posixpath
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.errors import ConfigError, StorageError
from tailrace.runtime.files import DiskFiles, Files
from tailrace.storage.checkpoints import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

# Known suffixes: a run that finds one removes it with what else does not count.
UNFINISHED = ".unfinished"
"""Ends the name of a file that `replace` has not put in its place."""


class Folder(Protocol):
    """A directory; every method raises OSError as the system does."""

    path: str
    """The path or URI that was given; a local path is absolute."""

    def names(self, below: str = "") -> list[str]:
        """All files below a directory of it, sorted; none if the directory is not there."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file."""
        ...

    def read(self, name: str) -> bytes:
        """A whole file."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Give a file this content, atomically."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file."""
        ...

    def source(self, name: str) -> Any:  # noqa: ANN401 - a file of PyArrow, which is untyped
        """A file to read from, at any position."""
        ...

    def sink(self, name: str) -> Any:  # noqa: ANN401 - likewise
        """A new file to write, front to back."""
        ...

    def seal(self, name: str) -> None:
        """Return when the content of a written file is on the device."""
        ...

    def publish(self, renamed: Mapping[str, str]) -> None:
        """Give sealed files their final names, each atomically, over what is there."""
        ...

    def lock(self, name: str) -> None:
        """Keep other runs away until this process ends or calls `unlock`.

        Raises:
            StorageError: another run has the lock.
        """
        ...

    def unlock(self) -> None:
        """Give the lock back."""
        ...


class DiskFolder:
    """A directory of this machine, or one that is mounted on it."""

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._files = files or DiskFiles()
        self._lock: Any = None

    def names(self, below: str = "") -> list[str]:
        """The names of all files below, found by walking; links to directories are followed."""
        is_there = self._files.is_directory(self._full(below))
        # Object stores have no directories, so one that is not there has no files; a disk behaves
        # the same here.
        return sorted(self._below(below)) if is_there else []

    def size(self, name: str) -> int:
        file = self._files.open(self._full(name), read_only=True)
        try:
            return file.size()
        finally:
            file.close()

    def read(self, name: str) -> bytes:
        file = self._files.open(self._full(name), read_only=True)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def replace(self, name: str, data: bytes) -> None:
        """Write a new file beside it, flush that to the device and rename it."""
        unfinished = name + UNFINISHED
        self._files.make_directory(posixpath.dirname(self._full(name)))
        # Synced before the rename: otherwise the name could outlive its content.
        write_whole(self._files, self._full(unfinished), data, is_synced=True)
        self.publish({unfinished: name})

    def remove(self, name: str) -> None:
        """Remove the name at once; the device has that after the next `publish`."""
        self._files.remove(self._full(name))

    def source(self, name: str) -> Any:  # noqa: ANN401
        """A file read by calls: a device that refuses a mapped page would kill the process."""
        import pyarrow as pa

        return pa.OSFile(self._full(name), "rb")

    def sink(self, name: str) -> Any:  # noqa: ANN401
        """A new file; makes the directories above it."""
        import pyarrow as pa

        self._files.make_directory(posixpath.dirname(self._full(name)))
        return pa.OSFile(self._full(name), "wb")

    def seal(self, name: str) -> None:
        file = self._files.open(self._full(name))
        try:
            file.sync()
        finally:
            file.close()

    def publish(self, renamed: Mapping[str, str]) -> None:
        """Rename all files, then flush their directories and the new directories above them."""
        for name in {posixpath.dirname(final) for final in renamed.values()}:
            self._files.make_directory(self._full(name))
        for written, final in renamed.items():
            self._files.rename(self._full(written), self._full(final))
        # A rename is on the device when its directory is; the innermost first, as it is the one
        # that has the name.
        for name in sorted(_directories(renamed.values()), reverse=True):
            self._files.sync_directory(self._full(name))

    def lock(self, name: str) -> None:
        """Take a lock of the operating system, which ends with the process."""
        self._files.make_directory(posixpath.dirname(self._full(name)))
        try:
            self._lock = self._files.lock(self._full(name))
        except BlockingIOError as error:
            raise StorageError(f"{self.path}: another run is writing to it") from error

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _full(self, name: str) -> str:
        return posixpath.join(self.path, name) if name else self.path

    def _below(self, name: str) -> "Iterator[str]":
        for each in self._files.list(self._full(name)):
            inner = posixpath.join(name, each)
            if self._files.is_directory(self._full(inner)):
                yield from self._below(inner)
            else:
                yield inner


class ArrowFolder:
    """A directory at a URI: HDFS, an object store.

    Not here: a lock, which such stores do not have. Do not start two runs on one folder at once.
    """

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self.path = uri
        with _explaining(uri):
            self._filesystem, self._root = fs.FileSystem.from_uri(uri)

    def names(self, below: str = "") -> list[str]:
        """The names of all files below, by one listing."""
        from pyarrow import fs

        chosen = fs.FileSelector(self._full(below), recursive=True, allow_not_found=True)
        found = self._filesystem.get_file_info(chosen)
        return sorted(posixpath.relpath(each.path, self._root) for each in found if each.is_file)

    def size(self, name: str) -> int:
        """The size that the object store tells."""
        size = self._filesystem.get_file_info(self._full(name)).size
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._full(name))
        return int(size)

    def read(self, name: str) -> bytes:
        # PyArrow would unpack a file by the ending of its name.
        with self._filesystem.open_input_stream(self._full(name), compression=None) as stream:
            return bytes(stream.readall())

    def replace(self, name: str, data: bytes) -> None:
        """Write another file and move it over this one."""
        unfinished = name + UNFINISHED
        with self.sink(unfinished) as stream:
            stream.write(data)
        self.publish({unfinished: name})

    def remove(self, name: str) -> None:
        self._filesystem.delete_file(self._full(name))

    def source(self, name: str) -> Any:  # noqa: ANN401
        return self._filesystem.open_input_file(self._full(name))

    def sink(self, name: str) -> Any:  # noqa: ANN401
        """A new file; makes directories above it where the store has any."""
        self._filesystem.create_dir(posixpath.dirname(self._full(name)), recursive=True)
        return self._filesystem.open_output_stream(self._full(name), compression=None)

    def seal(self, name: str) -> None:
        """Do nothing: a closed file is stored."""

    def publish(self, renamed: Mapping[str, str]) -> None:
        for written, final in renamed.items():
            self._filesystem.create_dir(posixpath.dirname(self._full(final)), recursive=True)
            # Object stores copy and delete: what was written first is whole before its name
            # appears.
            self._filesystem.move(self._full(written), self._full(final))

    def lock(self, name: str) -> None:
        """Do nothing: there is no lock."""

    def unlock(self) -> None:
        """Do nothing: there is no lock."""

    def _full(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root


def open_folder(target: str) -> Folder:
    """The directory at a path or URI; nothing is made yet.

    Raises:
        ConfigError: PyArrow cannot use the URI.
    """
    # A disk of this machine: a lock keeps a second run away, and files outlive a loss of power.
    if target.startswith("file:"):
        return DiskFolder(_local_path(target))
    if "://" in target:
        return ArrowFolder(target)
    # Workers may run in another working directory than the driver.
    return DiskFolder(os.path.abspath(target))


def _local_path(uri: str) -> str:
    from pyarrow import fs

    with _explaining(uri):
        # PyArrow reads the escapes of a URI, and refuses the host of another machine.
        _, path = fs.FileSystem.from_uri(uri)
    return os.path.abspath(str(path))


@contextmanager
def _explaining(uri: str) -> "Iterator[None]":
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError([f"{uri}: PyArrow cannot use it: {error}"]) from error


def _directories(names: Iterable[str]) -> set[str]:
    """All directories above these names, the outermost being the folder itself."""
    found = {""}
    for name in names:
        above = posixpath.dirname(name)
        while above not in found:
            found.add(above)
            above = posixpath.dirname(above)
    return found
