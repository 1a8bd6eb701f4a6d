"""The partitions of a coordinator's topic in numbers.

`ShardCounts` is shared by all shards of a topic, so that its totals outlast each of them: they
continue when a partition goes elsewhere and comes back. States are looked at when somebody asks.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.values import dataclass


@dataclass(slots=True)
class StoredCount:
    """A number of changes whose records are in the log."""

    total: int = 0

    # Counted when it is decided, since a replay cannot tell live records from loaded ones.
    def add(self, count: int) -> Callable[[Exception], None]:
        """Count changes that are decided; the result is the `undo` of their decision."""
        self.total += count

        def take_back(_: Exception) -> None:
            self.total -= count

        return take_back


@dataclass(slots=True)
class ShardCounts:
    """Totals since the broker's start; see `ShardsStatistics` for what they are."""

    loads: int = 0
    failed_loads: int = 0
    loaded_bytes: int = 0
    load_seconds_total: float = 0.0
    load_seconds_max: float = 0.0
    appends: int = 0
    append_seconds_total: float = 0.0
    append_seconds_max: float = 0.0
    failed_appends: int = 0
    commit_waits: int = 0
    waiting: int = 0
    commit_seconds_total: float = 0.0
    commit_seconds_max: float = 0.0

    def loaded(self, byte_count: int, seconds: float) -> None:
        self.loads += 1
        self.loaded_bytes += byte_count
        self.load_seconds_total += seconds
        self.load_seconds_max = max(self.load_seconds_max, seconds)

    def appended(self, seconds: float) -> None:
        self.appends += 1
        self.append_seconds_total += seconds
        self.append_seconds_max = max(self.append_seconds_max, seconds)

    @contextmanager
    def commit_wait(self) -> Iterator[None]:
        """Count and time a wait for a commit, however it ends."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
            self.commit_waits += 1
            seconds = loop.time() - started_s
            self.commit_seconds_total += seconds
            self.commit_seconds_max = max(self.commit_seconds_max, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsStatistics:
    """The partitions of a coordinator's topic that this broker leads; totals since its start."""

    loading_count: int
    """Partitions that are being read now; their clients have to ask again."""
    active_count: int
    """Partitions whose groups or transactions are served."""
    failed_count: int
    """Partitions that could not be read, or whose state did not follow their log; their clients are
    refused."""
    load_count: int
    """Partitions that were read to their end, counted each time."""
    load_failure_count: int
    """Partitions that could not be read, counted each time; not among `load_count`."""
    load_byte_count: int
    """Size of the logs that these loads have read, in bytes."""
    load_seconds_total: float
    """Duration of these loads, in seconds, with the time that they waited for a thread."""
    load_seconds_max: float
    """Duration of the longest, in seconds."""
    append_count: int
    """Batches appended: one for each change of groups or transactions, and markers."""
    append_seconds_total: float
    """Duration of these appends, in seconds; no other request is answered meanwhile."""
    append_seconds_max: float
    """Duration of the longest, in seconds."""
    append_failure_count: int
    """Changes that were not made, because their records could not be appended."""
    commit_wait_count: int
    """Replies that had to wait until all that they rest on was committed, and wait no more."""
    commit_waiting_count: int
    """Replies that wait so now."""
    commit_seconds_total: float
    """Duration of the waits that have ended, in seconds, timeouts among them."""
    commit_seconds_max: float
    """Duration of the longest, in seconds."""


def shards_statistics(
    counts: ShardCounts, *, loading_count: int, active_count: int, failed_count: int
) -> ShardsStatistics:
    return ShardsStatistics(
        loading_count=loading_count,
        active_count=active_count,
        failed_count=failed_count,
        load_count=counts.loads,
        load_failure_count=counts.failed_loads,
        load_byte_count=counts.loaded_bytes,
        load_seconds_total=counts.load_seconds_total,
        load_seconds_max=counts.load_seconds_max,
        append_count=counts.appends,
        append_seconds_total=counts.append_seconds_total,
        append_seconds_max=counts.append_seconds_max,
        append_failure_count=counts.failed_appends,
        commit_wait_count=counts.commit_waits,
        commit_waiting_count=counts.waiting,
        commit_seconds_total=counts.commit_seconds_total,
        commit_seconds_max=counts.commit_seconds_max,
    )
