# cython: boundscheck=False
"""The kernels of a compaction's map: note the newest offset of each key, choose records by it.

The map is two buffers of fixed size, which the caller has made and cleared:

    slots   pairs of int64      word     31 bits of the key's hash | 32 bits: place in the arena + 1
                                offset   the largest offset that was put for the key
            a word of 0 is a free slot; a key is in the first free slot from its hash on
    arena   bytes               for each key: its size (1 byte, or 255 and 4 bytes), then the key

The hash only says where to look. Two keys are equal if their bytes are, and so the arena keeps the
bytes: a map that trusted a hash would one day delete a record that nothing replaces. It has a
secret, in `state`, or a client could choose keys with one hash, and every search would walk through
all of them.

A call takes many batches: `data` has their records, and `batches` has a row for each batch;
`BatchRow` names the places of a row. The records of a batch are
taken in groups. `read_group` reads a group, and fetches the map's memory for all of it at once.

Nothing here checks an index: keys and records lie where `read_record` has found them, slots come
from a hash that is scaled to their number, and places in the arena from the map itself. The kernels
compare the sizes of the other buffers when they begin.

Invariant: at least one slot is free, so every search ends. A key that was put is found with its
largest offset. A record is only dropped for a record with the same key and a larger offset.

Hashes have 32 bits and multipliers 31, so that every product fits into int64; so do those of the
secret, which has 30.
"""

import os
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

from tailrace.kernels.records import RecordFault

if not cython.compiled:
    from tailrace.kernels.memory import address, copy_bytes, is_equal, output_address
    from tailrace.kernels.records import can_hold, read_record, wrapping_sum

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs

_LEFTOVER: Final = int(RecordFault.LEFTOVER)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)

_UINT32_MAX: Final = (1 << 32) - 1
_TAG_MASK: Final = (1 << 31) - 1
_MULTIPLIER: Final = 0x5BD1E995
_SECOND_MULTIPLIER: Final = 0x27D4EB2F
_PRIME: Final = (1 << 31) - 1

HASH_SECRET_MAX: Final = (1 << 30) - 1
"""The two numbers of a hash's secret have 30 bits."""
_SECRET_MASK: Final = HASH_SECRET_MAX

_LONG_KEY: Final = 255
"""Keys of this size and more have their size in four bytes after this one."""

_LONG_KEY_OVERHEAD: Final = 5


BATCH_ROW_SIZE: Final = 16
"""Places of a row of `batches`."""
_BATCH_ROW_SIZE: Final = BATCH_ROW_SIZE

_GROUP_RECORDS: Final = 128
"""Records that are looked up together: enough for the processor to wait for many slots at once, and
few enough for the first-level cache."""

GROUP_SIZE: Final = 8 * _GROUP_RECORDS + 1
"""Size of the buffer `group` of `put_keys` and `choose_records`: eight places for each record, and
one that `read_group` writes so that the compiler keeps its reads."""


class MapState(IntEnum):
    """Places in the `state` of `put_keys`."""

    ARENA_USED = 0
    """Bytes of the arena in use."""
    KEYS = 1
    """Slots in use."""
    KEYS_MAX = 2
    """Slots that may be in use."""
    UNMAPPED = 3
    """Records so far whose key is larger than the whole arena; they are not in the map."""
    LAST_OFFSET = 4
    """Offset of the last record that was put; unchanged if the call has put none."""
    BATCH = 5
    """Index of the batch where the map became full or a fault was found."""
    RECORD = 6
    """Index of the record in that batch."""
    HASH_SECRET = 7
    """Two numbers up to HASH_SECRET_MAX, in this place and the next; the caller sets them."""


STATE_SIZE: Final = int(MapState.HASH_SECRET) + 2


_GROUP_SIZE: Final = GROUP_SIZE
_STATE_SIZE: Final = STATE_SIZE
_HASH_SECRET: Final = int(MapState.HASH_SECRET)


