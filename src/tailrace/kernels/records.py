"""The kernels that read v2 records: walk, refuse, decode to columns, collect headers, find a time.

Input is the payload of one batch after decompression: `count` records, one after the other, in
`data[position:limit]`. A record, with every number but the attributes a zigzag varint:

    length         bytes that follow in this record
    attributes     1 byte, unused
    timestamp      varlong, milliseconds after the batch's base timestamp
    offset         after the batch's base offset
    key size       -1 for null, then that many bytes
    value size     -1 for null, then that many bytes
    header count   then per header: key size, key, value size (-1 for null), value

Invariant: whatever the bytes are, nothing outside of `data[position:limit]` is read, and each
kernel ends after at most `count` records with a row count or with the negative of a `RecordFault`.
Bytes are read at their address, so each function that reads them has compared the position with a
limit before, and each kernel that limit with the buffer (`can_hold`). Outputs are indexed with a
check of their own, except those that bytes are copied to.

Most sizes and all empty header counts are varints of one byte; some places decode these themselves.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from tailrace.kernels.batch_header import (
        ATTRIBUTES_AT,
        BASE_TIMESTAMP_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LEADER_EPOCH_AT,
        LENGTH_AT,
        LOG_APPEND_TIME_FLAG,
        LOG_OVERHEAD,
        MAX_TIMESTAMP_AT,
        RECORD_COUNT_AT,
    )
    from tailrace.kernels.memory import address, copy_bytes, output_address, read_integer

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs

    Frame = tuple[int, int, int, int, int, int, int, int, int]


class RecordFault(IntEnum):
    """The rule that a record, or a payload, breaks."""

    TRUNCATED = 1
    OVERLONG_VARINT = 2
    RECORD_LENGTH = 3
    KEY_LENGTH = 4
    VALUE_LENGTH = 5
    HEADER_COUNT = 6
    NULL_HEADER_KEY = 7
    HEADER_LENGTH = 8
    NOT_CONSUMED = 9
    LEFTOVER = 10
    RECORD_COUNT = 11
    NO_ROOM = 12
    OFFSET_DELTA = 13

    @property
    def rule(self) -> str:
        """The broken rule as half a sentence."""
        return _RULES[self]


_RULES: Final = {
    RecordFault.TRUNCATED: "the payload ends inside of it",
    RecordFault.OVERLONG_VARINT: "a varint has more than 5 bytes, or a varlong more than 10",
    RecordFault.RECORD_LENGTH: "its length is less than 6 bytes",
    RecordFault.KEY_LENGTH: "its key length is below -1 or beyond its end",
    RecordFault.VALUE_LENGTH: "its value length is below -1 or beyond its end",
    RecordFault.HEADER_COUNT: "its header count is negative or more than its bytes can hold",
    RecordFault.NULL_HEADER_KEY: "a header key is null",
    RecordFault.HEADER_LENGTH: "a header key or value reaches beyond its end",
    RecordFault.NOT_CONSUMED: "its fields end before its length says",
    RecordFault.LEFTOVER: "bytes follow the last record",
    RecordFault.RECORD_COUNT: "the record count is negative or more than the payload can hold",
    RecordFault.NO_ROOM: "the output is full",
    RecordFault.OFFSET_DELTA: "its offset delta is negative",
}

# The integers that C code uses; the .pxd file has their types.
_TRUNCATED: Final = int(RecordFault.TRUNCATED)
_OVERLONG_VARINT: Final = int(RecordFault.OVERLONG_VARINT)
_RECORD_LENGTH: Final = int(RecordFault.RECORD_LENGTH)
_KEY_LENGTH: Final = int(RecordFault.KEY_LENGTH)
_VALUE_LENGTH: Final = int(RecordFault.VALUE_LENGTH)
_HEADER_COUNT: Final = int(RecordFault.HEADER_COUNT)
_NULL_HEADER_KEY: Final = int(RecordFault.NULL_HEADER_KEY)
_HEADER_LENGTH: Final = int(RecordFault.HEADER_LENGTH)
_NOT_CONSUMED: Final = int(RecordFault.NOT_CONSUMED)
_LEFTOVER: Final = int(RecordFault.LEFTOVER)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)
_OFFSET_DELTA: Final = int(RecordFault.OFFSET_DELTA)

RECORD_SIZE_MIN: Final = 7
"""A record of no key, no value and no headers: seven fields of one byte."""

_RECORD_SIZE_MIN: Final = RECORD_SIZE_MIN
_BODY_SIZE_MIN: Final = RECORD_SIZE_MIN - 1
_HEADER_SIZE_MIN: Final = 2
_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -_INT64_MAX - 1
_UINT32_MAX: Final = (1 << 32) - 1

WANT_KEY: Final = 1
WANT_VALUE: Final = 2
WANT_OFFSET: Final = 4
WANT_TIMESTAMP: Final = 8
_WANT_KEY: Final = WANT_KEY
_WANT_VALUE: Final = WANT_VALUE
_WANT_OFFSET: Final = WANT_OFFSET
_WANT_TIMESTAMP: Final = WANT_TIMESTAMP


class Total(IntEnum):
    """Places in the `totals` of `walk_records`."""

    RECORDS = 0
    """Records that are sound; if the walk has failed, also the index of the bad record."""
    POSITION = 1
    """Position of the record after the sound ones."""
    IS_CONSECUTIVE = 2
    """1 if the offset deltas are 0, 1, 2 and so on."""
    LAST_OFFSET_DELTA = 3
    NULL_KEYS = 4
    TIMESTAMP_DELTA_MIN = 5
    TIMESTAMP_DELTA_MAX = 6


class Payload(IntEnum):
    """Places of a batch in the `payloads` of `decode_records`."""

    POSITION = 0
    """Position of the batch's first record in the buffer."""
    LIMIT = 1
    """Position of the end of the batch's last record."""
    RECORD_COUNT = 2
    BASE_OFFSET = 3
    BASE_TIMESTAMP = 4
    """The base timestamp; for a batch of LogAppendTime, the time of all its records."""
    KEEPS_DELTAS = 5
    """0 for a batch of LogAppendTime, else 1."""
    ROWS = 6
    """Number of the batch's records that the kernel has appended; the kernel writes it."""
    LEADER_EPOCH = 7


