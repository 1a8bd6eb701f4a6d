"""One round of cleaning: put keys in the map, then rewrite each group into a new segment.

    map_keys     the newest offset of every key in the dirty part, until the map is full
    groups       the segments up to there, in groups that become one segment each
    rewrite      one group, by the rules of `group`

Invariant: the old segments are only read. Memory: the map, one run of batches and its output.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tailrace.model import Offset
from tailrace.records.batch import Batch
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.runtime.files import Files
from tailrace.storage.cleaner.group import (
    GroupRewriter,
    ProducerEnd,
    RewriteRules,
    legacy_horizon_ms,
)
from tailrace.storage.cleaner.key_map import KeyMap
from tailrace.storage.cleaner.passes import (
    CleaningAbortedError,
    Pace,
    Run,
    SegmentOverflowError,
    SegmentPass,
    segment_facts,
    source_of,
)
from tailrace.storage.cleaner.plan import CleaningPlan, group_segments
from tailrace.storage.cleaner.transactions import CleanedTransactions
from tailrace.storage.config import LogConfig
from tailrace.storage.reads import aborted_between
from tailrace.storage.segment import Segment
from tailrace.storage.segments import Segments
from tailrace.values import dataclass

__all__ = [
    "CleaningAbortedError",
    "CleaningRound",
    "CleaningStatistics",
    "Pace",
    "ProducerEnd",
    "SegmentOverflowError",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStatistics:
    """Counts of a round so far."""

    map_bytes_read: int
    """Bytes read by the first pass, which puts keys in the map."""
    map_records_read: int
    """Records read by the first pass."""
    bytes_read: int
    """Bytes read by the second pass, which writes the new segments."""
    bytes_written: int
    """Bytes in the new segments."""
    records_read: int
    """Records read by the second pass."""
    records_written: int
    """Records in the new segments."""
    unkeyed_records: int
    """Records that were removed because they have no key."""
    unmapped_records: int
    """Records that were kept because their key is larger than the map's arena."""
    map_load: float
    """Share of the map that was in use, from 0 to 1."""


class CleaningRound:
    """A round over one log: `map_keys`, then `rewrite` for each of `groups`.

    May run on any thread: it reads only closed segments.
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
        self._segments = tuple(segments)
        self._config = config
        self._plan = plan
        self._map = key_map
        self._pace = pace
        self._map_bytes_read = 0
        self._map_records_read = 0
        rules = RewriteRules(
            config=config,
            first_uncleanable=plan.first_uncleanable,
            legacy_horizon_ms=legacy_horizon_ms(
                segments, first_dirty=plan.first_dirty, config=config
            ),
            now_ms=now_ms,
        )
        self._rewriter = GroupRewriter(
            files,
            directory,
            rules=rules,
            chooser=key_map,
            transactions=CleanedTransactions(),
            pace=pace,
        )

    def statistics(self) -> CleaningStatistics:
        """The counts so far."""
        return CleaningStatistics(
            map_bytes_read=self._map_bytes_read,
            map_records_read=self._map_records_read,
            **asdict(self._rewriter.counts),
            unmapped_records=self._map.unmapped,
            map_load=self._map.load,
        )

    def map_keys(self) -> int:
        """Clears the map and puts the dirty range in it; returns the offset where the round ends.

        That is the first uncleanable offset, or a lower one if the map is full; it is always above
        the first dirty offset if there is a dirty record.

        Raises:
            CorruptionError: a batch is damaged or not whole, or a transaction index is.
            CleaningAbortedError: from `Pace.check`.
            OSError: the device is failing.
        """
        first_dirty, limit = self._plan.first_dirty, self._plan.first_uncleanable
        self._map.clear()
        # Without a keyed record in the dirty part the round still gets beyond it.
        self._map.skip_to(first_dirty)
        dirty = Segments(self._segments).between(Offset(first_dirty), Offset(limit))
        transactions = CleanedTransactions()
        if dirty:
            later = self._segments[self._segments.index(dirty[0]) :]
            transactions.add_aborted(aborted_between(later, Offset(first_dirty), Offset(limit)))
        ends = [segment.base_offset for segment in dirty[1:]] + [limit]
        # Without a dirty segment `ends` has one entry too many, so `strict` is False.
        for segment, end in zip(dirty, ends, strict=False):
            # Full: the round compacts up to here, the next one the rest.
            if not self._map_segment(segment, transactions):
                break
            # Offsets missing at the end of the segment count as mapped too.
            self._map.skip_to(end)
        return self._map.latest_offset + 1

    def groups(self) -> list[tuple[Segment, ...]]:
        """The segments up to the end of the map, in groups that become one segment each."""
        by_base: dict[int, Segment] = {segment.base_offset: segment for segment in self._segments}
        end = self._map.latest_offset + 1
        facts = [segment_facts(segment) for segment in self._segments if segment.base_offset < end]
        groups = group_segments(
            facts, config=self._config, first_uncleanable=self._plan.first_uncleanable
        )
        return [tuple(by_base[each.base_offset] for each in group) for group in groups]

    def rewrite(self, group: Sequence[Segment], *, producers: Mapping[int, ProducerEnd]) -> Segment:
        """Write the new segment of a group, as `GroupRewriter.rewrite`; groups in order."""
        numbers = map(self._segments.index, group)
        sources = [source_of(self._segments, number) for number in numbers]
        return self._rewriter.rewrite(sources, producers=producers)

    def _map_segment(self, segment: Segment, transactions: CleanedTransactions) -> bool:
        """Put the keys of a segment in the map; returns whether all had room."""
        first_dirty = self._plan.first_dirty

        def look(run: Run, position: int, batch: Batch) -> None:
            self._map_bytes_read += batch.size
            self._map_records_read += batch.record_count
            # The newest record of an aborted transaction must not remove the committed one before
            # it.
            if not transactions.drops(batch):
                # A batch that is too large when decompressed is kept unchanged, without its keys.
                with contextlib.suppress(DecompressedTooLargeError):
                    run.add(batch, position=position)

        def use(run: Run) -> bool:
            return self._map.put(run, start_offset=first_dirty)

        following = self._segments[self._segments.index(segment) + 1]
        # The pass begins where the index says, which may be the end; the next pass reads all.
        return SegmentPass(
            segment.log,
            base_offset=segment.base_offset,
            limit_offset=following.base_offset,
            pace=self._pace,
        ).walk(segment.batches(Offset(first_dirty)), look=look, use=use, end=segment.size)
