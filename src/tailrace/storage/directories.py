"""Open and lock log directories: their lock, their identity, and the mark of a clean shutdown.

    demo-data/
        .lock                             held by the process that has the directory open
        meta.properties                   cluster id, node id, directory id
        .kafka_cleanshutdown              there only between an orderly stop and the next start
        recovery-point-offset-checkpoint  below it, everything is on the device
        log-start-offset-checkpoint       where a log starts above its first segment
        flights-0/ …                      one folder per partition

Two processes never write to one directory: the lock is an OS lock that Java's FileLock respects
too. A directory that belongs to another node or cluster is refused, not taken over.

A broker may have several. All belong to one cluster, and each has its own directory id. One has the
cluster's metadata log: the first of log.dirs, or metadata.log.dir, which may be none of them.
Another one that the device refuses is left out; without this one the broker does not start.
"""

import errno
import json
import logging
import os
import random
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.config.sources import read_properties
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import TopicPartition
from tailrace.runtime.files import FileCutError, Files, HeldHereError, Lock
from tailrace.runtime.ids import random_uuid
from tailrace.storage import names
from tailrace.storage.checkpoints import (
    format_topic_id,
    parse_topic_id,
    read_offset_checkpoint,
    read_text,
    write_atomically,
    write_offset_checkpoint,
)
from tailrace.values import dataclass, replace

logger = logging.getLogger(__name__)

_CONSEQUENCES = {
    names.RECOVERY_POINTS: "every segment is checked, unless the last stop was orderly",
    names.LOG_START_OFFSETS: "logs start where their leader epochs say, else at their first "
    "segment: records that were deleted on request may be back",
    names.HIGH_WATERMARKS: "the high watermark of each log is its end, or, with other "
    "replicas, what its leader says",
    names.CLEANER_OFFSETS: "compaction begins again at the start of each log",
}


class UnusableDirectoryError(DirectoryError):
    """The device or the file system refuses a log directory."""


CLUSTER_ID: Final = re.compile(r"[!-\[\]-~]{1,255}")
"""Text that `meta.properties` has as it is: without spaces and backslashes. Those that
Kafka's tools make are 22 characters of base64; its storage tool takes any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Content of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: str
    """Id of the directory; empty in files that brokers with ZooKeeper wrote."""


NO_BROKER_EPOCH = -1
"""The broker epoch in `.kafka_cleanshutdown` if no controller has given one."""


class LogDirectory:
    """A locked log directory."""

    def __init__(
        self,
        *,
        path: str,
        files: Files,
        lock: Lock,
        identity: MetaProperties,
        was_clean: bool,
        broker_epoch: int,
        is_new: bool,
    ) -> None:
        self.path = path
        self.identity = identity
        self.was_clean = was_clean
        """Whether the last stop was orderly."""
        self.is_new = is_new
        """Whether it had no identity, or one without a directory id, before it was opened."""
        self.broker_epoch = broker_epoch
        """The epoch of the broker's registration, which the mark of a clean shutdown names."""
        self._files = files
        self._lock = lock

    @property
    def directory_id(self) -> uuid.UUID:
        """The id in its `meta.properties`."""
        return parse_topic_id(self.identity.directory_id)

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        """Offsets by partition; None for a checkpoint that cannot be parsed, which is logged.

        Kafka treats such a file as empty. The file stays until it is replaced.
        """
        try:
            return read_offset_checkpoint(self._files, f"{self.path}/{name}")
        except CorruptionError as error:
            logger.warning(
                "checkpoint_unreadable reason=%s consequence=%s", error, _CONSEQUENCES[name]
            )
            return None

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint; on the device when this returns."""
        write_offset_checkpoint(self._files, self.path, name, offsets=offsets)

    def take_mark(self) -> None:
        """Take the mark of an orderly stop away, before the first change of a log.

        Raises:
            OSError: the device refuses; the next start may find the mark, so nothing may change.
        """
        if self.was_clean:
            self._files.remove(f"{self.path}/{names.CLEAN_SHUTDOWN}")
            self._files.sync_directory(self.path)

    def mark_clean(self) -> None:
        """Write `.kafka_cleanshutdown`, the last step of an orderly stop."""
        text = json.dumps({"version": 0, "brokerEpoch": self.broker_epoch}, separators=(",", ":"))
        write_atomically(self._files, self.path, names.CLEAN_SHUTDOWN, text=text)

    def close(self) -> None:
        """Release the directory's lock."""
        self._lock.release()


