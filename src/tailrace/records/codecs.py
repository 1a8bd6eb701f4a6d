"""Compression of a batch's records: gzip, snappy, lz4, zstd, as Kafka frames them.

    gzip    RFC 1952; any number of members when read
    snappy  xerial's framing: 82 'SNAPPY' 00, version 1, compatible 1 (int32 each), then chunks of
            an int32 size and a raw snappy block of at most 32 KiB; raw snappy is read as well
    lz4     LZ4 frame: 04 22 4d 18, 60 (v1, independent blocks), 40 (64 KiB), 82 (checksum of those
            two), then blocks of a uint32le size, top bit set if stored raw; a size of 0 ends it
    zstd    RFC 8878

The lz4 frame is put together here because the one-shot compressor of cramjam links its blocks,
which Kafka's Java reader refuses, and its streaming one holds the interpreter lock. Only
the streaming one supports levels, and it adds a checksum to each block (flags 70); a topic with
another level than the default holds the lock for longer.

A batch that decompresses to more than the limit is sound, because Kafka has no such limit. It is
not reported as damage, but as a `DecompressedTooLargeError`, which names the setting.

Invariant: decompression never allocates more than `limit` bytes of output, nor more than what the
compressed bytes at hand could become by the format's own rules. A size that a header merely claims
is believed only within those bounds.
"""

import os
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812 (the class has the name of a function)
from typing import Final, NamedTuple, TypeAlias

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, RecordTooLargeError, UnsupportedCodecError
from tailrace.model import Codec
from tailrace.records import packages
from tailrace.runtime.memory import LargeMemory
from tailrace.values import dataclass

Octets: TypeAlias = bytes | bytearray | memoryview

OUTPUT_SIZE_MAX: Final = 128 * 1024 * 1024
"""Most bytes that one batch may decompress to, unless it is set otherwise.

Kafka limits the compressed size only, at 1 MiB by default. Text rarely compresses better than 20
to 1, and a batch is decompressed in one piece; 128 times the default leaves room for large
batches, and eight damaged ones at the same time still fit in the memory of a small machine.
"""

SETTING: Final = "tailrace.decompressed.batch.bytes.max"
"""The broker's setting of that limit."""

ENVIRONMENT: Final = "TAILRACE_DECOMPRESSED_BATCH_BYTES_MAX"
"""The variable that sets it for a process that is no broker: a command, a reader, a Spark task."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_SIZE: Final = 32 * 1024

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
LZ4_BLOCK_SIZE: Final = 64 * 1024
LZ4_STORED_FLAG: Final = 1 << 31
LZ4_END: Final = b"\x00\x00\x00\x00"

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK_SIZE_MAX: Final = 128 * 1024
"""RFC 8878: no block regenerates more, whatever the window."""

_GZIP_OUTPUT_BYTES: Final = 256 * 1024

_GZIP_EXPANSION_MAX: Final = 1032
"""By deflate's own rules: two bits for a match of 258 bytes."""

_GZIP_PIECE_BYTES: Final = 64 * 1024
"""Given to a gzip member at first, since what is left behind its end comes back as a copy."""

_LARGE_BYTES_MIN: Final = 1024 * 1024

_INT32: Final = Struct(">i")
_UINT32_LE: Final = Struct("<I")

_SNAPPY_EXPANSION_MAX: Final = 32
"""A copy of 64 bytes takes at least 3, so 22 would do."""

_LZ4_EXPANSION_MAX: Final = 255
"""Each byte of a match length stands for at most 255 bytes."""


class CorruptCompressionError(CorruptionError):
    """A payload is not valid in the format of its codec."""


class DecompressedTooLargeError(RecordTooLargeError):
    """A payload decompresses to more bytes than the limit; up to the limit it was sound.

    A producer gets MESSAGE_TOO_LARGE. On that error Java's client and ours split the batch and send
    the halves, each of which decompresses to about half the size.
    """

    def __init__(self, codec: Codec, *, claimed: int | None, limit: int) -> None:
        super().__init__(limit + 1 if claimed is None else claimed, limit=limit, setting=SETTING)
        self.codec = codec

    def __str__(self) -> str:
        return (
            f"the batch's {self.codec.label} payload decompresses to {self.size} bytes or "
            f"more, and {self.setting} allows {self.limit}; raise that setting of the broker, or "
            f"{ENVIRONMENT} for commands and readers"
        )


