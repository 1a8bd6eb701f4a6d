"""The kernels around the map of a compaction: the newest offset of every key, and who stays by it.

Two buffers of fixed size, which the caller has made and cleared:

    slots   pairs of int64      word     31 bits of the key's hash | 32 bits: place in the arena + 1
                                offset   the largest offset that was put for the key
            a word of 0 is a free slot; a key stands in the first free one from its hash on
    arena   bytes               size of a key (1 byte, or 255 and 4 bytes), and the key; and so on

The hash only says where to look. Two keys are the same when their bytes are, which is why the arena
has them: a map that trusted a hash would one day delete a record that nothing replaces.

Invariant: one slot at least is free, so every search ends; a key that was put is found with its
largest offset; a record is only ever given up for a record with the same key and a larger offset.

Hashes are 32 bits wide and multipliers 31, so that no product leaves int64. The helpers that read a
record are those of `tailrace.kernels.records`: whoever changes them deletes the `.nbi` files of
`__pycache__`, as for `copy_bytes`.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from tailrace.kernels.kernel import copy_bytes, helper, kernel
from tailrace.kernels.records import (
    RECORD_SIZE_MIN,
    RecordFault,
    read_record,
    wrapping_sum,
)

if TYPE_CHECKING:
    from tailrace.kernels.records import Ints, Outputs

_LEFTOVER: Final = int(RecordFault.LEFTOVER)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)

_UINT32_MAX: Final = (1 << 32) - 1
_TAG_MASK: Final = (1 << 31) - 1
_MULTIPLIER: Final = 0x5BD1E995
_SECOND_MULTIPLIER: Final = 0x27D4EB2F

_LONG_KEY: Final = 255
"""Keys of this size and more have their size in four bytes behind this one."""

_LONG_KEY_OVERHEAD: Final = 5


class MapState(IntEnum):
    """Places in the `state` of `put_keys`."""

    ARENA_USED = 0
    """Bytes of the arena in use."""
    KEYS = 1
    """Slots in use."""
    KEYS_MAX = 2
    """Slots that may be in use."""
    UNMAPPED = 3
    """Records so far whose key is larger than the whole arena: they are left out of the map."""
    LAST_OFFSET = 4
    """Offset of the last record that the call has walked; as it was, if it walked none."""
    WALKED = 5
    """Records that the call has walked; where a fault was found, the index of the bad one."""


class Chosen(IntEnum):
    """Places in the `totals` of `choose_records`."""

    UNKEYED = 0
    """Records given up because they have no key."""
    TOMBSTONES = 1
    """Records without a value among those that stay."""
    TIMESTAMP_DELTA_MAX = 2
    """Largest timestamp delta of those that stay."""
    SIZE = 3
    """Bytes of those that stay."""
    RECORDS = 4
    """Records that are sound; where a fault was found, the index of the bad one."""
    TIMESTAMP_DELTA_FIRST = 5
    """Timestamp delta of the first of those that stay."""


@helper
def hash_key(data: "Ints", position: int, size: int) -> int:
    """32 bits that depend on every byte of the key; multiply and mix, four bytes at a time."""
    mixed = (size * _MULTIPLIER) & _UINT32_MAX
    whole = position + (size & ~3)
    end = position + size
    while position < whole:
        word = (
            data[position]
            | (data[position + 1] << 8)
            | (data[position + 2] << 16)
            | (data[position + 3] << 24)
        )
        mixed = ((mixed ^ word) * _MULTIPLIER) & _UINT32_MAX
        mixed ^= mixed >> 15
        position += 4
    while position < end:
        mixed = ((mixed ^ data[position]) * _SECOND_MULTIPLIER) & _UINT32_MAX
        mixed ^= mixed >> 13
        position += 1
    mixed ^= mixed >> 16
    mixed = (mixed * _SECOND_MULTIPLIER) & _UINT32_MAX
    mixed ^= mixed >> 13
    mixed = (mixed * _MULTIPLIER) & _UINT32_MAX
    return mixed ^ (mixed >> 16)


@helper
def entry_size(size: int) -> int:
    """Bytes of the arena that a key of `size` bytes takes."""
    return size + 1 if size < _LONG_KEY else size + _LONG_KEY_OVERHEAD


@helper
def is_key_at(data: "Ints", position: int, size: int, arena: "Ints", place: int) -> bool:
    """Whether the arena's entry at `place` is the key `data[position:position + size]`."""
    stored = arena[place]
    place += 1
    if stored == _LONG_KEY:
        if size < _LONG_KEY:
            return False
        stored = (
            arena[place]
            | (arena[place + 1] << 8)
            | (arena[place + 2] << 16)
            | (arena[place + 3] << 24)
        )
        place += 4
    if stored != size:
        return False
    for index in range(size):  # noqa: SIM110 (Numba compiles no generator expression)
        if data[position + index] != arena[place + index]:
            return False
    return True


