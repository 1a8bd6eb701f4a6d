"""A partition's folder: its path, and the files, clock and removals that its log uses."""

import random
from collections.abc import Iterable

from tailrace.model import TopicPartition
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.removals import Removals
from tailrace.values import dataclass


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
