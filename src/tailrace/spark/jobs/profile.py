"""Profile topics: sizes, rates, keys, times and compression, computed over columns of records.

    profile = profile_topics(spark, {"path": "data", "subscribe": "flights"})
    profile.frame(spark).show()

A work item is a few ranges of offsets. Their records become Arrow columns (`records.columns`),
these become counters and sketches (`sketches`), and the driver merges them in the order of the log.
A batch counts in the range in which it begins.

Not here: control batches are counted and not looked into. Records of aborted transactions count,
unless the option `kafka.isolation.level` is `read_committed`.

Invariant: every number that is not called an estimate is exact, however the work was cut. Only of
damaged stretches, two ranges may count the same one.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.arrays import Int64s
from tailrace.model import Codec, TopicPartition
from tailrace.reading.located import decoding
from tailrace.records.batch import Batch
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.schema import Column
from tailrace.spark.jobs.archive_files import count_offsets, plan_items
from tailrace.spark.jobs.sketches import (
    DISTINCT_ERROR,
    DistinctCount,
    HeavyHitters,
    TimeHistogram,
    hashes_of,
)
from tailrace.spark.jobs.work import Job, Progress
from tailrace.spark.losses import report_name, write_report
from tailrace.spark.offsets import (
    Extent,
    choose_partitions,
    find_late_starts,
    resolve_ranges,
)
from tailrace.spark.options import SourceOptions, parse_job_options
from tailrace.spark.planning import OffsetRange
from tailrace.spark.stores import LogStore, measure_ranges, open_store, single_batches
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

ITEM_BYTES: Final = 256 * 1024 * 1024
"""Bytes of log that are one task's work."""

FUTURE_MS: Final = 24 * 3_600_000
"""A record that is by so much ahead of the driver's clock has a wrong time."""

SIZE_CLASSES: Final = 33
"""Classes of record sizes: class n has 2**(n-1) to 2**n - 1 bytes, class 0 has none."""

_COLUMNS: Final = (Column.KEY, Column.VALUE, Column.TIMESTAMP)

SCHEMA: Final = (
    "topic string, partition int, records bigint, batches bigint, storedBytes bigint, "
    "contentBytes bigint, nullKeys bigint, tombstones bigint, distinctKeys bigint, "
    "distinctKeysError double, superseded bigint, firstTimestamp bigint, lastTimestamp bigint, "
    "outOfOrder bigint, withoutTime bigint, inFuture bigint, controlBatches bigint, damaged bigint"
)
"""Schema of a profile as a DataFrame, a row for each partition; timestamps in milliseconds."""