@helper
def find_slot(
    data: "Ints", position: int, size: int, slots: "Outputs", arena: "Ints"
) -> tuple[int, int]:
    """Index in `slots` of the key's word, or of the free one where it belongs; and the hash."""
    mixed = hash_key(data, position, size)
    tag = mixed & _TAG_MASK
    count = len(slots) >> 1
    slot = (mixed * count) >> 32
    while True:
        word = slots[2 * slot]
        if word == 0:
            return 2 * slot, mixed
        if (word >> 32) == tag and is_key_at(data, position, size, arena, (word & _UINT32_MAX) - 1):
            return 2 * slot, mixed
        slot += 1
        if slot == count:
            slot = 0


@helper
def touch(  # noqa: PLR0917 (a kernel takes its buffers by position)
    data: "Ints", position: int, limit: int, count: int, slots: "Outputs", arena: "Ints"
) -> int:
    """Brings what the keys of a batch will be held against into the processor's cache.

    A map is far larger than any cache, so every search waits for memory, one after the other. Here
    nothing depends on what is found, so the processor waits for many at once. Returns a number that
    means nothing; damaged records end it early.
    """
    touched = 0
    for _ in range(count):
        end, _, _, key_at, size, _, _, _, _ = read_record(data, position, limit)
        if end < 0:
            break
        position = end
        if size >= 0:
            slot = (hash_key(data, key_at, size) * (len(slots) >> 1)) >> 32
            place = (slots[2 * slot] & _UINT32_MAX) - 1
            if place >= 0:
                touched ^= arena[place]
    return touched


@kernel(
    "bytes", "int64", "int64", "int64",
    "int64", "int64", "int64[:]", "uint8[:]", "int64[:]",
)  # fmt: skip
def put_keys(  # noqa: PLR0917 (a kernel takes its buffers by position)
    data: "Ints", position: int, limit: int, count: int,
    base_offset: int, start_offset: int,
    slots: "Outputs", arena: "Outputs", state: "Outputs",
) -> int:  # fmt: skip
    """Notes the offset of every record from `start_offset` on that has a key.

    Ends early at the first record whose key has no room; what stands before it is in the map. A key
    that no empty arena could hold is passed over and counted.

    Returns:
        The records that were walked, `count` if all of them, or minus a `RecordFault`.
    """
    if count < 0 or count > (limit - position) // RECORD_SIZE_MIN:
        return -_RECORD_COUNT
    state[5] = touch(data, position, limit, count, slots, arena)
    used = state[0]
    keys = state[1]
    keys_max = state[2]
    unmapped = state[3]
    last_offset = state[4]
    walked = 0
    fault = 0
    is_full = False
    for _ in range(count):
        end, _, offset_delta, key_at, size, _, _, _, _ = read_record(data, position, limit)
        if end < 0:
            fault = end
            break
        position = end
        offset = wrapping_sum(base_offset, offset_delta)
        if size >= 0 and offset >= start_offset:
            needed = entry_size(size)
            if needed > len(arena):
                unmapped += 1
            else:
                slot, mixed = find_slot(data, key_at, size, slots, arena)
                if slots[slot] != 0:
                    slots[slot + 1] = max(slots[slot + 1], offset)
                elif keys >= keys_max or needed > len(arena) - used:
                    is_full = True
                    break
                else:
                    slots[slot] = ((mixed & _TAG_MASK) << 32) | (used + 1)
                    slots[slot + 1] = offset
                    keys += 1
                    if size < _LONG_KEY:
                        arena[used] = size
                        used += 1
                    else:
                        arena[used] = _LONG_KEY
                        arena[used + 1] = size & 255
                        arena[used + 2] = (size >> 8) & 255
                        arena[used + 3] = (size >> 16) & 255
                        arena[used + 4] = (size >> 24) & 255
                        used += 5
                    copy_bytes(data, key_at, arena, used, size)
                    used += size
        walked += 1
        last_offset = offset
    state[0] = used
    state[1] = keys
    state[3] = unmapped
    state[4] = last_offset
    state[5] = walked
    if fault < 0:
        return fault
    if not is_full and position != limit:
        return -_LEFTOVER
    return walked


