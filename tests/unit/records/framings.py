"""Payloads of one batch in many framings of each codec: sound, odd and damaged ones.

The tests of codecs read them, and `compat/framing.py` asks Apache Kafka and its clients about each.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import cramjam
import lz4.block
import lz4.frame
from crc32c import crc32c

from tailrace.model import Codec
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.builder import BatchBuilder
from tailrace.records.codecs import (
    LZ4_END,
    LZ4_HEADER,
    LZ4_MAGIC,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    ZSTD_MAGIC,
    compress,
    with_lz4_checksum,
)

_GARBAGE: Final = b"\x7fgarbage that is no frame of anything" * 4
_LZ4_BLOCK: Final = 64 * 1024


class Payload(NamedTuple):
    """The compressed records of a batch, in one framing."""

    codec: Codec
    name: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.codec.label}: {self.name}"


def payloads() -> Iterator[Payload]:
    """The records of a batch in every framing."""
    return framings(bytes(Batch(memoryview(_BATCH)).payload))


def legacy_payloads(magic: int) -> Iterator[tuple[str, bytes]]:
    """Wrappers of v0 or v1 with every framing, and with odd records inside, by name."""
    records = b"".join(_entry(offset, magic, 0, _VALUE) for offset in range(_COUNT))
    for each in framings(records):
        if each.codec is not Codec.ZSTD:
            yield str(each), _entry(_COUNT - 1, magic, each.codec, each.data)
    another = _entry(_COUNT, magic, 0, _VALUE)
    tails = {f"{count} bytes of another record": another[:count] for count in (1, 11, 12, 40)}
    tails["a record without its last byte"] = another[:-1]
    tails |= {f"{count} zeros": bytes(count) for count in (1, 11, 12, 100)}
    tails["a record of size -5"] = struct.pack(">qi", _COUNT, -5)
    for name, tail in tails.items():
        data = bytes(compress(Codec.GZIP, records + tail))
        yield f"inside: {name} after", _entry(_COUNT - 1, magic, Codec.GZIP, data)
    for name, inside in (("nothing", b""), ("a cut record alone", another[:-1])):
        data = bytes(compress(Codec.GZIP, inside))
        yield f"inside: {name}", _entry(_COUNT - 1, magic, Codec.GZIP, data)
    nested = records + _entry(_COUNT, magic, Codec.GZIP, b"v")
    data = bytes(compress(Codec.GZIP, nested))
    yield "inside: another wrapper", _entry(_COUNT, magic, Codec.GZIP, data)


def batch_of(payload: Payload) -> bytes:
    """A batch of format v2 with the payload, and a right checksum."""
    data = bytearray(_BATCH[: layout.HEADER_SIZE]) + payload.data
    struct.pack_into(">i", data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    struct.pack_into(">h", data, layout.ATTRIBUTES_POSITION, payload.codec)
    crc = crc32c(bytes(data[layout.ATTRIBUTES_POSITION :]))
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
    return bytes(data)


def answers_of_kafka() -> dict[str, int]:
    """The error code with which Apache Kafka 4.3.1 answers to a producer of each payload."""
    lines = Path(__file__).with_suffix(".tsv").read_text().splitlines()
    return {name: int(code) for name, code in (line.split("\t") for line in lines)}


DEPARTURES: Final[Mapping[str, str]] = {
    "gzip: a second member cut": "INVALID_RECORD there, because records come before the error",
    "zstd: a second frame cut in a stored block": "the same",
    "lz4: an empty block between": "Kafka refuses it, and its consumer reads it",
}
"""Payloads to which our broker answers something else than Kafka, with the difference."""


def _plain_batch() -> bytes:
    builder = BatchBuilder()
    for _ in range(_COUNT):
        builder.append(None, _VALUE, timestamp=_TIMESTAMP)
    return builder.build()


def _entry(offset: int, magic: int, codec: int, value: bytes) -> bytes:
    """An entry of v0 or v1 without a key."""
    timestamp = struct.pack(">q", _TIMESTAMP) if magic else b""
    body = bytes([magic, codec]) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


_COUNT: Final = 3
_TIMESTAMP: Final = 1_700_000_000_000
_VALUE: Final = b"".join(b"line %d of a log\n" % line for line in range(2300))
_BATCH: Final = _plain_batch()


def framings(records: bytes) -> Iterator[Payload]:
    """These records in every framing; 100 to 128 KiB that compress show all of them."""
    for codec, made in (
        (Codec.GZIP, _gzip(records)),
        (Codec.SNAPPY, _snappy(records)),
        (Codec.LZ4, _lz4(records)),
        (Codec.ZSTD, _zstd(records)),
    ):
        for name, data in made:
            yield Payload(codec, name, data)


def _tails(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Bytes after the end, and cuts before it."""
    yield "empty", b""
    for count in (1, 2, 3, 4, 8, 18, 19, 100):
        yield f"{count} zeros after", whole + bytes(count)
        yield f"{count} bytes of garbage after", whole + _GARBAGE[:count]
    for count in (1, 4, 5, 8, 9, 12, 1000):
        yield f"cut by {count}", whole[:-count]


