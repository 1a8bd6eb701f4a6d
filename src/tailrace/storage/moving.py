"""A partition moves to another log directory while it is served (KIP-113).

    /disk1/flights-3                            serves; grows meanwhile
    /disk2/flights-3.5f0c….-future              a copy, batch for batch; catches up

    prepare   the copy has all that the log has, and is on the device with its checkpoints
    swap      /disk1/flights-3        -> /disk1/flights-3.91ab….-delete      on the device
              /disk2/flights-3.….-future -> /disk2/flights-3                 on the device

Copying takes long and may run on any thread; a swap is two renames on the owner's thread, with no
append in between. The old folder loses its name first, so that a partition never has two: a start
that finds a copy and no log takes the copy, which is whole then. One that finds both goes on with
the log and begins the copy anew: after a crash nobody knows whether their records are still the
same. (Apache Kafka goes on with the copy, and refuses to start on a partition with two folders.)

What recovery or a repair has taken out of the log (`set_aside`) comes along, since a repair may
bring it back. And the target's checkpoints have the copy before its folder gets its name: a gap in
it is below its recovery point, so a later start serves it, as the old directory did.

While it lasts the log must not be compacted: the copy would have records of before and after.
"""

import errno
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from tailrace.errors import CorruptionError, DirectoryError, OffsetOutOfRangeError, StorageError
from tailrace.model import TopicPartition
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
from tailrace.storage.shrink import truncate_fully_and_start_at

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
"""How much is copied in one go; a batch that is larger is copied whole."""
READS_MAX = 10
"""How often a read is tried that meets segments on their way out of the log."""


