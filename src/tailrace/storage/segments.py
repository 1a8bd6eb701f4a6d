"""The segments of one log, ordered by base offset; a floor search finds the one for an offset."""

from bisect import bisect_right
from collections.abc import Iterator

from tailrace.storage.segment import Segment


class Segments:
    """At least one segment; only the last takes writes."""

    def __init__(self, segments: list[Segment]) -> None:
        assert segments
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        assert all(a < b for a, b in zip(self._base_offsets, self._base_offsets[1:], strict=False))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    @property
    def active(self) -> Segment:
        """The last segment, which takes writes."""
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes of log in all segments."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Put a new active segment behind the last one."""
        assert segment.base_offset > self._base_offsets[-1]
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segment with the largest base offset at or below `offset`, and those behind it."""
        first = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return iter(tuple(self._segments[first:]))
