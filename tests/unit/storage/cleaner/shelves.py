"""A row of segments on a disk in memory, written and cleaned without a log around them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import ClassVar, NamedTuple

from tailrace.model import Codec, Offset
from tailrace.reading.reader import open_log_reader
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.records.control import ControlType, EndTransactionMarker
from tailrace.spark.jobs.compact import plan_groups, take_in
from tailrace.spark.jobs.compact_tasks import (
    Overflow,
    collect_keys,
    compare_keys,
    rewrite_group,
    rewritings,
    tag_ranges,
)
from tailrace.storage.cleaner import swap
from tailrace.storage.cleaner.key_map import KeyMap
from tailrace.storage.cleaner.passes import segment_facts
from tailrace.storage.cleaner.plan import CleaningPlan
from tailrace.storage.cleaner.rewrite import (
    CleaningRound,
    CleaningStatistics,
    Pace,
    ProducerEnd,
    SegmentOverflowError,
)
from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.names import DELETED_SUFFIX
from tailrace.storage.segment import Segment, SegmentAppend, open_segment
from tailrace.testing import MemoryFiles
from tests.unit.storage.producer_builders import (
    aborted_txn,
)

FOLDER = "data/flights-0"
SCRATCH = "data/scratch"
MAP_BYTES = 1 << 16
NOW = 1_700_000_000_000
RETENTION_MS = 86_400_000
LATER = NOW + RETENTION_MS
"""When a delete horizon that was set at NOW has passed."""

Pair = tuple[bytes | None, bytes | None]


def settings(**given: object) -> LogConfig:
    """Settings of a compacted log with dense indexes, except for those given."""
    named = {
        "cleanup.policy": "compact",
        "index.interval.bytes": "100",
        "segment.index.bytes": "1200",
    }
    named |= {name.replace("_", "."): str(value) for name, value in given.items()}
    if "segment.bytes" in named:
        named["internal.segment.bytes"] = named.pop("segment.bytes")
    return log_config(named)


def nothing(_: int = 0) -> None:
    """A pause that takes no time, and a check that lets everything pass."""


class Cleaned(NamedTuple):
    """Result of a round."""

    end: int
    """Offset up to which the log is clean."""
    statistics: CleaningStatistics


class Shelf:
    """Segments under one folder; the last one is active."""

    cleans_by_tasks: ClassVar[bool] = False
    """Whether `clean` does what the Spark job does."""

    def __init__(self, **given: object) -> None:
        self.files = MemoryFiles()
        self.files.make_directory(FOLDER)
        self.files.sync_directory(FOLDER)
        self.config = settings(**given)
        self.end = 0
        """Offset of the next record."""
        self.segments: list[Segment] = []
        self.producers: dict[int, ProducerEnd] = {}
        self.transactions: dict[int, int] = {}
        """First offsets of open transactions, by producer."""
        self._sequences: dict[int, int] = {}
        self.roll()

    def roll(self, base_offset: int | None = None) -> None:
        """Closes the active segment and begins another."""
        if self.segments:
            self.segments[-1].finish()
            self.segments[-1].sync()
        self.end = self.end if base_offset is None else base_offset
        self.segments.append(
            open_segment(
                self.files, FOLDER, base_offset=Offset(self.end), config=self.config, create=True
            )
        )
        self.files.sync_directory(FOLDER)

    def append(
        self,
        *pairs: Pair,
        codec: Codec = Codec.NONE,
        timestamp: int = NOW,
        producer_id: int = -1,
        is_transactional: bool = False,
        at: int | None = None,
    ) -> None:
        """Appends a batch of records, of an idempotent producer if it has an id."""
        self.end = self.end if at is None else at
        sequence = self._sequences.get(producer_id, 0)
        builder = BatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=is_transactional,
        )
        for number, (key, value) in enumerate(pairs):
            builder.append(key, value, timestamp=timestamp + number)
        if is_transactional:
            self.transactions.setdefault(producer_id, self.end)
        self.write(builder.build(), len(pairs), max_timestamp=timestamp + len(pairs) - 1)
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + len(pairs)
            self.producers[producer_id] = ProducerEnd(self.end - 1, 0)

    def append_keys(self, *keys: int, **options: object) -> None:
        """Appends a batch of records whose values are their offsets."""
        pairs = [(b"%d" % key, b"%d" % (self.end + place)) for place, key in enumerate(keys)]
        self.append(*pairs, **options)  # type: ignore[arg-type]

    def append_transaction(self, producer_id: int, *keys: int) -> None:
        """Appends a batch of a transaction, which stays open."""
        self.append_keys(*keys, producer_id=producer_id, is_transactional=True)

    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        """Appends the marker that ends a producer's transaction."""
        marker = EndTransactionMarker(type=kind, coordinator_epoch=0)
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True
        )
        builder.append(marker.key, marker.value, timestamp=NOW)
        offset = self.end
        self.write(builder.build(), 1, max_timestamp=NOW)
        first = self.transactions.pop(producer_id, None)
        self.producers.setdefault(producer_id, ProducerEnd(None, 0))
        if kind is ControlType.ABORT and first is not None:
            stable = min(self.transactions.values(), default=offset + 1)
            aborted = aborted_txn(producer_id, first, offset, stable)
            self.segments[-1].transactions.append(aborted)

    def commit(self, producer_id: int) -> None:
        """Commits a producer's transaction."""
        self.end_transaction(producer_id, ControlType.COMMIT)

    def abort(self, producer_id: int) -> None:
        """Aborts a producer's transaction."""
        self.end_transaction(producer_id, ControlType.ABORT)

    def write(
        self, data: bytes, count: int, *, max_timestamp: int, is_stamped: bool = True
    ) -> None:
        """Appends the bytes of one batch of `count` offsets."""
        stored = bytearray(data)
        if is_stamped:
            stamp(memoryview(stored), base_offset=self.end, leader_epoch=5)
        last = self.end + count - 1
        self.segments[-1].append(
            SegmentAppend(
                data=stored,
                last_offset=Offset(last),
                max_timestamp=max_timestamp,
                max_timestamp_offset=Offset(last),
            )
        )
        self.end = last + 1

    def plan(self, first_dirty: int, limit: int | None = None) -> CleaningPlan:
        """A round from an offset up to the active segment."""
        return CleaningPlan(
            first_dirty=first_dirty,
            first_uncleanable=self.segments[-1].base_offset if limit is None else limit,
            clean_bytes=0,
            cleanable_bytes=1,
            delay_ms=0,
            is_due=True,
        )

    def round(
        self,
        first_dirty: int = 0,
        *,
        limit: int | None = None,
        now_ms: int = NOW,
        map_bytes: int = MAP_BYTES,
        pace: Pace | None = None,
    ) -> CleaningRound:
        """A round that has not begun."""
        return CleaningRound(
            self.files,
            FOLDER,
            segments=self.segments,
            config=self.config,
            plan=self.plan(first_dirty, limit),
            key_map=KeyMap(map_bytes),
            now_ms=now_ms,
            pace=pace or Pace(pause=nothing, check=nothing),
        )

    def clean(
        self,
        first_dirty: int = 0,
        *,
        limit: int | None = None,
        now_ms: int = NOW,
        map_bytes: int | None = None,
        producers: Mapping[int, ProducerEnd] | None = None,
    ) -> Cleaned:
        """A whole round, with the exchange of every group; by one map if that has a size."""
        known = self.producers if producers is None else producers
        if self.cleans_by_tasks and map_bytes is None:
            return clean_by_tasks(self, first_dirty, limit=limit, now_ms=now_ms, producers=known)
        cleaning = self.round(
            first_dirty, limit=limit, now_ms=now_ms, map_bytes=map_bytes or MAP_BYTES
        )
        end = cleaning.map_keys()
        for group in cleaning.groups():
            self.exchange(cleaning.rewrite(group, producers=known), group)
        return Cleaned(end, cleaning.statistics())

    def exchange(self, new: Segment, old: Sequence[Segment]) -> None:
        """Puts a new segment in place of others, as a log does."""
        swap.publish(self.files, FOLDER, new)
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [new]
        for each in old:
            for path in each.paths():
                self.files.rename(path, path + DELETED_SUFFIX)
            each.close()
        swap.complete(new)
        self.files.sync_directory(FOLDER)

    def batches(self) -> list[Batch]:
        """Every batch, checked."""
        found = [batch for each in self.segments for _, batch in each.log.batches()]
        for batch in found:
            batch.check()
        return found

    def records(self) -> list[Record]:
        """Every record that is no marker."""
        return [
            record
            for batch in self.batches()
            if not batch.is_control
            for record in records_of(batch)
        ]

    def keys(self) -> list[int]:
        """Keys of the records that have a value."""
        return [int(record.key or b"-1") for record in self.records() if record.value is not None]

    def offsets(self) -> list[int]:
        """Offsets of all records with a value, markers too."""
        return [
            record.offset
            for batch in self.batches()
            for record in records_of(batch)
            if record.value is not None
        ]

    def last_offsets(self) -> list[int]:
        """Last offset of every batch."""
        return [batch.last_offset for batch in self.batches()]

    def aborted(self) -> list[AbortedTxn]:
        """Every aborted transaction in the indexes."""
        return [entry for each in self.segments for entry in each.transactions.entries()]

    def bases(self) -> list[int]:
        """Base offsets of the segments."""
        return [segment.base_offset for segment in self.segments]

    def sizes(self) -> list[int]:
        """Bytes of log of the segments, the active one left out."""
        return [segment_facts(segment).size_bytes for segment in self.segments[:-1]]


