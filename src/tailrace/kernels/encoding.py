"""The kernels of a producer's columns: partitions by key, batches cut by size, records written.

A column of binaries is the bytes of all rows, one behind the other, and where each row's bytes end:

    data    b"onetwothree"
    ends    0 3 6 ~6 11            "one", "two", null, "three"

`ends` has a place more than there are rows. The first says where row 0 begins; the place of a null
row is the bitwise complement, which is negative, of where the row before it ends. This is Arrow's
layout with the validity folded in, and the data may be Arrow's own buffer. No `ends` at all is a
column of nulls. A record is drawn in `tailrace.kernels.records`.

These kernels are not among the exports of the room: whoever produces imports this module, and a
broker does not compile them.

Invariant: nothing beyond the end of an output is written. That the ends fit to the data, and the
rows to the ends, is the caller's business: they are no bytes from outside.
"""

from typing import TYPE_CHECKING, Final

from tailrace.kernels.cleaning import varint_size, write_varint
from tailrace.kernels.kernel import copy_bytes, helper, kernel

if TYPE_CHECKING:
    from tailrace.kernels.records import Ints, Outputs

_UINT32_MAX: Final = (1 << 32) - 1
_INT32_MAX: Final = (1 << 31) - 1
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_FACTOR: Final = 0x5BD1E995


@helper
def row_of(ends: "Outputs", row: int) -> tuple[int, int]:
    """Where the bytes of a row begin, and how many there are; -1 for null."""
    if len(ends) == 0:
        return 0, -1
    end = ends[row + 1]
    if end < 0:
        return 0, -1
    start = ends[row]
    if start < 0:
        start = ~start
    return start, end - start


@kernel(
    "bytes", "int64[:]", "bytes", "int64[:]", "bytes", "int64[:]",
    "int64[:]", "int64", "int64[:]", "int64", "int64", "uint8[:]", "int64",
)  # fmt: skip
def encode_records(  # noqa: PLR0917 (a kernel takes its buffers by position)
    values: "Ints", value_ends: "Outputs", keys: "Ints", key_ends: "Outputs",
    headers: "Ints", header_ends: "Outputs",
    timestamps: "Outputs", base_timestamp: int,
    rows: "Outputs", start: int, count: int, output: "Outputs", position: int,
) -> int:  # fmt: skip
    """Writes `count` records to `output`, from `position` on.

    They are the rows `rows[start]`, `rows[start + 1]` and so on; without `rows`, rows `start` and
    on. Headers are columns of `encode_headers`. Without `timestamps` (ms) all have the base.

    Returns:
        Where the output then ends, or -1 if it is too small.
    """
    room = len(output)
    for index in range(count):
        row = start + index
        if len(rows) > 0:
            row = rows[row]
        delta = 0
        if len(timestamps) > 0:
            delta = timestamps[row] - base_timestamp
        key_at, key_size = row_of(key_ends, row)
        value_at, value_size = row_of(value_ends, row)
        headers_at, headers_size = row_of(header_ends, row)
        size = (
            1 + varint_size(delta) + varint_size(index)
            + varint_size(key_size) + max(0, key_size)
            + varint_size(value_size) + max(0, value_size) + max(1, headers_size)
        )  # fmt: skip
        if varint_size(size) + size > room - position:
            return -1
        position = write_varint(output, position, size)
        output[position] = 0
        position = write_varint(output, position + 1, delta)
        position = write_varint(output, position, index)
        position = write_varint(output, position, key_size)
        if key_size > 0:
            copy_bytes(keys, key_at, output, position, key_size)
            position += key_size
        position = write_varint(output, position, value_size)
        if value_size > 0:
            copy_bytes(values, value_at, output, position, value_size)
            position += value_size
        if headers_size > 0:
            copy_bytes(headers, headers_at, output, position, headers_size)
            position += headers_size
        else:
            output[position] = 0
            position += 1
    return position


@kernel("bytes", "int64[:]", "bytes", "int64[:]", "int64[:]", "int64", "uint8[:]", "int64[:]")
def encode_headers(  # noqa: PLR0917 (a kernel takes its buffers by position)
    keys: "Ints", key_ends: "Outputs", values: "Ints", value_ends: "Outputs",
    row_ends: "Outputs", count: int, output: "Outputs", output_ends: "Outputs",
) -> int:  # fmt: skip
    """Writes a column of `count` rows that are a record's header count and headers as encoded.

    The headers of a row are those between its ends in `row_ends`, none if it is null. Ten bytes for
    each header and five for each row, besides the keys and values, are room enough in `output`.

    Returns:
        Where the output ends, or minus the number, from 1, of the row that has a header whose key
        is null.
    """
    position = 0
    output_ends[0] = 0
    for row in range(count):
        header, size = row_of(row_ends, row)
        position = write_varint(output, position, max(0, size))
        for index in range(header, header + max(0, size)):
            at, size = row_of(key_ends, index)
            if size < 0:
                return -(row + 1)
            position = write_varint(output, position, size)
            if size > 0:
                copy_bytes(keys, at, output, position, size)
                position += size
            at, size = row_of(value_ends, index)
            position = write_varint(output, position, size)
            if size > 0:
                copy_bytes(values, at, output, position, size)
                position += size
        output_ends[row + 1] = position
    return position


@helper
def murmur2(data: "Ints", position: int, size: int) -> int:
    """The hash that Kafka's clients take of a key, as an unsigned number of 32 bits."""
    digest = _MURMUR_SEED ^ size
    whole = position + (size & ~3)
    for at in range(position, whole, 4):
        word = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (data[at + 3] << 24)
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        word ^= word >> 24
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        digest = ((digest * _MURMUR_FACTOR) & _UINT32_MAX) ^ word
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


@kernel("int64[:]", "int64[:]", "int64[:]", "int64", "int64", "int64[:]", "int64[:]")
def cut_rows(  # noqa: PLR0917 (a kernel takes its buffers by position)
    sizes: "Outputs", rows: "Outputs", partitions: "Outputs", count: int, room: int,
    cuts: "Outputs", cut_sizes: "Outputs",
) -> int:  # fmt: skip
    """Cuts `count` rows into runs of one partition and at most `room` bytes, or a single row.

    They are the first of `rows`, or the first at all without `rows`; without `partitions` there is
    one. `cuts` gets the place of each run's first row in that order, and where the last run ends;
    `cut_sizes` the sum of its rows' `sizes`.

    Returns:
        The number of runs.
    """
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
        if place == 0 or own != partition or size > room - total:
            cuts[runs] = place
            runs += 1
            partition = own
            total = 0
        total += size
        cut_sizes[runs - 1] = total
    cuts[runs] = count
    return runs


@kernel("bytes", "int64[:]", "int64", "int64", "int64[:]")
def choose_partitions(
    keys: "Ints", key_ends: "Outputs", count: int, partition_count: int, partitions: "Outputs"
) -> int:
    """Fills in the partition that Kafka's default partitioner gives each key.

    Rows that have a partition keep it, and rows without a key keep their -1.

    Returns:
        How many rows have no partition then.
    """
    left = 0
    for row in range(count):
        if partitions[row] >= 0:
            continue
        at, size = row_of(key_ends, row)
        if size < 0:
            left += 1
        else:
            partitions[row] = (murmur2(keys, at, size) & _INT32_MAX) % partition_count
    return left