class BatchRow(IntEnum):
    """Places in a row of `batches`; the caller fills the first six, to KEEPS_TOMBSTONES."""

    POSITION = 0
    LIMIT = 1
    """The end of the last record."""
    RECORDS = 2
    BASE_OFFSET = 3
    LATEST_OFFSET = 4
    """Records with a larger offset stay."""
    KEEPS_TOMBSTONES = 5
    KEPT = 6
    """Records that stay. `choose_records` writes this place and those to SIZE."""
    UNKEYED = 7
    """Records dropped because they have no key."""
    TOMBSTONES = 8
    """Records that stay and have no value."""
    TIMESTAMP_DELTA_FIRST = 9
    """Timestamp delta of the first record that stays."""
    TIMESTAMP_DELTA_MAX = 10
    """Largest timestamp delta of the records that stay."""
    SIZE = 11
    """Bytes of the records that stay."""
    IS_COPIED = 12
    """1 if `copy_records` is to copy the batch; the caller fills this and the next place for it."""
    TIMESTAMP_SHIFT = 13
    """Milliseconds that `copy_records` adds to each timestamp delta."""
    START = 14
    """Position of the first record that `copy_records` has written."""
    END = 15
    """The end of the last record that `copy_records` has written."""


def new_hash_secret() -> tuple[int, int]:
    """A secret for `hash_key`, from the system's random numbers."""
    number = int.from_bytes(os.urandom(8), "big")
    # Not 0, under which a part of the key would not count.
    return number % HASH_SECRET_MAX + 1, (number >> 32) % HASH_SECRET_MAX + 1


def read_word(data: "Ints", position: int) -> int:
    """The four bytes at `position` as a little-endian number of 0 or more."""
    word = data[position + 3]
    for place in range(position + 2, position - 1, -1):
        word = word << 8 | data[place]
    return word


def hash_key(data: "Ints", position: int, size: int, first: int, second: int) -> int:
    """A 32-bit hash of all bytes of the key, by the two numbers of a secret.

    The words of the key are the coefficients of a polynomial of the secret, modulo 2^31 - 1 (Carter
    and Wegman's universal hashing). So without the secret no two keys can be chosen that collide
    with more than a probability of their words in 2^30. A word has more than 31 bits, and therefore
    goes in by halves: whole, it would be equal to the word that is larger by the prime.
    """
    mixed = size
    # All reads lie in `[position:position + size]`, which `read_record` has compared.
    whole = position + (size & ~3)
    end = position + size
    while position < end:
        if position < whole:
            word = read_word(data, position)
        else:
            word = 0
            for place in range(end - 1, position - 1, -1):
                word = word << 8 | data[place]
        mixed = mixed * first + (word & 0xFFFF) * second + (word >> 16)
        # One step of the remainder is enough between words: below 2^33, times 30 bits.
        mixed = (mixed & _PRIME) + (mixed >> 31)
        position += 4
    mixed = (mixed & _PRIME) + (mixed >> 31)
    # Values that are neighbours would make long rows of slots in use; this scatters them.
    mixed ^= mixed >> 16
    mixed = (mixed * _SECOND_MULTIPLIER) & _UINT32_MAX
    mixed ^= mixed >> 13
    mixed = (mixed * _MULTIPLIER) & _UINT32_MAX
    return mixed ^ (mixed >> 16)


def entry_size(size: int) -> int:
    """Bytes of the arena that a key of `size` bytes takes."""
    return size + 1 if size < _LONG_KEY else size + _LONG_KEY_OVERHEAD


def is_key_at(data: "Ints", position: int, size: int, arena: "Ints", place: int) -> bool:
    """Whether the arena's entry at `place` is the key `data[position:position + size]`."""
    stored = arena[place]
    place += 1
    if stored == _LONG_KEY:
        if size < _LONG_KEY:
            return False
        stored = read_word(arena, place)
        place += 4
    return stored == size and is_equal(data, position, arena, place, size)


def find_slot(
    data: "Ints", position: int, size: int, mixed: int, slot: int, slots: "Outputs", arena: "Ints"
) -> int:
    """Index in `slots` of the key's word, or of the free slot where it belongs.

    `mixed` is the key's hash; the search begins at `slot`, which `read_group` has found.
    """
    tag = mixed & _TAG_MASK
    while True:
        word = slots[slot]
        if word == 0:
            return slot
        if (word >> 32) == tag and is_key_at(data, position, size, arena, (word & _UINT32_MAX) - 1):
            return slot
        slot += 2
        # The map is a ring. It ends because KEYS_MAX leaves a slot free.
        if slot == len(slots):
            slot = 0


