"""The kernels that hold the entries of a segment's indexes against a run of its batches.

They only say whether all of them are in order. What is wrong with an entry is said by the caller
(`tailrace.offline.indexes`), which then looks at the same entries one by one.

An entry of the offset index has an offset (int32, after the segment's base offset) and a position
(int32). One of the time index has a timestamp (int64) and an offset (int32, likewise). All are big
endian.

Invariant: nothing outside of the buffers is read, and nothing is written to `state` unless the
answer is 1. An entry is named by the place of its first byte in the buffer.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from tailrace.kernels.batch_header import (
        ATTRIBUTES_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LENGTH_AT,
        LOG_APPEND_TIME_FLAG,
        LOG_OVERHEAD,
        MAX_TIMESTAMP_AT,
    )
    from tailrace.kernels.memory import address, read_integer

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs


class OffsetState(IntEnum):
    """Places in the `state` of `check_offset_entries`: before the run, and then after it."""

    POSITION = 0
    """Position of the run in its log file."""
    BASE_OFFSET = 1
    """The base offset of the segment."""
    ENTRY = 2
    """The next entry."""
    IS_LAST = 3
    """1 if the index ends with the buffer, else 0."""
    OFFSET_BEFORE = 4
    """Offset and position of the last entry in order."""
    POSITION_BEFORE = 5
    OPEN_OFFSET = 6
    """The offset of the entry whose append has begun and not ended, or -1."""
    OPEN_ENTRY = 7
    """Number of that entry; -1 if it was reached before this run."""


class TimeState(IntEnum):
    """Places in the `state` of `check_time_entries`: before the run, and then after it."""

    BASE_OFFSET = 0
    """The base offset of the segment."""
    ENTRY = 1
    """The next entry."""
    IS_LAST = 2
    """1 if the index ends with the buffer, else 0."""
    TIMESTAMP_BEFORE = 3
    """Timestamp and offset of the last entry in order."""
    OFFSET_BEFORE = 4
    NEWEST = 5
    """The largest timestamp of all batches so far."""
    NEWEST_BASE = 6
    """Base offset of the first batch that has it, or -1."""
    NEWEST_IS_CREATE_TIME = 7
    """Whether that batch has CreateTime, 1 or 0."""


_OFFSET_ENTRY_SIZE: Final = 8
_TIME_ENTRY_SIZE: Final = 12

_OFFSET_MAX: Final = (1 << 63) - (1 << 33)
"""Below it the last offset of a batch is an int64, whatever its delta."""


def read_frame(data: "Ints", at: int, limit: int, segment_base: int) -> tuple[int, int, int]:
    """Size of the batch at `at`, first and last offset after the segment's base; size 0 if odd."""
    # All fields read below are in the header, so this is the only comparison they need.
    if limit - at < HEADER_SIZE:
        return 0, 0, 0
    base = read_integer(data, at, 8)
    size = read_integer(data, at + LENGTH_AT, 4) + LOG_OVERHEAD
    last_delta = read_integer(data, at + LAST_OFFSET_DELTA_AT, 4)
    # A step of at least a header: the loops of the callers end.
    if size < HEADER_SIZE or size > limit - at or last_delta < 0:
        return 0, 0, 0
    # Then the differences below are not negative and fit into int64.
    if segment_base < 0 or base < segment_base or base >= _OFFSET_MAX:
        return 0, 0, 0
    return size, base - segment_base, base - segment_base + last_delta


def offset_entry_rises(
    entries: "Ints", at: int, limit: int, offset: int, position: int, is_last: int
) -> bool:
    """Whether the entry at `at` is in order between `offset` and `position` and the next one.

    Also False if the next one is not in the buffer, and the index has more.
    """
    this_offset, this_position = read_integer(entries, at, 4), read_integer(entries, at + 4, 4)
    # The offset index rises strictly in both numbers.
    if this_offset <= offset or this_position <= position:
        return False
    at += _OFFSET_ENTRY_SIZE
    # The neighbour is in the next part of the index: only a caller who has it can say.
    if limit - at < _OFFSET_ENTRY_SIZE:
        return is_last != 0
    return (
        read_integer(entries, at, 4) > this_offset
        and read_integer(entries, at + 4, 4) > this_position
    )


def time_entry_rises(
    entries: "Ints", at: int, limit: int, timestamp: int, offset: int, is_last: int
) -> bool:
    """Likewise in the time index, where neighbours may have the same offset."""
    this_timestamp, this_offset = read_integer(entries, at, 8), read_integer(entries, at + 8, 4)
    # Kafka appends an entry only for a larger timestamp; its offset may be that of the entry
    # before.
    if this_timestamp <= timestamp or this_offset < offset:
        return False
    at += _TIME_ENTRY_SIZE
    if limit - at < _TIME_ENTRY_SIZE:
        return is_last != 0
    return (
        read_integer(entries, at, 8) > this_timestamp
        and read_integer(entries, at + 8, 4) >= this_offset
    )


