"""The batches of a log file in memory that does not grow with it, and where to begin to read.

    file      |-------- window --------|
              batch | batch | batch | ba
                                    |-------- window --------|
                                    batch | batch | ...

A file is read window by window and never mapped: a mapped page counts as memory of the process, and
one that a live broker has cut away kills it. A batch larger than a window is read whole, but only
after its checksum was found right piece by piece: a damaged length must not decide how much memory
is taken.

Not here: which offsets are due, and what a batch means. Who walks holds batches against each other.

Invariant: positions rise, and each batch begins where the one before it ends.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import crc32c

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.records import layout
from tailrace.records.batch import Batch, CorruptBatchError
from tailrace.records.legacy import read_all_batches
from tailrace.records.runs import Piece, read_runs
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.storage.reader import SegmentFiles

Found_co = TypeVar("Found_co", covariant=True)

WINDOW_BYTES = 4 * 1024 * 1024
"""Large enough that few batches are read twice, small enough for a processor's cache."""

HEADERS_WINDOW_BYTES = 64 * 1024
"""Where only headers are wanted: small batches share a window, large ones are stepped over."""


class _Reader(Protocol[Found_co]):
    """What cuts a window into batches or runs; `position` says where the whole ones end."""

    @property
    def position(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[int, Found_co]]: ...


def walk_batches(
    file: File, path: str, *, start: int, limit: int, window_bytes: int = WINDOW_BYTES
) -> Iterator[tuple[int, Batch]]:
    """Position and batch from `start` on; ends before one that is not whole below `limit`.

    A batch stays valid for as long as somebody holds it, which keeps its window in memory.

    Raises:
        CorruptionError: bytes that cannot be the start of a batch, with path and position.
        OSError: the file cannot be read.
    """
    return _walk(file, path, read_all_batches, start=start, limit=limit, window_bytes=window_bytes)


def walk_runs(file: File, path: str, *, start: int, limit: int) -> Iterator[tuple[int, Piece]]:
    """As `walk_batches`, neighbouring batches together; see `records.runs`."""
    return _walk(file, path, read_runs, start=start, limit=limit, window_bytes=WINDOW_BYTES)


def walk_headers(
    file: File, path: str, *, start: int, limit: int, window_bytes: int = HEADERS_WINDOW_BYTES
) -> Iterator[tuple[int, Batch]]:
    """As `walk_batches`, for headers only: of format v2 a batch's view may lack its records.

    `Batch.size` is right all the same. Neither `Batch.check` nor its records may be asked for.

    Raises:
        CorruptionError: bytes that cannot be the start of a batch, with path and position.
        OSError: the file cannot be read.
    """
    position = start
    window_start, data = start, b""
    while position < limit:
        at = position - window_start
        if at + layout.HEADER_SIZE > len(data):
            window_start, at = position, 0
            data = file.read(position, min(window_bytes, limit - position))
        header = memoryview(data)[at : at + layout.HEADER_SIZE]
        if len(header) < layout.FRAME_SIZE:
            return
        _, length, _, magic = layout.FRAME.unpack_from(header)
        size = length + layout.LOG_OVERHEAD
        if magic != layout.MAGIC or size < layout.HEADER_SIZE:
            # Older formats cannot be told from their headers, and damage is told there.
            yield from walk_batches(file, path, start=position, limit=limit)
            return
        if size > limit - position:
            return
        batch = Batch(header)
        batch.size = size
        yield position, batch
        position += size


def _walk(
    file: File,
    path: str,
    read: Callable[[memoryview], "_Reader[Found_co]"],
    *,
    start: int,
    limit: int,
    window_bytes: int,
) -> Iterator[tuple[int, Found_co]]:
    position, size = start, window_bytes
    while position < limit:
        wanted = min(size, limit - position)
        data = file.read(position, wanted)
        reader = read(memoryview(data))
        try:
            for at, found in reader:
                yield position + at, found
        except CorruptionError as error:
            raise error.located(path=path, position=position + (error.position or 0)) from error
        left = len(data) - reader.position
        position += reader.position
        if position + left >= limit or len(data) < wanted:
            return  # The rest is not whole, or a broker has cut it since.
        size = window_bytes
        if not reader.position:
            size = _size_of_large(file, path, position=position, limit=limit)
            if size > limit - position:
                return