PAYLOAD_WIDTH: Final = len(Payload)
_PAYLOAD_WIDTH: Final = PAYLOAD_WIDTH
_AT_POSITION: Final = int(Payload.POSITION)
_AT_LIMIT: Final = int(Payload.LIMIT)
_AT_RECORD_COUNT: Final = int(Payload.RECORD_COUNT)
_AT_BASE_OFFSET: Final = int(Payload.BASE_OFFSET)
_AT_BASE_TIMESTAMP: Final = int(Payload.BASE_TIMESTAMP)
_AT_KEEPS_DELTAS: Final = int(Payload.KEEPS_DELTAS)
_AT_ROWS: Final = int(Payload.ROWS)
_AT_LEADER_EPOCH: Final = int(Payload.LEADER_EPOCH)


class Refusal(IntEnum):
    """Reasons to refuse a record whose format is right."""

    OFFSET = 1
    """The record's offset delta is not its index."""
    NO_KEY = 2
    TIMESTAMP = 3


_OFFSET_REFUSED: Final = int(Refusal.OFFSET)
_NO_KEY_REFUSED: Final = int(Refusal.NO_KEY)
_TIMESTAMP_REFUSED: Final = int(Refusal.TIMESTAMP)
_NO_TIMESTAMP: Final = -1

REFUSED_WIDTH: Final = 3
"""Places that `list_refused` fills per record: index, `Refusal`, the offset or timestamp delta."""
_REFUSED_WIDTH: Final = REFUSED_WIDTH


def can_hold(position: int, limit: int, size: int, count: int) -> bool:
    """Whether `[position:limit]` is a part of `size` bytes in which `count` records have room."""
    # Divided and not multiplied: `count` may be any int64, and the product could wrap.
    return 0 <= position <= limit <= size and 0 <= count <= (limit - position) // _RECORD_SIZE_MIN


def read_varint(data: "Ints", position: int, limit: int) -> tuple[int, int]:
    """The 32-bit zigzag varint at `position`, and the position after it or minus a fault.

    Five bytes carry 35 bits; as in Java, the bits above 32 are dropped.
    """
    if position >= limit:
        return 0, -_TRUNCATED
    byte = data[position]
    # Nearly all sizes and deltas.
    if byte < 128:
        return ((byte & 126) >> 1) ^ -(byte & 1), position + 1
    value = byte & 127
    shift = 7
    position += 1
    # As Java's readers: more than five bytes are an error, bits above 32 are not.
    while shift < 35:
        if position >= limit:
            return 0, -_TRUNCATED
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            value &= _UINT32_MAX
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, -_OVERLONG_VARINT


