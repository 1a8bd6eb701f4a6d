"""Where a scan reads from: a data directory with no broker, or a broker.

Both answer the same four questions for the plan on the driver, and give the same batches to a
task. What they cost differs: a directory knows its sizes, a broker is asked over the network.

Not here: decoding (`readers`) and deciding (`offsets`, `planning`).
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, assert_never

from tailrace.client import ClusterReader, fetch_batches
from tailrace.errors import (
    ConfigError,
    CorruptionError,
    DirectoryError,
    FatalError,
    OffsetOutOfRangeError,
)
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.search import find_timestamp
from tailrace.runtime.files import DiskFiles
from tailrace.spark.offsets import Extent
from tailrace.spark.options import Partitions, Pattern, Selection, SourceOptions, Topics
from tailrace.spark.planning import OffsetRange
from tailrace.storage.names import parse_segment_file_name
from tailrace.storage.reader import LogReader, list_partitions, open_log_reader
from tailrace.storage.records_file import open_records_file


class Place(Protocol):
    """A directory or a broker."""

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """The partitions that are there; a broker may leave out those not selected."""
        ...

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets that each log has now."""
        ...

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Offset of the first record with at least this timestamp (ms), or None."""
        ...

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """About how many bytes of log a range has; 0 if that is not known."""
        ...

    def batches(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[Batch]:
        """The checked batches that hold an offset of the range.

        Raises:
            FatalError: the log no longer has the whole range and `fails_on_data_loss` is true;
                without it, what is left is read.
            CorruptionError: a batch is damaged; it says where it stands.
        """
        ...

    def located(
        self, error: CorruptionError, batch: Batch, partition: TopicPartition
    ) -> CorruptionError:
        """The finding in a batch that `batches` gave, with the place where the batch stands."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class DirectoryPlace:
    """A data directory of Tailrace or Apache Kafka; see `tailrace.storage.reader`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._files = DiskFiles()
        self._readers: dict[TopicPartition, LogReader] = {}

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """All partitions of the directory, whatever is selected.

        Raises:
            DirectoryError: it is not a directory, or a partition's own.
        """
        del selection
        if not self._files.is_directory(self.directory):
            raise DirectoryError(f"{self.directory} is not a directory on this machine")
        try:
            found = set(list_partitions(self._files, self.directory))
            names = self._files.list(self.directory)
        except OSError as error:
            raise DirectoryError(f"{self.directory} cannot be read: {error}") from error
        if not found and any(map(parse_segment_file_name, names)):
            raise DirectoryError(
                f"{self.directory} is the folder of one partition; give the directory above it "
                "and name the topic with subscribe or assign"
            )
        return found

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets of whole batches in the files, as they stand now."""
        readers = {partition: self._reader(partition) for partition in partitions}
        return {
            partition: Extent(reader.start_offset, reader.end_offset)
            for partition, reader in readers.items()
        }

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """As the broker finds it, but by reading the batches from the start of the log."""
        reader = self._reader(partition)
        with self._explaining(partition):
            for batch in reader.batches(reader.start_offset, reader.end_offset):
                if batch.max_timestamp >= timestamp:
                    found = find_timestamp(batch, timestamp, start_offset=reader.start_offset)
                    if found is not None:
                        return found.offset
        return None

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """From the sizes of the segments."""
        return self._reader(partition).size_between(start, limit)

    def batches(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[Batch]:
        """The batches of a range, as views of mapped files."""
        reader = self._reader(wanted.partition)
        start, limit = wanted.start, wanted.limit
        if not fails_on_data_loss:
            start = min(max(start, reader.start_offset), reader.end_offset)
            limit = min(max(limit, start), reader.end_offset)
        with self._explaining(wanted.partition):
            try:
                yield from reader.batches(start, limit)
            except OffsetOutOfRangeError as error:
                raise lost(wanted, error, place=self._folder(wanted.partition)) from error

    def located(
        self, error: CorruptionError, batch: Batch, partition: TopicPartition
    ) -> CorruptionError:
        """With file and position; the file is searched again, which only a failure pays for."""
        for segment in reversed(self._reader(partition).segments):
            if segment.base_offset > batch.base_offset:
                continue
            log = open_records_file(self._files, segment.path, read_only=True)
            try:
                for position, each in log.batches():
                    if each.base_offset == batch.base_offset:
                        return error.located(path=segment.path, position=position)
            finally:
                log.close()
            return error.located(path=segment.path)
        return error.located(path=self._folder(partition))

    def close(self) -> None:
        """Files are closed as they are read; only what is known of them is forgotten."""
        self._readers.clear()

    def _folder(self, partition: TopicPartition) -> str:
        return f"{self.directory}/{partition}"

    def _reader(self, partition: TopicPartition) -> LogReader:
        if partition not in self._readers:
            with self._explaining(partition):
                self._readers[partition] = open_log_reader(self._files, self._folder(partition))
        return self._readers[partition]

    @contextmanager
    def _explaining(self, partition: TopicPartition) -> Iterator[None]:
        """Names the folder in errors that do not know where they were."""
        folder = self._folder(partition)
        try:
            yield
        except OSError as error:
            raise DirectoryError(f"{folder} cannot be read: {error}") from error


class BrokerPlace:
    """A cluster that is asked over the network."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """Those of the topics that are named, or all of the cluster's for a pattern."""
        match selection:
            case Topics(names):
                found = self._cluster.partitions(set(names))
            case Partitions(partitions):
                found = self._cluster.partitions({each.topic for each in partitions})
            case Pattern():
                found = self._cluster.partitions()
            case _:
                assert_never(selection)
        return {TopicPartition(topic, number) for topic, each in found.items() for number in each}

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """From the first offset to the high watermark."""
        starts = self._cluster.list_offsets(dict.fromkeys(partitions, SpecialTimestamp.EARLIEST))
        ends = self._cluster.list_offsets(dict.fromkeys(partitions, SpecialTimestamp.LATEST))
        return {each: Extent(starts[each], ends[each]) for each in partitions}

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """As ListOffsets answers."""
        offset = self._cluster.list_offsets({partition: timestamp})[partition]
        return None if offset < 0 else offset

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """0: brokers are not asked for sizes."""
        del partition, start, limit
        return 0

    def batches(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[Batch]:
        """The batches of a range, as views of the answers."""
        start, limit = wanted.start, wanted.limit
        if not fails_on_data_loss:
            first, end = self._cluster.log_range(wanted.partition)
            start, limit = max(start, first), min(limit, end)
        try:
            yield from fetch_batches(
                self._cluster, wanted.partition, start_offset=start, limit_offset=limit
            )
        except OffsetOutOfRangeError as error:
            raise lost(wanted, error, place=str(wanted.partition)) from error

    def located(
        self, error: CorruptionError, batch: Batch, partition: TopicPartition
    ) -> CorruptionError:
        """With the partition; where the batch stands in a file only the broker knows."""
        del batch
        return error.located(path=f"{self._cluster.leader(partition).address}, {partition}")

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()


def lost(wanted: OffsetRange, error: OffsetOutOfRangeError, *, place: str) -> FatalError:
    """The error for a range that was there when the query was planned and is not any more."""
    return FatalError(
        f"{place}: offsets {wanted.start} to {wanted.limit} were planned, but {error}; retention "
        "may have removed them. Load again, or set failOnDataLoss=false to read what is there"
    )


def open_place(options: SourceOptions) -> Place:
    """The place that the options name; nothing is read or connected yet.

    Raises:
        ConfigError: the broker list is malformed.
    """
    if options.directory is not None:
        # Workers may run in another working directory than the driver.
        return DirectoryPlace(os.path.abspath(options.directory))
    if options.bootstrap is None:
        raise ConfigError(["path, kafka.bootstrap.servers: give exactly one"])
    return BrokerPlace(
        ClusterReader(
            options.bootstrap, client_id=options.client_id, timeout_ms=options.request_timeout_ms
        )
    )
