"""A segment: one log file and its indexes, under one base offset.

    00000000000000000170.log         batches with offsets 170, 171, …
    00000000000000000170.index       offset -> position
    00000000000000000170.timeindex   timestamp -> offset
    00000000000000000170.txnindex    aborted transactions, from the first abort on

While a segment is being made by compaction, or put in place of others, each name has one more
suffix after it (`names.CLEANED_SUFFIX`, `names.SWAP_SUFFIX`).

Invariant: an entry of a sparse index points at or before the batch searched for, so that a scan
forward finds it. The indexes may lag the log, never lead it; therefore `truncate_to` cuts
them first.
"""

import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import NO_TIMESTAMP, Offset, Position
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.records.search import find_timestamp
from tailrace.runtime.files import Buffer, Files
from tailrace.storage.config import LogConfig
from tailrace.storage.folder import PartitionFolder
from tailrace.storage.index.offset import OffsetIndex, OffsetPosition, open_offset_index
from tailrace.storage.index.time import TimeIndex, TimestampOffset, open_time_index
from tailrace.storage.index.transaction import TransactionIndex, open_transaction_index
from tailrace.storage.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from tailrace.storage.records_file import START, BatchPosition, RecordsFile, open_records_file

if TYPE_CHECKING:
    from tailrace.storage.rolling import SegmentRoom


class SegmentAppend(NamedTuple):
    """Batches to append to a segment, and the values that its indexes need."""

    data: Buffer
    last_offset: Offset
    max_timestamp: int
    """Largest record timestamp in the batches, in milliseconds, or -1."""
    max_timestamp_offset: Offset
    """Last offset of the first batch that has it."""


class DueEntry(NamedTuple):
    """An entry of each index, due before a batch of an append."""

    position: int
    """Position of the batch in the append."""
    last_offset: Offset
    """Last offset of the batch."""
    max_timestamp: int
    """Largest one of the append up to the batch, in milliseconds, or -1."""
    max_timestamp_offset: Offset
    """Last offset of the first batch that has it."""


class _NamedFile(Protocol):
    path: str


