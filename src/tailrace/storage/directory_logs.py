"""The logs of one log directory: open, create, delete, checkpoint and close them.

`manager` decides in which directory a new partition is created, and what happens when a directory
fails. An orderly stop syncs every log, then writes the checkpoints, then the mark of a clean
shutdown, so that the next start needs no recovery.

The methods that wait for the device (`checkpoint`, `sync_due`, `removals`) may run on another
thread than the others.
"""

import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from tailrace.errors import CorruptionError, DirectoryError, StorageError
from tailrace.model import TopicPartition
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_partition_metadata, write_partition_metadata
from tailrace.storage.config import DAY_MS, LogConfig
from tailrace.storage.directories import LogDirectory, UnusableDirectoryError, unusable
from tailrace.storage.directory_offsets import DirectoryOffsets
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.log import Log, has_failed
from tailrace.storage.recovery import open_log

logger = logging.getLogger(__name__)

DELETE_DELAY_MS = 60_000
"""Time that a start keeps the `-delete` folders it finds: Kafka's default `file.delete.delay.ms`.

After a mistaken deletion an operator can stop the broker and rename them back.
"""


class DirectoryLogs:
    """Every log of one locked directory, by partition; `from_checkpoints` makes it."""

    def __init__(
        self,
        files: Files,
        directory: LogDirectory,
        *,
        logs: dict[TopicPartition, Log],
        offsets: DirectoryOffsets,
        clock: Clock,
        chance: random.Random,
        producer_expiration_ms: int,
        has_other_replicas: bool,
    ) -> None:
        self.removals = Removals(files)
        self.failure: str | None = None
        """Why the directory is out of service, in one line; None while it serves."""
        self.files = files
        self.directory = directory
        self._clock = clock
        self._chance = chance
        self._producer_expiration_ms = producer_expiration_ms
        self._has_other_replicas = has_other_replicas
        self._logs = logs
        self.offsets = offsets
        """The checkpoints of the directory, over the same logs."""

    @classmethod
    def from_checkpoints(
        cls,
        files: Files,
        directory: LogDirectory,
        *,
        clock: Clock,
        chance: random.Random,
        producer_expiration_ms: int = DAY_MS,
        has_other_replicas: bool = False,
    ) -> "DirectoryLogs":
        """The directory with its checkpoints, and no log open yet.

        `has_other_replicas`: logs may have replicas on other brokers, and open with the high
        watermark of the checkpoint. Who is the only replica raises it to the log end.

        Raises:
            UnusableDirectoryError: its checkpoints cannot be read.
        """
        logs: dict[TopicPartition, Log] = {}
        return cls(
            files,
            directory,
            logs=logs,
            offsets=DirectoryOffsets.from_checkpoints(directory, logs),
            clock=clock,
            chance=chance,
            producer_expiration_ms=producer_expiration_ms,
            has_other_replicas=has_other_replicas,
        )

    def __len__(self) -> int:
        return len(self._logs)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Keep idle producers for another time, in every log that is open or comes."""
        self._producer_expiration_ms = expiration_ms
        for log in self._logs.values():
            log.producers.expire_after(expiration_ms)

    @property
    def path(self) -> str:
        return self.directory.path

    def __iter__(self) -> Iterator[Log]:
        return iter(tuple(self._logs.values()))

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def find_partitions(
        self, known_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    ) -> dict[TopicPartition, uuid.UUID | None]:
        """Every partition folder in the directory, with the topic id it carries.

        `-delete` folders are removed after `DELETE_DELAY_MS`. A folder with another topic id than
        `known_ids` has is renamed with the suffix `-stray`: the topic was deleted and created again
        while the disk was away. Only the operator removes it. Where this is the only replica, a
        malformed `partition.metadata` is rewritten if the topic is known. Kafka's metadata log is
        ignored.

        Raises:
            UnusableDirectoryError: a folder cannot be read; or its topic id is malformed, and not
                in `known_ids` or there are other replicas.
        """
        found: dict[TopicPartition, uuid.UUID | None] = {}
        # With other replicas the folder may be of a deleted topic of the name. Its epochs would fit
        # those of the new topic, so that the leader has nothing cut, and replicas would differ.
        rebuilt_by = MappingProxyType({}) if self._has_other_replicas else known_ids
        path = self.directory.path
        try:
            for name in self.files.list(path):
                folder = f"{path}/{name}"
                if names.is_metadata_directory_name(name) or not self.files.is_directory(folder):
                    continue
                if names.is_delete_directory_name(name):
                    self.removals.add_folder(folder, due_ms=self._clock.now_ms() + DELETE_DELAY_MS)
                    continue
                partition = names.parse_partition_directory_name(name)
                if partition is None:
                    if not names.is_known_directory_name(name):
                        logger.warning(
                            "folder_ignored path=%s reason=it is no partition; Apache Kafka would "
                            "not start beside it, or take it for one", folder,
                        )  # fmt: skip
                    continue
                topic_id = _read_topic_id(self.files, folder, rebuilt_by.get(partition.topic))
                if topic_id is None or known_ids.get(partition.topic, topic_id) == topic_id:
                    found[partition] = topic_id
                else:
                    _set_aside(
                        self.files,
                        path,
                        partition=partition,
                        unique_id=topic_id,
                        reason="another topic id",
                    )
        except CorruptionError as error:
            reason = _damaged(error)
            if self._has_other_replicas:
                reason = (
                    f"{error}; if other replicas are in sync, move the folder away and start again:"
                    " the partition is fetched from them. Else run tailrace log repair"
                )
            raise UnusableDirectoryError(reason) from error
        except OSError as error:
            raise unusable(path, error) from error
        return found

    def open(self, partition: TopicPartition, *, topic_id: uuid.UUID, config: LogConfig) -> Log:
        """Open the log of a partition; create its folder if there is none.

        A new folder and its topic id are on the device when this returns. May run on several
        threads at once, for different partitions.

        Raises:
            StorageError: the device refused, and a folder created for the log is removed again if
                the device allows it; or a file is damaged and recovery cannot repair it.
            DirectoryError: the folder is of another topic.
        """
        path = self.directory.path
        folder = f"{path}/{names.partition_directory_name(partition)}"
        is_new = False
        try:
            if not self.files.is_directory(folder):
                # Before the folder: an entry of 0 says that this directory has known the log since
                # it was made, so a gap in it is a lost tail (decision 20).
                self.offsets.begin(partition)
                self.files.make_directory(folder)
                # If the device fails, `is_directory` may have missed a folder with records.
                is_new = not self.files.list(folder)
                self.files.sync_directory(path)
            metadata = f"{folder}/{names.PARTITION_METADATA}"
            # A folder of a topic that was deleted and created again while this disk was away must
            # not serve its old records (KIP-516).
            found_id = read_partition_metadata(self.files, metadata)
            if found_id is None:
                write_partition_metadata(
                    self.files, folder, names.PARTITION_METADATA, topic_id=topic_id
                )
            elif found_id != topic_id:
                raise DirectoryError(
                    f"{folder} belongs to another topic of this name: its id is {found_id}, not "
                    f"{topic_id}; move the folder away"
                )
            log = open_log(
                self._folder(partition, folder),
                config=config,
                may_have_gaps=self.offsets.may_have_gaps(partition),
                producer_expiration_ms=self._producer_expiration_ms,
                is_clean=self.directory.was_clean,
                checkpoints=self.offsets.found(partition),
                high_watermark=(
                    self.offsets.high_watermark(partition) if self._has_other_replicas else None
                ),
            )
            try:
                self.offsets.lower_to_end(log)
            except OSError:
                log.close()
                raise
        except CorruptionError as error:
            raise StorageError(_damaged(error)) from error
        except DirectoryError:
            raise
        except OSError as error:
            if is_new:
                # A folder that stays is found again when the same topic is created again.
                with contextlib.suppress(OSError):
                    self.files.remove_tree(folder)
            raise StorageError(str(unusable(folder, error))) from error
        self._logs[partition] = log
        if self.failure is not None:
            # The directory has failed while this thread opened the log.
            log.fail(self.failure)
            raise StorageError(self.failure)
        return log

    def open_future(self, source: Log, folder: str, *, topic_id: uuid.UUID) -> Log:
        """Create an empty log in a new folder, for a copy of another directory's log.

        It is not one of this directory's logs until `take_over`. Any thread.

        Raises:
            OSError: the device refused; the folder may be there.
        """
        self.offsets.begin(source.partition)
        self.files.make_directory(folder)
        write_partition_metadata(self.files, folder, names.PARTITION_METADATA, topic_id=topic_id)
        log = open_log(
            self._folder(source.partition, folder),
            config=source.config,
            producer_expiration_ms=self._producer_expiration_ms,
            is_clean=True,
        )
        try:
            self.files.sync_directory(self.path)
        except OSError:
            log.close()
            raise
        return log

    def may_have_folder(self, partition: TopicPartition) -> bool:
        """Whether a partition has a folder, whatever its topic id; True if the device fails."""
        folder = f"{self.directory.path}/{names.partition_directory_name(partition)}"
        try:
            return self.files.is_directory(folder)
        except OSError:
            return True

    def bytes_of(self, partition: TopicPartition) -> int:
        """Bytes in the log files of a partition, open or not; for a progress report.

        Raises:
            OSError: the folder cannot be read, or a file was removed meanwhile.
        """
        folder = f"{self.directory.path}/{names.partition_directory_name(partition)}"
        size = 0
        for name in self.files.list(folder):
            if name.endswith(names.LOG_SUFFIX):
                file = self.files.open(f"{folder}/{name}", read_only=True)
                size += file.size()
                file.close()
        return size

    def take_out(self, partition: TopicPartition, unique_id: str) -> Callable[[], None]:
        """Take a partition out of service at once; its files go after `file.delete.delay.ms`.

        The call that is returned gives the folder its `-delete` name, so that the partition does
        not come back after a crash. It waits for the device, may be made on another thread, and
        raises StorageError if the device refuses.
        """
        # At once, on the loop: requests from now on get UNKNOWN_TOPIC_OR_PARTITION, whatever the
        # device does.
        log = self._logs.pop(partition)
        path = self.directory.path
        folder = f"{path}/{names.delete_directory_name(partition, unique_id)}"
        log.close()
        self.offsets.forget(partition)

        def rename() -> None:
            try:
                self.files.rename(log.folder.path, folder)
                self.files.sync_directory(path)
            except OSError as error:
                raise StorageError(str(unusable(folder, error))) from error
            due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
            # After the rename: before it, the folder has the partition's name.
            self.removals.add_folder(folder, due_ms=due_ms)

        return rename

    def discard(self, partition: TopicPartition, unique_id: str) -> None:
        """Rename the folder of a partition that is not open: a crash interrupted its deletion.

        Raises:
            DirectoryError: the folder cannot be renamed.
        """
        assert partition not in self._logs
        path = self.directory.path
        folder = f"{path}/{names.partition_directory_name(partition)}"
        going = f"{path}/{names.delete_directory_name(partition, unique_id)}"
        try:
            self.files.rename(folder, going)
            self.files.sync_directory(path)
        except OSError as error:
            raise unusable(folder, error) from error
        self.removals.add_folder(going, due_ms=self._clock.now_ms() + DELETE_DELAY_MS)

    def set_aside(self, partition: TopicPartition, unique_id: uuid.UUID, *, reason: str) -> None:
        """Give the folder of a partition that is not open a `-stray` name, which is logged.

        Only an operator removes it. One without a file is removed.

        Raises:
            UnusableDirectoryError: the folder cannot be renamed.
        """
        try:
            _set_aside(
                self.files, self.path, partition=partition, unique_id=unique_id, reason=reason
            )
        except OSError as error:
            raise unusable(self.path, error) from error

    def take_over(self, copy: Log, source: "DirectoryLogs") -> None:
        """Make a complete copy the log of its partition; its folder has the partition's name."""
        del source._logs[copy.partition]
        source.offsets.forget(copy.partition)
        self._logs[copy.partition] = copy

    def checkpoint(self) -> None:
        """Sync closed segments, then write the checkpoints; may run on another thread.

        Raises:
            StorageError: a flush failed; it must not be retried.
            OSError: the checkpoints could not be written; the old ones stay.
        """
        _sync_each(self, self, Log.sync_rolled)
        self.offsets.write()

    def checkpoint_log_starts(self) -> None:
        """Checkpoint the log starts that lie above their first segment; may run on another thread.

        Raises:
            OSError: the checkpoint could not be written; the old one stays.
        """
        self.offsets.write_log_starts()

    def checkpoint_high_watermarks(self) -> None:
        """Checkpoint the high watermarks that have moved; may run on another thread.

        Raises:
            OSError: the checkpoint could not be written; the old one stays.
        """
        self.offsets.write_high_watermarks()

    def sync_due(self, now_ms: int) -> None:
        """Sync the logs whose `flush.ms` has passed; may run on another thread.

        Raises:
            StorageError: a flush failed; it must not be retried.
        """
        due = (
            log
            for log in self
            if now_ms - log.last_sync_ms >= log.config.flush_ms
            and log.positions.recovery_point < log.end_offset
        )
        _sync_each(self, due, Log.sync)

    def close(self) -> None:
        """Sync and close every log, write the checkpoints and the mark of a clean shutdown.

        Raises:
            OSError: the device failed; the mark is not written, so the next start recovers. The
                other logs are on the device.
        """
        failure = None
        for log in self:
            try:
                log.finish()
                log.sync()
            except OSError as error:
                failure = failure or error
            log.close()
        self.offsets.write()
        if failure is not None:
            raise failure
        # Last: with the mark the next start trusts indexes and tails unread.
        self.directory.mark_clean()

    def abandon(self) -> None:
        """Release every file as a killed process would: no sync, no checkpoint, no mark."""
        for log in self:
            log.close()

    def fail(self, reason: str) -> None:
        """Take the whole directory out of service: nothing is flushed, and the lock is released.

        Its logs stay listed, and refuse every call from now on.
        """
        self.failure = reason
        for log in self:
            log.fail(reason)
        self.directory.close()

    def release(self) -> None:
        """Release the directory's lock, after `close` or `abandon`."""
        self.directory.close()

    def _folder(self, partition: TopicPartition, path: str) -> PartitionFolder:
        return PartitionFolder(
            partition=partition,
            path=path,
            files=self.files,
            clock=self._clock,
            chance=self._chance,
            removals=self.removals,
        )