@dataclass(slots=True)
class CodecUse:
    """Batches, records and bytes of a log that one codec has compressed."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    content_bytes: int = 0
    """Size of keys and values, uncompressed."""


@dataclass(slots=True)
class Counters:
    """Counters that are merged by adding."""

    records: int = 0
    batches: int = 0
    """Batches with records; control batches are not counted here."""
    control_batches: int = 0
    transactional_batches: int = 0
    stored_bytes: int = 0
    """Size of the batches in the log, with their headers."""
    content_bytes: int = 0
    """Size of keys and values, uncompressed."""
    null_keys: int = 0
    tombstones: int = 0
    """Records with a key and without a value."""
    without_time: int = 0
    in_future: int = 0
    out_of_order: int = 0
    """Records that are older than the one before in their partition, where both have a time."""
    damaged: int = 0
    """Damaged stretches that were left out, with `onCorruption=skip`."""

    def add(self, other: "Counters") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class LogProfile:
    """Profile of a range of offsets, a partition or a topic."""

    counters: Counters = field(default_factory=Counters)
    codecs: dict[str, CodecUse] = field(default_factory=dict)
    keys: DistinctCount = field(default_factory=DistinctCount)
    hitters: HeavyHitters = field(default_factory=HeavyHitters)
    times: TimeHistogram = field(default_factory=TimeHistogram)
    """Records by time, without those that have no time or one in the future."""
    size_classes: Int64s = field(default_factory=lambda: np.zeros(SIZE_CLASSES, np.int64))
    """Records by the bytes of key and value; see `SIZE_CLASSES`."""
    oldest: int | None = None
    """Smallest timestamp (ms) of a record that has one, also of those in the future."""
    newest: int | None = None
    first_timestamp: int | None = None
    """Timestamp of the first record that has one, in the order of the log."""
    last_timestamp: int | None = None

    @property
    def superseded(self) -> int:
        """Records with a key that has a younger one: what compaction would remove.

        Of a partition only, since there keys are compacted. An estimate where `keys` is one.
        """
        counters = self.counters
        return max(0, counters.records - counters.null_keys - self.keys.count())

    def append(self, later: "LogProfile") -> None:
        """Add the next range of the same partition."""
        last, first = self.last_timestamp, later.first_timestamp
        # The border of two ranges was seen by neither of their tasks.
        if last is not None and first is not None and first < last:
            self.counters.out_of_order += 1
        if self.first_timestamp is None:
            self.first_timestamp = first
        if later.last_timestamp is not None:
            self.last_timestamp = later.last_timestamp
        self.merge(later)

    def merge(self, other: "LogProfile") -> None:
        """Add what another profile has counted."""
        self.counters.add(other.counters)
        for name, use in other.codecs.items():
            mine = self.codecs.setdefault(name, CodecUse())
            for each in fields(use):
                setattr(mine, each.name, getattr(mine, each.name) + getattr(use, each.name))
        self.keys.merge(other.keys)
        self.hitters.merge(other.hitters)
        self.times.merge(other.times)
        self.size_classes = self.size_classes + other.size_classes
        known = [each for each in (self.oldest, other.oldest) if each is not None]
        self.oldest = min(known, default=None)
        known = [each for each in (self.newest, other.newest) if each is not None]
        self.newest = max(known, default=None)

    def add_batch(
        self, batch: Batch, *, begins_here: bool, records: int, content_bytes: int
    ) -> None:
        """Count a batch; `records` and `content_bytes` (keys and values) are those in the range."""
        # Old formats are converted while they are read; the codec is the one in the file.
        number = batch.codec if batch.legacy is None else batch.legacy.codec_number
        use = self.codecs.setdefault(Codec(number).label, CodecUse())
        use.records += records
        use.content_bytes += content_bytes
        # A batch that is cut by ranges has records in each of them, and counts once.
        if begins_here:
            use.batches += 1
            use.stored_bytes += batch.size
            self.counters.batches += 1
            self.counters.stored_bytes += batch.size
            self.counters.transactional_batches += batch.is_transactional

    def add_records(self, chunk: pa.RecordBatch, *, now_ms: int) -> None:
        """Count the records of a chunk with the columns key, value and timestamp."""
        keys, values = chunk.column("key"), chunk.column("value")
        sizes = _lengths(keys) + _lengths(values)
        counters = self.counters
        counters.records += len(chunk)
        counters.content_bytes += int(sizes.sum())
        counters.null_keys += keys.null_count
        both = pc.and_(pc.is_valid(keys), pc.is_null(values))
        counters.tombstones += pc.sum(both).as_py() or 0
        # The exponent of a float is the number of bits of the whole number; zero has 0.
        self.size_classes += np.bincount(np.frexp(sizes)[1], minlength=SIZE_CLASSES)
        named = keys.drop_null()
        if len(named):
            # Unique first: Arrow finds duplicates faster than hashes can be sorted.
            self.keys.add(hashes_of(pc.unique(named)))
            self.hitters.add(named)
        # Spark's microseconds to Kafka's milliseconds.
        timestamps = chunk.column("timestamp").cast(pa.int64()).to_numpy() // 1000
        self._add_times(timestamps, sizes, now_ms)

    def _add_times(self, timestamps: Int64s, sizes: Int64s, now_ms: int) -> None:
        has_time = timestamps >= 0
        self.counters.without_time += int(len(timestamps) - has_time.sum())
        timestamps, sizes = timestamps[has_time], sizes[has_time]
        if not len(timestamps):
            return
        part = LogProfile(
            oldest=int(timestamps.min()),
            newest=int(timestamps.max()),
            first_timestamp=int(timestamps[0]),
            last_timestamp=int(timestamps[-1]),
        )
        part.counters.out_of_order = int((np.diff(timestamps) < 0).sum())
        # One record with a wrong year would make each bucket of the histogram 360 days wide.
        is_future = timestamps > now_ms + FUTURE_MS
        part.counters.in_future = int(is_future.sum())
        part.times.add(timestamps[~is_future], sizes[~is_future])
        self.append(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profiles of all partitions."""

    source: str
    """The directories or the broker that were read."""
    partitions: Mapping[TopicPartition, LogProfile]
    seconds: float

    def topics(self) -> dict[str, LogProfile]:
        """The partitions of each topic taken together."""
        topics: dict[str, LogProfile] = {}
        for partition, each in self.partitions.items():
            topics.setdefault(partition.topic, LogProfile()).merge(each)
        return topics

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """A row of `SCHEMA` for each partition."""
        return spark.createDataFrame(
            [_row(partition, each) for partition, each in self.partitions.items()], SCHEMA
        )


