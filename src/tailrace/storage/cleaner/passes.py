"""One pass over a closed segment: check each batch, then process batches in runs.

Both passes of a cleaning use it: the one that maps keys and the one that rewrites. A `Run` is
neighbouring batches, whose records go through the kernels in one call: a call takes many times as
long as the work on one record, and batches may have few records.

Invariant: no batch is used before its checksum and its offsets were checked. A run has at most
`RUN_BYTES` of stored bytes, plus one batch.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError, RetriableError
from tailrace.kernels import BATCH_ROW_SIZE, BatchRow
from tailrace.records.batch import Batch
from tailrace.storage.cleaner.plan import CleanableSegment, LogFacts
from tailrace.storage.index.offset import ENTRY as OFFSET_ENTRY
from tailrace.storage.index.time import ENTRY as TIME_ENTRY
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.positions import Positions
from tailrace.storage.reads import aborted_between
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment, retention_time_ms
from tailrace.values import dataclass


class CleaningAbortedError(RetriableError):
    """The round was called off; the log is as it was, but for groups already exchanged."""


class SegmentOverflowError(RetriableError):
    """A segment has offsets that are too far from its base; it has to be split first."""

    def __init__(self, base_offset: int, *, offset: int) -> None:
        self.base_offset = base_offset
        self.offset = offset
        super().__init__(
            f"offset {offset} is 2147483648 or more above the base of segment {base_offset}"
        )


RUN_BYTES: Final = 256 * 1024
"""Small enough that the records stay in the processor's cache between two kernel calls."""

KEEPS_ALL: Final = -(2**63)
"""A latest offset below every record, so that all records are kept."""

_UNWRITTEN: Final = (0,) * (BATCH_ROW_SIZE - BatchRow.KEPT)


class RetainedRecords(NamedTuple):
    """Counts of the kept records of a batch: the fields of a `BatchRow` from KEPT to SIZE."""

    kept: int
    unkeyed: int
    """Records that are removed because they have no key."""
    tombstones: int
    """Kept records without a value."""
    timestamp_delta_first: int
    """Timestamp delta of the first kept record."""
    timestamp_delta_max: int
    """Largest timestamp delta of the kept records; 0 if there are none."""
    size: int
    """Bytes of the kept records, uncompressed."""


class Run:
    """Batches with the arrays that the kernels read and write."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.positions: list[int] = []
        """Position of each batch in its segment, in bytes."""
        self.rows = array("q")
        """A `BatchRow` for each batch."""
        self.keeps = bytearray()
        """A byte for each record: 1 if it is kept."""
        self.stored_bytes = 0
        """Stored bytes of all batches that were read, also of those that were not added."""
        self.next_offset = 0
        """The offset after the last batch that was read."""
        # Index in `keeps` of the first record of each batch.
        self._firsts: list[int] = []
        self._views: list[memoryview] = []
        self._size = 0

    def add(
        self,
        batch: Batch,
        *,
        position: int = 0,
        latest_offset: int = KEEPS_ALL,
        keeps_tombstones: bool = True,
    ) -> int:
        """Decompresses and adds a batch; returns its index in the run.

        Raises:
            CorruptCompressionError: the payload cannot be decompressed.
            UnsupportedCodecError: the codec number is undefined.
        """
        view = batch.records_view()
        start, self._size = self._size, self._size + len(view)
        self.rows.extend((
            start, self._size, batch.record_count, batch.base_offset,
            latest_offset, keeps_tombstones, *_UNWRITTEN,
        ))  # fmt: skip
        self._firsts.append(len(self.keeps))
        # A wrong record count must not cost much memory before a kernel refuses it.
        self.keeps += bytes(max(0, min(batch.record_count, len(view))))
        self._views.append(view)
        self.batches.append(batch)
        self.positions.append(position)
        return len(self.batches) - 1

    def data(self) -> memoryview:
        """The records of all batches, one after the other."""
        if len(self._views) > 1:
            self._views = [memoryview(b"".join(self._views))]
        return self._views[0] if self._views else memoryview(b"")

    def choice(self, place: int) -> RetainedRecords:
        """The counts of the kept records of a batch, after `KeyMap.choose`."""
        row = BATCH_ROW_SIZE * place
        return RetainedRecords._make(self.rows[row + BatchRow.KEPT : row + BatchRow.SIZE + 1])

    def kept_of(self, place: int) -> bytearray:
        """The bytes of `keeps` for one batch, after `KeyMap.choose`."""
        first = self._firsts[place]
        return self.keeps[first : first + self.batches[place].record_count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Callbacks that throttle and abort a round."""

    pause: Callable[[int], None]
    """Called with the bytes that were read or written; may wait."""
    check: Callable[[], None]
    """Called for every run of batches; raises CleaningAbortedError to abort the round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A closed segment to rewrite, with its limits and its aborted transactions."""

    log: RecordsFile
    base_offset: int
    limit_offset: int
    """Base offset of the next segment."""
    modified_ms: int
    aborted: tuple[AbortedTxn, ...]
    """The aborted transactions with a record in it."""