def check_offset_entries(data: "Ints", count: int, entries: "Ints", state: "Outputs") -> int:
    """Goes through the batches of a run, which are all of `data`, with the entries that they reach.

    The `count` batches are sound and their offsets rise. `entries` is a part of the offset index.
    An entry opens with the batch that it points at, and closes with the batch that ends at its
    offset.

    Returns:
        1 if every entry is in order; then `state`, whose places `OffsetState` names, is that after
        the run. 0 if one is not, or if this part of the index does not tell.
    """
    octets = address(data)
    index = address(entries)
    with cython.nogil:
        position, segment_base, entry, is_last = state[0], state[1], state[2], state[3]
        offset_before, position_before, open_offset, open_entry = (
            state[4],
            state[5],
            state[6],
            state[7],
        )
        at = 0
        for _ in range(count):
            size, _, last_offset = read_frame(octets, at, len(data), segment_base)
            if size == 0:
                return 0
            if entry <= len(entries) - _OFFSET_ENTRY_SIZE:
                if entry < 0 or not offset_entry_rises(
                    index, entry, len(entries), offset_before, position_before, is_last
                ):
                    return 0
                points_at = read_integer(index, entry + 4, 4)
                # An entry must point at the start of a batch, and the one before it must be closed
                # by then.
                if points_at < position or (points_at == position and open_offset >= 0):
                    return 0
                if points_at == position:
                    open_offset, open_entry = read_integer(index, entry, 4), entry
                    offset_before, position_before = open_offset, points_at
                    entry += _OFFSET_ENTRY_SIZE
            elif is_last == 0:
                return 0
            # An append of several batches may have one entry: the first one's position, the last
            # one's offset.
            if open_offset == last_offset:
                open_offset, open_entry = -1, -1
            at += size
            position += size
        # The count and the bytes disagree, so the caller's view of the run is not ours.
        if at != len(data):
            return 0
        state[0], state[2], state[4], state[5] = position, entry, offset_before, position_before
        state[6], state[7] = open_offset, open_entry
        return 1


def check_time_entries(data: "Ints", count: int, entries: "Ints", state: "Outputs") -> int:
    """Check a part of the time index like `check_offset_entries`; `TimeState` names the places.

    An entry has the largest timestamp so far, and the offset of a record in the first batch that
    has it; where a broker sets the timestamps, in any batch.
    """
    octets = address(data)
    index = address(entries)
    with cython.nogil:
        segment_base, entry, is_last = state[0], state[1], state[2]
        timestamp_before, offset_before = state[3], state[4]
        newest, newest_base, newest_is_create_time = state[5], state[6], state[7]
        at = 0
        for _ in range(count):
            size, first_offset, last_offset = read_frame(octets, at, len(data), segment_base)
            if size == 0:
                return 0
            largest = read_integer(octets, at + MAX_TIMESTAMP_AT, 8)
            # Strictly: of batches with equal timestamps the first one counts, as in Kafka.
            if largest > newest:
                newest, newest_base = largest, segment_base + first_offset
                newest_is_create_time = int(
                    octets[at + ATTRIBUTES_AT + 1] & LOG_APPEND_TIME_FLAG == 0
                )
            while entry <= len(entries) - _TIME_ENTRY_SIZE:
                if entry < 0 or not time_entry_rises(
                    index, entry, len(entries), timestamp_before, offset_before, is_last
                ):
                    return 0
                timestamp, offset = read_integer(index, entry, 8), read_integer(index, entry + 8, 4)
                # The entry is for a batch of a later run.
                if offset > last_offset:
                    break
                # A broker that sets the timestamps notes the last offset that it appends, which may
                # be that of a later batch with the same time.
                is_late = newest_base < segment_base + first_offset and newest_is_create_time != 0
                if offset < first_offset or timestamp != newest or is_late:
                    return 0
                timestamp_before, offset_before = timestamp, offset
                entry += _TIME_ENTRY_SIZE
            # The next entry may be of this batch, and is in another part of the index.
            if is_last == 0 and entry > len(entries) - _TIME_ENTRY_SIZE:
                return 0
            at += size
        if at != len(data):
            return 0
        state[1], state[3], state[4] = entry, timestamp_before, offset_before
        state[5], state[6], state[7] = newest, newest_base, newest_is_create_time
        return 1
