# cython: boundscheck=False
"""Bytes in memory, as the other modules of this room read and write them.

Compiled, a buffer is the address of its first byte, and nothing here looks at where it ends: the
callers do, beside their loops. Uncompiled, it is the memoryview that `address` was given.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import cython

Ints: TypeAlias = Any
"""A buffer of integers that is read."""

Outputs: TypeAlias = Any
"""A buffer of integers that is written."""

if TYPE_CHECKING:
    memcpy: Any
    memcmp: Any
    PyBytes_FromStringAndSize: Any
    PyUnicode_AsUTF8AndSize: Any
    Octets: Any
    Output: Any


def address(data: "Ints") -> "Ints":
    """The address of the bytes of a buffer; they stay there while the caller has the buffer."""
    # An empty buffer has an address too, as boundscheck is off; nobody reads there.
    return cython.address(data[0]) if cython.compiled else data


def output_address(data: "Outputs") -> "Outputs":
    """The address of the bytes of a buffer that is written."""
    return cython.address(data[0]) if cython.compiled else data


def octets_of(data: bytes | None) -> bytes | None:
    """The address of the bytes of a bytes object, which is not None."""
    return data


def new_octets(size: int) -> bytes:
    """A bytes object that its maker fills through `new_output`, before anybody else has it."""
    if cython.compiled:
        # Not zeroed. CPython allows writes into a bytes object that was made in this way, as long
        # as nobody else has it.
        return PyBytes_FromStringAndSize(cython.NULL, size)  # noqa: F821
    return bytearray(size)  # type: ignore[return-value]


def new_output(data: bytes) -> "Outputs":
    """The address of the bytes that `new_octets` has made."""
    if cython.compiled:
        return cython.cast(Output, octets_of(data))  # noqa: F821
    return data


def utf8_size(text: str) -> int:
    """Bytes of the text as UTF-8; raises UnicodeEncodeError if it has none."""
    if cython.compiled:
        size = 0
        # Python keeps the encoding with the text, so the second call, for the address, costs
        # nothing.
        PyUnicode_AsUTF8AndSize(text, cython.address(size))  # noqa: F821
        return size
    return len(text.encode())


def utf8_of(text: str) -> "Ints":
    """The address of the text as UTF-8; it stays there while the caller has the text."""
    if cython.compiled:
        return cython.cast(Octets, PyUnicode_AsUTF8AndSize(text, cython.NULL))  # noqa: F821
    return text.encode()


def copy_bytes(source: "Ints", position: int, target: "Outputs", start: int, size: int) -> None:
    """Copies `size` bytes between two buffers."""
    if cython.compiled:
        # The two never overlap: inputs are received bytes or objects, outputs are the caller's own.
        memcpy(target + start, source + position, size)  # noqa: F821
    else:
        target[start : start + size] = source[position : position + size]


def is_equal(data: "Ints", position: int, other: "Ints", start: int, size: int) -> bool:
    """Whether two buffers have the same `size` bytes at these positions."""
    if cython.compiled:
        return memcmp(data + position, other + start, size) == 0  # noqa: F821
    return data[position : position + size] == other[start : start + size]


def read_integer(data: "Ints", position: int, size: int) -> int:
    """The big-endian two's complement integer of `size` bytes at `position`."""
    # The first byte has the sign; the rest is added, so the sum never leaves int64.
    value = data[position]
    if value >= 128:
        value -= 256
    for index in range(1, size):
        value = value * 256 + data[position + index]
    return value


def write_integer(data: "Outputs", position: int, size: int, value: int) -> None:
    """Writes the lowest `size` bytes of `value` at `position`, big endian."""
    for index in range(size):
        # A shift of a negative number keeps its sign in Python and, by the choice of the compiler,
        # in C (GCC, Clang and MSVC do it), so both write two's complement.
        data[position + size - 1 - index] = (value >> (8 * index)) & 255


def write_varint(output: "Outputs", position: int, number: int) -> int:
    """Writes a zigzag varint of up to ten bytes; returns the position after it.

    The sign is removed first, because a doubled 64-bit number would not fit into int64.
    """
    sign = 0
    if number < 0:
        sign = 1
        number = -(number + 1)
    # Six bits of the number fit in the first byte beside the sign, seven in each one after it.
    byte = ((number & 63) << 1) | sign
    number >>= 6
    while number > 0:
        output[position] = byte | 128
        position += 1
        byte = number & 127
        number >>= 7
    output[position] = byte
    return position + 1


def varint_size(number: int) -> int:
    """Bytes that `write_varint` takes."""
    if number < 0:
        # As in `write_varint`: -(n + 1) exists for -2^63, and -n does not.
        number = -(number + 1)
    number >>= 6
    size = 1
    while number > 0:
        number >>= 7
        size += 1
    return size