def last_sequences(shelf: Shelf) -> dict[int, int]:
    """Last sequence number of every producer that has a data batch."""
    return {
        batch.producer_id: batch.last_sequence
        for batch in shelf.batches()
        if not batch.is_control and batch.has_producer
    }


def clean_by_tasks(
    shelf: Shelf,
    first_dirty: int,
    *,
    limit: int | None,
    now_ms: int,
    producers: Mapping[int, ProducerEnd],
    map_bytes: int = MAP_BYTES,
) -> Cleaned:
    """Clean as `Shelf.clean` does, with the work items of the Spark job, one after the other."""
    planned = plan_groups(
        shelf.segments,
        plan=shelf.plan(first_dirty, limit),
        config=shelf.config,
        now_ms=now_ms,
        map_bytes=map_bytes,
        scratch=SCRATCH,
    )
    shelf.files.make_directory(SCRATCH)
    collected = [collect_keys(shelf.files, each) for each in planned.groups]
    superseded = [compare_keys(shelf.files, each) for each in tag_ranges(planned.groups, collected)]
    items = rewritings(
        planned.groups, collected, superseded, rules=planned.rules, producers=producers
    )
    counts = []
    for item, old in zip(items, planned.segments, strict=True):
        result = rewrite_group(shelf.files, item)
        if isinstance(result, Overflow):
            raise SegmentOverflowError(result.base_offset, offset=result.offset)
        shelf.exchange(take_in(shelf.files, FOLDER, result, config=shelf.config), old)
        counts.append(asdict(result.counts))
    shelf.files.remove_tree(SCRATCH)
    statistics = CleaningStatistics(
        map_bytes_read=sum(each.size_bytes for each in planned.groups),
        map_records_read=sum(each.records for each in collected),
        # There is no one map to tell of.
        unmapped_records=0,
        map_load=0.0,
        **{name: sum(each[name] for each in counts) for name in counts[0]},
    )
    return Cleaned(planned.plan.first_uncleanable, statistics)


def read_back(files: MemoryFiles) -> list[Record]:
    """Every record that a reader of the folder sees, markers left out."""
    reader = open_log_reader(files, FOLDER, log_start_offset=Offset(0))
    return [
        record
        for batch in reader.batches(reader.start_offset, reader.end_offset)
        if not batch.is_control
        for record in records_of(batch)
    ]
