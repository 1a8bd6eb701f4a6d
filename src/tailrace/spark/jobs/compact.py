"""Compaction on Spark: the cleaner's rules, for logs whose keys do not fit one machine's map.

    summary = compact(spark, "data", topics=["profiles"])

The directory is one that no broker serves, on storage that all executors see. Afterwards it is byte
for byte what one round of the broker's cleaner makes of it, with a map that has room for all keys.

    phase           work items               comes from, goes to
    collect keys    groups of segments       segments -> keys and offsets, sorted by hash
    compare keys    ranges of hashes         keys of all pieces -> offsets that are superseded
    rewrite         groups of segments       segments, superseded offsets -> new segments
    exchange        none, on the driver      new segments take the place of the old

Everything large goes from task to disk and from there to tasks: into a scratch directory beside the
logs, never through the JVM. Keys are compared as they are, so no two are ever taken for one.

A job that is killed leaves each group of segments as it was or exchanged. The next one begins with
what there is, and comes to the same records; a broker may start in between.

Not here: when to compact. The job takes every log that has anything to clean, whatever
`min.cleanable.dirty.ratio` says; the other settings of the cleaner hold.

Invariant: all that is read was found right first, and a log that is damaged stops the job before
any log has changed.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tailrace.errors import DirectoryError
from tailrace.model import TopicPartition
from tailrace.runtime.files import DiskFiles, Files, raise_descriptor_limit
from tailrace.spark.jobs.compact_log import HeldDirectory, Round, choose_configs, held
from tailrace.spark.jobs.compact_tasks import (
    CollectedKeys,
    Group,
    Overflow,
    Rewriting,
    Rewritten,
    collect_keys,
    compare_keys,
    rewrite_group,
    rewritings,
    tag_ranges,
)
from tailrace.spark.jobs.work import check_visible, count_cores, run_in_rounds
from tailrace.storage.cleaner.group import producer_ends
from tailrace.storage.directories import unusable
from tailrace.storage.log import Log
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

MAP_BYTES: Final = 128 * 1024 * 1024
"""Bytes of a task's key map: Kafka's default of `log.cleaner.dedupe.buffer.size`."""

Progress = Callable[[int, int], None]
"""Takes how many bytes have been read, and how many there are to read."""


class RunRounds(Protocol):
    """Runs a function for all items, and gives the results in their order, some at a time."""

    def __call__(
        self, items: Sequence[Item], function: Callable[[Item], Result]
    ) -> Iterator[list[Result]]:
        """Raises what the function raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """Counts of the cleaned part of a log."""

    partition: TopicPartition
    cleaned_to: int
    """The offset up to which it is clean now."""
    bytes_before: int
    bytes_after: int
    records_before: int
    """Markers of transactions too, before and after."""
    records_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """Counts of a job; logs without dirty records are left out."""

    partitions: tuple[PartitionSummary, ...]
    seconds: float

    @property
    def bytes_before(self) -> int:
        """Bytes of all partitions before, in the part that was cleaned."""
        return sum(each.bytes_before for each in self.partitions)

    @property
    def bytes_after(self) -> int:
        """Bytes of all partitions after, in the part that was cleaned."""
        return sum(each.bytes_after for each in self.partitions)


