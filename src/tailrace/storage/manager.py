"""The logs of one data directory: open them all, make and delete them, checkpoint, close.

The order of an orderly stop is what makes the next start quick: sync every log, write the
checkpoints, and only then leave the mark that says so.
"""

import logging
import threading
import uuid
from collections.abc import Iterator

from tailrace.errors import CorruptionError, DirectoryError, StorageError
from tailrace.model import TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_partition_metadata, write_partition_metadata
from tailrace.storage.config import LogConfig
from tailrace.storage.directories import LogDirectory, unusable
from tailrace.storage.log import Log
from tailrace.storage.recovery import open_log

logger = logging.getLogger(__name__)


class LogManager:
    """Every log of one locked directory, by partition."""

    def __init__(self, files: Files, directory: LogDirectory) -> None:
        self._files = files
        self._directory = directory
        self._logs: dict[TopicPartition, Log] = {}
        # `checkpoint` runs on a thread while topics come and go on the loop.
        self._writing = threading.Lock()
        self._deleted: set[TopicPartition] = set()
        self._recovery_points = directory.read_checkpoint(names.RECOVERY_POINTS)
        self._log_starts = directory.read_checkpoint(names.LOG_START_OFFSETS)

    def __iter__(self) -> Iterator[Log]:
        return iter(tuple(self._logs.values()))

    def get(self, partition: TopicPartition) -> Log | None:
        """The open log of a partition."""
        return self._logs.get(partition)

    def find_partitions(self) -> dict[TopicPartition, uuid.UUID | None]:
        """Every partition folder in the directory, with the topic id it carries.

        Folders that a deletion left behind are removed.

        Raises:
            DirectoryError: a folder cannot be read.
        """
        found = {}
        path = self._directory.path
        try:
            for name in self._files.list(path):
                folder = f"{path}/{name}"
                if not self._files.is_directory(folder):
                    continue
                if names.is_delete_directory_name(name):
                    self._files.remove_tree(folder)
                    continue
                partition = names.parse_partition_directory_name(name)
                if partition is not None:
                    metadata = f"{folder}/{names.PARTITION_METADATA}"
                    found[partition] = read_partition_metadata(self._files, metadata)
        except CorruptionError as error:
            raise DirectoryError(f"{error}; restore the file from a backup or remove it") from error
        except OSError as error:
            raise unusable(path, error) from error
        return found

    def open(self, partition: TopicPartition, *, topic_id: uuid.UUID, config: LogConfig) -> Log:
        """Open the log of a partition, making its folder if there is none.

        A new folder and its topic id are on the device when this returns.

        Raises:
            StorageError: the device refused.
            DirectoryError: a file of the folder is damaged beyond what recovery mends, or the
                folder is of another topic.
        """
        path = self._directory.path
        folder = f"{path}/{names.partition_directory_name(partition)}"
        try:
            if not self._files.is_directory(folder):
                self._forget(partition)
                self._files.make_directory(folder)
                self._files.sync_directory(path)
            metadata = f"{folder}/{names.PARTITION_METADATA}"
            found_id = read_partition_metadata(self._files, metadata)
            if found_id is None:
                write_partition_metadata(
                    self._files, folder, names.PARTITION_METADATA, topic_id=topic_id
                )
            elif found_id != topic_id:
                raise DirectoryError(
                    f"{folder} belongs to another topic of this name: its id is {found_id}, not "
                    f"{topic_id}; move the folder away"
                )
            log = open_log(
                self._files,
                folder,
                partition=partition,
                config=config,
                is_clean=self._directory.was_clean,
                checkpoints=(
                    self._recovery_points.get(partition, 0),
                    self._log_starts.get(partition, 0),
                ),
            )
        except CorruptionError as error:
            raise DirectoryError(f"{error}; restore the file from a backup or remove it") from error
        except DirectoryError:
            raise
        except OSError as error:
            raise StorageError(str(unusable(folder, error))) from error
        self._logs[partition] = log
        return log

    def delete(self, partition: TopicPartition, unique_id: str) -> str:
        """Take a partition out of service; returns the folder for `remove_deleted`.

        The folder has its `-delete` name on the device when this returns, so that the partition
        does not come back after a crash.

        Raises:
            StorageError: the device refused.
        """
        log = self._logs.pop(partition)
        path = self._directory.path
        folder = f"{path}/{names.delete_directory_name(partition, unique_id)}"
        log.close()
        self._deleted.add(partition)
        try:
            self._files.rename(log.directory, folder)
            self._files.sync_directory(path)
        except OSError as error:
            raise StorageError(str(unusable(folder, error))) from error
        return folder

    def discard(self, partition: TopicPartition) -> None:
        """Remove the folder of a partition that is not open: its topic was deleted before a crash.

        Raises:
            DirectoryError: the folder cannot be removed.
        """
        assert partition not in self._logs
        folder = f"{self._directory.path}/{names.partition_directory_name(partition)}"
        try:
            self._files.remove_tree(folder)
        except OSError as error:
            raise unusable(folder, error) from error

    def remove_deleted(self, folder: str) -> None:
        """Remove what `delete` left; may take long, so call it from a thread."""
        self._files.remove_tree(folder)

    def checkpoint(self) -> None:
        """Put closed segments on the device, then note how far the logs are there.

        May run on another thread than everything else.

        Raises:
            OSError: the device failed.
        """
        for log in self:
            try:
                log.sync_rolled()
            except OSError:
                # Its files may have been closed and renamed in the meantime.
                if self._logs.get(log.partition) is log:
                    raise
        self._write_checkpoints()

    def close(self) -> None:
        """Stop in order: sync and close every log, write the checkpoints, leave the mark.

        Raises:
            OSError: the device failed; the mark is not left, so the next start recovers. The other
                logs are on the device all the same.
        """
        failure = None
        for log in self:
            try:
                log.finish()
                log.sync()
            except OSError as error:
                failure = failure or error
            log.close()
        self._write_checkpoints()
        if failure is not None:
            raise failure
        self._directory.mark_clean()

    def abandon(self) -> None:
        """Release every file as a killed process would: no sync, no checkpoint, no mark."""
        for log in self:
            log.close()

    def _forget(self, partition: TopicPartition) -> None:
        """Take a partition out of the checkpoints, before a new folder gets its name.

        Else a crash could apply the offsets of the old log to the new one: recovery would trust
        what is not on the device, or remove what lies below the old log start offset.
        """
        known = self._deleted | self._recovery_points.keys() | self._log_starts.keys()
        if partition in known:
            self._deleted.add(partition)
            self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        with self._writing:
            deleted, logs = tuple(self._deleted), tuple(self._logs.items())
            for partition in deleted:
                self._recovery_points.pop(partition, None)
                self._log_starts.pop(partition, None)
            for partition, log in logs:
                self._recovery_points[partition] = log.positions.recovery_point
                if log.start_offset > next(iter(log.segments)).base_offset:
                    self._log_starts[partition] = log.start_offset
                else:
                    self._log_starts.pop(partition, None)
            self._directory.write_checkpoint(names.RECOVERY_POINTS, self._recovery_points)
            self._directory.write_checkpoint(names.LOG_START_OFFSETS, self._log_starts)
            self._deleted.difference_update(deleted)
