"""`DirectoryStore`: data directories of Tailrace or Apache Kafka, read with no broker.

    data/flights-0/00000000000000000000.log …       data directories, as paths or as URIs that
    s3://bucket/backup/flights-1/…                   PyArrow's file systems open

A partition is in one of them. Files are read window by window, on this machine and elsewhere.
What follows from the files alone is said as a broker would say it: the end of the log, with
read_committed the last stable offset, and which records belong to aborted transactions.

Files may be exchanged, rewritten and deleted under a reader, by a broker or by who copies them. So
bytes that do not fit are damage only if the segments are still those that the range was planned on
(`seals`). Else the range is lost; with failOnDataLoss=false the log is opened once more, and read
on from the next offset.

Not here: decoding (`batch_reader`), and finding what is damaged (`tailrace.reading.damage`).

Invariant: with failOnDataLoss nothing is read from a segment that is not the one that was planned;
without, nothing from another topic of the name, where the folder has a topic id.
"""

import logging
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import assert_never
from uuid import UUID

from tailrace.errors import (
    ConfigError,
    CorruptionError,
    DirectoryError,
    FatalError,
    OffsetOutOfRangeError,
    OffsetsDeletedError,
)
from tailrace.model import METADATA_TOPIC, IsolationLevel, Offset, TopicPartition
from tailrace.reading.listing import STALE, TRIES_MAX
from tailrace.reading.located import Skipped
from tailrace.reading.opening import NamedDirectory, open_directory
from tailrace.reading.reader import FolderGoneError, StoredRun, partition_folders
from tailrace.reading.view import LogView, open_view
from tailrace.runtime.files import Files
from tailrace.spark.losses import (
    PartitionGoneError,
    gone,
    is_other_topic,
    lost,
    warn_of_skipped,
)
from tailrace.spark.offsets import Extent, selected
from tailrace.spark.options import Partitions, Pattern, Selection, Topics
from tailrace.spark.planning import OffsetRange
from tailrace.spark.seals import SegmentSeal, broken_seal, seal
from tailrace.storage import names
from tailrace.storage.checkpoints import read_partition_metadata
from tailrace.storage.directories import read_identity

logger = logging.getLogger(__name__)