def read_varlong(data: "Ints", position: int, limit: int) -> tuple[int, int]:
    """The 64-bit zigzag varint at `position`, and the position after it or minus a fault.

    Nine bytes carry 63 bits, which fit into int64. The tenth byte adds one bit. It is set after the
    shift that undoes the zigzag, when there is room for it.
    """
    value = 0
    shift = 0
    while shift < 63:
        if position >= limit:
            return 0, -_TRUNCATED
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    # Only numbers of 2^62 and more have a tenth byte.
    if position >= limit:
        return 0, -_TRUNCATED
    byte = data[position]
    if byte >= 128:
        return 0, -_OVERLONG_VARINT
    return ((value >> 1) | ((byte & 1) << 62)) ^ -(value & 1), position + 1


def wrapping_sum(left: int, right: int) -> int:
    """`left + right` modulo 2^64 as an int64; no intermediate result leaves int64."""
    # C leaves the overflow of signed numbers undefined, so it must not happen, not even in passing.
    if left > 0 and right > _INT64_MAX - left:
        return (left - _INT64_MAX - 1) + (right - _INT64_MAX - 1)
    if left < 0 and right < _INT64_MIN - left:
        return (left + _INT64_MAX + 1) + (right + _INT64_MAX + 1)
    return left + right


def skip_headers(data: "Ints", position: int, limit: int, count: int) -> int:
    """The position after `count` headers, or minus a fault."""
    # Bounded by the bytes there are, because readers make tuples and columns for that many headers.
    if count < 0 or count > (limit - position) // _HEADER_SIZE_MIN:
        return -_HEADER_COUNT
    for _ in range(count):
        size, position = read_varint(data, position, limit)
        if position < 0:
            return position
        if size < 0:
            return -_NULL_HEADER_KEY
        if size > limit - position:
            return -_HEADER_LENGTH
        position += size
        size, position = read_varint(data, position, limit)
        if position < 0:
            return position
        if size < -1 or size > limit - position:
            return -_HEADER_LENGTH
        if size > 0:
            position += size
    return position


def refused(fault: int) -> "Frame":
    """The frame of a record that breaks a rule."""
    return -fault, 0, 0, 0, 0, 0, 0, 0, 0


def read_record(data: "Ints", position: int, limit: int) -> "Frame":
    """The places of the fields of the record at `position`; all rules for a record are checked.

    Returns:
        The end of the record or minus a fault, timestamp delta, offset delta, key position, key
        size, value position, value size, position of the first header, header count.
    """
    length, position = read_varint(data, position, limit)
    if position < 0:
        return refused(-position)
    if length < _BODY_SIZE_MIN:
        return refused(_RECORD_LENGTH)
    # From here on `end` is the limit: no field of this record reaches into the next one.
    if length > limit - position:
        return refused(_TRUNCATED)
    end = position + length
    timestamp_delta, position = read_varlong(data, position + 1, end)
    if position < 0:
        return refused(-position)
    offset_delta, position = read_varint(data, position, end)
    if position < 0:
        return refused(-position)
    if offset_delta < 0:
        # A reader that continues after a batch would get an offset again that it has passed.
        return refused(_OFFSET_DELTA)
    if position >= end:
        return refused(_TRUNCATED)
    byte = data[position]
    if byte < 128:
        key_size = ((byte & 126) >> 1) ^ -(byte & 1)
        key_position = position + 1
    else:
        key_size, key_position = read_varint(data, position, end)
        if key_position < 0:
            return refused(-key_position)
    if key_size < -1 or key_size > end - key_position:
        return refused(_KEY_LENGTH)
    # Null and empty keys have no bytes; only a size above 0 moves the position.
    value_size, value_position = read_varint(
        data, key_position + key_size if key_size > 0 else key_position, end
    )
    if value_position < 0:
        return refused(-value_position)
    if value_size < -1 or value_size > end - value_position:
        return refused(_VALUE_LENGTH)
    position = value_position + value_size if value_size > 0 else value_position
    # The header count is read at the address below.
    if position >= end:
        return refused(_TRUNCATED)
    headers = 0
    headers_position = position + 1
    if data[position] != 0:
        headers, headers_position = read_varint(data, position, end)
        if headers_position < 0:
            return refused(-headers_position)
        position = skip_headers(data, headers_position, end, headers)
        if position < 0:
            return refused(-position)
    else:
        position = headers_position
    # Kafka refuses such a record too: the length would hide bytes that nobody reads.
    if position != end:
        return refused(_NOT_CONSUMED)
    return (
        end, timestamp_delta, offset_delta, key_position, key_size, value_position, value_size,
        headers_position, headers,
    )  # fmt: skip


