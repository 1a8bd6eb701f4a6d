"""The new segment of a compaction: created as `.cleaned` files, filled in chunks, or discarded.

Invariant: `.cleaned` files are not part of the log. A start removes them.
"""

from collections.abc import Callable
from typing import Final

from tailrace.model import NO_TIMESTAMP, Offset
from tailrace.runtime.files import Buffer, Files
from tailrace.storage import names
from tailrace.storage.config import LogConfig
from tailrace.storage.index.time import ENTRY as TIME_ENTRY
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.segment import Segment, SegmentAppend, open_segment
from tailrace.values import replace

CHUNK_BYTES: Final = 64 * 1024
"""Bytes that are appended at a time. An index entry can only point at the start of a chunk, so
larger chunks would make every later search longer, and save little."""


def _go_on(_: int) -> None:
    """The pause of a rewriting without a throttle."""


class CleanedSegmentWriter:
    """Collects batches and appends them to the new segment."""

    def __init__(self, segment: Segment, pause: Callable[[int], None] = _go_on) -> None:
        self.segment = segment
        self._pause = pause
        self._pieces: list[Buffer] = []
        self._size = 0
        self._last_offset = -1
        self._newest = TimestampOffset(NO_TIMESTAMP, Offset(-1))

    def add(self, data: Buffer, *, last_offset: int, max_timestamp: int) -> None:
        """Adds the bytes of one batch; writes when a chunk is full.

        Raises:
            OSError: the device is full or failing.
        """
        if max_timestamp > self._newest.timestamp:
            self._newest = TimestampOffset(max_timestamp, Offset(last_offset))
        self._pieces.append(data)
        self._size += len(data)
        self._last_offset = last_offset
        if self._size >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the collected batches.

        Raises:
            OSError: the device is full or failing.
        """
        if not self._pieces:
            return
        self.segment.append(
            SegmentAppend(
                data=b"".join(self._pieces),
                last_offset=Offset(self._last_offset),
                max_timestamp=self._newest.timestamp,
                max_timestamp_offset=self._newest.offset,
            )
        )
        self._pause(self._size)
        self._pieces, self._size = [], 0
        self._newest = TimestampOffset(NO_TIMESTAMP, Offset(-1))


def open_cleaned(
    files: Files, directory: str, *, base_offset: int, config: LogConfig, size_max: int
) -> Segment:
    """Create a segment with `.cleaned` names, for about `size_max` bytes of log.

    Raises:
        OSError: a file cannot be created or grown.
    """
    # The index needs an entry per chunk, and must not be full before the log is. A batch whose
    # timestamps are rewritten may become twice as large.
    entries_max = 2 * size_max // CHUNK_BYTES + 4
    roomy = replace(
        config,
        segment_index_bytes=max(config.segment_index_bytes, entries_max * TIME_ENTRY.size),
        is_preallocated=False,
    )
    return open_segment(
        files,
        directory,
        base_offset=Offset(base_offset),
        config=roomy,
        create=True,
        suffix=names.CLEANED_SUFFIX,
    )


def discard(files: Files, *segments: Segment, after: Exception) -> None:
    """Closes unfinished segments and removes their files.

    A file that cannot be removed stays until the next start; a note on `after`, the error that the
    caller gets, says so.
    """
    for segment in segments:
        paths = segment.paths()
        segment.close()
        try:
            for path in paths:
                files.remove(path)
        except OSError as error:
            after.add_note(f"and {segment.log.path} stays until the next start: {error}")
