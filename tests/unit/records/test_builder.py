"""`BatchBuilder` and `records_of`, against themselves and against other people's codecs."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings

from tailrace.model import Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import BatchBuilder, Record, build_batch, records_of, zigzag
from tailrace.records.checks import check_records
from tests.examples import examples
from tests.unit.records.batches import (
    ROWS,
    built,
    record_at,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

some = settings(max_examples=examples(100), deadline=None, database=None)
# kafka-python wants another library for each further codec; aiokafka has them all.
common_codecs = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
every_codec = pytest.mark.parametrize("codec", Codec)


def batch_of(data: bytes) -> Batch:
    """The only batch in `data`, checked."""
    [(_, batch)] = read_batches(memoryview(data))
    batch.check()
    return batch


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"),
        (8191, "fe7f"), (8192, "808001"), (1048575, "feff7f"), (134217728, "8080808001"),
        (2147483647, "feffffff0f"), (-2147483648, "ffffffff0f"),
        (4611686018427387903, "fe" + "ff" * 7 + "7f"),
    ],
)  # fmt: skip
def test_varints(number: int, encoded: str) -> None:
    """The encodings are those in the table of Apache Kafka's own tests."""
    assert zigzag(number).hex() == encoded


@every_codec
@some
@given(records=ROWS)
def test_round_trip(codec: Codec, records: list[Record]) -> None:
    """Records come back as they went in, and the walk counts them."""
    batch = batch_of(built(records, codec))
    assert list(records_of(batch)) == records
    assert check_records(batch).records == len(records) == batch.record_count
    assert batch.base_timestamp == records[0].timestamp
    assert batch.max_timestamp == max(record.timestamp for record in records)
    assert batch.last_offset == len(records) - 1


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"producer_epoch": 15, "base_sequence": 2342, "is_transactional": True}, "producer id"),
        ({"producer_id": 9809, "base_sequence": 2342}, "epoch"),
        ({"producer_id": 9809, "base_sequence": 2342, "is_transactional": True}, "epoch"),
        ({"producer_id": 9809, "producer_epoch": 15}, "numbered"),
        ({"producer_id": 9809, "producer_epoch": 15, "is_transactional": True}, "numbered"),
    ],
)
@every_codec
def test_half_a_producer_is_refused(codec: Codec, options: dict[str, int], rule: str) -> None:
    """Id, epoch and sequence come together, and a transaction has all three."""
    with pytest.raises(AssertionError, match=rule):
        BatchBuilder(codec=codec, **options)  # type: ignore[arg-type]


@every_codec
@pytest.mark.parametrize("offset_delta", [0, 1])
def test_offsets_must_rise(codec: Codec, offset_delta: int) -> None:
    """A record has a larger offset than the one before it."""
    builder = BatchBuilder(codec=codec)
    builder.append(b"a", None, timestamp=1, offset_delta=1)
    with pytest.raises(AssertionError):
        builder.append(b"b", None, timestamp=1, offset_delta=offset_delta)


def test_header_flags() -> None:
    """Producer, transaction, control bit and timestamp type are those asked for."""
    builder = BatchBuilder(
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        is_transactional=True,
        is_control=True,
    )
    builder.append(b"k", b"v", timestamp=1)
    batch = batch_of(builder.build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 6, 7)
    assert batch.is_transactional
    assert batch.is_control
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_batch_without_records_is_its_header() -> None:
    """Compaction leaves such batches; they read as no records."""
    batch = batch_of(BatchBuilder().build())
    assert (batch.size, batch.base_timestamp) == (layout.HEADER_SIZE, -1)
    assert list(records_of(batch)) == []


@common_codecs
@some
@given(records=ROWS)
def test_kafka_python_reads_what_we_write(codec: Codec, records: list[Record]) -> None:
    """Another implementation reads the same records."""
    theirs = KafkaPythonBatch(built(records, codec))
    assert theirs.validate_crc()
    assert [
        record_at(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in theirs
    ] == records


@common_codecs
@some
@given(records=ROWS)
def test_we_read_what_kafka_python_writes(codec: Codec, records: list[Record]) -> None:
    """We read the same records that another implementation wrote."""
    builder = KafkaPythonBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for record in records:
        builder.append(*record[:4], list(record.headers))
    assert list(records_of(batch_of(bytes(builder.build())))) == records


@every_codec
@some
@given(records=ROWS)
def test_aiokafka_reads_what_we_write(codec: Codec, records: list[Record]) -> None:
    """A third implementation reads the same records."""
    theirs = AiokafkaBatch(built(records, codec))
    assert theirs.validate_crc()
    assert [
        record_at(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in theirs
    ] == records


@every_codec
@some
@given(records=ROWS)
def test_we_read_what_aiokafka_writes(codec: Codec, records: list[Record]) -> None:
    """We read the same records that a third implementation wrote."""
    builder = AiokafkaBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for record in records:
        builder.append(*record[:4], list(record.headers))
    assert list(records_of(batch_of(bytes(builder.build())))) == records


def test_uncompressed_batches_are_the_same_bytes() -> None:
    """Without compression there is one right encoding, and kafka-python writes the same."""
    records = [record_at(0, 5, b"k", None, (("h", b"1"), ("h", None))), record_at(1, 3, None, b"v")]
    theirs = KafkaPythonBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for record in records:
        theirs.append(*record[:4], list(record.headers))
    ours = built(records)
    assert ours[16:] == bytes(theirs.build())[16:]


@pytest.mark.parametrize("producer_id", [-1, 3])
def test_a_batch_of_one_time_is_that_of_a_builder(producer_id: int) -> None:
    """Keys and values, also without one of them, in a transaction or not."""
    records = [(b"a", b"value"), (b"", None), (bytes(300), b""), (None, b"value")]
    is_transactional = producer_id >= 0
    epoch = sequence = 0 if is_transactional else -1
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    for key, value in records:
        builder.append(key, value, timestamp=1_700_000_000_000)
    batch = build_batch(
        records,
        timestamp=1_700_000_000_000,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    assert batch == builder.build()
    batch += b"x"  # It may grow, so nothing holds its memory.


@pytest.mark.parametrize("base", [-(2**63), 1 - 2**63, -1, 2**63 - 1])
@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**63 - 1])
def test_timestamps_at_the_ends_of_int64_are_kept(base: int, timestamp: int) -> None:
    """A delta that 64 bits do not hold wraps around, as Java's does, and comes back to its time."""
    builder = BatchBuilder()
    for each in (base, timestamp):
        builder.append(b"k", b"v", timestamp=each)
    found = records_of(batch_of(builder.build()))
    assert [each.timestamp for each in found] == [base, timestamp]