class Segment:
    """One segment, for reading and, while it is the last, for appending."""

    def __init__(
        self,
        *,
        files: Files,
        log: RecordsFile,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        transactions: TransactionIndex,
        config: LogConfig,
    ) -> None:
        self.base_offset = offset_index.base_offset
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self.transactions = transactions
        self.newest = time_index.last
        """The largest timestamp in the segment and an offset that has it; timestamp -1 if none."""
        self.created_ms: int | None = None
        """When the empty segment was created, by the broker's clock; set by the caller.

        None after a start, and after `truncate_to` has emptied the segment.
        """
        self._files = files
        self.index_interval_bytes = config.index_interval_bytes
        """Bytes of log from one entry of each index to the next."""
        self._index_bytes_max = config.segment_index_bytes
        self.bytes_before_entry = config.index_interval_bytes
        """Bytes that may be appended before the next index entries; below 0 if they are due."""
        self._first_timestamp: int | None = None
        self.room: SegmentRoom | None = None
        """The largest append without a roll; the caller sets it, and a full index clears it."""
        # The newest append, so that its readers need no index; None if it is not known.
        # Last offset of the append before it, its own position and last offset.
        self._tail: tuple[int, Position, Offset] | None = None
        self._is_finished = False
        self._finish_count = 0
        self._synced_finish = 0

    @property
    def is_settled(self) -> bool:
        """Whether the segment is finished and was completely synced afterwards; any thread."""
        return self._is_finished and self._synced_finish == self._finish_count

    @property
    def size(self) -> Position:
        """Bytes of log, and so the position of the next append."""
        return self.log.size

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first append, from which a roll by time counts.

        After a start it is that of the first batch, which is read from the file. None if the
        segment is empty or its first batch has no timestamp.

        Raises:
            CorruptionError: the log does not begin with a batch.
        """
        if self._first_timestamp is None and self.log.size:
            _, batch = next(self.log.batches(), (START, None))
            self._first_timestamp = NO_TIMESTAMP if batch is None else batch.max_timestamp
        found = self._first_timestamp
        # Records without timestamps: the broker's clock counts for the roll.
        return None if found == NO_TIMESTAMP else found

    @property
    def index_room(self) -> int:
        """Entries that still fit into both indexes; without any, the segment must roll."""
        return min(self.offset_index.room, self.time_index.room)

    def modified_ms(self) -> int:
        """Time of the last write to the log file, in milliseconds since 1970."""
        return self._files.modified_ms(self.log.path)

    def paths(self) -> list[str]:
        """The segment's files that exist, the log first."""
        paths = (
            self.log.path,
            self.offset_index.entries.path,
            self.time_index.entries.path,
            self.transactions.path,
        )
        return [path for path in paths if self._files.exists(path)]

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files that exist, the log first, from suffix `old` to suffix `new`.

        After a crash or an error some files may still have the old name; the call may be repeated.

        Raises:
            OSError: a file cannot be renamed.
        """
        parts: tuple[_NamedFile, ...] = (
            self.log, self.offset_index.entries, self.time_index.entries, self.transactions,
        )  # fmt: skip
        for part in parts:
            path = part.path.removesuffix(old).removesuffix(new) + new
            # The transaction index is there only if a transaction was aborted in this segment.
            if path != part.path and self._files.exists(part.path):
                self._files.rename(part.path, path)
            part.path = path

    def can_hold(self, offset: int) -> bool:
        """Whether the distance of an offset from the base offset fits 31 bits, as indexes need."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def append(self, planned: SegmentAppend) -> None:
        """Write batches and, when one is due, an entry in each index before them.

        Raises:
            ValueError, OSError: as `append_batches`.
        """
        before = self.bytes_before_entry
        due: tuple[DueEntry, ...] = ()
        if before < 0:
            # For the first batch after the interval has passed, as in Kafka.
            due = (DueEntry(0, *planned[1:]),)
            before = self.index_interval_bytes
        self.append_batches(planned, due, bytes_before_entry=before - len(planned.data))

    def append_batches(
        self, planned: SegmentAppend, due: Sequence[DueEntry], *, bytes_before_entry: int
    ) -> None:
        """Write batches, and the entries that are due between them; both indexes have room.

        `bytes_before_entry` is the new one.

        Raises:
            ValueError: the log would have more than 2147483647 bytes; the segment is as it was.
            OSError: the device is full or failing; the segment is as it was.
        """
        assert not self._is_finished
        assert self.can_hold(planned.last_offset)
        data, last_offset, max_timestamp, max_timestamp_offset = planned
        newest = self.newest
        if max_timestamp > newest.timestamp:
            newest = TimestampOffset(max_timestamp, max_timestamp_offset)
        # An append is counted after the check, so the first one of a segment never gets an entry:
        # its position is 0, where a search without an entry begins.
        tail, self._tail = self._tail, None  # Never less than the size of the log, in any thread.
        position = _append_with_entries(self, data, due) if due else self.log.append(data)
        # Without a known tail nothing before this append can be answered from memory.
        before = last_offset if tail is None else tail[-1]
        self._tail = before, position, last_offset
        self.bytes_before_entry = bytes_before_entry
        if not position:
            self._first_timestamp = max_timestamp
        self.newest = newest

    def position_near(self, offset: Offset) -> Position:
        """A position at or before the batch with `offset`, from the offset index if it is usable.

        The index has no checksum, so an entry is used only if it agrees with the batch there.
        """
        found = self.offset_index.lookup(offset)
        return found.position if found.position and self._fits(found) else START

    def limit_near(self, position: Position) -> Offset | None:
        """An offset above all batches before `position`; None if the offset index is unusable."""
        found = self.offset_index.first_from(position)
        return found.offset if found is not None and self._fits(found) else None

    def _fits(self, entry: OffsetPosition) -> bool:
        offsets = self.log.offsets_at(entry.position)
        return offsets is not None and self.base_offset <= offsets[0] <= offsets[1] <= entry.offset

    def find(self, offset: Offset) -> BatchPosition | None:
        """The position of the first batch with a last offset of at least `offset`, or None.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch.
        """
        tail = self._tail
        if tail is not None:
            offset_before, position, last_offset = tail
            if offset > last_offset:
                return None
            # Most consumers read what was appended last: neither index nor scan is needed.
            if offset > offset_before:
                return self.log.find(offset, position)
        # The bounds of the entry let `find` see whether the batch there fits, since an index has no
        # checksum.
        near = self.offset_index.lookup(offset)
        return self.log.find(offset, near.position, first=(self.base_offset, near.offset))

    def batches(self, offset: Offset) -> Iterator[tuple[Position, Batch]]:
        """Position and batch, from the first batch with a last offset of at least `offset`.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch.
        """
        place = self.find(offset)
        return iter(()) if place is None else self.log.batches(place.position)

    def find_timestamp(self, timestamp: int, *, start_offset: Offset) -> TimestampOffset | None:
        """The first record from `start_offset` on with at least `timestamp` (ms).

        Transaction markers count as records, as in Kafka.

        Raises:
            CorruptionError: the batch that holds the answer is damaged.
        """
        if self.newest.timestamp < timestamp:
            return None
        # The index gives an offset from which on to look; a scan over headers finds the batch, and
        # its records the first one that is young enough.
        offset = max(self.time_index.lookup(timestamp).offset, start_offset)
        place = self.log.find(offset, self.position_near(offset), timestamp=timestamp)
        while place is not None:
            try:
                batch = self.log.batch(place)
                batch.check()
                found = find_timestamp(batch, timestamp, start_offset=start_offset)
            except CorruptionError as error:
                raise error.located(path=self.log.path, position=place.position) from error
            if found is not None:
                return TimestampOffset(found.timestamp, found.offset)
            place = self.log.find(offset, place.end, timestamp=timestamp)
        return None

    def next_offset(self) -> Offset:
        """The offset after the last batch; scans from the last index entry.

        Raises:
            CorruptionError: the log does not end with a whole batch.
        """
        # From the last entry of the index: a closed segment would be a gigabyte to scan.
        position = self.position_near(Offset(self.base_offset + INT32_MAX))
        next_offset = self.base_offset
        for start, batch in self.log.batches(position):
            position, next_offset = Position(start + batch.size), batch.next_offset
        if position != self.log.size:
            raise CorruptionError(
                "the last batch is not whole", path=self.log.path, position=position
            )
        return next_offset

    def truncate_to(self, offset: Offset) -> int:
        """Remove every batch with a last offset of at least `offset`; returns how many bytes.

        The segment accepts appends again, and its indexes have their full size.

        After a crash in between, the indexes are cut, and the log may not be.

        Raises:
            CorruptionError: the log or the transaction index cannot be read up to `offset`.
            OSError: the device refused; the call may be repeated.
        """
        place = self.find(offset)
        position = self.log.size if place is None else place.position
        cut = self.log.size - position
        self._tail = self.room = None
        # Indexes first: after a crash in between they lack entries, which a scan makes up for. The
        # other order would leave entries that point after the end of the log.
        self.offset_index.truncate_to(offset, bytes_max=self._index_bytes_max)
        self.time_index.truncate_to(offset, bytes_max=self._index_bytes_max)
        self.transactions.truncate_to(offset)
        if cut:
            self.log.truncate(position)
        self.bytes_before_entry = self.index_interval_bytes
        self._is_finished = False
        if not position:
            self.created_ms = None
            self._first_timestamp = None
        if self.newest.timestamp != NO_TIMESTAMP:
            self.newest = _newest_in(self)
        return cut

    def clear_indexes(self, bytes_max: int) -> None:
        """Remove all index entries; each sparse index gets room for `bytes_max`."""
        self.offset_index.entries.clear(bytes_max)
        self.time_index.entries.clear(bytes_max)
        self.transactions.clear()
        self.newest = self.time_index.last

    def finish(self) -> None:
        """Complete the time index and trim all files, because nothing more is appended.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        # Preallocation, or a failed append, has left bytes after the last batch.
        self.log.trim()
        if self.newest.timestamp != NO_TIMESTAMP:
            # The last entry has to be the largest timestamp: retention reads only that.
            self.time_index.maybe_append(*self.newest)
        self.offset_index.entries.trim()
        self.time_index.entries.trim()
        self._finish_count += 1
        self._is_finished = True
        # A cut that is given up may leave it as the last one: the next append begins another.
        self.room = None

    def write_entries(self) -> None:
        """Write the index entries that wait in memory, for `sync`. Any thread.

        Raises:
            OSError: the device is full; they wait on, and nothing is lost.
        """
        self.offset_index.entries.write_all()
        self.time_index.entries.write_all()

    def sync(self) -> None:
        """Sync the log, then the indexes as far as they are written. Any thread."""
        finish = self._finish_count
        self.log.sync()
        self.offset_index.entries.sync()
        self.time_index.entries.sync()
        self.transactions.sync()
        # Of the count read before: a segment that is cut and finished again meanwhile is not
        # settled.
        self._synced_finish = finish
        if self._is_finished:
            self.rest()

    def rest(self) -> None:
        """Release the descriptors of the sparse indexes until they are needed. Any thread."""
        self.offset_index.entries.rest()
        self.time_index.entries.rest()

    def close(self) -> None:
        """Release the file descriptors."""
        self.log.close()
        self.offset_index.entries.close()
        self.time_index.entries.close()
        self.transactions.close()


def _append_with_entries(segment: Segment, data: Buffer, due: Sequence[DueEntry]) -> Position:
    """Add entries to each index and write the batches; returns the position of the batches."""
    offsets, times = segment.offset_index.entries, segment.time_index.entries
    counts = offsets.count, times.count
    start, newest = segment.log.size, segment.newest
    try:
        for position, last_offset, max_timestamp, max_timestamp_offset in due:
            if max_timestamp > newest.timestamp:
                newest = TimestampOffset(max_timestamp, max_timestamp_offset)
            segment.offset_index.append(last_offset, Position(start + position))
            segment.time_index.maybe_append(*newest)
        appended = segment.log.append(data)
    except (OSError, ValueError):
        # A reader may have seen them meanwhile: it compares an entry with the log, where these do
        # not fit.
        offsets.take_back(counts[0])
        times.take_back(counts[1])
        raise
    if segment.index_room <= 0:
        segment.room = None
    return appended


def move_segment(segment: Segment, directory: str) -> None:
    """Use another path for the files of a segment whose folder was renamed."""
    parts: tuple[_NamedFile, ...] = (
        segment.log, segment.offset_index.entries, segment.time_index.entries, segment.transactions,
    )  # fmt: skip
    for part in parts:
        part.path = f"{directory}/{posixpath.basename(part.path)}"


def retention_time_ms(segment: Segment) -> int:
    """The time from which retention counts: the largest timestamp, or else `modified_ms`."""
    newest = segment.newest.timestamp
    return newest if newest >= 0 else segment.modified_ms()


def _newest_in(segment: Segment) -> TimestampOffset:
    """The last entry of the time index, or a larger timestamp from the log after it."""
    newest = segment.time_index.last
    for _, batch in segment.log.batches(segment.position_near(newest.offset)):
        if batch.max_timestamp > newest.timestamp:
            newest = TimestampOffset(batch.max_timestamp, batch.last_offset)
    return newest


def max_timestamp_from(segment: Segment, start_offset: Offset) -> int:
    """The largest timestamp of a segment's records from an offset on, or -1; in milliseconds.

    Fast unless the segment's largest timestamp belongs to a record below `start_offset`: then every
    batch header from there on is read.

    Raises:
        CorruptionError: a batch on the way is damaged.
    """
    newest = segment.newest
    if start_offset <= segment.base_offset or newest.timestamp == NO_TIMESTAMP:
        return newest.timestamp
    _, found = next(segment.batches(max(newest.offset, start_offset)), (START, None))
    if (
        found is not None
        and found.base_offset >= start_offset
        and found.max_timestamp == newest.timestamp
    ):
        return newest.timestamp
    largest = NO_TIMESTAMP
    for position, batch in segment.batches(start_offset):
        try:
            timestamp = batch.max_timestamp
            if batch.base_offset < start_offset and timestamp > largest:
                batch.check()
                timestamp = _max_timestamp_of_records(batch, start_offset=start_offset)
        except CorruptionError as error:
            raise error.located(path=segment.log.path, position=position) from error
        largest = max(largest, timestamp)
    return largest


def _max_timestamp_of_records(batch: Batch, *, start_offset: Offset) -> int:
    """The largest timestamp of the records of a batch from an offset on, or -1."""
    records = records_of(batch)
    return max(
        (each.timestamp for each in records if each.offset >= start_offset), default=NO_TIMESTAMP
    )


def open_segment(
    files: Files,
    directory: str,
    *,
    base_offset: Offset,
    config: LogConfig,
    create: bool = False,
    suffix: str = "",
) -> Segment:
    """Open a segment for appending, or create an empty one, with full-sized indexes.

    Every file name gets `suffix` appended. All bytes in the index files count as entries: the
    caller checks them, or clears and rebuilds them. Existing files of a new segment are emptied;
    they are left from an earlier attempt to create it.

    Raises:
        CorruptionError: the log is larger than a segment can be.
        OSError: a file cannot be opened or grown.
    """

    def path(kind: str) -> str:
        return f"{directory}/{segment_file_name(base_offset, kind)}{suffix}"

    index_bytes = config.segment_index_bytes
    segment = Segment(
        files=files,
        log=open_records_file(
            files,
            path(LOG_SUFFIX),
            create=create,
            preallocated_bytes=config.segment_bytes if config.is_preallocated else 0,
        ),
        offset_index=open_offset_index(
            files, path(OFFSET_INDEX_SUFFIX), base_offset=base_offset, bytes_max=index_bytes
        ),
        time_index=open_time_index(
            files, path(TIME_INDEX_SUFFIX), base_offset=base_offset, bytes_max=index_bytes
        ),
        transactions=open_transaction_index(
            files, path(TRANSACTION_INDEX_SUFFIX), base_offset=base_offset
        ),
        config=config,
    )
    if create:
        segment.clear_indexes(index_bytes)
    return segment


def create_segment(folder: PartitionFolder, base_offset: Offset, *, config: LogConfig) -> Segment:
    """Create an empty segment in a log's folder; it is not in service yet.

    Raises:
        OSError: its files cannot be created.
    """
    segment = open_segment(
        folder.files, folder.path, base_offset=base_offset, config=config, create=True
    )
    segment.created_ms = folder.clock.now_ms()
    segment.rest()
    return segment
