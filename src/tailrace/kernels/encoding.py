"""The kernels of a producer: choose partitions by key, cut rows into batches, encode records.

Not here: records that come one by one (`record_block`).

A column of binaries has the bytes of all rows in one buffer, and the place where each row ends:

    data    b"onetwothree"
    ends    0 3 6 ~6 11            "one", "two", null, "three"

`ends` has one entry more than there are rows. The first says where row 0 begins. The entry of a
null row is negative: the bitwise complement of where the row before it ends. This is Arrow's layout
with the validity folded in, and the data may be Arrow's own buffer. A column with an empty `ends`
has only nulls. A record is drawn in `tailrace.kernels.records`.

Invariant: nothing beyond the end of an output is written, and nothing outside of a column is read.
"""

from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from tailrace.kernels.memory import (
        address,
        copy_bytes,
        octets_of,
        output_address,
        varint_size,
        write_varint,
    )

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs

_UINT32_MAX: Final = (1 << 32) - 1
_INT32_MAX: Final = (1 << 31) - 1
_SIZE_BYTES_MAX: Final = 5
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_FACTOR: Final = 0x5BD1E995


def row_of(ends: "Outputs", row: int, limit: int) -> tuple[int, int]:
    """Position and number of the bytes of a row; the number is -1 for null.

    It is -2 if there is no such row, or if it is not inside of the `limit` bytes of its column.
    """
    if len(ends) == 0:
        return 0, -1
    if row < 0 or row >= len(ends) - 1:
        return 0, -2
    end = ends[row + 1]
    # A null row has no bytes; its complement only says where the next row begins.
    if end < 0:
        return 0, -1
    start = ends[row]
    if start < 0:
        start = ~start
    # The ends come from a program's Arrow buffers, which nobody has validated.
    if start > end or end > limit:
        return 0, -2
    return start, end - start


def encode_records(
    values: "Ints", value_ends: "Outputs", keys: "Ints", key_ends: "Outputs",
    headers: "Ints", header_ends: "Outputs",
    timestamps: "Outputs", base_timestamp: int,
    rows: "Outputs", start: int, count: int, output: "Outputs", position: int,
) -> int:  # fmt: skip
    """Writes `count` records to `output`, from `position` on.

    The records are the rows `rows[start]`, `rows[start + 1]` and so on; if `rows` is empty, they
    are the rows from `start` on. Headers are columns made by `encode_headers`. If `timestamps` (ms)
    is empty, all records get the base timestamp.

    Returns:
        The end of the output, or -1 if it is too small or a row is not in its column.
    """
    value_data = address(values)
    key_data = address(keys)
    header_data = address(headers)
    out = output_address(output)
    with cython.nogil:
        # The outputs are written at their address, and their ends compared for each record.
        if position < 0 or start < 0:
            return -1
        room = len(output)
        for index in range(count):
            row = start + index
            if len(rows) > 0:
                row = rows[row]
            delta = 0
            if len(timestamps) > 0:
                delta = timestamps[row] - base_timestamp
            key_at, key_size = row_of(key_ends, row, len(keys))
            value_at, value_size = row_of(value_ends, row, len(values))
            headers_at, headers_size = row_of(header_ends, row, len(headers))
            if key_size < -1 or value_size < -1 or headers_size < -1:
                return -1
            size = (
                1 + varint_size(delta) + varint_size(index)
                + varint_size(key_size) + max(0, key_size)
                + varint_size(value_size) + max(0, value_size) + max(1, headers_size)
            )  # fmt: skip
            # The exact size is known before the first byte is written, so nothing has to be undone.
            if varint_size(size) + size > room - position:
                return -1
            position = write_varint(out, position, size)
            # The attributes, of which the format uses none.
            out[position] = 0
            position = write_varint(out, position + 1, delta)
            position = write_varint(out, position, index)
            position = write_varint(out, position, key_size)
            if key_size > 0:
                copy_bytes(key_data, key_at, out, position, key_size)
                position += key_size
            position = write_varint(out, position, value_size)
            if value_size > 0:
                copy_bytes(value_data, value_at, out, position, value_size)
                position += value_size
            if headers_size > 0:
                copy_bytes(header_data, headers_at, out, position, headers_size)
                position += headers_size
            else:
                # A header count of zero; with headers the count is the first part of their column.
                out[position] = 0
                position += 1
        return position


