"""A partition's folder, and the files that have left service and wait to be deleted.

These are `.deleted` files and `-delete` folders. Until `file.delete.delay.ms` has passed, a reader
that has just listed a file can still open it, and an operator can stop the broker and rename it
back. If the process dies before that, the next start deletes what has these names.
"""

import random
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.model import TopicPartition
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.values import dataclass


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFolder:
    """A partition's folder, with the files and services that its log works with."""

    partition: TopicPartition
    path: str
    files: Files
    clock: Clock
    chance: random.Random
    """Source of the jitter of rolls."""
    removals: Removals
    """Deletes files that have left service, after their delay."""

    def retire(self, paths: Iterable[str], *, delay_ms: int) -> None:
        """Take files out of service: rename them `.deleted` now, delete them after `delay_ms`.

        They are renamed in the given order, so after a crash the first ones are renamed. The names
        are not synced.

        Raises:
            OSError: a file cannot be renamed; those before it are renamed.
        """
        retired = []
        try:
            for path in paths:
                self.files.rename(path, path + names.DELETED_SUFFIX)
                retired.append(path + names.DELETED_SUFFIX)
        finally:
            self.removals.add_files(retired, due_ms=self.clock.now_ms() + delay_ms)