def open_log_directory(
    files: Files,
    path: str,
    *,
    node_id: int,
    new_id: uuid.UUID,
    cluster_id: str | None = None,
) -> LogDirectory:
    """Lock a directory, making it if it is new, and check that it is ours.

    A new directory gets `node_id`, a directory id made from `new_id`, and `cluster_id` or, without
    one, a cluster id made from `new_id` too.

    Raises:
        DirectoryError: locked by a live process, of another node or cluster, or unusable. The
            message is one line that says what to do.
    """
    path = path.rstrip("/") or "/"
    try:
        files.make_directory(path)
        lock = files.lock(f"{path}/{names.LOCK}")
    except BlockingIOError as error:
        raise in_use(path, error, advice="stop that one or choose another directory") from error
    except OSError as error:
        raise unusable(path, error) from error
    try:
        known = read_identity(files, path)
        text_id = id_text(new_id)
        identity = known or MetaProperties(
            cluster_id=cluster_id or text_id, node_id=node_id, directory_id=text_id
        )
        _check_identity(path, identity, node_id=node_id, cluster_id=cluster_id)
        is_new = known is None or not known.directory_id
        if is_new:
            identity = replace(
                identity,
                cluster_id=identity.cluster_id or cluster_id or text_id,
                directory_id=text_id,
            )
            write_identity(files, path, identity)
        broker_epoch = clean_stop_epoch(files, path)
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError) and not isinstance(error, DirectoryError):
            raise unusable(path, error) from error
        raise
    return LogDirectory(
        path=path,
        files=files,
        lock=lock,
        identity=identity,
        was_clean=broker_epoch is not None,
        broker_epoch=NO_BROKER_EPOCH if broker_epoch is None else broker_epoch,
        is_new=is_new,
    )


def clean_stop_epoch(files: Files, path: str) -> int | None:
    """The broker epoch in the mark of an orderly stop; None without one, -1 if it has none.

    Kafka takes a stop with another epoch than that of the registration for unclean (KIP-966), and
    then elects every leader again.

    Raises:
        OSError: it cannot be read.
    """
    marker = f"{path}/{names.CLEAN_SHUTDOWN}"
    if not files.exists(marker):
        return None
    try:
        found = json.loads(read_text(files, marker))
        epoch = found["brokerEpoch"] if isinstance(found, dict) else NO_BROKER_EPOCH
        return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH
    except (CorruptionError, ValueError, KeyError, RecursionError):
        return NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDirectories:
    """The result of `open_log_directories`."""

    usable: tuple[LogDirectory, ...]
    """Locked, in the order given; the first given directory is always the first here."""
    left_out: Mapping[str, str]
    """Path to the reason why it cannot be used, in one line."""


def open_log_directories(
    files: Files,
    paths: Sequence[str],
    *,
    node_id: int,
    chance: random.Random,
    cluster_id: str | None = None,
) -> OpenedDirectories:
    """Lock several directories of one node and one cluster; new ones join the others' cluster.

    Where none has a cluster, it is `cluster_id`, or a new one. The first has the cluster's metadata
    log. Another one that the device refuses is left out. Its partitions must not be created in
    another directory.

    Raises:
        UnusableDirectoryError: the device refuses the first.
        DirectoryError: one is locked, belongs to another node or cluster, or is given twice. None
            stays locked then.
    """
    cluster_id = known_cluster_id(files, paths) or cluster_id
    usable: list[LogDirectory] = []
    left_out: dict[str, str] = {}
    try:
        for path in paths:
            try:
                directory = open_log_directory(
                    files,
                    path,
                    node_id=node_id,
                    new_id=random_uuid(chance),
                    cluster_id=cluster_id,
                )
            except UnusableDirectoryError as error:
                if not usable and len(paths) > 1:
                    raise UnusableDirectoryError(
                        f"{error} (it has the cluster's metadata log, so no broker starts)"
                    ) from error
                if not usable:
                    raise
                left_out[path] = str(error)
                continue
            usable.append(directory)
            cluster_id = directory.identity.cluster_id
            _check_is_new(usable)
    except BaseException:
        for directory in usable:
            directory.close()
        raise
    return OpenedDirectories(usable=tuple(usable), left_out=left_out)


def known_cluster_id(files: Files, paths: Sequence[str]) -> str | None:
    """The cluster of the first directory that has one.

    A directory that cannot be read is skipped; opening it raises the error.
    """
    for path in paths:
        try:
            identity = read_identity(files, path)
        except OSError:
            continue
        if identity is not None and identity.cluster_id:
            return identity.cluster_id
    return None


