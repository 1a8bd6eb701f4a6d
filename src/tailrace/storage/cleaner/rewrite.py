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
that is read has been found right first. Memory: the map, one run of batches and its output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError, RetriableError
from tailrace.records.batch import Batch
from tailrace.records.layout import DELETE_HORIZON_FLAG
from tailrace.records.legacy import converted
from tailrace.runtime.files import Buffer, Files
from tailrace.storage.cleaner.batches import (
    Change,
    change_of,
    header_only,
    is_foreign_inside,
    legacy_with_chosen,
    rewritten,
)
from tailrace.storage.cleaner.facts import segment_facts
from tailrace.storage.cleaner.key_map import KeyMap
from tailrace.storage.cleaner.output import Output, discard, open_cleaned
from tailrace.storage.cleaner.plan import CleaningPlan, group_segments
from tailrace.storage.cleaner.run import KEEPS_ALL, RUN_BYTES, Choice, Run
from tailrace.storage.cleaner.transactions import CleanedTransactions
from tailrace.storage.config import LogConfig
from tailrace.storage.reads import aborted_between
from tailrace.storage.records_file import RecordsFile
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
    """Called for every run of batches; raises CleaningAbortedError to call the round off."""


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
    """What is written for one batch that is not changed, or is of an older format."""

    data: Buffer
    max_timestamp: int
    kept: int