class Move:
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
        self._prepared: tuple[int, int] | None = None
        self._is_copy_needed = False
        """Whether the next start may find no other folder of the partition."""

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        return max(self.source.end_offset - self.future.end_offset, 0)

    @property
    def is_ready(self) -> bool:
        """Whether nothing has changed since `prepare`."""
        return self._prepared == (self.source.start_offset, self.source.end_offset)

    def copy(self) -> int:
        """Copy the next batches; how many bytes they had, 0 when there are none. Any thread.

        Raises:
            CorruptionError: a batch of the log is damaged, which the copy must not hide.
            StorageError: the log or the copy has left service.
            OSError: a device refused.
        """
        end = self.source.end_offset
        data = self._read_next()
        if data is None:
            self._skip_to(end)
            return 0
        now_ms = self.future.folder.clock.now_ms()
        try:
            self.future.append_as_follower(data, now_ms=now_ms)
        except UnexpectedAppendOffsetError as error:
            if self.future.size:
                raise
            # The log starts inside of this batch, which is copied whole.
            truncate_fully_and_start_at(self.future, error.first_offset)
            self.future.append_as_follower(data, now_ms=now_ms)
        return len(data)

    def _skip_to(self, end: int) -> None:
        """Have the copy end where the log does, which has no batch up to there."""
        if self.future.end_offset < end:
            self.future.roll(end)
            self.future.positions.advance_end(end)

    def _read_next(self) -> memoryview | None:
        """The next batches of the log, in memory of their own; None when there are none."""
        for is_last in (*[False] * (READS_MAX - 1), True):
            start = self.source.start_offset
            if self.future.end_offset < start:
                truncate_fully_and_start_at(self.future, start)
            try:
                found = self.source.read(
                    self.future.end_offset,
                    bytes_max=min(CHUNK_BYTES, self.future.config.segment_bytes),
                    is_first_whole=True,
                    limit=ReadLimit.LOG_END,
                )
                return None if found.records is None else memoryview(bytearray(found.read()))
            except OffsetOutOfRangeError:
                if is_last:
                    raise
            except OSError as error:
                # Retention closes segments while this thread looks into them: they have left the
                # log then. Of a log that was closed as a whole, the next read says so.
                is_closed = error.errno == errno.EBADF or isinstance(error, CutMeanwhileError)
                if is_last or not is_closed:
                    raise
        raise AssertionError("the last read gives batches or an error")

    def step(self) -> int | None:
        """Copy the next batches; how many bytes they had. None when the swap is prepared.

        Any thread.

        Raises:
            CorruptionError, StorageError: as `copy`.
            StorageError: a device refused; a MoveError if it is known whose.
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
        """Copy all there is, and prepare the swap; raises as `step` does. Any thread."""
        while not is_over() and self.step() is not None:
            pass

    def carry(self) -> None:
        """Copy what was taken out of the log and is kept beside it; on the device on return.

        Nobody adds to it while the broker runs. Any thread.

        Raises:
            StorageError: a device refused; a MoveError if it is known whose.
        """
        files, source, target = (
            self.source.folder.files, self.source.folder.path, self.future.folder.path,
        )  # fmt: skip
        try:
            for name in files.list(source):
                if name.endswith(names.KEPT_SUFFIX):
                    set_aside.copy_file(files, f"{source}/{name}", f"{target}/{name}")
            files.sync_directory(target)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StorageError:
        """Whose device it was, by the name of the file; without a name nobody's is blamed."""
        # One directory may be in the other.
        for directory in sorted((self.home, self.target), key=lambda each: -len(each.path)):
            if f"{error.filename}/".startswith(f"{directory.path}/"):
                return MoveError(directory, error)
        return StorageError(f"a device refused, and did not tell which one: {error}")

    def prepare(self) -> None:
        """Put the copy on the device, and the checkpoints that it needs under its new name.

        Any thread.

        Raises:
            OSError: the device refused.
        """
        future, start, end = self.future, self.source.start_offset, self.future.end_offset
        future.advance_high_watermark(end)
        if start > future.start_offset and start <= end:
            future.raise_log_start(start)
        future.sync()
        self.target.offsets.expect(
            future, cleaner_offset=self.home.cleaner_offset(future.partition)
        )
        self._prepared = start, end

    def swap(self, unique_id: str) -> None:
        """Exchange the folders of the log and of its copy. Owner's thread, when `is_ready`.

        After a crash in between the copy is the log. Both logs stay open.

        Raises:
            MoveError: a device refused. The log serves on under its old name, unless the directory
                that the error names must leave service (`is_final`). If that is the log's own, its
                folder may have lost its name, and `discard` keeps the copy, from which the next
                start serves. If it is the target, the partition is in there now (`has_moved`).
        """
        assert self.is_ready
        files, partition = self.source.folder.files, self.source.partition
        place = self.source.folder.path
        aside = f"{self.home.path}/{names.delete_directory_name(partition, unique_id)}"
        new_place = f"{self.target.path}/{names.partition_directory_name(partition)}"
        self._is_copy_needed = True
        self.source.is_leaving = True
        try:
            files.rename(place, aside)
            files.sync_directory(self.home.path)
        except OSError as error:
            self._put_back(aside, place)
            # Whether a name is on the device that has failed to write it, nobody knows.
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
        self.future.config = self.source.config
        _move_log(self.future, new_place)
        self.home.removals.add_folder(
            aside,
            due_ms=self.source.folder.clock.now_ms() + self.source.config.file_delete_delay_ms,
        )

    def _take_back(self, new_place: str) -> bool:
        """Make sure that the copy's folder has not got the partition's name; False if it may."""
        files = self.future.folder.files
        try:
            # A refused rename has changed nothing; then a dead device need not be asked for more.
            if files.exists(new_place):
                files.rename(new_place, self.future.folder.path)
                files.sync_directory(self.target.path)
        except OSError:
            return False
        return True

    def _leave_a_second_copy(self, aside: str) -> None:
        """Have the old folder wait for a start too, in case that the target never comes back."""
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
            MoveError: nobody knows which name it has after a crash, so it must take no records.
        """
        files = self.source.folder.files
        try:
            if files.exists(aside):
                files.rename(aside, place)
            files.sync_directory(self.home.path)
            # A flush of another thread may have failed meanwhile, which cannot be made up for.
            self.source.check_usable()
        except OSError as error:
            raise MoveError(self.home, error, is_final=True) from error
        self.source.is_leaving = False
        self._is_copy_needed = False

    def hand_over(self) -> None:
        """Close the log, whose folder is on its way out: its copy has taken over."""
        self.source.successor = self.future
        self.source.close()

    def discard(self) -> None:
        """Give the copy up: its folder goes, at the latest with the next start. Owner's thread.

        After a `swap` that has failed between its renames the folder stays for the next start.
        """
        self.future.close()
        if self._is_copy_needed:
            return
        files, path = self.future.folder.files, self.future.folder.path
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
    """Note that a log's folder, whose files stay open, has another name now."""
    log.folder = replace(log.folder, path=path)
    for segment in log.segments:
        move_segment(segment, path)
    log.epochs.move_to(path)
    log.producers.move_to(path)


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
        """Whose device it is."""
        self.error = error
        self.is_final = is_final
        """Whether the directory must leave service, also for a shortage."""
        self.has_moved = has_moved
        """Whether the copy must take over all the same, for the log's folder has no name."""