def _sync_each(home: DirectoryLogs, logs: Iterable[Log], sync: Callable[[Log], None]) -> None:
    # A full disk is no reason to take a directory out of service: its logs are flushed, only their
    # epochs are not saved.
    shortage = None
    for log in logs:
        try:
            sync(log)
        except StorageError:
            continue  # It failed before, and that was logged.
        except OSError as error:
            if not has_failed(log):
                shortage = shortage or error  # The log is flushed; only its epochs are not saved.
                continue
            # Its files may have been closed and renamed in the meantime.
            if home.get(log.partition) is log and not log.is_leaving:
                reason = f"a flush failed; {unusable(log.folder.path, error)}"
                raise StorageError(reason) from error
    if shortage is not None:
        raise shortage


def _read_topic_id(files: Files, folder: str, known_id: uuid.UUID | None) -> uuid.UUID | None:
    """The topic id in a folder; if the file is malformed, the known one, which is logged."""
    try:
        return read_partition_metadata(files, f"{folder}/{names.PARTITION_METADATA}")
    except CorruptionError as error:
        if known_id is None:
            raise
        logger.warning("partition_metadata_rebuilt topic_id=%s reason=%s", known_id, error)
        write_partition_metadata(files, folder, names.PARTITION_METADATA, topic_id=known_id)
        return known_id


