"""`LogView`: one partition's log at one moment, as far as it can and may be read.

Over the batches that `LogReader` gives, it decides what of them a reader sees: with read_committed
nothing from the first open transaction on, and no record of an aborted one; and where damage is
skipped, what is sound around it.

    position   0          150        300        450        600
    bytes      | sound    | damaged  | sound    | sound    | torn
    raise      |--------->X
    skip       |--------->  reported  |------------------->  reported

Not here: later looks at the same log, and records (`log`).

Invariant: a batch that is given out has the right checksum and fits between its neighbours, and
every wanted offset is in one of them, in what is reported, or was never there.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tailrace.errors import (
    CorruptionError,
    OffsetsDeletedError,
    TailraceError,
    UnsupportedCodecError,
)
from tailrace.model import OFFSET_MAX, IsolationLevel, Offset, TopicPartition
from tailrace.reading.damage import (
    Drop,
    LogDamage,
    find_segment_damage,
    find_tail_damage,
    sound_ranges,
)
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.located import OnSkip, Skipped, decoding
from tailrace.reading.lookup import offset_before_time
from tailrace.reading.reader import LogReader, StoredBatch, StoredRun, open_log_reader
from tailrace.reading.transactions import (
    AbortedRecords,
    OpenTransactions,
    find_aborted,
    find_open_transactions,
)
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.runs import BatchRun
from tailrace.records.search import find_timestamp
from tailrace.runtime.files import File, FileCutError, Files
from tailrace.storage.walk import walk_runs

_FIRST: Final = Offset(0)

UNREADABLE: Final = (CorruptionError, UnsupportedCodecError, DecompressedTooLargeError)
"""The errors of a batch with the right checksum that `LogView.leave_out` takes."""


class Span(NamedTuple):
    """A range of offsets of one partition."""

    partition: TopicPartition
    start: Offset
    limit: Offset


class _DamagedSegment(NamedTuple):
    """A segment that cannot be read from end to end."""

    files: SegmentFiles
    following: Offset | None
    """Base offset of the next one."""
    file: File
    damage: LogDamage


class _Tail:
    """Decides what the bytes after the last whole batch are, and remembers it."""

    def __init__(self, files: Files, partition: TopicPartition, *, is_skipped: bool) -> None:
        self.skipped: list[Skipped] = []
        """Damaged ranges after the end of the log, if damage is skipped."""
        self.torn: Skipped | None = None
        """A batch at the very end that is not whole: an append in progress, or a torn one."""
        self.error: CorruptionError | None = None
        """Damage after the end of the log, if damage is an error."""
        self._files = files
        self._partition = partition
        self._is_skipped = is_skipped

    def resolve(self, last: SegmentFiles, end: Offset, error: CorruptionError | None) -> Offset:
        """An append in progress has nothing after it; damage may have sound batches there."""
        self.error, self.torn, self.skipped = None, None, []
        # Looked for only if there are bytes: a log that ends well costs nothing.
        found = find_tail_damage(self._files, last, end)
        # Nothing sound comes after these bytes, so they are an append in progress, or what a kill
        # left of one.
        if error is None and found.log_end <= end:
            if found.drops:
                self.torn = _skipped(self._partition, found.drops[-1], end, limit=None)
            return end
        # The log ends here for this reader; the error comes when everything before it is read.
        if not self._is_skipped:
            self.error = error or _first_error(found.drops, end)
            return end
        self.skipped = [
            _skipped(self._partition, drop, drop.offset, limit=None)
            for drop in found.drops
            if drop.offset >= found.log_end
        ]
        return found.log_end


class LogView:
    """One partition's log as it stood when it was opened; see `open_view`."""

    def __init__(
        self,
        reader: LogReader,
        *,
        partition: TopicPartition,
        isolation: IsolationLevel,
        on_skip: OnSkip | None,
        tail: _Tail,
        known: OpenTransactions | None,
    ) -> None:
        self.reader = reader
        self.partition = partition
        self.transactions = known
        """Transactions that are open at the end, once `latest_offset` has looked for them."""
        self._files = reader.files
        self._isolation = isolation
        self._on_skip = on_skip
        self._tail = tail
        self._latest_offset: Offset | None = None

    @property
    def tail(self) -> list[Skipped]:
        """Damage after the end of the log, which is left out."""
        return self._tail.skipped

    @property
    def tail_error(self) -> CorruptionError | None:
        """The damage after the end of the log, where none may be left out."""
        return self._tail.error

    def latest_offset(self) -> Offset:
        """The end of what may be read: that of the log, or its last stable offset.

        Raises:
            OSError: a file cannot be read.
        """
        reader = self.reader
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return reader.end_offset
        while self._latest_offset is None:
            try:
                self.transactions = reader.settled(
                    reader.start_offset, OFFSET_MAX, self._find_open_transactions
                )
            except OffsetsDeletedError:
                continue  # The log begins later now, and may end the same.
            # Consumers of committed records stop at the oldest transaction without a marker.
            first = self.transactions.first_offset
            end = reader.end_offset
            self._latest_offset = end if first is None else max(first, reader.start_offset)
        return self._latest_offset

    def _find_open_transactions(self) -> OpenTransactions:
        reader = self.reader
        return find_open_transactions(
            self._files,
            reader.folder,
            reader.segments,
            end=reader.end_offset,
            known=self.transactions,
            steps_over_damage=self._on_skip is not None,
        )

    def offset_at(self, timestamp: int, *, start: Offset = _FIRST) -> Offset | None:
        """The first offset from `start` on whose timestamp is this one (ms) or a later one.

        As a broker finds it: by the time indexes, and reading from where they point. Markers count.

        Raises:
            CorruptionError: a batch on the way is damaged.
            OSError: a file cannot be read.
        """
        while True:
            try:
                return self._offset_at(timestamp, max(start, self.reader.start_offset))
            except OffsetsDeletedError:
                continue  # The log begins later now.

    def _offset_at(self, timestamp: int, start: Offset) -> Offset | None:
        span = Span(self.partition, start, self.latest_offset())
        for stored in self.batches_since(timestamp, span.start, span.limit):
            if stored.batch.max_timestamp >= timestamp:
                with decoding(stored, span, self._on_skip):
                    found = find_timestamp(stored.batch, timestamp, start_offset=start)
                    if found is not None:
                        return found.offset
        return None

    def batches_since(self, timestamp: int, start: Offset, limit: Offset) -> Iterator[StoredBatch]:
        """The batches of a range that may have a record as young as this (ms).

        A time index vouches for what is before its entries, and what is after the last one is
        read: a machine that was lost may have left it short.

        Raises:
            CorruptionError, OffsetOutOfRangeError, OSError: as `pieces`.
        """
        segments = self.reader.segments
        limits = [*(each.base_offset for each in segments[1:]), limit]
        for segment, next_base in zip(segments, limits, strict=False):
            last = min(next_base, limit)
            if max(start, segment.base_offset) >= last:
                continue
            first = max(start, offset_before_time(self._files, segment, timestamp))
            if first < last:
                for stored in self.pieces(first, last):
                    yield from stored.batches(first, last)

    def find_aborted(self, start: Offset) -> AbortedRecords:
        """The aborted transactions with a record from an offset on; none if all is to be seen.

        Raises:
            OffsetsDeletedError: the log does not have that offset any more.
            CorruptionError: an index is damaged.
            OSError: an index cannot be read.
        """
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return AbortedRecords([])
        end = self.reader.end_offset
        return self.reader.settled(
            start,
            end,
            lambda: find_aborted(self._files, self.reader.segments_between(start, end), start),
        )

    def visible(self, start: Offset, limit: Offset) -> Iterator[StoredRun]:
        """Yield the runs of `pieces`; read_committed leaves out data of aborted transactions."""
        aborted = self.find_aborted(start)
        for stored in self.pieces(start, limit):
            if isinstance(stored.piece, BatchRun) or not aborted.has(stored.piece):
                yield stored

    def pieces(self, start: Offset, limit: Offset) -> Iterator[StoredRun]:
        """The batches of a range; a run of them may reach beyond it.

        Raises:
            CorruptionError: a batch is damaged and nothing may be skipped.
            OffsetOutOfRangeError: the range is not within the log, or not any more.
            OSError: a file cannot be read.
        """
        at = start
        while True:
            try:
                for stored in self.reader.stored_runs(at, limit):
                    yield stored
                    # So far everything was given out, and is not given out again after damage.
                    at = stored.piece.next_offset
            except CorruptionError as error:
                if self._on_skip is None and error.position is not None:
                    raise
                # Files that were exchanged are no damage for the reader: this one was there.
                damaged = self._open_damaged(error, at, limit)
                if self._on_skip is None and damaged is not None:
                    damaged.file.close()
                    raise _first_error(damaged.damage.drops, at) from error
            else:
                return
            if damaged is None:
                continue
            for stored in self._sound_pieces(damaged, at, limit):
                yield stored
                at = stored.piece.next_offset
            if damaged.following is None or damaged.following >= limit:
                return
            at = max(at, damaged.following)

    def batches(self, start: Offset, limit: Offset) -> Iterator[StoredBatch]:
        """Yield the batches of `pieces` that hold an offset of the range."""
        for stored in self.pieces(start, limit):
            yield from stored.batches(start, limit)

    def leave_out(self, stored: StoredBatch, error: TailraceError) -> None:
        """Tell of a batch with the right checksum whose records cannot be read.

        Raises:
            TailraceError: the error itself, with its place, if damage may not be skipped.
        """
        batch, path, position = stored
        if self._on_skip is None:
            if isinstance(error, CorruptionError):
                raise error.located(path=path, position=position) from error
            raise error
        reason = error.rule if isinstance(error, CorruptionError) else str(error)
        first, limit = batch.base_offset, batch.next_offset
        self._on_skip(
            Skipped(
                self.partition, path, position, first, limit, reason,
                batch.record_count, batch.size,
            )
        )  # fmt: skip

    def finish(self) -> None:
        """Report what is after the end of the log, once everything before it is read.

        Raises:
            CorruptionError: it is damaged and may not be skipped.
        """
        tail = self._tail
        if tail.error is not None:
            raise tail.error
        if self._on_skip is not None:
            for each in (*tail.skipped, *filter(None, [tail.torn])):
                self._on_skip(each)

    def _open_damaged(
        self, error: CorruptionError, start: Offset, limit: Offset
    ) -> "_DamagedSegment | None":
        """The segment that an error is about, with its damage; None if it was exchanged meanwhile.

        All is read from one open file, so positions mean the same throughout.

        Raises:
            CorruptionError: the error itself, if no damage is found there.
            OSError: the file cannot be read.
        """
        segments = self.reader.segments
        if not segments:
            raise error
        # A log that ends too early has a damaged length in its last segment.
        last = len(segments) - 1
        number = next((n for n, each in enumerate(segments) if each.path == error.path), last)
        segment = segments[number]
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        try:
            file = self._files.open(segment.path, read_only=True)
        except FileNotFoundError:
            return None
        try:
            try:
                damage = find_segment_damage(file, segment, following=following)
            except FileCutError:
                damage = LogDamage()  # Another file by now, or one that was cut.
            # The positions found are of the open file, and the log may have another by now.
            if self.reader.list_again(start, limit):
                file.close()
                return None
            # The reader was stopped by something that is gone, and that no exchange explains.
            if not damage.drops:
                raise error
        except BaseException:
            file.close()
            raise
        return _DamagedSegment(segment, following, file, damage)

    def _sound_pieces(
        self, damaged: "_DamagedSegment", start: Offset, limit: Offset
    ) -> Iterator[StoredRun]:
        """The batches between the damage, which is reported in its place."""
        segment, _, file, damage = damaged
        assert self._on_skip is not None
        try:
            for (first, end), drop in zip(sound_ranges(damage), [*damage.drops, None], strict=True):
                for position, piece in walk_runs(file, segment.path, start=first, limit=end):
                    if piece.base_offset >= limit:
                        return
                    if piece.last_offset >= start:
                        yield StoredRun(piece, segment.path, position).since(start)
                # In its place between the batches: a program that reads along knows what is missing
                # before it continues.
                if drop is not None and _meets(drop, start, limit):
                    self._on_skip(_skipped(self.partition, drop, start, limit=limit))
        finally:
            file.close()