def read_group(
    data: "Ints", position: int, limit: int, count: int,
    slots: "Outputs", arena: "Ints", state: "Outputs", group: "Outputs",
) -> tuple[int, int]:  # fmt: skip
    """Reads up to `_GROUP_RECORDS` records, and finds where their keys may be in the map.

    A row of `group` is: end of the record, timestamp delta, offset delta, key position, key size,
    value size, hash, and the first slot that is free or has the hash.

    A map is far larger than any cache, so each search waits for memory twice. No read in this
    function depends on the result of another record's, so the processor waits for many at once.

    Returns:
        Records read, and 0 or minus a `RecordFault` of the next one.
    """
    slot_count = len(slots) >> 1
    first = state[_HASH_SECRET] & _SECRET_MASK
    second = state[_HASH_SECRET + 1] & _SECRET_MASK
    for index in range(min(count, _GROUP_RECORDS)):
        row = 8 * index
        end, timestamp_delta, offset_delta, key_at, key_size, _, value_size, _, _ = read_record(
            data, position, limit
        )
        if end < 0:
            return index, end
        mixed = hash_key(data, key_at, key_size, first, second) if key_size >= 0 else 0
        group[row] = end
        group[row + 1] = timestamp_delta
        group[row + 2] = offset_delta
        group[row + 3] = key_at
        group[row + 4] = key_size
        group[row + 5] = value_size
        group[row + 6] = mixed
        # Scaled by a product, not by a remainder: any number of slots will do, and 32 bits of hash
        # times fewer than 2^31 slots fit into int64.
        group[row + 7] = 2 * ((mixed * slot_count) >> 32)
        position = end
    read = min(count, _GROUP_RECORDS)
    touched = 0
    # A loop of its own that only reads: the processor starts all of these before it needs one.
    for row in range(0, 8 * read, 8):
        touched ^= slots[group[row + 7]]
    for row in range(0, 8 * read, 8):
        slot = group[row + 7]
        tag = group[row + 6] & _TAG_MASK
        word = slots[slot]
        while word != 0 and (word >> 32) != tag:
            slot += 2
            if slot == len(slots):
                slot = 0
            word = slots[slot]
        group[row + 7] = slot
        if word != 0:
            touched ^= arena[(word & _UINT32_MAX) - 1]
    # Without this write the compiler would drop the reads.
    group[8 * _GROUP_RECORDS] = touched
    return read, 0


def store_key(data: "Ints", position: int, size: int, arena: "Outputs", used: int) -> int:
    """Writes an entry of the arena; returns where the next one begins."""
    if size < _LONG_KEY:
        arena[used] = size
        used += 1
    else:
        arena[used] = _LONG_KEY
        arena[used + 1] = size & 255
        arena[used + 2] = (size >> 8) & 255
        arena[used + 3] = (size >> 16) & 255
        arena[used + 4] = (size >> 24) & 255
        used += _LONG_KEY_OVERHEAD
    copy_bytes(data, position, arena, used, size)
    return used + size


