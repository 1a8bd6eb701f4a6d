"""Files that have left service and wait to be deleted: `.deleted` files and `-delete` folders.

Until `file.delete.delay.ms` has passed, a reader that has just listed a file can still open it, and
an operator can stop the broker and rename it back.

If the process dies before that, the next start deletes the files and folders with these names.
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
    """Files and folders to delete, each with its time; may be used from several threads."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[_Removal] = []
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add_files(self, paths: Sequence[str], *, due_ms: int) -> None:
        """Schedule files for deletion at `due_ms`, in milliseconds since 1970."""
        with self._changing:
            self._waiting += [_Removal(due_ms, path, is_folder=False) for path in paths]

    def add_folder(self, path: str, *, due_ms: int) -> None:
        """Schedule a folder with its contents for deletion at `due_ms`."""
        with self._changing:
            self._waiting.append(_Removal(due_ms, path, is_folder=True))

    def remove_due(self, now_ms: int) -> int:
        """Delete the files and folders that are due; returns how many were. May take long.

        A missing one is ignored. One that cannot be deleted stays until the next start.

        Raises:
            OSError: the first failure, after all deletions were tried.
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