def record_at(data: "Ints", position: int, limit: int) -> "Frame":
    """`read_record` for callers in Python, who give any buffer.

    Raises:
        IndexError: `[position:limit]` is not a part of the buffer.
    """
    if not can_hold(position, limit, len(data), 0):
        raise IndexError(f"[{position}:{limit}] of {len(data)} bytes")
    return read_record(address(data), position, limit)


def varint_at(data: "Ints", position: int, limit: int) -> tuple[int, int]:
    """`read_varint` for callers in Python, who give any buffer.

    Raises:
        IndexError: `[position:limit]` is not a part of the buffer.
    """
    if not can_hold(position, limit, len(data), 0):
        raise IndexError(f"[{position}:{limit}] of {len(data)} bytes")
    return read_varint(address(data), position, limit)


def walk_records(data: "Ints", position: int, limit: int, count: int, totals: "Outputs") -> int:
    """Checks `count` records and sums them up in `totals`, whose places `Total` names.

    Returns:
        0, or minus a `RecordFault`; then `totals` counts the records before the bad one.
    """
    octets = address(data)
    with cython.nogil:
        fault = 0
        walked = 0
        is_consecutive = 1
        last_offset_delta = -1
        null_keys = 0
        timestamp_min = 0
        timestamp_max = 0
        if not can_hold(position, limit, len(data), count):
            # No early return: `totals` is filled in for a fault as well.
            fault = -_RECORD_COUNT
            count = 0
        for index in range(count):
            end, timestamp_delta, offset_delta, _, key_size, _, _, _, _ = read_record(
                octets, position, limit
            )
            if end < 0:
                fault = end
                break
            position = end
            walked += 1
            if offset_delta != index:
                is_consecutive = 0
            last_offset_delta = offset_delta
            if key_size < 0:
                null_keys += 1
            if index == 0 or timestamp_delta < timestamp_min:
                timestamp_min = timestamp_delta
            if index == 0 or timestamp_delta > timestamp_max:
                timestamp_max = timestamp_delta
        if fault == 0 and position != limit:
            fault = -_LEFTOVER
        totals[0] = walked
        totals[1] = position
        totals[2] = is_consecutive
        totals[3] = last_offset_delta
        totals[4] = null_keys
        totals[5] = timestamp_min
        totals[6] = timestamp_max
        return fault


def is_sound_batch(data: "Ints", position: int, end: int) -> bool:
    """Whether the records of an uncompressed batch, whose header is there, are as it says.

    They are not if a record is unsound, has an offset after the header's last one, or, in a batch
    of CreateTime, a timestamp larger than the header's largest.
    """
    is_create_time = data[position + ATTRIBUTES_AT + 1] & LOG_APPEND_TIME_FLAG == 0
    last_delta = read_integer(data, position + LAST_OFFSET_DELTA_AT, 4)
    base = read_integer(data, position + BASE_TIMESTAMP_AT, 8)
    largest = read_integer(data, position + MAX_TIMESTAMP_AT, 8)
    count = read_integer(data, position + RECORD_COUNT_AT, 4)
    position += HEADER_SIZE
    if count < 0 or count > (end - position) // _RECORD_SIZE_MIN:
        return False
    last = -1
    for _ in range(count):
        after, delta, last, _, _, _, _, _, _ = read_record(data, position, end)
        if after < 0:
            return False
        position = after
        if is_create_time and is_later(base, delta, largest):
            return False
    return position == end and last <= last_delta


def is_later(base: int, delta: int, limit: int) -> bool:
    """Whether `base + delta`, which may be beyond int64, is more than `limit`."""
    # A sum beyond int64 is larger than any limit, and one below it smaller.
    if base > 0 and delta > _INT64_MAX - base:
        return True
    if base < 0 and delta < _INT64_MIN - base:
        return False
    return base + delta > limit


