"""`DirectoryStore`: data directories of Tailrace or Apache Kafka, read with no broker.

    data/flights-0/00000000000000000000.log …       data directories, as paths or as URIs that
    s3://bucket/backup/flights-1/…                   PyArrow's file systems open

A partition stands in one of them. Files are read window by window, on this machine and elsewhere.
What follows from the files alone is said as a broker would say it: the end of the log, with
read_committed the last stable offset, and which records belong to aborted transactions.

Not here: decoding (`readers`), and finding what is damaged (`tailrace.reading.damage`).

Invariant: nothing is read from a segment that is not the one that was planned; see `seals`.
"""

import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import assert_never

from tailrace.errors import (
    ConfigError,
    DirectoryError,
    FatalError,
    OffsetOutOfRangeError,
    OffsetsDeletedError,
)
from tailrace.model import METADATA_TOPIC, IsolationLevel, Offset, TopicPartition
from tailrace.reading.located import Skipped
from tailrace.reading.opening import NamedDirectory, open_directory
from tailrace.reading.reader import StoredRun, partition_folders
from tailrace.reading.view import LogView, open_view
from tailrace.spark.offsets import Extent
from tailrace.spark.options import Partitions, Pattern, Selection, Topics
from tailrace.spark.planning import OffsetRange
from tailrace.spark.seals import SegmentSeal, broken_seal, seal
from tailrace.storage.names import parse_segment_file_name

