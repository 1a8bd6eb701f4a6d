"""The `.log` file of one segment: whole batches one after the other, from byte 0.

Appends go to the position that this object remembers, not to the end of the file. So a file may be
preallocated, with zeros after the last batch. Bytes of a failed append (a full disk) are cut at
once or, if that fails too, by `trim`.

Reads copy the bytes: a device error is an OSError, and a file that another program has cut is a
`FileCutError`, where a memory map would kill the process. A fetch gets a `LogSlice`, which reads
when the socket has room. Any thread may read; a thread that reads while the log is cut gets
`CutMeanwhileError` or finds `cut_count` changed, and reads again.

Positions are int32 in the indexes, so a file has at most 2147483647 bytes.
"""

import contextlib
import errno
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import LeaderEpoch, Offset, Position, ProducerId
from tailrace.records import layout, packages
from tailrace.records.batch import Batch
from tailrace.records.legacy import converted
from tailrace.records.untaken import TakeBatches
from tailrace.runtime.files import Buffer, CutMeanwhileError, File, FileCutError, Files, may_wait
from tailrace.storage.walk import check_large, walk_batches, walk_untaken

# Fields of a batch header: base offset, length, magic, last offset delta, largest timestamp.
_SKETCH = struct.Struct(">qi4xB6xi8xq")

# The length field of a batch without records.
_LENGTH_MIN = layout.HEADER_SIZE - layout.LOG_OVERHEAD

START: Final = Position(0)
"""Position of the first batch of a file."""

_ANY_TIMESTAMP = -(2**63)

FIND_WINDOW_BYTES: Final = 8 * 1024
"""One read of a search over headers: index entries are 4 KiB apart (`index.interval.bytes`)."""

FIND_BYTES_MAX: Final = 64 * 1024
"""The most that one search reads on the event loop: half a millisecond if batches are small."""

CHECK_WINDOW_BYTES: Final = 1024 * 1024
"""One read when a whole file is checked; small enough to stay in the processor's cache."""

assert _SKETCH.size == layout.MAX_TIMESTAMP_POSITION + 8


class BatchPosition(NamedTuple):
    """Position and size of a batch in the file, in bytes."""

    position: Position
    size: int

    @property
    def end(self) -> Position:
        """Position after the batch."""
        return Position(self.position + self.size)


class VerifiedBatch(NamedTuple):
    """Header fields and position of a batch whose checksum is right."""

    position: Position
    end: Position
    base_offset: Offset
    last_offset: Offset
    max_timestamp: int
    leader_epoch: LeaderEpoch
    producer_id: ProducerId
    view: memoryview
    """Its bytes in format v2; only the header if it is larger than `CHECK_WINDOW_BYTES`."""


class LogSlice:
    """A range of bytes of a log file, read later.

    It stays readable when its segment is deleted or compacted, because it shares the open file.
    After the log was cut, reads raise an error, because the range may have other bytes.
    """

    __slots__ = ("_cut_count", "_file", "_limit", "_log", "_on_failure", "_start")

    def __init__(
        self,
        log: "RecordsFile",
        file: File,
        *,
        start: int,
        limit: int,
        cut_count: int,
        on_failure: Callable[[OSError], None] | None = None,
    ) -> None:
        self._log = log
        self._file = file
        self._start = start
        self._limit = limit
        self._cut_count = cut_count
        self._on_failure = on_failure

    def __len__(self) -> int:
        return self._limit - self._start

    @property
    def path(self) -> str:
        """The log file."""
        return self._log.path

    def read(self) -> memoryview:
        """Read all bytes.

        Raises:
            CutMeanwhileError, FileCutError: they are not in the file any more.
            OSError: the device refused.
        """
        data = bytearray(len(self))
        self.read_into(memoryview(data))
        return memoryview(data)

    def read_into(self, buffer: memoryview) -> int:
        """Read the first bytes into `buffer`; returns how many.

        Raises:
            BlockingIOError: within `without_waiting`, and the page cache does not have them all.
            CutMeanwhileError, FileCutError: they are not in the file any more.
            OSError: the device refused.
        """
        size = min(len(self), len(buffer))
        count = self._file.read_into(self._start, buffer[:size])
        if self._log.cut_count != self._cut_count:
            raise CutMeanwhileError(self.path)
        if count < size:
            raise FileCutError(self.path, position=self._start + count)
        return count

    def after(self, size: int) -> "LogSlice":
        """The slice without its first `size` bytes."""
        return self._between(self._start + size, self._limit)

    def upto(self, size: int) -> "LogSlice":
        """Return the first `size` bytes of the slice, or all if it has fewer."""
        return self._between(self._start, min(self._start + size, self._limit))

    def failed(self, error: OSError) -> None:
        """Call `on_failure` for a device error; a `CutMeanwhileError` is none."""
        if self._on_failure is not None and not isinstance(error, CutMeanwhileError):
            self._on_failure(error)

    def owned(self, on_failure: Callable[[OSError], None]) -> "LogSlice":
        """The same slice, with a function that is called on a device error."""
        return self._between(self._start, self._limit, on_failure)

    def _between(
        self, start: int, limit: int, on_failure: Callable[[OSError], None] | None = None
    ) -> "LogSlice":
        return LogSlice(
            self._log,
            self._file,
            start=start,
            limit=limit,
            cut_count=self._cut_count,
            on_failure=on_failure or self._on_failure,
        )


