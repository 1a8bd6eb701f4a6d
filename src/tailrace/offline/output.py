"""A file that is there whole or not at all: written under a temporary name, renamed at the end."""

import contextlib
import io
import os
from collections.abc import Iterator

from tailrace.errors import DirectoryError, StorageError
from tailrace.runtime.files import Buffer, File, Files
from tailrace.storage.names import TEMPORARY_SUFFIX


class Output(io.RawIOBase):
    """Takes bytes one behind the other, as Python's own files do."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._end = 0

    def writable(self) -> bool:
        """True: that is what it is for."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._end

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]
        """Write all of `data` behind what is there; returns its size in bytes."""
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
        StorageError: the device refused.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        file = files.open(temporary, create=True)
        try:
            file.resize(0)
            yield Output(file)
            file.sync()
            files.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(temporary)
            raise
        finally:
            file.close()
        files.sync_directory(os.path.dirname(path) or ".")
    except (DirectoryError, StorageError):
        raise
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise StorageError(f"cannot write {path}: {reason}") from error
