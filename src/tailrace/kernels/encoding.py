"""The kernels of a producer: choose partitions by key, cut rows into batches, encode records.

Records come one by one (`append_record`), or as columns.

A column of binaries has the bytes of all rows in one buffer, and the place where each row ends:

    data    b"onetwothree"
    ends    0 3 6 ~6 11            "one", "two", null, "three"

`ends` has one entry more than there are rows. The first says where row 0 begins. The entry of a
null row is negative: the bitwise complement of where the row before it ends. This is Arrow's layout
with the validity folded in, and the data may be Arrow's own buffer. A column with an empty `ends`
has only nulls. A record is drawn in `tailrace.kernels.records`.

The room does not export these kernels, so that a broker does not compile them; a producer imports
this module.

Invariant: nothing beyond the end of an output is written. The caller makes sure that the ends fit
the data and the rows fit the ends: neither comes from a peer or a file.
"""

from typing import TYPE_CHECKING, Final

from tailrace.kernels.cleaning import varint_size, write_varint
from tailrace.kernels.kernel import copy_bytes, helper, kernel

if TYPE_CHECKING:
    from tailrace.kernels.records import Ints, Outputs

VALUE_NULL: Final = 1
KEY_NULL: Final = 2
"""Flags of `append_record`: this field is null, and not empty."""

POSITION: Final = 0
"""The end of the records in the block."""
COUNT: Final = 1
LIMIT: Final = 2
"""The position at which the records must end at the latest; 0 once the batch takes no more."""
BASE_TIMESTAMP: Final = 3
MAX_TIMESTAMP: Final = 4
STATE_WORDS: Final = 5
"""Integers at the start of the state of a batch; the timestamps of its records follow."""
NO_ROOM: Final = -1
NOW: Final = -(1 << 62)
"""A timestamp (ms) that stands for the present time; -1 is that of a record without a time."""

_UINT32_MAX: Final = (1 << 32) - 1
_INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_FACTOR: Final = 0x5BD1E995


@helper
def row_of(ends: "Outputs", row: int) -> tuple[int, int]:
    """Position and number of the bytes of a row; the number is -1 for null."""
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

    The records are the rows `rows[start]`, `rows[start + 1]` and so on; if `rows` is empty, they
    are the rows from `start` on. Headers are columns made by `encode_headers`. If `timestamps` (ms)
    is empty, all records get the base timestamp.

    Returns:
        The end of the output, or -1 if it is too small.
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


@kernel("key", "key", "key", "uint8[:]", "int64[:]", "int64", "int64", "int64", "int64")
def append_record(  # noqa: PLR0917 (a kernel takes its buffers by position)
    value: "Ints", key: "Ints", headers: "Ints",
    block: "Outputs", state: "Outputs", nulls: int, timestamp: int, now_ns: int, count: int,  # noqa: ARG001
) -> int:  # fmt: skip
    """Writes one record behind those that are in `block`, and its timestamp into `state`.

    `state` has `STATE_WORDS` numbers, named above, and room for the timestamps in ms; the block is
    at least as large as its limit. A `timestamp` (ms) of `NOW` stands for `now_ns`. `headers` are
    encoded with their count, or empty. `count` is 1. Nothing else of the interpreter runs
    meanwhile, so the record is there whole or not at all.

    Returns:
        The index of the record in its batch, or `NO_ROOM`, with nothing written.
    """
    if timestamp == NOW:
        timestamp = now_ns // 1_000_000
    position = state[POSITION]
    index = state[COUNT]
    base = timestamp
    latest = timestamp
    if index > 0:
        base = state[BASE_TIMESTAMP]
        latest = max(timestamp, state[MAX_TIMESTAMP])
        # A delta has 64 bits too, and times may lie further apart.
        if (base < 0 and timestamp > INT64_MAX + base) or (
            base > 0 and timestamp < base - INT64_MAX
        ):
            return NO_ROOM
    delta = timestamp - base
    value_size = -1 if nulls & VALUE_NULL else len(value)
    key_size = -1 if nulls & KEY_NULL else len(key)
    size = (
        1 + varint_size(delta) + varint_size(index)
        + varint_size(key_size) + max(0, key_size)
        + varint_size(value_size) + max(0, value_size) + max(1, len(headers))
    )  # fmt: skip
    if varint_size(size) + size > state[LIMIT] - position or index >= len(state) - STATE_WORDS:
        return NO_ROOM
    position = write_varint(block, position, size)
    block[position] = 0
    position = write_varint(block, position + 1, delta)
    position = write_varint(block, position, index)
    position = write_varint(block, position, key_size)
    if key_size > 0:
        copy_bytes(key, 0, block, position, key_size)
        position += key_size
    position = write_varint(block, position, value_size)
    if value_size > 0:
        copy_bytes(value, 0, block, position, value_size)
        position += value_size
    if len(headers) > 0:
        copy_bytes(headers, 0, block, position, len(headers))
        position += len(headers)
    else:
        block[position] = 0
        position += 1
    state[STATE_WORDS + index] = timestamp
    state[BASE_TIMESTAMP] = base
    state[MAX_TIMESTAMP] = latest
    state[POSITION] = position
    state[COUNT] = index + 1
    return index


@kernel("bytes", "int64[:]", "bytes", "int64[:]", "int64[:]", "int64", "uint8[:]", "int64[:]")
def encode_headers(  # noqa: PLR0917 (a kernel takes its buffers by position)
    keys: "Ints", key_ends: "Outputs", values: "Ints", value_ends: "Outputs",
    row_ends: "Outputs", count: int, output: "Outputs", output_ends: "Outputs",
) -> int:  # fmt: skip
    """Writes a column of `count` rows; each row is the header count and the headers of a record.

    The headers of a row are those between its ends in `row_ends`; a null row has none. `output`
    needs room for the keys and values, ten bytes for each header and five bytes for each row.

    Returns:
        The end of the output. If a header key is null: minus the number, from 1, of its row.
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
    """The hash of a key that Kafka's clients use (murmur2), as an unsigned 32-bit number."""
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
    """Cuts `count` rows into runs; a run has one partition and at most `room` bytes, or one row.

    The rows are the first `count` entries of `rows`; if `rows` is empty, they are rows 0 to
    `count` - 1. If `partitions` is empty, there is one partition. `cuts` gets the place of the
    first row of each run, and the end of the last run; `cut_sizes` gets the sum of `sizes` of each.

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
        How many rows are left without a partition.
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


@kernel("key", "int64", "int64", "int64")
def choose_partition(key: "Ints", size: int, partition_count: int, count: int) -> int:  # noqa: ARG001
    """The partition that Kafka's default partitioner gives a key of `size` bytes; `count` is 1."""
    return (murmur2(key, 0, size) & _INT32_MAX) % partition_count


ENCODING: Final = (
    append_record, encode_records, encode_headers, choose_partitions, choose_partition, cut_rows,
)  # fmt: skip
"""The kernels that a producer loads."""