def walk_run(data: "Ints", count: int) -> int:
    """Checks the records of neighbouring uncompressed batches, which are all of `data`.

    The frames of the batches have been checked; `count` is the number of their records.

    Returns:
        1 if all records are sound and as the headers say, else 0; `is_sound_batch` has the rules.
    """
    octets = address(data)
    with cython.nogil:
        position = 0
        while position < len(data):
            if len(data) - position < HEADER_SIZE:
                return 0
            size = read_integer(octets, position + LENGTH_AT, 4) + LOG_OVERHEAD
            if size < HEADER_SIZE or size > len(data) - position:
                return 0
            count -= read_integer(octets, position + RECORD_COUNT_AT, 4)
            if count < 0 or not is_sound_batch(octets, position, position + size):
                return 0
            position += size
        return 1


def list_payloads(data: "Ints", count: int, payloads: "Outputs") -> int:
    """Lists the payloads of `count` neighbouring uncompressed batches, which begin `data`.

    The frames of the batches have been checked. `payloads` gets what `decode_records` takes.

    Returns:
        The number of their records, or minus a `RecordFault`.
    """
    octets = address(data)
    with cython.nogil:
        if count > len(payloads) // _PAYLOAD_WIDTH:
            return -_NO_ROOM
        position = 0
        records = 0
        for index in range(count):
            if len(data) - position < HEADER_SIZE:
                return -_TRUNCATED
            size = read_integer(octets, position + LENGTH_AT, 4) + LOG_OVERHEAD
            if size < HEADER_SIZE or size > len(data) - position:
                return -_TRUNCATED
            is_create_time = octets[position + ATTRIBUTES_AT + 1] & LOG_APPEND_TIME_FLAG == 0
            time_at = position + (BASE_TIMESTAMP_AT if is_create_time else MAX_TIMESTAMP_AT)
            record_count = read_integer(octets, position + RECORD_COUNT_AT, 4)
            at = _PAYLOAD_WIDTH * index
            payloads[at + _AT_POSITION] = position + HEADER_SIZE
            payloads[at + _AT_LIMIT] = position + size
            payloads[at + _AT_RECORD_COUNT] = record_count
            payloads[at + _AT_BASE_OFFSET] = read_integer(octets, position, 8)
            payloads[at + _AT_BASE_TIMESTAMP] = read_integer(octets, time_at, 8)
            payloads[at + _AT_KEEPS_DELTAS] = 1 if is_create_time else 0
            payloads[at + _AT_ROWS] = 0
            payloads[at + _AT_LEADER_EPOCH] = read_integer(octets, position + LEADER_EPOCH_AT, 4)
            records += record_count
            position += size
        return records


def is_outside(base: int, delta: int, earliest: int, latest: int) -> bool:
    """Whether the timestamp `base + delta` is refused: outside of the range, or beyond int64."""
    # The caller's way to say that every timestamp is refused.
    if earliest > latest:
        return True
    if (base > 0 and delta > _INT64_MAX - base) or (base < 0 and delta < _INT64_MIN - base):
        return True
    timestamp = base + delta
    return timestamp != _NO_TIMESTAMP and (timestamp < earliest or timestamp > latest)


def list_refused(
    data: "Ints", position: int, limit: int, count: int,
    needs_keys: int, base_timestamp: int, keeps_deltas: int, earliest: int, latest: int,
    totals: "Outputs", refused_records: "Outputs",
) -> int:  # fmt: skip
    """Lists the records that a log refuses, each with the first reason that applies.

    `needs_keys` is 1 for a compacted topic. `keeps_deltas` is as in `Payload`. If `earliest` is
    larger than `latest`, every timestamp is refused; otherwise -1 is always accepted. `totals` gets
    how many records are refused and how many of them for their timestamp, including those that the
    list has no room for.

    Returns:
        How many records are listed, or minus a `RecordFault`.
    """
    octets = address(data)
    with cython.nogil:
        if not can_hold(position, limit, len(data), count):
            return -_RECORD_COUNT
        room = len(refused_records) // _REFUSED_WIDTH
        listed = 0
        total = 0
        timestamps = 0
        for index in range(count):
            end, delta, offset_delta, _, key_size, _, _, _, _ = read_record(octets, position, limit)
            if end < 0:
                return end
            position = end
            detail = 0
            if offset_delta != index:
                reason = _OFFSET_REFUSED
                detail = offset_delta
            elif needs_keys and key_size < 0:
                reason = _NO_KEY_REFUSED
            elif is_outside(base_timestamp, delta * keeps_deltas, earliest, latest):
                reason = _TIMESTAMP_REFUSED
                detail = delta * keeps_deltas
                timestamps += 1
            else:
                continue
            total += 1
            if listed < room:
                refused_records[_REFUSED_WIDTH * listed] = index
                refused_records[_REFUSED_WIDTH * listed + 1] = reason
                refused_records[_REFUSED_WIDTH * listed + 2] = detail
                listed += 1
        totals[0] = total
        totals[1] = timestamps
        return listed