def _gzip(records: bytes) -> Iterator[tuple[str, bytes]]:
    whole = gzip.compress(records, mtime=0)
    half = len(records) // 2
    first, second = (gzip.compress(each, mtime=0) for each in (records[:half], records[half:]))
    empty = gzip.compress(b"", mtime=0)
    header, body = whole[:10], whole[10:]
    yield "plain", whole
    yield from _tails(whole)
    yield "two members", first + second
    yield "a short last member", gzip.compress(records[:-1]) + gzip.compress(records[-1:])
    yield "an empty member first", empty + whole
    yield "an empty member between", first + empty + second
    yield "an empty member last", whole + empty
    yield "an empty second file name that is cut", whole + _gzip_header(header, 8) + b"n" * 20
    yield "a second member of another method", whole + b"\x1f\x8b\x07" + second[3:]
    yield (
        "a second member of a wrong header crc",
        (whole + _gzip_header(second[:10], 2) + b"\x00\x00" + second[10:]),
    )
    yield "a member too many", whole + gzip.compress(b"\x00more")
    yield "the second member's header cut", whole + empty[:5]
    yield "a second member cut", whole + second[:100]
    yield "a second member of a wrong crc", whole + empty[:-8] + b"\x01" + empty[-7:]
    yield "zeros between members", first + bytes(8) + second
    yield "an empty member of 1 byte too few last", whole + empty[:-1]
    yield "extra field", _gzip_header(header, 4) + b"\x03\x00abc" + body
    yield "file name", _gzip_header(header, 8) + b"name\x00" + body
    yield "comment", _gzip_header(header, 16) + b"words\x00" + body
    flagged = _gzip_header(header, 2)
    crc = struct.pack("<H", zlib.crc32(flagged) & 0xFFFF)
    yield "header crc", flagged + crc + body
    yield "wrong header crc", flagged + b"\x00\x00" + body
    yield "text flag", _gzip_header(header, 1) + body
    yield "reserved flag", _gzip_header(header, 32) + body
    yield "another method", header[:2] + b"\x07" + header[3:] + body
    yield "another magic", b"\x1f\x8c" + whole[2:]
    yield "zlib instead of gzip", zlib.compress(records)
    yield "wrong crc", whole[:-8] + b"\x00\x00\x00\x00" + whole[-4:]
    yield "wrong size", whole[:-4] + b"\x01\x00\x00\x00"
    yield "stored", gzip.compress(records, 0)


def _gzip_header(header: bytes, flags: int) -> bytes:
    return header[:3] + bytes([flags]) + header[4:]