def encode_headers(
    keys: "Ints", key_ends: "Outputs", values: "Ints", value_ends: "Outputs",
    row_ends: "Outputs", count: int, output: "Outputs", output_ends: "Outputs",
) -> int:  # fmt: skip
    """Writes a column of `count` rows; each row is the header count and the headers of a record.

    The headers of a row are those between its ends in `row_ends`; a null row has none. `output`
    needs room for the keys and values, ten bytes for each header and five bytes for each row.

    Returns:
        The end of the output. If a header key is null, or a header is not in its column: minus the
        number, from 1, of its row. Minus `count + 1` if the output is too small.
    """
    key_data = address(keys)
    value_data = address(values)
    out = output_address(output)
    with cython.nogil:
        position = 0
        output_ends[0] = 0
        for row in range(count):
            header, header_count = row_of(row_ends, row, _INT32_MAX)
            if header_count < -1:
                return -(row + 1)
            if len(output) - position < _SIZE_BYTES_MAX:
                return -(count + 1)
            position = write_varint(out, position, max(0, header_count))
            for index in range(header, header + max(0, header_count)):
                at, size = row_of(key_ends, index, len(keys))
                # A key of a header may not be null; its value may.
                if size < 0:
                    return -(row + 1)
                value_at, value_size = row_of(value_ends, index, len(values))
                if value_size < -1:
                    return -(row + 1)
                # Two varints of int32 take at most five bytes each, so the room is compared once.
                rest = len(output) - position - 2 * _SIZE_BYTES_MAX
                if size + max(0, value_size) > rest:
                    return -(count + 1)
                position = write_varint(out, position, size)
                if size > 0:
                    copy_bytes(key_data, at, out, position, size)
                    position += size
                position = write_varint(out, position, value_size)
                if value_size > 0:
                    copy_bytes(value_data, value_at, out, position, value_size)
                    position += value_size
            output_ends[row + 1] = position
        return position


def hash_key(data: "Ints", position: int, size: int) -> int:
    """The hash of a key that Kafka's clients use (murmur2), as an unsigned 32-bit number."""
    # Kafka's own seed and arithmetic of 32 bits: another hash would send a key to another partition
    # than Java's producer does, and break the order of that key.
    digest = _MURMUR_SEED ^ size
    whole = position + (size & ~3)
    for at in range(position, whole, 4):
        word = data[at + 3]
        for place in range(at + 2, at - 1, -1):
            word = word << 8 | data[place]
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        word ^= word >> 24
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        digest = ((digest * _MURMUR_FACTOR) & _UINT32_MAX) ^ word
    # The tail bytes, which Java's switch falls through.
    rest = size & 3
    if rest > 2:
        digest ^= data[whole + 2] << 16
    if rest > 1:
        digest ^= data[whole + 1] << 8
    if rest > 0:
        digest ^= data[whole]
        digest = (digest * _MURMUR_FACTOR) & _UINT32_MAX
    digest ^= digest >> 13
    digest = (digest * _MURMUR_FACTOR) & _UINT32_MAX
    return digest ^ (digest >> 15)


def cut_rows(
    sizes: "Outputs", rows: "Outputs", partitions: "Outputs", count: int, room: int,
    cuts: "Outputs", cut_sizes: "Outputs",
) -> int:  # fmt: skip
    """Cuts `count` rows into runs; a run has one partition and at most `room` bytes, or one row.

    The rows are the first `count` entries of `rows`; if `rows` is empty, they are rows 0 to
    `count` - 1. If `partitions` is empty, there is one partition. `cuts` gets the place of the
    first row of each run, and the end of the last run; `cut_sizes` gets the sum of `sizes` of each.

    Returns:
        The number of runs.
    """
    with cython.nogil:
        runs = 0
        total = 0
        partition = 0
        for place in range(count):
            row = place
            if len(rows) > 0:
                row = rows[place]
            own = 0
            if len(partitions) > 0:
                own = partitions[row]
            size = sizes[row]
            # A row that is larger than `room` gets a run of its own.
            if place == 0 or own != partition or size > room - total:
                cuts[runs] = place
                runs += 1
                partition = own
                total = 0
            total += size
            cut_sizes[runs - 1] = total
        cuts[runs] = count
        return runs


def choose_partitions(
    keys: "Ints", key_ends: "Outputs", count: int, partition_count: int, partitions: "Outputs"
) -> int:
    """Fills in the partition that Kafka's default partitioner gives each key.

    Rows that have a partition keep it, and rows without a key keep their -1.

    Returns:
        How many rows are left without a partition.
    """
    key_data = address(keys)
    with cython.nogil:
        left = 0
        for row in range(count):
            if partitions[row] >= 0:
                continue
            at, size = row_of(key_ends, row, len(keys))
            if size < 0:
                left += 1
            else:
                # The sign bit is cleared, as by Java's `toPositive`, which is not the absolute
                # value.
                partitions[row] = (hash_key(key_data, at, size) & _INT32_MAX) % partition_count
        return left


def murmur2(key: bytes) -> int:
    """The 32-bit MurmurHash2 that Kafka's clients compute of a key, signed as in Java."""
    mixed = hash_key(octets_of(key), 0, len(key))
    # Java's `int` has the sign; the kernels keep it unsigned, so that shifts bring in zeros.
    return mixed - _UINT32_MAX - 1 if mixed > _INT32_MAX else mixed


def choose_partition(key: bytes, partition_count: int) -> int:
    """The partition that Kafka's default partitioner gives a key."""
    return (hash_key(octets_of(key), 0, len(key)) & _INT32_MAX) % partition_count