@kernel(
    "bytes", "int64", "int64", "int64",
    "int64", "int64", "int64", "int64[:]", "uint8[:]", "uint8[:]", "int64[:]",
)  # fmt: skip
def choose_records(  # noqa: PLR0917 (a kernel takes its buffers by position)
    data: "Ints", position: int, limit: int, count: int,
    base_offset: int, latest_offset: int, keeps_tombstones: int,
    slots: "Outputs", arena: "Ints", keeps: "Outputs", totals: "Outputs",
) -> int:  # fmt: skip
    """Writes 1 to `keeps` for each record that stays, 0 for the others, and sums up in `totals`.

    What lies behind `latest_offset`, the last that the map knows of, stays. Before it a record goes
    if it has no key, if its key has a larger offset in the map, or if it is a tombstone and
    `keeps_tombstones` is 0. A record whose key no map of this size can hold stays in any case. The
    places of `totals` are named by `Chosen`.

    Returns:
        How many stay, or minus a `RecordFault`.
    """
    kept = 0
    unkeyed = 0
    tombstones = 0
    timestamp_max = 0
    timestamp_first = 0
    size_kept = 0
    walked = 0
    fault = 0
    if count < 0 or count > (limit - position) // RECORD_SIZE_MIN:
        return -_RECORD_COUNT
    totals[0] = touch(data, position, limit, count, slots, arena)
    if len(keeps) < count:
        return -_NO_ROOM
    for index in range(count):
        end, timestamp_delta, offset_delta, key_at, key_size, _, value_size, _, _ = read_record(
            data, position, limit
        )
        if end < 0:
            fault = end
            break
        offset = wrapping_sum(base_offset, offset_delta)
        stays = 1
        if offset <= latest_offset:
            if key_size < 0:
                unkeyed += 1
                stays = 0
            elif entry_size(key_size) > len(arena):
                # Nothing is known of this key, so its tombstone is all that hides older values.
                stays = 1
            elif value_size < 0 and keeps_tombstones == 0:
                stays = 0
            else:
                slot, _ = find_slot(data, key_at, key_size, slots, arena)
                if slots[slot] != 0 and offset < slots[slot + 1]:
                    stays = 0
        keeps[index] = stays
        if stays == 1:
            if kept == 0:
                timestamp_first = timestamp_delta
            if kept == 0 or timestamp_delta > timestamp_max:
                timestamp_max = timestamp_delta
            if value_size < 0:
                tombstones += 1
            kept += 1
            size_kept += end - position
        position = end
        walked += 1
    totals[0] = unkeyed
    totals[1] = tombstones
    totals[2] = timestamp_max
    totals[3] = size_kept
    totals[4] = walked
    totals[5] = timestamp_first
    if fault < 0:
        return fault
    if position != limit:
        return -_LEFTOVER
    return kept