class Levels(NamedTuple):
    """The levels of a codec: those from `low` to `high`, and its default."""

    default: int
    low: int
    high: int

    def __contains__(self, level: object) -> bool:
        return level == self.default or (isinstance(level, int) and self.low <= level <= self.high)

    def __str__(self) -> str:
        is_apart = not self.low <= self.default <= self.high
        return f"{self.low} to {self.high}" + f", or {self.default}" * is_apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The functions of a codec that turn records into a payload and back."""

    compress: Callable[[Octets, int], Octets]
    """From the records and a level, which codecs without levels ignore."""
    decompress: Callable[[memoryview, int], memoryview]
    """From the payload and the most bytes that it may give."""
    levels: Levels | None = None


_LZ4_LEVELS: Final = Levels(default=9, low=1, high=17)
"""Kafka's 9 is the name of the fast compressor, not a level of the slow one."""


class _Limit:
    """Most bytes that a batch may decompress to in this process."""

    def __init__(self) -> None:
        text = os.environ.get(ENVIRONMENT, "")
        self.output_size_max = int(text) if text.isdecimal() else OUTPUT_SIZE_MAX


_limit = _Limit()


def limit_output(output_size_max: int) -> None:
    """Set how much a batch may decompress to in this process, in bytes."""
    assert 0 < output_size_max <= INT32_MAX
    _limit.output_size_max = output_size_max


_CODECS: Final = tuple(Codec)
"""By number: looking one up costs a tenth of calling the enum."""


def codec_of(number: int) -> Codec:
    """The codec with this number in a batch's attributes.

    Raises:
        UnsupportedCodecError: Kafka has not given the number to any codec.
    """
    if number >= len(_CODECS):
        raise UnsupportedCodecError(
            f"compression codec {number} is unknown; 0 to {len(_CODECS) - 1} are in use"
        )
    return _CODECS[number]


def compress(codec: Codec, data: Octets, level: int | None = None) -> Octets:
    """`data` in the codec's framing; `data` itself for `Codec.NONE`.

    `level` is one of the codec's `Levels`; None is its default.
    """
    framing = FRAMINGS[codec]
    if level is None:
        level = framing.levels.default if framing.levels else 0
    return framing.compress(data, level)


def decompress(codec: Codec, data: memoryview, limit: int | None = None) -> memoryview:
    """Decompress `data`; returns `data` itself for `Codec.NONE`.

    `limit` is that of the process where it is None (`limit_output`).

    Raises:
        CorruptCompressionError: `data` is damaged or cut short.
        DecompressedTooLargeError: it gives more than `limit` bytes.
    """
    if limit is None:
        limit = _limit.output_size_max
    try:
        return FRAMINGS[codec].decompress(data, limit)
    except (packages.cramjam.DecompressionError, zlib.error, StructError) as error:
        # Struct's error is a field that the end of the data cuts.
        raise CorruptCompressionError(f"the {codec.label} payload: {error}") from error


def with_lz4_checksum(data: memoryview) -> memoryview:
    """The lz4 frame `data` with the right checksum in its header, whatever it has there.

    Too short or foreign bytes come back as they are, for `decompress` to refuse.
    """
    if len(data) < len(LZ4_HEADER) or bytes(data[:4]) != LZ4_MAGIC:
        return data
    position = _lz4_checksum_position(data[4])
    if position >= len(data):
        return data
    mended = bytearray(data)
    mended[position] = _xxhash32(bytes(data[4:position])) >> 8 & 0xFF
    return memoryview(mended)


def _lz4_checksum_position(flags: int) -> int:
    """Content size takes 8 bytes, a dictionary id 4; the checksum is the header's last byte."""
    return 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)


def _xxhash32(data: bytes) -> int:
    """XXH32 with seed 0, of fewer than 16 bytes: its loop for long inputs is left out."""
    assert len(data) < 16
    mask = 2**32 - 1
    number = 0x165667B1 + len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        number += int.from_bytes(data[start : start + 4], "little") * 0xC2B2AE3D
        number = (number << 17 | (number & mask) >> 15) * 0x27D4EB2F & mask
    for octet in data[whole:]:
        number = number + octet * 0x165667B1 & mask
        number = (number << 11 | number >> 21) * 0x9E3779B1 & mask
    number = (number ^ number >> 15) * 0x85EBCA77 & mask
    number = (number ^ number >> 13) * 0xC2B2AE3D & mask
    return number ^ number >> 16


def _compress_gzip(data: Octets, level: int) -> bytes:
    return zlib.compress(data, level, wbits=31)


def _compress_zstd(data: Octets, level: int) -> memoryview:
    return memoryview(packages.cramjam.zstd.compress(data, level))


def _compress_snappy(records: Octets, _level: int) -> bytes:
    data = memoryview(records)
    parts: list[Octets] = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = memoryview(
            packages.cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE])
        )
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(records: Octets, level: int) -> Octets:
    data = memoryview(records)
    if level != _LZ4_LEVELS.default:
        return _compress_lz4_at(data, level)
    parts: list[Octets] = [LZ4_HEADER]
    for start in range(0, len(data), LZ4_BLOCK_SIZE):
        source = data[start : start + LZ4_BLOCK_SIZE]
        block = memoryview(packages.cramjam.lz4.compress_block(source, store_size=False))
        if len(block) < len(source):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(source) | LZ4_STORED_FLAG), source)
    parts.append(LZ4_END)
    return b"".join(parts)