def open_view(
    files: Files,
    folder: str,
    partition: TopicPartition,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    on_skip: OnSkip | None = None,
    known: OpenTransactions | None = None,
    log_start_offset: Offset | None = None,
) -> LogView:
    """Open a partition's folder; `on_skip` gets damage; without it damage is an error.

    `log_start_offset` as of `open_log_reader`.
    `known` are the open transactions of an earlier view: they save reading what that has read.

    Raises:
        CorruptionError: the log cannot be read up to its end.
        OSError: the folder is not there or may not be read.
    """
    tail = _Tail(files, partition, is_skipped=on_skip is not None)
    return LogView(
        open_log_reader(
            files, folder, log_start_offset=log_start_offset, resolve_tail=tail.resolve
        ),
        partition=partition,
        isolation=isolation,
        on_skip=on_skip,
        tail=tail,
        known=known,
    )


def _skipped(
    partition: TopicPartition, drop: Drop, start: Offset, *, limit: Offset | None
) -> Skipped:
    first = max(drop.offset, start)
    end = min((each for each in (drop.next_offset, limit) if each is not None), default=None)
    records = drop.records
    if end is not None and drop.next_offset is not None:
        offsets = max(end - first, 0)
        if offsets < drop.next_offset - drop.offset:
            # Of a part of the range the records are known if each offset had one.
            is_dense = records == drop.next_offset - drop.offset
            records = offsets if is_dense else None
    return Skipped(
        partition, drop.path, drop.position, first, end, drop.reason, records, drop.size_bytes
    )


def _first_error(drops: list[Drop], end: Offset) -> CorruptionError:
    """The error for the first damage at or after the end of what can be read."""
    first = next((drop for drop in drops if drop.offset >= end), drops[-1])
    return CorruptionError(
        first.reason, path=first.path, position=first.position, offset=first.offset
    )


def _meets(drop: Drop, start: Offset, limit: Offset) -> bool:
    return drop.offset < limit and (drop.next_offset is None or drop.next_offset > start)