LOST = "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE]"
"""Spark's name for it."""


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

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """All partitions of the directories, whatever is selected, and whatever a pattern matches.

        Kafka's metadata log only if it is named: each broker has one of its own, and a broker would
        not list it.

        Raises:
            ConfigError: a partition stands in two of them.
            DirectoryError: one is not a directory, or a partition's own.
        """
        is_named = _names_metadata(selection)
        found: dict[TopicPartition, NamedDirectory] = {}
        faults = []
        for directory in self._directories:
            for each in _partitions_in(directory):
                if each.topic == METADATA_TOPIC and not is_named:
                    continue
                if each in found:
                    faults.append(_in_two(each, [found[each], directory]))
                found[each] = directory
        if faults:
            raise ConfigError(sorted(faults))
        return set(found)

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets of whole batches in the files, as they stand now."""
        found = {}
        for partition in partitions:
            log = self._log(partition)
            with _explaining(log.reader.folder):
                end = log.latest_offset()
                found[partition] = Extent(log.reader.start_offset, end)
            if self.skipped is not None:
                self.skipped += log.tail
        return found

    def offset_at(self, partition: TopicPartition, timestamp: int) -> Offset | None:
        """The offset that a broker would find: by the time indexes, and reading from there."""
        log = self._log(partition)
        with _explaining(log.reader.folder):
            return log.offset_at(timestamp)

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """Bytes of log between two offsets, by the sizes of the segments."""
        return self._log(partition).reader.size_between(Offset(start), Offset(limit))

    def seals(self, partition: TopicPartition, start: int, limit: int) -> tuple[SegmentSeal, ...]:
        """The seals of the segments that have these offsets."""
        log = self._log(partition)
        with _explaining(log.reader.folder):
            while True:
                try:
                    return log.reader.settled(
                        max(Offset(start), log.reader.start_offset),
                        Offset(limit),
                        partial(_seals, log, Offset(start), Offset(limit)),
                    )
                except OffsetsDeletedError:
                    continue  # Who reads is told.

    def pieces(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[StoredRun]:
        """The batches of a range, as they are stored.

        With `fails_on_data_loss` all come from the segments that were planned.

        Raises:
            FatalError: with `fails_on_data_loss`, a planned segment was deleted or rewritten.
            CorruptionError: a batch is damaged, and damage is not skipped.
            DirectoryError: the folder or a file cannot be read.
        """
        try:
            log = self._log(wanted.partition)
        except NoFolderError:
            if fails_on_data_loss:
                raise
            return
        with _explaining(log.reader.folder):
            if fails_on_data_loss:
                yield from self._planned(log, wanted)
            else:
                yield from self._remaining(log, wanted)

    def close(self) -> None:
        """Files are closed as they are read; only what is known of them is forgotten."""
        self._logs.clear()

    def _planned(self, log: LogView, wanted: OffsetRange) -> Iterator[StoredRun]:
        """The whole range from the segments that were planned, or an error."""
        reader, at = log.reader, wanted.start

        def check(limit: Offset) -> None:
            """Compare the segments that hold the offsets from `at` to `limit` with the plan."""
            broken = reader.settled(
                at, wanted.limit, partial(_broken_seal, log, wanted, range(at, limit))
            )
            if broken is not None:
                raise lost(wanted, broken, where=log.reader.folder)

        try:
            check(wanted.limit)
            checked, path = reader.segments, ""
            for stored in log.visible(wanted.start, wanted.limit):
                if checked is not reader.segments:
                    check(wanted.limit)
                    checked = reader.segments
                elif stored.path != path:
                    # A file is opened by its name, and compaction may have put another one there.
                    # If the name has the planned file now, it had it when the file was opened.
                    check(stored.piece.next_offset)
                    checked = reader.segments
                path = stored.path
                yield stored
                at = stored.piece.next_offset
            if at < wanted.limit:
                check(wanted.limit)
        except OffsetOutOfRangeError as error:
            raise lost(wanted, str(error), where=log.reader.folder) from error

    def _remaining(self, log: LogView, wanted: OffsetRange) -> Iterator[StoredRun]:
        """The rest of the range; repeated if retention removed segments during the read."""
        start = wanted.start
        while True:
            start = max(start, log.reader.start_offset)
            limit = min(wanted.limit, log.reader.end_offset)
            if start >= limit:
                return
            try:
                for stored in log.visible(start, limit):
                    yield stored
                    start = stored.piece.next_offset
            except OffsetsDeletedError:
                continue
            except DirectoryError:
                if log.reader.files.is_directory(log.reader.folder):
                    raise
                return
            else:
                return

    def _log(self, partition: TopicPartition) -> LogView:
        if partition not in self._logs:
            directory = self._directory_of(partition)
            folder = f"{directory.path}/{partition}"
            with _explaining(folder):
                log = open_view(
                    directory.files,
                    folder,
                    partition,
                    isolation=self._isolation,
                    tell=None if self.skipped is None else self.skipped.append,
                )
            if log.tail_error is not None:
                raise log.tail_error
            self._logs[partition] = log
        return self._logs[partition]

    def _directory_of(self, partition: TopicPartition) -> NamedDirectory:
        holding = []
        for each in self._directories:
            with _explaining(each.path):
                if each.files.is_directory(f"{each.path}/{partition}"):
                    holding.append(each)
        if len(holding) > 1:
            raise ConfigError([_in_two(partition, holding)])
        if not holding:
            for each in self._directories:
                _check_visible(each)
            given = ", ".join(each.given for each in self._directories)
            raise NoFolderError(
                f"[KAFKA_DATA_LOSS.PARTITIONS_DELETED] {given}: {partition} is gone, as host "
                f"{socket.gethostname()} sees it; failOnDataLoss=false goes on without it"
            )
        return holding[0]


class NoFolderError(DirectoryError):
    """A partition has no folder where the data directories are."""


def lost(wanted: OffsetRange, reason: str, *, where: str) -> FatalError:
    """The error for a range that was there when the query was planned and is not any more."""
    return FatalError(
        f"{LOST} {where}: offsets {wanted.start} to {wanted.limit} were planned, but {reason}; "
        "retention or compaction may have been at work. Load again, or set failOnDataLoss=false "
        "to read what is there"
    )


def _seals(log: LogView, start: Offset, limit: Offset) -> tuple[SegmentSeal, ...]:
    segments = log.reader.segments_between(start, limit)
    return tuple(seal(log.reader.files, each) for each in segments)


def _broken_seal(log: LogView, wanted: OffsetRange, offsets: range) -> str | None:
    """Explain how the planned segments of a range have changed."""
    limits = [*(each.base_offset for each in wanted.seals[1:]), wanted.limit]
    due = [
        each
        for each, limit in zip(wanted.seals, limits, strict=False)
        if limit > offsets.start and each.base_offset < offsets.stop
    ]
    return broken_seal(log.reader.files, log.reader.segments, due)


def _partitions_in(directory: NamedDirectory) -> set[TopicPartition]:
    with _explaining(directory.path):
        _check_visible(directory)
        found = set(partition_folders(directory.files, directory.path))
        names = [] if found else directory.files.list(directory.path)
    if any(map(parse_segment_file_name, names)):
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