def _compress_lz4_at(data: memoryview, level: int) -> memoryview:
    compressor = packages.cramjam.lz4.Compressor(
        level=level, content_checksum=False, block_linked=False
    )
    for start in range(0, len(data), LZ4_BLOCK_SIZE):
        # It takes nothing but bytes.
        compressor.compress(bytes(data[start : start + LZ4_BLOCK_SIZE]))
    return memoryview(compressor.finish())


def _decompress_gzip(data: memoryview, limit: int) -> memoryview:
    # Short steps, and no copy of all at the end: the interpreter runs no other thread meanwhile.
    output, filled = _buffer(min(limit, _GZIP_PIECE_BYTES)), 0
    position = 0
    while True:
        member = zlib.decompressobj(31)
        size = _GZIP_PIECE_BYTES
        while not member.eof:
            piece: Octets = data[position : position + size]
            if not piece:
                raise CorruptCompressionError("the gzip payload ends within a member")
            position += len(piece)
            has_more = True
            while has_more and not member.eof:
                part = member.decompress(piece, _GZIP_OUTPUT_BYTES)
                if filled + len(part) > limit:
                    raise DecompressedTooLargeError(Codec.GZIP, claimed=None, limit=limit)
                if filled + len(part) > len(output):
                    # The largest size that the payload can have. A large buffer is mapped memory:
                    # pages that are never written to cost nothing.
                    size_max = filled + len(part) + _GZIP_EXPANSION_MAX * len(data)
                    larger = _buffer(min(limit, size_max))
                    larger[:filled] = output[:filled]
                    output = larger
                output[filled : filled + len(part)] = part
                filled += len(part)
                piece = member.unconsumed_tail
                has_more = len(part) == _GZIP_OUTPUT_BYTES or bool(piece)
            position -= len(member.unused_data)
            # A long member has few pieces, and many short ones have short copies.
            size = min(2 * size, _GZIP_OUTPUT_BYTES)
        if position == len(data):
            return output[:filled]


def _decompress_snappy(data: memoryview, limit: int) -> memoryview:
    # Twice over the blocks, and numbers between: a list of views takes fifty times the payload.
    sizes = array("q", map(_snappy_size, _snappy_blocks(data)))
    total = sum(sizes)
    if total > limit:
        raise DecompressedTooLargeError(Codec.SNAPPY, claimed=total, limit=limit)
    output = _buffer(total)
    position = 0
    for block, size in zip(_snappy_blocks(data), sizes, strict=True):
        if size:
            packages.cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            position += size
    return output


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    # Xerial's header may come again in the middle, where two streams have been joined.
    return _xerial_blocks(data) if bytes(data[:8]) == XERIAL_MAGIC else iter((data,))


