"""Move a partition to another log directory while it is served (KIP-113).

    /disk1/flights-3                            the log in service; it still grows
    /disk2/flights-3.5f0c….-future              the copy, batch for batch; catches up

    prepare   the copy has all records of the log, and is on the device with its checkpoints
    swap      /disk1/flights-3        -> /disk1/flights-3.91ab….-delete      on the device
              /disk2/flights-3.….-future -> /disk2/flights-3                 on the device

Copying takes long and may run on any thread. A swap is two renames on the owner's thread, with no
append in between. The old folder is renamed first, so that a partition never has two folders. A
start that finds a copy and no log serves the copy, which is complete then. A start that finds both
keeps the log and begins the copy again, because after a crash their records may differ. (Apache
Kafka continues the copy, and refuses to start on a partition with two folders.)

Bytes that recovery or a repair has set aside (`set_aside`) are copied too, because a repair may
restore them. The target's checkpoints have the copy before its folder gets its name: a gap in it is
below its recovery point, so a later start does not take the gap for a lost tail.

The log must not be compacted during a move: the copy would mix records from before and after.
"""

import errno
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from tailrace.errors import CorruptionError, DirectoryError, OffsetOutOfRangeError, StorageError
from tailrace.model import Offset, TopicPartition
from tailrace.runtime.files import CutMeanwhileError, Files
from tailrace.storage import names, set_aside
from tailrace.storage.appends import UnexpectedAppendOffsetError
from tailrace.storage.checkpoints import read_partition_metadata
from tailrace.storage.directories import unusable
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager, is_shortage
from tailrace.storage.positions import ReadLimit
from tailrace.storage.segment import move_segment
from tailrace.storage.shrink import raise_log_start, truncate_fully_and_start_at
from tailrace.values import replace

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
"""Bytes that are copied at a time; a larger batch is copied whole."""
READS_MAX = 10
"""Number of times that a read is tried when retention deletes the segments that it reads."""


