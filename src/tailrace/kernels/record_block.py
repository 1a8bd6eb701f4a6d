"""`RecordBlock`: the records of a batch, encoded one behind the other as they come.

    block         room for the batch's header | record | record | ...   | unused
    timestamps    int64 of each record, in ms                           | unused

A record is drawn in `tailrace.kernels.records`. Not here: the header, which a batch gets when it is
sent, and records that come as columns (`encoding`).

Invariant: a record is in the block as a whole or not at all, and the block is those bytes that
`records.builder.BatchBuilder` makes of the same records.
"""

from typing import TYPE_CHECKING, Any, Final

import cython

if not cython.compiled:
    from tailrace.kernels.memory import copy_bytes, octets_of, varint_size, write_varint

if TYPE_CHECKING:
    from array import array

NO_ROOM: Final = -1
NOW: Final = -(1 << 62)
"""A timestamp (ms) that stands for the present time; -1 is that of a record without a time."""

TIMESTAMP_SIZE: Final = 8
"""Bytes of memory that each record takes besides its encoded form."""

_NO_ROOM: Final = NO_ROOM
_NOW: Final = NOW
_INT64_MAX: Final = (1 << 63) - 1
_NS_PER_MS: Final = 1_000_000


class RecordBlock:
    """Records, and room for more."""

    if not cython.compiled:
        __slots__ = (
            "_octets", "_times", "base_timestamp", "block", "limit", "max_timestamp", "position",
            "record_count", "times",
        )  # fmt: skip

    if TYPE_CHECKING:
        block: bytearray
        times: array[int]
        position: int
        limit: int
        record_count: int
        base_timestamp: int
        max_timestamp: int
        _octets: Any
        _times: Any

    def __init__(self, block: bytearray, times: "array[int]", start: int, limit: int) -> None:
        """Records are put at `[start:limit]` of the block; `times` has room for their timestamps.

        Raises:
            ValueError: the block is smaller than that.
        """
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = 0
        self.position = start
        self.set_room(block, times, limit)

    def set_room(self, block: bytearray, times: "array[int]", limit: int) -> None:
        """Go on in another block and other times, which begin like the present ones."""
        if not 0 <= self.position <= limit <= len(block) or self.record_count > len(times):
            raise ValueError(f"no room for {limit} bytes in a block of {len(block)}")
        self.block = block
        self.times = times
        self._octets = memoryview(block)
        self._times = memoryview(times)
        self.limit = limit

    def close(self) -> None:
        """Take no more records."""
        self.limit = 0

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes,
        timestamp: int,
        now_ns: int,
    ) -> int:
        """Add a record; `headers` are encoded with their count, or empty.

        A `timestamp` (ms) of `NOW` stands for `now_ns`. Nothing else of the interpreter runs
        meanwhile.

        Returns:
            The index of the record in its batch, or `NO_ROOM`, with nothing changed.
        """
        if timestamp == _NOW:
            timestamp = now_ns // _NS_PER_MS
        index = self.record_count
        base = timestamp
        latest = timestamp
        if index > 0:
            base = self.base_timestamp
            latest = max(timestamp, self.max_timestamp)
            # A delta has 64 bits too, and times may lie further apart.
            if (base < 0 and timestamp > _INT64_MAX + base) or (
                base > 0 and timestamp < base - _INT64_MAX
            ):
                return _NO_ROOM
        delta = timestamp - base
        value_size = -1 if value is None else len(value)
        key_size = -1 if key is None else len(key)
        headers_size = len(headers)
        size = (
            1 + varint_size(delta) + varint_size(index)
            + varint_size(key_size) + max(0, key_size)
            + varint_size(value_size) + max(0, value_size) + max(1, headers_size)
        )  # fmt: skip
        position = self.position
        if varint_size(size) + size > self.limit - position or index >= len(self._times):
            return _NO_ROOM
        octets = cython.address(self._octets[0]) if cython.compiled else self._octets
        position = write_varint(octets, position, size)
        octets[position] = 0
        position = write_varint(octets, position + 1, delta)
        position = write_varint(octets, position, index)
        position = write_varint(octets, position, key_size)
        if key_size > 0:
            copy_bytes(octets_of(key), 0, octets, position, key_size)
            position += key_size
        position = write_varint(octets, position, value_size)
        if value_size > 0:
            copy_bytes(octets_of(value), 0, octets, position, value_size)
            position += value_size
        if headers_size > 0:
            copy_bytes(octets_of(headers), 0, octets, position, headers_size)
            position += headers_size
        else:
            octets[position] = 0
            position += 1
        self._times[index] = timestamp
        self.base_timestamp = base
        self.max_timestamp = latest
        self.position = position
        self.record_count = index + 1
        return index
