"""Sketches against exact answers: distinct values, heavy hitters, times."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.jobs.sketches import (
    BUCKETS_MAX,
    DISTINCT_ERROR,
    EXACT_MAX,
    HITTER_BYTES_MAX,
    HITTERS_MAX,
    WIDTHS_MS,
    DistinctCount,
    HeavyHitters,
    TimeHistogram,
    hashes_of,
)

VALUES = st.lists(st.binary(max_size=12))
PIECES = st.lists(st.lists(st.binary(max_size=3), max_size=40), max_size=8)


def binary(values: list[bytes]) -> pa.Array:
    """An array, sliced out of a larger one as those of a chunk may be."""
    return pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))


def numbered(first: int, limit: int) -> pa.Array:
    """Different values, of different lengths."""
    return pa.array([b"key-%d" % number for number in range(first, limit)], pa.binary())


@given(VALUES)
def test_equal_values_have_equal_hashes_and_others_do_not(values: list[bytes]) -> None:
    """Hashes of values of every length, down to none, are the same anywhere in an array."""
    hashes = hashes_of(binary(values)).tolist()
    assert len(set(hashes)) == len(set(values))
    assert hashes == [int(hashes_of(binary([each]))[0]) for each in values]


def test_long_values_are_hashed_among_short_ones() -> None:
    """Values longer than a block are hashed too, and each of their bytes counts."""
    long = b"x" * 5_000_000
    values = [b"a", long, b"", long[:-1] + b"y", b"x" * 4096, b"x" * 4097, long]
    hashes = hashes_of(binary(values)).tolist()
    assert hashes[1] == hashes[6]
    assert len(set(hashes)) == 6


@given(PIECES)
def test_few_distinct_values_are_counted_exactly(pieces: list[list[bytes]]) -> None:
    """However they come in pieces, merged or added."""
    merged, added = DistinctCount(), DistinctCount()
    for piece in pieces:
        part = DistinctCount()
        part.add(hashes_of(binary(piece)))
        merged.merge(part)
        added.add(hashes_of(binary(piece)))
    expected = len({value for piece in pieces for value in piece})
    assert merged.is_exact
    assert merged.count() == added.count() == expected


def test_many_distinct_values_are_estimated_within_the_error() -> None:
    """Three times the standard error, from where the exact count ends up to a million."""
    for count in (EXACT_MAX + 1, 200_000, 1_000_000):
        found = DistinctCount()
        found.add(hashes_of(numbered(0, count)))
        assert not found.is_exact
        assert abs(found.count() - count) <= 3 * DISTINCT_ERROR * count, count


def test_an_estimate_does_not_depend_on_the_pieces() -> None:
    """Exact ones and estimates merge in any order to what all at once would give."""
    whole = DistinctCount()
    whole.add(hashes_of(numbered(0, 150_000)))
    borders = [0, 100_000, 100_010, 120_000, 150_000]
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)):
        merged = DistinctCount()
        for number in order:
            part = DistinctCount()
            part.add(hashes_of(numbered(max(0, borders[number] - 50), borders[number + 1])))
            merged.merge(part)
        assert merged.count() == whole.count()


@given(PIECES)
def test_few_values_are_counted_by_name(pieces: list[list[bytes]]) -> None:
    """All of them, with exact counts, the most frequent first."""
    merged = HeavyHitters()
    for piece in pieces:
        part = HeavyHitters()
        part.add(binary(piece))
        merged.merge(part)
    exact = Counter(value for piece in pieces for value in piece)
    assert merged.error == 0
    ordered = sorted(exact.items(), key=lambda each: (-each[1], each[0]))
    assert [(value, count) for value, count, _ in merged.top(10**6)] == ordered


def test_heavy_hitters_are_found_among_very_many_values() -> None:
    """Each count lies within its bounds, and the bound is what Misra and Gries promise."""
    chance = np.random.default_rng(7)
    drawn = chance.zipf(1.2, 400_000).clip(max=10**6)
    values = [b"%d" % each for each in drawn.tolist()]
    exact = Counter(values)
    merged = HeavyHitters()
    for start in range(0, len(values), 90_000):
        part = HeavyHitters()
        for first in range(start, min(start + 90_000, len(values)), 30_000):
            part.add(pa.array(values[first : min(first + 30_000, start + 90_000)], pa.binary()))
        merged.merge(part)
    assert 0 < merged.error <= len(values) // (HITTERS_MAX + 1)
    found = {value: (low, high) for value, low, high in merged.top(HITTERS_MAX)}
    for value, count in exact.items():
        low, high = found.get(value, (0, merged.error))
        assert low <= count <= high
    assert [value for value, _, _ in merged.top(5)] == [key for key, _ in exact.most_common(5)]


def test_long_values_are_counted_by_their_beginning() -> None:
    """A thousand long values take a few hundred kilobytes at most."""
    found = HeavyHitters()
    found.add(pa.array([b"x" * 10_000, b"x" * 20_000, b"y"], pa.binary()))
    assert found.top(2) == [(b"x" * HITTER_BYTES_MAX, 2, 2), (b"y", 1, 1)]


@given(
    st.lists(st.lists(st.integers(0, 4 * 10**12), max_size=30), max_size=6),
    st.integers(1, 10**6),
)
def test_times_are_counted_in_buckets(pieces: list[list[int]], size: int) -> None:
    """Exactly, in buckets of one width; however they come in pieces."""
    merged, added = TimeHistogram(), TimeHistogram()
    for piece in pieces:
        part = TimeHistogram()
        times = np.array(piece, np.int64)
        part.add(times, np.full(len(piece), size, np.int64))
        merged.merge(part)
        added.add(times, np.full(len(piece), size, np.int64))
    exact: defaultdict[int, int] = defaultdict(int)
    for each in (each for piece in pieces for each in piece):
        exact[each // merged.width_ms * merged.width_ms] += 1
    expected = [(start, count, count * size) for start, count in sorted(exact.items())]
    assert merged.buckets() == added.buckets() == expected


def test_buckets_grow_with_the_span() -> None:
    """A day comes by minutes, a month by hours, fifty years by days or more."""
    for days, width in ((1, WIDTHS_MS[0]), (30, WIDTHS_MS[1]), (1000, WIDTHS_MS[2])):
        found = TimeHistogram()
        times = np.arange(0, days * 86_400_000, 30_000 * days, dtype=np.int64)
        found.add(times, np.ones(len(times), np.int64))
        assert found.width_ms == width
        assert len(found.buckets()) <= BUCKETS_MAX
        assert sum(each.records for each in found.buckets()) == len(times)
