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

Where a payload ends, and what may follow its end, is as in Kafka's Java reader, which clients rely
on: bytes after the end of an lz4 frame do not count, nor do bytes after a gzip member that begin no
other member, nor up to 3 bytes after a snappy block. It verifies neither the content checksum nor
the content size of an lz4 frame; the batch has a checksum of its own. Of two things that it refuses
and librdkafka takes, only a leader refuses them, with `check_framing`, since logs may have them.
`docs/formats/record-batch.md` has the table.

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

OPTION: Final = "maxDecompressedBatchBytes"
"""The option of the Spark source that sets it for the query's tasks."""

FLAG: Final = "max-decompressed-batch-bytes"
"""The option of commands that sets it for one run."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_SIZE: Final = 32 * 1024

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
LZ4_BLOCK_SIZE: Final = 64 * 1024
LZ4_STORED_FLAG: Final = 1 << 31
LZ4_END: Final = b"\x00\x00\x00\x00"

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"
"""After a byte from 50 to 5f."""
ZSTD_BLOCK_SIZE_MAX: Final = 128 * 1024
"""RFC 8878: no block regenerates more, whatever the window."""

_GZIP_OUTPUT_BYTES: Final = 256 * 1024

_GZIP_EXPANSION_MAX: Final = 1032
"""By deflate's own rules: two bits for a match of 258 bytes."""

_GZIP_PIECE_BYTES: Final = 64 * 1024
"""Given to a gzip member at first, since what is left after its end comes back as a copy."""

_LARGE_BYTES_MIN: Final = 1024 * 1024

_INT32: Final = Struct(">i")
_UINT32_LE: Final = Struct("<I")

_SNAPPY_EXPANSION_MAX: Final = 32
"""A copy of 64 bytes takes at least 3, so 22 would do."""

_LZ4_EXPANSION_MAX: Final = 255
"""Each byte of a match length stands for at most 255 bytes."""

_LZ4_INDEPENDENT_FLAG: Final = 0x20
_LZ4_BLOCK_CHECKSUM_FLAG: Final = 0x10
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_CONTENT_CHECKSUM_FLAG: Final = 0x04
_LZ4_DICTIONARY_FLAG: Final = 0x01

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
"""With deflate, the only method that there is."""

_GZIP_HEADER_CRC_FLAG: Final = 0x02
_GZIP_EXTRA_FLAG: Final = 0x04
_GZIP_TEXT_FLAGS: Final = (0x08, 0x10)
"""A file name and a comment, each with a zero at its end."""

_GZIP_TRAILER: Final = Struct("<II")
_GZIP_MEMBER_SIZE_MIN: Final = 19
"""Java's reader looks for another member only if this many bytes are left."""

_ZSTD_PIECE_BYTES: Final = ZSTD_BLOCK_SIZE_MAX + 3
"""Java's reader takes the payload in pieces of this size; see `_zstd_frames`."""


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
            f"more, and this process allows {self.limit}; raise {self.setting} of the broker, "
            f"{OPTION} of the Spark source, --{FLAG} of a command, tailrace.limit_decompression() "
            f"of a program, or {ENVIRONMENT} for any of them but the broker"
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
        self.output_size_max = _default_limit()
        self.of_query: int | None = None
        """Takes the place of the other in a Python worker of Spark."""


def _default_limit() -> int:
    text = os.environ.get(ENVIRONMENT, "")
    number = int(text) if text.isdecimal() else OUTPUT_SIZE_MAX
    return min(max(number, 1), INT32_MAX)


_limit = _Limit()


def limit_decompression(bytes_max: int | None = None) -> None:
    """Set how many bytes a batch may decompress to in this process, for all that reads in it.

    None is the default: what the variable `TAILRACE_DECOMPRESSED_BATCH_BYTES_MAX` says, or 128 MiB.
    A larger batch is refused as a `RecordTooLargeError`. Up to this size memory is taken
    for each batch that is decompressed.

    Raises:
        ValueError: the number is below 1 or above 2147483647.
    """
    if bytes_max is None:
        bytes_max = _default_limit()
    if not 1 <= bytes_max <= INT32_MAX:
        raise ValueError(f"bytes_max is {bytes_max}; it has to be from 1 to {INT32_MAX}")
    _limit.output_size_max = bytes_max


