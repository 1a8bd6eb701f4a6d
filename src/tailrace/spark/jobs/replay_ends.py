"""Both ends of a replay: logs or an archive as the source, a topic of a broker as the target.

Logs and archives tell the offsets that they have, and give the records of a range as Arrow tables
with `key`, `value`, `timestamp` (milliseconds), `headers` and `offset`, in the order of offsets.

An archive's records of one range are in a file for each period. They are merged by their offsets,
row group by row group, so that no more is held than a row group of each file.

The target is written by the producer of this project, under an identity that the replay owns: its
sequence numbers outlive the process. The producer has the connections, the leaders, the retries and
the rule that a partition's first batch is sent alone.

Not here: which batches are sent (`replay_send`). Nor aborted transactions: logs are read as
`kafka.isolation.level` says, and an archive has what it was written with.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.client import ClusterReader, fetch_batches
from tailrace.client.errors import RemoteRetriableError, raise_for
from tailrace.client.producer import OwnedIdentity, Producer
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.errors import (
    OutOfOrderSequenceError,
    ProducerError,
    TransactionStateError,
)
from tailrace.errors import (
    ConfigError,
    CorruptionError,
    FatalError,
    OffsetOutOfRangeError,
    RetriableError,
)
from tailrace.model import NO_TIMESTAMP, Offset, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.records.batch import Batch
from tailrace.spark.batch_reader import read_task
from tailrace.spark.folder import Folder, open_folder
from tailrace.spark.jobs.archive import FORMAT, ranges_of
from tailrace.spark.jobs.manifest import Manifest
from tailrace.spark.jobs.topics import SOURCES, TopicIdentity, parse_identities
from tailrace.spark.offsets import Extent, choose_partitions
from tailrace.spark.options import Selection, SourceOptions
from tailrace.spark.planning import OffsetRange, ScanTask
from tailrace.spark.stores import LogStore, measure_ranges, open_store
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.outcome import BatchOutcome
    from tailrace.spark.jobs.archive_files import RangeFiles

COLUMNS: Final = ("key", "value", "timestamp", "headers")
"""Columns of a record that a replay keeps."""

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

SourceRange: TypeAlias = tuple[OffsetRange, tuple[str, ...]]
"""Offsets to read, and the archive's files that have them; none for a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySource:
    """Source settings that a task needs."""

    options: SourceOptions
    archive: str | None
    """Its directory or URI; None: the options name logs."""


