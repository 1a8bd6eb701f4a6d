"""`LogStore`: what a scan reads from, data directories with no broker or a broker.

Both answer the same questions for the plan on the driver, and give the same batches to a task.
What they cost differs: a directory knows its sizes, a broker is asked over the network.

Not here: decoding (`batch_reader`), deciding (`offsets`, `planning`), and files (`directories`).
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, assert_never
from uuid import UUID

from tailrace.client import ClusterReader, RemoteRetriableError, fetch_pieces
from tailrace.client.admin.group_offsets import alter_group_offsets
from tailrace.client.reader import TopicDescription
from tailrace.client.retries import ATTEMPTS_MAX
from tailrace.errors import ConfigError, OffsetOutOfRangeError, RetriableError
from tailrace.model import IsolationLevel, Offset, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.reading.located import LocatedBatch, LocatedBatches, Skipped, split_batches
from tailrace.records.codecs import limit_decompression_of_query
from tailrace.spark.directories import DirectoryStore
from tailrace.spark.losses import GONE, PartitionGoneError, gone, lost, warn_of_skipped
from tailrace.spark.offsets import Extent
from tailrace.spark.options import (
    Bound,
    Partitions,
    Pattern,
    PointKind,
    Selection,
    SourceOptions,
    Topics,
)
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

_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Answers about a partition, or a topic of that id, that is not there."""

logger = logging.getLogger(__name__)


