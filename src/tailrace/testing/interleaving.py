"""A disk that changes between two calls of its reader, as a running broker changes it.

    disk = RecordingFiles()                     a broker writes to it …
    disk.states.clear()
    clean(log)                                  … and each state in between is kept
    disk.states.append(disk.copy())
    read(ChangingFiles(disk.states, at=7, to=3))

A file that was opened before a change keeps its content, like an unlinked file. With `is_in_place`
it has the content that has its name, as in an object store, or if somebody copies files
over others. So a test runs the broker once, and the reader once for each point at which a change
can come in between.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.testing.files import MemoryFile, MemoryFiles


class RecordingFiles(MemoryFiles):
    """Keeps a copy of the disk before each change."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[MemoryFiles] = []
        self.on_call = self._keep

    def _keep(self, operation: str, _: str) -> None:
        if not operation.startswith("sync"):
            self.states.append(self.copy())

    def copy(self) -> MemoryFiles:
        """The disk as it is now."""
        return self.crash(keep_unsynced=True)


class ChangingFiles:
    """A disk that changes from the first of `states` to another one between two calls.

    Before call number `at`, counted from 0, the disk becomes state `to`. With `is_stepwise` it
    then advances by one state with each call, up to the last.
    """

    def __init__(
        self,
        states: Sequence[MemoryFiles],
        *,
        at: int,
        to: int,
        is_stepwise: bool = False,
        is_in_place: bool = False,
    ) -> None:
        self.calls = 0
        """Number of calls so far."""
        self._states = states
        self._at = at
        self._to = to
        self._is_stepwise = is_stepwise
        self._is_in_place = is_in_place

    @property
    def has_changed(self) -> bool:
        """Whether a call was made on a later state than the first."""
        return self.calls > self._at

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:  # noqa: ANN401
        """Open a file of the disk as it is now; its calls count too."""
        file = self.count().open(path, create=create, read_only=read_only)
        return _RewrittenFile(self, path, file) if self._is_in_place else _CountedFile(self, file)

    def count(self) -> MemoryFiles:
        """Count a call; returns the disk for it."""
        late = self.calls - self._at
        self.calls += 1
        if late < 0:
            return self._states[0]
        place = self._to + late if self._is_stepwise else self._to
        return self._states[min(place, len(self._states) - 1)]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - any method, as it is
            return getattr(self.count(), name)(*given, **named)

        return call


class _CountedFile:
    def __init__(self, files: ChangingFiles, file: MemoryFile) -> None:
        self._files = files
        self._file = file

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - any method, as it is
            self._files.count()
            return getattr(self._file, name)(*given, **named)

        return call


class _RewrittenFile:
    """Has the length that it had when it was opened, and the content of now."""

    def __init__(self, files: ChangingFiles, path: str, file: MemoryFile) -> None:
        self._files = files
        self._path = path
        self._size = file.size()

    def size(self) -> int:
        """The length when it was opened."""
        self._files.count()
        return self._size

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file of that name."""
        return self._files.count().open(self._path, read_only=True).read(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer`; returns how many bytes there were."""
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def share(self) -> "_RewrittenFile":
        """This file."""
        return self

    def close(self) -> None:
        """Do nothing but count."""
        self._files.count()