class OpenSource(Protocol):
    """A source on the driver."""

    def extents(self) -> dict[TopicPartition, Extent]:
        """The offsets that it has of what the options select.

        Raises:
            ConfigError: something is selected that does not exist.
        """
        ...

    def cluster_id(self, partition: TopicPartition) -> str | None:
        """The id of the cluster that a partition is of, if it is known."""
        ...

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Offset of the first record with at least this timestamp (ms), or None."""
        ...

    def measure(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[SourceRange]:
        """The ranges with what tasks need to read them."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class LogSource:
    """Logs, as the source `tailrace` reads them."""

    def __init__(self, selection: Selection, store: LogStore) -> None:
        self._selection = selection
        self._store = store
        self.offset_at: Callable[[TopicPartition, int], int | None] = store.offset_at
        self.cluster_id: Callable[[TopicPartition], str | None] = store.cluster_id
        self.close: Callable[[], None] = store.close

    def extents(self) -> dict[TopicPartition, Extent]:
        known = self._store.partitions(self._selection)
        return self._store.extents(choose_partitions(self._selection, known))

    def measure(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[SourceRange]:
        return [(each, ()) for each in measure_ranges(self._store, ranges)]


class ArchiveSource:
    """An archive, by its manifest."""

    def __init__(self, manifest: Manifest, selection: Selection) -> None:
        self._selection = selection
        self._ranges: dict[TopicPartition, list[RangeFiles]] = {}
        for each in ranges_of(manifest):
            self._ranges.setdefault(TopicPartition(each.topic, each.partition), []).append(each)
        self._sources = parse_identities(manifest.settings, SOURCES)

    def extents(self) -> dict[TopicPartition, Extent]:
        return {
            partition: Extent(
                self._ranges[partition][0].start,
                self._ranges[partition][-1].limit,
                self._identity(partition).topic_id,
            )
            for partition in choose_partitions(self._selection, self._ranges.keys())
        }

    def cluster_id(self, partition: TopicPartition) -> str | None:
        return self._identity(partition).cluster_id

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Refused.

        Raises:
            ConfigError: always; an archive has no index by time.
        """
        del timestamp
        raise ConfigError([f"{partition}: an archive has no index by time; say offsets instead"])

    def measure(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[SourceRange]:
        """The ranges with their files; sizes are those of Parquet."""
        return [
            self._measured(partition, start, limit) for partition, (start, limit) in ranges.items()
        ]

    def close(self) -> None:
        """Do nothing: the source holds nothing open."""

    def _identity(self, partition: TopicPartition) -> TopicIdentity:
        return self._sources.get(partition.topic, TopicIdentity())

    def _measured(self, partition: TopicPartition, start: int, limit: int) -> SourceRange:
        files = [
            file
            for each in self._ranges.get(partition, ())
            for file in each.files
            # By offsets of rows, not by the range in the name, which may be longer.
            if file.first < limit and file.last >= start
        ]
        size = sum(file.bytes for file in files)
        wanted = OffsetRange(
            partition=partition, start=Offset(start), limit=Offset(limit), size=size
        )
        return wanted, tuple(file.name for file in files)


def open_source(source: ReplaySource) -> OpenSource:
    """The source, to plan with.

    Raises:
        ConfigError: there is no archive, or the options do not lead to logs.
        CorruptionError: the archive's manifest is damaged.
    """
    options, path = source.options, source.archive
    if path is None:
        return LogSource(options.selection, open_store(options))
    manifest = Manifest.open(open_folder(path), form=FORMAT)
    if not manifest.settings:
        raise ConfigError([f"archive: {path} has no manifest"])
    return ArchiveSource(manifest, options.selection)


def read_tables(source: ReplaySource, wanted: SourceRange) -> Iterator[pa.Table]:
    """The records of a range; the same each time, as long as the source does not change.

    Raises:
        CorruptionError: a batch or a file is damaged.
        FatalError: the log no longer has the range.
        OSError: a file of the archive cannot be read.
    """
    offsets, files = wanted
    if source.archive is not None:
        folder = open_folder(source.archive)
        # A range has a file per period, and timestamps need not rise with offsets.
        tables = merged([_row_groups(folder, name, offsets) for name in files])
    else:
        tables = map(
            pa.Table.from_batches,
            (
                [batch]
                for batch in read_task(
                    ScanTask(ranges=(offsets,)),
                    open_store(source.options),
                    columns=(*COLUMNS, "offset"),
                    fails_on_data_loss=source.options.fails_on_data_loss,
                    corruption_report=source.options.corruption_report,
                )
            ),
        )
    return map(in_milliseconds, tables)


def in_milliseconds(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("timestamp")
    return table.set_column(index, "timestamp", table.column("timestamp").cast(_MILLISECONDS))


def merged(files: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Tables that rise in `offset` each, as one sequence that does."""
    heads = [(table, rest) for rest in files if (table := next(rest, None)) is not None]
    while heads:
        # All rows up to the smallest last offset are known now; no file can bring another one
        # before it.
        border = min(table.column("offset")[-1].as_py() for table, _ in heads)
        taken, left = [], []
        for table, rest in heads:
            offsets = table.column("offset").to_numpy()
            count = int(np.searchsorted(offsets, border, side="right"))
            taken.append(table.slice(0, count))
            head = table.slice(count) if count < len(table) else next(rest, None)
            if head is not None:
                left.append((head, rest))
        heads = left
        yield taken[0] if len(taken) == 1 else pa.concat_tables(taken).sort_by("offset")


def _row_groups(folder: Folder, name: str, wanted: OffsetRange) -> Iterator[pa.Table]:
    """The rows of a file that are in the range, without tables that have none."""
    try:
        with folder.source(name) as source:
            parquet = pq.ParquetFile(source)
            for number in range(parquet.num_row_groups):
                table = parquet.read_row_group(number, columns=[*COLUMNS, "offset"])
                offsets = table.column("offset")
                is_wanted = pc.and_(
                    pc.greater_equal(offsets, wanted.start), pc.less(offsets, wanted.limit)
                )
                table = table.filter(is_wanted)
                if len(table):
                    yield table
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"not a Parquet file: {error}", path=name) from error


T = TypeVar("T")

PlacedCallback = Callable[[int, int, int], None]
"""Takes the index of a record in its batch, its offset, and how many records follow on each other
from there on."""


class OvertakenError(RetriableError):
    """Another attempt has sent records meanwhile, so the target has to be looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """Settings of a replay's writes."""

    bootstrap: str
    producer_settings: Mapping[str, object] = field(repr=False)
    """Settings by Kafka's names; there may be a password among them."""
    batch_size: int
    """Bytes that a batch is filled up to."""
    request_size_max: int
    """Bytes that a batch with one record may have."""


class Target(Protocol):
    """The logs of a topic."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset, and the one after the last that can be read."""
        ...

    def batches(self, partition: TopicPartition, start: int, limit: int) -> Iterator[Batch]:
        """The checked batches between two offsets of the log."""
        ...

    def begin(self, identity: OwnedIdentity) -> None:
        """Send under this identity from now on; what was sent before is not waited for."""
        ...

    def send(self, topic: str, rows: "ColumnSlice", placed: PlacedCallback) -> None:
        """Have a batch appended; `placed` is called for all of its records, later or in `settle`.

        Raises:
            OvertakenError: the number of a batch that was sent is not the next one.
            RetriableError, FatalError: one that was sent is not in the log, as far as is known.
        """
        ...

    def settle(self) -> int:
        """Wait until each batch that was sent is in the log; raises as `send`.

        Returns the bytes of the batches, each time that they were sent.
        """
        ...


