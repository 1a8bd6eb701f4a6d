"""The `.log` file of one segment: whole batches one behind the other, from byte 0.

Appends go to the position that this object remembers, not to the end of the file. So a file may be
preallocated, with zeros behind the last batch. What an append that failed halfway (a full disk) has
left is cut at once or, where that fails too, by `trim`.

Reads are slices of a map that is renewed when the file has grown past it. To touch a mapped page
that the file has lost kills the process, so `truncate_unread` refuses while anybody holds a slice.
That is known from the maps: a slice keeps its own alive.

Positions are int32 in the indexes, so a file has at most 2147483647 bytes.
"""

import contextlib
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import crc32c

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, RetriableError
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.legacy import read_all_batches
from tailrace.records.runs import Piece, read_runs
from tailrace.runtime.files import Buffer, File, Files

Found = TypeVar("Found")

_SKETCH = struct.Struct(">qi4xB6xi8xq")
"""Of a batch header: base offset, length, magic, last offset delta and largest timestamp."""

_LENGTH_MIN = layout.HEADER_SIZE - layout.LOG_OVERHEAD
"""What a batch without records has as its length."""

_ANY_TIMESTAMP = -(2**63)

FORGET_BYTES = 16 * 1024 * 1024
"""How much of a file is read before its pages stop to count as memory of this process. They stay in
the page cache; a reader that comes again finds them there."""

assert _SKETCH.size == layout.MAX_TIMESTAMP_POSITION + 8


