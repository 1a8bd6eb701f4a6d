"""The segments of one log."""

import pytest

from tailrace.model import Offset
from tailrace.storage.segment import Segment, open_segment
from tailrace.storage.segments import Segments
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import batch, settings


def segment(base_offset: int, files: MemoryFiles | None = None) -> Segment:
    """An empty segment."""
    return open_segment(
        files or MemoryFiles(), ".", base_offset=Offset(base_offset), config=settings(), create=True
    )


def three() -> Segments:
    """Base offsets 0, 170 and 345."""
    return Segments([segment(0), segment(170), segment(345)])


def bases(segments: object) -> list[int]:
    """Base offsets, in order."""
    return [each.base_offset for each in segments]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (-1, [0, 170, 345]), (0, [0, 170, 345]), (169, [0, 170, 345]),
        (170, [170, 345]), (344, [170, 345]), (345, [345]), (10**9, [345]),
    ],
)  # fmt: skip
def test_segments_are_found_from_an_offset_on(offset: int, found: list[int]) -> None:
    """From the one that holds it on."""
    assert bases(three().from_offset(Offset(offset))) == found


def test_pairs_come_with_the_next_segment() -> None:
    """The active one comes with None."""
    pairs = list(three().pairs_from(Offset(200)))
    assert [(a.base_offset, b and b.base_offset) for a, b in pairs] == [(170, 345), (345, None)]


def test_the_ends_and_the_size() -> None:
    """First, active, count, and bytes of all."""
    segments = three()
    segments.first.log.append(batch())
    segments.active.log.append(batch())
    assert (segments.first.base_offset, segments.active.base_offset, len(segments)) == (0, 345, 3)
    assert segments.size == 2 * len(batch())


def test_a_new_segment_is_the_active_one() -> None:
    """Its base offset is above that of the one before."""
    segments = three()
    segments.add(segment(400))
    assert segments.active.base_offset == 400
    with pytest.raises(AssertionError):
        segments.add(segment(400))


def test_segments_are_taken_out() -> None:
    """Searches go on without the removed segments; at least one must stay."""
    segments = three()
    segments.remove([segments.first, segments.active])
    assert bases(segments) == [170]
    with pytest.raises(AssertionError):
        segments.remove([segments.first])


def test_segments_are_put_in_place_of_others() -> None:
    """They stay in order of base offsets, also if a new one has an old base or all old ones go."""
    segments = three()
    files = MemoryFiles()
    new = segment(0, files)
    segments.replace([new], list(segments)[:2])
    assert bases(segments) == [0, 345]
    assert segments.first is new
    segments.replace([segment(500)], list(segments))
    assert bases(segments) == [500]
    segments.replace([segment(500), segment(600)], [segments.first])
    assert bases(segments) == [500, 600]


def test_one_base_offset_has_one_segment() -> None:
    """A replacement whose old segment stays is a mistake of ours."""
    segments = three()
    with pytest.raises(AssertionError):
        segments.replace([segment(170)], [segments.first])
    assert bases(segments) == [0, 170, 345]


def test_a_reader_keeps_the_segments_with_which_it_began() -> None:
    """A change swaps the whole; iterations under way see the segments before it."""
    segments = three()
    walk, behind, pairs = (
        iter(segments),
        segments.from_offset(Offset(170)),
        segments.pairs_from(Offset(170)),
    )
    next(walk)
    segments.replace([segment(170)], list(segments))
    segments.add(segment(900))
    assert bases(walk) == bases(behind) == [170, 345]
    assert [a.base_offset for a, _ in pairs] == [170, 345]
    assert bases(segments) == [170, 900]


def test_a_segment_that_is_not_there_cannot_go() -> None:
    """A mistake of ours, which changes nothing."""
    segments = three()
    for change in (segments.remove, lambda old: segments.replace([segment(7)], old)):
        with pytest.raises(AssertionError):
            change([segment(170)])
    assert bases(segments) == [0, 170, 345]


def test_segments_between_two_offsets() -> None:
    """The segments that have offsets of the range; none for an empty range."""
    segments = Segments([segment(0), segment(10), segment(20)])
    assert bases(segments.between(Offset(10), Offset(10))) == []
    assert bases(segments.between(Offset(15), Offset(15))) == []
    assert bases(segments.between(Offset(0), Offset(21))) == [0, 10, 20]
    assert bases(segments.between(Offset(1), Offset(5))) == [0]
    assert bases(segments.between(Offset(13), Offset(21))) == [10, 20]
    assert bases(segments.between(Offset(13), Offset(17))) == [10]
    with pytest.raises(ValueError, match="is below the start"):
        segments.between(Offset(10), Offset(0))