class _Sent(NamedTuple):
    """A batch whose outcome is awaited."""

    rows: "ColumnSlice"
    outcome: "BatchOutcome"
    placed: PlacedCallback


class BrokerTarget:
    """A topic of a cluster."""

    def __init__(self, settings: TargetSettings) -> None:
        """Connects when it is first asked."""
        self._settings = settings.producer_settings
        self._cluster = ClusterReader(parse_producer_config(self._settings), has_topic_ids=True)
        self._producer: Producer | None = None
        self._under_way: deque[_Sent] = deque()

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        return {name: len(each) for name, each in self._cluster.partitions(topics).items()}

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        found = self._cluster.topics(topics)
        cluster_id = self._cluster.cluster_id
        return {
            name: TopicIdentity(topic_id=each.topic_id, cluster_id=cluster_id)
            for name, each in found.items()
        }

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._cluster.list_offsets(dict.fromkeys(partitions, SpecialTimestamp.LATEST))

    def new_producer(self) -> tuple[int, int]:
        """The id and epoch of a producer that nobody else is."""

        # Without a transactional id any broker gives an id, from a block that the controller has
        # given to it.
        def ask() -> tuple[int, int]:
            broker = self._cluster.any_broker()
            answer = broker.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
                InitProducerIdResponse,
            )
            raise_for(answer.error_code, about=f"a producer id of {broker.address}")
            return answer.producer_id, answer.producer_epoch

        return self._cluster.retrying(ask)

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return self._cluster.log_range(partition)

    def batches(self, partition: TopicPartition, start: int, limit: int) -> Iterator[Batch]:
        try:
            yield from fetch_batches(
                self._cluster, partition, start_offset=start, limit_offset=limit
            )
        except OffsetOutOfRangeError as error:
            # Retention was faster than the fetch: where the log begins is asked again.
            raise RemoteRetriableError(
                ErrorCode.OFFSET_OUT_OF_RANGE, about=f"records of {partition}"
            ) from error

    def begin(self, identity: OwnedIdentity) -> None:
        """Make a producer of this identity; one before it is closed."""
        self._end_sending()
        self._producer = Producer(self._settings, identity=identity)

    def send(self, topic: str, rows: "ColumnSlice", placed: PlacedCallback) -> None:
        """Queue the batch at the producer; waits while its memory is full."""
        assert self._producer is not None, "begin comes first"
        self._take_outcomes()
        try:
            outcome = self._producer.send_slice(topic, rows)
        except TransactionStateError:
            self.settle()  # The batch that failed meanwhile says why.
            raise
        self._under_way.append(_Sent(rows, outcome, placed))

    def settle(self) -> int:
        """Wait for all batches, for `delivery.timeout.ms` at most."""
        assert self._producer is not None, "begin comes first"
        self._producer.flush()
        self._take_outcomes()
        return int(self._producer.metrics()["byte-total"])

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, again with new connections after a retriable error.

        But once if the producer gave up: it has tried for long.
        """

        def try_once() -> T | ProducerError:
            try:
                return attempt()
            except BaseException as error:
                # Batches that were sent may still arrive; nobody waits for their answers any more.
                self.close()
                if isinstance(error, ProducerError):
                    return error
                raise

        outcome = self._cluster.retrying(try_once)
        if isinstance(outcome, ProducerError):
            raise outcome
        return outcome

    def close(self) -> None:
        self._end_sending()
        self._cluster.close()

    def _end_sending(self) -> None:
        self._under_way.clear()
        producer, self._producer = self._producer, None
        if producer is not None:
            # No waiting: what has not been acknowledged is found in the log by the next attempt.
            producer.close(0)

    def _take_outcomes(self) -> None:
        """Take the outcomes that are there, in the order in which the batches were sent."""
        # In their order: the offset map is built from runs that rise.
        while self._under_way and self._under_way[0].outcome.is_done:
            _take_outcome(self._under_way.popleft())


def _take_outcome(sent: _Sent) -> None:
    rows, outcome, placed = sent
    topic = outcome.partition.topic
    timestamps = rows.timestamps()
    # The producer splits a batch that the broker calls too large; each part has its own offset.
    for first, count, part in outcome.undivided(0, rows.record_count):
        # A duplicate is acknowledged without its offset (DUPLICATE_SEQUENCE_NUMBER): another
        # attempt has sent it.
        is_repeated = part.failure is None and part.base_offset < 0
        if is_repeated or isinstance(part.failure, OutOfOrderSequenceError):
            raise OvertakenError(
                f"topic {topic!r}: another attempt to send the same records is ahead; "
                "it could not be caught up with"
            ) from part.failure
        if part.failure is not None:
            raise part.failure
        # A batch that was there already is answered with its own largest timestamp here.
        own = int(timestamps[first : first + count].max())
        if part.log_append_time not in {NO_TIMESTAMP, own}:
            raise FatalError(
                f"topic {topic!r} sets its own timestamps, so those of the source are lost; set "
                "its message.timestamp.type to CreateTime, and delete the sent records"
            )
        placed(first, part.base_offset, count)
