"""Inputs that claim much: what they cost is bounded, in memory and in time.

Sizes are told by `tracemalloc`, and where native code allocates by what the process has at most.
"""

import json
import time
import tracemalloc
import zlib
from collections.abc import Callable

import crc32c
import pytest

from tailrace.client.consumer.columns import Collector
from tailrace.client.consumer.errors import DamagedRecordsError
from tailrace.client.consumer.fetched import FetchedPart, cut_records, take_rows
from tailrace.cluster.metadata.quorum_state import FILE as QUORUM_STATE
from tailrace.cluster.metadata.quorum_state import read_quorum_state
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import Codec, TopicPartition
from tailrace.offline.repair_plan import JOURNAL_FILE as JOURNAL
from tailrace.offline.repair_plan import read_journal
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import TooManyPartsError
from tailrace.protocol.frames import RESPONSE_PARTS_MAX, decode_response
from tailrace.records import layout
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.records.checks import check_records
from tailrace.records.codecs import (
    LZ4_HEADER,
    OUTPUT_SIZE_MAX,
    XERIAL_HEADER,
    DecompressedTooLargeError,
    compress,
    decompress,
)
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.legacy import read_all_batches
from tailrace.schemas import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    Schema,
    SchemaError,
    SchemaType,
    UndecodableError,
)
from tailrace.storage.checkpoints import read_epoch_checkpoint, read_offset_checkpoint
from tailrace.storage.cleaner.key_map import KeyMap
from tailrace.storage.cleaner.passes import Run
from tailrace.storage.snapshots import decode_snapshot
from tailrace.storage.walk import walk_batches
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import resident_bytes_max
from tests.naive import LegacyMessage, write_legacy
from tests.unit.storage.builders import batch

MIB = 1024 * 1024
SECONDS_MAX = 5.0
LIMIT = 4 * MIB


def cost(work: Callable[[], object], *, refusal: type[Exception] | None) -> tuple[int, int]:
    """Most bytes that Python had while it worked, and growth of the process; refused as said."""
    before, start = resident_bytes_max(), time.process_time()
    tracemalloc.start()
    try:
        if refusal is None:
            work()
        else:
            with pytest.raises(refusal):
                work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < SECONDS_MAX
    return peak, resident_bytes_max() - before


def bomb(codec: Codec) -> memoryview:
    """Compress 64 MiB of zeros."""
    return memoryview(bytes(compress(codec, bytes(64 * MIB))))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec], ids=lambda c: c.name)
def test_a_decompression_bomb_stops_at_the_limit(codec: Codec) -> None:
    """A payload that gives 64 MiB is refused after the 4 MiB that are allowed."""
    data = bomb(codec)
    peak, growth = cost(lambda: decompress(codec, data, LIMIT), refusal=DecompressedTooLargeError)
    assert peak < 3 * LIMIT
    assert growth < 64 * MIB


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(20)),
        (Codec.SNAPPY, XERIAL_HEADER + b"\x00\x00\x00\x0a\xff\xff\xff\xff\x07" + bytes(5)),
        (Codec.LZ4, LZ4_HEADER + b"\xff\xff\xff\x7f" + bytes(8)),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x00\x01\x00\x00"),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\x7f\x01\x00\x00"),
    ],
)
def test_a_size_that_a_header_claims_is_not_believed(codec: Codec, data: bytes) -> None:
    """A few bytes that say that they hold gigabytes take no memory."""
    peak, growth = cost(lambda: decompress(codec, memoryview(data)), refusal=CorruptionError)
    assert peak < MIB
    assert growth < 32 * MIB


