"""One round of cleaning: keys into the map, then group after group of segments into a new one.

    170.log  200.log  230.log   ->   170.log.cleaned, 170.index.cleaned, ...

The old segments are only read, so whatever goes wrong here, the log is as it was; the exchange is
`tailrace.storage.cleaner.swap`. The rules about what stays are Kafka's (Cleaner, RecordFilter):

* A record stays if it lies behind what the map has seen, or if it is the newest of its key.
* A tombstone stays until its batch's delete horizon has passed. The pass that first sees it sets
  the horizon (KIP-534); in formats v0 and v1 the age of the segment decides.
* Data of aborted transactions goes, and a marker goes once nothing of its transaction is left and
  its horizon has passed.
* A producer's last batch, and the last batch before the part that may not be cleaned, stay at
  least as a header: sequence numbers and the last offset must not be lost. An entry of v0 or v1
  cannot be a mere header; it then stays as it is. (Kafka gives up on the whole partition there.)

Invariant: batches that lose nothing are copied byte for byte, offsets never change, and every byte
that is read has been found right first. Memory: the map, one batch and one chunk of output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError, RetriableError
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.legacy import converted
from tailrace.runtime.files import Buffer, Files
from tailrace.storage.cleaner.batches import (
    header_only,
    is_foreign_inside,
    legacy_with_chosen,
    with_chosen,
)
from tailrace.storage.cleaner.facts import segment_facts
from tailrace.storage.cleaner.key_map import Choice, KeyMap
from tailrace.storage.cleaner.output import CHUNK_BYTES, Output, discard, open_cleaned
from tailrace.storage.cleaner.plan import CleaningPlan, group_segments
from tailrace.storage.cleaner.transactions import CleanedTransactions, aborted_between
from tailrace.storage.config import LogConfig
from tailrace.storage.segment import Segment
from tailrace.storage.segments import Segments


class CleaningAbortedError(RetriableError):
    """The round was called off; the log is as it was, but for groups already exchanged."""


class SegmentOverflowError(RetriableError):
    """A segment has offsets that are too far from its base; it has to be split first."""

    def __init__(self, base_offset: int, *, offset: int) -> None:
        self.base_offset = base_offset
        self.offset = offset
        super().__init__(
            f"offset {offset} is 2147483648 or more behind the base of segment {base_offset}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a round lets others have their turn."""

    pause: Callable[[int], None]
    """Called with every so many bytes read or written; may take its time."""
    check: Callable[[], None]
    """Called for every batch; raises CleaningAbortedError to call the round off."""


