"""The driver's part of a compaction: a directory held, its logs opened, new segments put in place.

    data/
        .lock                                       held for the whole job
        .kafka_cleanshutdown                        away while the job is at work
        tailrace-compaction-0.<id>-delete/          scratch: keys, offsets, new segments
        flights-0/                                  changed as the broker's cleaner changes it

The scratch directory has a name of a partition that was deleted, so that a start removes what a
killed job has left, be it ours or Apache Kafka's; the next job does so too.

A new segment is moved into its folder only when its group's turn has come. So the folder is never
in another state than under the broker's cleaner, and `cleaner.swap` says what a crash leaves.

Invariant: nothing is written to a log before the lock is held, and the mark of an orderly stop is
put back only after every log was closed in order.
"""

import contextlib
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError, DirectoryError, TailraceError
from tailrace.model import METADATA_TOPIC, Offset, TopicPartition
from tailrace.offline.repair import lock_directory, topic_config
from tailrace.offline.repair_plan import read_journal
from tailrace.reading.directory import find_partitions
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.files import Files
from tailrace.spark.jobs.compact_tasks import Group, Rewritten, SourceFile
from tailrace.storage import names, shrink
from tailrace.storage.checkpoints import (
    read_offset_checkpoint,
    read_text,
    write_atomically,
    write_offset_checkpoint,
)
from tailrace.storage.cleaner import swap
from tailrace.storage.cleaner.facts import log_facts, segment_facts
from tailrace.storage.cleaner.group import RewriteRules, legacy_horizon_ms
from tailrace.storage.cleaner.passes import source_of
from tailrace.storage.cleaner.plan import CleaningPlan, group_segments, plan_cleaning, plan_range
from tailrace.storage.config import LogConfig
from tailrace.storage.folder import PartitionFolder
from tailrace.storage.log import Log
from tailrace.storage.recovery import open_log
from tailrace.storage.removals import Removals
from tailrace.storage.segment import Segment, open_segment
from tailrace.values import dataclass

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
        if read_journal(files, root) is not None:
            raise DirectoryError(
                f"a repair of {root} was interrupted; complete it with tailrace log repair"
            )
        for name in files.list(root):
            if name.startswith(f"{_SCRATCH}.") and names.is_delete_directory_name(name):
                files.remove_tree(f"{root}/{name}")
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
    if found.path != (root.rstrip("/") or "/"):
        raise DirectoryError(
            f"{root} is the folder of one partition; give {found.path}, and the topic by its name"
        )
    configs = {
        each: topic_config(files, root, each, given=dict(settings))
        for each in found.partitions
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
