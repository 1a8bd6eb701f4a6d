"""Rewrite a group of segments into one new segment, with the records that compaction keeps.

    170.log  200.log  230.log   ->   170.log.cleaned, 170.index.cleaned, ...

The old segments are only read, so after an error the log is unchanged; `cleaner.swap` exchanges the
segments. The rules are Kafka's (Cleaner, RecordFilter):

* A record is kept if it lies above the chooser's latest offset, or is the newest of its key.
* A tombstone is kept until its batch's delete horizon has passed. The first pass that reads it sets
  the horizon (KIP-534); in formats v0 and v1 the age of the segment decides.
* Data of aborted transactions is removed. A marker is removed when no data of its transaction is
  left and its horizon has passed.
* A producer's last batch, and the last batch before the uncleanable part, are kept at least as a
  header, so that sequence numbers and the last offset are not lost. An entry of v0 or v1 cannot be
  only a header, so it is kept unchanged. (Kafka fails the whole partition there.)

A `Chooser` knows which record is the newest of its key: in a broker the `KeyMap` of the round
(`rewrite`).

Invariant: batches that lose no record are copied byte for byte, offsets never change, and every
batch is checked before it is used. Memory: one run of batches and its output.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tailrace.config.settings import INT64_MAX
from tailrace.model import Position
from tailrace.records.batch import Batch
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.layout import DELETE_HORIZON_FLAG
from tailrace.records.legacy import converted
from tailrace.runtime.files import Buffer, Files
from tailrace.storage.cleaner.batches import (
    RewrittenBatch,
    change_of,
    header_only,
    is_foreign_inside,
    legacy_with_chosen,
    rewritten,
)
from tailrace.storage.cleaner.output import CleanedSegmentWriter, discard, open_cleaned
from tailrace.storage.cleaner.passes import (
    KEEPS_ALL,
    Pace,
    RetainedRecords,
    Run,
    SegmentOverflowError,
    SegmentPass,
    SourceSegment,
)
from tailrace.storage.cleaner.transactions import CleanedTransactions
from tailrace.storage.config import LogConfig
from tailrace.storage.producers import ProducerStates
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment
from tailrace.values import dataclass

logger = logging.getLogger(__name__)


class ProducerEnd(NamedTuple):
    """The newest batch in a log of one active producer."""

    last_data_offset: int | None
    """Last offset of its last data batch; None if the log has only a marker of it."""
    epoch: int


def producer_ends(producers: ProducerStates) -> dict[int, ProducerEnd]:
    """The newest batch of each active producer of a log."""
    return {
        producer_id: ProducerEnd(
            last_data_offset=known.batches[-1].last_offset if known.batches else None,
            epoch=known.epoch,
        )
        for producer_id, known in producers.items()
    }


class Chooser(Protocol):
    """Decides which records are the newest of their keys."""

    @property
    def latest_offset(self) -> int:
        """Records up to this offset can be decided; -1 for none."""
        ...

    def choose(self, run: Run) -> None:
        """Mark in a run which of its records are kept; called with runs in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRules:
    """Settings and limits for all groups of a round."""

    config: LogConfig
    first_uncleanable: int
    """Base offset of the first segment that is not rewritten."""
    legacy_horizon_ms: int
    """Tombstones of v0 and v1 are removed from segments that were last modified before this."""
    now_ms: int


def legacy_horizon_ms(segments: Sequence[Segment], *, first_dirty: int, config: LogConfig) -> int:
    """The legacy horizon: `delete.retention.ms` before the last write of the clean part.

    Raises:
        OSError: the time of a file cannot be read.
    """
    clean = [each for each in segments if each.base_offset < first_dirty]
    return clean[-1].modified_ms() - config.delete_retention_ms if clean else 0


