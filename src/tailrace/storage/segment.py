"""A segment: one log file and its two indexes, under one base offset.

    00000000000000000170.log         batches with offsets 170, 171, …
    00000000000000000170.index       offset -> position
    00000000000000000170.timeindex   timestamp -> offset

Invariant: the indexes only ever point at or before what they promise, so that a scan forward
from there finds it. They may be behind the log, never ahead of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import NO_TIMESTAMP
from tailrace.records.batch import Batch
from tailrace.runtime.files import Buffer, Files
from tailrace.storage.config import LogConfig
from tailrace.storage.index.offset import OffsetIndex, open_offset_index
from tailrace.storage.index.time import TimeIndex, TimestampOffset, open_time_index
from tailrace.storage.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from tailrace.storage.records_file import RecordsFile, open_records_file


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAppend:
    """What a segment needs to know of the batches it is given."""

    data: Buffer
    last_offset: int
    max_timestamp: int
    """Largest record timestamp in the batches, in milliseconds, or -1."""
    max_timestamp_offset: int
    """Last offset of the first batch that has it."""


class Segment:
    """One segment, for reading and, while it is the last, for appending."""

    def __init__(
        self,
        *,
        log: RecordsFile,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        index_interval_bytes: int,
    ) -> None:
        self.base_offset = offset_index.base_offset
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_index_entry = 0
        self.newest = time_index.last
        """The largest timestamp in the segment and an offset that has it; timestamp -1 if none."""

    @property
    def size(self) -> int:
        """Bytes of log."""
        return self.log.size

    def can_hold(self, offset: int) -> bool:
        """Whether an offset fits the 31 bits that the indexes have for it."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def append(self, planned: SegmentAppend) -> None:
        """Write batches and, when one is due, an entry in each index.

        Raises:
            OSError: the device is full or failing; the segment is as it was.
        """
        assert self.can_hold(planned.last_offset)
        newest = self.newest
        if planned.max_timestamp > newest.timestamp:
            newest = TimestampOffset(planned.max_timestamp, planned.max_timestamp_offset)
        counts = self.offset_index.entries.count, self.time_index.entries.count
        # This append is counted after the check, so the first one of a segment never gets an
        # entry: the base offset serves for it.
        is_entry_due = self._bytes_since_index_entry > self._index_interval_bytes
        try:
            if is_entry_due:
                self.offset_index.append(planned.last_offset, self.log.size)
                self.time_index.maybe_append(*newest)
            position = self.log.append(planned.data)
        except OSError:
            self.offset_index.entries.count, self.time_index.entries.count = counts
            raise
        if is_entry_due:
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += self.log.size - position
        self.newest = newest

    def batches(self, offset: int) -> Iterator[tuple[int, Batch]]:
        """Position and batch, from the first batch whose last offset is at least `offset`.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch.
        """
        for position, batch in self.log.batches(self._position_near(offset)):
            if batch.last_offset >= offset:
                yield position, batch

    def next_offset(self) -> int:
        """The offset behind the last batch; scans from the last index entry.

        Raises:
            CorruptionError: the log does not end with a whole batch.
        """
        position = self._position_near(self.base_offset + INT32_MAX)
        next_offset = self.base_offset
        for start, batch in self.log.batches(position):
            position, next_offset = start + batch.size, batch.next_offset
        if position != self.log.size:
            raise CorruptionError(
                "the last batch is not whole", path=self.log.path, position=position
            )
        return next_offset

    def clear_indexes(self, bytes_max: int) -> None:
        """Forget all index entries, and give each index room for `bytes_max` of them."""
        self.offset_index.entries.clear(bytes_max)
        self.time_index.entries.clear(bytes_max)
        self.newest = self.time_index.last

    def finish(self) -> None:
        """Complete and trim the indexes: nothing more will be appended.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        self.log.trim()
        if self.newest.timestamp != NO_TIMESTAMP:
            self.time_index.maybe_append(*self.newest)
        self.offset_index.entries.trim()
        self.time_index.entries.trim()

    def sync(self) -> None:
        """Return when log and indexes are on the device; the log first."""
        self.log.sync()
        self.offset_index.entries.sync()
        self.time_index.entries.sync()

    def close(self) -> None:
        """Release files and maps."""
        self.log.close()
        self.offset_index.entries.close()
        self.time_index.entries.close()

    def _position_near(self, offset: int) -> int:
        """A position at or before the batch with `offset`, by the offset index if it can serve.

        The index has no checksum, so an entry is used only if the batch it points at fits it.
        """
        found = self.offset_index.lookup(offset)
        if not 0 < found.position < self.log.size:
            return 0
        try:
            _, batch = next(self.log.batches(found.position))
        except (CorruptionError, StopIteration):
            return 0
        fits = self.base_offset <= batch.base_offset <= batch.last_offset <= found.offset
        return found.position if fits else 0


def open_segment(
    files: Files, directory: str, *, base_offset: int, config: LogConfig, create: bool = False
) -> Segment:
    """Open a segment for appending, or create an empty one, with full-sized indexes.

    What the index files hold counts as entries: the caller checks, or clears and rebuilds them.

    Raises:
        OSError: a file cannot be opened or grown.
    """
    path = f"{directory}/{segment_file_name(base_offset, '')}"
    log = open_records_file(files, path + LOG_SUFFIX, create=create)
    segment = Segment(
        log=log,
        offset_index=open_offset_index(
            files,
            path + OFFSET_INDEX_SUFFIX,
            base_offset=base_offset,
            bytes_max=config.segment_index_bytes,
        ),
        time_index=open_time_index(
            files,
            path + TIME_INDEX_SUFFIX,
            base_offset=base_offset,
            bytes_max=config.segment_index_bytes,
        ),
        index_interval_bytes=config.index_interval_bytes,
    )
    if create:
        # An earlier attempt may have left index files, whose zeros would count as entries.
        segment.clear_indexes(config.segment_index_bytes)
    return segment
