"""Changes below directories as the system tells them (inotify): clocks for kills.

Not here: what has changed. A test that has to know looks for itself.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MODIFY: Final = 0x2
_CLOSE_WRITE: Final = 0x8
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_IS_DIRECTORY: Final = 0x40000000

_EVENT: Final = struct.Struct("iIII")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Changes:
    """Counts files that come, go, are renamed, or closed after writing, and if asked each write.

    In a directory that is new, what came before it was noticed counts too.
    """

    def __init__(self, *roots: Path, has_writes: bool = False) -> None:
        self.count = 0
        self._mask = _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE
        if has_writes:
            self._mask |= _MODIFY
        self._paths: dict[int, str] = {}
        self._file = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._file >= 0, os.strerror(ctypes.get_errno())
        for root in roots:
            root.mkdir(parents=True, exist_ok=True)
            self._watch(str(root))
        self.count = 0

    def fileno(self) -> int:
        """Readable when there are changes that were not taken."""
        return int(self._file)

    def take(self) -> None:
        """Count what has changed since."""
        for number, mask, name in self._events():
            self.count += 1
            if mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED_TO):
                self._watch(f"{self._paths[number]}/{name}")

    def close(self) -> None:
        """Without it the system goes on counting."""
        os.close(self._file)

    def _watch(self, path: str) -> None:
        number = _LIBC.inotify_add_watch(self._file, os.fsencode(path), self._mask)
        if number < 0:
            return  # It is gone again.
        self._paths[number] = path
        for entry in os.scandir(path):
            self.count += 1
            if entry.is_dir():
                self._watch(entry.path)

    def _events(self) -> Iterator[tuple[int, int, str]]:
        try:
            data = os.read(self._file, 1 << 20)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            yield number, mask, os.fsdecode(data[position : position + size].rstrip(b"\0"))
            position += size
