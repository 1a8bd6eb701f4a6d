"""CRC-32C inside of kernels, as the processor's own instruction where it is compiled.

Not here: checksums outside of kernels, which the package `crc32c` computes.
"""

from typing import TYPE_CHECKING, Final

from tailrace.kernels.kernel import helper

if TYPE_CHECKING:
    from tailrace.kernels.records import Ints

_POLYNOMIAL: Final = 0x82F63B78
_START: Final = 0xFFFFFFFF

BLOCK: Final = 8
"""Bytes that one instruction takes."""

MACHINES: Final = frozenset({"x86_64", "AMD64"})
"""Processors whose instruction is used, by `platform.machine()`; elsewhere kernels go bit by bit,
which takes twenty times as long as the package."""


def add_byte(data: "Ints", at: int, crc: int) -> int:
    """The register of the checksum after one byte; compiled: one instruction."""
    crc ^= data[at]
    for _ in range(8):
        crc = (crc >> 1) ^ (_POLYNOMIAL & -(crc & 1))
    return crc


def add_block(data: "Ints", at: int, crc: int) -> int:
    """The register of the checksum after `BLOCK` bytes; compiled: one instruction."""
    for each in range(BLOCK):
        crc ^= data[at + each]
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL & -(crc & 1))
    return crc


@helper
def crc32c(data: "Ints", position: int, limit: int) -> int:
    """The CRC-32C of `data[position:limit]`."""
    crc = _START
    while limit - position >= BLOCK:
        crc = add_block(data, position, crc)
        position += BLOCK
    while position < limit:
        crc = add_byte(data, position, crc)
        position += 1
    return crc ^ _START