class StillReadError(RetriableError):
    """A log file cannot be cut while a reader holds some of its bytes."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} cannot be cut while its bytes are being read")


class BatchPlace(NamedTuple):
    """Where a batch stands in the file, in bytes."""

    position: int
    size: int


class CheckedBatch(NamedTuple):
    """What stands in the header of a sound batch, and where it is."""

    position: int
    end: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int


class RecordsFile:
    """Batches of one segment; positions and sizes in bytes."""

    def __init__(self, *, path: str, file: File, size: int | None = None) -> None:
        self.path = path
        self.size = file.size() if size is None else size
        """Bytes of whole batches; what the file has behind them does not count."""
        if self.size > INT32_MAX:
            raise CorruptionError(
                f"the file has {self.size} bytes, more than the {INT32_MAX} of the largest segment",
                path=path,
            )
        self._file = file
        self._view = memoryview(b"")
        self._viewed = 0
        """Bytes handed out since pages were last given up."""
        self._maps: list[weakref.ref[object]] = []
        self._mapping = threading.Lock()
        self._syncing = threading.Lock()
        self._sync_failure: tuple[int | None, str, str] | None = None

    def append(self, data: Buffer) -> int:
        """Write batches behind the last one; returns the position where they start.

        In the page cache when this returns: a killed process keeps them, a lost machine may not.

        Raises:
            ValueError: the file would have more than 2147483647 bytes; nothing is written.
            OSError: the device is full or failing; nothing counts as appended.
        """
        position = self.size
        if len(data) > INT32_MAX - position:
            raise ValueError(
                f"{self.path}: {len(data)} bytes behind {position} would make more than {INT32_MAX}"
            )
        try:
            self._file.write(position, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.resize(position)
            raise
        self.size = position + len(data)
        return position

    def view(self, start: int, limit: int) -> memoryview:
        """Bytes from `start` up to `limit`, without a copy."""
        assert 0 <= start <= limit <= self.size
        view = self._view
        if limit > len(view):
            view = self._renewed_map()
        self._viewed += limit - start
        if self._viewed >= FORGET_BYTES:
            self._viewed = 0
            self._file.forget(view, len(view))
        return view[start:limit]

    def batches(self, position: int = 0) -> Iterator[tuple[int, Batch]]:
        """Each batch from `position` on, with its position; ends before a partial one.

        Entries of format v0 and v1 come as batches of v2 in memory; see `records.legacy`.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch, or a damaged entry of an
                older format; it has path and position.
        """
        return self._each(read_all_batches, position)

    def runs(self, position: int = 0) -> Iterator[tuple[int, Piece]]:
        """The same batches, neighbouring ones together; see `records.runs`.

        Raises:
            CorruptionError: as `batches`.
        """
        return self._each(read_runs, position)

    def _each(
        self, read: Callable[[memoryview], Iterator[tuple[int, Found]]], position: int
    ) -> Iterator[tuple[int, Found]]:
        try:
            for start, each in read(self.view(position, self.size)):
                yield position + start, each
        except CorruptionError as error:
            raise error.located(
                path=self.path, position=position + (error.position or 0)
            ) from error

    def checked(self) -> Iterator[CheckedBatch]:
        """Every batch, found to be what was written, as numbers; for whoever reads a whole file.

        Several times as fast as `batches` and `Batch.check`, and says the same.

        Raises:
            CorruptionError: as they do.
        """
        view = self._map()
        size, position, forget_at = len(view), 0, FORGET_BYTES
        unpack, last_start = layout.HEADER.unpack_from, size - layout.HEADER_SIZE
        while position <= last_start:
            if position >= forget_at:
                self._file.forget(view, position)
                forget_at = position + FORGET_BYTES
            (
                base_offset, length, leader_epoch, magic, crc, _, delta, _, max_timestamp,
                producer_id, _, _, record_count,
            ) = unpack(view, position)  # fmt: skip
            end = position + length + layout.LOG_OVERHEAD
            if magic != layout.MAGIC or length < _LENGTH_MIN or end > size:
                break
            computed = crc32c.crc32c(view[position + layout.ATTRIBUTES_POSITION : end])
            if computed != crc or delta < 0 or record_count < 0:
                break
            yield CheckedBatch(
                position, end, base_offset, base_offset + delta, max_timestamp, leader_epoch,
                producer_id,
            )  # fmt: skip
            position = end
        # What is left is an older format, a partial batch or damage: the reader of batches knows.
        for start, batch in self.batches(position):
            try:
                batch.check()
            except CorruptionError as error:
                raise error.located(path=self.path, position=start) from error
            yield CheckedBatch(
                start, start + batch.size, batch.base_offset, batch.last_offset,
                batch.max_timestamp, batch.leader_epoch, batch.producer_id,
            )  # fmt: skip

    def offsets_at(self, position: int) -> tuple[int, int] | None:
        """Base offset and last offset of the batch at `position`; None if none can stand there.

        Of an entry of an older format its one offset, twice.
        """
        view = self._map()
        if not 0 <= position <= len(view) - layout.HEADER_SIZE:
            return None
        base_offset, length, magic, delta, _ = _SKETCH.unpack_from(view, position)
        if length < layout.LENGTH_MIN or length > len(view) - position - layout.LOG_OVERHEAD:
            return None
        if magic != layout.MAGIC:
            return (base_offset, base_offset) if magic < layout.MAGIC else None
        return base_offset, base_offset + delta

    def has_no_record(self, place: BatchPlace) -> bool:
        """Whether a batch is a mere header, as compaction leaves it; old formats have none."""
        if place.size != layout.HEADER_SIZE:
            return False
        return bool(layout.FRAME.unpack_from(self._map(), place.position)[-1] == layout.MAGIC)

    def find(
        self, offset: int, position: int = 0, *, timestamp: int = _ANY_TIMESTAMP
    ) -> BatchPlace | None:
        """The first batch from `position` on that reaches `offset` and is young enough, or None.

        Its last offset is at least `offset` and its largest timestamp at least `timestamp`. Looks
        at headers only and makes no objects of them, so it is several times as fast as `batches`.
        Ends before a partial batch.

        Raises:
            CorruptionError: bytes on the way cannot be the start of a batch.
        """
        view = self._map()
        size = len(view)
        unpack, last_start = _SKETCH.unpack_from, size - layout.HEADER_SIZE
        while position <= last_start:
            base_offset, length, magic, delta, max_timestamp = unpack(view, position)
            end = position + length + layout.LOG_OVERHEAD
            if magic != layout.MAGIC or length < _LENGTH_MIN or end > size:
                break
            if base_offset + delta >= offset and max_timestamp >= timestamp:
                return BatchPlace(position, end - position)
            position = end
        # What is left is an older format, a partial batch or damage: the reader of batches knows.
        for start, batch in self.batches(position):
            if batch.last_offset >= offset and batch.max_timestamp >= timestamp:
                return BatchPlace(start, batch.size)
        return None

    def check_unread(self) -> None:
        """Check that nobody holds a slice of a map of this file.

        Raises:
            StillReadError: somebody does; the call may succeed once that reader is done.
        """
        with self._mapping:
            self._drop_map()

    def truncate_unread(self, size: int) -> None:
        """Cut behind `size` bytes if nobody holds a slice of the file.

        Raises:
            StillReadError: a slice handed out before would lose its bytes; nothing has changed.
            OSError: the device refused; nothing has changed.
        """
        with self._mapping:
            if size < self.size:
                self._drop_map()
            self._cut(size)

    def truncate(self, size: int) -> None:
        """Cut behind `size` bytes, whoever holds a slice: for recovery, which is alone.

        What holds one then is the traceback of the error that told of the damage, which no log
        handler has to forget before a broker can start.

        Raises:
            OSError: the device refused; nothing has changed.
        """
        with self._mapping:
            self._view = memoryview(b"")
            self._cut(size)

    def trim(self) -> None:
        """Cut what stands behind the last batch: zeros, or what a failed append has left."""
        self._cut(self.size)

    def sync(self) -> None:
        """Return when all appended bytes are on the device; any thread.

        Raises:
            OSError: the device failed, now or at an earlier call. The system tells of lost pages
                once, so a second thread that flushes the same file would hear of a success.
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
        """Release the descriptor; slices handed out stay valid."""
        self._view = memoryview(b"")
        self._file.close()

    def _map(self) -> memoryview:
        """All batches up to now; its length is what goes with it, if another thread appends."""
        view = self._view
        return view if self.size <= len(view) else self._renewed_map()

    def _renewed_map(self) -> memoryview:
        with self._mapping:
            # Under the lock, so that no map is made of a length that a truncation takes away.
            view = self._file.view(self.size)
            self._maps = [each for each in self._maps if each() is not None]
            # Only maps lose bytes with their file, and maps can be referred to weakly.
            if type(view.obj).__weakrefoffset__:
                self._maps.append(weakref.ref(view.obj))
            self._view = view
            return view

    def _cut(self, size: int) -> None:
        assert 0 <= size <= self.size
        if size < self._file.size():
            self._file.resize(size)
        self.size = size

    def _drop_map(self) -> None:
        self._view = memoryview(b"")
        if any(each() is not None for each in self._maps):
            raise StillReadError(self.path)
        self._maps = []


def open_records_file(
    files: Files,
    path: str,
    *,
    create: bool = False,
    read_only: bool = False,
    preallocated_bytes: int = 0,
) -> RecordsFile:
    """Open the log file of a segment, or with `create` make an empty one.

    With `preallocated_bytes` the new file has that length from the start. After a crash its zeros
    stand behind the last batch, where recovery cuts them as it cuts any tail.

    Raises:
        CorruptionError: the file is larger than a segment can be.
        OSError: it cannot be opened, or not be made.
    """
    file = files.open(path, create=create, read_only=read_only)
    try:
        if not create:
            return RecordsFile(path=path, file=file)
        # What stands here is left of an earlier attempt to make this segment.
        if file.size():
            file.resize(0)
        if preallocated_bytes:
            file.resize(preallocated_bytes)
        return RecordsFile(path=path, file=file, size=0)
    except BaseException:
        file.close()
        raise
