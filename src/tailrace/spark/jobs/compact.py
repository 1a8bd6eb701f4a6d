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

    data/
        .lock                                       held for the whole job
        .kafka_cleanshutdown                        away while the job is at work
        tailrace-compaction-0.<id>-delete/          scratch: keys, offsets, new segments
        flights-0/                                  changed as the broker's cleaner changes it

Not here: when to compact. The job takes every log that has anything to clean, whatever
`min.cleanable.dirty.ratio` says; the other settings of the cleaner hold.

Invariants: all that is read was found right first, and a log that is damaged stops the job before
any log has changed. Nothing is written to a log before the lock is held, and the mark of an orderly
stop is put back only after every log was closed in order.
"""

import contextlib
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError, DirectoryError, TailraceError
from tailrace.kernels import new_hash_secret
from tailrace.model import METADATA_TOPIC, Offset, TopicPartition
from tailrace.offline.repair import lock_directory, topic_config
from tailrace.offline.repair_plan import read_journal
from tailrace.reading.directory import find_partitions
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import DiskFiles, Files, raise_descriptor_limit
from tailrace.spark.jobs.compact_tasks import (
    CollectedKeys,
    Group,
    Overflow,
    Rewriting,
    Rewritten,
    SourceFile,
    collect_keys,
    compare_keys,
    rewrite_group,
    rewritings,
    tag_ranges,
)
from tailrace.spark.jobs.work import Job, Meter, Progress
from tailrace.storage import names, shrink
from tailrace.storage.checkpoints import (
    read_offset_checkpoint,
    read_text,
    write_atomically,
    write_offset_checkpoint,
)
from tailrace.storage.cleaner import swap
from tailrace.storage.cleaner.group import RewriteRules, legacy_horizon_ms, producer_ends
from tailrace.storage.cleaner.passes import log_facts, segment_facts, source_of
from tailrace.storage.cleaner.plan import CleaningPlan, group_segments, plan_cleaning, plan_range
from tailrace.storage.config import LogConfig
from tailrace.storage.directories import unusable
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.log import Log
from tailrace.storage.recovery import open_log
from tailrace.storage.segment import Segment, open_segment
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A start of Kafka and of Tailrace removes directories of deleted partitions, and so what a killed
# job has left.
_SCRATCH: Final = TopicPartition("tailrace-compaction", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The planned work of one round on one log."""

    plan: CleaningPlan
    rules: RewriteRules
    segments: tuple[tuple[Segment, ...], ...]
    """Groups, each of which becomes one segment."""
    groups: tuple[Group, ...]
    """The same for tasks."""


