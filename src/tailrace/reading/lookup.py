"""Find where to start reading the files of a log, by offset or time, and where the log ends.

The indexes are searched in their files, entry by entry, so that this works beside a broker and on
object stores. How the batches of a file are read is `tailrace.storage.walk`.
"""

import struct
from collections.abc import Sequence
from contextlib import closing

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.reading.listing import SegmentFiles, open_sibling
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.storage.segment_walk import Sound, walk_segment
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import walk_batches, walk_headers


def position_near(files: Files, segment: SegmentFiles, file: File, *, offset: Offset) -> Position:
    """A position at or before the batch with `offset`, by the offset index where it can serve.

    The index has no checksum, so an entry counts only if the batch it points at fits it.

    Raises:
        OSError: a file cannot be read.
    """
    relative, found = offset - segment.base_offset, None
    if relative > 0:
        index = open_sibling(files, segment, names.OFFSET_INDEX_SUFFIX)
        found = _floor(index, offset_index.ENTRY, key=relative)
    if found is None or not 0 < found[1] < segment.size:
        return Position(0)
    last_offset, position = segment.base_offset + found[0], Position(found[1])
    try:
        _, batch = next(
            walk_batches(file, segment.path, start=position, limit=segment.size), (0, None)
        )
        if batch is None:
            return Position(0)
        # A read that begins inside of a batch could take the value of a record for a batch.
        batch.check()
    except CorruptionError:
        return Position(0)
    # The entry has the last offset of the append that begins here.
    fits = segment.base_offset <= batch.base_offset <= batch.last_offset <= last_offset
    return position if fits else Position(0)


def find_end(files: Files, segments: Sequence[SegmentFiles]) -> Offset:
    """The offset after the last whole batch, from the last index entry on; 0 without segments.

    Damage on the way is stepped over.

    Raises:
        OSError: a file cannot be read.
    """
    if not segments:
        return Offset(0)
    last = segments[-1]
    with closing(files.open(last.path, read_only=True)) as file:
        near = position_near(files, last, file, offset=Offset(last.base_offset + INT32_MAX))
        end, position = last.base_offset, near
        try:
            for at, batch in walk_headers(file, last.path, start=near, limit=last.size):
                end, position = max(end, batch.next_offset), Position(at + batch.size)
            # Headers lead to the end, or to the room for appends: then nothing is damaged.
            if is_blank(file, last.path, start=position, limit=last.size):
                return end
        except CorruptionError:
            pass
        return _end_after_damage(file, last, start=near)


def _end_after_damage(file: File, last: SegmentFiles, *, start: Position) -> Offset:
    end = last.base_offset
    for found in walk_segment(
        file,
        last.path,
        base_offset=last.base_offset,
        size=last.size,
        start=start,
        reads_records=False,
    ):
        if isinstance(found, Sound):
            end = found.piece.next_offset
    return end


def offset_before_time(files: Files, segment: SegmentFiles, timestamp_ms: int) -> Offset:
    """An offset below which no record of the segment is as young as `timestamp_ms`.

    Raises:
        OSError: the time index cannot be read.
    """
    index = open_sibling(files, segment, names.TIME_INDEX_SUFFIX)
    found = _floor(index, time_index.ENTRY, key=timestamp_ms - 1)
    if found is None or found[1] < 0:
        return segment.base_offset
    return Offset(segment.base_offset + found[1] + 1)


def newest_timestamp(files: Files, segment: SegmentFiles) -> int | None:
    """The largest timestamp (ms) that the time index knows.

    Batches after its last entry may have larger ones.

    Raises:
        OSError: the time index cannot be read.
    """
    index = open_sibling(files, segment, names.TIME_INDEX_SUFFIX)
    found = _floor(index, time_index.ENTRY, key=2**63 - 1)
    return None if found is None else found[0]


def _floor(file: File | None, entry: struct.Struct, *, key: int) -> tuple[int, int] | None:
    """The last entry in use whose first field is at most `key`; None without one, or a file.

    The file is closed then.

    Zeros fill a preallocated index. No entry in use is all zeros but the first one could be, in a
    time index of a record at the beginning of 1970, which costs a longer scan.
    """
    if file is None:
        return None
    try:
        low, high = 0, file.size() // entry.size
        found = None
        while low < high:
            middle = (low + high) // 2
            # Entry by entry: beside a broker the file may be cut at any time, and object stores
            # read ranges.
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
