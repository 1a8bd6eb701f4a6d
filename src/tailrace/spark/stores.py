"""`LogStore`: what a scan reads from, data directories with no broker or a broker.

Both answer the same questions for the plan on the driver, and give the same batches to a task.
What they cost differs: a directory knows its sizes, a broker is asked over the network.

Not here: decoding (`readers`), deciding (`offsets`, `planning`), and reading files (`directories`).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, assert_never

from tailrace.client import ClusterReader, fetch_pieces
from tailrace.client.admin.group_offsets import alter_group_offsets
from tailrace.errors import ConfigError, OffsetOutOfRangeError, RetriableError
from tailrace.model import IsolationLevel, Offset, SpecialTimestamp, TopicPartition
from tailrace.reading.located import LocatedBatch, LocatedBatches, Skipped, split_batches
from tailrace.spark.directories import DirectoryStore, lost
from tailrace.spark.offsets import Extent
from tailrace.spark.options import Partitions, Pattern, Selection, SourceOptions, Topics
from tailrace.spark.planning import OffsetRange
from tailrace.spark.seals import SegmentSeal

__all__ = [
    "BrokerStore",
    "DirectoryStore",
    "LogStore",
    "measure_ranges",
    "open_store",
    "single_batches",
]


class LogStore(Protocol):
    """Directories or a broker."""

    skipped: list[Skipped] | None
    """Damaged ranges that were left out; None: damage is an error."""

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """The partitions that are there; a broker may leave out those not selected."""
        ...

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets that each log has now, as far as the isolation level lets them be read."""
        ...

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Offset of the first record with at least this timestamp (ms), or None."""
        ...

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """Return about how many bytes of log a range has; 0 if that is not known."""
        ...

    def seals(self, partition: TopicPartition, start: int, limit: int) -> tuple[SegmentSeal, ...]:
        """Checksums that tell whether the segments of a range have changed; none for a broker."""
        ...

    def pieces(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[LocatedBatches]:
        """The checked batches that hold an offset of the range; a run may reach beyond it.

        Raises:
            FatalError: the log no longer has the whole range and `fails_on_data_loss` is true;
                without it, what is left is read.
            CorruptionError: a batch is damaged; it says where it stands.
        """
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class BrokerStore:
    """A cluster that is asked over the network."""

    skipped: list[Skipped] | None = None
    """Damage is an error: only files can be searched for what is sound behind it."""

    def __init__(
        self,
        cluster: ClusterReader,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """The partitions of the topics that are named, or all of the cluster's for a pattern."""
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
        """First offset and high watermark, or last stable offset for read_committed."""
        list_offsets = self._cluster.list_offsets
        starts = list_offsets(dict.fromkeys(partitions, SpecialTimestamp.EARLIEST))
        ends = list_offsets(
            dict.fromkeys(partitions, SpecialTimestamp.LATEST), isolation=self._isolation
        )
        return {each: Extent(starts[each], ends[each]) for each in partitions}

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """The offset that ListOffsets answers, or None."""
        offset = self._cluster.list_offsets({partition: timestamp}, isolation=self._isolation)[
            partition
        ]
        return None if offset < 0 else offset

    def size_between(self, partition: TopicPartition, start: int, limit: int) -> int:
        """0: brokers are not asked for sizes."""
        del partition, start, limit
        return 0

    def seals(self, partition: TopicPartition, start: int, limit: int) -> tuple[SegmentSeal, ...]:
        """None: a broker says itself what it no longer has."""
        del partition, start, limit
        return ()

    def pieces(self, wanted: OffsetRange, *, fails_on_data_loss: bool) -> Iterator[LocatedBatches]:
        """The batches of a range, as views of the answers."""
        start: int = wanted.start
        limit: int = wanted.limit
        if not fails_on_data_loss:
            first, end = self._cluster.log_range(wanted.partition, isolation=self._isolation)
            start, limit = max(start, first), min(limit, end)
        try:
            for piece in fetch_pieces(
                self._cluster,
                wanted.partition,
                start_offset=start,
                limit_offset=limit,
                isolation=self._isolation,
            ):
                yield piece, None, None
        except OffsetOutOfRangeError as error:
            raise lost(wanted, str(error), where=str(wanted.partition)) from error

    def commit_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read to a consumer group.

        Raises:
            RemoteFatalError: its coordinator refuses.
            RetriableError: the coordinator does not answer, or does not know a partition.
        """
        errors = self._cluster.do(alter_group_offsets, group, positions).errors.values()
        for error in sorted(errors, key=lambda each: isinstance(each, RetriableError)):
            raise error

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()


def single_batches(
    store: LogStore, wanted: OffsetRange, *, fails_on_data_loss: bool
) -> Iterator[LocatedBatch]:
    """The batches of a range one by one; raises as `LogStore.pieces`."""
    for located in store.pieces(wanted, fails_on_data_loss=fails_on_data_loss):
        yield from split_batches(located, wanted)


def open_store(options: SourceOptions) -> LogStore:
    """The store that the options name; nothing is read or connected yet.

    Raises:
        ConfigError: the broker list is malformed, or a URI has no file system.
        DirectoryError: the file system of a URI cannot be opened.
    """
    if options.directories:
        return DirectoryStore(
            *options.directories,
            isolation=options.isolation,
            skips_damage=options.corruption_report is not None,
        )
    if options.bootstrap is None:
        raise ConfigError(["path, paths, kafka.bootstrap.servers: give exactly one"])
    return BrokerStore(
        ClusterReader(options.bootstrap, settings=options.client_settings),
        isolation=options.isolation,
    )


def measure_ranges(
    store: LogStore, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> list[OffsetRange]:
    """Ranges with their sizes and seals, as `plan_tasks` takes them."""
    return [
        OffsetRange(
            partition=partition,
            start=Offset(start),
            limit=Offset(limit),
            size=store.size_between(partition, start, limit),
            seals=store.seals(partition, start, limit),
        )
        for partition, (start, limit) in ranges.items()
    ]