def source_of(segments: Sequence[Segment], number: int) -> SourceSegment:
    """The facts of segment `number` of a log, which must not be the last one.

    Raises:
        CorruptionError: a transaction index is damaged.
        OSError: the time of the file cannot be read.
    """
    segment, limit_offset = segments[number], segments[number + 1].base_offset
    return SourceSegment(
        log=segment.log,
        base_offset=segment.base_offset,
        limit_offset=limit_offset,
        modified_ms=segment.modified_ms(),
        aborted=aborted_between(segments[number:], segment.base_offset, limit_offset),
    )


def segment_facts(segment: Segment) -> CleanableSegment:
    """The facts of one segment.

    Raises:
        CorruptionError: the log does not begin with a batch.
        OSError: the file's time cannot be read.
    """
    return CleanableSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size,
        largest_timestamp_ms=retention_time_ms(segment),
        first_timestamp_ms=segment.first_timestamp,
        offset_index_bytes=segment.offset_index.entries.count * OFFSET_ENTRY.size,
        time_index_bytes=segment.time_index.entries.count * TIME_ENTRY.size,
    )


def log_facts(segments: Sequence[Segment], positions: Positions) -> LogFacts:
    """The facts of a log and all of its segments.

    Raises:
        CorruptionError: a log file does not begin with a batch.
        OSError: the time of a file cannot be read.
    """
    return LogFacts(
        log_start=positions.log_start,
        last_stable=positions.last_stable,
        log_end=positions.log_end,
        segments=tuple(segment_facts(segment) for segment in segments),
    )


class SegmentPass:
    """A pass over the log of one closed segment."""

    def __init__(
        self, log: RecordsFile, *, base_offset: int, limit_offset: int, pace: Pace
    ) -> None:
        self._log = log
        self._base_offset = base_offset
        self._limit_offset = limit_offset
        self._pace = pace

    def walk(
        self,
        batches: Iterator[tuple[int, Batch]],
        *,
        look: Callable[[Run, int, Batch], None],
        use: Callable[[Run], bool],
        end: int,
    ) -> bool:
        """Calls `look` for each batch and `use` for each run; returns whether it came to the end.

        It stops when `use` returns False. `end` is the end position if there is no batch.

        Raises:
            CorruptionError: a batch is damaged or not whole; or from `look` and `use`.
            CleaningAbortedError: from `Pace.check`.
        """
        due = self._base_offset
        run = Run()
        for position, batch in batches:
            try:
                batch.check()
                _check_offsets(batch, due=due, limit=self._limit_offset)
                look(run, position, batch)
            except CorruptionError as error:
                raise error.located(path=self._log.path, position=position) from error
            run.stored_bytes += batch.size
            run.next_offset = due = batch.next_offset
            end = position + batch.size
            if run.stored_bytes >= RUN_BYTES:
                if not self._use(run, use):
                    return False
                run = Run()
        if run.stored_bytes and not self._use(run, use):
            return False
        if end != self._log.size:
            raise CorruptionError("the last batch is not whole", path=self._log.path, position=end)
        return True

    def _use(self, run: Run, use: Callable[[Run], bool]) -> bool:
        self._pace.check()
        try:
            goes_on = use(run)
        except CorruptionError as error:
            raise error.located(path=self._log.path, position=error.position) from error
        self._pace.pause(run.stored_bytes)
        return goes_on


def _check_offsets(batch: Batch, *, due: int, limit: int) -> None:
    """Check that a batch's offsets are in order: no checksum covers its base offset.

    The wrapper of an older format stores only its last offset, so its first is not checked.
    """
    first = batch.last_offset if batch.legacy is not None else batch.base_offset
    if not due <= first <= batch.last_offset < limit:
        raise CorruptionError(
            f"a batch has offsets {batch.base_offset} to {batch.last_offset}, and only offsets "
            f"from {due} to below {limit} are valid here",
            offset=batch.base_offset,
        )