class ProducerEnd(NamedTuple):
    """The newest that a log has of one active producer."""

    last_data_offset: int | None
    """Last offset of its last data batch; None if the log has only a marker of it."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStatistics:
    """What a round has done so far."""

    map_bytes_read: int
    map_records_read: int
    bytes_read: int
    """By the second pass, as are the records."""
    bytes_written: int
    records_read: int
    records_written: int
    unkeyed_records: int
    """Records that went because they have no key."""
    unmapped_records: int
    """Records that stayed because their key is larger than the map."""
    map_load: float
    """Share of the map that was in use, from 0 to 1."""


@dataclass(slots=True)
class _Counts:
    """The counters of `CleaningStatistics` while they rise."""

    map_bytes_read: int = 0
    map_records_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    unkeyed_records: int = 0


class _Kept(NamedTuple):
    """What is written for one batch."""

    data: Buffer
    max_timestamp: int
    records: int


class CleaningRound:
    """A round over one log: `map_keys`, then `rewrite` for each of `groups`.

    May run on any thread: it touches only segments that take no more writes.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        segments: Sequence[Segment],
        config: LogConfig,
        plan: CleaningPlan,
        key_map: KeyMap,
        now_ms: int,
        pace: Pace,
    ) -> None:
        """Takes all segments of the log, in order; the last is the active one."""
        self._files = files
        self._directory = directory
        self._segments = tuple(segments)
        self._config = config
        self._plan = plan
        self._map = key_map
        self._now_ms = now_ms
        self._pace = pace
        self._transactions = CleanedTransactions()
        self._counts = _Counts()
        clean = [each for each in segments if each.base_offset < plan.first_dirty]
        self._legacy_horizon_ms = (
            clean[-1].modified_ms() - config.delete_retention_ms if clean else 0
        )

    def statistics(self) -> CleaningStatistics:
        """What has been done so far."""
        return CleaningStatistics(
            **asdict(self._counts),
            unmapped_records=self._map.unmapped,
            map_load=self._map.load,
        )

    def map_keys(self) -> int:
        """Clears the map and puts the dirty range in it; returns where the round will end.

        That is the first uncleanable offset, or less when the map is full before. At least one
        record more than the first dirty offset is always reached.

        Raises:
            CorruptionError: a batch is damaged or not whole, or a transaction index is.
            CleaningAbortedError: from `Pace.check`.
            OSError: the device is failing.
        """
        first_dirty, limit = self._plan.first_dirty, self._plan.first_uncleanable
        self._map.clear()
        self._map.skip_to(first_dirty)
        dirty = Segments(self._segments).between(first_dirty, limit)
        transactions = CleanedTransactions()
        if dirty:
            later = self._segments[self._segments.index(dirty[0]) :]
            transactions.add_aborted(aborted_between(later, first_dirty, limit))
        ends = [segment.base_offset for segment in dirty[1:]] + [limit]
        # Without a dirty segment there is an end too many: it is where the round begins.
        for segment, end in zip(dirty, ends, strict=False):
            if not self._map_segment(segment, transactions):
                break
            # Offsets that nobody has any more, up to the next segment, are done with as well.
            self._map.skip_to(end)
        return self._map.latest_offset + 1

    def groups(self) -> list[tuple[Segment, ...]]:
        """The segments up to where the map has come, in runs of which each becomes one segment."""
        by_base = {segment.base_offset: segment for segment in self._segments}
        end = self._map.latest_offset + 1
        facts = [segment_facts(segment) for segment in self._segments if segment.base_offset < end]
        groups = group_segments(
            facts, config=self._config, first_uncleanable=self._plan.first_uncleanable
        )
        return [tuple(by_base[each.base_offset] for each in group) for group in groups]

    def rewrite(self, group: Sequence[Segment], *, producers: Mapping[int, ProducerEnd]) -> Segment:
        """The new segment of a group, as `.cleaned` files that are on the device.

        Groups come in order. `producers` are the active ones, as they are when the group's turn
        comes. When this raises, the `.cleaned` files are gone again.

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
            config=self._config,
            size_max=sum(segment.size for segment in group),
        )
        try:
            output = Output(cleaned, self._pace.pause)
            for segment in group:
                self._rewrite_segment(segment, output, producers)
            output.flush()
            for aborted in self._transactions.retained:
                cleaned.transactions.append(aborted)
            self._transactions.retained.clear()
            cleaned.finish()
            cleaned.sync()
            self._files.set_modified_ms(cleaned.log.path, group[-1].modified_ms())
        except Exception as error:
            discard(self._files, cleaned, after=error)
            raise
        self._counts.bytes_written += cleaned.size
        return cleaned

    def _map_segment(self, segment: Segment, transactions: CleanedTransactions) -> bool:
        """Whether the whole segment is in the map."""
        first_dirty = self._plan.first_dirty

        def put(batch: Batch, _: memoryview) -> bool:
            self._counts.map_bytes_read += batch.size
            self._counts.map_records_read += batch.record_count
            if batch.is_control:
                transactions.ends_nothing(batch)
            elif not transactions.is_aborted(batch):
                return self._map.put(batch, start_offset=first_dirty)
            self._map.skip_to(batch.next_offset)
            return True

        # The index says where the walk begins, and that may be the end; the next pass reads all.
        return self._walk(segment, segment.batches(first_dirty), put, end=segment.size)

    def _rewrite_segment(
        self, segment: Segment, output: Output, producers: Mapping[int, ProducerEnd]
    ) -> None:
        number = self._segments.index(segment)
        limit = self._segments[number + 1].base_offset
        self._transactions.add_aborted(
            aborted_between(self._segments[number:], segment.base_offset, limit)
        )
        keeps_legacy_tombstones = segment.modified_ms() > self._legacy_horizon_ms
        counts = self._counts

        def copy(batch: Batch, raw: memoryview) -> bool:
            kept = self._kept_or_none(
                batch,
                raw,
                is_last_of_producer=_is_last_of_producer(batch, producers),
                keeps_legacy_tombstones=keeps_legacy_tombstones,
            )
            counts.bytes_read += batch.size
            if kept is not None:
                if not output.segment.can_hold(batch.last_offset):
                    raise SegmentOverflowError(segment.base_offset, offset=batch.last_offset)
                counts.records_written += kept.records
                output.add(
                    kept.data, last_offset=batch.last_offset, max_timestamp=kept.max_timestamp
                )
            return True

        self._walk(segment, segment.log.batches(), copy, end=0)

    def _kept_or_none(
        self,
        batch: Batch,
        raw: memoryview,
        *,
        is_last_of_producer: bool,
        keeps_legacy_tombstones: bool,
    ) -> _Kept | None:
        """What is written for a batch, or None when nothing of it stays."""
        horizon_ms = batch.delete_horizon_or_none
        is_horizon_ahead = horizon_ms is None or self._now_ms < horizon_ms
        is_over = batch.is_control and self._transactions.ends_nothing(batch)
        if batch.is_control:
            drops_all = is_over and not is_horizon_ahead
        else:
            drops_all = self._transactions.is_aborted(batch)
        view, choice = _NO_BYTES, _NOTHING
        if not drops_all:
            self._counts.records_read += batch.record_count
            view = batch.records_view()
            if batch.is_control:
                choice = _all_of(batch, view)
            else:
                is_kept_long = keeps_legacy_tombstones if batch.legacy else is_horizon_ahead
                choice = self._map.choose(batch, view, keeps_tombstones=is_kept_long)
                self._counts.unkeyed_records += choice.unkeyed
        if not choice.kept:
            is_last_of_round = batch.next_offset == self._plan.first_uncleanable
            return _stub(batch, raw) if is_last_of_producer or is_last_of_round else None
        if batch.legacy:
            return _legacy(batch, raw, choice)
        has_news = horizon_ms is None and (is_over or choice.tombstones > 0)
        if choice.kept == batch.record_count and not has_news:
            return _Kept(raw, batch.max_timestamp, choice.kept)
        new_horizon_ms = self._now_ms + self._config.delete_retention_ms if has_news else None
        data = with_chosen(batch, view, choice, horizon_ms=new_horizon_ms)
        return _Kept(data, Batch(memoryview(data)).max_timestamp, choice.kept)

    def _walk(
        self,
        segment: Segment,
        batches: Iterator[tuple[int, Batch]],
        use: Callable[[Batch, memoryview], bool],
        *,
        end: int,
    ) -> bool:
        """Hands over each batch, found right, and its stored bytes, until `use` says False.

        `end` is where the walk ends if there is no batch at all.
        """
        due, limit = segment.base_offset, self._segments[self._segments.index(segment) + 1]
        unpaced = 0
        for position, batch in batches:
            self._pace.check()
            raw = batch.view
            if batch.legacy is not None:
                raw = segment.log.view(position, position + batch.size)
            try:
                batch.check()
                _check_offsets(batch, due=due, limit=limit.base_offset)
                goes_on = use(batch, raw)
            except CorruptionError as error:
                raise error.located(path=segment.log.path, position=position) from error
            due = batch.next_offset
            unpaced += batch.size
            if unpaced >= CHUNK_BYTES or not goes_on:
                self._pace.pause(unpaced)
                unpaced = 0
            if not goes_on:
                return False
            end = position + batch.size
        if unpaced:
            self._pace.pause(unpaced)
        if end != segment.size:
            raise CorruptionError(
                "the last batch is not whole", path=segment.log.path, position=end
            )
        return True


def _check_offsets(batch: Batch, *, due: int, limit: int) -> None:
    """Hold offsets against what stands around them, since no checksum covers the first one.

    The wrapper of an older format has its last offset alone, so its first is taken as it comes.
    """
    first = batch.last_offset if batch.legacy is not None else batch.base_offset
    if not due <= first <= batch.last_offset < limit:
        raise CorruptionError(
            f"offsets {batch.base_offset} to {batch.last_offset} where those from {due} to below "
            f"{limit} may stand",
            offset=batch.base_offset,
        )


_NO_BYTES: Final = memoryview(b"")
_NOTHING: Final = Choice(
    keeps=bytearray(), kept=0, unkeyed=0, tombstones=0, timestamp_delta_max=0, size=0
)


def _all_of(batch: Batch, view: memoryview) -> Choice:
    totals = check_records(batch)
    return Choice(
        keeps=bytearray(b"\x01") * batch.record_count,
        kept=batch.record_count,
        unkeyed=0,
        tombstones=0,
        timestamp_delta_max=totals.timestamp_delta_max,
        size=len(view),
    )


def _is_last_of_producer(batch: Batch, producers: Mapping[int, ProducerEnd]) -> bool:
    """Whether the state of an active producer would be lost with the batch."""
    end = producers.get(batch.producer_id) if batch.has_producer else None
    if end is None:
        return False
    if end.last_data_offset is not None:
        return batch.last_offset == end.last_data_offset
    # All that is left of it is a marker, whose epoch keeps its zombies out.
    return batch.is_control and batch.producer_epoch == end.epoch


def _stub(batch: Batch, raw: memoryview) -> _Kept:
    """A batch that has lost all records and has to stay."""
    if batch.legacy is not None:
        return _Kept(raw, batch.max_timestamp, batch.record_count)
    return _Kept(header_only(batch), batch.max_timestamp, 0)


def _legacy(batch: Batch, raw: memoryview, choice: Choice) -> _Kept:
    assert batch.legacy is not None
    if choice.kept == batch.record_count and not is_foreign_inside(batch.legacy):
        return _Kept(raw, batch.max_timestamp, choice.kept)
    data = legacy_with_chosen(batch, choice.keeps)
    max_timestamp = converted(memoryview(data)).max_timestamp
    return _Kept(data, max_timestamp, choice.kept)
