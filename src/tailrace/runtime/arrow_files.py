"""`ArrowFiles`: the `Files` seam over PyArrow's file systems, read-only.

    open_uri("s3://bucket/data?region=eu-west-1")  ->  files, "bucket/data"

Object stores have no directories and no cheap small reads. A path counts as a directory if objects
are below it, and small reads are served from a cached block.

Every method that changes something raises OSError with EROFS.
"""

import errno
import os
from typing import NoReturn

import pyarrow as pa
from pyarrow import fs

from tailrace.runtime.files import Buffer, DiskFiles, Files

BLOCK_BYTES = 256 * 1024
"""Size of a small read: the latency of a request to an object store is about that of 256 KiB."""


def open_uri(uri: str) -> tuple[Files, str]:
    """The file system of a URI, and the path in it; `file:` is the disk of this machine.

    Raises:
        ValueError: PyArrow does not know the scheme, or the URI is malformed.
        OSError: a library that the scheme needs is missing, or the store refuses.
    """
    system, path = fs.FileSystem.from_uri(uri)
    if isinstance(system, fs.LocalFileSystem):
        return DiskFiles(), path
    return ArrowFiles(system), path


class ArrowFile:
    """One open object."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._size: int = source.size()
        self._block_start, self._block = 0, b""

    def size(self) -> int:
        """Length at the time of opening."""
        return self._size

    def read(self, position: int, size: int) -> bytes:
        """A copy of at most `size` bytes from `position` on."""
        at = position - self._block_start
        if at >= 0 and at + size <= len(self._block):
            return self._block[at : at + size]
        data: bytes = self._source.read_at(max(size, BLOCK_BYTES), position)
        # A large read is not kept: its bytes are rarely asked for twice.
        self._block_start, self._block = position, data if size < BLOCK_BYTES else b""
        return data[:size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on; returns how many bytes there were."""
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def share(self) -> "ArrowFile":
        return self

    def write(self, position: int, data: Buffer) -> None:
        _refuse(position, data)

    def resize(self, size: int) -> None:
        _refuse(size)

    def sync(self) -> None:
        """Do nothing: these files are never written."""

    def close(self) -> None:
        self._source.close()


class ArrowFiles:
    """A file system of PyArrow."""

    def __init__(self, system: fs.FileSystem) -> None:
        self._system = system

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> ArrowFile:
        if create or not read_only:
            _refuse(path)
        return ArrowFile(self._system.open_input_file(path))

    def list(self, path: str) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(path))
        return sorted(info.base_name for info in found)

    def is_directory(self, path: str) -> bool:
        """Whether there is anything below the path."""
        return bool(self._info(path).type == fs.FileType.Directory)

    def exists(self, path: str) -> bool:
        return bool(self._info(path).type != fs.FileType.NotFound)

    def modified_ms(self, path: str) -> int:
        info = self._info(path)
        if info.mtime_ns is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return int(info.mtime_ns) // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        _refuse(path, modified_ms)

    def make_directory(self, path: str, *, is_private: bool = False) -> None:
        _refuse(path, is_private)

    def rename(self, source: str, target: str) -> None:
        _refuse(source, target)

    def remove(self, path: str) -> None:
        _refuse(path)

    def remove_tree(self, path: str) -> None:
        _refuse(path)

    def sync_directory(self, path: str) -> None:
        """Do nothing: these directories are never changed."""

    def space(self, path: str) -> NoReturn:
        _refuse(path)

    def lock(self, path: str) -> NoReturn:
        _refuse(path)

    def _info(self, path: str) -> fs.FileInfo:
        return self._system.get_file_info(path)


def _refuse(*wanted: object) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(wanted[0]))
