"""Wire primitives that need more than `struct`: varints, tag sections and uuids.

    unsigned varint   7 bits a byte, low bits first, the high bit set on all but the last: 300 is
                      ac 02
    tag section       varint count, then count times: varint tag, varint size, size bytes
    uuid              16 bytes, all zero for "none"

Strings, arrays and structs are decoded inline (`decoders`).

Invariant: a read never passes the end of its view, and skipping an unknown tagged field allocates
no memory.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from tailrace.protocol.errors import MalformedMessageError

_VARINT_BYTES_MAX = 5
"""Lengths, counts and tags are 32 bit numbers, which end in the fifth byte."""

MessageDecoder = Callable[[memoryview, int, int], tuple[Any, int]]
"""View, position and how many parts the message may have; gives the message and its end."""

UNLIMITED_PARTS = 2**63
"""More elements than any bytes can hold."""

TagDecoder = Callable[[memoryview, int], tuple[Any, int]]
"""Reads the value of one tagged field: value and the position after it."""


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, and the position after it.

    Raises:
        MalformedMessageError: the number has more than five bytes.
        IndexError: the view ends inside the number.
    """
    value = 0
    # Bounded, since a peer may send bytes above 127 without an end.
    for index in range(_VARINT_BYTES_MAX):
        byte = view[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise MalformedMessageError(
        f"a varint has more than {_VARINT_BYTES_MAX} bytes", position=position
    )


def write_uvarint(out: bytearray, value: int) -> None:
    """Append `value`, at least 0, as an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


TAGS_MAX = 32
"""Most tagged fields of one struct. No struct of Kafka 4 has more than five, and skipping a hundred
megabytes of unknown ones would take a minute."""


def read_tagged(
    view: memoryview, position: int, decoders: Mapping[int, TagDecoder]
) -> tuple[dict[int, Any], int]:
    """Values of the known tagged fields of the section at `position`, and the position after it.

    Unknown tags are skipped (KIP-482). If a tag occurs twice, the last one counts.

    Raises:
        MalformedMessageError: a field is longer than what remains, or than its own size; or there
            are more than `TAGS_MAX`.
        IndexError: the view ends inside the section.
    """
    values: dict[int, Any] = {}
    count, position = read_uvarint(view, position)
    if count > TAGS_MAX:
        raise MalformedMessageError(
            f"a section claims {count} tagged fields, at most {TAGS_MAX} are allowed",
            position=position,
        )
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        limit = position + size
        # Checked before it is read: a slice beyond the end would be short, and no error.
        if limit > len(view):
            raise MalformedMessageError(
                f"tagged field {tag} claims {size} bytes, {len(view) - position} remain",
                position=position,
            )
        decode = decoders.get(tag)
        if decode is not None:
            values[tag], end = decode(view, position)
            if end != limit:
                raise MalformedMessageError(
                    f"tagged field {tag} claims {size} bytes and has {end - position}",
                    position=position,
                )
        # Also for unknown tags, so that later versions of a struct can be read (KIP-482).
        position = limit
    return values, position


def write_tagged(out: bytearray, tagged: tuple[tuple[int, bytearray], ...]) -> None:
    """Append a tag section with these fields, which are in ascending order of tags."""
    write_uvarint(out, len(tagged))
    for tag, value in tagged:
        size = len(value)
        # A byte each, most often, which is not worth a call.
        if tag | size < 0x80:
            out.append(tag)
            out.append(size)
        else:
            write_uvarint(out, tag)
            write_uvarint(out, size)
        out += value


@lru_cache(maxsize=4096)
def uuid_from(data: bytes) -> UUID:
    """The uuid of 16 bytes; cached, because creating one costs as much as a small message."""
    return UUID(bytes=data)