class PartitionMove:
    """A log and its copy in another directory; `begin_move` makes it."""

    def __init__(
        self, source: Log, future: Log, *, home: DirectoryLogs, target: DirectoryLogs
    ) -> None:
        self.source = source
        self.future = future
        self.home = home
        """The directory that the log is in."""
        self.target = target
        """The directory that it moves to."""
        self.copied_bytes = 0
        """Size of the batches that `copy` has copied."""
        self._cut_count = source.positions.cut_count
        """Cuts of the log before the copy was begun."""
        self._prepared: tuple[int, int, int] | None = None
        # Whether the copy may be the only folder that the next start finds.
        self._is_copy_needed = False

    @property
    def lag(self) -> int:
        """Number of offsets by which the copy lags the log."""
        return max(self.source.end_offset - self.future.end_offset, 0)

    @property
    def is_ready(self) -> bool:
        """Whether nothing has changed since `prepare`."""
        source = self.source
        return self._prepared == (
            source.start_offset, source.end_offset, source.positions.cut_count
        )  # fmt: skip

    def copy(self) -> int:
        """Copy the next batches; returns their bytes, 0 at the end of the log. Any thread.

        Raises:
            CorruptionError: a batch of the log is damaged; it is not copied.
            StorageError: the log or the copy has left service.
            OSError: a device refused.
        """
        while True:
            cut_count = self.source.positions.cut_count
            if cut_count != self._cut_count:
                # A follower was cut (KIP-101): other records may have the offsets that the copy
                # has, and nothing tells from which on.
                truncate_fully_and_start_at(self.future, self.source.start_offset)
                self._cut_count = cut_count
            # Read before the batches: what is appended meanwhile is copied by the next call.
            end = self.source.end_offset
            data = self._read_next()
            # A read across a cut may have half of what was there.
            if self.source.positions.cut_count == cut_count:
                break
        if data is None:
            self._skip_to(end)
            return 0
        now_ms = self.future.folder.clock.now_ms()
        try:
            self.future.append_as_follower(data, now_ms=now_ms)
        except UnexpectedAppendOffsetError as error:
            if self.future.size:
                raise
            # The log starts inside this batch, which is copied whole.
            truncate_fully_and_start_at(self.future, error.first_offset)
            self.future.append_as_follower(data, now_ms=now_ms)
        self.copied_bytes += len(data)
        return len(data)

    def _skip_to(self, end: int) -> None:
        """Advance the end of the copy to `end`, over offsets without a batch."""
        if self.future.end_offset < end:
            # A log whose last batches compaction has removed ends with a gap: only a new segment
            # can say so in files.
            self.future.roll(end)
            self.future.positions.advance_end(Offset(end))

    def _read_next(self) -> memoryview | None:
        """The next batches of the log, copied into memory; None at the end of the log."""
        for is_last in (*[False] * (READS_MAX - 1), True):
            start = self.source.start_offset
            if self.future.end_offset < start:
                truncate_fully_and_start_at(self.future, start)
            try:
                found = self.source.read(
                    self.future.end_offset,
                    bytes_max=min(CHUNK_BYTES, self.future.config.segment_bytes),
                    is_first_whole=True,
                    # A copy is a replica: it takes what consumers must not see yet, too.
                    limit=ReadLimit.LOG_END,
                )
                return None if found.records is None else memoryview(bytearray(found.read()))
            except OffsetOutOfRangeError:
                if is_last:
                    raise
            except OSError as error:
                # Retention may close a segment that this thread reads; the next read does not use
                # it any more. If the whole log was closed, the next read raises that error.
                is_closed = error.errno == errno.EBADF or isinstance(error, CutMeanwhileError)
                if is_last or not is_closed:
                    raise
        raise AssertionError("the last read gives batches or an error")

    def step(self) -> int | None:
        """Copy the next batches; returns their bytes, or None when the swap is prepared.

        Any thread.

        Raises:
            CorruptionError, StorageError: as `copy`.
            StorageError: a device refused; a MoveError if its directory is known.
        """
        try:
            size = self.copy()
            if size or self.lag:
                return size
            self.prepare()
            return None
        except StorageError:
            raise
        except OSError as error:
            raise self._refused(error) from error

    def catch_up(self, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Copy until nothing is missing, and prepare the swap; raises as `step`. Any thread."""
        while not is_over() and self.step() is not None:
            pass

    def carry(self) -> None:
        """Copy the set-aside files of the log; on the device on return. Any thread.

        No such file is created while the broker runs.

        Raises:
            StorageError: a device refused; a MoveError if its directory is known.
        """
        files, source, target = (
            self.source.folder.files, self.source.folder.path, self.future.folder.path,
        )  # fmt: skip
        try:
            for name in files.list(source):
                # Bytes that a recovery has set aside belong to the partition, and the old folder is
                # deleted.
                if name.endswith(names.KEPT_SUFFIX):
                    set_aside.copy_file(files, f"{source}/{name}", f"{target}/{name}")
            files.sync_directory(target)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StorageError:
        """The error of a device: a MoveError if the file name tells the directory."""
        # Longest path first, because one directory may be inside the other.
        for directory in sorted((self.home, self.target), key=lambda each: -len(each.path)):
            if f"{error.filename}/".startswith(f"{directory.path}/"):
                return MoveError(directory, error)
        return StorageError(f"a log directory refused, and the error does not name it: {error}")

    def prepare(self) -> None:
        """Sync the copy, and write the checkpoints that it needs under its new name.

        Any thread.

        Raises:
            OSError: the device refused.
        """
        future, start, end = self.future, self.source.start_offset, self.future.end_offset
        future.advance_high_watermark(self.source.positions.high_watermark)
        if start > future.start_offset and start <= end:
            raise_log_start(future, start)
        # Before the checkpoints, which promise that these records are on the device.
        future.sync()
        self.target.offsets.expect(
            future, cleaner_offset=self.home.offsets.cleaner_offset(future.partition)
        )
        self._prepared = start, end, self._cut_count

    def swap(self, unique_id: str) -> None:
        """Exchange the folders of the log and of its copy. Owner's thread, when `is_ready`.

        After a crash between the two renames a start serves the copy. Both logs stay open.

        Raises:
            MoveError: a device refused. The log stays in service under its old name, unless the
                directory of the error must leave service (`is_final`). If that is the log's own
                directory, its folder may have lost its name; `discard` then keeps the copy for the
                next start. If it is the target, the partition is there now (`has_moved`).
        """
        assert self.is_ready
        files, partition = self.source.folder.files, self.source.partition
        place = self.source.folder.path
        aside = f"{self.home.path}/{names.delete_directory_name(partition, unique_id)}"
        new_place = f"{self.target.path}/{names.partition_directory_name(partition)}"
        self._is_copy_needed = True
        # Before the rename: a flush on another thread that does not find a file then is no failure.
        self.source.is_leaving = True
        try:
            # The log first. If the copy were renamed first, a crash would leave two folders of one
            # partition in service.
            files.rename(place, aside)
            files.sync_directory(self.home.path)
        except OSError as error:
            self._put_back(aside, place)
            # After a failed sync the new name may or may not be on the device.
            # A full disk has refused the rename itself; any other error may have come after it.
            self._is_copy_needed = not is_shortage(error)
            raise MoveError(self.home, error) from error
        try:
            files.rename(self.future.folder.path, new_place)
            files.sync_directory(self.target.path)
        except OSError as error:
            if not self._take_back(new_place):
                self._leave_a_second_copy(aside)
                raise MoveError(self.target, error, is_final=True, has_moved=True) from error
            self._put_back(aside, place)
            raise MoveError(self.target, error) from error
        # Settings may have changed while it was copied.
        self.future.config = self.source.config
        _move_log(self.future, new_place)
        self.home.removals.add_folder(
            aside,
            due_ms=self.source.folder.clock.now_ms() + self.source.config.file_delete_delay_ms,
        )

    def _take_back(self, new_place: str) -> bool:
        """Give the copy's folder its `-future` name back; False if that may have failed."""
        files = self.future.folder.files
        try:
            # If the rename was refused, nothing has changed, and nothing has to be undone.
            if files.exists(new_place):
                files.rename(new_place, self.future.folder.path)
                files.sync_directory(self.target.path)
        except OSError:
            return False
        return True

    def _leave_a_second_copy(self, aside: str) -> None:
        """Rename the old folder to a `-future` name too, in case the target never comes back."""
        files = self.source.folder.files
        name = f"{self.home.path}/{self.future.folder.path.rpartition('/')[2]}"
        try:
            files.rename(aside, name)
            files.sync_directory(self.home.path)
        except OSError as error:
            logger.warning("second_copy_not_kept path=%s reason=%s", aside, error)

    def _put_back(self, aside: str, place: str) -> None:
        """Give the log's folder its name back, on the device; the copy is not needed then.

        Raises:
            MoveError: the device refused. The folder's name after a crash is unknown, so the log
                must accept no records.
        """
        files = self.source.folder.files
        try:
            if files.exists(aside):
                files.rename(aside, place)
            files.sync_directory(self.home.path)
            # A flush on another thread may have failed meanwhile; the log cannot be used then.
            self.source.check_usable()
        except OSError as error:
            raise MoveError(self.home, error, is_final=True) from error
        self.source.is_leaving = False
        self._is_copy_needed = False

    def hand_over(self) -> None:
        """Close the log after the swap, and name the copy as its successor."""
        self.source.successor = self.future
        self.source.close()

    def discard(self) -> None:
        """Close the copy and delete its folder, at the latest at the next start. Owner's thread.

        After a `swap` that failed between its renames the folder stays for the next start.
        """
        self.future.close()
        if self._is_copy_needed:
            return
        files, path = self.future.folder.files, self.future.folder.path
        # The copy's own id, so that the name is free.
        unique_id = path.removesuffix(names.FUTURE_DIRECTORY_SUFFIX).rpartition(".")[2]
        aside = names.delete_directory_name(self.future.partition, unique_id)
        try:
            files.rename(path, f"{self.target.path}/{aside}")
            self.target.removals.add_folder(f"{self.target.path}/{aside}", due_ms=0)
            if self.target.get(self.future.partition) is None:
                self.target.offsets.forget(self.future.partition)
        except OSError as error:
            logger.warning("future_not_removed path=%s reason=%s", self.future.folder.path, error)


def _move_log(log: Log, path: str) -> None:
    """Use another path for a log whose folder was renamed; its files stay open."""
    log.folder = replace(log.folder, path=path)
    for segment in log.segments:
        move_segment(segment, path)
    log.epochs.move_to(path)
    log.producers.snapshots.move_to(path)


class MoveError(StorageError):
    """A device has refused a step of a move."""

    def __init__(
        self,
        directory: DirectoryLogs,
        error: OSError,
        *,
        is_final: bool = False,
        has_moved: bool = False,
    ) -> None:
        super().__init__(str(unusable(directory.path, error)))
        self.directory = directory
        """The directory whose device refused."""
        self.error = error
        self.is_final = is_final
        """Whether the directory must leave service, also for a shortage."""
        self.has_moved = has_moved
        """Whether the copy must take over, because the log's folder has lost its name."""


def begin_move(
    source: Log,
    *,
    home: DirectoryLogs,
    target: DirectoryLogs,
    topic_id: uuid.UUID,
    unique_id: str,
) -> PartitionMove:
    """Create the folder of an empty copy in another directory. Any thread.

    Folders of earlier moves in the target are removed first, so that a start finds one copy.

    Raises:
        StorageError: the device refused; the folder is removed again if the device allows it.
    """
    files, partition = target.files, source.partition
    path = f"{target.path}/{names.future_directory_name(partition, unique_id)}"
    try:
        remove_futures(partition, target)
        future = target.open_future(source, path, topic_id=topic_id)
    except OSError as error:
        _remove_beginning(files, path)
        raise MoveError(target, error) from error
    # The copy is appended to on a worker thread, which may wait for the device.
    future.on_rolled = Log.sync_rolled
    move = PartitionMove(source, future, home=home, target=target)
    try:
        move.carry()
    except StorageError:
        future.close()
        _remove_beginning(files, path)
        raise
    return move


def _remove_tree(files: Files, path: str) -> None:
    if files.exists(path):
        files.remove_tree(path)


def _remove_beginning(files: Files, path: str) -> None:
    try:
        _remove_tree(files, path)
    except OSError as error:
        # The next move to this directory removes it, and so does a start.
        logger.warning("future_not_removed path=%s reason=%s", path, error)


def remove_futures(partition: TopicPartition, directory: DirectoryLogs) -> None:
    """Remove the `-future` folders of a partition from a directory; on the device on return.

    Raises:
        OSError: the device refused.
    """
    left = [
        name
        for name in directory.files.list(directory.path)
        if names.parse_future_directory_name(name) == partition
    ]
    for name in left:
        directory.files.remove_tree(f"{directory.path}/{name}")
    if left:
        directory.files.sync_directory(directory.path)


class _Future(NamedTuple):
    """A `-future` folder that a start has found."""

    directory: DirectoryLogs
    path: str


def settle_futures(
    logs: LogManager, known_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
) -> dict[TopicPartition, DirectoryLogs]:
    """Remove or promote the copies of moves that a stop or a crash has interrupted.

    A start calls this before it looks for partitions. Returns the partitions whose move has to
    begin again, with the target directory of each.

    A copy is removed if its log is there. A copy without a log gets the partition's name, because
    the crash was within the swap; but not if a directory that may have the log is out of service,
    nor if `known_ids` has another topic id. If there are several copies, the one with the largest
    checkpointed offsets is promoted: only a complete copy is checkpointed. A directory that refuses
    fails.

    Raises:
        DirectoryError: one directory has several copies, which share one entry in its checkpoints.
    """
    current: set[TopicPartition] = set()
    futures: dict[TopicPartition, list[_Future]] = {}
    for directory in logs.online:
        for name in _folder_names(logs, directory):
            partition = names.parse_partition_directory_name(name)
            future = names.parse_future_directory_name(name)
            if partition is not None:
                current.add(partition)
            elif future is not None:
                found = _Future(directory, f"{directory.path}/{name}")
                futures.setdefault(future, []).append(found)
    again: dict[TopicPartition, DirectoryLogs] = {}
    for partition, copies in futures.items():
        if partition in current:
            again[partition] = copies[0].directory
        elif not (
            logs.is_complete
            and _serve_copy(logs, partition, copies, known_id=known_ids.get(partition.topic))
        ):
            continue
        # Only the promoted copy has another name by now; the rest is removed.
        for copy in copies:
            logs.guard(copy.directory, partial(_remove_tree, copy.directory.files, copy.path))
    return again


def _folder_names(logs: LogManager, directory: DirectoryLogs) -> list[str]:
    try:
        return directory.files.list(directory.path)
    except OSError as error:
        # Also for a shortage: the directory may have the log of a copy in another directory.
        logs.fail(directory, error)
        return []


def _serve_copy(
    logs: LogManager,
    partition: TopicPartition,
    copies: Sequence[_Future],
    *,
    known_id: uuid.UUID | None,
) -> bool:
    """Give the most complete copy the partition's name; returns whether one has it now."""
    try:
        fitting = [each for each in copies if known_id in (None, _topic_id_or_none(each, known_id))]
    except MoveError as error:
        logs.fail(error.directory, error.error)
        return False
    if not fitting:
        return False
    best = max(fitting, key=lambda each: _known_size(each.directory, partition))
    if sum(each.directory is best.directory for each in fitting) > 1:
        raise DirectoryError(
            f"{best.directory.path} has several copies of {partition} ({best.path} and others) and "
            "no log directory has its log; move all but the newest copy away"
        )
    try:
        _promote(best.directory, partition, best.path)
    except OSError as error:
        # Also for a shortage: without its folder the partition would be created empty.
        logs.fail(best.directory, error)
        return False
    return True


def _topic_id_or_none(copy: _Future, known_id: uuid.UUID | None) -> uuid.UUID | None:
    """The topic id in a copy's folder; `known_id` if the file is malformed."""
    try:
        return read_partition_metadata(
            copy.directory.files, f"{copy.path}/{names.PARTITION_METADATA}"
        )
    except CorruptionError:
        return known_id
    except OSError as error:
        raise MoveError(copy.directory, error) from error


def _known_size(directory: DirectoryLogs, partition: TopicPartition) -> tuple[int, int]:
    recovery_point, log_start = directory.offsets.found(partition)
    return recovery_point, log_start or 0


def _promote(directory: DirectoryLogs, partition: TopicPartition, path: str) -> None:
    place = f"{directory.path}/{names.partition_directory_name(partition)}"
    directory.files.rename(path, place)
    directory.files.sync_directory(directory.path)
    logger.warning("partition_moved path=%s reason=move interrupted during the swap", place)
