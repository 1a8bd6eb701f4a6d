"""Codecs: round trips, framings of other writers, bombs and cuts."""

import gzip
import tracemalloc

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import UnsupportedCodecError
from tailrace.model import Codec
from tailrace.records.codecs import (
    LEVELS,
    LZ4_HEADER,
    XERIAL_HEADER,
    CorruptCompressionError,
    DecompressedTooLargeError,
    codec_of,
    compress,
    decompress,
)
from tests.examples import examples

COMPRESSED = [codec for codec in Codec if codec]
every_codec = pytest.mark.parametrize("codec", COMPRESSED)
TEXT = b"a log line that looks much like the one before it\n"


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=examples(100), deadline=None, database=None)
@given(data=st.binary(max_size=300), repeats=st.sampled_from((1, 2, 400)))
def test_round_trip(codec: Codec, data: bytes, repeats: int) -> None:
    """Decompressing gives the original payload, for one block and for several."""
    payload = data * repeats
    assert decompress(codec, memoryview(compress(codec, payload))) == payload


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 3, 12, 17)), (Codec.ZSTD, (-131072, -1, 1, 22))],
)
def test_every_level_is_read(codec: Codec, levels: tuple[int, ...]) -> None:
    """Both ends of Kafka's range work for nothing, for one block and for several."""
    for level in levels:
        for data in (b"", b"x", TEXT * 5000):
            assert decompress(codec, memoryview(compress(codec, data, level))) == data


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, 1, 19)]
)
def test_a_higher_level_is_smaller(codec: Codec, low: int, high: int) -> None:
    """A higher level compresses better, and the default level is used if none is given."""
    data = b"".join(b"line %d of a log, %x\n" % (line, line * line) for line in range(4000))
    assert len(compress(codec, data, high)) < len(compress(codec, data, low))
    assert bytes(compress(codec, data, LEVELS[codec].default)) == bytes(compress(codec, data))


def test_lz4_frames_of_a_level_are_what_kafka_reads() -> None:
    """Independent blocks of 64 KiB, here with a checksum each, and no checksum at the end."""
    frame = bytes(compress(Codec.LZ4, TEXT * 5000, 12))
    assert frame[:6] == b"\x04\x22\x4d\x18\x70\x40"
    assert frame[-4:] == bytes(4)


@every_codec
def test_every_cut_is_found(codec: Codec) -> None:
    """A payload that ends early is refused wherever it ends."""
    whole = bytes(compress(codec, TEXT * 30))
    for cut in range(len(whole)):
        # Snappy's framing has no end mark, and no frame of zstd is one too: both give nothing, and
        # the batch's count of records finds that.
        if (codec is Codec.SNAPPY and 0 <= cut - len(XERIAL_HEADER) < 4) or (
            codec is Codec.ZSTD and not cut
        ):
            assert not decompress(codec, memoryview(whole)[:cut])
            continue
        with pytest.raises(CorruptCompressionError):
            decompress(codec, memoryview(whole)[:cut])


@every_codec
def test_bombs_end_in_bounded_memory(codec: Codec) -> None:
    """64 MiB of zeros do not get past a limit of 1 MiB, and take no more memory than that."""
    bomb = bytes(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLargeError, match="allows 1048576"):
            decompress(codec, memoryview(bomb), 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


@every_codec
def test_exactly_the_limit_is_allowed(codec: Codec) -> None:
    """The bound is the last size that goes through."""
    data = memoryview(compress(codec, TEXT))
    assert decompress(codec, data, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLargeError):
        decompress(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codecs_are_named(number: int) -> None:
    """Numbers that Kafka has not given out are errors."""
    with pytest.raises(UnsupportedCodecError, match=f"codec {number} is unknown"):
        codec_of(number)


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Codec.GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT * 2))),
        (Codec.SNAPPY, bytes(compress(Codec.SNAPPY, TEXT)) * 2),
        (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT * 2))),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT)) * 2),
    ],
    ids=["gzip members", "raw snappy", "xerial header again", "linked lz4", "zstd frames"],
)
def test_framings_of_other_writers_are_read(codec: Codec, payload: bytes) -> None:
    """Framings that Kafka accepts but we do not write are decoded completely."""
    assert decompress(codec, memoryview(payload)) == TEXT * 2


@pytest.mark.parametrize(("codec", "name"), [(Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd")])
@pytest.mark.parametrize("repeats", [1, 5000])
def test_other_libraries_agree(codec: Codec, name: str, repeats: int) -> None:
    """Arrow's own lz4 and zstd read what we write, and we read what they write."""
    payload = TEXT * repeats
    theirs = pa.Codec(name)
    ours = bytes(compress(codec, payload))
    assert theirs.decompress(ours, len(payload)).to_pybytes() == payload
    assert decompress(codec, memoryview(theirs.compress(payload, asbytes=True))) == payload


def test_zstd_without_a_content_size_is_read() -> None:
    """Streams, as Java writes them, do not say how much they hold."""
    stream = cramjam.zstd.Compressor(3)
    stream.compress(TEXT * 5000)
    payload = bytes(stream.finish())
    assert decompress(Codec.ZSTD, memoryview(payload)) == TEXT * 5000


def test_lz4_frames_are_what_kafka_reads() -> None:
    """Independent blocks without checksums, and a block that does not shrink is stored."""
    frame = bytes(compress(Codec.LZ4, bytes(range(40))))
    assert frame == LZ4_HEADER + b"\x28\x00\x00\x80" + bytes(range(40)) + bytes(4)


@pytest.mark.parametrize(
    ("codec", "payload", "rule"),
    [
        (Codec.SNAPPY, b"\xff\xff\xff\x7f\x00", "claims to hold 268435455"),
        (Codec.SNAPPY, XERIAL_HEADER + b"\xff\xff\xff\xff", "claims -1 bytes"),
        (Codec.SNAPPY, XERIAL_HEADER + b"\x00\x00\x10\x00abc", "claims 4096 bytes, 3 remain"),
        (Codec.LZ4, LZ4_HEADER + b"\x00\x10\x00\x00abc", "claims 4096 bytes, 3 remain"),
        (Codec.LZ4, b"", "does not start with a frame header"),
        (Codec.ZSTD, b"abcdefgh", "no zstd frame starts at byte 0"),
        (Codec.GZIP, b"", "does not start with a member's header"),
        (Codec.GZIP, gzip.compress(TEXT, mtime=0)[:-9], "ends within a member"),
        (Codec.GZIP, gzip.compress(TEXT, mtime=0)[:-1] + b"\1", "another checksum or size"),
    ],
)
def test_lies_are_named(codec: Codec, payload: bytes, rule: str) -> None:
    """A size beyond the bytes at hand, or a start that is none, is refused with its values."""
    with pytest.raises(CorruptCompressionError, match=rule):
        decompress(codec, memoryview(payload))