def test_many_gzip_members_take_a_time_in_proportion() -> None:
    """Four MiB of empty members are not copied once for each of them."""
    member = zlib.compress(b"", wbits=31)
    data = memoryview(member * (4 * MIB // len(member)))
    start = time.process_time()
    assert not len(decompress(Codec.GZIP, data))
    assert time.process_time() - start < SECONDS_MAX


def test_many_snappy_blocks_take_no_list_of_them() -> None:
    """Empty blocks cost a few times their size, not fifty times."""
    data = memoryview(XERIAL_HEADER + b"\x00\x00\x00\x01\x00" * (MIB // 25))
    peak, _ = cost(lambda: decompress(Codec.SNAPPY, data), refusal=None)
    assert peak < MIB


def claiming(count: int) -> Batch:
    """A batch of one record whose header claims `count` of them, with a CRC that holds."""
    data = batch(b"value")
    layout.LENGTH.pack_into(data, layout.RECORD_COUNT_POSITION, count)
    crc = crc32c.crc32c(memoryview(data)[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
    return Batch(memoryview(data))


def _columns(claimed: Batch) -> None:
    ColumnsBuilder().append(claimed, start_offset=0, limit_offset=2**63 - 1)


def _run(claimed: Batch) -> Run:
    run = Run()
    run.add(claimed)
    return run


@pytest.mark.parametrize(
    "use",
    [
        check_records,
        _columns,
        lambda each: KeyMap(1 << 12).put(_run(each), start_offset=0),
        lambda each: KeyMap(1 << 12).choose(_run(each)),
    ],
    ids=["check", "columns", "put", "choose"],
)
def test_a_count_of_records_is_not_believed(use: Callable[[Batch], object]) -> None:
    """A header that claims 2147483647 records in some bytes takes no room for them."""
    claimed = claiming(INT32_MAX)
    claimed.check()
    peak, growth = cost(lambda: use(claimed), refusal=CorruptionError)
    assert peak < MIB
    assert growth < 32 * MIB


def exploding(codec: Codec) -> memoryview:
    """A batch whose checksum holds and whose records are `OUTPUT_SIZE_MAX` twice over."""
    data = batch(b"value", codec=codec)[: layout.RECORDS_POSITION]
    data += bytes(bomb(codec)) * (2 * OUTPUT_SIZE_MAX // (64 * MIB))
    layout.LENGTH.pack_into(data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    crc = crc32c.crc32c(memoryview(data)[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
    return memoryview(bytes(data))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD], ids=lambda c: c.name)
@pytest.mark.parametrize(
    "read",
    [
        lambda part: take_rows(part, 0, 500),
        lambda part: Collector().append(part, 0),
    ],
    ids=["rows", "columns"],
)
def test_a_bomb_that_a_broker_sends_to_a_consumer_stops_at_the_limit(
    read: Callable[[FetchedPart], object], codec: Codec
) -> None:
    """A fetched batch that grows without end is damage with its offset, in bounded memory.

    It takes nothing when it arrives, and as much as the largest batch when it is read.
    """
    part = FetchedPart(TopicPartition("t", 0), offset=0)
    data = exploding(codec)
    arrived, _ = cost(lambda: cut_records(part, data, place="here", aborted=()), refusal=None)
    assert arrived < MIB
    assert part.error is None
    peak, _ = cost(lambda: read(part), refusal=DamagedRecordsError)
    assert peak < 3 * OUTPUT_SIZE_MAX


@pytest.mark.parametrize(
    "read",
    [
        lambda part: take_rows(part, 0, 500),
        lambda part: Collector().append(part, 0),
    ],
    ids=["rows", "columns"],
)
def test_a_count_that_a_broker_claims_is_not_believed(
    read: Callable[[FetchedPart], object],
) -> None:
    """A fetched batch of some bytes with 2147483647 records is damage, and takes no room."""
    part = FetchedPart(TopicPartition("t", 0), offset=0)
    cut_records(part, claiming(INT32_MAX).view, place="here", aborted=())
    peak, growth = cost(lambda: read(part), refusal=DamagedRecordsError)
    assert peak < MIB
    assert growth < 32 * MIB


@pytest.mark.parametrize("nested", [False, True])
def test_an_answer_of_more_parts_than_a_cluster_has_is_refused(*, nested: bool) -> None:
    """Three bytes could become an object of 70: the parts of a response are counted, at any depth.

    Without the limit a frame of 100 MiB would take 2 GiB.
    """
    count = RESPONSE_PARTS_MAX + 1
    if nested:
        # One topic, whose partitions are of 27 bytes.
        parts = b"\x02\x01" + _uvarint(count + 1) + bytes(27 * count) + b"\x00\x00"
    else:
        parts = _uvarint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    frame = memoryview(bytes(4) + b"\x00" + bytes(4) + parts)
    api = APIS[ApiKey.LIST_OFFSETS]
    peak, growth = cost(lambda: decode_response(api, 7, frame), refusal=TooManyPartsError)
    assert peak < 2 * MIB
    assert growth < 32 * MIB


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_a_wrapper_of_an_older_format_stops_at_the_limit() -> None:
    """A v1 wrapper around 64 MiB of zeros is refused at its first entry."""
    value = bytes(bomb(Codec.GZIP))
    data = memoryview(write_legacy(LegacyMessage(1, 0, None, value, 17, Codec.GZIP)))
    peak, _ = cost(lambda: list(read_all_batches(data)), refusal=CorruptionError)
    assert peak < 3 * 64 * MIB


def one_file(name: str, data: bytes) -> MemoryFiles:
    """A directory with one file."""
    files = MemoryFiles()
    files.make_directory("data")
    files.open(f"data/{name}", create=True)
    files.overwrite(f"data/{name}", data)
    return files


@pytest.mark.parametrize(
    "text",
    [
        b"0\n2147483647\nflights 0 1\n",
        b"0\n" + b"9" * MIB + b"\n",
        b"0\n1\n" + b"\n" * 2 * MIB,
        b"0\n1\n" + b" " * 2 * MIB,
        b"0\n200000\n" + b"a b\n" * 200_000,
    ],
    ids=["count", "digits", "lines", "spaces", "entries"],
)
def test_a_checkpoint_costs_little_more_than_its_size(text: bytes) -> None:
    """Neither the count that it declares nor the lines that are none of its entries are kept."""
    files = one_file("checkpoint", text)
    for read in (read_offset_checkpoint, read_epoch_checkpoint):
        peak, _ = cost(lambda read=read: read(files, "data/checkpoint"), refusal=CorruptionError)  # type: ignore[misc]
        assert peak < MIB + 5 * len(text)


def test_a_snapshot_is_as_long_as_it_says() -> None:
    """One that claims 2147483647 producers is refused by its length."""
    data = b"\x00\x01" + bytes(4) + b"\x7f\xff\xff\xff" + bytes(46)
    peak, _ = cost(lambda: decode_snapshot(data), refusal=CorruptionError)
    assert peak < MIB


NESTED = b'{"version":1,"topics":' + b"[" * 200_000
"""Deeper than the parser of the standard library goes."""


@pytest.mark.parametrize("text", [NESTED, b'{"version":' + b"1" * 100_000 + b"}"])
def test_json_that_is_too_deep_or_too_long_is_refused(text: bytes) -> None:
    """The parser's own limits are refusals of ours, with the file's name."""
    files = one_file(JOURNAL, text)
    with pytest.raises(DirectoryError, match="data/tailrace-"):
        read_journal(files, "data")
    with pytest.raises((RecursionError, ValueError)):
        json.loads(text)


@pytest.mark.parametrize("text", [NESTED, b'{"leaderEpoch":' + b"1" * 100_000 + b"}"])
def test_a_quorum_state_that_is_too_deep_or_too_long_is_refused(text: bytes) -> None:
    """With the name of the file."""
    files = one_file(QUORUM_STATE, text)
    with pytest.raises(CorruptionError, match="data/quorum-state"):
        read_quorum_state(files, "data")


@pytest.mark.parametrize(
    "record",
    [
        # The replicas of a partition, the name of a topic, the endpoints of a broker.
        b"\1\3\0" + bytes(20) + b"\xff\xff\xff\xff\x0f",
        b"\1\2\0" + b"\xff\xff\xff\xff\x0f",
        b"\1\0\0" + bytes(4 + 16 + 8) + b"\xff\xff\xff\xff\x0f",
    ],
    ids=["array", "text", "objects"],
)
def test_a_size_that_a_metadata_record_claims_is_not_believed(record: bytes) -> None:
    """A record of some bytes that says that it holds four billion parts takes no room for them."""
    builder = BatchBuilder()
    builder.append(None, record, timestamp=0)
    data = memoryview(builder.build())

    def replay() -> None:
        for _, each in read_batches(data):
            MetadataReplay().see(each)

    # The first record of a type loads its class.
    with pytest.raises(CorruptionError):
        replay()
    peak, growth = cost(replay, refusal=CorruptionError)
    assert peak < MIB
    assert growth < 32 * MIB


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_walk_does_not_read_what_a_damaged_length_claims(magic: int) -> None:
    """A length that reaches over half of a large file, or behind its end, costs a window."""
    for length in (20 * MIB, 40 * MIB):
        data = bytearray(32 * MIB)
        layout.FRAME.pack_into(data, 0, 0, length, 0, magic)
        files = one_file("log", bytes(data))
        file = files.open("data/log", read_only=True)

        def walk(file: object = file) -> None:
            list(walk_batches(file, "data/log", start=0, limit=32 * MIB))  # type: ignore[arg-type]

        is_whole = length < 32 * MIB
        peak, _ = cost(walk, refusal=CorruptionError if is_whole else None)
        assert peak < 20 * MIB


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ('"bytes"', b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ('{"type": "array", "items": "int"}', b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\2"),
        ('{"type": "map", "values": "int"}', b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\2\2"),
    ],
    ids=["bytes", "array", "map"],
)
def test_a_size_that_an_avro_value_claims_is_not_believed(schema: str, data: bytes) -> None:
    """A few bytes that say that they are 2^62 take no memory, as a value and in a column."""
    found = Schema(type=SchemaType.AVRO, text=schema)
    deserialize = AvroDeserializer(schema=found, is_plain=True)
    peak, growth = cost(lambda: deserialize("t", data), refusal=UndecodableError)
    assert peak < MIB
    assert growth < 32 * MIB


@pytest.mark.parametrize("depth", [1000, MIB])
def test_brackets_within_brackets_take_no_stack(depth: int) -> None:
    """A JSON value and a schema of a megabyte of brackets are refused."""
    data = b"[" * depth + b"]" * depth
    deserialize = JsonSchemaDeserializer(is_plain=True)
    peak, _ = cost(lambda: deserialize("t", data), refusal=UndecodableError)
    assert peak < 16 * MIB
    peak, _ = cost(
        lambda: AvroDeserializer(schema=data.decode(), is_plain=True), refusal=SchemaError
    )
    assert peak < 16 * MIB
