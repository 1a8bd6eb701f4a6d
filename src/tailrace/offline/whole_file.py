"""A file that is written as a stream and takes its name only when it is whole.

Invariant: at its path there is the older file or the new one, at any moment and after any crash.
"""

import contextlib
import io
import os
import stat
from collections.abc import Iterator

from tailrace.errors import DirectoryError, StorageError
from tailrace.runtime.files import Buffer, File, Files
from tailrace.storage.names import TEMPORARY_SUFFIX


class Output(io.RawIOBase):
    """Takes bytes one after the other, as Python's own files do."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._end = 0

    def writable(self) -> bool:
        # PyArrow asks before it writes; io.RawIOBase says False.
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._end

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]
        """Append all of `data`; returns its size in bytes."""
        view = memoryview(data).cast("B")
        self._file.write(self._end, view)
        self._end += len(view)
        return len(view)


@contextlib.contextmanager
def whole_file(files: Files, path: str) -> Iterator[Output]:
    """Takes what becomes the file at `path`, in place of an older one, when the block ends.

    It is on the device then. If the block raises, nothing is left and nothing has changed.

    Raises:
        DirectoryError: as the block.
        StorageError: the device refused, or there is a device or a pipe at the path.
    """
    _check_replaceable(path)
    # Beside the target, so that the rename stays within one file system.
    temporary = path + TEMPORARY_SUFFIX
    try:
        file = files.open(temporary, create=True)
        try:
            # A process that was killed may have left one of this name.
            file.resize(0)
            yield Output(file)
            file.sync()
            files.rename(temporary, path)
        except BaseException:
            # The first error says more than that of cleaning up.
            with contextlib.suppress(OSError):
                files.remove(temporary)
            raise
        finally:
            file.close()
        # A name that is not on the device may be gone after a crash, with a success reported.
        files.sync_directory(os.path.dirname(path) or ".")
    except (DirectoryError, StorageError):
        raise
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise StorageError(f"cannot write {path}: {reason}") from error


def _check_replaceable(path: str) -> None:
    """Refuse a path in whose place a file would be missed: the rename takes /dev/null away.

    Raises:
        StorageError: there is a device, a pipe or a socket, or a link to this process's output.
    """
    try:
        mode = os.stat(path).st_mode
        # /dev/stdout may lead to a file, and the link itself would be replaced.
        is_output = os.path.islink(path) and os.readlink(path).startswith("/proc/")
    except OSError:
        return  # There is nothing yet, or the open says what is wrong.
    if is_output or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StorageError(
            f"cannot write {path}: it is no file but a device, a pipe or a link to one, in whose "
            "place a file would come; give the path of a file"
        )