class _Met(NamedTuple):
    """A batch on its way through a rewriting."""

    batch: Batch
    position: int
    place: int | None
    """Among the batches of its run; None if no record of it stays."""
    is_over: bool
    """Whether it is a marker of which nothing is left."""


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

        def look(run: Run, position: int, batch: Batch) -> None:
            self._counts.map_bytes_read += batch.size
            self._counts.map_records_read += batch.record_count
            if batch.is_control:
                transactions.ends_nothing(batch)
            elif not transactions.is_aborted(batch):
                run.add(batch, position=position)

        def use(run: Run) -> bool:
            return self._map.put(run, start_offset=first_dirty)

        # The index says where the walk begins, and that may be the end; the next pass reads all.
        return self._walk(
            segment, segment.batches(first_dirty), look=look, use=use, end=segment.size
        )

    def _rewrite_segment(
        self, segment: Segment, output: Output, producers: Mapping[int, ProducerEnd]
    ) -> None:
        number = self._segments.index(segment)
        limit = self._segments[number + 1].base_offset
        self._transactions.add_aborted(
            aborted_between(self._segments[number:], segment.base_offset, limit)
        )
        keeps_legacy_tombstones = segment.modified_ms() > self._legacy_horizon_ms
        met: list[_Met] = []

        def look(run: Run, position: int, batch: Batch) -> None:
            self._counts.bytes_read += batch.size
            met.append(
                self._meet(run, position, batch, keeps_legacy_tombstones=keeps_legacy_tombstones)
            )

        def use(run: Run) -> bool:
            self._map.choose(run)
            plans = [
                self._plan_batch(run, each, log=segment.log, producers=producers) for each in met
            ]
            changed = rewritten(run, [each for each in plans if isinstance(each, Change)])
            for (batch, *_), plan in zip(met, plans, strict=True):
                if plan is None:
                    continue
                if not output.segment.can_hold(batch.last_offset):
                    raise SegmentOverflowError(segment.base_offset, offset=batch.last_offset)
                data = next(changed) if isinstance(plan, Change) else plan.data
                output.add(data, last_offset=batch.last_offset, max_timestamp=plan.max_timestamp)
                self._counts.records_written += plan.kept
            met.clear()
            return True

        self._walk(segment, segment.log.batches(), look=look, use=use, end=0)

    def _meet(
        self, run: Run, position: int, batch: Batch, *, keeps_legacy_tombstones: bool
    ) -> _Met:
        """Adds a batch to a run, unless all of its records go for the sake of their transaction."""
        horizon_ms = batch.delete_horizon_or_none
        is_horizon_ahead = horizon_ms is None or self._now_ms < horizon_ms
        is_over = batch.is_control and self._transactions.ends_nothing(batch)
        if batch.is_control:
            drops_all = is_over and not is_horizon_ahead
        else:
            drops_all = self._transactions.is_aborted(batch)
        if drops_all:
            return _Met(batch, position, None, is_over)
        self._counts.records_read += batch.record_count
        place = run.add(
            batch,
            position=position,
            latest_offset=KEEPS_ALL if batch.is_control else self._map.latest_offset,
            keeps_tombstones=keeps_legacy_tombstones if batch.legacy else is_horizon_ahead,
        )
        return _Met(batch, position, place, is_over)

    def _plan_batch(
        self, run: Run, met: _Met, *, log: RecordsFile, producers: Mapping[int, ProducerEnd]
    ) -> _Kept | Change | None:
        """What is written for a batch, or how it is changed, or None when nothing of it stays."""
        batch, position, place, is_over = met
        choice = _NOTHING if place is None else run.choice(place)
        self._counts.unkeyed_records += choice.unkeyed
        if not choice.kept:
            is_last_of_round = batch.next_offset == self._plan.first_uncleanable
            if not (is_last_of_round or _is_last_of_producer(batch, producers)):
                return None
            if not batch.legacy:
                return _Kept(header_only(batch), batch.max_timestamp, 0)
            return _Kept(_stored(batch, log, position), batch.max_timestamp, batch.record_count)
        assert place is not None
        is_whole = choice.kept == batch.record_count
        if batch.legacy:
            if is_whole and not is_foreign_inside(batch.legacy):
                return _Kept(_stored(batch, log, position), batch.max_timestamp, choice.kept)
            data = legacy_with_chosen(batch, run.kept_of(place))
            return _Kept(data, converted(memoryview(data)).max_timestamp, choice.kept)
        has_news = not batch.attributes & DELETE_HORIZON_FLAG and (is_over or choice.tombstones > 0)
        if is_whole and not has_news:
            return _Kept(batch.view, batch.max_timestamp, choice.kept)
        new_horizon_ms = self._now_ms + self._config.delete_retention_ms if has_news else None
        return change_of(batch, place, choice, horizon_ms=new_horizon_ms)

    def _walk(
        self,
        segment: Segment,
        batches: Iterator[tuple[int, Batch]],
        *,
        look: Callable[[Run, int, Batch], None],
        use: Callable[[Run], bool],
        end: int,
    ) -> bool:
        """Looks at each batch, found right, and uses them run by run, until `use` says False.

        `end` is where the walk ends if there is no batch at all.
        """
        due, limit = segment.base_offset, self._segments[self._segments.index(segment) + 1]
        run = Run()
        for position, batch in batches:
            try:
                batch.check()
                _check_offsets(batch, due=due, limit=limit.base_offset)
                look(run, position, batch)
            except CorruptionError as error:
                raise error.located(path=segment.log.path, position=position) from error
            run.stored_bytes += batch.size
            run.next_offset = due = batch.next_offset
            end = position + batch.size
            if run.stored_bytes >= RUN_BYTES:
                if not self._use(run, segment, use):
                    return False
                run = Run()
        if run.stored_bytes and not self._use(run, segment, use):
            return False
        if end != segment.size:
            raise CorruptionError(
                "the last batch is not whole", path=segment.log.path, position=end
            )
        return True

    def _use(self, run: Run, segment: Segment, use: Callable[[Run], bool]) -> bool:
        self._pace.check()
        try:
            goes_on = use(run)
        except CorruptionError as error:
            raise error.located(path=segment.log.path, position=error.position) from error
        self._pace.pause(run.stored_bytes)
        return goes_on


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


_NOTHING: Final = Choice(0, 0, 0, 0, 0, 0)


def _is_last_of_producer(batch: Batch, producers: Mapping[int, ProducerEnd]) -> bool:
    """Whether the state of an active producer would be lost with the batch."""
    end = producers.get(batch.producer_id) if batch.has_producer else None
    if end is None:
        return False
    if end.last_data_offset is not None:
        return batch.last_offset == end.last_data_offset
    # All that is left of it is a marker, whose epoch keeps its zombies out.
    return batch.is_control and batch.producer_epoch == end.epoch


def _stored(batch: Batch, log: RecordsFile, position: int) -> memoryview:
    """The bytes of a batch as they stand in its segment, whatever its format."""
    return log.view(position, position + batch.size)