def _snappy(records: bytes) -> Iterator[tuple[str, bytes]]:
    whole = bytes(compress(Codec.SNAPPY, records))
    raw = bytes(cramjam.snappy.compress_raw(records))
    blocks = whole[len(XERIAL_HEADER) :]
    half = len(records) // 2
    parts = [_xerial_block(records[:half]), _xerial_block(records[half:])]
    yield "plain", whole
    yield from _tails(whole)
    yield "raw", raw
    yield "raw, a zero after", raw + bytes(1)
    yield "raw, cut by 1", raw[:-1]
    yield "raw, another size", bytes([raw[0] ^ 1]) + raw[1:]
    yield "one large block", XERIAL_HEADER + _xerial_block(records)
    yield "two blocks", XERIAL_HEADER + b"".join(parts)
    yield "the header again between", XERIAL_HEADER + parts[0] + XERIAL_HEADER + parts[1]
    yield "the header again last", whole + XERIAL_HEADER
    yield "the header again, cut", whole + XERIAL_HEADER[:10]
    yield "two headers first", XERIAL_HEADER + whole
    yield "header alone", XERIAL_HEADER
    yield "magic alone", XERIAL_MAGIC
    yield "header cut", XERIAL_HEADER[:12]
    for version, compatible in ((0, 0), (0, 1), (1, 0), (2, 1), (1, 2), (2, 2), (-1, -1)):
        given = struct.pack(">ii", version, compatible)
        yield f"version {version}, compatible {compatible}", XERIAL_MAGIC + given + blocks
    second = XERIAL_MAGIC + struct.pack(">ii", 2, 2)
    yield "the header again, of version 2", XERIAL_HEADER + parts[0] + second + parts[1]
    for version, compatible in ((0, 0), (0, 1), (1, 0), (-1, 1), (1, -1)):
        again = XERIAL_MAGIC + struct.pack(">ii", version, compatible)
        yield (
            f"the header again, of version {version}, compatible {compatible}",
            XERIAL_HEADER + parts[0] + again + parts[1],
        )
    yield "an empty block last", whole + struct.pack(">i", 1) + b"\x00"
    yield "an empty block first", XERIAL_HEADER + struct.pack(">i", 1) + b"\x00" + blocks
    between = struct.pack(">i", 1) + b"\x00"
    yield "an empty block between", XERIAL_HEADER + parts[0] + between + parts[1]
    yield "a block of no bytes first", XERIAL_HEADER + bytes(4) + blocks
    yield "a block of size -1 last", whole + b"\xff" * 4
    yield "a block too many", whole + _xerial_block(b"\x00more")
    yield "a block that is longer than what is left", whole + struct.pack(">i", 9) + b"abc"
    framed = bytes(cramjam.snappy.compress(records))
    yield "the framing of snappy's own format", framed