@dataclass(slots=True)
class RewriteCounts:
    """Counts of a rewriting so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    unkeyed_records: int = 0
    """Records that were removed because they have no key."""


class _BatchBytes(NamedTuple):
    """The bytes to write for a batch that is unchanged, only a header, or of an older format."""

    data: Buffer
    max_timestamp: int
    kept: int


class _ReadBatch(NamedTuple):
    """A batch that a rewriting has read and not written yet."""

    batch: Batch
    position: int
    place: int | None
    """Index of the batch in its run; None if no record of it is kept."""
    is_over: bool
    """Whether it is a marker whose transaction has no data left."""
    is_unread: bool = False
    """Whether it decompresses to more than the limit of the process: it is kept unchanged."""


_NOTHING: Final = RetainedRecords(0, 0, 0, 0, 0, 0)


class GroupRewriter:
    """Rewrites groups of one log, in the order of their offsets."""

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        rules: RewriteRules,
        chooser: Chooser,
        transactions: CleanedTransactions,
        pace: Pace,
    ) -> None:
        """Creates segments in `directory`; `transactions` is the state before the first group."""
        self.counts = RewriteCounts()
        self._files = files
        self._directory = directory
        self._rules = rules
        self._chooser = chooser
        self._transactions = transactions
        self._pace = pace
        # Whether a batch was unread. Tombstones are kept then: one may be for a value in it.
        self._has_unread = False

    def rewrite(
        self, group: Sequence[SourceSegment], *, producers: Mapping[int, ProducerEnd]
    ) -> Segment:
        """Write the new segment of a group, as `.cleaned` files; on the device on return.

        `producers` are the producers that are active now. When this raises, the `.cleaned` files
        are removed.

        Raises:
            CorruptionError: a batch is damaged or not whole, or a transaction index is.
            CleaningAbortedError: from `Pace.check`.
            SegmentOverflowError: a segment has to be split before it can be cleaned.
            OSError: the device is full or failing.
        """
        cleaned = open_cleaned(
            self._files,
            self._directory,
            base_offset=group[0].base_offset,
            config=self._rules.config,
            size_max=sum(source.log.size for source in group),
        )
        try:
            output = CleanedSegmentWriter(cleaned, self._pace.pause)
            for source in group:
                self._rewrite_segment(source, output, producers)
            output.flush()
            # With their markers: an index entry whose marker is gone would be harmless, one that is
            # missing would make aborted records visible.
            for aborted in self._transactions.retained:
                cleaned.transactions.append(aborted)
            self._transactions.retained.clear()
            cleaned.finish()
            # Before it is published: from then on a start removes the old segments.
            cleaned.sync()
            # Of the last one, as in Kafka: retention, and the age of older tombstones, count from
            # it.
            self._files.set_modified_ms(cleaned.log.path, group[-1].modified_ms)
        except Exception as error:
            discard(self._files, cleaned, after=error)
            raise
        self.counts.bytes_written += cleaned.size
        return cleaned

    def _rewrite_segment(
        self,
        source: SourceSegment,
        output: CleanedSegmentWriter,
        producers: Mapping[int, ProducerEnd],
    ) -> None:
        self._transactions.add_aborted(source.aborted)
        keeps_legacy_tombstones = source.modified_ms > self._rules.legacy_horizon_ms
        met: list[_ReadBatch] = []

        def look(run: Run, position: int, batch: Batch) -> None:
            self.counts.bytes_read += batch.size
            met.append(
                self._meet(run, position, batch, keeps_legacy_tombstones=keeps_legacy_tombstones)
            )

        def use(run: Run) -> bool:
            self._chooser.choose(run)
            plans = [
                self._plan_batch(run, each, log=source.log, producers=producers) for each in met
            ]
            changed = rewritten(run, [each for each in plans if isinstance(each, RewrittenBatch)])
            for (batch, *_), plan in zip(met, plans, strict=True):
                if plan is None:
                    continue
                # Segments of Kafka before 1.0.2 (KAFKA-6264).
                if not output.segment.can_hold(batch.last_offset):
                    raise SegmentOverflowError(source.base_offset, offset=batch.last_offset)
                data = next(changed) if isinstance(plan, RewrittenBatch) else plan.data
                output.add(data, last_offset=batch.last_offset, max_timestamp=plan.max_timestamp)
                self.counts.records_written += plan.kept
            met.clear()
            return True

        SegmentPass(
            source.log,
            base_offset=source.base_offset,
            limit_offset=source.limit_offset,
            pace=self._pace,
        ).walk(source.log.batches(), look=look, use=use, end=0)

    def _meet(
        self, run: Run, position: int, batch: Batch, *, keeps_legacy_tombstones: bool
    ) -> _ReadBatch:
        """Adds a batch to a run, unless its transaction lets all of its records be removed."""
        horizon_ms = batch.delete_horizon_or_none
        is_horizon_ahead = horizon_ms is None or self._rules.now_ms < horizon_ms
        is_over = batch.is_control and self._transactions.ends_nothing(batch)
        # A marker stays for `delete.retention.ms` after its last record went: a consumer that has
        # read the records must still learn the end (KIP-98).
        if batch.is_control:
            drops_all = is_over and not is_horizon_ahead
        else:
            drops_all = self._transactions.is_aborted(batch)
        if drops_all:
            return _ReadBatch(batch, position, None, is_over)
        self.counts.records_read += batch.record_count
        keeps_tombstones = keeps_legacy_tombstones if batch.legacy else is_horizon_ahead
        try:
            place = run.add(
                batch,
                position=position,
                latest_offset=KEEPS_ALL if batch.is_control else self._chooser.latest_offset,
                keeps_tombstones=keeps_tombstones or self._has_unread,
            )
        except DecompressedTooLargeError as error:
            logger.warning("batch_not_compacted offset=%d reason=%s", batch.base_offset, error)
            self._has_unread = True
            return _ReadBatch(batch, position, None, is_over, is_unread=True)
        return _ReadBatch(batch, position, place, is_over)

    def _plan_batch(
        self, run: Run, met: _ReadBatch, *, log: RecordsFile, producers: Mapping[int, ProducerEnd]
    ) -> _BatchBytes | RewrittenBatch | None:
        """The bytes to write for a batch, or its change, or None if the batch is removed."""
        batch, position, place, is_over, is_unread = met
        if is_unread:
            return _BatchBytes(
                _stored(batch, log, position), batch.max_timestamp, batch.record_count
            )
        choice = _NOTHING if place is None else run.choice(place)
        self.counts.unkeyed_records += choice.unkeyed
        if not choice.kept:
            is_last_of_round = batch.next_offset == self._rules.first_uncleanable
            # Empty batches stay where they say something: the end of the range that was cleaned,
            # and the sequence of a producer that is still active.
            if not (is_last_of_round or _is_last_of_producer(batch, producers)):
                return None
            if not batch.legacy:
                return _BatchBytes(header_only(batch), batch.max_timestamp, 0)
            return _BatchBytes(
                _stored(batch, log, position), batch.max_timestamp, batch.record_count
            )
        assert place is not None
        is_whole = choice.kept == batch.record_count
        if batch.legacy:
            if is_whole and not is_foreign_inside(batch.legacy):
                return _BatchBytes(_stored(batch, log, position), batch.max_timestamp, choice.kept)
            data = legacy_with_chosen(batch, run.kept_of(place))
            return _BatchBytes(data, converted(memoryview(data)).max_timestamp, choice.kept)
        has_news = not batch.attributes & DELETE_HORIZON_FLAG and (is_over or choice.tombstones > 0)
        # Byte for byte, without decompressing twice: most batches of a clean log.
        if is_whole and not has_news:
            return _BatchBytes(batch.view, batch.max_timestamp, choice.kept)
        retention_ms = self._rules.config.delete_retention_ms
        # From the first round that saw the tombstone, and not from its timestamp (KIP-534).
        horizon_ms = min(self._rules.now_ms + retention_ms, INT64_MAX)
        new_horizon_ms = horizon_ms if has_news else None
        return change_of(batch, place, choice, horizon_ms=new_horizon_ms)


def _is_last_of_producer(batch: Batch, producers: Mapping[int, ProducerEnd]) -> bool:
    """Whether removing the batch would lose the state of an active producer."""
    end = producers.get(batch.producer_id) if batch.has_producer else None
    if end is None:
        return False
    if end.last_data_offset is not None:
        return batch.last_offset == end.last_data_offset
    # The log has only a marker of this producer; its epoch fences zombies.
    return batch.is_control and batch.producer_epoch == end.epoch


def _stored(batch: Batch, log: RecordsFile, position: int) -> memoryview:
    """The bytes of a batch as they are in its segment, in any format."""
    return memoryview(log.read(Position(position), position + batch.size))