def position_near(files: Files, segment: SegmentFiles, file: File, *, offset: int) -> int:
    """A position at or before the batch with `offset`, by the offset index where it can serve.

    The index has no checksum, so an entry counts only if the batch it points at fits it.

    Raises:
        OSError: a file cannot be read.
    """
    path = segment.path.removesuffix(names.LOG_SUFFIX) + names.OFFSET_INDEX_SUFFIX
    relative = offset - segment.base_offset
    found = None if relative <= 0 else _floor(files, path, offset_index.ENTRY, key=relative)
    if found is None or not 0 < found[1] < segment.size:
        return 0
    last_offset, position = segment.base_offset + found[0], found[1]
    try:
        _, batch = next(walk_batches(file, path, start=position, limit=segment.size), (0, None))
        if batch is None:
            return 0
        batch.check()
    except CorruptionError:
        return 0
    fits = segment.base_offset <= batch.base_offset <= batch.last_offset <= last_offset
    return position if fits else 0


def find_end(files: Files, segments: Sequence[SegmentFiles]) -> int:
    """The offset behind the last whole batch, from the last index entry on; 0 without segments.

    Damage on the way counts as the end.

    Raises:
        OSError: a file cannot be read.
    """
    if not segments:
        return 0
    last = segments[-1]
    end = last.base_offset
    file = files.open(last.path, read_only=True)
    try:
        position = position_near(files, last, file, offset=end + INT32_MAX)
        for _, batch in walk_headers(file, last.path, start=position, limit=last.size):
            end = max(end, batch.next_offset)
    except CorruptionError:
        return end
    finally:
        file.close()
    return end


def offset_before_time(files: Files, segment: SegmentFiles, timestamp_ms: int) -> int:
    """An offset below which no record of the segment is as young as `timestamp_ms`.

    Raises:
        OSError: the time index cannot be read.
    """
    path = segment.path.removesuffix(names.LOG_SUFFIX) + names.TIME_INDEX_SUFFIX
    found = _floor(files, path, time_index.ENTRY, key=timestamp_ms - 1)
    if found is None or found[1] < 0:
        return segment.base_offset
    return segment.base_offset + found[1] + 1


def newest_timestamp(files: Files, segment: SegmentFiles) -> int | None:
    """The largest timestamp (ms) that the time index knows; all there is in a closed segment.

    Raises:
        OSError: the time index cannot be read.
    """
    path = segment.path.removesuffix(names.LOG_SUFFIX) + names.TIME_INDEX_SUFFIX
    found = _floor(files, path, time_index.ENTRY, key=2**63 - 1)
    return None if found is None else found[0]


def _size_of_large(file: File, path: str, *, position: int, limit: int) -> int:
    """Bytes of the batch or entry at `position`, which is larger than a window.

    If all of them stand below `limit` they are sound, which is found out piece by piece.
    """
    offset, length, _, magic = layout.FRAME.unpack(file.read(position, layout.FRAME_SIZE))
    size = int(length) + layout.LOG_OVERHEAD
    if size > limit - position:
        return size
    checksum: Callable[[bytes, int], int]
    if magic == layout.MAGIC:
        name, checksum, covered = "CRC-32C", crc32c.crc32c, layout.ATTRIBUTES_POSITION
        stored_at = layout.CRC_POSITION
    else:
        name, checksum, covered = "CRC-32", zlib.crc32, layout.MAGIC_POSITION
        stored_at = layout.LOG_OVERHEAD
    (stored,) = layout.CRC.unpack(file.read(position + stored_at, layout.CRC.size))
    computed = 0
    at, end = position + covered, position + size
    while at < end:
        data = file.read(at, min(WINDOW_BYTES, end - at))
        if not data:
            break
        computed = checksum(data, computed)
        at += len(data)
    if computed != stored:
        raise CorruptBatchError(
            f"a batch of {size} bytes has the {name} {stored}, the bytes have {computed}",
            path=path,
            position=position,
            offset=offset,
        )
    return size


def _floor(files: Files, path: str, entry: struct.Struct, *, key: int) -> tuple[int, int] | None:
    """The last entry in use whose first field is at most `key`; None without one, or a file.

    Zeros fill a preallocated index. No entry in use is all zeros but the first one could be, in a
    time index of a record at the beginning of 1970, which costs a longer scan.
    """
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return None
    try:
        low, high = 0, file.size() // entry.size
        found = None
        while low < high:
            middle = (low + high) // 2
            data = file.read(middle * entry.size, entry.size)
            fields = entry.unpack(data) if len(data) == entry.size else (0, 0)
            if any(fields) and fields[0] <= key:
                found = fields[0], fields[1]
                low = middle + 1
            else:
                high = middle
        return found
    finally:
        file.close()