def _xerial_block(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block


def _lz4(records: bytes) -> Iterator[tuple[str, bytes]]:
    whole = bytes(compress(Codec.LZ4, records))
    blocks = whole[len(LZ4_HEADER) :]
    half = len(records) // 2
    short = lz4.frame.compress(records[:1000], block_linked=False, store_size=False)
    empty = LZ4_HEADER + LZ4_END
    yield "plain", whole
    yield from _tails(whole)
    for name, size in (("256 KiB", 5), ("1 MiB", 6), ("4 MiB", 7)):
        yield f"blocks of {name}", _lz4_made(records, block_size=size)
    yield "linked blocks", _lz4_made(records, block_linked=True)
    yield "linked blocks, one", _lz4_made(records, block_linked=True, block_size=7)
    yield "linked flag alone", _lz4_flagged(0x40, blocks)
    yield "block checksums", _lz4_made(records, block_checksum=True)
    checked = _lz4_made(records, block_checksum=True)
    yield "a wrong block checksum", checked[:-5] + bytes([checked[-5] ^ 1]) + checked[-4:]
    hashed = _lz4_made(records, content_checksum=True)
    yield "content checksum", hashed
    yield "a wrong content checksum", hashed[:-1] + bytes([hashed[-1] ^ 1])
    yield "content checksum cut by 1", hashed[:-1]
    yield "content checksum cut", hashed[:-4]
    sized = _lz4_made(records, store_size=True)
    yield "content size", sized
    for name, number in (("less", 1), ("more", len(records) + 1), ("huge", 2**63)):
        given = sized[:6] + struct.pack("<Q", number) + sized[14:]
        yield f"content size, {name}", bytes(with_lz4_checksum(memoryview(given)))
    yield "header cut in its size", sized[:10]
    yield "dictionary id", _lz4_flagged(0x61, b"\x07\x00\x00\x00\x00" + blocks)
    yield "reserved flag", _lz4_flagged(0x62, blocks)
    yield "version 0", _lz4_flagged(0x20, blocks)
    yield "version 2", _lz4_flagged(0xA0, blocks)
    for descriptor in (0x00, 0x30, 0x41, 0x4F, 0xC0):
        yield f"descriptor {descriptor:#x}", _lz4_flagged(0x60, blocks, descriptor)
    yield "a wrong header checksum", whole[:6] + bytes([whole[6] ^ 1]) + whole[7:]
    yield "KIP-57's header checksum", whole[:6] + b"\x1a" + whole[7:]
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    yield "a skippable frame first", skippable + whole
    yield "a skippable frame last", whole + skippable
    legacy = lz4.block.compress(records, store_size=False)
    yield "the legacy frame", b"\x02\x21\x4c\x18" + struct.pack("<I", len(legacy)) + legacy
    first, second = (_lz4_made(each) for each in (records[:half], records[half:]))
    yield "two frames", first + second
    yield "an empty frame first", empty + whole
    yield "an empty frame last", whole + empty
    yield "a frame too many", whole + short
    yield "no end mark", whole[:-4]
    yield "an end mark of 0x80000000", whole[:-4] + b"\x00\x00\x00\x80"
    yield "header alone", LZ4_HEADER
    yield "header and end mark alone", empty
    stored = struct.pack("<I", 1 << 31 | _LZ4_BLOCK) + records[:_LZ4_BLOCK]
    rest = records[_LZ4_BLOCK:]
    last = struct.pack("<I", 1 << 31 | len(rest)) + rest
    yield "stored blocks", LZ4_HEADER + stored + last + LZ4_END
    yield (
        "a stored block above the size",
        (LZ4_HEADER + struct.pack("<I", 1 << 31 | len(records)) + records + LZ4_END),
    )
    yield (
        "a compressed block above the size",
        (LZ4_HEADER + struct.pack("<I", len(legacy)) + legacy + LZ4_END),
    )
    void = b"\x01\x00\x00\x00\x00"
    yield "an empty block first", LZ4_HEADER + void + blocks
    yield "an empty block between", LZ4_HEADER + stored + void + last + LZ4_END
    yield "an empty block last", whole[:-4] + void + LZ4_END
    yield "two empty blocks last", whole[:-4] + void * 2 + LZ4_END
    yield "a block too many", whole[:-4] + b"\x01\x00\x00\x80x" + LZ4_END
    yield "a block of garbage last", whole[:-4] + b"\x04\x00\x00\x00\xff\xff\xff\xff" + LZ4_END
    yield "a short block last, cut", whole[:-4] + b"\x09\x00\x00\x80x"


def _lz4_made(
    data: bytes,
    *,
    block_size: int = lz4.frame.BLOCKSIZE_MAX64KB,
    block_linked: bool = False,
    block_checksum: bool = False,
    content_checksum: bool = False,
    store_size: bool = False,
) -> bytes:
    return bytes(
        lz4.frame.compress(
            data,
            block_size=block_size,
            block_linked=block_linked,
            block_checksum=block_checksum,
            content_checksum=content_checksum,
            store_size=store_size,
        )
    )


def _lz4_flagged(flags: int, rest: bytes, descriptor: int = 0x40) -> bytes:
    """A frame of these header bytes with the right checksum, and no field between."""
    if flags & 1:
        identity, rest = rest[:4], rest[5:]
    else:
        identity = b""
    made = LZ4_MAGIC + bytes([flags, descriptor]) + identity + b"\x00" + rest
    return bytes(with_lz4_checksum(memoryview(made)))


def _zstd(records: bytes) -> Iterator[tuple[str, bytes]]:
    whole = bytes(compress(Codec.ZSTD, records))
    half = len(records) // 2
    first, second = (bytes(compress(Codec.ZSTD, each)) for each in (records[:half], records[half:]))
    empty = bytes(compress(Codec.ZSTD, b""))
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    stored = _zstd_stored(records)
    yield "plain", whole
    yield from _tails(whole)
    streamed = cramjam.zstd.Compressor(3)
    streamed.compress(records)
    yield "without a content size", bytes(streamed.finish())
    yield "two frames", first + second
    yield "an empty frame first", empty + whole
    yield "an empty frame between", first + empty + second
    yield "an empty frame last", whole + empty
    yield "a frame too many", whole + bytes(compress(Codec.ZSTD, b"\x00more"))
    for count in (3, 4, 5, 6, 9, 12, 100, len(second) - 1):
        yield f"a second frame of {count} bytes", whole + second[:count]
    yield "a second frame cut in a stored block", whole + ZSTD_MAGIC + b"\x00\x38" + stored[:9]
    yield "a second frame cut before a stored block", whole + ZSTD_MAGIC + b"\x00\x38" + stored[:3]
    for count in (-1, 0, 1):
        filler = b"\x50\x2a\x4d\x18" + struct.pack("<I", 131_075 - len(whole) - 8 + count)
        filler += bytes(131_075 - len(whole) - 8 + count)
        yield f"a cut frame that begins {count} bytes after a piece", whole + filler + second[:6]
    yield "a skippable frame first", skippable + whole
    yield "a skippable frame between", first + skippable + second
    yield "a skippable frame last", whole + skippable
    yield "a skippable frame last, cut", whole + skippable[:-1]
    yield "a skippable frame alone", skippable
    yield "zeros between frames", first + bytes(4) + second
    # One segment: the content size is the window.
    single = struct.pack("<I", len(records))
    yield "one segment", ZSTD_MAGIC + b"\xa0" + single + stored
    yield "content size, less", ZSTD_MAGIC + b"\xa0" + struct.pack("<I", 9) + stored
    yield "content size, more", ZSTD_MAGIC + b"\xa0" + struct.pack("<I", len(records) + 1) + stored
    yield "content size, huge", ZSTD_MAGIC + b"\xe0" + b"\xff" * 8 + stored
    for log in (17, 23, 26, 27, 28, 31, 41):
        yield f"a window of 2^{log}", ZSTD_MAGIC + b"\x00" + bytes([(log - 10) << 3]) + stored
    yield "a window of more than 2^27", ZSTD_MAGIC + b"\x00" + bytes([17 << 3 | 1]) + stored
    yield "a window of 2^10", ZSTD_MAGIC + b"\x00\x00" + _zstd_stored(records, 1024)
    yield "a block above the window", ZSTD_MAGIC + b"\x00\x00" + stored
    yield "a dictionary id", ZSTD_MAGIC + b"\x01\x38\x07" + stored
    yield "a dictionary id of 0", ZSTD_MAGIC + b"\x01\x38\x00" + stored
    yield "reserved bit", ZSTD_MAGIC + b"\x08\x38" + stored
    yield "unused bit", ZSTD_MAGIC + b"\x10\x38" + stored
    yield "a wrong content checksum", ZSTD_MAGIC + b"\x04\x38" + stored + bytes(4)
    yield "content checksum cut", ZSTD_MAGIC + b"\x04\x38" + stored
    yield "reserved block", ZSTD_MAGIC + b"\x00\x38" + b"\x07\x00\x00" + stored
    yield "an empty block first", ZSTD_MAGIC + b"\x00\x38" + bytes(3) + stored
    yield "a frame of version 0.7", b"\x27\xb5\x2f\xfd" + whole[4:]
    yield "no magic", whole[4:]


def _zstd_stored(records: bytes, size: int = 65536) -> bytes:
    """Blocks that are stored, to the end of a frame."""
    made = b""
    for start in range(0, len(records), size):
        part = records[start : start + size]
        is_last = start + size >= len(records)
        made += struct.pack("<I", len(part) << 3 | is_last)[:3] + part
    return made
