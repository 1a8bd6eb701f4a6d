"""The segments of one log, ordered by base offset; a floor search finds the one for an offset.

    base offsets     0 ──────── 170 ──────── 345 ────
    offset 200                  from_offset: 170, 345

Invariant: the segments are one tuple that is replaced whole. A reader on another thread sees the
segments before a change or after it, never a mixture, and may keep using those it has seen.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tailrace.model import Offset
from tailrace.storage.segment import Segment


class Segments:
    """The segments of a log, at least one; only the last takes writes. One thread changes them."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments: tuple[Segment, ...] = ()
        self._set(segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        """The segment with the lowest base offset."""
        return self._segments[0]

    @property
    def active(self) -> Segment:
        """The last segment, which takes writes."""
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes of log in all segments."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Append a new active segment."""
        self._set((*self._segments, segment))

    def remove(self, segments: Sequence[Segment]) -> None:
        """Remove segments without closing them; at least one must stay."""
        assert all(segment in self._segments for segment in segments)
        self._set([segment for segment in self._segments if segment not in segments])

    def replace(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Replace `old` segments, maybe all, by new ones, without closing them."""
        assert all(segment in self._segments for segment in old)
        kept = [segment for segment in self._segments if segment not in old]
        self._set(sorted([*kept, *new], key=_base_offset))

    def from_offset(self, offset: Offset) -> Iterator[Segment]:
        """The segment with the largest base offset at or below `offset`, and those after it."""
        segments = self._segments
        return iter(segments[_floor(segments, offset) :])

    def pairs_from(self, offset: Offset) -> Iterator[tuple[Segment, Segment | None]]:
        """The same, each with the segment after it; None for the active one."""
        segments = self._segments
        start = _floor(segments, offset)
        return zip(segments[start:], (*segments[start + 1 :], None), strict=True)

    def between(self, start_offset: Offset, limit_offset: Offset) -> list[Segment]:
        """The segments with offsets from `start_offset` up to below `limit_offset`.

        Raises:
            ValueError: the limit lies before the start.
        """
        if limit_offset < start_offset:
            raise ValueError(f"the limit {limit_offset} is below the start {start_offset}")
        if limit_offset == start_offset:
            return []
        segments = self.from_offset(start_offset)
        return [segment for segment in segments if segment.base_offset < limit_offset]

    def _set(self, segments: Sequence[Segment]) -> None:
        assert segments
        bases = [segment.base_offset for segment in segments]
        assert all(a < b for a, b in pairwise(bases))
        self._segments = tuple(segments)


def _floor(segments: tuple[Segment, ...], offset: Offset) -> int:
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def _base_offset(segment: Segment) -> Offset:
    return segment.base_offset
