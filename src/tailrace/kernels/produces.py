# cython: boundscheck=False
"""The kernel that takes produce requests which repeat an earlier one but for their records.

A request frame, cut by what may differ from the earlier request; the parts in brackets may not:

    size | [key, version] | correlation id | [rest of the head] | records length | records | [tail]

The records are one batch, of which the kernel checks what `storage.appends` checks before it
appends it. A batch that breaks any rule is not taken, and neither is one that the broker would have
to change (compression, LogAppendTime, a wrong largest timestamp), so that the caller has a reason
of its own to say what is wrong. Batches are copied, with offset and leader epoch, one after the
other; the request stays as it was received.

No index is checked: `take_produces` compares each position with the end of its buffer, and the
sizes of the other buffers, before it reads or writes there.

Invariant: a frame is taken completely, with its batch and its answer, or it changes nothing that
the caller looks at.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

from tailrace.kernels.records import RECORD_SIZE_MIN

if not cython.compiled:
    from tailrace.kernels.batch_header import (
        ATTRIBUTES_AT,
        BASE_SEQUENCE_AT,
        BASE_TIMESTAMP_AT,
        CRC_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LEADER_EPOCH_AT,
        LENGTH_AT,
        LOG_OVERHEAD,
        MAGIC,
        MAGIC_AT,
        MAX_TIMESTAMP_AT,
        PRODUCER_EPOCH_AT,
        PRODUCER_ID_AT,
        RECORD_COUNT_AT,
    )
    from tailrace.kernels.checksums import crc32c
    from tailrace.kernels.memory import (
        address,
        copy_bytes,
        is_equal,
        output_address,
        read_integer,
        write_integer,
    )
    from tailrace.kernels.records import is_later, is_outside, read_record

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs


class Taking(IntEnum):
    """Places in the `state` of `take_produces`: what the caller says, then what the kernel says."""

    IS_FLEXIBLE = 0
    """1 if the length of the records is an unsigned varint of one more, 0 if it is an int32."""
    OFFSET_AT = 1
    """Position of the base offset in the answer."""
    FRAME_BYTES_MAX = 2
    BATCH_BYTES_MAX = 3
    EARLIEST = 4
    """Earliest and latest timestamp that a record may have besides -1, in milliseconds."""
    LATEST = 5
    NEEDS_KEYS = 6
    """1 for a compacted topic."""
    LEADER_EPOCH = 7
    PRODUCER_ID = 8
    """The producer, its epoch and its next sequence number; -1 without one."""
    PRODUCER_EPOCH = 9
    SEQUENCE = 10
    INDEX_INTERVAL_BYTES = 11
    """Bytes from one index entry to the next."""
    BYTES_BEFORE_ENTRY = 12
    """Bytes up to the next index entry, before the call and after it; below 0 if one is due."""
    NEXT_OFFSET = 13
    """The offset of the next record, before the call and after it."""
    POSITION = 14
    """Position after the last frame that was taken."""
    BATCHES_SIZE = 15
    ANSWERS_SIZE = 16
    MAX_TIMESTAMP = 17
    """The largest timestamp of all batches; last offset of the first batch that has it."""
    MAX_TIMESTAMP_OFFSET = 18
    ENTRY_COUNT = 19
    """Number of index entries that are due."""


ENTRY_WIDTH: Final = 4
"""Numbers of an index entry: the position of its batch among the batches, that batch's last offset,
the largest timestamp up to it, and the last offset of the first batch that has that timestamp."""


_IS_FLEXIBLE: Final = int(Taking.IS_FLEXIBLE)
_OFFSET_AT: Final = int(Taking.OFFSET_AT)
_FRAME_BYTES_MAX: Final = int(Taking.FRAME_BYTES_MAX)
_BATCH_BYTES_MAX: Final = int(Taking.BATCH_BYTES_MAX)
_EARLIEST: Final = int(Taking.EARLIEST)
_LATEST: Final = int(Taking.LATEST)
_NEEDS_KEYS: Final = int(Taking.NEEDS_KEYS)
_LEADER_EPOCH: Final = int(Taking.LEADER_EPOCH)
_PRODUCER_ID: Final = int(Taking.PRODUCER_ID)
_PRODUCER_EPOCH: Final = int(Taking.PRODUCER_EPOCH)
_SEQUENCE: Final = int(Taking.SEQUENCE)
_INDEX_INTERVAL_BYTES: Final = int(Taking.INDEX_INTERVAL_BYTES)
_BYTES_BEFORE_ENTRY: Final = int(Taking.BYTES_BEFORE_ENTRY)
_NEXT_OFFSET: Final = int(Taking.NEXT_OFFSET)
_POSITION: Final = int(Taking.POSITION)
_BATCHES_SIZE: Final = int(Taking.BATCHES_SIZE)
_ANSWERS_SIZE: Final = int(Taking.ANSWERS_SIZE)
_MAX_TIMESTAMP: Final = int(Taking.MAX_TIMESTAMP)
_MAX_TIMESTAMP_OFFSET: Final = int(Taking.MAX_TIMESTAMP_OFFSET)
_ENTRY_COUNT: Final = int(Taking.ENTRY_COUNT)
_ENTRY_WIDTH: Final = ENTRY_WIDTH

_RECORD_SIZE_MIN: Final = RECORD_SIZE_MIN
_STATE_SIZE: Final = len(Taking)
_SIZE_BYTES: Final = 4
_ID_AT: Final = 4
"""Position of the correlation id in a request and in an answer."""
_ID_END: Final = 8
_VARINT_BYTES_MAX: Final = 4
_UINT32_MAX: Final = (1 << 32) - 1
_SEQUENCE_MAX: Final = (1 << 31) - 1


def find_records(data: "Ints", position: int, limit: int, is_flexible: int) -> tuple[int, int]:
    """First and last position, plus 1, of the records whose length is at `position`; or 0, -1."""
    if is_flexible == 0:
        if limit - position < 4:
            return 0, -1
        size = read_integer(data, position, 4)
        position += 4
    else:
        size = 0
        shift = 0
        is_open = True
        # Four bytes carry 28 bits, 256 MiB; a larger length is left to the decoder.
        while is_open and shift < 7 * _VARINT_BYTES_MAX and position < limit:
            size |= (data[position] & 127) << shift
            is_open = data[position] >= 128
            shift += 7
            position += 1
        if is_open:
            return 0, -1
        size -= 1
    if size < HEADER_SIZE or size > limit - position:
        return 0, -1
    return position, position + size


def is_usual_batch(data: "Ints", start: int, end: int, state: "Outputs") -> bool:
    """Whether a batch may be appended as it is; `Taking` has the rules that come from outside."""
    attributes = read_integer(data, start + ATTRIBUTES_AT, 2)
    count = read_integer(data, start + RECORD_COUNT_AT, 4)
    if (
        end - start > state[_BATCH_BYTES_MAX]
        # Producers write base offset 0; another one is refused in words by `storage.appends`.
        or read_integer(data, start, 8) != 0
        or read_integer(data, start + LENGTH_AT, 4) != end - start - LOG_OVERHEAD
        or data[start + MAGIC_AT] != MAGIC
        or attributes != 0
        or count < 1
        or count > (end - start - HEADER_SIZE) // _RECORD_SIZE_MIN
        or read_integer(data, start + LAST_OFFSET_DELTA_AT, 4) != count - 1
        or read_integer(data, start + PRODUCER_ID_AT, 8) != state[_PRODUCER_ID]
    ):
        return False
    if state[_PRODUCER_ID] >= 0 and (
        read_integer(data, start + PRODUCER_EPOCH_AT, 2) != state[_PRODUCER_EPOCH]
        or read_integer(data, start + BASE_SEQUENCE_AT, 4) != state[_SEQUENCE]
    ):
        return False
    # Last, since it reads all bytes; the rules above cost a few nanoseconds.
    stored = read_integer(data, start + CRC_AT, 4) & _UINT32_MAX
    return stored == crc32c(data, start + ATTRIBUTES_AT, end) and has_usual_records(
        data, start, end, state
    )


def has_usual_records(data: "Ints", start: int, end: int, state: "Outputs") -> bool:
    """Whether all records of a batch are sound, allowed, and as its header says."""
    count = read_integer(data, start + RECORD_COUNT_AT, 4)
    base = read_integer(data, start + BASE_TIMESTAMP_AT, 8)
    largest = read_integer(data, start + MAX_TIMESTAMP_AT, 8)
    position = start + HEADER_SIZE
    has_largest = False
    for index in range(count):
        after, delta, offset_delta, _, key_size, _, _, _, _ = read_record(data, position, end)
        if (
            after < 0
            or offset_delta != index
            or (key_size < 0 and state[_NEEDS_KEYS] != 0)
            or is_outside(base, delta, state[_EARLIEST], state[_LATEST])
            or is_later(base, delta, largest)
        ):
            return False
        # `is_later` has refused a sum beyond int64, so this one may be added.
        has_largest = has_largest or base + delta == largest
        position = after
    return has_largest and position == end


def take_produces(
    data: "Ints", position: int, limit: int, head: "Ints", tail: "Ints", answer: "Ints",
    state: "Outputs", batches: "Outputs", answers: "Outputs", starts: "Outputs",
    entries: "Outputs", count: int,
) -> int:  # fmt: skip
    """Takes at most `count` frames from `data[position:limit]` that repeat an earlier request.

    `head` is that request from its key to before the length of its records, and `tail` what follows
    the records. `answer` is its answer with size; empty if there is none. `batches` gets the
    batches, `starts` where each begins, `answers` the answers, `entries` the index entries that are
    due before batches (`ENTRY_WIDTH`). It ends before a frame that is another request, is not
    complete, or has a batch that cannot be appended as it is.

    Returns:
        How many frames were taken; `state` has the rest.
    """
    octets, first, last, reply = address(data), address(head), address(tail), address(answer)
    copies, replies = output_address(batches), output_address(answers)
    taken = 0
    size = 0
    answered = 0
    max_timestamp = 0
    max_timestamp_offset = -1
    due = 0
    if (
        not 0 <= position <= limit <= len(data)
        or len(head) < _ID_END
        or len(state) < _STATE_SIZE
        or state[_INDEX_INTERVAL_BYTES] < 0
        or (len(answer) > 0 and not _ID_END <= state[_OFFSET_AT] <= len(answer) - 8)
    ):
        return 0
    next_offset = state[_NEXT_OFFSET]
    bytes_before_entry = state[_BYTES_BEFORE_ENTRY]
    while taken < count and taken < len(starts) and limit - position >= _SIZE_BYTES + len(head):
        frame = position + _SIZE_BYTES
        frame_size = read_integer(octets, position, 4)
        if (
            frame_size < len(head) + len(tail)
            or frame_size > limit - frame
            or frame_size > state[_FRAME_BYTES_MAX]
            or (bytes_before_entry < 0 and len(entries) - due < _ENTRY_WIDTH)
            or not is_equal(octets, frame, first, 0, _ID_AT)
            or not is_equal(octets, frame + _ID_END, first, _ID_END, len(head) - _ID_END)
        ):
            break
        end = frame + frame_size
        tail_at = end - len(tail)
        start, records_end = find_records(octets, frame + len(head), tail_at, state[_IS_FLEXIBLE])
        if (
            records_end != tail_at
            or records_end - start > len(batches) - size
            or len(answer) > len(answers) - answered
            or not is_equal(octets, tail_at, last, 0, len(tail))
            or not is_usual_batch(octets, start, records_end, state)
        ):
            break
        # All rules have passed, so from here on the frame counts.
        copy_bytes(octets, start, copies, size, records_end - start)
        write_integer(copies, size, 8, next_offset)
        write_integer(copies, size + LEADER_EPOCH_AT, 4, state[_LEADER_EPOCH])
        if len(answer) > 0:
            copy_bytes(reply, 0, replies, answered, len(answer))
            copy_bytes(octets, frame + _ID_AT, replies, answered + _ID_AT, _ID_END - _ID_AT)
            write_integer(replies, answered + state[_OFFSET_AT], 8, next_offset)
            answered += len(answer)
        records = read_integer(octets, start + RECORD_COUNT_AT, 4)
        timestamp = read_integer(octets, start + MAX_TIMESTAMP_AT, 8)
        next_offset += records
        if taken == 0 or timestamp > max_timestamp:
            max_timestamp = timestamp
            max_timestamp_offset = next_offset - 1
        if state[_PRODUCER_ID] >= 0:
            state[_SEQUENCE] = (state[_SEQUENCE] + records) & _SEQUENCE_MAX
        if bytes_before_entry < 0:
            entries[due] = size
            entries[due + 1] = next_offset - 1
            entries[due + 2] = max_timestamp
            entries[due + 3] = max_timestamp_offset
            due += _ENTRY_WIDTH
            bytes_before_entry = state[_INDEX_INTERVAL_BYTES]
        bytes_before_entry -= records_end - start
        starts[taken] = size
        size += records_end - start
        position = end
        taken += 1
    state[_BYTES_BEFORE_ENTRY] = bytes_before_entry
    state[_NEXT_OFFSET] = next_offset
    state[_POSITION] = position
    state[_BATCHES_SIZE] = size
    state[_ANSWERS_SIZE] = answered
    state[_MAX_TIMESTAMP] = max_timestamp
    state[_MAX_TIMESTAMP_OFFSET] = max_timestamp_offset
    state[_ENTRY_COUNT] = due // _ENTRY_WIDTH
    return taken
