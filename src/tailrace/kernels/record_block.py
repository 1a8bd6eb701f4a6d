"""`RecordBlock`: the records of a batch, encoded one after the other as they come.

    block         room for the batch's header | record | record | ...   | unused
    timestamps    int64 of each record, in ms                           | unused

A record is drawn in `tailrace.kernels.records`. Not here: records that come as columns
(`encoding`).

Each method is one step: no other thread sees a part of it, with Python's global lock because
nothing else of the interpreter runs meanwhile, and without it by a lock of the object.

Invariant: a record is in the block as a whole or not at all, and the block is those bytes that
`records.builder.BatchBuilder` makes of the same records.
"""

from typing import TYPE_CHECKING, Any, Final

import cython

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
        copy_bytes,
        new_octets,
        new_output,
        octets_of,
        utf8_of,
        utf8_size,
        varint_size,
        write_integer,
        write_varint,
    )

if TYPE_CHECKING:
    from array import array

NO_ROOM: Final = -1

TIMESTAMP_SIZE: Final = 8
"""Bytes of memory that each record takes besides its encoded form."""

NOW: Final = -(1 << 62)
"""Stands for the present time in place of a timestamp (ms); all that a producer sends are later.

-1 is that of a record without a time."""

_NO_ROOM: Final = NO_ROOM
_INT64_MAX: Final = (1 << 63) - 1


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
        if start < 0:
            raise ValueError(f"no room from {start} on")
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = 0
        self.position = start
        self.block, self.times = block, times
        self.set_room(block, times, limit)

    def set_room(self, block: bytearray, times: "array[int]", limit: int) -> None:
        """Go on in another block, or in a part of the present one, and in other times.

        What is there is copied.

        Raises:
            ValueError: that is more than there is room for, and nothing has changed.
        """
        # Objects are made before the step, since that may run finalizers, and those may append.
        octets = memoryview(block)
        numbers = memoryview(times)
        with cython.critical_section(self):
            position = self.position
            count = self.record_count
            if not 0 <= position <= limit <= len(octets) or count > len(numbers):
                raise ValueError(f"no room for {limit} bytes in a block of {len(block)}")
            if block is not self.block:
                octets[:position] = self._octets[:position]
            if times is not self.times:
                numbers[:count] = self._times[:count]
            self.block = block
            self.times = times
            self._octets = octets
            self._times = numbers
            self.limit = limit

    def close(self) -> None:
        """Take no more records."""
        with cython.critical_section(self):
            self.limit = 0

    def append(self, value: bytes | None, key: bytes | None, headers: bytes, timestamp: int) -> int:
        """Add a record with a timestamp in ms; `headers` are those of `pack_headers`.

        Returns:
            The index of the record in its batch, or `NO_ROOM`, with nothing changed.
        """
        with cython.critical_section(self):
            return self.put(value, key, headers, timestamp)

    def put(self, value: bytes | None, key: bytes | None, headers: bytes, timestamp: int) -> int:
        """`append` as a part of another step."""
        index = self.record_count
        base = timestamp
        latest = timestamp
        if index > 0:
            base = self.base_timestamp
            latest = max(timestamp, self.max_timestamp)
            # A delta has 64 bits too, and times may lie further apart.
            if (base < 0 and timestamp > _INT64_MAX + base) or (
                base > 0 and timestamp < base - 1 - _INT64_MAX
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
        # The exact size first: a record that has no room leaves no byte.
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
        # The fields last, in one step with the bytes: nobody can see one without the other.
        self._times[index] = timestamp
        self.base_timestamp = base
        self.max_timestamp = latest
        self.position = position
        self.record_count = index + 1
        return index

    def write_header(
        self, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> int:
        """Write the header of a v2 batch, with its checksum, in front of the records.

        The records begin after room for the header. Base offset 0, and no leader epoch.

        Returns:
            The size of the batch in bytes, or `NO_ROOM` without records, with nothing changed.
        """
        with cython.critical_section(self):
            size = self.position
            if self.record_count < 1 or size < HEADER_SIZE:
                return _NO_ROOM
            octets = cython.address(self._octets[0]) if cython.compiled else self._octets
            write_integer(octets, 0, 8, 0)
            write_integer(octets, LENGTH_AT, 4, size - LOG_OVERHEAD)
            write_integer(octets, LEADER_EPOCH_AT, 4, -1)
            octets[MAGIC_AT] = MAGIC
            write_integer(octets, ATTRIBUTES_AT, 2, attributes)
            write_integer(octets, LAST_OFFSET_DELTA_AT, 4, self.record_count - 1)
            write_integer(octets, BASE_TIMESTAMP_AT, 8, self.base_timestamp)
            write_integer(octets, MAX_TIMESTAMP_AT, 8, self.max_timestamp)
            write_integer(octets, PRODUCER_ID_AT, 8, producer_id)
            write_integer(octets, PRODUCER_EPOCH_AT, 2, producer_epoch)
            write_integer(octets, BASE_SEQUENCE_AT, 4, base_sequence)
            write_integer(octets, RECORD_COUNT_AT, 4, self.record_count)
            # After all fields that it covers.
            write_integer(octets, CRC_AT, 4, crc32c(octets, ATTRIBUTES_AT, size))
            return size


def pack_headers(headers: object) -> bytes:
    """The encoded count and headers of a record, empty if there are none.

    These are a list, tuple or dict of names and contents, each a `str` and bytes or None.

    Raises:
        TypeError: they are of other types; subclasses are too.
        UnicodeEncodeError: a name cannot be written as UTF-8.
    """
    if type(headers) is tuple:
        pairs = headers
    elif type(headers) is list:
        pairs = tuple(headers)
    elif type(headers) is dict:
        pairs = tuple(headers.items())
    else:
        raise TypeError("headers are a list, tuple or dict")
    if not pairs:
        return b""
    size = varint_size(len(pairs))
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str:
            raise TypeError("a header is a pair of a str and bytes or None")
        name = pair[0]
        content_size = utf8_size(name)
        size += varint_size(content_size) + content_size
        if type(pair[1]) is bytes:
            content_size = len(pair[1])
            size += varint_size(content_size) + content_size
        elif pair[1] is None:
            size += 1
        else:
            raise TypeError("the content of a header is bytes or None")
    # Measured first and filled then: one allocation, and the bytes are never copied.
    packed = new_octets(size)
    output = new_output(packed)
    position = write_varint(output, 0, len(pairs))
    for pair in pairs:
        name = pair[0]
        content_size = utf8_size(name)
        position = write_varint(output, position, content_size)
        copy_bytes(utf8_of(name), 0, output, position, content_size)
        position += content_size
        if pair[1] is None:
            position = write_varint(output, position, -1)
        else:
            content_size = len(pair[1])
            position = write_varint(output, position, content_size)
            copy_bytes(octets_of(pair[1]), 0, output, position, content_size)
            position += content_size
    return packed if cython.compiled else bytes(packed)