def _snappy_size(block: memoryview) -> int:
    if len(block) == 1 and block[0] == 0:
        return 0
    size: int = packages.cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_EXPANSION_MAX * len(block):
        raise CorruptCompressionError(
            f"a snappy block of {len(block)} bytes claims to hold {size} bytes"
        )
    if size == 0:
        raise CorruptCompressionError(f"an empty snappy block has {len(block)} bytes, not 1")
    return size


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(data):
        if bytes(data[position : position + 8]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise CorruptCompressionError("the snappy payload ends within a header")
            continue
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise CorruptCompressionError(
                f"a snappy block claims {size} bytes, {len(data) - position} remain"
            )
        yield data[position : position + size]
        position += size


def _decompress_lz4(data: memoryview, limit: int) -> memoryview:
    size_max = _lz4_output_size_max(data)
    return _decompress_into(Codec.LZ4, packages.cramjam.lz4, data, size_max=size_max, limit=limit)


def _decompress_zstd(data: memoryview, limit: int) -> memoryview:
    size_max = _zstd_output_size_max(data)
    return _decompress_into(Codec.ZSTD, packages.cramjam.zstd, data, size_max=size_max, limit=limit)


def _decompress_into(
    codec: Codec, library: object, data: memoryview, *, size_max: int, limit: int
) -> memoryview:
    """Decompresses to a buffer of at most `limit` bytes that is never grown."""
    output = _buffer(min(size_max, limit))
    try:
        size = library.decompress_into(data, output)  # type: ignore[attr-defined]
    except packages.cramjam.DecompressionError as error:
        if size_max > limit and "whole buffer" in str(error):
            raise DecompressedTooLargeError(codec, claimed=None, limit=limit) from error
        raise
    return output[:size]


def _buffer(size: int) -> memoryview:
    """Zeroed memory; large memory is mapped, and the system fills it with zeros when it is used.

    Writing zeros to 128 MiB takes 0.2 seconds, in which the interpreter runs no other thread.
    """
    return memoryview(LargeMemory(size) if size >= _LARGE_BYTES_MIN else bytearray(size))


def _lz4_output_size_max(data: memoryview) -> int:
    """Most bytes that the frame can give, by the sizes of its blocks; also checks its structure."""
    if bytes(data[:4]) != LZ4_MAGIC or len(data) < len(LZ4_HEADER):
        raise CorruptCompressionError("the lz4 payload does not start with a frame header")
    flags, descriptor = data[4], data[5]
    has_block_checksum = bool(flags & 0x10)
    position = _lz4_checksum_position(flags) + 1
    block_size_max = 1 << (8 + 2 * (descriptor >> 4 & 7))
    total = 0
    while True:
        (word,) = _UINT32_LE.unpack_from(data, position)
        position += 4
        if word == 0:
            break
        size = word & ~LZ4_STORED_FLAG
        if size > len(data) - position:
            raise CorruptCompressionError(
                f"an lz4 block claims {size} bytes, {len(data) - position} remain"
            )
        is_stored = bool(word & LZ4_STORED_FLAG)
        total += size if is_stored else min(block_size_max, _LZ4_EXPANSION_MAX * size)
        position += size + (4 if has_block_checksum else 0)
    position += 4 if flags & 0x04 else 0
    if position != len(data):
        raise CorruptCompressionError(
            f"the lz4 frame ends at byte {position} of a payload of {len(data)} bytes"
        )
    return total


def _zstd_output_size_max(data: memoryview) -> int:
    """Most bytes that the frames can give, by their claims and the sizes of their blocks."""
    total = 0
    position = 0
    while position < len(data):
        (magic,) = _UINT32_LE.unpack_from(data, position)
        if magic & 0xFFFFFFF0 == 0x184D2A50:
            # A skippable frame: magic, size, bytes of somebody else.
            position += 8 + _UINT32_LE.unpack_from(data, position + 4)[0]
            continue
        if bytes(data[position : position + 4]) != ZSTD_MAGIC or position + 5 > len(data):
            raise CorruptCompressionError(f"no zstd frame starts at byte {position}")
        descriptor = data[position + 4]
        is_single_segment = bool(descriptor & 0x20)
        size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
        position += 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
        claimed = int.from_bytes(data[position : position + size_bytes], "little")
        claimed += 256 if size_bytes == 2 else 0
        position, possible = _zstd_blocks(data, position + size_bytes)
        position += 4 if descriptor & 0x04 else 0
        total += min(claimed, possible) if size_bytes else possible
    if position == 0 or position > len(data):
        raise CorruptCompressionError("the zstd payload ends within a frame")
    return total


def _zstd_blocks(data: memoryview, position: int) -> tuple[int, int]:
    """End of the blocks from `position` on, and the largest size of their content."""
    total = 0
    while True:
        if position + 3 > len(data):
            raise CorruptCompressionError("the zstd payload ends within a frame")
        word = int.from_bytes(data[position : position + 3], "little")
        kind = word >> 1 & 3
        size = word >> 3
        stored = 1 if kind == 1 else size
        total += ZSTD_BLOCK_SIZE_MAX if kind == 2 else min(size, ZSTD_BLOCK_SIZE_MAX)
        position += 3 + stored
        if position > len(data):
            raise CorruptCompressionError("the zstd payload ends within a block")
        if word & 1:
            return position, total


FRAMINGS: Final[Mapping[Codec, Framing]] = {
    Codec.NONE: Framing(
        compress=lambda data, _level: data,
        decompress=lambda data, _limit: data,
    ),
    Codec.GZIP: Framing(
        compress=_compress_gzip,
        decompress=_decompress_gzip,
        levels=Levels(default=-1, low=1, high=9),
    ),
    Codec.SNAPPY: Framing(compress=_compress_snappy, decompress=_decompress_snappy),
    Codec.LZ4: Framing(
        compress=_compress_lz4,
        decompress=_decompress_lz4,
        levels=_LZ4_LEVELS,
    ),
    Codec.ZSTD: Framing(
        compress=_compress_zstd,
        decompress=_decompress_zstd,
        levels=Levels(default=3, low=-131072, high=22),
    ),
}
"""The functions and levels of each codec. The settings of topics and of the producer follow from
them; the default levels are Kafka's (KIP-780)."""

LEVELS: Final = {codec: each.levels for codec, each in FRAMINGS.items() if each.levels}
"""The codecs that have levels."""
