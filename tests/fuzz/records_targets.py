"""Fuzz targets of the `records` room: reading batches, codecs, walking records, columns."""

import zlib
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import Codec, Offset
from tailrace.records import layout
from tailrace.records.batch import UnsupportedMagicError, read_batches, stamp
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.checks import check_records
from tailrace.records.codecs import compress, decompress
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.control import ControlType, EndTransactionMarker, read_end_transaction_marker
from tailrace.records.legacy import read_all_batches
from tailrace.records.runs import batches_of, read_runs
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mending import with_crcs
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.records.framings import framings

T = TypeVar("T")

OUTPUT_LIMIT = 1 << 20
REFUSALS = (CorruptionError, UnsupportedCodecError, UnsupportedMagicError)


def seed_batch(codec: Codec) -> bytes:
    """A batch with keys, nulls and headers."""
    builder = BatchBuilder(codec=codec)
    builder.append(b"key", b"value" * 30, timestamp=1_700_000_000_000)
    builder.append(None, b"", timestamp=-1, headers=[("trace", b"12"), ("null", None)])
    builder.append(b"k" * 70, None, timestamp=1_700_000_100_000)
    return builder.build()


def read_all(data: bytes) -> int:
    """Reads and checks every batch, and counts the records."""
    total = 0
    for _, batch in read_batches(memoryview(data)):
        batch.check()
        total += check_records(batch).records
    return total


def walk_unchecked(data: bytes) -> int:
    """Walks the records and makes objects of them, whatever the checksums say."""
    total = 0
    for _, batch in read_batches(memoryview(data)):
        count = check_records(batch).records
        assert sum(1 for _ in records_of(batch)) == count
        total += count
    return total


def decode_unchecked(data: bytes) -> int:
    """Decodes to columns whatever the checksums say; what comes out is valid Arrow."""
    builder = ColumnsBuilder()
    try:
        for _, batch in read_batches(memoryview(data)):
            builder.append(batch, start_offset=-(2**63), limit_offset=2**63 - 1)
    finally:
        builder.finish().validate(full=True)
    return builder.row_count


def read_in_runs(data: bytes) -> object:
    """Cuts bytes into runs, after putting checksums right: the batches are those of the reader."""
    view = memoryview(with_crcs(data))
    plain, runs = read_all_batches(view), read_runs(view)
    ends = [
        (position + at + batch.size, bytes(batch.view))
        for position, piece in until_refused(runs)
        for at, batch in batches_of(piece, Offset(-(2**63)), Offset(2**63 - 1))
    ]
    assert ends == [(at + batch.size, bytes(batch.view)) for at, batch in until_refused(plain)]
    assert runs.position == plain.position
    return ends


def stamped(data: bytes, base_offset: int) -> bytes:
    """A batch as a broker has stored it."""
    stored = bytearray(data)
    stamp(memoryview(stored), base_offset=base_offset, leader_epoch=0)
    return bytes(stored)


def until_refused(found: Iterator[tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Yield the items up to the first refusal."""
    try:
        yield from found
    except REFUSALS:
        return


def seed_legacy(magic: int, codec: Codec) -> bytes:
    """Two records and, with a codec, the wrapper around them."""
    inner = write_all_legacy(
        [
            LegacyMessage(magic, 0, b"key", b"value" * 9, 1_600_000_000_000),
            LegacyMessage(magic, 1, None, None, 17),
        ]
    )
    if codec is Codec.NONE:
        return inner
    return write_legacy(LegacyMessage(magic, 1, None, bytes(compress(codec, inner)), 17, codec))


def read_legacy(data: bytes) -> int:
    """Reads entries of v0 and v1, after putting the checksum of the first right."""
    mended = bytearray(data)
    if len(mended) >= layout.FRAME_SIZE:
        size = layout.LOG_OVERHEAD + layout.LENGTH.unpack_from(mended, layout.LENGTH_POSITION)[0]
        crc = zlib.crc32(mended[layout.MAGIC_POSITION : max(size, 0)])
        layout.CRC.pack_into(mended, layout.LOG_OVERHEAD, crc)
    total = 0
    for _, batch in read_all_batches(memoryview(mended)):
        batch.check()
        count = check_records(batch).records
        assert sum(1 for _ in records_of(batch)) == count
        total += count
    return total


def read_marker(data: bytes) -> EndTransactionMarker:
    """Reads key and value of a control record, one behind the other."""
    return read_end_transaction_marker(data[:4], data[4:])


def decompress_bounded(data: bytes, *, codec: Codec) -> int:
    """Decompresses with a limit, which holds."""
    size = len(decompress(codec, memoryview(data), OUTPUT_LIMIT))
    assert size <= OUTPUT_LIMIT
    return size


_MARKER = EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=3)
_BATCHES = tuple(seed_batch(codec) for codec in Codec)
_TEXTS = (b"", b"one line\n" * 40, bytes(range(256)) * 300)

TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(name="read batches", seeds=_BATCHES, run=read_all, refusals=REFUSALS),
    FuzzTarget(
        name="walk records",
        seeds=_BATCHES[:1] * 3 + _BATCHES,
        run=walk_unchecked,
        refusals=REFUSALS,
    ),
    FuzzTarget(
        name="decode columns",
        seeds=_BATCHES[:1] * 3 + _BATCHES,
        run=decode_unchecked,
        refusals=REFUSALS,
    ),
    FuzzTarget(
        name="read runs",
        seeds=tuple(
            b"".join(stamped(_BATCHES[codec], 3 * number) for number, codec in enumerate(codecs))
            for codecs in ((0, 0, 0), (0, 1, 0, 0))
        ),
        run=read_in_runs,
        refusals=(),
    ),
    FuzzTarget(
        name="read legacy messages",
        seeds=tuple(
            seed_legacy(magic, codec) for magic in (0, 1) for codec in Codec if codec < Codec.ZSTD
        ),
        run=read_legacy,
        refusals=REFUSALS,
    ),
    FuzzTarget(
        name="read transaction markers",
        seeds=(_MARKER.key + _MARKER.value,),
        run=read_marker,
        refusals=(CorruptionError,),
    ),
    *(
        FuzzTarget(
            name=f"decompress {codec.name.lower()}",
            seeds=(
                *(bytes(compress(codec, text)) for text in _TEXTS),
                *(each.data for each in framings(_TEXTS[1]) if each.codec is codec),
            ),
            run=partial(decompress_bounded, codec=codec),
            refusals=(CorruptionError,),
        )
        for codec in Codec
        if codec
    ),
)