def limit_decompression_of_query(bytes_max: int | None) -> None:
    """Set the limit of what this process reads for a query; None for that of the process.

    A Python worker of Spark reads for one query after the other.
    """
    assert bytes_max is None or 1 <= bytes_max <= INT32_MAX
    _limit.of_query = bytes_max


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

    `limit` is that of the process where it is None (`limit_decompression`).

    Raises:
        CorruptCompressionError: `data` is damaged or cut short.
        DecompressedTooLargeError: it gives more than `limit` bytes.
    """
    if limit is None:
        limit = _limit.of_query or _limit.output_size_max
    try:
        return FRAMINGS[codec].decompress(data, limit)
    except (packages.cramjam.DecompressionError, zlib.error, StructError) as error:
        # Struct's error is a field that the end of the data cuts.
        raise CorruptCompressionError(f"the {codec.label} payload: {error}") from error


def check_framing(codec: Codec, data: memoryview) -> None:
    """Checks that Kafka's Java reader supports the features of a payload that `decompress` reads.

    Raises:
        CorruptCompressionError: it is an lz4 frame with linked blocks or a dictionary.
    """
    if codec is not Codec.LZ4 or len(data) < len(LZ4_HEADER):
        return
    if not data[4] & _LZ4_INDEPENDENT_FLAG:
        raise CorruptCompressionError(
            "the lz4 frame has linked blocks, which Kafka's Java clients cannot read; "
            "have the producer write independent blocks"
        )
    if data[4] & _LZ4_DICTIONARY_FLAG:
        raise CorruptCompressionError("the lz4 frame names a dictionary; Kafka has none")


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
    mended[position] = _lz4_header_checksum(bytes(data[4:position]))
    return memoryview(mended)


def _lz4_checksum_position(flags: int) -> int:
    """Content size takes 8 bytes, a dictionary id 4; the checksum is the header's last byte."""
    return (
        6
        + (8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0)
        + (4 if flags & _LZ4_DICTIONARY_FLAG else 0)
    )


def _lz4_header_checksum(descriptor: bytes) -> int:
    """The checksum byte for the bytes between the magic and itself."""
    return _xxhash32(descriptor) >> 8 & 0xFF


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
    position = _gzip_body_or_none(data, 0)
    if position is None:
        raise CorruptCompressionError("the gzip payload does not start with a member's header")
    while True:
        member = zlib.decompressobj(-15)
        crc, start = 0, filled
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
                crc = zlib.crc32(part, crc)
                piece = member.unconsumed_tail
                has_more = len(part) == _GZIP_OUTPUT_BYTES or bool(piece)
            position -= len(member.unused_data)
            # A long member has few pieces, and many short ones have short copies.
            size = min(2 * size, _GZIP_OUTPUT_BYTES)
        if _GZIP_TRAILER.unpack_from(data, position) != (crc, filled - start & 0xFFFFFFFF):
            raise CorruptCompressionError("a gzip member has another checksum or size")
        position += _GZIP_TRAILER.size
        following = None
        if len(data) - position >= _GZIP_MEMBER_SIZE_MIN:
            following = _gzip_body_or_none(data, position)
        if following is None:
            return output[:filled]
        position = following


def _gzip_body_or_none(data: memoryview, start: int) -> int | None:
    """The position of the compressed bytes of the member at `start`; None if there is no member."""
    if bytes(data[start : start + 3]) != _GZIP_MAGIC or start + 10 > len(data):
        return None
    # Java's reader ignores the flags that have no meaning, and zlib refuses them.
    flags, position = data[start + 3], start + 10
    if flags & _GZIP_EXTRA_FLAG:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in _GZIP_TEXT_FLAGS:
        if flags & flag:
            position = _after_zero(data, position)
    if flags & _GZIP_HEADER_CRC_FLAG:
        crc = zlib.crc32(data[start:position]) & 0xFFFF
        if bytes(data[position : position + 2]) != crc.to_bytes(2, "little"):
            return None
        position += 2
    return position if position <= len(data) else None


