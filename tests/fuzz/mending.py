"""Checksums put right after a mutation, so that what they guard is looked into.

Without this nearly every mutated batch ends at its CRC. A share of the inputs is mended, which the
input itself decides, so that a failure can be repeated from its bytes.
"""

import struct
import zlib

import crc32c

from tailrace.records import layout


def is_mended(data: bytes, *, of: int = 4) -> bool:
    """Whether an input is one of those whose checksums are put right: all but one of `of`."""
    return zlib.crc32(data) % of != 0


def with_length_and_crc(data: bytes) -> bytearray:
    """One v2 batch whose length and CRC-32C fit what it is now."""
    mended = bytearray(data)
    if len(mended) < layout.HEADER_SIZE:
        return mended
    layout.LENGTH.pack_into(mended, layout.LENGTH_POSITION, len(mended) - layout.LOG_OVERHEAD)
    crc = crc32c.crc32c(memoryview(mended)[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(mended, layout.CRC_POSITION, crc)
    return mended


def with_crcs(data: bytes) -> bytearray:
    """Batches and entries of all formats, one behind the other, each with a CRC that fits."""
    mended = bytearray(data)
    position = 0
    while len(mended) - position >= layout.FRAME_SIZE:
        _, length, _, magic = layout.FRAME.unpack_from(mended, position)
        end = position + length + layout.LOG_OVERHEAD
        if length < layout.LENGTH_MIN or end > len(mended):
            break
        with memoryview(mended) as view:
            if magic == layout.MAGIC and end - position >= layout.HEADER_SIZE:
                crc = crc32c.crc32c(view[position + layout.ATTRIBUTES_POSITION : end])
                layout.CRC.pack_into(mended, position + layout.CRC_POSITION, crc)
            elif magic < layout.MAGIC:
                crc = zlib.crc32(view[position + layout.MAGIC_POSITION : end])
                struct.pack_into(">I", mended, position + layout.LOG_OVERHEAD, crc)
        position = end
    return mended