class DirectoryStore:
    """Directories whose partitions are read as if they were in one."""

    skipped: list[Skipped] | None
    """Damaged ranges that were left out; None: damage is an error."""

    def __init__(
        self,
        *directories: str,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        skips_damage: bool = False,
    ) -> None:
        self.skipped = [] if skips_damage else None
        self._isolation = isolation
        self._directories = [open_directory(each) for each in directories]
        self._logs: dict[TopicPartition, LogView] = {}
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._cluster_ids: dict[str, str | None] = {}
        self._damage: list[Skipped] = []
        """Ranges that were left out, until it is certain that they were damaged."""

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """All partitions of the directories, whatever is selected, and whatever a pattern matches.

        What is not selected may be in several: replicas, as brokers have of their internal topics.

        Kafka's metadata log only if it is named: each broker has one of its own, and a broker would
        not list it.

        Raises:
            ConfigError: a partition that is selected is in two of them.
            DirectoryError: one is not a directory, or a partition's own.
        """
        is_named, is_selected = _names_metadata(selection), selected(selection)
        found: dict[TopicPartition, NamedDirectory] = {}
        faults = []
        for directory in self._directories:
            for each in _partitions_in(directory):
                if each.topic == METADATA_TOPIC and not is_named:
                    continue
                if each in found and is_selected(each):
                    faults.append(_in_two(each, [found[each], directory]))
                found[each] = directory
        if faults:
            raise ConfigError(sorted(faults))
        return set(found)

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets of whole batches in the files, as they are now."""
        found = {}
        for partition in partitions:
            log = self._log(partition)
            with _explaining_partition(log):
                end = log.latest_offset()
            topic_id = self._topic_ids[partition]
            found[partition] = Extent(log.reader.start_offset, end, topic_id)
            if self.skipped is not None:
                self.skipped += log.tail
        return found

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """The topic id in the partition's folder, read before its log was opened."""
        return self._topic_ids.get(partition)

    def cluster_id(self, partition: TopicPartition) -> str | None:
        """The id in `meta.properties` of the partition's directory; None: there is none."""
        directory = self._directory_of(partition)
        if directory.path not in self._cluster_ids:
            with _explaining(directory.path):
                self._cluster_ids[directory.path] = _cluster_id(directory)
        return self._cluster_ids[directory.path]

    def offset_at(self, partition: TopicPartition, timestamp: int) -> Offset | None:
        """The offset that a broker would find: by the time indexes, and reading from there."""
        log = self._log(partition)
        with _explaining_partition(log):
            found = log.offset_at(timestamp)
        self._note_damage()
        return found

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """Bytes of log between two offsets, by the sizes of the segments."""
        return self._log(partition).reader.size_between(Offset(start), Offset(limit))

    def seals(self, partition: TopicPartition, start: int, limit: int) -> tuple[SegmentSeal, ...]:
        """The seals of the segments that have these offsets."""
        return _seals_of(self._log(partition), Offset(start), Offset(limit))

    def pieces(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[StoredRun]:
        """The batches of a range, as they are stored; raises as `LogStore.pieces`.

        With `fails_on_data_loss` all come from the segments that were planned.
        """
        self._damage.clear()
        if fails_on_data_loss:
            yield from self._planned(wanted)
            return
        try:
            yield from self._remaining(wanted)
        except PartitionGoneError as error:
            logger.warning("Skipped: %s", error)

    def close(self) -> None:
        """Files are closed as they are read; only what is known of them is forgotten."""
        self._logs.clear()

    def _planned(self, wanted: OffsetRange) -> Iterator[StoredRun]:
        """The whole range from the segments that were planned, or an error."""
        log = self._log(wanted.partition)
        reader, at = log.reader, wanted.start
        # The id was planned before the seals. If the folder still has it, no topic that was made
        # in between had been sealed in its place: no id comes back.
        if is_other_topic(wanted.topic_id, self._topic_ids[wanted.partition]):
            raise gone(wanted.partition, f"{reader.folder} is another topic's")

        def check(limit: Offset) -> None:
            """Compare the segments that hold the offsets from `at` to `limit` with the plan."""
            broken = _broken_seal(log, wanted.seals, wanted.limit, offsets=range(at, limit))
            if broken is not None:
                raise lost(wanted, broken, where=reader.folder)

        try:
            # Once before the first byte, so that a plan which does not hold any more fails without
            # a row.
            check(wanted.limit)
            checked, path = reader.segments, ""
            with _explaining_partition(log):
                for stored in log.visible(wanted.start, wanted.limit):
                    if self._damage or checked is not reader.segments:
                        check(wanted.limit)
                        checked = reader.segments
                    elif stored.path != path:
                        # A file is opened by its name, and compaction may have put another one
                        # there. If the name has the planned file now, it had it when the file was
                        # opened.
                        check(stored.piece.next_offset)
                        checked = reader.segments
                    path = stored.path
                    self._note_damage()
                    yield stored
                    at = stored.piece.next_offset
            # Less came than was planned: either the files have changed, or it is damage, which is
            # then certain.
            if at < wanted.limit or self._damage:
                check(wanted.limit)
            self._note_damage()
        except OffsetOutOfRangeError as error:
            raise lost(wanted, str(error), where=reader.folder) from error
        except (CorruptionError, DirectoryError):
            check(wanted.limit)  # A segment that was rewritten under the reader is not damaged.
            raise

    def _remaining(self, wanted: OffsetRange) -> Iterator[StoredRun]:
        """The rest of the range; the log is opened again if its files were changed meanwhile."""
        at, seals, tries = wanted.start, wanted.seals, 0
        warned = at
        while True:
            log = self._log(wanted.partition)
            start = max(at, log.reader.start_offset)
            limit = min(wanted.limit, log.reader.end_offset)
            warn_of_skipped(wanted, max(at, warned), start, where=log.reader.folder)
            warned = start
            if start >= limit:
                warn_of_skipped(wanted, start, wanted.limit, where=log.reader.folder)
                return

            def has_changed() -> bool:
                """Whether the segments that are not read yet are others than those sealed."""
                return _is_changed(log, seals, wanted.limit, start=at)  # noqa: B023 - called at once

            try:
                with _explaining_partition(log):
                    for stored in self._of_topic(log, wanted, start=start, limit=limit):
                        # A file that was rewritten under the reader looks damaged.
                        if self._damage and has_changed():
                            break
                        self._note_damage()
                        yield stored
                        at, tries = stored.piece.next_offset, 0
                    else:
                        if not self._damage or not has_changed():
                            self._note_damage()
                            warn_of_skipped(wanted, limit, wanted.limit, where=log.reader.folder)
                            return
            except OffsetOutOfRangeError:
                pass  # Retention, or another log that ends earlier.
            except (CorruptionError, DirectoryError):
                if not has_changed():
                    raise
            tries += 1
            if tries == TRIES_MAX:
                reason = f"its files were changed at each of {TRIES_MAX} tries to read them"
                raise lost(wanted, reason, where=log.reader.folder, fails_on_data_loss=False)
            self._damage.clear()
            # Open again, at the offset that was reached.
            del self._logs[wanted.partition]
            seals = _seals_of(self._log(wanted.partition), at, wanted.limit)

    def _of_topic(
        self, log: LogView, wanted: OffsetRange, *, start: Offset, limit: Offset
    ) -> Iterator[StoredRun]:
        """The runs of a range, up to the first file that may be another topic's.

        Raises:
            PartitionGoneError: there is one.
        """
        path = ""
        for stored in log.visible(start, limit):
            # If the folder has the id now, it had it when the file was opened: none comes back.
            if stored.path != path and wanted.topic_id is not None:
                found = _topic_id(log.reader.files, log.reader.folder)
                if found != wanted.topic_id:
                    raise gone(wanted.partition, f"{log.reader.folder} is another topic's")
            path = stored.path
            yield stored

    def _note_damage(self) -> None:
        """Report the ranges that were left out, which is certainly damage now."""
        if self._damage:
            assert self.skipped is not None, "damage is an error otherwise"
            self.skipped += self._damage
            self._damage.clear()

    def _log(self, partition: TopicPartition) -> LogView:
        if partition not in self._logs:
            directory = self._directory_of(partition)
            folder = f"{directory.path}/{partition}"
            with _explaining_folder(directory.files, folder, partition):
                # Before the log: a topic that is made again in between counts as the old one.
                topic_id = _topic_id(directory.files, folder)
                log = open_view(
                    directory.files,
                    folder,
                    partition,
                    isolation=self._isolation,
                    on_skip=None if self.skipped is None else self._damage.append,
                )
            if log.tail_error is not None:
                raise log.tail_error
            self._logs[partition] = log
            self._topic_ids[partition] = topic_id
        return self._logs[partition]

    def _directory_of(self, partition: TopicPartition) -> NamedDirectory:
        holding = []
        for each in self._directories:
            with _explaining(each.path):
                if each.files.is_directory(f"{each.path}/{partition}"):
                    holding.append(each)
        if len(holding) > 1:
            raise ConfigError([_in_two(partition, holding)])
        # First whether the directories can be seen at all: an executor without the mount would call
        # every partition gone.
        if not holding:
            for each in self._directories:
                _check_visible(each)
            given = ", ".join(each.given for each in self._directories)
            raise gone(partition, f"{given} on host {socket.gethostname()}")
        return holding[0]


def _seals_of(log: LogView, start: Offset, limit: Offset) -> tuple[SegmentSeal, ...]:
    """The seals of the segments that have the offsets of a range, as far as the log has them."""

    def seals() -> tuple[SegmentSeal, ...]:
        segments = log.reader.segments_between(start, limit)
        return tuple(seal(log.reader.files, each) for each in segments)

    with _explaining_partition(log):
        while True:
            try:
                return log.reader.settled(max(start, log.reader.start_offset), limit, seals)
            except OffsetsDeletedError:
                continue  # The task that reads the range reports it.


def _broken_seal(
    log: LogView, seals: Sequence[SegmentSeal], sealed_limit: Offset, *, offsets: range
) -> str | None:
    """Explain how the segments with these offsets have changed since they were sealed.

    Raises:
        OffsetsDeletedError: the log start has moved into the range.
        PartitionGoneError: the folder is gone.
    """
    # A segment ends where the next one begins; the last ends where the plan did.
    limits = [*(each.base_offset for each in seals[1:]), sealed_limit]
    due = [
        each
        for each, limit in zip(seals, limits, strict=False)
        if limit > offsets.start and each.base_offset < offsets.stop
    ]
    reader = log.reader
    with _explaining_partition(log):
        try:
            return reader.settled(
                Offset(offsets.start),
                sealed_limit,
                lambda: broken_seal(reader.files, reader.segments, due),
            )
        except FolderGoneError:
            raise
        except (*STALE, DirectoryError) as error:
            return f"its files cannot be compared: {error}"


def _is_changed(
    log: LogView, seals: Sequence[SegmentSeal], sealed_limit: Offset, *, start: Offset
) -> bool:
    """Whether a segment with an offset from `start` on is not what it was when it was sealed."""
    try:
        offsets = range(start, sealed_limit)
        return _broken_seal(log, seals, sealed_limit, offsets=offsets) is not None
    except OffsetsDeletedError:
        return True


def _topic_id(files: Files, folder: str) -> UUID | None:
    """The topic id in a partition's folder; None if there is none that can be read."""
    try:
        return read_partition_metadata(files, f"{folder}/{names.PARTITION_METADATA}")
    # Kafka before 2.8 writes no such file; a damaged one is no reason to refuse records.
    except (CorruptionError, FileNotFoundError):
        return None


def _cluster_id(directory: NamedDirectory) -> str | None:
    try:
        identity = read_identity(directory.files, directory.path)
    except DirectoryError:
        return None  # Records can be read all the same.
    return None if identity is None else identity.cluster_id or None


def _partitions_in(directory: NamedDirectory) -> set[TopicPartition]:
    with _explaining(directory.path):
        _check_visible(directory)
        found = set(partition_folders(directory.files, directory.path))
        listed = [] if found else directory.files.list(directory.path)
    if any(map(names.parse_segment_file_name, listed)):
        raise DirectoryError(
            f"{directory.given} is the folder of one partition; give the directory above it "
            "and name the topic with subscribe or assign"
        )
    return found


def _names_metadata(selection: Selection) -> bool:
    match selection:
        case Topics(names):
            return METADATA_TOPIC in names
        case Partitions(partitions):
            return any(each.topic == METADATA_TOPIC for each in partitions)
        case Pattern():
            return False
        case _:
            assert_never(selection)


def _check_visible(directory: NamedDirectory) -> None:
    if not directory.files.is_directory(directory.path):
        raise DirectoryError(
            f"{directory.given} is not a directory that host {socket.gethostname()} can see; the "
            "driver and every executor need it under this name: on a shared file system, in an "
            "object store, or else read from a broker with kafka.bootstrap.servers"
        )


def _in_two(partition: TopicPartition, directories: Sequence[NamedDirectory]) -> str:
    where = " and in ".join(each.given for each in directories)
    return f"paths: {partition} is in {where}; a partition has one log, so name one of them"


@contextmanager
def _explaining(folder: str) -> Iterator[None]:
    """Names the folder and the host in errors that do not know where they were."""
    try:
        yield
    except FatalError:
        raise
    except OSError as error:
        raise DirectoryError(
            f"{folder} cannot be read on host {socket.gethostname()}: {error}"
        ) from error


@contextmanager
def _explaining_folder(files: Files, folder: str, partition: TopicPartition) -> Iterator[None]:
    """Tells a partition that is gone from a folder that cannot be read."""
    try:
        with _explaining(folder):
            yield
    except FolderGoneError as error:
        raise gone(partition, folder) from error
    except DirectoryError as error:
        cause = error.__cause__
        was_there = not isinstance(cause, FileNotFoundError) or cause.filename != folder
        if was_there:
            with _explaining(folder):
                if files.is_directory(folder):
                    raise
        # The folder may be there again: then it is that of another topic.
        raise gone(partition, folder) from error


def _explaining_partition(log: LogView) -> AbstractContextManager[None]:
    return _explaining_folder(log.reader.files, log.reader.folder, log.partition)
