"""The kernel that copies the records which a compaction keeps into one buffer.

The input is that of `choose_records`, batches of v2 records as drawn in `tailrace.kernels.records`,
and its output: one byte for each record that says whether the record stays. The bytes of a record
do not change unless the base timestamp of its batch does; then its timestamp delta and its length
are encoded again.

Invariant: nothing outside of the batches is read and nothing beyond the end of `output` is written,
whatever the bytes are. `choose_records` has checked the records before.
"""

from typing import TYPE_CHECKING, Final

from tailrace.kernels.kernel import copy_bytes, helper, kernel
from tailrace.kernels.key_map import BATCH_ROW_SIZE
from tailrace.kernels.records import (
    RECORD_SIZE_MIN,
    RecordFault,
    read_varint,
    read_varlong,
    wrapping_sum,
)

if TYPE_CHECKING:
    from tailrace.kernels.records import Ints, Outputs

_TRUNCATED: Final = int(RecordFault.TRUNCATED)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)

RECORD_GROWTH_MAX: Final = 13
"""Most bytes that a new timestamp delta adds to a record: nine for itself, four for the length."""


@helper
def write_varint(output: "Outputs", position: int, number: int) -> int:
    """Writes a zigzag varint of up to ten bytes; returns the position after it.

    The sign is removed first, because a doubled 64-bit number would not fit into int64.
    """
    sign = 0
    if number < 0:
        sign = 1
        number = -(number + 1)
    byte = ((number & 63) << 1) | sign
    number >>= 6
    while number > 0:
        output[position] = byte | 128
        position += 1
        byte = number & 127
        number >>= 7
    output[position] = byte
    return position + 1


@helper
def varint_size(number: int) -> int:
    """Bytes that `write_varint` takes."""
    if number < 0:
        number = -(number + 1)
    number >>= 6
    size = 1
    while number > 0:
        number >>= 7
        size += 1
    return size


@helper
def copy_kept(  # noqa: PLR0917 (a kernel takes its buffers by position)
    data: "Ints", position: int, limit: int, count: int,
    keeps: "Ints", first: int, timestamp_shift: int, output: "Outputs", written: int,
) -> int:  # fmt: skip
    """Copies the records of one batch; returns the end of the output, or minus a `RecordFault`."""
    for index in range(first, first + count):
        start = position
        length, body = read_varint(data, start, limit)
        if body < 0:
            return body
        if length < 1 or length > limit - body:
            return -_TRUNCATED
        position = body + length
        if keeps[index] == 0:
            continue
        if timestamp_shift == 0:
            size = position - start
            if size > len(output) - written:
                return -_NO_ROOM
            copy_bytes(data, start, output, written, size)
            written += size
            continue
        delta, rest = read_varlong(data, body + 1, position)
        if rest < 0:
            return rest
        delta = wrapping_sum(delta, timestamp_shift)
        size = position - rest
        length = 1 + varint_size(delta) + size
        if varint_size(length) + length > len(output) - written:
            return -_NO_ROOM
        written = write_varint(output, written, length)
        output[written] = data[body]
        written = write_varint(output, written + 1, delta)
        copy_bytes(data, rest, output, written, size)
        written += size
    return written


@kernel("bytes", "int64", "int64[:]", "uint8[:]", "int64", "uint8[:]")
def copy_records(  # noqa: PLR0917 (a kernel takes its buffers by position)
    data: "Ints", count: int, batches: "Outputs",  # noqa: ARG001 (accounted)
    keeps: "Ints", gap: int, output: "Outputs",
) -> int:  # fmt: skip
    """Copies the records that have a 1 in `keeps`, from each batch that has IS_COPIED set.

    `batches` are the rows of `choose_records`. TIMESTAMP_SHIFT is added to the timestamp deltas.
    `gap` bytes are left free before each batch; START and END are set to where its records are.

    Returns:
        The bytes written, gaps included, or minus a `RecordFault`.
    """
    first = 0
    written = 0
    for row in range(0, len(batches), BATCH_ROW_SIZE):
        position = batches[row]
        limit = batches[row + 1]
        records = batches[row + 2]
        if not 0 <= records <= (limit - position) // RECORD_SIZE_MIN:
            return -_RECORD_COUNT
        if records > len(keeps) - first:
            return -_RECORD_COUNT
        if batches[row + 12] != 0:
            if gap > len(output) - written:
                return -_NO_ROOM
            batches[row + 14] = written + gap
            written = copy_kept(
                data, position, limit, records,
                keeps, first, batches[row + 13], output, written + gap,
            )  # fmt: skip
            if written < 0:
                return written
            batches[row + 15] = written
        first += records
    return written
