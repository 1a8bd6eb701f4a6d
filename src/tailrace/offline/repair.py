"""A plan of repair carried out: dropped bytes set aside, logs rewritten, the rest rebuilt.

    flights-0/
        00000000000000000170.log                        without the damage
        quarantine-00000000000000000170-8391.bytes      what stood there from position 8391 on

The order of one repair, each step on the device before the next:

    1  the note that it is under way (`Journal`), and the mark of an orderly stop taken away
    2  dropped bytes copied to their quarantine file
    3  logs synced, then checkpoints set to what will be there
    4  snapshots and indexes that would be wrong removed
    5  segments that go as a whole renamed to their quarantine file, the last one first
    6  segments with damage rewritten under a second name, and renamed
    7  what recovery has set aside put back under the names of segments
    8  the log opened as a broker opens it, which writes indexes, snapshots and epochs
    9  the mark put back if it was there, and the note removed

Invariant: no byte leaves a log before a quarantine file has it; zeros after the last batch, which
say nothing, apart. After a crash at any point another repair comes to the same end.
"""

import random
from collections.abc import Iterator
from contextlib import closing

from tailrace.errors import DirectoryError
from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.offline.repair_plan import (
    CHECKPOINTS,
    JOURNAL_FILE,
    Journal,
    PartitionPlan,
    RepairPlan,
    epoch_due,
    known_topic,
    read_journal,
    write_journal,
)
from tailrace.reading.damage import Drop
from tailrace.reading.directory import list_segments
from tailrace.records.batch import stamp
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import File, Files, Lock, read_exactly
from tailrace.storage import evidence, names
from tailrace.storage.checkpoints import (
    read_offset_checkpoint,
    write_atomically,
    write_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
)
from tailrace.storage.cleaner.swap import finish_swaps
from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.directories import in_use, unusable
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.recovery import INDEX_SUFFIXES, LogCut, open_log
from tailrace.storage.set_aside import copy_parts, keep_bytes, move_file, parts
from tailrace.storage.walk import walk_batches

_EVERYTHING = 2**63 - 1


def lock_directory(files: Files, root: str, *, is_read_only: bool = False) -> Lock | None:
    """The directory's lock; None where it cannot be had because nothing may be written there.

    With `is_read_only` no lock file is made.

    Raises:
        DirectoryError: a broker has it, or the directory cannot be written to.
    """
    path = f"{root}/{names.LOCK}"
    if is_read_only and not files.exists(path):
        return None
    try:
        return files.lock(path)
    except BlockingIOError as error:
        raise in_use(root, error, advice="stop the broker first") from error
    except OSError as error:
        if is_read_only:
            return None
        raise unusable(root, error) from error


def quarantine_path(drop: Drop) -> str:
    """Path for the dropped bytes, if no other file has that name."""
    folder = drop.path.rpartition("/")[0]
    return f"{folder}/quarantine-{drop.base_offset:020d}-{drop.position}.bytes"


def apply_repair(files: Files, plan: RepairPlan, *, clock: Clock) -> list[LogCut]:
    """Do what the plan says, while the caller holds the directory's lock.

    Returns what opening the logs has cut beyond the plan, which is nothing unless the disk changes
    under the repair.

    Raises:
        DirectoryError: the device refused; a second repair continues where this one stopped.
        CorruptionError: a log cannot be opened after the repair.
    """
    if plan.is_empty:
        return []
    try:
        return _apply(files, plan, clock)
    except DirectoryError:
        raise
    except OSError as error:
        raise unusable(plan.root, error) from error


