"""The checkpoints of a log directory: recovery points, log starts, cleaner offsets, watermarks.

    call       what it writes                                when it is called
    announce   recovery point 0 of each of several logs      before `begin` of each
    begin      recovery point 0                              before a new folder gets its name
    expect     all offsets of a copy made by a move          before the copy's folder is renamed
    write      the offsets of every open log                 at intervals, and at a stop
               (the high watermarks, and the log starts, also alone and more often)
    forget     nothing; `write` drops the entries then       when a partition is deleted

A start trusts the checkpoints: everything below a recovery point is on the device, and a log with
an entry has been in this directory since it was created
(docs/decisions/0020-a-gap-is-no-damage.md).

The methods that write wait for the device, and may run on any thread.
"""

import threading
from collections.abc import Mapping, Sequence

from tailrace.model import TopicPartition
from tailrace.runtime.coalescing import Coalesced
from tailrace.storage import names
from tailrace.storage.directories import LogDirectory, unusable
from tailrace.storage.log import Log

BEGUN_AT_ONCE = 1000
"""Most partitions that are begun by one write of a checkpoint."""


class DirectoryOffsets:
    """The checkpoints of one log directory; `from_checkpoints` reads them."""

    def __init__(
        self,
        directory: LogDirectory,
        logs: Mapping[TopicPartition, Log],
        *,
        recovery_points: dict[TopicPartition, int],
        log_starts: dict[TopicPartition, int] | None,
        cleaner_offsets: dict[TopicPartition, int] | None,
        high_watermarks: dict[TopicPartition, int],
    ) -> None:
        """None means a checkpoint that is malformed."""
        self._directory = directory
        # The open logs; the event loop adds and removes them while a thread writes.
        self._logs = logs
        self._writing = threading.Lock()
        self._begun = Coalesced(self._begin_all, self._writing, weight_max=BEGUN_AT_ONCE)
        self._announced: set[TopicPartition] = set()
        self._forgotten: set[TopicPartition] = set()
        self._corrected: set[TopicPartition] = set()
        self._recovery_points = recovery_points
        self._high_watermarks = high_watermarks
        # The log start of a log without an entry; None if the checkpoint is malformed.
        self._default_log_start = 0 if log_starts is not None else None
        self._log_starts = log_starts or {}
        self._is_cleaning_known = cleaner_offsets is not None
        self._cleaner_offsets = cleaner_offsets or {}
        self._is_cleaning_written = True
        """Whether the checkpoint of cleaner offsets has what is known; False after a refusal."""

    @classmethod
    def from_checkpoints(
        cls, directory: LogDirectory, logs: Mapping[TopicPartition, Log]
    ) -> "DirectoryOffsets":
        """The checkpoints as they are in the directory.

        Raises:
            UnusableDirectoryError: they cannot be read.
        """
        try:
            return cls(
                directory,
                logs,
                recovery_points=directory.read_checkpoint(names.RECOVERY_POINTS) or {},
                log_starts=directory.read_checkpoint(names.LOG_START_OFFSETS),
                cleaner_offsets=directory.read_checkpoint(names.CLEANER_OFFSETS),
                high_watermarks=directory.read_checkpoint(names.HIGH_WATERMARKS) or {},
            )
        except OSError as error:
            raise unusable(directory.path, error) from error

    def found(self, partition: TopicPartition) -> tuple[int, int | None]:
        """Recovery point and log start of a log; the start is None if it cannot be read."""
        return (
            self._recovery_points.get(partition, 0),
            self._log_starts.get(partition, self._default_log_start),
        )

    def high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark of a log, at least; 0 without an entry."""
        return self._high_watermarks.get(partition, 0)

    def may_have_gaps(self, partition: TopicPartition) -> bool:
        """Whether, according to the checkpoints, a gap in a log may come from compaction."""
        return (
            not self._is_cleaning_known
            or partition in self._cleaner_offsets
            or partition not in self._recovery_points
        )

    def begin(self, partition: TopicPartition) -> None:
        """Checkpoint recovery point 0 for a new log, before its folder gets its name.

        A start then knows that this directory has had the log since it was created, so that a gap
        in it is a lost tail. Entries of an older log of the same name are removed, so that a crash
        cannot apply them to the new one.

        Raises:
            OSError: the device refused; the old checkpoints stay.
        """
        if partition in self._announced:
            self._announced.discard(partition)
            return
        self._forget_older([partition])
        self._begun.run(partition)

    def announce(self, partitions: Sequence[TopicPartition]) -> None:
        """Do what `begin` does for new logs that are begun soon, with one write for all.

        Raises:
            OSError: the device refused; the old checkpoints stay, and nothing is announced.
        """
        self._forget_older(partitions)
        with self._writing:
            self._begin_all(partitions)
        self._announced.update(partitions)

    def _forget_older(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove the entries of older logs of these names."""
        # Without the lock, which a write of others holds: these may be written together.
        known = (
            self._forgotten, self._log_starts, self._cleaner_offsets, self._high_watermarks
        )  # fmt: skip
        older = [each for each in partitions if any(each in one for one in known)]
        if older or not self._is_cleaning_written:
            self._forgotten.update(older)
            self.write()

    def _begin_all(self, partitions: Sequence[TopicPartition]) -> None:
        self._recovery_points.update(dict.fromkeys(partitions, 0))
        self._directory.write_checkpoint(names.RECOVERY_POINTS, self._recovery_points)

    def expect(self, copy: Log, *, cleaner_offset: int | None) -> None:
        """Checkpoint the offsets of a moved copy, before its folder gets the partition's name.

        The whole copy is on the device, so its recovery point lies above its gaps, and a start
        does not take them for a lost tail.

        Raises:
            OSError: the device refused; the copy must not get the name.
        """
        partition = copy.partition
        copy.epochs.save()
        if cleaner_offset is not None:
            self.note_cleaned(partition, cleaner_offset)
        with self._writing:
            # `write` takes only open logs of this directory, and the copy is none yet.
            self._recovery_points[partition] = copy.positions.recovery_point
            self._log_starts[partition] = copy.start_offset
            self._high_watermarks[partition] = copy.positions.high_watermark
        self.write()

    def forget(self, partition: TopicPartition) -> None:
        """Leave a partition out of the checkpoints from the next `write` on."""
        self._announced.discard(partition)
        self._forgotten.add(partition)

    def write(self) -> None:
        """Checkpoint the offsets of every open log.

        Raises:
            OSError: the device refused; the old checkpoints stay.
        """
        with self._writing:
            # Snapshots: the event loop adds and removes while this thread writes.
            forgotten, logs = tuple(self._forgotten), tuple(self._logs.items())
            corrected = tuple(self._corrected)
            for partition in forgotten:
                self._recovery_points.pop(partition, None)
                self._log_starts.pop(partition, None)
                self._high_watermarks.pop(partition, None)
                if self._cleaner_offsets.pop(partition, None) is not None:
                    self._is_cleaning_written = False
            if corrected or not self._is_cleaning_written:
                self._write_cleaner_offsets()
            self._corrected.difference_update(corrected)
            # Entries of partitions that are not open stay: their logs may be opened later.
            for partition, log in logs:
                self._recovery_points[partition] = log.positions.recovery_point
                self._high_watermarks[partition] = log.positions.high_watermark
            self._directory.write_checkpoint(names.RECOVERY_POINTS, self._recovery_points)
            # Where there are other replicas, a start shows consumers nothing above this offset
            # before the leader says more; Apache Kafka does so everywhere.
            self._directory.write_checkpoint(names.HIGH_WATERMARKS, self._high_watermarks)
            self._note_log_starts(logs)
            # Only what this write has left out: others may have been added meanwhile.
            self._forgotten.difference_update(forgotten)

    def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks if one has moved.

        Raises:
            OSError: the device refused; the old checkpoint stays.
        """
        with self._writing:
            found = {each: log.positions.high_watermark for each, log in tuple(self._logs.items())}
            # An idle broker writes nothing: this is called every few seconds.
            if not found.items() <= self._high_watermarks.items():
                self._write_high_watermarks(found)

    def lower_to_end(self, log: Log) -> None:
        """Checkpoint offsets that are above the end of a log, which has lost its tail.

        Records that come now would count as flushed, committed and cleaned after another crash. A
        start would not read their leader epochs then, which are saved at the next flush.

        Raises:
            OSError: the device refused; the old checkpoints stay.
        """
        partition, log_end = log.partition, log.end_offset
        with self._writing:
            if self._recovery_points.get(partition, 0) > log_end:
                lower = {**self._recovery_points, partition: log_end}
                self._directory.write_checkpoint(names.RECOVERY_POINTS, lower)
                self._recovery_points[partition] = log_end
            if self._high_watermarks.get(partition, 0) > log_end:
                self._write_high_watermarks({partition: log_end})
            if self._cleaner_offsets.get(partition, 0) > log_end:
                self._cleaner_offsets[partition] = log_end
                self._is_cleaning_written = False
            if not self._is_cleaning_written:
                self._write_cleaner_offsets()

    def _write_high_watermarks(self, changed: Mapping[TopicPartition, int]) -> None:
        changed = {**self._high_watermarks, **changed}
        self._directory.write_checkpoint(names.HIGH_WATERMARKS, changed)
        # After the file, so that a call after a refusal tries again.
        self._high_watermarks = changed

    def write_log_starts(self) -> None:
        """Checkpoint the log starts that lie above their first segment.

        Raises:
            OSError: the device refused; the old checkpoint stays.
        """
        with self._writing:
            self._note_log_starts(tuple(self._logs.items()))

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """The offset up to which a partition has been compacted, or None."""
        return self._cleaner_offsets.get(partition)

    def correct_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """Replace a cleaner offset that lies outside of its log; on the device with `write`.

        It does not wait, so the event loop may call it. After a crash before `write`, the old entry
        is found to be wrong again.
        """
        if partition in self._cleaner_offsets:
            self._cleaner_offsets[partition] = offset
            self._corrected.add(partition)

    def note_cleaned(
        self, partition: TopicPartition, offset: int | None, *, log: Log | None = None
    ) -> None:
        """Checkpoint the offset up to which a partition has been compacted; None removes the entry.

        If `log` is given and is not the partition's log any more, nothing changes: the partition
        was deleted, and a new one may have its name.

        Raises:
            OSError: the device refused; compaction may repeat work after the next start.
        """
        with self._writing:
            if log is not None and self._logs.get(partition) is not log:
                return
            if offset is None:
                self._cleaner_offsets.pop(partition, None)
            else:
                self._cleaner_offsets[partition] = offset
            self._write_cleaner_offsets()

    def _note_log_starts(self, logs: Sequence[tuple[TopicPartition, Log]]) -> None:
        for partition, log in logs:
            log_start = log.start_offset
            if log_start > log.segments.first.base_offset:
                try:
                    # A start accepts a log start only if the saved epochs confirm it (`evidence`).
                    log.epochs.save()
                except OSError:
                    if self._logs.get(partition) is log and not log.is_leaving:
                        raise
                    continue  # Its folder was renamed meanwhile, for a deletion or a move.
                self._log_starts[partition] = log_start
            else:
                # The name of the first segment says it, as in Kafka, which writes no entry either.
                self._log_starts.pop(partition, None)
        self._directory.write_checkpoint(names.LOG_START_OFFSETS, self._log_starts)

    def _write_cleaner_offsets(self) -> None:
        # Until the device has it: the next call tries again, also if nothing else has changed.
        self._is_cleaning_written = False
        self._directory.write_checkpoint(names.CLEANER_OFFSETS, self._cleaner_offsets)
        self._is_cleaning_written = True
