"""Summaries of many values in little memory: made by tasks, merged by the driver.

    DistinctCount   how many different values     exact up to 80 000, then HyperLogLog, ±0.8 %
    HeavyHitters    the values that come most     Misra and Gries: too low by at most a known number
    TimeHistogram   records and bytes over time   exact; its buckets grow with the span

All are fed with Arrow or numpy arrays. Nothing is done by value in Python, apart from keys longer
than 4 KiB.

Invariant: how values were cut into pieces, and in which order the pieces were merged, changes
neither a distinct count nor a histogram, and leaves heavy hitters within their bound.
"""

import hashlib
import math
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.arrays import Int64s, UInt8s, UInt64s

# 16 KiB of registers for an estimate; each bit more halves its variance and doubles the memory.
_PRECISION: Final = 14
_REGISTERS: Final = 1 << _PRECISION

EXACT_MAX: Final = 5 * _REGISTERS
"""Different values that are kept as hashes; above that, HyperLogLog has no bias to correct."""

DISTINCT_ERROR: Final = 1.04 / math.sqrt(_REGISTERS)
"""Standard error of an estimate, relative: 0.8 percent."""

HITTERS_MAX: Final = 1024
"""Values that `HeavyHitters` counts; a value with a larger share than one in 1025 is among them."""

HITTER_BYTES_MAX: Final = 256
"""Longer values are counted by their first bytes, so that memory is bounded."""

BUCKETS_MAX: Final = 1500
"""Buckets with records that a `TimeHistogram` may have."""

_HOUR_MS: Final = 3_600_000
WIDTHS_MS: Final = (60_000, _HOUR_MS, 24 * _HOUR_MS, 30 * 24 * _HOUR_MS, 360 * 24 * _HOUR_MS)
"""Widths of buckets: a minute, an hour, a day, 30 days, 360 days; each a multiple of the one
before."""

_LONG_BYTES: Final = 4096
_BLOCK_BYTES: Final = 1024 * 1024
"""Hashed at a time; it takes thirty times as much memory."""


def _table() -> UInt64s:
    digests = (hashlib.blake2b(bytes([each]), digest_size=8).digest() for each in range(256))
    return np.frombuffer(b"".join(digests), np.uint64)


_OF_BYTE: Final = _table()
_POWERS: Final = np.cumprod(np.full(_LONG_BYTES + 1, 0x9E3779B97F4A7C15, np.uint64))


def hashes_of(values: pa.Array) -> UInt64s:
    """64 bits for each value of a binary array without nulls; the same on every machine.

    A polynomial over random numbers for the bytes, mixed: good for counting, no protection
    against somebody who chooses values that collide.
    """
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    hashes = np.empty(len(values), np.uint64)
    # Long values are hashed one by one: the powers of the polynomial are a table of fixed size.
    is_long = lengths > _LONG_BYTES
    for index in np.flatnonzero(is_long).tolist():
        digest = hashlib.blake2b(values[index].as_buffer(), digest_size=8).digest()
        hashes[index] = int.from_bytes(digest, "little")
    short = values.filter(pa.array(~is_long)) if is_long.any() else values
    if len(short):
        hashes[~is_long] = _short_hashes(short, lengths[~is_long])
    return hashes


def _short_hashes(values: pa.Array, lengths: Int64s) -> UInt64s:
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    sums: UInt64s = np.empty(len(values), np.uint64)
    first = 0
    while first < len(values):
        # Whole values up to a block, and at least one.
        limit = int(np.searchsorted(ends, ends[first] + _BLOCK_BYTES, "right")) - 1
        limit = min(max(limit, first + 1), len(values))
        block = content[ends[first] : ends[limit]]
        starts = ends[first:limit] - ends[first]
        positions = np.arange(len(block)) - np.repeat(starts, lengths[first:limit])
        terms = _OF_BYTE[block] * _POWERS[positions]
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        sums[first:limit] = running[ends[first + 1 : limit + 1] - ends[first]] - running[starts]
        first = limit
    return _mixed(sums + lengths.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))


def _mixed(hashes: UInt64s) -> UInt64s:
    """Every bit of the input changes half of the output's; MurmurHash3 ends like this."""
    mixed: UInt64s = hashes
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ mixed >> np.uint64(33)) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(33)
    return mixed


class DistinctCount:
    """Counts different values by their hashes."""

    def __init__(self) -> None:
        self._hashes: UInt64s | None = np.empty(0, np.uint64)
        """Sorted; None when there are too many."""
        self._registers: UInt8s = np.empty(0, np.uint8)

    @property
    def is_exact(self) -> bool:
        """Whether the count is no estimate; two values with one hash are left out of account."""
        return self._hashes is not None

    def add(self, hashes: UInt64s) -> None:
        if self._hashes is None:
            _raise_registers(self._registers, hashes)
        if self._hashes is None or not len(hashes):
            return
        self._hashes = _sorted(np.concatenate([self._hashes, hashes]))
        # From here on the hashes are in registers only; there is no way back.
        if len(self._hashes) > EXACT_MAX:
            self._registers = np.zeros(_REGISTERS, np.uint8)
            _raise_registers(self._registers, self._hashes)
            self._hashes = None

    def merge(self, other: "DistinctCount") -> None:
        if other._hashes is not None:
            self.add(other._hashes)
            return
        if self._hashes is not None:
            hashes, self._hashes = self._hashes, None
            self._registers = np.zeros(_REGISTERS, np.uint8)
            _raise_registers(self._registers, hashes)
        self._registers = np.maximum(self._registers, other._registers)

    def count(self) -> int:
        """The number, or an estimate with a standard error of `DISTINCT_ERROR`."""
        if self._hashes is not None:
            return len(self._hashes)
        correction = 0.7213 / (1 + 1.079 / _REGISTERS)
        total = np.exp2(-self._registers.astype(np.float64)).sum()
        return round(correction * _REGISTERS * _REGISTERS / float(total))


