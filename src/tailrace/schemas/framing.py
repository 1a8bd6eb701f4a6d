"""Confluent's wire format: which schema a key or value was written with.

    byte 0       magic, 0
    bytes 1-4    id of the schema in the registry, big-endian
    Protobuf     message indexes: how many, then each, as zigzag varints; one 0 stands for [0]
    rest         the value

The indexes lead to the message in its file: [1, 0] is the first message within the second one.
"""

import struct
from typing import Final

from tailrace.schemas.errors import UndecodableError

HEADER: Final = struct.Struct(">bI")
HEADER_SIZE: Final = HEADER.size

# A count is read before its indexes: without a limit five bytes could claim 2^34 of them.
INDEXES_MAX: Final = 64
"""Most levels of messages within messages; compilers stop at 32."""
_VARINT_BYTES_MAX: Final = 5


def write_header(schema_id: int) -> bytes:
    """The five bytes in front of a value of this schema."""
    return HEADER.pack(0, schema_id)


def read_header(data: bytes) -> int:
    """The id of the schema of a value.

    Raises:
        UndecodableError: the bytes do not begin with magic 0 and an id.
    """
    if len(data) < HEADER_SIZE:
        raise UndecodableError(
            f"{len(data)} bytes have no room for the magic byte and the schema id of Confluent's "
            "wire format"
        )
    if data[0]:
        raise UndecodableError(
            f"the first byte is {data[0]}, and in Confluent's wire format it is 0; a value without "
            "schema id needs a plain format and a schema file"
        )
    schema_id: int = HEADER.unpack_from(data)[1]
    return schema_id


# Confluent's Protobuf serializer for Python once wrote these without zigzag; newer ones refuse its
# setting `use.deprecated.format`. The two forms agree on [0], the usual case; nothing in the bytes
# tells them apart.
def write_indexes(indexes: tuple[int, ...]) -> bytes:
    """The message indexes of a Protobuf value."""
    # The first message of a file is by far the most frequent, so the format has one byte for it.
    if indexes == (0,):
        return b"\0"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def read_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Message indexes, and the position after them.

    Raises:
        UndecodableError: there are none, or too many, or one is negative.
    """
    count, position = _read_varint(data, position)
    if not count:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise UndecodableError(
            f"there are {count} message indexes; 1 to {INDEXES_MAX} are possible"
        )
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        if index < 0:
            raise UndecodableError(f"a message index is {index}")
        indexes.append(index)
    return tuple(indexes), position


def _varint(number: int) -> bytes:
    left = number << 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    found = 0
    for place, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position + place + 1
    raise UndecodableError("the message indexes end in the middle of a number")