def _after_zero(data: memoryview, position: int) -> int:
    """The position after the next zero; one after the end of the data if there is none."""
    # In growing pieces, each of which is copied: thousands of members may have a name.
    size = 64
    while position < len(data):
        found = bytes(data[position : position + size]).find(0)
        if found >= 0:
            return position + found + 1
        position += size
        size *= 2
    return len(data) + 1


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
    # Java's reader ignores bytes at the end that are too few for a size.
    while position + _INT32.size <= len(data):
        if bytes(data[position : position + 8]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise CorruptCompressionError("the snappy payload ends within a header")
            (version,) = _INT32.unpack_from(data, position - 8)
            if version < 1 and position > len(XERIAL_HEADER):
                # Java's reader looks at the version of all headers but the first.
                raise CorruptCompressionError(f"a snappy header of version {version}")
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
    frame, size_max = _lz4_frame(data)
    return _decompress_into(Codec.LZ4, packages.cramjam.lz4, frame, size_max=size_max, limit=limit)


def _decompress_zstd(data: memoryview, limit: int) -> memoryview:
    end, size_max = _zstd_frames(data)
    if not end:
        return data[:0]
    return _decompress_into(
        Codec.ZSTD, packages.cramjam.zstd, data[:end], size_max=size_max, limit=limit
    )


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


def _lz4_frame(data: memoryview) -> tuple[memoryview, int]:
    """The frame at the start, and the most bytes that it can give, by the sizes of its blocks.

    The frame comes back without its content's size and checksum, which Kafka does not verify.
    """
    if bytes(data[:4]) != LZ4_MAGIC or len(data) < len(LZ4_HEADER):
        raise CorruptCompressionError("the lz4 payload does not start with a frame header")
    flags, descriptor = data[4], data[5]
    checksum_position = _lz4_checksum_position(flags)
    start = checksum_position + 1
    end, total = _lz4_blocks(
        data, start, block_size_max=1 << (8 + 2 * (descriptor >> 4 & 7)), flags=flags
    )
    unverified = _LZ4_CONTENT_SIZE_FLAG | _LZ4_CONTENT_CHECKSUM_FLAG
    if not flags & unverified and bytes(data[end - 4 : end]) == LZ4_END:
        return data[:end], total
    if data[checksum_position] != _lz4_header_checksum(bytes(data[4:checksum_position])):
        raise CorruptCompressionError("the lz4 frame has a header with another checksum")
    if flags & _LZ4_CONTENT_CHECKSUM_FLAG and end + 4 > len(data):
        raise CorruptCompressionError("the lz4 payload ends within a checksum")
    header = bytes([flags & ~unverified, descriptor])
    if flags & _LZ4_DICTIONARY_FLAG:
        header += data[checksum_position - 4 : checksum_position]
    checksum = bytes([_lz4_header_checksum(header)])
    parts = (LZ4_MAGIC, header, checksum, data[start : end - 4], LZ4_END)
    return memoryview(b"".join(parts)), total


def _lz4_blocks(
    data: memoryview, position: int, *, block_size_max: int, flags: int
) -> tuple[int, int]:
    """The end of the end mark after the blocks, and the largest size of their content."""
    total = 0
    while True:
        (word,) = _UINT32_LE.unpack_from(data, position)
        position += 4
        size = word & ~LZ4_STORED_FLAG
        if size == 0:
            return position, total
        if size > len(data) - position:
            raise CorruptCompressionError(
                f"an lz4 block claims {size} bytes, {len(data) - position} remain"
            )
        is_stored = bool(word & LZ4_STORED_FLAG)
        total += size if is_stored else min(block_size_max, _LZ4_EXPANSION_MAX * size)
        position += size + (4 if flags & _LZ4_BLOCK_CHECKSUM_FLAG else 0)


def _zstd_frames(data: memoryview) -> tuple[int, int]:
    """End of the whole frames, and most bytes that they can give, by their claims and blocks.

    A frame that is cut is not read if it follows a whole one and would give nothing. Java's reader
    misses its end only if the piece that it has read last has the end of a whole frame.
    """
    total = position = 0
    while position < len(data):
        end, possible = _zstd_frame(data, position)
        if end > len(data):
            last_piece = (len(data) - 1) // _ZSTD_PIECE_BYTES * _ZSTD_PIECE_BYTES
            if possible or position <= last_piece:
                raise CorruptCompressionError("the zstd payload ends within a frame")
            break
        position = end
        total += possible
    return position, total


def _zstd_frame(data: memoryview, start: int) -> tuple[int, int]:
    """End of the frame that starts there, and the most bytes that it can give.

    The end is beyond that of the data if the frame is cut.
    """
    magic = bytes(data[start : start + 4])
    cut = len(data) + 1
    # A skippable frame: magic, size, bytes of somebody else.
    if magic[:1] and magic[0] & 0xF0 == 0x50 and ZSTD_SKIPPABLE_MAGIC.startswith(magic[1:]):
        if start + 8 > len(data):
            return cut, 0
        return start + 8 + _UINT32_LE.unpack_from(data, start + 4)[0], 0
    if not ZSTD_MAGIC.startswith(magic):
        raise CorruptCompressionError(f"no zstd frame starts at byte {start}")
    if start + 5 > len(data):
        return cut, 0
    descriptor = data[start + 4]
    is_single_segment = bool(descriptor & 0x20)
    size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    position = start + 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    claimed = int.from_bytes(data[position : position + size_bytes], "little")
    claimed += 256 if size_bytes == 2 else 0
    end, possible = _zstd_blocks(data, position + size_bytes)
    end += 4 if descriptor & 0x04 else 0
    return end, min(claimed, possible) if size_bytes else possible


def _zstd_blocks(data: memoryview, position: int) -> tuple[int, int]:
    """End of the blocks from `position` on, and the largest size of their content.

    The end is beyond that of the data if they are cut; what then counts is what a stream gives.
    """
    total = 0
    while position + 3 <= len(data):
        word = int.from_bytes(data[position : position + 3], "little")
        kind = word >> 1 & 3
        size = word >> 3
        stored = 1 if kind == 1 else size
        position += 3 + stored
        is_cut = position > len(data)
        # Of the blocks that are cut, a stored one alone gives what there is of it.
        if not is_cut or (kind == 0 and position - stored < len(data)):
            total += ZSTD_BLOCK_SIZE_MAX if kind == 2 else min(size, ZSTD_BLOCK_SIZE_MAX)
        if is_cut or word & 1:
            return position, total
    return len(data) + 1, total


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
