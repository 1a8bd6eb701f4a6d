"""The kernel that copies the records which a compaction keeps into one buffer.

The input is that of `choose_records`, batches of v2 records as drawn in `tailrace.kernels.records`,
and its output: one byte for each record that says whether the record stays. The bytes of a record
do not change unless the base timestamp of its batch does; then its timestamp delta and its length
are encoded again.

Invariant: nothing outside of the batches is read and nothing beyond the end of `output` is written,
whatever the bytes are. `choose_records` has checked the records before.
"""

from typing import TYPE_CHECKING, Final

import cython

from tailrace.kernels.key_map import BATCH_ROW_SIZE
from tailrace.kernels.records import RecordFault

if not cython.compiled:
    from tailrace.kernels.memory import (
        address,
        copy_bytes,
        output_address,
        varint_size,
        write_varint,
    )
    from tailrace.kernels.records import can_hold, read_varint, read_varlong, wrapping_sum

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs

_TRUNCATED: Final = int(RecordFault.TRUNCATED)
_RECORD_COUNT: Final = int(RecordFault.RECORD_COUNT)
_NO_ROOM: Final = int(RecordFault.NO_ROOM)
_BATCH_ROW_SIZE: Final = BATCH_ROW_SIZE

RECORD_GROWTH_MAX: Final = 13
"""Most bytes that a new timestamp delta adds to a record: nine for itself, four for the length."""


def copy_kept(
    data: "Ints", position: int, limit: int, count: int,
    keeps: "Ints", first: int, timestamp_shift: int, output: "Outputs", room: int, written: int,
) -> int:  # fmt: skip
    """Copies the records of one batch; returns the end of the output, or minus a `RecordFault`."""
    for index in range(first, first + count):
        start = position
        # Only the fields up to the timestamp are read again; `choose_records` has walked all of
        # them.
        length, body = read_varint(data, start, limit)
        if body < 0:
            return body
        # Compared all the same, so that this kernel is safe whatever was called before it. One
        # byte, because the attributes are copied from there.
        if length < 1 or length > limit - body:
            return -_TRUNCATED
        position = body + length
        if keeps[index] == 0:
            continue
        if timestamp_shift == 0:
            # The usual case: the base timestamp stays, and so does each byte of the record.
            size = position - start
            if size > room - written:
                return -_NO_ROOM
            copy_bytes(data, start, output, written, size)
            written += size
            continue
        # After the record's attributes, one byte that format v2 does not use.
        delta, rest = read_varlong(data, body + 1, position)
        if rest < 0:
            return rest
        # Readers add base and delta modulo 2^64, so the new delta may wrap too.
        delta = wrapping_sum(delta, timestamp_shift)
        size = position - rest
        length = 1 + varint_size(delta) + size
        # Subtracted, not added, as everywhere in this room: no sum of ends and sizes can leave
        # int64.
        if varint_size(length) + length > room - written:
            return -_NO_ROOM
        written = write_varint(output, written, length)
        # The attributes of the record.
        output[written] = data[body]
        written = write_varint(output, written + 1, delta)
        copy_bytes(data, rest, output, written, size)
        written += size
    return written


def copy_records(
    data: "Ints", batches: "Outputs", keeps: "Ints", gap: int, output: "Outputs"
) -> int:
    """Copies the records that have a 1 in `keeps`, from each batch that has IS_COPIED set.

    `batches` are the rows of `choose_records`. TIMESTAMP_SHIFT is added to the timestamp deltas.
    `gap` bytes are left free before each batch; START and END are set to where its records are.

    Returns:
        The bytes written, gaps included, or minus a `RecordFault`.
    """
    octets = address(data)
    kept = address(keeps)
    copied = output_address(output)
    with cython.nogil:
        room = len(output)
        first = 0
        written = 0
        for batch in range(len(batches) // _BATCH_ROW_SIZE):
            row = _BATCH_ROW_SIZE * batch
            position = batches[row]
            limit = batches[row + 1]
            records = batches[row + 2]
            # The rows come from Python, so nothing in them is believed. `keeps` is one buffer for
            # all batches, and is read at the address, so its end is compared here once for the
            # whole batch.
            if not can_hold(position, limit, len(data), records) or records > len(keeps) - first:
                return -_RECORD_COUNT
            if batches[row + 12] != 0:
                # The gap is for the header that the caller writes when it knows the new size.
                if gap < 0 or gap > room - written:
                    return -_NO_ROOM
                batches[row + 14] = written + gap
                written = copy_kept(
                    octets, position, limit, records,
                    kept, first, batches[row + 13], copied, room, written + gap,
                )  # fmt: skip
                if written < 0:
                    return written
                # Only when the fault is excluded, so that END never names bytes that were not
                # written.
                batches[row + 15] = written
            first += records
        return written