def _apply(files: Files, plan: RepairPlan, clock: Clock) -> list[LogCut]:
    root = plan.root
    # First, and on the device: a repair that dies leaves work that another one must not take for
    # sound.
    was_clean = _begin(files, plan)
    for path in plan.damaged_checkpoints:
        target = f"{root}/quarantine-{path.rpartition('/')[2]}.bytes"
        if path.endswith(names.LOG_START_OFFSETS):
            # Until it is replaced, it has to be known as damaged: a missing one means no entries.
            keep_bytes(files, path, position=0, limit=_size(files, path), target=target)
        else:
            move_file(files, path, target)
    files.sync_directory(root)
    for partition in plan.partitions:
        for drop in partition.drops:
            if not drop.is_whole_file:
                limit = drop.position + drop.size_bytes
                keep_bytes(
                    files,
                    drop.path,
                    position=drop.position,
                    limit=limit,
                    target=quarantine_path(drop),
                )
        files.sync_directory(partition.folder)
        if partition.drops or partition.restores:
            _sync_logs(files, partition.folder)
    # Before the logs get shorter: a broker that starts in between finds a recovery point that
    # covers what is left, and cuts nothing more.
    _write_checkpoints(files, plan)
    cuts: list[LogCut] = []
    for partition in plan.partitions:
        if partition.finishes_exchange:
            # As the start of a broker: afterwards the folder has one set of segments.
            finish_swaps(files, partition.folder)
        # Before the logs change: an index that does not fit its log would be trusted below the
        # recovery point.
        _remove_derived(files, partition)
        if partition.finishes_exchange:
            continue  # Damage that is left was not looked at by itself; the next repair does.
        _change_logs(files, partition)
        _restore(files, partition)
        if partition.epochs is not None:
            write_epoch_checkpoint(
                files, partition.folder, names.LEADER_EPOCHS, entries=partition.epochs
            )
        if partition.topic_id is not None:
            write_partition_metadata(
                files, partition.folder, names.PARTITION_METADATA, topic_id=partition.topic_id
            )
        config = topic_config(files, root, partition.partition)
        cuts += _rebuild(files, root, partition, config=config, clock=clock)
    if was_clean:
        text = '{"version":0,"brokerEpoch":-1}'
        write_atomically(files, root, names.CLEAN_SHUTDOWN, text=text)
    files.remove(f"{root}/{JOURNAL_FILE}")
    files.sync_directory(root)
    return cuts