def compact(
    spark: "SparkSession",
    directory: str,
    *,
    topics: Sequence[str] | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    map_bytes: int = MAP_BYTES,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> CompactionSummary:
    """Compact these topics of a data directory, or all that have `cleanup.policy` compact.

    `settings` are topic settings by Kafka's names; they go over those that the directory has.
    Tombstones are as old as `now_ms` makes them: milliseconds since 1970, by default the present.

    Raises:
        ConfigError: a topic is not there or not compacted, or a setting is wrong.
        DirectoryError: a broker has the directory, it is none, or the device refused; in the last
            case, as after a kill, the job may be run again.
        CorruptionError: a log is damaged; `tailrace log repair` can step over that.
        FatalError: an executor does not see or may not write what the driver does; a task's map is
            too small.
    """
    root = os.path.abspath(directory)
    raise_descriptor_limit()
    core_count = count_cores(spark)
    check_visible(spark, directories=[root], target=None, core_count=core_count)

    def run(items: Sequence[Item], function: Callable[[Item], Result]) -> Iterator[list[Result]]:
        return run_in_rounds(spark, items, function, core_count=core_count)

    return compact_with(
        run,
        DiskFiles(),
        root,
        topics=topics,
        settings=settings,
        map_bytes=map_bytes,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        progress=progress,
    )


def compact_with(
    run: RunRounds,
    files: Files,
    root: str,
    *,
    topics: Sequence[str] | None,
    settings: Mapping[str, str],
    map_bytes: int,
    now_ms: int,
    progress: Progress | None = None,
) -> CompactionSummary:
    """`compact`, with work items run in another way, as on one thread; raises as it does."""
    began = time.monotonic()
    configs = choose_configs(files, root, topics=topics, settings=settings)
    try:
        with held(files, root) as directory:
            directory.open(configs)
            job = _Job(run, files, directory, progress=progress or (lambda *_: None))
            waiting: Sequence[Log] = tuple(directory.logs.values())
            while waiting:
                rounds = [
                    _LogRound(log, planned)
                    for log in waiting
                    if (planned := directory.plan_round(log, now_ms=now_ms, map_bytes=map_bytes))
                ]
                job.clean(rounds)
                waiting = [each.log for each in rounds if each.has_split]
    except DirectoryError:
        raise
    except OSError as error:
        raise unusable(root, error) from error
    return CompactionSummary(partitions=tuple(job.summaries), seconds=time.monotonic() - began)


@dataclass(slots=True)
class _LogRound:
    """A round over one log, and how far it has come."""

    log: Log
    round: Round
    collected: list[CollectedKeys] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    done: list[Rewritten] = field(default_factory=list)
    has_split: bool = False
    """Whether it has ended early, after a segment was split."""

    def rewritings(self) -> Iterator[Rewriting]:
        """The items of the last phase."""
        return rewritings(
            self.round.groups,
            self.collected,
            self.superseded,
            rules=self.round.rules,
            producers=producer_ends(self.log.producers),
        )

    def summary(self) -> PartitionSummary:
        """The summary of a round that has come to its end."""
        return PartitionSummary(
            partition=self.log.partition,
            cleaned_to=self.round.plan.first_uncleanable,
            bytes_before=sum(each.size_bytes for each in self.round.groups),
            bytes_after=sum(each.size_bytes for each in self.done),
            records_before=sum(each.records for each in self.collected),
            records_after=sum(each.counts.records_written for each in self.done),
        )


class _Job:
    """The phases, over all logs at once, so that small ones share the executors."""

    def __init__(
        self, run: RunRounds, files: Files, directory: HeldDirectory, *, progress: Progress
    ) -> None:
        self.summaries: list[PartitionSummary] = []
        self._run = run
        self._files = files
        self._directory = directory
        self._progress = progress
        self._bytes_read = 0
        self._bytes_to_read = 0

    def clean(self, rounds: Sequence[_LogRound]) -> None:
        """One round over each of some logs."""
        size = sum(group.size_bytes for each in rounds for group in each.round.groups)
        self._bytes_to_read += 2 * size
        self._collect(rounds)
        self._compare(rounds)
        self._rewrite(rounds)

    def _collect(self, rounds: Sequence[_LogRound]) -> None:
        items = [(each, group) for each in rounds for group in each.round.groups]
        results = self._results([group for _, group in items], partial(collect_keys, self._files))
        for (each, group), collected in zip(items, results, strict=True):
            each.collected.append(collected)
            self._tell(group)

    def _compare(self, rounds: Sequence[_LogRound]) -> None:
        items = [
            (each, tags)
            for each in rounds
            for tags in tag_ranges(each.round.groups, each.collected)
        ]
        results = self._results([tags for _, tags in items], partial(compare_keys, self._files))
        for (each, _), path in zip(items, results, strict=True):
            each.superseded.append(path)

    def _rewrite(self, rounds: Sequence[_LogRound]) -> None:
        items = [(each, item) for each in rounds for item in each.rewritings()]
        results = self._results([item for _, item in items], partial(rewrite_group, self._files))
        for (each, item), result in zip(items, results, strict=True):
            if each.has_split:
                continue
            segments = each.round.segments[len(each.done)]
            if isinstance(result, Overflow):
                (far,) = (old for old in segments if old.base_offset == result.base_offset)
                self._directory.split(each.log, far)
                each.has_split = True
                continue
            self._directory.exchange(each.log, result, segments)
            each.done.append(result)
            self._tell(item.group)
            if len(each.done) == len(each.round.groups):
                summary = each.summary()
                self._directory.note_cleaned(each.log.partition, summary.cleaned_to)
                self.summaries.append(summary)

    def _results(
        self, items: Sequence[Item], function: Callable[[Item], Result]
    ) -> Iterator[Result]:
        for results in self._run(items, function):
            yield from results

    def _tell(self, group: Group) -> None:
        self._bytes_read += group.size_bytes
        self._progress(self._bytes_read, self._bytes_to_read)
