"""A partition's folder: whose it is, and the seams that its log works through."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.model import TopicPartition
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.removals import Removals


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where a log keeps its files."""

    partition: TopicPartition
    path: str
    files: Files
    clock: Clock
    chance: random.Random
    """Where the jitter of rolls comes from."""
    removals: Removals
    """Who deletes what has left service, when its time has come."""

    def retire(self, paths: Iterable[str], *, delay_ms: int) -> None:
        """Take files out of service: they are renamed now and deleted in `delay_ms`.

        The order is kept, so that a crash in between has renamed the first ones. The names reach
        the device in its own time.

        Raises:
            OSError: a file cannot be renamed; those before it are.
        """
        retired = []
        try:
            for path in paths:
                self.files.rename(path, path + names.DELETED_SUFFIX)
                retired.append(path + names.DELETED_SUFFIX)
        finally:
            self.removals.add_files(retired, due_ms=self.clock.now_ms() + delay_ms)