def decode_records(
    data: "Ints", payloads: "Outputs", count: int,
    start_offset: int, limit_offset: int,
    wanted: int, cursors: "Outputs", offsets: "Outputs", timestamps: "Outputs",
    key_ends: "Outputs", key_valid: "Outputs", key_data: "Outputs",
    value_ends: "Outputs", value_valid: "Outputs", value_data: "Outputs",
) -> int:  # fmt: skip
    """Appends the records of `start_offset <= offset < limit_offset` to columns in Arrow's layout.

    `payloads` has `PAYLOAD_WIDTH` places for each batch, as `Payload` says; `count` is the number
    of records of all batches. `cursors` has the number of rows, key bytes, value bytes and headers
    in the columns; they move only if every payload is sound. There must be room for `count` more
    rows, even if fewer are kept. As in Arrow, `key_ends[0]` is 0 and `key_ends[row + 1]` is where
    the key of `row` ends. `wanted` has the `WANT_…` bits of the columns to fill; the other columns
    are not touched.

    Returns:
        How many rows were appended, or minus a `RecordFault`.
    """
    octets = address(data)
    keys = output_address(key_data)
    values = output_address(value_data)
    with cython.nogil:
        row = cursors[0]
        key_end = cursors[1]
        value_end = cursors[2]
        header_count = cursors[3]
        # An end past its buffer may not fit 32 bits, and records without a key repeat it.
        if row < 0 or not 0 <= key_end <= len(key_data) or not 0 <= value_end <= len(value_data):
            return -_NO_ROOM
        left = count
        for batch in range(len(payloads) // _PAYLOAD_WIDTH):
            at = _PAYLOAD_WIDTH * batch
            position = payloads[at + _AT_POSITION]
            limit = payloads[at + _AT_LIMIT]
            record_count = payloads[at + _AT_RECORD_COUNT]
            base_offset = payloads[at + _AT_BASE_OFFSET]
            base_timestamp = payloads[at + _AT_BASE_TIMESTAMP]
            keeps_deltas = payloads[at + _AT_KEEPS_DELTAS]
            # The payloads come from Python, so nothing in them is believed.
            if not can_hold(position, limit, len(data), record_count):
                return -_RECORD_COUNT
            left -= record_count
            # For the whole batch at once, so that the loop over its records compares only keys and
            # values.
            rows = row + record_count
            if (
                left < 0
                or (wanted & _WANT_KEY and (len(key_valid) < rows or len(key_ends) <= rows))
                or (wanted & _WANT_VALUE and (len(value_valid) < rows or len(value_ends) <= rows))
                or (wanted & _WANT_OFFSET and len(offsets) < rows)
                or (wanted & _WANT_TIMESTAMP and len(timestamps) < rows)
            ):
                return -_NO_ROOM
            first_row = row
            for _ in range(record_count):
                end, delta, offset_delta, key_at, key_size, value_at, value_size, _, headers = (
                    read_record(octets, position, limit)
                )
                if end < 0:
                    return end
                position = end
                offset = wrapping_sum(base_offset, offset_delta)
                if offset < start_offset or offset >= limit_offset:
                    continue
                if wanted & _WANT_OFFSET:
                    offsets[row] = offset
                if wanted & _WANT_TIMESTAMP:
                    timestamps[row] = wrapping_sum(base_timestamp, delta * keeps_deltas)
                if wanted & _WANT_KEY:
                    key_valid[row] = 0 if key_size < 0 else 1
                    if key_size > 0:
                        # The buffer is written at its address.
                        if key_size > len(key_data) - key_end:
                            return -_NO_ROOM
                        copy_bytes(octets, key_at, keys, key_end, key_size)
                        key_end += key_size
                    key_ends[row + 1] = key_end
                if wanted & _WANT_VALUE:
                    value_valid[row] = 0 if value_size < 0 else 1
                    if value_size > 0:
                        if value_size > len(value_data) - value_end:
                            return -_NO_ROOM
                        copy_bytes(octets, value_at, values, value_end, value_size)
                        value_end += value_size
                    value_ends[row + 1] = value_end
                header_count += headers
                row += 1
            if position != limit:
                return -_LEFTOVER
            payloads[at + _AT_ROWS] = row - first_row
        # Only now: after a fault in a later batch the rows written so far do not count.
        appended = row - cursors[0]
        cursors[0] = row
        cursors[1] = key_end
        cursors[2] = value_end
        cursors[3] = header_count
        return appended


def decode_headers(
    data: "Ints", position: int, limit: int, count: int,
    base_offset: int, start_offset: int, limit_offset: int,
    cursors: "Outputs", row_ends: "Outputs", row_valid: "Outputs",
    key_ends: "Outputs", key_data: "Outputs",
    value_ends: "Outputs", value_valid: "Outputs", value_data: "Outputs",
) -> int:  # fmt: skip
    """Appends the headers of the records that `decode_records` would append, in Arrow's layout.

    A row is the list of one record's headers, and null if it has none. `cursors` has the number of
    rows, headers, header key bytes and header value bytes; they move only if the whole payload is
    sound.

    Returns:
        How many rows were appended, or minus a `RecordFault`.
    """
    octets = address(data)
    keys = output_address(key_data)
    values = output_address(value_data)
    with cython.nogil:
        if not can_hold(position, limit, len(data), count):
            return -_RECORD_COUNT
        row = cursors[0]
        header = cursors[1]
        key_end = cursors[2]
        value_end = cursors[3]
        if row < 0 or header < 0 or key_end < 0 or value_end < 0:
            return -_NO_ROOM
        for _ in range(count):
            end, _, offset_delta, _, _, _, _, at, headers = read_record(octets, position, limit)
            if end < 0:
                return end
            position = end
            offset = wrapping_sum(base_offset, offset_delta)
            if offset < start_offset or offset >= limit_offset:
                continue
            if row >= len(row_valid) or row + 1 >= len(row_ends):
                return -_NO_ROOM
            if headers > len(value_valid) - header or headers >= len(key_ends) - header:
                return -_NO_ROOM
            if headers >= len(value_ends) - header:
                return -_NO_ROOM
            for _ in range(headers):
                # `read_record` has checked these headers, so neither size nor position is compared
                # with `end`.
                size, at = read_varint(octets, at, end)
                if size > len(key_data) - key_end:
                    return -_NO_ROOM
                copy_bytes(octets, at, keys, key_end, size)
                at += size
                key_end += size
                size, at = read_varint(octets, at, end)
                if size > len(value_data) - value_end:
                    return -_NO_ROOM
                value_valid[header] = 0 if size < 0 else 1
                if size > 0:
                    copy_bytes(octets, at, values, value_end, size)
                    at += size
                    value_end += size
                header += 1
                key_ends[header] = key_end
                value_ends[header] = value_end
            row_valid[row] = 0 if headers == 0 else 1
            row += 1
            row_ends[row] = header
        if position != limit:
            return -_LEFTOVER
        appended = row - cursors[0]
        cursors[0] = row
        cursors[1] = header
        cursors[2] = key_end
        cursors[3] = value_end
        return appended


def find_timestamp(
    data: "Ints", position: int, limit: int, count: int,
    base_offset: int, base_timestamp: int, keeps_deltas: int, timestamp: int, start_offset: int,
    found: "Outputs",
) -> int:  # fmt: skip
    """Finds the first record at or after both `timestamp` and `start_offset`, for ListOffsets.

    Writes its offset and its timestamp to `found`. `keeps_deltas` is as in `Payload`.

    Returns:
        1 if there is such a record, 0 if not, or minus a `RecordFault` of a record before it.
    """
    octets = address(data)
    with cython.nogil:
        if not can_hold(position, limit, len(data), count):
            return -_RECORD_COUNT
        for _ in range(count):
            end, delta, offset_delta, _, _, _, _, _, _ = read_record(octets, position, limit)
            if end < 0:
                return end
            position = end
            offset = wrapping_sum(base_offset, offset_delta)
            time = wrapping_sum(base_timestamp, delta * keeps_deltas)
            if time >= timestamp and offset >= start_offset:
                found[0] = offset
                found[1] = time
                return 1
        return 0
