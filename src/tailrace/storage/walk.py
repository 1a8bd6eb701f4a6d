"""Read the batches of a log file window by window, in memory that does not grow with the file.

    file      |-- window --|
              batch | batch | ba
                            |-------- window --------|
                            batch | batch | batch | b
                                                  |---------------- window ----------------|
                                                  batch | batch | ...

Windows begin small, because many readers want one batch, and double up to `WINDOW_BYTES`. A larger
batch is read whole, but only after its checksum was verified in parts: a damaged length field must
not decide how much memory is allocated.

Callers check that the offsets of batches are in order.

Invariant: positions rise, and each batch begins where the one before it ends.
"""

import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

from tailrace.errors import CorruptionError
from tailrace.model import Position
from tailrace.records import layout, packages
from tailrace.records.batch import Batch, CorruptBatchError
from tailrace.records.legacy import read_all_batches
from tailrace.records.runs import Piece, read_runs
from tailrace.records.untaken import TakeBatches, read_untaken
from tailrace.runtime.files import File, FileCutError, read_exactly

Found_co = TypeVar("Found_co", covariant=True)

WINDOW_BYTES: Final = 1280 * 1024
"""Holds the largest batch that `message.max.bytes` allows by default, and few batches of usual size
are read twice; small enough that checksums and kernels find the bytes in the processor's cache."""

FIRST_WINDOW_BYTES: Final = 64 * 1024
"""Holds a batch of the size that producers send by default, several times."""

HEADERS_WINDOW_BYTES: Final = 64 * 1024
"""Window when only headers are read: small batches share a window, large ones are skipped."""


class _Reader(Protocol[Found_co]):
    """Splits a window into batches or runs; `position` is the end of the whole ones."""

    @property
    def position(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[int, Found_co]]: ...


def walk_batches(
    file: File, path: str, *, start: int, limit: int, window_bytes: int = WINDOW_BYTES
) -> Iterator[tuple[Position, Batch]]:
    """Position and batch from `start` on; ends before a batch that reaches beyond `limit`.

    A batch stays valid; a reference to it keeps its window in memory.

    Raises:
        CorruptionError: bytes that cannot be the start of a batch, with path and position.
        FileCutError: the file ends before `limit`.
        OSError: the file cannot be read.
    """
    return _walk(file, path, read_all_batches, start=start, limit=limit, window_bytes=window_bytes)


def walk_runs(file: File, path: str, *, start: int, limit: int) -> Iterator[tuple[Position, Piece]]:
    """Walk as `walk_batches` does, with neighbouring batches in runs; see `records.runs`."""
    return _walk(file, path, read_runs, start=start, limit=limit, window_bytes=WINDOW_BYTES)


def walk_untaken(
    file: File, path: str, take: TakeBatches, *, start: int, limit: int
) -> Iterator[tuple[Position, Batch]]:
    """Walk as `walk_batches` does, without the batches that `take` takes."""
    read = partial(read_untaken, take=take)
    return _walk(file, path, read, start=start, limit=limit, window_bytes=WINDOW_BYTES)


def walk_headers(
    file: File, path: str, *, start: int, limit: int, window_bytes: int = HEADERS_WINDOW_BYTES
) -> Iterator[tuple[Position, Batch]]:
    """Walk as `walk_batches` does, for headers only: the view of a v2 batch may lack its records.

    `Batch.size` is right. `Batch.check` and the records must not be used.

    Raises:
        CorruptionError: bytes that cannot be the start of a batch, with path and position.
        FileCutError: the file ends before `limit`.
        OSError: the file cannot be read.
    """
    position = Position(start)
    window_start, data = start, b""
    while position < limit:
        at = position - window_start
        if at + layout.HEADER_SIZE > len(data):
            window_start, at = position, 0
            data = read_exactly(
                file, path, position=position, size=min(window_bytes, limit - position)
            )
        header = memoryview(data)[at : at + layout.HEADER_SIZE]
        if len(header) < layout.FRAME_SIZE:
            return
        _, length, _, magic = layout.FRAME.unpack_from(header)
        size = length + layout.LOG_OVERHEAD
        if magic != layout.MAGIC or size < layout.HEADER_SIZE:
            # Older formats and damage need more than the header: `walk_batches` handles both.
            yield from walk_batches(file, path, start=position, limit=limit)
            return
        if size > limit - position:
            return
        batch = Batch(header)
        batch.size = size
        yield position, batch
        position = Position(position + size)


def _walk(
    file: File,
    path: str,
    read: Callable[[memoryview], "_Reader[Found_co]"],
    *,
    start: int,
    limit: int,
    window_bytes: int,
) -> Iterator[tuple[Position, Found_co]]:
    position, size = Position(start), min(FIRST_WINDOW_BYTES, window_bytes)
    while position < limit:
        wanted = min(size, limit - position)
        data = file.read(position, wanted)
        reader = read(memoryview(data))
        try:
            for at, found in reader:
                yield Position(position + at), found
        except CorruptionError as error:
            raise error.located(path=path, position=position + (error.position or 0)) from error
        if len(data) < wanted:
            raise FileCutError(path, position=position + len(data))
        position = Position(position + reader.position)
        if wanted - reader.position >= limit - position:
            return  # The rest is a partial batch.
        size = min(2 * size, window_bytes)
        if not reader.position:
            # The batch is larger than the window.
            size = frame_size(read_exactly(file, path, position=position, size=layout.FRAME_SIZE))
            if size > limit - position:
                return
            if size > window_bytes:
                check_large(file, path, position=position)


def frame_size(frame: bytes) -> int:
    """The size of a batch or an older entry, from its first bytes."""
    _, length, _, _ = layout.FRAME.unpack_from(frame)
    return int(length) + layout.LOG_OVERHEAD


def check_large(file: File, path: str, *, position: int) -> None:
    """Verify the checksum of a large batch or older entry, `WINDOW_BYTES` at a time.

    Raises:
        CorruptBatchError: the checksum is wrong.
        OSError: the file cannot be read.
    """
    frame = read_exactly(file, path, position=position, size=layout.FRAME_SIZE)
    offset, length, _, magic = layout.FRAME.unpack(frame)
    size = length + layout.LOG_OVERHEAD
    checksum: Callable[[bytes, int], int]
    if magic == layout.MAGIC:
        name, checksum, covered = "CRC-32C", packages.crc32c.crc32c, layout.ATTRIBUTES_POSITION
        stored_at = layout.CRC_POSITION
    else:
        name, checksum, covered = "CRC-32", zlib.crc32, layout.MAGIC_POSITION
        stored_at = layout.LOG_OVERHEAD
    stored_crc = read_exactly(file, path, position=position + stored_at, size=layout.CRC.size)
    (stored,) = layout.CRC.unpack(stored_crc)
    computed = 0
    at, end = position + covered, position + size
    while at < end:
        data = read_exactly(file, path, position=at, size=min(WINDOW_BYTES, end - at))
        computed = checksum(data, computed)
        at += len(data)
    if computed != stored:
        raise CorruptBatchError(
            f"a batch of {size} bytes has the {name} {stored}, the bytes have {computed}",
            path=path,
            position=position,
            offset=offset,
        )