def put_keys(
    data: "Ints", start_offset: int, batches: "Outputs",
    slots: "Outputs", arena: "Outputs", state: "Outputs", group: "Outputs",
) -> int:  # fmt: skip
    """Puts the offset of each record into the map, if it has a key.

    Records before `start_offset` are left out. The call ends early at the first record whose key
    has no room; the records before it are in the map. A key that is larger than the whole arena is
    counted in UNMAPPED and left out.

    Returns:
        1 if all had room, 0 if the map is full, or minus a `RecordFault`.
    """
    octets = address(data)
    keys = output_address(arena)
    with cython.nogil:
        if len(group) < _GROUP_SIZE or len(state) < _STATE_SIZE or len(slots) < 2:
            return -_NO_ROOM
        for batch in range(len(batches) // _BATCH_ROW_SIZE):
            row = _BATCH_ROW_SIZE * batch
            position = batches[row]
            records = batches[row + 2]
            state[5] = batch
            state[6] = 0
            if not can_hold(position, batches[row + 1], len(data), records):
                return -_RECORD_COUNT
            walked = 0
            while walked < records:
                read, fault = read_group(
                    octets, position, batches[row + 1], records - walked, slots, keys, state, group
                )
                for index in range(0, 8 * read, 8):
                    state[6] = walked
                    offset = wrapping_sum(batches[row + 3], group[index + 2])
                    size = group[index + 4]
                    if size >= 0 and offset >= start_offset:
                        needed = entry_size(size)
                        # No map of this size could ever hold the key; to report it as full would
                        # never end.
                        if needed > len(arena):
                            state[3] += 1
                        else:
                            key_at = group[index + 3]
                            mixed = group[index + 6]
                            slot = find_slot(
                                octets, key_at, size, mixed, group[index + 7], slots, keys
                            )
                            if slots[slot] != 0:
                                slots[slot + 1] = max(slots[slot + 1], offset)
                            # LAST_OFFSET is not moved yet: the caller cleans up to it, and a later
                            # round begins with this record.
                            elif state[1] >= state[2] or needed > len(arena) - state[0]:
                                return 0
                            else:
                                slots[slot] = ((mixed & _TAG_MASK) << 32) | (state[0] + 1)
                                slots[slot + 1] = offset
                                state[1] += 1
                                state[0] = store_key(octets, key_at, size, keys, state[0])
                    state[4] = offset
                    position = group[index]
                    walked += 1
                if fault < 0:
                    state[6] = walked
                    return fault
            if position != batches[row + 1]:
                return -_LEFTOVER
        return 1


def choose_records(
    data: "Ints", batches: "Outputs",
    slots: "Outputs", arena: "Ints", state: "Outputs", group: "Outputs", keeps: "Outputs",
) -> int:  # fmt: skip
    """Writes 1 to `keeps` for each record that stays, else 0; fills each batch's row.

    Records after LATEST_OFFSET, the last offset in the map, stay. Up to it a record is dropped if
    it has no key, if its key has a larger offset in the map, or if it is a tombstone and
    KEEPS_TOMBSTONES is 0. A record whose key is larger than the whole arena stays in any case.

    Returns:
        0 or minus a `RecordFault`; BATCH and RECORD of `state` then say where.
    """
    octets = address(data)
    keys = address(arena)
    with cython.nogil:
        first = 0
        if len(group) < _GROUP_SIZE or len(state) < _STATE_SIZE or len(slots) < 2:
            return -_NO_ROOM
        for batch in range(len(batches) // _BATCH_ROW_SIZE):
            row = _BATCH_ROW_SIZE * batch
            position = batches[row]
            records = batches[row + 2]
            state[5] = batch
            state[6] = 0
            if not can_hold(position, batches[row + 1], len(data), records):
                return -_RECORD_COUNT
            # `keeps` is indexed without a check in the loop below.
            if len(keeps) - first < records:
                return -_NO_ROOM
            kept = 0
            unkeyed = 0
            tombstones = 0
            timestamp_first = 0
            timestamp_max = 0
            size_kept = 0
            walked = 0
            while walked < records:
                read, fault = read_group(
                    octets, position, batches[row + 1], records - walked, slots, keys, state, group
                )
                for index in range(0, 8 * read, 8):
                    timestamp_delta = group[index + 1]
                    offset = wrapping_sum(batches[row + 3], group[index + 2])
                    key_size = group[index + 4]
                    value_size = group[index + 5]
                    # Nothing is known of records after the map's last offset, so they stay.
                    stays = 1
                    if offset <= batches[row + 4]:
                        if key_size < 0:
                            unkeyed += 1
                            stays = 0
                        elif entry_size(key_size) > len(arena):
                            # Nothing is known of this key, so its tombstone may hide older values.
                            stays = 1
                        elif value_size < 0 and batches[row + 5] == 0:
                            stays = 0
                        else:
                            slot = find_slot(
                                octets, group[index + 3], key_size, group[index + 6],
                                group[index + 7], slots, keys,
                            )  # fmt: skip
                            # Equal offsets stay: that is the newest record itself.
                            if slots[slot] != 0 and offset < slots[slot + 1]:
                                stays = 0
                    keeps[first + walked] = stays
                    if stays == 1:
                        if kept == 0:
                            timestamp_first = timestamp_delta
                        # Deltas may be negative, so 0 is no start for a maximum.
                        if kept == 0 or timestamp_delta > timestamp_max:
                            timestamp_max = timestamp_delta
                        if value_size < 0:
                            tombstones += 1
                        kept += 1
                        size_kept += group[index] - position
                    position = group[index]
                    walked += 1
                if fault < 0:
                    state[6] = walked
                    return fault
            if position != batches[row + 1]:
                return -_LEFTOVER
            first += records
            # Only a whole batch has its row filled; after a fault the row is as the caller gave it.
            batches[row + 6] = kept
            batches[row + 7] = unkeyed
            batches[row + 8] = tombstones
            batches[row + 9] = timestamp_first
            batches[row + 10] = timestamp_max
            batches[row + 11] = size_kept
        return 0