def begin_move(
    source: Log,
    *,
    home: DirectoryLogs,
    target: DirectoryLogs,
    topic_id: uuid.UUID,
    unique_id: str,
) -> Move:
    """Make the folder of a copy in another directory, empty so far. Any thread.

    What an earlier move has left in the target goes first: a start has to know which copy is whole.

    Raises:
        StorageError: the device refused; the folder is gone again if the device allows that much.
    """
    files, partition = target.files, source.partition
    path = f"{target.path}/{names.future_directory_name(partition, unique_id)}"
    try:
        remove_futures(partition, target)
        future = target.open_future(source, path, topic_id=topic_id)
    except OSError as error:
        _remove_beginning(files, path)
        raise MoveError(target, error) from error
    # Where this is called there is a thread that may wait.
    future.on_rolled = Log.sync_rolled
    move = Move(source, future, home=home, target=target)
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
        # The next move to this directory tries again before it begins, and so does a start.
        logger.warning("future_not_removed path=%s reason=%s", path, error)


def remove_futures(partition: TopicPartition, directory: DirectoryLogs) -> None:
    """Remove what earlier moves of a partition have left in a directory; on the device on return.

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
    """A folder with a copy that a start has found."""

    directory: DirectoryLogs
    path: str


def settle_futures(
    logs: LogManager, known_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
) -> dict[TopicPartition, DirectoryLogs]:
    """Before a start looks for partitions: copies of moves that a stop or a crash has ended.

    A copy whose log is there is removed; returned is which moves are to begin anew, and where to.
    A copy without a log gets its name, since a swap was at hand; but not while a directory is out
    of service, which may have the log, nor if its topic has another id in `known_ids`. Of several
    the one that has most according to the checkpoints gets it: only a whole copy is noted there.
    A directory that refuses fails.

    Raises:
        DirectoryError: several are in one directory, whose checkpoints have one entry for them.
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
        for copy in copies:
            logs.guard(copy.directory, partial(_remove_tree, copy.directory.files, copy.path))
    return again


def _folder_names(logs: LogManager, directory: DirectoryLogs) -> list[str]:
    try:
        return directory.files.list(directory.path)
    except OSError as error:
        # Also for a shortage: it may have the log of a copy that is elsewhere.
        logs.fail(directory, error)
        return []


def _serve_copy(
    logs: LogManager,
    partition: TopicPartition,
    copies: Sequence[_Future],
    *,
    known_id: uuid.UUID | None,
) -> bool:
    """Give the copy that has most the partition's name; whether one has it now."""
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
        # Also for a shortage: without its folder the partition would be made anew, and empty.
        logs.fail(best.directory, error)
        return False
    return True


def _topic_id_or_none(copy: _Future, known_id: uuid.UUID | None) -> uuid.UUID | None:
    """The topic id in a copy's folder; the known one if the file cannot be read as one."""
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
    logger.warning("partition_moved path=%s reason=its move had come to the swap", place)