class HeldDirectory:
    """A data directory that no broker can have, with some of its logs open; see `held`."""

    def __init__(
        self,
        files: Files,
        root: str,
        *,
        mark: str | None,
        scratch: str,
        cleaner_offsets: dict[TopicPartition, int],
    ) -> None:
        """`mark` is what the directory had as the mark of an orderly stop."""
        self.scratch = scratch
        self.logs: dict[TopicPartition, Log] = {}
        self._files = files
        self._root = root
        self._mark = mark
        self._removals = Removals(files)
        self._cleaner_offsets = cleaner_offsets

    def open(self, configs: Mapping[TopicPartition, LogConfig]) -> None:
        """Open logs as a broker's start does; one that was not closed in order is recovered.

        Raises:
            CorruptionError: a checkpoint is damaged.
            OSError: a file cannot be opened, read or written.
        """
        recovery_points = self._checkpoint(names.RECOVERY_POINTS)
        log_starts = self._checkpoint(names.LOG_START_OFFSETS)
        for partition, config in configs.items():
            folder = PartitionFolder(
                partition=partition,
                path=f"{self._root}/{names.partition_directory_name(partition)}",
                files=self._files,
                clock=SystemClock(),
                chance=random.SystemRandom(),
                removals=self._removals,
            )
            self.logs[partition] = open_log(
                folder,
                config=config,
                is_clean=self._mark is not None,
                # A cleaned log has gaps. One that no checkpoint knows may have been cleaned
                # elsewhere.
                may_have_gaps=(
                    partition in self._cleaner_offsets or partition not in recovery_points
                ),
                checkpoints=(recovery_points.get(partition, 0), log_starts.get(partition, 0)),
            )

    def plan_round(self, log: Log, *, now_ms: int, map_bytes: int) -> Round | None:
        """A round over a log, however little of it is dirty; None if nothing is.

        A checkpoint that lies outside of its log is put right on the way.

        Raises:
            CorruptionError: a log or a transaction index is damaged.
            OSError: the time of a file cannot be read, or the checkpoint not be written.
        """
        segments, config = tuple(log.segments), log.config
        facts = log_facts(segments, log.positions)
        checkpoint = self._cleaner_offsets.get(log.partition)
        dirty = plan_range(facts, checkpoint=checkpoint, config=config, now_ms=now_ms)
        # The broker's cleaner does so too: a checkpoint outside of the log is of an earlier life of
        # it.
        if dirty.is_checkpoint_reset:
            self.note_cleaned(log.partition, dirty.first_dirty)
        plan = plan_cleaning(facts, dirty, config=config, now_ms=now_ms)
        if not plan.cleanable_bytes:
            return None
        return plan_groups(
            segments,
            plan=plan,
            config=config,
            now_ms=now_ms,
            map_bytes=map_bytes,
            scratch=self.scratch,
        )

    def exchange(self, log: Log, rewritten: Rewritten, old: Sequence[Segment]) -> None:
        """Put a new segment in place of a group; groups come in the order of their offsets.

        Raises:
            OSError: the device refused; a start, or another job, drops the step or completes it.
        """
        # Only now, and not when its task has ended: groups come in the order of offsets, so the
        # folder is never in another state than under the broker's cleaner, and `cleaner.swap` says
        # what a crash leaves.
        new = take_in(self._files, log.folder.path, rewritten, config=log.config)
        swap.publish(self._files, log.folder.path, new)
        self._replace(log, [new], old)

    def split(self, log: Log, segment: Segment) -> None:
        """Split a segment whose offsets are too far from its base, as the broker's cleaner does.

        Raises:
            CorruptionError: the log cannot be read to its end; nothing has changed.
            OSError: as `exchange`.
        """
        folder = log.folder.path
        parts = swap.split_segment(self._files, folder, segment, config=log.config)
        swap.publish(self._files, folder, *parts)
        self._replace(log, parts, [segment])

    def note_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """Note up to where a partition has been compacted, on the device.

        Raises:
            OSError: the device refused; the old checkpoint holds.
        """
        self._cleaner_offsets[partition] = offset
        write_offset_checkpoint(
            self._files, self._root, names.CLEANER_OFFSETS, offsets=self._cleaner_offsets
        )

    def close_in_order(self) -> None:
        """Complete every log, put it on the device and close it; then leave the mark again.

        Raises:
            StorageError: a log has failed before; there is no mark then.
            OSError: the device refused; there is no mark then.
        """
        try:
            for log in self.logs.values():
                log.finish()
                log.sync()
                self._files.sync_directory(log.folder.path)
        finally:
            for log in self.logs.values():
                log.close()
        # Without a mark before, there was no orderly stop, and the next start has to look at all
        # logs that were not opened here.
        if self._mark is not None:
            write_atomically(self._files, self._root, names.CLEAN_SHUTDOWN, text=self._mark)

    def _replace(self, log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        shrink.replace_segments(log, new, old)
        self._files.sync_directory(log.folder.path)
        # Nobody reads beside the job, and a whole log under `.deleted` names takes much room.
        self._removals.remove_due(INT64_MAX)

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        return read_offset_checkpoint(self._files, f"{self._root}/{name}")


@contextmanager
def held(files: Files, root: str) -> Iterator[HeldDirectory]:
    """A data directory for the length of a job, without what an earlier one has left.

    Raises:
        DirectoryError: a broker has it, it cannot be written to, or a repair was interrupted there.
        CorruptionError: the checkpoint of the cleaner is damaged.
    """
    lock = lock_directory(files, root)
    try:
        # Half of a repair is neither the old log nor the new one.
        if read_journal(files, root) is not None:
            raise DirectoryError(
                f"a repair of {root} was interrupted; complete it with tailrace log repair"
            )
        for name in files.list(root):
            if name.startswith(f"{_SCRATCH}.") and names.is_delete_directory_name(name):
                files.remove_tree(f"{root}/{name}")
        # Away before the first change, so that a broker which starts after a kill recovers the
        # logs.
        mark = _take_mark(files, root)
        scratch = f"{root}/{names.delete_directory_name(_SCRATCH, uuid.uuid4().hex)}"
        files.make_directory(scratch)
        try:
            directory = HeldDirectory(
                files,
                root,
                mark=mark,
                scratch=scratch,
                cleaner_offsets=read_offset_checkpoint(files, f"{root}/{names.CLEANER_OFFSETS}"),
            )
            try:
                yield directory
            except Exception:
                # If this fails too, the next start looks closer; it is the first error that counts.
                with contextlib.suppress(OSError, TailraceError):
                    directory.close_in_order()
                raise
            directory.close_in_order()
        finally:
            # A task that is still at work there may be in the way; then a start removes it.
            with contextlib.suppress(OSError):
                files.remove_tree(scratch)
    finally:
        if lock is not None:
            lock.release()


def choose_configs(
    files: Files, root: str, *, topics: Sequence[str] | None, settings: Mapping[str, str]
) -> dict[TopicPartition, LogConfig]:
    """The partitions of these topics, or of all that are compacted, and their settings.

    `settings` go over those that the directory has for a topic.

    Raises:
        ConfigError: a topic is not there or not compacted, or a setting is wrong.
        DirectoryError: it is no data directory.
    """
    found = find_partitions(files, root)
    # Its lock and checkpoints are in the directory above.
    if found.path != (root.rstrip("/") or "/"):
        raise DirectoryError(
            f"{root} is the folder of one partition; give {found.path}, and the topic by its name"
        )
    configs = {
        each: topic_config(files, root, each, given=dict(settings))
        for each in found.partitions
        # Kafka compacts the metadata log by snapshots, never by keys.
        if each.topic != METADATA_TOPIC and (topics is None or each.topic in topics)
    }
    if topics is None:
        return {each: config for each, config in configs.items() if config.is_compacted}
    missing = sorted(set(topics) - {each.topic for each in configs})
    uncompacted = sorted(
        {each.topic for each, config in configs.items() if not config.is_compacted}
    )
    faults = [
        f"topic {topic!r} is the metadata log, which only a broker writes"
        if topic == METADATA_TOPIC
        else f"topic {topic!r} is not in {root}"
        for topic in missing
    ]
    faults += [
        f"topic {topic!r} is not compacted; set cleanup.policy to compact" for topic in uncompacted
    ]
    if faults:
        raise ConfigError(faults)
    return configs


def _take_mark(files: Files, root: str) -> str | None:
    """The mark of an orderly stop, which is gone then: a start after a crash has to look closer."""
    path = f"{root}/{names.CLEAN_SHUTDOWN}"
    if not files.exists(path):
        return None
    text = read_text(files, path)
    files.remove(path)
    files.sync_directory(root)
    return text


def plan_groups(
    segments: Sequence[Segment],
    *,
    plan: CleaningPlan,
    config: LogConfig,
    now_ms: int,
    map_bytes: int,
    scratch: str,
) -> Round:
    """A round over these segments, the last of which is the active one.

    Raises:
        CorruptionError: a log or a transaction index is damaged.
        OSError: the time of a file cannot be read.
    """
    limit = plan.first_uncleanable
    numbers: dict[int, int] = {each.base_offset: number for number, each in enumerate(segments)}
    groups = group_segments(
        [segment_facts(each) for each in segments if each.base_offset < limit],
        config=config,
        first_uncleanable=limit,
    )
    by_number = [[numbers[each.base_offset] for each in group] for group in groups]
    # As the broker's cleaner takes it: from the newest segment that was cleaned before, for
    # tombstones without a delete horizon (before KIP-534).
    hash_secret = new_hash_secret()
    horizon_ms = legacy_horizon_ms(segments, first_dirty=plan.first_dirty, config=config)
    return Round(
        plan=plan,
        rules=RewriteRules(
            config=config, first_uncleanable=limit, legacy_horizon_ms=horizon_ms, now_ms=now_ms
        ),
        segments=tuple(tuple(segments[number] for number in group) for group in by_number),
        groups=tuple(
            Group(
                sources=tuple(_source_file(segments, number) for number in group),
                first_dirty=plan.first_dirty,
                map_bytes=map_bytes,
                hash_secret=hash_secret,
                scratch=scratch,
            )
            for group in by_number
        ),
    )


def take_in(files: Files, folder: str, rewritten: Rewritten, *, config: LogConfig) -> Segment:
    """Move a new segment to the folder of its log, as `.cleaned` files, and open it there.

    Raises:
        OSError: the device refused; a start removes what was moved.
    """
    # Renames only: scratch and logs are on one device, since one is inside of the other's
    # directory.
    for name in files.list(rewritten.directory):
        files.rename(f"{rewritten.directory}/{name}", f"{folder}/{name}")
    return open_segment(
        files,
        folder,
        base_offset=Offset(rewritten.base_offset),
        # Without room in its indexes, since it takes nothing more: they stay as they were synced.
        config=replace(config, segment_index_bytes=0, is_preallocated=False),
        suffix=names.CLEANED_SUFFIX,
    )


def _source_file(segments: Sequence[Segment], number: int) -> SourceFile:
    source = source_of(segments, number)
    return SourceFile(
        path=source.log.path,
        size_bytes=source.log.size,
        base_offset=source.base_offset,
        limit_offset=source.limit_offset,
        modified_ms=source.modified_ms,
        aborted=source.aborted,
    )


Item = TypeVar("Item")
Result = TypeVar("Result")

MAP_BYTES: Final = 128 * 1024 * 1024
"""Bytes of a task's key map: Kafka's default of `log.cleaner.dedupe.buffer.size`."""


class RunItems(Protocol):
    """Runs a function for all items, and gives them with their results, in their order."""

    def __call__(
        self, items: Sequence[Item], function: Callable[[Item], Result]
    ) -> Iterator[tuple[Item, Result]]:
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
        """Bytes of all partitions before the job."""
        return sum(each.bytes_before for each in self.partitions)

    @property
    def bytes_after(self) -> int:
        """Bytes of all partitions after it."""
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
    # All segments of all chosen logs are open at once.
    raise_descriptor_limit()
    return compact_with(
        Job(spark, directories=[root]).results,
        DiskFiles(),
        root,
        topics=topics,
        settings=settings,
        map_bytes=map_bytes,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        progress=progress,
    )


def compact_with(
    run: RunItems,
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
            job = _Phases(run, files, directory, progress=progress)
            waiting: Sequence[Log] = tuple(directory.logs.values())
            # A log that had a segment split is planned again, since its groups are others now.
            while waiting:
                rounds = [
                    _LogRound(log, planned)
                    for log in waiting
                    if (planned := directory.plan_round(log, now_ms=now_ms, map_bytes=map_bytes))
                ]
                job.clean(rounds)
                waiting = [each.log for each in rounds if each.has_split]
    # A DirectoryError is an OSError too; it says already what is wrong.
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
        return rewritings(
            self.round.groups,
            self.collected,
            self.superseded,
            rules=self.round.rules,
            producers=producer_ends(self.log.producers),
        )

    def summary(self) -> PartitionSummary:
        return PartitionSummary(
            partition=self.log.partition,
            cleaned_to=self.round.plan.first_uncleanable,
            bytes_before=sum(each.size_bytes for each in self.round.groups),
            bytes_after=sum(each.size_bytes for each in self.done),
            records_before=sum(each.records for each in self.collected),
            records_after=sum(each.counts.records_written for each in self.done),
        )


class _Phases:
    """The phases, over all logs at once, so that small ones share the executors."""

    def __init__(
        self, run: RunItems, files: Files, directory: HeldDirectory, *, progress: Progress | None
    ) -> None:
        self.summaries: list[PartitionSummary] = []
        self._run = run
        self._files = files
        self._directory = directory
        self._meter = Meter(progress)

    def clean(self, rounds: Sequence[_LogRound]) -> None:
        groups = [(each, group) for each in rounds for group in each.round.groups]
        # Each byte is read twice: for its key, and to be rewritten.
        self._meter.total += 2 * sum(group.size_bytes for _, group in groups)
        collected = self._run([group for _, group in groups], partial(collect_keys, self._files))
        # The phases cannot overlap: a key of the last segment may supersede a record of the first.
        for (each, _), (group, keys) in zip(groups, collected, strict=True):
            each.collected.append(keys)
            self._meter.advance(group.size_bytes)
        ranges = [
            (each, tags)
            for each in rounds
            for tags in tag_ranges(each.round.groups, each.collected)
        ]
        compared = self._run([tags for _, tags in ranges], partial(compare_keys, self._files))
        for (each, _), (_, path) in zip(ranges, compared, strict=True):
            each.superseded.append(path)
        items = [(each, item) for each in rounds for item in each.rewritings()]
        rewritten = self._run([item for _, item in items], partial(rewrite_group, self._files))
        for (each, _), (item, result) in zip(items, rewritten, strict=True):
            # After a split the offsets of the groups that follow are others: the next round over
            # this log begins with what there is then.
            if not each.has_split:
                self._exchange(each, item, result)

    def _exchange(self, each: _LogRound, item: Rewriting, result: Rewritten | Overflow) -> None:
        segments = each.round.segments[len(each.done)]
        if isinstance(result, Overflow):
            (far,) = (old for old in segments if old.base_offset == result.base_offset)
            self._directory.split(each.log, far)
            each.has_split = True
            return
        self._directory.exchange(each.log, result, segments)
        each.done.append(result)
        self._meter.advance(item.group.size_bytes)
        if len(each.done) == len(each.round.groups):
            summary = each.summary()
            # After the last group: a checkpoint that is too early costs time, one that is too late
            # keeps old values for ever.
            self._directory.note_cleaned(each.log.partition, summary.cleaned_to)
            self.summaries.append(summary)