def profile_topics(
    spark: "SparkSession",
    source_options: Mapping[str, str],
    *,
    item_bytes: int = ITEM_BYTES,
    progress: Progress | None = None,
) -> Profile:
    """Look at what the options of the source `tailrace` name, as the logs are now.

    `progress` takes how many offsets are done, and how many there are.

    Raises:
        ConfigError: the options have faults, or do not fit the topics.
        CorruptionError: a batch is damaged, and `onCorruption` is not `skip`.
        FatalError: an executor does not see a directory; a range is gone meanwhile.
    """
    options = parse_job_options(source_options)
    job = Job(spark, directories=options.directories, progress=progress)
    ranges = plan_profile(options)
    # A range that was cut begins where its log does.
    cut = {each.partition: Extent(each.start, each.limit) for each in ranges}
    for late in find_late_starts(options.starting, cut):
        logger.warning("Skipped: %s", late)
    items = plan_items([each for each in ranges if each.length], item_bytes=item_bytes)
    function = partial(profile_item, options, time.time_ns() // 1_000_000)
    found = {each.partition: LogProfile() for each in ranges}
    for item, results in job.results(items, function, amount=count_offsets):
        for wanted, each in zip(item, results, strict=True):
            found[wanted.partition].append(each)
    return Profile(
        source=", ".join(options.directories) or str(options.bootstrap),
        partitions=dict(sorted(found.items())),
        seconds=job.seconds,
    )


def profile_item(
    options: SourceOptions, now_ms: int, item: Sequence[OffsetRange]
) -> list[LogProfile]:
    """Runs in a task: a profile of each range.

    Raises:
        CorruptionError: a batch is damaged; with its file and position.
        FatalError: the log no longer has a range, or cannot be read.
        OSError: the report of what was skipped cannot be written.
    """
    store = open_store(options)
    try:
        return [_profile_range(store, options, wanted, now_ms=now_ms) for wanted in item]
    finally:
        store.close()


def plan_profile(options: SourceOptions) -> list[OffsetRange]:
    """Plan the ranges that the options select and the logs have.

    Raises:
        ConfigError: something is selected that does not exist, or offsets that the logs lack.
        DirectoryError: a directory cannot be read.
    """
    store = open_store(options)
    try:
        chosen = choose_partitions(options.selection, store.partitions(options.selection))
        found = resolve_ranges(options, store.extents(chosen), offset_at=store.offset_at)
        return measure_ranges(store, found)
    finally:
        store.close()


def _profile_range(
    store: LogStore, options: SourceOptions, wanted: OffsetRange, *, now_ms: int
) -> LogProfile:
    found = LogProfile()
    skipped = len(store.skipped or ())
    for chunk in _chunks(store, options, wanted, found=found):
        found.add_records(chunk, now_ms=now_ms)
    damaged = (store.skipped or [])[skipped:]
    found.counters.damaged += len(damaged)
    if options.corruption_report is not None:
        write_report(options.corruption_report, report_name(wanted), damaged)
    return found


def _chunks(
    store: LogStore, options: SourceOptions, wanted: OffsetRange, *, found: LogProfile
) -> Iterator[pa.RecordBatch]:
    builder = ColumnsBuilder(_COLUMNS)
    on_skip = None if store.skipped is None else store.skipped.append
    for located in single_batches(store, wanted, fails_on_data_loss=options.fails_on_data_loss):
        batch = located[0]
        begins_here = batch.base_offset >= wanted.start
        if batch.is_control:
            found.counters.control_batches += begins_here
            continue
        before = builder.byte_count
        with decoding(located, wanted, on_skip):
            records = builder.append(batch, start_offset=wanted.start, limit_offset=wanted.limit)
            size = builder.byte_count - before
            found.add_batch(batch, begins_here=begins_here, records=records, content_bytes=size)
        if not builder.has_room:
            yield builder.finish()
    if builder.row_count:
        yield builder.finish()


def _lengths(values: pa.Array) -> Int64s:
    filled = pc.fill_null(pc.binary_length(values), 0)
    lengths: Int64s = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _row(partition: TopicPartition, found: LogProfile) -> Iterable[object]:
    counters = found.counters
    return (
        partition.topic,
        partition.partition,
        counters.records,
        counters.batches,
        counters.stored_bytes,
        counters.content_bytes,
        counters.null_keys,
        counters.tombstones,
        found.keys.count(),
        0.0 if found.keys.is_exact else DISTINCT_ERROR,
        found.superseded,
        found.oldest,
        found.newest,
        counters.out_of_order,
        counters.without_time,
        counters.in_future,
        counters.control_batches,
        counters.damaged,
    )
