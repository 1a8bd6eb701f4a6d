"""The kernel that writes the records which a compaction keeps, one behind the other.

The input is what `choose_records` has looked at: batches of v2 records as drawn in
`tailrace.kernels.records`, and one byte for each record that says whether it stays. A record's
bytes stay as they are, unless the base timestamp of its batch has moved: then its timestamp delta
is written anew, and with it its length.

Invariant: nothing outside of the batches is read and nothing beyond the end of `output`
is written, whatever the bytes are. The caller has had the records checked (`choose_records`).

The helpers that read varints are those of `tailrace.kernels.records`: whoever changes them deletes
the `.nbi` files of `__pycache__`, as for `copy_bytes`.
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
"""Most bytes that a new timestamp delta adds to a record: nine of its own, four of the length."""


@helper
def write_varint(output: "Outputs", position: int, number: int) -> int:
    """Writes a zigzag varint of up to ten bytes; returns the position behind it.

    The sign is taken out first, because doubling a number of 64 bits would leave int64.
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
    """One batch of `copy_records`: where the output then ends, or minus a `RecordFault`."""
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
    """Copies the records that have a 1 in `keeps`, of the batches whose row says so.

    The row is that of `choose_records`; TIMESTAMP_SHIFT is added to the records' timestamp deltas.
    Before each batch `gap` bytes are left free, and START and END say where its records are.

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