def _check_is_new(directories: Sequence[LogDirectory]) -> None:
    *others, last = directories
    for other in others:
        directory_id = last.identity.directory_id
        if directory_id == other.identity.directory_id:
            raise DirectoryError(
                f"{last.path} and {other.path} have the same directory id (meta.properties): one "
                "is a copy of the other; take it out of log.dirs"
            )


def read_identity(files: Files, path: str) -> MetaProperties | None:
    """The content of `meta.properties` in a directory; None if there is no such file.

    Raises:
        DirectoryError: it cannot be understood, or is of a later release.
        OSError: it cannot be read.
    """
    meta = f"{path}/{names.META_PROPERTIES}"
    if not files.exists(meta):
        return None
    try:
        fields = read_properties(read_text(files, meta))
        version = int(fields.get("version", "0"))
        if version not in (0, 1):
            raise DirectoryError(
                f"{meta} has version {version}; this release reads 0 and 1; use a newer one"
            )
        return MetaProperties(
            cluster_id=fields["cluster.id"] if version else fields.get("cluster.id", ""),
            node_id=int(fields["node.id" if version else "broker.id"]),
            directory_id=fields.get("directory.id", ""),
        )
    except (CorruptionError, KeyError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DirectoryError(
            f"{meta} cannot be understood ({reason}); restore it from a backup, or move it away to "
            "have the directory taken over as new"
        ) from error


def id_text(new_id: uuid.UUID) -> str:
    """An id of a directory or cluster as text, not one that Kafka's tools take for an option."""
    text = format_topic_id(new_id)
    return f"A{text[1:]}" if text.startswith("-") else text


def write_identity(files: Files, path: str, identity: MetaProperties) -> None:
    """Write `meta.properties` of a directory; on the device on return.

    Raises:
        OSError: the device refuses.
    """
    lines = [
        "#",
        "version=1",
        f"node.id={identity.node_id}",
        f"cluster.id={identity.cluster_id}",
        f"directory.id={identity.directory_id}",
    ]
    write_atomically(files, path, names.META_PROPERTIES, text="\n".join(lines) + "\n")


def _check_identity(
    path: str, identity: MetaProperties, *, node_id: int, cluster_id: str | None
) -> None:
    if identity.node_id != node_id:
        raise DirectoryError(
            f"{path} belongs to node {identity.node_id}, and this is node {node_id} "
            f"(meta.properties); start with --node-id {identity.node_id} or choose another one"
        )
    if identity.cluster_id and cluster_id is not None and identity.cluster_id != cluster_id:
        raise DirectoryError(
            f"{path} belongs to cluster {identity.cluster_id}, and this is cluster {cluster_id} "
            "(meta.properties); choose another directory"
        )


def in_use(path: str, error: BlockingIOError, *, advice: str) -> DirectoryError:
    """One line for an operator: who has a directory open, and what to do."""
    if isinstance(error, HeldHereError):
        return DirectoryError(f"{path} is in use by this same process, which has it open; {advice}")
    return DirectoryError(f"{path} is in use by another process (its .lock is held); {advice}")


def unusable(path: str, error: OSError) -> UnusableDirectoryError:
    """One line for an operator: why a directory cannot be used, and what to do."""
    advice = {
        errno.ENOSPC: "the disk is full; free some space or choose another disk",
        errno.EDQUOT: "the disk quota is used up; free some space or choose another disk",
        errno.EACCES: "permission denied; run as its owner or choose another directory",
        errno.EROFS: "the file system is read-only; choose another directory",
        errno.EMFILE: "too many open files; raise the limit (ulimit -n) for the broker",
        errno.ENFILE: "too many open files on this machine; raise fs.file-max",
        errno.ENOTDIR: "a part of the path is a file; choose another directory",
        errno.EEXIST: "the path is a file; choose another directory",
    }.get(error.errno or 0)
    if isinstance(error, FileCutError):
        advice = f"{error.filename}: {error.strerror}; nothing but the broker may change its files"
    elif error.errno == errno.EIO:
        where = f" at {error.filename}" if error.filename else ""
        advice = f"the device failed{where} (input/output error); check it, then start again"
    if advice is None:
        advice = os.strerror(error.errno).lower() if error.errno else str(error)
    return UnusableDirectoryError(f"cannot use {path} as a log directory: {advice}")
