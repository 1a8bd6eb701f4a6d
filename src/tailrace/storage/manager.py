"""Every log of a broker, over one or several log directories.

    log.dirs=/disk1,/disk2      a new partition goes where the fewest are
                                /disk2 fails: its partitions answer with a storage error,
                                those of /disk1 go on

The manager knows which directory has which partition, and takes a failed directory out of service;
`directory_logs` does the work in one directory. A failed directory is not used again before the
next start. A full disk is not a failure: an append that does not fit is refused, and a later one
may succeed.

Only one thread uses a manager. Work that waits for the device may run on other threads, which
return their error: only `settle`, on the manager's own thread, closes files, so that no descriptor
is closed while another thread writes to it.
"""

import errno
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from tailrace.errors import DirectoryError, StorageError, TailraceError
from tailrace.model import TopicPartition
from tailrace.storage import shrink
from tailrace.storage.config import LogConfig
from tailrace.storage.directories import UnusableDirectoryError, unusable
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.retention import SegmentDeletion
from tailrace.values import dataclass

logger = logging.getLogger(__name__)

_SHORTAGES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_shortage(error: OSError) -> bool:
    """Whether disk space, descriptors or memory are short, which an operator can fix."""
    return error.errno in _SHORTAGES


class AssignedElsewhereError(StorageError):
    """A partition is assigned to a log directory that is out of service, and may be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerStatistics:
    """Logs and directories at one moment."""

    log_count: int
    """Logs in the directories that are in service."""
    log_bytes: int
    """Bytes of log in all their segments, without indexes."""
    directory_count: int
    """Directories in service."""
    failed_count: int
    """Directories that have failed, or could not be used when the broker started."""
    full_count: int
    """Directories in service without room, until they take what they have refused."""


class LogManager:
    """The logs of all directories, by partition."""

    def __init__(
        self,
        directories: Sequence[DirectoryLogs],
        *,
        metadata_home: DirectoryLogs | None = None,
        left_out: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`metadata_home` may be none of `directories`; by default it is the first."""
        self.directories = tuple(directories)
        self.metadata_home = self.directories[0] if metadata_home is None else metadata_home
        """The directory of the metadata log; it has no other log if it is none of `directories`."""
        self.left_out = left_out
        """Directories that could not be used when the broker started: path and reason."""
        # The directory of every partition that was found or opened, also if it has failed.
        self._homes: dict[TopicPartition, DirectoryLogs] = {}
        self._placing = threading.Lock()
        # Logs that are made in each directory now, which it does not count yet.
        self._creating: Counter[DirectoryLogs] = Counter()
        # Directories that were logged as full, and whether a checkpoint shows that they are not.
        self._full: dict[DirectoryLogs, bool] = {}
        self.cordoned: frozenset[DirectoryLogs] = frozenset()
        """Directories that get no new logs; see `cordon`."""
        self.on_failure: Callable[[DirectoryLogs], None] = lambda _: None
        """Called when a directory has failed, after its logs were closed."""

    def __iter__(self) -> Iterator[Log]:
        for directory in self.online:
            yield from directory

    @property
    def online(self) -> list[DirectoryLogs]:
        """The directories in service."""
        return [each for each in self.directories if each.failure is None]

    @property
    def is_complete(self) -> bool:
        """Whether every directory is in service."""
        return not self.left_out and len(self.online) == len(self.directories)

    def statistics(self) -> LogManagerStatistics:
        """Logs and directories right now; looks at every segment of every log."""
        sizes = [log.size for log in self]
        online = self.online
        return LogManagerStatistics(
            log_count=len(sizes),
            log_bytes=sum(sizes),
            directory_count=len(online),
            failed_count=len(self.directories) - len(online) + len(self.left_out),
            full_count=sum(each in self._full for each in online),
        )

    def get(self, partition: TopicPartition) -> Log | None:
        """The log of a partition; a log in a failed directory refuses every call."""
        home = self._homes.get(partition)
        return None if home is None else home.get(partition)

    def home_of(self, log: Log) -> DirectoryLogs:
        return self._homes[log.partition]

    def directory_of(self, partition: TopicPartition) -> DirectoryLogs | None:
        """The directory of a partition, open or not; None if it is unknown."""
        return self._homes.get(partition)

    def cordon(self, paths: Collection[str]) -> bool:
        """Put no new logs into these directories any more, and into others again (KIP-1066).

        Returns whether that changes anything.
        """
        before = self.cordoned
        self.cordoned = frozenset(each for each in self.directories if each.path in paths)
        if self.cordoned == before:
            return False
        logger.info(
            "directories_cordoned paths=%s usable=%s",
            ",".join(each.path for each in self.directories if each in self.cordoned) or "none",
            ",".join(each.path for each in self.directories if each not in self.cordoned) or "none",
        )
        return True

    def find_partitions(
        self, known_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    ) -> dict[TopicPartition, uuid.UUID | None]:
        """Every partition folder in the directories, with the topic id it carries.

        `-delete` folders are removed later, and folders with another id than in `known_ids` are set
        aside. A directory fails if it cannot be read, or if the topic id of a folder is malformed,
        and not in `known_ids` or there are other replicas.

        Raises:
            DirectoryError: a partition is in two directories.
        """
        found: dict[TopicPartition, uuid.UUID | None] = {}
        for directory in self.online:
            try:
                partitions = directory.find_partitions(known_ids)
            except UnusableDirectoryError as error:
                self.fail(directory, error)
                continue
            for partition, topic_id in partitions.items():
                # Two folders of one partition: nobody can tell which has the newer records, so no
                # broker starts, as with Kafka.
                home = self._homes.setdefault(partition, directory)
                if home is not directory:
                    raise DirectoryError(
                        f"{partition} is in {home.path} and in {directory.path}; move the older "
                        "folder away"
                    )
                found[partition] = topic_id
        return found

    def open(
        self,
        partition: TopicPartition,
        *,
        topic_id: uuid.UUID,
        config: LogConfig,
        directory_id: uuid.UUID | None = None,
    ) -> Log:
        """Open the log of an existing partition; may run on several threads at once.

        If no directory has its folder, and every directory is in service, it is created, as
        `create` does.

        Raises:
            StorageError: the device refused; or a file is damaged and recovery cannot repair it; or
                the folder is not found while a directory is out of service, which may have it.
            DirectoryError: the folder is of another topic.
        """
        home = self._homes.get(partition)
        if home is not None:
            if home.failure is not None:
                raise StorageError(home.failure)
            return home.open(partition, topic_id=topic_id, config=config)
        if not self.is_complete:
            raise StorageError(
                f"the folder of {partition} is not found, and a log directory that may have it is "
                "out of service; see directory_failed in the log of the broker"
            )
        return self.create(partition, topic_id=topic_id, config=config, directory_id=directory_id)

    def create(
        self,
        partition: TopicPartition,
        *,
        topic_id: uuid.UUID,
        config: LogConfig,
        directory_id: uuid.UUID | None = None,
    ) -> Log:
        """Create the log of a new partition in the directory with the fewest logs.

        Cordoned directories are left out, unless all are.

        If the device refuses, the next directory is tried. The folder and its topic id are on the
        device when this returns. May be called again after an error, and on several threads at once
        for different partitions.

        `directory_id` is the directory that controllers have assigned (KIP-858): if it is in
        service no other is tried; if it is unknown, because it was replaced, another is taken.

        Raises:
            AssignedElsewhereError: `directory_id` is unknown, and some directory is out of service.
            StorageError: every directory refused.
            DirectoryError: there is a folder of this name that is of another topic.
        """
        home = self._homes.get(partition)  # A call that was refused may have left a folder there.
        if home is not None and home.failure is not None:
            raise StorageError(home.failure)
        rest = self._assigned(partition, directory_id) if home is None else [home]
        failure = None
        while rest:
            with self._placing:
                # Fewest logs, as Kafka chooses. Those under way count too, or a topic of a hundred
                # partitions would land in one directory.
                directory = min(rest, key=lambda each: len(each) + self._creating[each])
                self._creating[directory] += 1
            rest.remove(directory)
            try:
                log = directory.open(partition, topic_id=topic_id, config=config)
            except StorageError as error:
                failure = failure or error
                if directory.may_have_folder(partition):
                    # One partition in two directories would stop the next start.
                    self._homes[partition] = directory
                    break
                # The next directory may take it: nothing of it is here.
                self._homes.pop(partition, None)
                continue
            finally:
                with self._placing:
                    self._creating[directory] -= 1
            self._homes[partition] = directory
            return log
        raise failure or StorageError("every log directory has failed")

    def _assigned(
        self, partition: TopicPartition, directory_id: uuid.UUID | None
    ) -> list[DirectoryLogs]:
        """The directories in service that may get a new partition."""
        online = self.online
        # Where all are cordoned one gets it all the same, as in Kafka: the replica was placed here
        # before the controllers knew.
        open_ = [each for each in online if each not in self.cordoned] or online[:1]
        if directory_id is None:
            return open_
        found = [each for each in online if each.directory.directory_id == directory_id]
        if not found and not self.is_complete:
            # An empty log beside the one that may be there would be served instead of it.
            raise AssignedElsewhereError(
                f"{partition} is assigned to the log directory with the id {directory_id}, which "
                "is not in service; see directory_failed in the log of the broker"
            )
        return found or open_

    def take_out(self, partition: TopicPartition, unique_id: str) -> Callable[[], None]:
        """Take a partition out of service at once; its files go after `file.delete.delay.ms`.

        The call that is returned gives the folder its `-delete` name, and waits until that is on
        the device; it may be made on another thread, and raises StorageError if the device refuses.
        In a failed directory the folder stays as it is, and is discarded when it is found again.
        """
        home = self._homes.pop(partition, None)
        # A device that refuses everything cannot rename a folder either; the topic id tells the
        # next start that it is an old one.
        if home is None or home.failure is not None or home.get(partition) is None:
            return lambda: None
        return home.take_out(partition, unique_id)

    def exchange(self, partition: TopicPartition, log: Log, home: DirectoryLogs) -> None:
        """Replace the log of a partition with its copy in another directory, after a move."""
        home.take_over(log, self._homes[partition])
        self._homes[partition] = home

    def discard(self, partition: TopicPartition, unique_id: str) -> None:
        """Do `take_out` for a partition that is not open: a crash interrupted its deletion.

        Raises:
            DirectoryError: the folder cannot be renamed.
        """
        self._homes.pop(partition).discard(partition, unique_id)

    def delete_old_segments(self, log: Log, now_ms: int) -> tuple[SegmentDeletion, ...]:
        """Delete the segments of one log that retention no longer keeps; settles an OSError."""
        deleted: list[SegmentDeletion] = []
        home = self._homes[log.partition]
        self.guard(home, lambda: deleted.extend(shrink.delete_old_segments(log, now_ms)))
        return tuple(deleted)

    def is_in_service(self, log: Log) -> bool:
        """Whether a log has neither been deleted nor lost with its directory."""
        return self.get(log.partition) is log

    def guard(self, directory: DirectoryLogs, work: Callable[[], object]) -> bool:
        """Call `work` and `settle` its OSError; returns whether there was none."""
        try:
            work()
        except OSError as error:
            self.settle(directory, error)
            return False
        return True

    def settle(self, directory: DirectoryLogs, error: OSError) -> None:
        """Act on an OSError of a directory: log a shortage, else take the directory out of service.

        A shortage is logged once, until `has_room`.
        """
        if not is_shortage(error):
            self.fail(directory, error)
        # Once: a full disk refuses every append.
        elif directory not in self._full:
            self._full[directory] = True
            logger.warning("disk_full reason=%s", unusable(directory.path, error))

    def refused(self, directory: DirectoryLogs, error: OSError) -> None:
        """`settle` an OSError of a log's records."""
        self.settle(directory, error)
        # A checkpoint is small, and finds room where no append does. Descriptors and memory are
        # short for moments, and reads meet that too, so there the next checkpoint may decide.
        if directory in self._full and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            self._full[directory] = False

    def took_append(self, directory: DirectoryLogs) -> None:
        """Note that a log which had refused an append took one, or has left the directory."""
        if directory in self._full:
            self._full[directory] = True

    def has_room(self, directory: DirectoryLogs) -> None:
        """Note that a checkpoint of a directory succeeded: it is not full if it takes appends too.

        Only then, since a nearly full disk takes some appends and refuses others: it has two lines
        in an interval of checkpoints at most.
        """
        if self._full.get(directory):
            del self._full[directory]
            logger.info("disk_has_room path=%s", directory.path)

    def fail(self, directory: DirectoryLogs, error: OSError) -> None:
        """Take a directory out of service and log it; later failures change nothing."""
        # Its other threads fail too, one after the other.
        if directory.failure is not None:
            return
        is_sentence = isinstance(error, TailraceError)
        reason = str(error if is_sentence else unusable(directory.path, error))
        directory.fail(reason)
        logger.error("directory_failed path=%s reason=%s", directory.path, reason)
        self.on_failure(directory)

    def close(self) -> None:
        """Sync and close every log, write the checkpoints and the marks of a clean shutdown.

        Raises:
            OSError: a device failed; its mark is not written, so the next start recovers there. The
                other logs are on their devices.
        """
        failure = None
        for directory in locked_directories(self):
            try:
                if directory in self.directories:
                    directory.close()
            except OSError as error:
                failure = failure or error
            finally:
                directory.release()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Release everything as a killed process would: no sync, no checkpoint, no mark."""
        for directory in locked_directories(self):
            directory.abandon()
            directory.release()


def locked_directories(logs: LogManager) -> list[DirectoryLogs]:
    """The directories in service, and that of the metadata log, where it is none of them."""
    # The home of the metadata log may be a directory without partitions (metadata.log.dir).
    every = dict.fromkeys((*logs.directories, logs.metadata_home))
    return [each for each in every if each.failure is None]


def end_reason(logs: LogManager) -> str | None:
    """Why no broker can go on: the directory of the metadata log failed, or all others."""
    if logs.metadata_home.failure is not None:
        return logs.metadata_home.failure
    return None if logs.online else logs.directories[-1].failure


def take_marks(logs: LogManager) -> None:
    """Take the marks of an orderly stop away; a directory that refuses fails, also a full one.

    A start calls this before it changes a log, and after it may still refuse the directories.
    """
    for each in logs.online:
        try:
            each.directory.take_mark()
        except OSError as error:
            logs.fail(each, error)