def _sorted(hashes: UInt64s) -> UInt64s:
    """Each once, in order; numpy's own `unique` takes ten times as long for 64 random bits."""
    ordered: UInt64s = np.sort(hashes)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def _raise_registers(registers: UInt8s, hashes: UInt64s) -> None:
    """Each register has the longest run of zeros, plus one, of the hashes that fall to it."""
    numbers = (hashes >> np.uint64(64 - _PRECISION)).astype(np.int64)
    # The bit that is set bounds the run of zeros: without it a hash of zeros would have none.
    rest = hashes << np.uint64(_PRECISION) | np.uint64(1 << (_PRECISION - 1))
    # Halves are exact as floats, so their exponents tell the highest bits.
    high, low = (rest >> np.uint64(32)).astype(np.float64), (rest & np.uint64(0xFFFFFFFF))
    exponents = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low.astype(np.float64))[1])
    np.maximum.at(registers, numbers, (65 - exponents).astype(np.uint8))


class Hitter(NamedTuple):
    """A value that came often."""

    value: bytes
    count_min: int
    count_max: int


class HeavyHitters:
    """The values that came most, after Misra and Gries, and how to merge after Agarwal et al."""

    def __init__(self) -> None:
        self._counted = _counted(pa.array([], pa.binary()), np.empty(0, np.int64))
        self.error = 0
        """Largest error of a count, which may be too low. An unlisted value came no more often."""

    def add(self, values: pa.Array) -> None:
        if len(values) and pc.max(pc.binary_length(values)).as_py() > HITTER_BYTES_MAX:
            values = pc.binary_slice(values, 0, HITTER_BYTES_MAX)
        found = pc.value_counts(values)
        self._fold(_counted(found.field("values"), found.field("counts")))

    def merge(self, other: "HeavyHitters") -> None:
        self.error += other.error
        if len(other._counted):
            self._fold(other._counted)

    def top(self, count: int) -> list[Hitter]:
        ordered = self._counted.sort_by([("count", "descending"), ("value", "ascending")])
        rows = ordered.slice(0, count).to_pylist()
        return [Hitter(each["value"], each["count"], each["count"] + self.error) for each in rows]

    def _fold(self, added: pa.Table) -> None:
        both = pa.concat_tables([self._counted, added])
        summed = both.group_by("value", use_threads=False).aggregate([("count", "sum")])
        counts = summed.column("count_sum").to_numpy()
        values = summed.column("value").combine_chunks()
        if len(counts) > HITTERS_MAX:
            # The count of the first value that has no room is taken off all of them: that is the
            # step of Misra and Gries, for many values at once.
            cut = np.partition(counts, -HITTERS_MAX - 1)[-HITTERS_MAX - 1]
            self.error += int(cut)
            is_kept = counts > cut
            values, counts = values.filter(pa.array(is_kept)), counts[is_kept] - cut
        self._counted = _counted(values, counts)


def _counted(values: pa.Array, counts: "Int64s | pa.Array") -> pa.Table:
    return pa.table({"value": values, "count": pa.array(counts, pa.int64())})


class Bucket(NamedTuple):
    """A stretch of time."""

    start_ms: int
    records: int
    bytes: int


class TimeHistogram:
    """Records and bytes by time, in buckets as narrow as their number allows."""

    def __init__(self) -> None:
        self._level = 0
        self._starts, self._records, self._bytes = (np.empty(0, np.int64) for _ in range(3))

    @property
    def width_ms(self) -> int:
        return WIDTHS_MS[self._level]

    def add(self, timestamps_ms: Int64s, sizes: Int64s) -> None:
        """Records by their times, which are not negative, and their sizes in bytes."""
        self._fold(timestamps_ms, np.ones(len(timestamps_ms), np.int64), sizes)

    def merge(self, other: "TimeHistogram") -> None:
        self._level = max(self._level, other._level)
        self._fold(other._starts, other._records, other._bytes)

    def buckets(self) -> list[Bucket]:
        columns = (self._starts.tolist(), self._records.tolist(), self._bytes.tolist())
        return [Bucket(*row) for row in zip(*columns, strict=True)]

    def _fold(self, times: Int64s, records: Int64s, sizes: Int64s) -> None:
        times = np.concatenate([self._starts, times])
        records = np.concatenate([self._records, records])
        sizes = np.concatenate([self._bytes, sizes])
        while True:
            starts, positions = np.unique(times // self.width_ms, return_inverse=True)
            # Wider buckets are unions of narrower ones, so a histogram can always be widened,
            # whatever the order.
            if len(starts) <= BUCKETS_MAX or self._level + 1 == len(WIDTHS_MS):
                break
            self._level += 1
        self._starts = starts * self.width_ms
        # These sums are floats, which are exact up to 2**53.
        self._records, self._bytes = (
            np.bincount(positions, each, len(starts)).astype(np.int64) for each in (records, sizes)
        )
