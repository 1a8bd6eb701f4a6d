"""`SegmentSeal`: by what a task knows that a segment is still the one that was planned.

A segment only grows. Compaction, and a topic that is deleted and made again, put another file in
its place; retention takes it away. So a seal is a checksum over the first bytes and over the last
ones up to the length that it had: a file that has been rewritten has others, because the base
offset, the CRC and the length of a batch are there.

Not here: what is done about a broken seal (`directories`).
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model import Offset
from tailrace.reading.listing import SegmentFiles
from tailrace.records.layout import HEADER_SIZE
from tailrace.runtime.files import Files


class SegmentSeal(NamedTuple):
    """One segment as it was when the query was planned."""

    base_offset: Offset
    size: int
    """Bytes of whole batches."""
    checksum: int
    """CRC-32 of as many bytes at either end as a batch header has."""


def seal(files: Files, segment: SegmentFiles) -> SegmentSeal:
    """The seal of a segment as it is now.

    Raises:
        OSError: the file cannot be read.
    """
    return SegmentSeal(
        segment.base_offset, segment.size, _checksum(files, segment.path, segment.size)
    )


def broken_seal(
    files: Files, segments: Sequence[SegmentFiles], seals: Sequence[SegmentSeal]
) -> str | None:
    """Explain how the first changed segment differs from its seal; None if none has changed.

    Raises:
        OSError: a file cannot be read.
    """
    paths = {segment.base_offset: segment for segment in segments}
    for each in seals:
        segment = paths.get(each.base_offset)
        if segment is None:
            return f"the segment from offset {each.base_offset} on is gone"
        # More bytes are no change: the active segment grows under its readers.
        if segment.size < each.size:
            return f"{segment.path} had {each.size} bytes and now has {segment.size}"
        if _checksum(files, segment.path, each.size) != each.checksum:
            return f"{segment.path} was rewritten"
    return None


def _checksum(files: Files, path: str, size: int) -> int:
    file = files.open(path, read_only=True)
    try:
        # Both ends: compaction may keep the first batch as it was, and then moves those after it.
        first = file.read(0, min(HEADER_SIZE, size))
        return zlib.crc32(file.read(max(size - HEADER_SIZE, 0), HEADER_SIZE), zlib.crc32(first))
    finally:
        file.close()