class RecordsFile:
    """Batches of one segment; positions and sizes in bytes."""

    def __init__(self, *, path: str, file: File, size: int | None = None) -> None:
        self.path = path
        self.size = Position(file.size() if size is None else size)
        """Bytes of whole batches, and so the position of the next append.

        Bytes after them in the file do not count.
        """
        if self.size > INT32_MAX:
            raise CorruptionError(
                f"the file has {self.size} bytes, more than the {INT32_MAX} of the largest segment",
                path=path,
            )
        self.cut_count = 0
        """Number of times that bytes were taken away from the end."""
        self._file = file
        self._syncing = threading.Lock()
        self._sync_failure: tuple[int | None, str, str] | None = None

    def append(self, data: Buffer) -> Position:
        """Write batches after the last one; returns the position where they start.

        In the page cache when this returns: a killed process keeps them, a lost machine may not.

        Raises:
            ValueError: the file would have more than 2147483647 bytes; nothing is written.
            OSError: the device is full or failing; nothing counts as appended.
        """
        position = self.size
        if len(data) > INT32_MAX - position:
            raise ValueError(
                f"{self.path}: {len(data)} bytes after {position} would make more than {INT32_MAX}"
            )
        try:
            self._file.write(position, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.resize(position)
            raise
        self.size = Position(position + len(data))
        return position

    def read(self, start: Position, limit: int) -> bytes:
        """The bytes from `start` up to `limit`, which must be in the log.

        Raises:
            BlockingIOError: within `without_waiting`, and the page cache does not have them all.
            CutMeanwhileError: the log was cut while it was read.
            FileCutError: something else has cut the file.
            OSError: the device refused.
        """
        cut_count = self.cut_count
        # `pread`, and no mapped page: a device that fails is an OSError and not a SIGBUS.
        data = self._file.read(start, limit - start)
        # Whatever was read may be other batches by now, with the same offsets.
        if self.cut_count != cut_count:
            raise CutMeanwhileError(self.path)
        if len(data) < limit - start:
            raise FileCutError(self.path, position=start + len(data))
        return data

    def slice(self, start: Position, limit: int) -> LogSlice:
        """The bytes from `start` up to `limit`, to be read later."""
        assert 0 <= start <= limit <= self.size
        return LogSlice(
            self, self._file.share(), start=start, limit=limit, cut_count=self.cut_count
        )

    def batches(self, position: Position = START) -> Iterator[tuple[Position, Batch]]:
        """Position and batch from `position` on; ends before a partial batch.

        Entries of formats v0 and v1 are converted to batches of v2; see `records.legacy`.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch, a damaged entry of an older
                format, or a damaged batch larger than a window; it has path and position.
            OSError: as `read`.
        """
        return walk_batches(self._file, self.path, start=position, limit=self.size)

    def untaken(self, position: Position, take: TakeBatches) -> Iterator[Batch]:
        """The batches of `batches` that `take` leaves.

        Raises:
            CorruptionError, OSError: as `batches`.
        """
        found = walk_untaken(self._file, self.path, take, start=position, limit=self.size)
        return (batch for _, batch in found)

    def batch(self, place: BatchPosition) -> Batch:
        """The batch at a position and size from `find`.

        Raises:
            CorruptionError: an entry of an older format, or a large batch, is damaged.
            OSError: as `read`.
        """
        if place.size > CHECK_WINDOW_BYTES:
            check_large(self._file, self.path, position=place.position)
        view = memoryview(self.read(place.position, place.position + place.size))
        magic = layout.FRAME.unpack_from(view)[-1]
        return Batch(view) if magic == layout.MAGIC else converted(view)

    def checked(self) -> Iterator[VerifiedBatch]:
        """The header fields of every batch, after a check of its checksum; for whole files.

        Equivalent to `batches` with `Batch.check`, and several times as fast.

        Raises:
            CorruptionError: as `batches` and `Batch.check`.
            OSError: as `read`.
        """
        size, position = self.size, START
        window, start = memoryview(b""), 0
        # One loop over local names, without an object for each batch: a start after a crash reads
        # gigabytes here.
        unpack, last_start = layout.HEADER.unpack_from, size - layout.HEADER_SIZE
        while position <= last_start:
            at = position - start
            if at + layout.HEADER_SIZE > len(window):
                window, start, at = self._window(position, size), position, 0
            (
                base_offset, length, leader_epoch, magic, crc, _, delta, _, max_timestamp,
                producer_id, _, _, record_count,
            ) = unpack(window, at)  # fmt: skip
            batch_size = length + layout.LOG_OVERHEAD
            end: Position = batch_size + position
            if magic != layout.MAGIC or length < _LENGTH_MIN or end > size:
                break
            if at + batch_size > len(window) and batch_size <= CHECK_WINDOW_BYTES:
                window, start, at = self._window(position, size), position, 0
            if at + batch_size <= len(window):
                view = window[at : at + batch_size]
                if packages.crc32c.crc32c(view[layout.ATTRIBUTES_POSITION :]) != crc:
                    break
            else:
                view = window[at : at + layout.HEADER_SIZE]
                check_large(self._file, self.path, position=position)
            # Covered by the checksum, so a writer has sent it; `batches` finds the words for it.
            if delta < 0 or record_count < 0:
                break
            yield VerifiedBatch(
                position, end, base_offset, delta + base_offset, max_timestamp, leader_epoch,
                producer_id, view,
            )  # fmt: skip
            position = end
        # The rest is an older format, a partial batch or damage: `batches` handles these.
        for place, batch in self.batches(position):
            try:
                batch.check()
            except CorruptionError as error:
                raise error.located(path=self.path, position=place) from error
            yield VerifiedBatch(
                place, Position(place + batch.size), batch.base_offset, batch.last_offset,
                batch.max_timestamp, batch.leader_epoch, batch.producer_id, batch.view,
            )  # fmt: skip

    def offsets_at(self, position: Position) -> tuple[Offset, Offset] | None:
        """Base offset and last offset of the batch at `position`; None if there is no batch.

        For an entry of an older format both are its one offset.

        Raises:
            OSError: as `read`.
        """
        size = self.size
        if not 0 <= position <= size - layout.HEADER_SIZE:
            return None
        # The first bytes of the header, up to the fields that are needed.
        sketch = self.read(position, position + _SKETCH.size)
        base_offset, length, magic, delta, _ = _SKETCH.unpack(sketch)
        if length < layout.LENGTH_MIN or length > size - position - layout.LOG_OVERHEAD:
            return None
        if magic != layout.MAGIC:
            return (base_offset, base_offset) if magic < layout.MAGIC else None
        return base_offset, delta + base_offset

    def has_no_record(self, place: BatchPosition) -> bool:
        """Whether a batch is only a header, as compaction leaves it; False for older formats.

        Raises:
            OSError: as `read`.
        """
        if place.size != layout.HEADER_SIZE:
            return False
        frame = self.read(place.position, place.position + layout.FRAME_SIZE)
        return bool(layout.FRAME.unpack(frame)[-1] == layout.MAGIC)

    def find(
        self,
        offset: Offset,
        position: Position = START,
        *,
        timestamp: int = _ANY_TIMESTAMP,
        first: tuple[Offset, Offset] | None = None,
    ) -> BatchPosition | None:
        """The first batch from `position` on with a last offset of at least `offset`, or None.

        Its largest timestamp is at least `timestamp`. Reads only headers, and creates no objects,
        so it is several times as fast as `batches`. Ends before a partial batch.

        `first` is the smallest base offset and the largest last offset that the batch at `position`
        can have, according to the index. If there is no such batch, the index entry is wrong, and
        the search begins at the start of the file.

        Raises:
            BlockingIOError: within `without_waiting`, and the page cache does not have the headers;
                or more than `FIND_BYTES_MAX` would be read, because the index has no entry nearby
                (`index.interval.bytes` is large, or the index is damaged) or the format is old.
            CorruptionError: bytes on the way are not the start of a batch.
            OSError: as `read`.
        """
        size = self.size
        unpack, last_start = _SKETCH.unpack_from, size - layout.HEADER_SIZE
        if first is not None and not 0 <= position <= last_start:
            position, first = START, None
        window, start = b"", position
        # On the event loop a search may take no more than its budget (decision 23).
        windows_left = None if may_wait() else FIND_BYTES_MAX // FIND_WINDOW_BYTES
        while position <= last_start:
            at = position - start
            if at + _SKETCH.size > len(window):
                if windows_left is not None:
                    if not windows_left:
                        raise self._too_long()
                    windows_left -= 1
                window = self.read(position, min(position + FIND_WINDOW_BYTES, size))
                start, at = position, 0
            base_offset, length, magic, delta, max_timestamp = unpack(window, at)
            end: Position = length + position + layout.LOG_OVERHEAD
            if magic != layout.MAGIC or length < _LENGTH_MIN or end > size:
                break
            if first is not None:
                # The entry of the index points into a batch, or at another one: start over without
                # it.
                if position and not first[0] <= base_offset <= base_offset + delta <= first[1]:
                    position = start = START
                    window, first = b"", None
                    continue
                first = None
            if base_offset + delta >= offset and max_timestamp >= timestamp:
                return BatchPosition(position, end - position)
            position = end
        if first is not None and position and not self._can_begin(position, first):
            return self.find(offset, timestamp=timestamp)
        if windows_left is not None and position <= last_start:
            raise self._too_long()
        # The rest is an older format, a partial batch or damage: `batches` handles these.
        for place, batch in self.batches(position):
            if batch.last_offset >= offset and batch.max_timestamp >= timestamp:
                return BatchPosition(place, batch.size)
        return None

    def _too_long(self) -> BlockingIOError:
        return BlockingIOError(errno.EAGAIN, "the search takes too long for this thread", self.path)

    def _can_begin(self, position: Position, first: tuple[Offset, Offset]) -> bool:
        offsets = self.offsets_at(position)
        return offsets is not None and first[0] <= offsets[0] <= offsets[1] <= first[1]

    def truncate(self, size: Position) -> None:
        """Cut the file to `size` bytes. Slices returned before raise an error from now on.

        Raises:
            OSError: the device refused; no byte is removed.
        """
        if size < self.size:
            # Before the cut: a concurrent reader must see that missing bytes were cut by us.
            self.cut_count += 1
        self._cut(size)

    def trim(self) -> None:
        """Cut the bytes after the last batch: zeros, or the bytes of a failed append."""
        self._cut(self.size)

    def sync(self) -> None:
        """Return when all appended bytes are on the device; any thread.

        Raises:
            OSError: the device failed, now or at an earlier call. The system reports lost pages
                only once, so a second fsync of the same file would succeed.
        """
        with self._syncing:
            if self._sync_failure is not None:
                raise OSError(*self._sync_failure)
            try:
                self._file.sync()
            except OSError as error:
                self._sync_failure = error.errno, "an earlier flush of it has failed", self.path
                raise

    def close(self) -> None:
        """Release the descriptor; slices that were returned stay readable."""
        self._file.close()

    def _window(self, position: Position, size: int) -> memoryview:
        return memoryview(self.read(position, min(position + CHECK_WINDOW_BYTES, size)))

    def _cut(self, size: Position) -> None:
        assert 0 <= size <= self.size
        if size < self._file.size():
            self._file.resize(size)
        self.size = size


def open_records_file(
    files: Files,
    path: str,
    *,
    create: bool = False,
    read_only: bool = False,
    preallocated_bytes: int = 0,
) -> RecordsFile:
    """Open the log file of a segment, or with `create` make an empty one.

    With `preallocated_bytes` the new file has that length, filled with zeros. After a crash
    recovery cuts the zeros after the last batch, as any tail.

    Raises:
        CorruptionError: the file is larger than a segment can be.
        OSError: it cannot be opened or created.
    """
    file = files.open(path, create=create, read_only=read_only)
    try:
        if not create:
            return RecordsFile(path=path, file=file)
        # Bytes in the file are left from an earlier attempt to create this segment.
        if file.size():
            file.resize(0)
        if preallocated_bytes:
            file.resize(preallocated_bytes)
        return RecordsFile(path=path, file=file, size=0)
    except BaseException:
        file.close()
        raise
