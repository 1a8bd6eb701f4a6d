"""Kernel of runs: the batches that follow each other in a log and need no look of their own.

`data` may be any bytes. A batch's header is read only where all of it is there, its records only up
to the end of `data`, and each step goes forward by a header at least.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from tailrace.kernels.batch_header import (
        ATTRIBUTES_AT,
        CRC_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LEADER_EPOCH_AT,
        LENGTH_AT,
        LOG_OVERHEAD,
        MAGIC_AT,
        MAX_TIMESTAMP_AT,
        PRODUCER_ID_AT,
        RECORD_COUNT_AT,
    )
    from tailrace.kernels.checksums import crc32c
    from tailrace.kernels.memory import address, read_integer

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints, Outputs

_MAGIC: Final = 2
_CODEC: Final = 0x07
"""The bits of the attributes that name the codec."""
_RECORD_SIZE_MIN: Final = 7
_INT64_MAX: Final = (1 << 63) - 1
_UINT32_MAX: Final = (1 << 32) - 1


class RunFact(IntEnum):
    """Places in the `facts` of `scan_run`."""

    BATCHES = 0
    RECORDS = 1
    LAST_AT = 2
    """Bytes of the run before its last batch."""
    DUE_OFFSET = 3
    """The offset after the last batch but one; of a run of one batch, its base offset."""
    LAST_OFFSET = 4
    """The offset of the last record of the last batch."""
    IS_DENSE = 5
    """1 if no offset is missing between the batches, and all have the same leader epoch."""
    HAS_PRODUCERS = 6
    """1 if a batch has a producer id."""
    IS_DISORDERED = 7
    """1 if the next batch is as sound and begins before the end of the last one."""
    MAX_TIMESTAMP = 8
    """The largest timestamp of all batches, or -1."""
    MAX_TIMESTAMP_OFFSET = 9
    """The offset of the last record of the first batch that has it; -1 if none has a timestamp."""


_RUN_FACTS: Final = len(RunFact)


def scan_run(data: "Ints", position: int, limit: int, single: int, facts: "Outputs") -> int:
    """Finds the run of batches that begins at `position`; `tailrace.records.runs` has the rules.

    All its batches begin before `limit`, and have none of the attributes in `single`. `facts`,
    whose places `RunFact` names, gets its sums.

    Returns:
        Where the run ends; `position` if there is none there.
    """
    octets = address(data)
    with cython.nogil:
        # Compared once here, so that the stores at the end need no check of their own.
        if len(facts) < _RUN_FACTS or position < 0:
            return position
        at = position
        batches, records, last_at, due, next_offset, epoch = 0, 0, 0, 0, 0, 0
        is_dense, has_producers, is_disordered = 1, 0, 0
        max_timestamp, max_timestamp_offset = -1, -1
        # So that each header that the loop reads is whole inside of the buffer.
        limit = min(limit, len(data) - HEADER_SIZE + 1)
        while at < limit:
            base = read_integer(octets, at, 8)
            length = read_integer(octets, at + LENGTH_AT, 4)
            delta = read_integer(octets, at + LAST_OFFSET_DELTA_AT, 4)
            count = read_integer(octets, at + RECORD_COUNT_AT, 4)
            # `length` is an int32, so the sum cannot leave int64, whatever the bytes are.
            end = at + LOG_OVERHEAD + length
            if (
                # Cheap rules first: the CRC reads the whole batch, and `end` must be inside of the
                # buffer before it does.
                octets[at + MAGIC_AT] != _MAGIC
                or octets[at + ATTRIBUTES_AT + 1] & single
                or end - at < HEADER_SIZE
                or end > len(data)
                or delta < 0
                # The offset after the batch must be an int64 too.
                or base > _INT64_MAX - 1 - delta
                or count < 0
                # A count that the bytes can hold, because the caller makes room for that many rows.
                # Compressed records are for callers that decode none.
                or (
                    octets[at + ATTRIBUTES_AT + 1] & _CODEC == 0
                    and count > (end - at - HEADER_SIZE) // _RECORD_SIZE_MIN
                )
                or crc32c(octets, at + ATTRIBUTES_AT, end)
                != read_integer(octets, at + CRC_AT, 4) & _UINT32_MAX
            ):
                break
            # Not a break of this batch's rules, since no checksum covers the base offset. Which of
            # the two neighbours is wrong is for the caller to find.
            if base < next_offset:
                is_disordered = 1
                break
            leader_epoch = read_integer(octets, at + LEADER_EPOCH_AT, 4)
            # A run may begin at any offset and in any epoch.
            if batches == 0:
                next_offset, epoch = base, leader_epoch
            if base != next_offset or leader_epoch != epoch:
                is_dense = 0
            if read_integer(octets, at + PRODUCER_ID_AT, 8) >= 0:
                has_producers = 1
            timestamp = read_integer(octets, at + MAX_TIMESTAMP_AT, 8)
            if timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = timestamp, base + delta
            last_at, due, next_offset = at - position, next_offset, base + delta + 1
            batches += 1
            records += count
            at = end
        facts[0], facts[1], facts[2], facts[3] = batches, records, last_at, due
        facts[4], facts[5], facts[6] = next_offset - 1, is_dense, has_producers
        facts[7], facts[8], facts[9] = is_disordered, max_timestamp, max_timestamp_offset
        return at