def topic_config(
    files: Files, root: str, partition: TopicPartition, *, given: dict[str, str] | None = None
) -> LogConfig:
    """The settings of a topic, from the cluster's state if it can be read, else the defaults.

    By default Kafka's own topics are compacted. `given` goes over all of them.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    try:
        topic = known_topic(files, root, partition.topic)
    except DirectoryError:
        topic = None
    known = {} if topic is None else dict(topic.configs)
    if topic is None and partition.topic in INTERNAL_TOPICS:
        known = {"cleanup.policy": "compact"}
    return log_config({**known, **(given or {})})


def _begin(files: Files, plan: RepairPlan) -> bool:
    """Leave the note; returns whether the directory had been stopped in order."""
    before = read_journal(files, plan.root)
    mark = f"{plan.root}/{names.CLEAN_SHUTDOWN}"
    was_clean = files.exists(mark) if before is None else before.was_clean
    begun = {} if before is None else dict(before.partitions)
    for each in plan.partitions:
        if each.changed_from is not None:
            known = begun.get(each.partition, each.changed_from)
            # An earlier repair that died may have begun at a lower segment.
            begun[each.partition] = min(known, each.changed_from)
    write_journal(files, plan.root, Journal(was_clean=was_clean, partitions=begun))
    if files.exists(mark):
        files.remove(mark)
        files.sync_directory(plan.root)
    return was_clean


def _sync_logs(files: Files, folder: str) -> None:
    """Sync the log files, as a recovery point at the end of the log promises."""
    for segment in list_segments(files, folder)[0]:
        _sync_file(files, segment.path)


def _size(files: Files, path: str) -> int:
    with closing(files.open(path, read_only=True)) as file:
        return file.size()


def _sync_file(files: Files, path: str) -> None:
    with closing(files.open(path)) as file:
        file.sync()


def _write_checkpoints(files: Files, plan: RepairPlan) -> None:
    """Lower the entries of checkpoints that are above the end that a log will have.

    And every recovery point of a log that is cut at its end: a broker that starts before the repair
    is complete must not take what was stepped over for a tail that was lost.
    """
    ends = {each.partition: each.log_end for each in plan.partitions if each.drops or each.restores}
    for name in CHECKPOINTS:
        path = f"{plan.root}/{name}"
        is_damaged = path in plan.damaged_checkpoints
        # A damaged one is rewritten with what is known, so that the start does not have to guess.
        known = {} if is_damaged else read_offset_checkpoint(files, path)
        kept = {
            partition: min(offset, ends.get(partition, offset))
            for partition, offset in known.items()
            if partition not in plan.void_entries.get(name, ())
        }
        if name == names.RECOVERY_POINTS:
            kept |= ends
        if name == names.LOG_START_OFFSETS:
            kept |= plan.log_starts
        if kept != known or (is_damaged and files.exists(path)):
            write_offset_checkpoint(files, plan.root, name, offsets=kept)


def _remove_derived(files: Files, plan: PartitionPlan) -> None:
    """Snapshots and indexes that the change makes wrong; a log without them is recovered."""
    for path in plan.stale_snapshots:
        if files.exists(path):
            files.remove(path)
    if plan.changed_from is not None:
        for name in files.list(plan.folder):
            parsed = names.parse_segment_file_name(name)
            if parsed and parsed[0] >= plan.changed_from and parsed[1] in INDEX_SUFFIXES:
                files.remove(f"{plan.folder}/{name}")
    files.sync_directory(plan.folder)


def _change_logs(files: Files, plan: PartitionPlan) -> None:
    whole = [each for each in plan.drops if each.is_whole_file]
    # The last one first: a crash in between leaves no hole.
    for drop in reversed(whole):
        if drop.size_bytes:
            move_file(files, drop.path, quarantine_path(drop))
        else:
            files.remove(drop.path)
        files.sync_directory(plan.folder)
    partial = [each for each in plan.drops if not each.is_whole_file]
    gone = {each.base_offset for each in whole}
    for base_offset in sorted({each.base_offset for each in partial} | (plan.restamped - gone)):
        of_segment = [each for each in partial if each.base_offset == base_offset]
        path = f"{plan.folder}/{names.segment_file_name(base_offset, names.LOG_SUFFIX)}"
        # Positions in another file of the segment would take sound bytes out of this one.
        assert all(drop.path == path for drop in of_segment)
        _rewrite(files, path, of_segment, epochs=plan.epochs or [])
    files.sync_directory(plan.folder)


def _restore(files: Files, plan: PartitionPlan) -> None:
    """Put what recovery has set aside back in service, the oldest first."""
    for each in plan.restores:
        target = evidence.log_path(plan.folder, each.base_offset)
        if each.is_whole:
            _sync_file(files, each.path)
            files.rename(each.path, target)
        else:
            with closing(files.open(each.path, read_only=True)) as source:
                # The file stays, with the damage in it.
                copy_parts(
                    files,
                    target,
                    (
                        part
                        for start, limit in each.ranges
                        for part in parts(source, each.path, start=start, limit=limit)
                    ),
                )
        files.sync_directory(plan.folder)


def _rewrite(files: Files, path: str, drops: list[Drop], *, epochs: list[tuple[int, int]]) -> None:
    """Write what stays of a log file under a second name, and put it in place."""
    modified_ms = files.modified_ms(path)
    temporary = path + names.TEMPORARY_SUFFIX
    source = files.open(path, read_only=True)
    target = files.open(temporary, create=True)
    try:
        target.resize(0)
        end = 0
        for start, limit in _kept(drops, source.size()):
            for part in _stamped(source, path, start, limit=limit, epochs=epochs):
                target.write(end, part)
                end += len(part)
        # Before the rename: a crash leaves the old file whole, or the new one.
        target.sync()
    finally:
        source.close()
        target.close()
    # Retention counts from it where records have no timestamps.
    files.set_modified_ms(temporary, modified_ms)
    files.rename(temporary, path)


def _kept(drops: list[Drop], size: int) -> Iterator[tuple[int, int]]:
    start = 0
    for drop in drops:
        if drop.position > start:
            yield start, drop.position
        start = drop.position + drop.size_bytes
    if start < size:
        yield start, size


def _stamped(
    source: File, path: str, start: int, *, limit: int, epochs: list[tuple[int, int]]
) -> Iterator[bytes]:
    """The bytes of a range, with the leader epochs that are due."""
    if not epochs:
        yield from parts(source, path, start=start, limit=limit)
        return
    for position, batch in walk_batches(source, path, start=start, limit=limit):
        # Older formats have no epoch to stamp.
        if batch.legacy is not None:
            yield read_exactly(source, path, position=position, size=batch.size)
            continue
        data = bytearray(batch.view)
        due = epoch_due(epochs, batch.base_offset)
        stamp(memoryview(data), base_offset=batch.base_offset, leader_epoch=due)
        yield bytes(data)


def _rebuild(
    files: Files, root: str, plan: PartitionPlan, *, config: LogConfig, clock: Clock
) -> list[LogCut]:
    """Open the log, which writes its indexes, snapshots and epochs, and close it in order."""
    # The broker's own code, so that what it writes is what a broker expects.
    cuts: list[LogCut] = []
    starts = read_offset_checkpoint(files, f"{root}/{names.LOG_START_OFFSETS}")
    log = open_log(
        PartitionFolder(
            partition=plan.partition,
            path=plan.folder,
            files=files,
            clock=clock,
            chance=random.SystemRandom(),
            removals=Removals(files),
        ),
        config=config,
        is_clean=False,
        # Segments with sound indexes are not read again; those without are.
        checkpoints=(_EVERYTHING, starts.get(plan.partition, 0)),
        report=cuts.append,
    )
    with closing(log):
        log.finish()
        for segment in log.segments:
            segment.sync()
        # A snapshot that is torn by a crash would only cost time, but a repair should leave nothing
        # unfinished.
        for path in log.producers.snapshots.paths:
            _sync_file(files, path)
    files.sync_directory(plan.folder)
    return cuts