class LogStore(Protocol):
    """Directories or a broker."""

    skipped: list[Skipped] | None
    """Damaged ranges that were left out; None: damage is an error."""

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """The partitions that are there; a broker may leave out those not selected."""
        ...

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """The offsets that each log has now, as far as the isolation level lets them be read.

        Raises:
            PartitionGoneError: one of them is not there, or not any more.
        """
        ...

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """The id that the partition's topic had before its extent was looked up, if known."""
        ...

    def cluster_id(self, partition: TopicPartition) -> str | None:
        """The id of the cluster that the partition is of, if it is known."""
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

        With `fails_on_data_loss` these are the batches that were planned. Without it they are what
        is left of them, and none of another topic that has the name by now.

        Raises:
            PartitionGoneError: the partition is gone and `fails_on_data_loss` is true.
            FatalError: the log no longer has the whole range and `fails_on_data_loss` is true; or
                it changes again and again while it is read.
            CorruptionError: a batch is damaged; it says where it is.
        """
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class BrokerStore:
    """A cluster that is asked over the network."""

    skipped: list[Skipped] | None = None
    """Damage is an error: only files can be searched for what is sound after it."""

    def __init__(
        self,
        cluster: ClusterReader,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        bounds: Sequence[Bound] = (),
    ) -> None:
        """`bounds` are those of the query, by whose times offsets will be asked for."""
        self._cluster = cluster
        self._isolation = isolation
        self._bounds = bounds
        self._topic_ids: dict[str, UUID | None] = {}
        self._measured: Collection[TopicPartition] = ()
        """The partitions whose extents were looked up last."""
        self._by_time: dict[tuple[TopicPartition, int], int] = {}
        """Offsets by time that were found since then; -1 for none."""

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """The partitions of the topics that are named, or all of the cluster's for a pattern."""
        match selection:
            case Topics(names):
                found = self._named(set(names))
            case Partitions(partitions):
                found = self._named({each.topic for each in partitions})
            case Pattern():
                # Metadata requests have no patterns: all names are asked for, and chosen from by
                # the client.
                found = self._cluster.topics()
            case _:
                assert_never(selection)
        # Kept from this answer: ids that are asked for later could be those of a topic made in
        # between.
        self._topic_ids = {name: topic.topic_id for name, topic in found.items()}
        return {
            TopicPartition(name, each.partition)
            for name, topic in found.items()
            for each in topic.partitions
        }

    def _named(self, names: set[str]) -> Mapping[str, TopicDescription]:
        found = self._cluster.topics(names)
        # For the error, which says what there is.
        return found if names <= found.keys() else self._cluster.topics()

    def extents(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent]:
        """First offset and high watermark, or last stable offset for read_committed."""
        self._measured, self._by_time = partitions, {}
        list_offsets = self._cluster.list_offsets
        with _explaining_gone():
            starts = list_offsets(dict.fromkeys(partitions, SpecialTimestamp.EARLIEST))
            ends = list_offsets(
                dict.fromkeys(partitions, SpecialTimestamp.LATEST), isolation=self._isolation
            )
        return {each: Extent(starts[each], ends[each], self.topic_id(each)) for each in partitions}

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """The id in the metadata that `partitions` has asked for last."""
        return self._topic_ids.get(partition.topic)

    def cluster_id(self, partition: TopicPartition) -> str | None:
        """The id in the last answer of a broker."""
        del partition
        return self._cluster.cluster_id

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """The offset that a broker finds; that of all partitions is asked for at once."""
        wanted = partition, timestamp
        if wanted not in self._by_time:
            times = self._times_with(partition, timestamp)
            with _explaining_gone():
                found = self._cluster.list_offsets(times, isolation=self._isolation)
            self._by_time |= {(each, times[each]): offset for each, offset in found.items()}
        offset = self._by_time[wanted]
        return None if offset < 0 else offset

    def _times_with(self, partition: TopicPartition, timestamp: int) -> dict[TopicPartition, int]:
        """The times of the bound that asks for this one, of all partitions."""
        # One request to each leader, and not one for each partition of a topic of thousands.
        for bound in self._bounds:
            points = {each: bound.point_or_none(each) for each in self._measured}
            times = {
                each: point.value
                for each, point in points.items()
                if point is not None and point.kind is PointKind.TIMESTAMP
            }
            if times.get(partition) == timestamp:
                return times
        return {partition: timestamp}

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
        try:
            if fails_on_data_loss:
                yield from self._planned(wanted)
            else:
                yield from self._remaining(wanted)
        except RemoteRetriableError as error:
            if error.code not in _GONE:
                raise
            if fails_on_data_loss:
                raise gone(wanted.partition, str(error)) from error
            logger.warning("Skipped: %s", gone(wanted.partition, str(error)))

    def _planned(self, wanted: OffsetRange) -> Iterator[LocatedBatches]:
        try:
            yield from self._fetched(wanted, wanted.start, wanted.limit)
        except OffsetOutOfRangeError as error:
            raise lost(wanted, str(error), where=str(wanted.partition)) from error

    def _remaining(self, wanted: OffsetRange) -> Iterator[LocatedBatches]:
        """The rest of the range; continues where the log begins by now."""
        first, end = self._cluster.log_range(wanted.partition, isolation=self._isolation)
        at, limit = max(wanted.start, first), min(wanted.limit, end)
        where = str(wanted.partition)
        warn_of_skipped(wanted, wanted.start, at, where=where)
        warn_of_skipped(wanted, max(at, limit), wanted.limit, where=where)
        tries = 0
        while at < limit:
            try:
                for located in self._fetched(wanted, at, limit):
                    yield located
                    at, tries = located[0].next_offset, 0
            except OffsetOutOfRangeError as error:
                # The offset that was asked for, as batches of aborted transactions are not seen.
                at = max(error.offset, error.log_start_offset)
                warn_of_skipped(wanted, error.offset, min(at, limit), where=where)
                warn_of_skipped(wanted, max(at, error.log_end_offset), limit, where=where)
                limit = min(limit, error.log_end_offset)
                # Counted only while nothing is read in between.
                tries += 1
                if tries == ATTEMPTS_MAX:
                    raise lost(wanted, str(error), where=where, fails_on_data_loss=False) from error
            else:
                return

    def _fetched(self, wanted: OffsetRange, start: int, limit: int) -> Iterator[LocatedBatches]:
        """Fetch a part of a range.

        Raises:
            OffsetOutOfRangeError: the log does not reach so far, or not back so far.
        """
        offset = start
        try:
            for piece in fetch_pieces(
                self._cluster,
                wanted.partition,
                start_offset=start,
                limit_offset=limit,
                topic_id=wanted.topic_id,
                isolation=self._isolation,
            ):
                yield piece, None, None
                offset = piece.next_offset
        except RemoteRetriableError as error:
            # A new leader says so while its high watermark is below the offset; it may stay below,
            # if the log was truncated.
            if error.code != ErrorCode.OFFSET_NOT_AVAILABLE:
                raise
            first, end = self._cluster.log_range(wanted.partition, isolation=self._isolation)
            if end >= limit:
                raise
            raise OffsetOutOfRangeError(
                offset, log_start_offset=first, log_end_offset=end
            ) from error

    def commit_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read to a consumer group.

        Raises:
            RemoteFatalError: its coordinator refuses.
            RetriableError: the coordinator does not answer, or does not know a partition.
        """
        errors = self._cluster.do(alter_group_offsets, group, positions).errors.values()
        # Errors that retrying does not help come first, so that they are the ones that are raised.
        for error in sorted(errors, key=lambda each: isinstance(each, RetriableError)):
            raise error

    def close(self) -> None:
        self._cluster.close()


@contextmanager
def _explaining_gone() -> Iterator[None]:
    """Gives the answer that a partition is not there its name in Spark."""
    try:
        yield
    except RemoteRetriableError as error:
        if error.code not in _GONE:
            raise
        raise PartitionGoneError(
            f"{GONE} {error}; failOnDataLoss=false continues without it"
        ) from error


def single_batches(
    store: LogStore, wanted: OffsetRange, *, fails_on_data_loss: bool
) -> Iterator[LocatedBatch]:
    """The batches of a range one by one; raises as `LogStore.pieces`."""
    for located in store.pieces(wanted, fails_on_data_loss=fails_on_data_loss):
        yield from split_batches(located, wanted)


def open_store(options: SourceOptions) -> LogStore:
    """The store that the options name; nothing is read or connected yet.

    From here on the process decompresses batches of up to the size that the options name.

    Raises:
        ConfigError: the broker list is malformed, or a URI has no file system.
        DirectoryError: the file system of a URI cannot be opened.
    """
    # For the whole process: codecs are called where no options are known.
    limit_decompression_of_query(options.decompressed_bytes_max)
    if options.directories:
        return DirectoryStore(
            *options.directories,
            isolation=options.isolation,
            skips_damage=options.corruption_report is not None,
        )
    if options.bootstrap is None:
        raise ConfigError(["path, paths, kafka.bootstrap.servers: give exactly one"])
    return BrokerStore(
        ClusterReader(options.bootstrap, settings=options.client_settings, has_topic_ids=True),
        isolation=options.isolation,
        bounds=(options.starting, options.ending),
    )


def measure_ranges(
    store: LogStore,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    fails_on_data_loss: bool = True,
) -> list[OffsetRange]:
    """Ranges with their sizes, seals and topics, as `plan_tasks` takes them.

    Raises:
        PartitionGoneError: a partition is gone; without `fails_on_data_loss` it is left out.
    """
    measured = []
    for partition, (start, limit) in ranges.items():
        try:
            measured.append(
                OffsetRange(
                    partition=partition,
                    start=Offset(start),
                    limit=Offset(limit),
                    size=store.size_between(partition, start, limit),
                    seals=store.seals(partition, start, limit),
                    topic_id=store.topic_id(partition),
                )
            )
        except PartitionGoneError as error:
            if fails_on_data_loss:
                raise
            logger.warning("Skipped: %s", error)
    return measured
