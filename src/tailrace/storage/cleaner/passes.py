"""One pass over a closed segment: check each batch, then process batches in runs.

Both passes of a cleaning use it: the one that maps keys and the one that rewrites.

Invariant: no batch is used before its checksum and its offsets were checked.
"""

from collections.abc import Callable, Iterator, Sequence

from tailrace.errors import CorruptionError
from tailrace.records.batch import Batch
from tailrace.storage.cleaner.run import RUN_BYTES, Run
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.reads import aborted_between
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment
from tailrace.values import dataclass


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


class SegmentPass:
    """A pass over the log of one closed segment."""

    def __init__(
        self, log: RecordsFile, *, base_offset: int, limit_offset: int, pace: Pace
    ) -> None:
        """`limit_offset` is the base offset of the next segment."""
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