def _damaged(error: CorruptionError) -> str:
    return f"{error}; stop the broker and run tailrace log repair on its directory"


def _set_aside(
    files: Files, path: str, *, partition: TopicPartition, unique_id: uuid.UUID, reason: str
) -> None:
    folder = f"{path}/{names.partition_directory_name(partition)}"
    # A crash has cut the making of the log short: the topic id is the first file, and nothing is
    # lost with a folder that does not even have that.
    if set(files.list(folder)) <= {f"{names.PARTITION_METADATA}.tmp"}:
        files.remove_tree(folder)
        files.sync_directory(path)
        return
    stray, number = _stray_path(path, partition, unique_id.hex), 1
    # A replica may come and go again, under the same topic id.
    while files.exists(stray):
        number += 1
        stray = _stray_path(path, partition, f"{unique_id.hex}-{number}")
    files.rename(folder, stray)
    files.sync_directory(path)
    logger.warning("partition_set_aside path=%s reason=%s", stray, reason)


def _stray_path(path: str, partition: TopicPartition, unique_id: str) -> str:
    name = names.delete_directory_name(partition, unique_id)
    return (
        f"{path}/{name.removesuffix(names.DELETE_DIRECTORY_SUFFIX)}{names.STRAY_DIRECTORY_SUFFIX}"
    )
