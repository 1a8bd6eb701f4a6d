# cython: boundscheck=False
"""The kernel that collects the newest commit of each key from batches of `__consumer_offsets`.

It takes the records of type 1, offset commits and their tombstones; in this form:

    key     int16 1 | group string | topic string | partition int32
    value   int16 version | offset int64 | leader epoch int32, since 3 | metadata string
            | commit time int64 | expiry time int64, in 1 | tags with the topic's id, in 4

What it has taken is in memory of a fixed size, which the caller has made:

    columns      `CommitColumn` places for each key, one column of `count` int64s after the other
    names        position in the arena, size and hash of each group, topic, metadata and topic id
    arena        the bytes of the names
    row_slots, name_slots    hash tables of rows and names: generation << 32 | index + 1
                             a word of another generation is a free slot, so nothing is cleared

A batch is taken whole or not at all. It is left if it is compressed, transactional or a marker, if
its checksum is wrong, and if any of its records is not exactly such a record: of another type, of a
version that is not known, too short, not UTF-8. So the caller reads these as it reads all batches,
and finds the errors that it finds without this kernel.

No index is checked: places in `data` are those that `read_record`, `read_commit_key` and
`read_commit_value` have compared with the ends of their records, and there is room for all rows and
names of a batch before the first of them is written.

Invariant: nothing outside of `data` is read, and nothing beyond the end of an output is written,
whatever the bytes are.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

from tailrace.kernels.key_map import HASH_SECRET_MAX

if not cython.compiled:
    from tailrace.kernels.batch_header import (
        ATTRIBUTES_AT,
        CRC_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LENGTH_AT,
        LOG_OVERHEAD,
        MAGIC,
        MAGIC_AT,
        RECORD_COUNT_AT,
    )
    from tailrace.kernels.checksums import crc32c
    from tailrace.kernels.key_map import hash_key
    from tailrace.kernels.memory import (
        address,
        copy_bytes,
        is_equal,
        output_address,
        read_integer,
    )
    from tailrace.kernels.records import is_sound_batch, read_record, wrapping_sum
    from tailrace.kernels.utf8 import is_utf8

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs


class CommitColumn(IntEnum):
    """The columns of `take_commits`."""

    GROUP = 0
    """Index of a name, as TOPIC, METADATA and TOPIC_ID."""
    TOPIC = 1
    PARTITION = 2
    OFFSET = 3
    LEADER_EPOCH = 4
    METADATA = 5
    COMMIT_MS = 6
    EXPIRE_MS = 7
    TOPIC_ID = 8
    """The name is the 16 bytes of the id; -1: the record has none."""
    RECORD_OFFSET = 9
    HISTORY = 10
    """Bits of `CommitHistory`."""


class CommitHistory(IntEnum):
    """Facts about the records of a key."""

    IS_COMMITTED = 1
    """The newest record has a value."""
    WAS_DROPPED = 2
    """A record is a tombstone."""
    WAS_COMMITTED = 4
    """A record has a value."""


class CommitState(IntEnum):
    """Places in the `state` of `take_commits`."""

    POSITION = 0
    """Position of the next batch; the kernel moves it."""
    GENERATION = 1
    """A number below 2^31 that the caller raises when it has emptied the columns."""
    ROWS = 2
    """Rows in the columns; the caller sets this and the next two to 0 to empty them."""
    NAMES = 3
    ARENA_USED = 4
    """Bytes of the arena in use."""
    SCRATCH = 5
    """Four places for the kernel."""
    HASH_SECRET = 9
    """The secret of hashes, in two places, as in `key_map.MapState`."""


STATE_SIZE: Final = int(CommitState.HASH_SECRET) + 2
NAME_WIDTH: Final = 3
"""Places of a name in `names`."""
NAMES_PER_RECORD: Final = 4

_STATE_SIZE: Final = STATE_SIZE
_COLUMNS: Final = len(CommitColumn)
_NAME_WIDTH: Final = NAME_WIDTH
_NAMES_PER_RECORD: Final = NAMES_PER_RECORD
_GROUP: Final = int(CommitColumn.GROUP)
_TOPIC: Final = int(CommitColumn.TOPIC)
_PARTITION: Final = int(CommitColumn.PARTITION)
_OFFSET: Final = int(CommitColumn.OFFSET)
_LEADER_EPOCH: Final = int(CommitColumn.LEADER_EPOCH)
_METADATA: Final = int(CommitColumn.METADATA)
_COMMIT_MS: Final = int(CommitColumn.COMMIT_MS)
_EXPIRE_MS: Final = int(CommitColumn.EXPIRE_MS)
_TOPIC_ID: Final = int(CommitColumn.TOPIC_ID)
_RECORD_OFFSET: Final = int(CommitColumn.RECORD_OFFSET)
_HISTORY: Final = int(CommitColumn.HISTORY)
_IS_COMMITTED: Final = int(CommitHistory.IS_COMMITTED)
_WAS_DROPPED: Final = int(CommitHistory.WAS_DROPPED)
_WAS_COMMITTED: Final = int(CommitHistory.WAS_COMMITTED)
_POSITION: Final = int(CommitState.POSITION)
_GENERATION: Final = int(CommitState.GENERATION)
_ROWS: Final = int(CommitState.ROWS)
_NAMES: Final = int(CommitState.NAMES)
_ARENA_USED: Final = int(CommitState.ARENA_USED)
_SCRATCH: Final = int(CommitState.SCRATCH)
_HASH_SECRET: Final = int(CommitState.HASH_SECRET)
_SECRET_MASK: Final = HASH_SECRET_MAX

_SPECIAL: Final = 0x37
"""Attributes of a batch that is compressed, of a transaction or a marker."""

_COMMIT_TYPE: Final = 1
_EXPIRING_VERSION: Final = 1
_EPOCH_VERSION: Final = 3
_FLEXIBLE_VERSION: Final = 4
_UUID_SIZE: Final = 16
_STRING_MAX: Final = 32_767
_UINT32_MAX: Final = (1 << 32) - 1
_MULTIPLIER: Final = 0x5BD1E995
_SECOND_MULTIPLIER: Final = 0x27D4EB2F


def plain_batch_end(data: "Ints", position: int, limit: int) -> int:
    """The end of the batch at `position`; -1 if it is not whole, not sound, or not a plain one."""
    if limit - position < HEADER_SIZE:
        return -1
    size = read_integer(data, position + LENGTH_AT, 4) + LOG_OVERHEAD
    if (
        size < HEADER_SIZE
        or size > limit - position
        or data[position + MAGIC_AT] != MAGIC
        or data[position + ATTRIBUTES_AT + 1] & _SPECIAL != 0
        or read_integer(data, position + LAST_OFFSET_DELTA_AT, 4) < 0
    ):
        return -1
    end = position + size
    # The frame is whole inside of the buffer, so the checksum may read up to `end`.
    stored = read_integer(data, position + CRC_AT, 4) & _UINT32_MAX
    if stored != crc32c(data, position + ATTRIBUTES_AT, end):
        return -1
    if not is_sound_batch(data, position, end):
        return -1
    return end


def read_commit_key(data: "Ints", at: int, size: int) -> tuple[int, int]:
    """The sizes of group and topic of a key; -1 for the group if it is not the key of a commit."""
    if size < 10 or read_integer(data, at, 2) != _COMMIT_TYPE:
        return -1, 0
    group_size = read_integer(data, at + 2, 2)
    if group_size < 0 or group_size > size - 10:
        return -1, 0
    topic_size = read_integer(data, at + 4 + group_size, 2)
    if topic_size < 0 or topic_size > size - 10 - group_size:
        return -1, 0
    return group_size, topic_size


def read_commit_value(data: "Ints", at: int, size: int) -> tuple[int, int, int, int]:
    """The version of a value, position and size of its metadata, and the position of its topic id.

    The version is -1 if it is not the value of a commit, and the last position -1 if it has no id.
    """
    limit = at + size
    if size < 12:
        return -1, 0, 0, -1
    version = read_integer(data, at, 2)
    if version < 0 or version > _FLEXIBLE_VERSION:
        return -1, 0, 0, -1
    at += 10 if version < _EPOCH_VERSION else 14
    if limit - at < 2:
        return -1, 0, 0, -1
    if version < _FLEXIBLE_VERSION:
        metadata_size = read_integer(data, at, 2)
        at += 2
        rest = 16 if version == _EXPIRING_VERSION else 8
    else:
        # Compact strings of the flexible versions have an unsigned varint of their size plus 1.
        # A size of one or two bytes is enough for 16382 characters of ASCII.
        metadata_size = data[at] & 127
        at += 1
        if data[at - 1] >= 128:
            # Three bytes of size: left to the caller, as all that is rare.
            if data[at] >= 128:
                return -1, 0, 0, -1
            metadata_size |= data[at] << 7
            at += 1
        metadata_size -= 1
        rest = 9
    if metadata_size < 0 or metadata_size > limit - at - rest:
        return -1, 0, 0, -1
    if version < _FLEXIBLE_VERSION:
        return version, at, metadata_size, -1
    tags = at + metadata_size + 8
    if data[tags] == 0:
        return version, at, metadata_size, -1
    # One tag, number 0, of sixteen bytes; whatever else comes is for the decoder that knows it.
    if limit - tags < 3 + _UUID_SIZE or data[tags] != 1:
        return -1, 0, 0, -1
    if data[tags + 1] != 0 or data[tags + 2] != _UUID_SIZE:
        return -1, 0, 0, -1
    return version, at, metadata_size, tags + 3


def are_commits(data: "Ints", position: int, end: int, records: int) -> bool:
    """Whether all records of a sound batch are commits or their tombstones."""
    for _ in range(records):
        position, _, _, key_at, key_size, value_at, value_size, _, _ = read_record(
            data, position, end
        )
        group_size, topic_size = read_commit_key(data, key_at, key_size)
        if group_size < 0:
            return False
        topic_at = key_at + 6 + group_size
        if not is_utf8(data, key_at + 4, key_at + 4 + group_size):
            return False
        if not is_utf8(data, topic_at, topic_at + topic_size):
            return False
        if value_size >= 0:
            version, metadata_at, metadata_size, _ = read_commit_value(data, value_at, value_size)
            if version < 0 or not is_utf8(data, metadata_at, metadata_at + metadata_size):
                return False
    return True


def find_name_slot(
    data: "Ints", at: int, size: int, mixed: int, generation: int,
    names: "Ints", name_slots: "Ints", arena: "Ints",
) -> int:  # fmt: skip
    """The slot of a name, or the free one that is to be its own."""
    slot = mixed & (len(name_slots) - 1)
    while name_slots[slot] >> 32 == generation:
        name = _NAME_WIDTH * ((name_slots[slot] & _UINT32_MAX) - 1)
        if (
            names[name + 2] == mixed
            and names[name + 1] == size
            and is_equal(data, at, arena, names[name], size)
        ):
            break
        slot = (slot + 1) & (len(name_slots) - 1)
    return slot


def store_name(
    data: "Ints", at: int, size: int, mixed: int,
    names: "Outputs", arena: "Outputs", state: "Outputs",
) -> int:  # fmt: skip
    """Adds a name; returns its index plus 1."""
    name = _NAME_WIDTH * state[_NAMES]
    names[name] = state[_ARENA_USED]
    names[name + 1] = size
    names[name + 2] = mixed
    copy_bytes(data, at, arena, state[_ARENA_USED], size)
    state[_ARENA_USED] += size
    state[_NAMES] += 1
    return state[_NAMES]


def find_row_slot(
    group: int, topic: int, partition: int, generation: int,
    count: int, columns: "Ints", row_slots: "Ints",
) -> int:  # fmt: skip
    """The slot of the row of a key, or the free one that is to be its own."""
    mixed = (group * _MULTIPLIER + topic) & _UINT32_MAX
    mixed = ((mixed ^ (mixed >> 15)) * _SECOND_MULTIPLIER + partition) & _UINT32_MAX
    mixed = ((mixed ^ (mixed >> 13)) * _MULTIPLIER) & _UINT32_MAX
    slot = (mixed ^ (mixed >> 15)) & (len(row_slots) - 1)
    while row_slots[slot] >> 32 == generation:
        row = (row_slots[slot] & _UINT32_MAX) - 1
        if (
            columns[_PARTITION * count + row] == partition
            and columns[_GROUP * count + row] == group
            and columns[_TOPIC * count + row] == topic
        ):
            break
        slot = (slot + 1) & (len(row_slots) - 1)
    return slot


def put_values(
    data: "Ints", at: int, version: int, metadata_end: int,
    row: int, count: int, columns: "Outputs",
) -> None:  # fmt: skip
    """Writes the numbers of a value to the columns."""
    columns[_OFFSET * count + row] = read_integer(data, at + 2, 8)
    epoch = -1
    if version >= _EPOCH_VERSION:
        epoch = read_integer(data, at + 10, 4)
    columns[_LEADER_EPOCH * count + row] = epoch
    columns[_COMMIT_MS * count + row] = read_integer(data, metadata_end, 8)
    expire = -1
    if version == _EXPIRING_VERSION:
        expire = read_integer(data, metadata_end + 8, 8)
    columns[_EXPIRE_MS * count + row] = expire


def put_record(
    data: "Ints", partition: int, value_at: int, version: int, metadata_end: int, offset: int,
    count: int, state: "Outputs", columns: "Outputs", row_slots: "Outputs",
) -> None:  # fmt: skip
    """Writes a record whose names are in the scratch places to the row of its key."""
    group = state[_SCRATCH]
    topic = state[_SCRATCH + 1]
    generation = state[_GENERATION]
    slot = find_row_slot(group, topic, partition, generation, count, columns, row_slots)
    if row_slots[slot] >> 32 != generation:
        row = state[_ROWS]
        state[_ROWS] = row + 1
        row_slots[slot] = (generation << 32) | (row + 1)
        columns[_GROUP * count + row] = group
        columns[_TOPIC * count + row] = topic
        columns[_PARTITION * count + row] = partition
        columns[_HISTORY * count + row] = 0
    row = (row_slots[slot] & _UINT32_MAX) - 1
    columns[_RECORD_OFFSET * count + row] = offset
    history = columns[_HISTORY * count + row]
    if version < 0:
        columns[_HISTORY * count + row] = (history & ~_IS_COMMITTED) | _WAS_DROPPED
    else:
        columns[_HISTORY * count + row] = history | _IS_COMMITTED | _WAS_COMMITTED
        columns[_METADATA * count + row] = state[_SCRATCH + 2]
        columns[_TOPIC_ID * count + row] = state[_SCRATCH + 3]
        put_values(data, value_at, version, metadata_end, row, count, columns)


def take_commits(
    data: "Ints", count: int, state: "Outputs", columns: "Outputs", row_slots: "Outputs",
    names: "Outputs", name_slots: "Outputs", arena: "Outputs",
) -> int:  # fmt: skip
    """Takes batches of commits from POSITION of `state` on; ends before one that is left.

    `count` is the number of rows that the columns have room for. `row_slots` has more places than
    that, `name_slots` more than there are names; both are powers of two.

    Returns:
        1, or 0 if the next batch is one of commits and there is no room for it.
    """
    octets = address(data)
    name_bytes = output_address(arena)
    with cython.nogil:
        if (
            len(state) < _STATE_SIZE
            or count < 0
            or len(columns) < _COLUMNS * count
            or len(row_slots) <= count
            or len(name_slots) <= len(names) // _NAME_WIDTH
            or state[_POSITION] < 0
        ):
            return 0
        generation = state[_GENERATION]
        position = state[_POSITION]
        first = state[_HASH_SECRET] & _SECRET_MASK
        second = state[_HASH_SECRET + 1] & _SECRET_MASK
        # Ends, because each batch taken moves the position by a header at least.
        while True:
            end = plain_batch_end(octets, position, len(data))
            if end < 0:
                return 1
            records = read_integer(octets, position + RECORD_COUNT_AT, 4)
            base_offset = read_integer(octets, position, 8)
            position += HEADER_SIZE
            if not are_commits(octets, position, end, records):
                return 1
            # Room for the worst case, each record with a key and four names of its own, before
            # anything is written: so the batch is taken whole or not at all.
            if (
                records > count - state[_ROWS]
                or _NAMES_PER_RECORD * records > len(names) // _NAME_WIDTH - state[_NAMES]
                or end - position > len(arena) - state[_ARENA_USED]
            ):
                return 0
            for _ in range(records):
                position, _, delta, key_at, key_size, value_at, value_size, _, _ = read_record(
                    octets, position, end
                )
                group_size, topic_size = read_commit_key(octets, key_at, key_size)
                topic_at = key_at + 6 + group_size
                version = -1
                metadata_at = 0
                metadata_size = 0
                id_at = -1
                if value_size >= 0:
                    version, metadata_at, metadata_size, id_at = read_commit_value(
                        octets, value_at, value_size
                    )
                for part in range(_NAMES_PER_RECORD):
                    at = key_at + 4
                    size = group_size
                    if part == 1:
                        at = topic_at
                        size = topic_size
                    elif part == 2:
                        at = metadata_at
                        size = metadata_size
                    elif part == 3:
                        at = id_at
                        size = _UUID_SIZE
                    state[_SCRATCH + part] = -1
                    if (part == 2 and version < 0) or at < 0:
                        continue
                    mixed = hash_key(octets, at, size, first, second)
                    slot = find_name_slot(
                        octets, at, size, mixed, generation, names, name_slots, name_bytes
                    )
                    if name_slots[slot] >> 32 != generation:
                        index = store_name(octets, at, size, mixed, names, name_bytes, state)
                        name_slots[slot] = (generation << 32) | index
                    state[_SCRATCH + part] = (name_slots[slot] & _UINT32_MAX) - 1
                partition = read_integer(octets, topic_at + topic_size, 4)
                offset = wrapping_sum(base_offset, delta)
                put_record(
                    octets, partition, value_at, version, metadata_at + metadata_size, offset,
                    count, state, columns, row_slots,
                )  # fmt: skip
            state[_POSITION] = position
