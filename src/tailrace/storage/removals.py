"""Files that have left service and wait to be deleted: `.deleted` files and `-delete` folders.

A reader that has just been told a file's name still finds it, and an operator who deleted too much
has `file.delete.delay.ms` to stop the broker and rename it back.

Nothing is lost when the process dies before the time has come: a start deletes what carries these
names.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.runtime.files import Files


class _Removal(NamedTuple):
    due_ms: int
    path: str
    is_folder: bool


class Removals:
    """What is to be deleted, and when; may be used from several threads."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[_Removal] = []
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add_files(self, paths: Sequence[str], *, due_ms: int) -> None:
        """Have files deleted at `due_ms`, in milliseconds since 1970."""
        with self._changing:
            self._waiting += [_Removal(due_ms, path, is_folder=False) for path in paths]

    def add_folder(self, path: str, *, due_ms: int) -> None:
        """Have a folder deleted at `due_ms` with all that is in it."""
        with self._changing:
            self._waiting.append(_Removal(due_ms, path, is_folder=True))

    def remove_due(self, now_ms: int) -> int:
        """Delete what is due; returns how many files and folders. May take long.

        One that is gone already is fine. One that cannot be deleted does not keep the others, and
        stays until the next start.

        Raises:
            OSError: the first failure, after everything was tried.
        """
        with self._changing:
            due = [each for each in self._waiting if each.due_ms <= now_ms]
            self._waiting = [each for each in self._waiting if each.due_ms > now_ms]
        failure = None
        for each in due:
            try:
                if each.is_folder:
                    self._files.remove_tree(each.path)
                else:
                    self._files.remove(each.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return len(due)
