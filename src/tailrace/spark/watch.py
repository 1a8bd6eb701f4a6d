"""The logs of a stream as the driver sees them: one look at a time, and not too often.

A look asks for all partitions and their first and last offsets. Spark polls a stream 70 times a
second when there is nothing to do, so a look waits for its turn: there is one every 50 ms, or as
rarely as it takes for looks to need a quarter of the time. No answer is older than the question,
so `processAllAvailable()` of Spark sees what was appended before it.

What seems lost is looked at three times in two seconds: a broker that has just started may not
know all of its topics, or how far they reach.

Not here: what a look means for the stream (`progress`, `streaming`).

Invariant: the store stays open between looks, but nothing of the last look is taken for the next.
"""

import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from tailrace.model import Offset, TopicPartition
from tailrace.spark.losses import PartitionGoneError, write_report
from tailrace.spark.offsets import choose_partitions, find_late_starts, resolve_ranges
from tailrace.spark.options import Partitions, Selection, SourceOptions, Topics
from tailrace.spark.planning import RECORD_BYTES_MIN, OffsetRange
from tailrace.spark.progress import Backlog, Extents, Positions, SizeBetween
from tailrace.spark.stores import LogStore, open_store, single_batches
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.reading.located import Skipped

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""Shortest time from one look to the next: what a new record waits for, at most."""

LOOK_REST = 3
"""Ratio of the rest after a look to the look itself."""

LOSS_LOOKS = 3
"""Looks that have to agree before records count as lost."""

LOSS_PAUSE_SECONDS = 1
"""Pause between them (Spark's Kafka source: fetchOffset.retryIntervalMs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatistics:
    """The looks of a stream at its logs, since its reader was made."""

    look_count: int = 0
    """Looks, failed ones too."""
    failure_count: int = 0
    """Looks that an error has ended: a broker out of reach, a directory that cannot be read."""
    seconds_total: float = 0.0
    """Duration of all looks, in seconds."""
    seconds_max: float = 0.0
    """Duration of the longest look, in seconds."""


class LogWatch:
    """Looks at the selected partitions; times are in seconds of `clock`."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connects when it first looks."""
        self.seen: Extents | None = None
        """Extents that the last look found; None before the first."""
        self.seen_at = 0.0
        """When that was."""
        self.clock = clock
        self._options = options
        self._pause = pause
        self._next_at = clock()
        self._there: set[TopicPartition] = set()
        self._reported: list[Skipped] = []
        self._statistics = WatchStatistics()

    @cached_property
    def store(self) -> LogStore:
        """The store of the logs; opened when first used, because Spark pickles unused watches."""
        return open_store(self._options)

    def statistics(self) -> WatchStatistics:
        """The looks so far, and how long they took."""
        return self._statistics

    def wait_for_turn(self) -> None:
        rest = self._next_at - self.clock()
        if rest > 0:
            self._pause(rest)

    def look(self) -> Extents:
        """The offsets that each selected partition has now; what is not there is left out.

        Raises:
            RetriableError: no broker answers.
            PartitionGoneError: a partition is listed, and is not there.
            FatalError, OSError: the broker refuses, or the directory cannot be read.
            CorruptionError: the end of a log is damaged.
        """
        began, is_failure = self.clock(), True
        try:
            try:
                self.seen = self._find_extents()
            # A topic was deleted between the list and its offsets; the second list does not have
            # it.
            except PartitionGoneError:
                self.seen = self._find_extents()  # It is not listed any more.
            self.seen_at = self.clock()
            self._report_damage()
            is_failure = False
        finally:
            now = self.clock()
            known = self._statistics
            self._statistics = WatchStatistics(
                look_count=known.look_count + 1,
                failure_count=known.failure_count + is_failure,
                seconds_total=known.seconds_total + (now - began),
                seconds_max=max(known.seconds_max, now - began),
            )
            # A slow cluster is asked less often: looks take a quarter of the time at most.
            self._next_at = max(began + LOOK_SECONDS, now + LOOK_REST * (now - began))
        return self.seen

    def _find_extents(self) -> Extents:
        if self._options.directories:
            # A directory remembers its logs as they were; a broker keeps only connections.
            self.store.close()
        selection = self._options.selection
        self._there = self.store.partitions(selection)
        chosen = choose_partitions(_narrowed(selection, self._there), self._there)
        return self.store.extents(chosen)

    def look_for(self, has_all: Callable[[Extents], bool]) -> Extents:
        """Do `look`; look again if records seem to be lost, which `has_all` says of a look."""
        # As Spark's Kafka source (fetchOffset.numRetries): a broker that has just been elected may
        # not know the end of a log yet.
        for _ in range(LOSS_LOOKS - 1):
            seen = self.look()
            if has_all(seen):
                return seen
            self._pause(LOSS_PAUSE_SECONDS)
        return self.look()

    def check_selected(self, known: Positions) -> None:
        """Find out whether all that is selected was there at the last look, or is `known`.

        Raises:
            ConfigError: some of it is not.
        """
        choose_partitions(self._options.selection, self._there | known.keys())

    def resolve_start(self, extents: Extents) -> Positions:
        """Return the offsets at which the stream begins according to the options.

        One that was found by time may be above its extent: its record came since.

        Raises:
            ConfigError: topics that do not exist, offsets that the logs do not have.
        """
        # At the start all that is named has to exist, as in a batch; later a partition may be gone,
        # which is a loss and not a mistake.
        self.check_selected({})
        by_time: dict[TopicPartition, int] = {}

        def offset_at(partition: TopicPartition, timestamp: int) -> int | None:
            offset = self.store.offset_at(partition, timestamp)
            if offset is not None:
                by_time[partition] = offset
            return offset

        found = resolve_ranges(self._options, extents, offset_at=offset_at)
        for late in find_late_starts(self._options.starting, extents):
            logger.warning("Skipped: %s", late)
        # A batch ends with the extent; a stream continues from here, and not from older records.
        return {each: by_time.get(each, start) for each, (start, _) in found.items()}

    def size_between(self, backlog: Backlog) -> SizeBetween:
        """Return a function that tells or estimates the bytes of a part of this backlog.

        A directory knows them from its segments. A broker does not tell; there, the first batch
        of a topic's longest backlog is fetched and taken as typical of the bytes an offset has.
        """
        # A broker answers 0 for each of them.
        if any(self.store.size_between(each, *span) for each, span in backlog.items()):
            return self.store.size_between
        longest: dict[str, tuple[int, OffsetRange]] = {}
        for partition, (start, limit) in backlog.items():
            wanted = OffsetRange(
                partition=partition, start=Offset(start), limit=Offset(limit), size=0
            )
            # The longest backlog of a topic counts most in the result.
            if wanted.length > longest.get(partition.topic, (0,))[0]:
                longest[partition.topic] = wanted.length, wanted
        typical = {topic: self._bytes_per_offset(wanted) for topic, (_, wanted) in longest.items()}
        return lambda partition, start, limit: (limit - start) * typical.get(partition.topic, 0)

    def close(self) -> None:
        self.store.close()

    def _bytes_per_offset(self, wanted: OffsetRange) -> int:
        located = next(single_batches(self.store, wanted, fails_on_data_loss=False), None)
        if located is None:
            return RECORD_BYTES_MIN
        batch, _, _ = located
        size: int = batch.size // (batch.next_offset - batch.base_offset)
        return max(size, 1)

    def _report_damage(self) -> None:
        """Write down what is damaged after the ends of the logs, if it is not what it was."""
        found = list(self.store.skipped or ())
        # The same damage is found by each look.
        if found != self._reported:
            assert self._options.corruption_report is not None, "damage is an error otherwise"
            write_report(self._options.corruption_report, "log-ends.jsonl", found)
            self._reported = found
        if self.store.skipped is not None:
            self.store.skipped.clear()


def _narrowed(selection: Selection, there: set[TopicPartition]) -> Selection:
    """The part of a selection that is there."""
    match selection:
        case Topics(names):
            topics = {partition.topic for partition in there}
            return Topics(tuple(name for name in names if name in topics))
        case Partitions(partitions):
            return Partitions(tuple(each for each in partitions if each in there))
        case _:
            return selection
