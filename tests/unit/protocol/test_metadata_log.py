"""The records of the metadata log, from bytes written by hand and by Kafka."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.protocol import codec, metadata_records
from tailrace.protocol.errors import (
    MalformedRecordError,
    UnencodableMessageError,
    UnknownRecordError,
)
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_log import (
    CONTROL_TYPES,
    MetadataRecordType,
    control_class,
    data_class,
    decode_control,
    decode_data,
    encode_control,
    encode_data,
)
from tailrace.protocol.metadata_records import (
    ConfigRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    PartitionChangeRecord,
    TopicRecord,
    Voter,
)
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType

TOPIC_ID = uuid.UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4")
GOLDEN = Path(__file__).parents[2] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"

DATA = [
    (
        f"01 02 00 08 666c6967687473 {TOPIC_ID.hex} 00",
        TopicRecord(name="flights", topic_id=TOPIC_ID),
    ),
    (
        "01 04 00 02 08 666c6967687473 0d 726574656e74696f6e2e6d73 00 00",
        ConfigRecord(resource_type=2, resource_name="flights", name="retention.ms", value=None),
    ),
    (
        f"01 05 02 00000003 {TOPIC_ID.hex} 02 00 05 02 00000001 01 04 00000001",
        PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, isr=(1,), leader=1),
    ),
]
"""Values of data records, and what they say."""

CONTROL = [
    (
        "0000 0002",
        "0000 00000001 02 00000001 00 02 00000001 00 00",
        LeaderChangeMessage(
            leader_id=1, voters=(Voter(voter_id=1),), granting_voters=(Voter(voter_id=1),)
        ),
    ),
    ("0000 0005", "0000 0001 00", KRaftVersionRecord(kraft_version=1)),
]


def golden_batches() -> Iterator[Batch]:
    """All batches of the metadata log and of the snapshots that Kafka 4.3.1 wrote."""
    for path in sorted(GOLDEN.iterdir()):
        if path.suffix in {".log", ".checkpoint"}:
            yield from (batch for _, batch in read_batches(memoryview(path.read_bytes())))


@pytest.mark.parametrize(("data", "record"), DATA, ids=lambda each: type(each).__name__)
def test_a_data_record_has_its_numbers_in_front(data: str, record: Any) -> None:
    """Bytes that were written by hand are read, and written again."""
    value = bytes.fromhex(data)
    found = decode_data(value)
    assert found.record == record
    assert encode_data(record, found.version) == value


@pytest.mark.parametrize(("key", "value", "record"), CONTROL, ids=lambda each: type(each).__name__)
def test_a_control_record_has_its_type_in_its_key(key: str, value: str, record: Any) -> None:
    """Bytes that were written by hand are read, and written again."""
    written = bytes.fromhex(key), bytes.fromhex(value)
    found = decode_control(*written)
    assert (found.version, found.record) == (0, record)
    assert encode_control(ControlType(written[0][3]), record, 0) == written


def test_records_that_kafka_wrote_are_written_alike() -> None:
    """Each record of Kafka's own log and snapshots is read, and written again byte for byte."""
    kinds = set()
    for batch in golden_batches():
        for each in records_of(batch):
            if batch.is_control:
                assert each.key is not None
                found = decode_control(each.key, each.value)
                again = encode_control(ControlType(each.key[3]), found.record, found.version)
                assert again == (each.key, each.value)
            else:
                found = decode_data(each.value)
                record: Any = found.record
                assert encode_data(record, found.version) == each.value
            kinds.add(type(found.record).__name__)
    assert {"LeaderChangeMessage", "RegisterBrokerRecord", "PartitionRecord"} < kinds


def test_every_table_is_of_a_type() -> None:
    """Each type has a table with its number, and each table of `metadata_records` is of a type."""
    classes = [data_class(kind) for kind in MetadataRecordType]
    assert [each.record_type for each in classes] == list(MetadataRecordType)
    used = {*classes, *map(control_class, CONTROL_TYPES)}
    declared = vars(metadata_records).values()
    assert used == {each for each in declared if hasattr(each, "flexible_since")}


@pytest.mark.parametrize(
    "message",
    [*map(data_class, MetadataRecordType), *map(control_class, CONTROL_TYPES)],
    ids=lambda each: each.__name__,
)
def test_defaults_go_round_in_every_version(message: type[Message]) -> None:
    """A record of defaults comes back the same, to its last byte."""
    for version in range(message.first_version, message.last_version + 1):
        out = bytearray()
        codec.encode(message(), version, out)
        assert codec.decode(message, version, memoryview(out)) == (message(), len(out))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("00 14 00 00", "frame version 0 is not known"),
        ("02 14 00 00", "frame version 2 is not known"),
        ("01 06 00 00", "type 6 is not known"),
        ("01 1d 00 00", "type 29 is not known"),
        ("01 8e 01 00", "type 142 is not known"),
        ("01 14 80 01 00", "NoOpRecord version 128 is not known"),
        ("01 14 01 00", "NoOpRecord version 1 is not known"),
    ],
)
def test_what_a_later_kafka_may_write_is_refused_by_its_number(data: str, reason: str) -> None:
    """The number that is not known is named, so that nothing is lost by reading on without it."""
    with pytest.raises(UnknownRecordError, match=reason):
        decode_data(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data", ["", "01", "01 02", "01 02 00", "01 02 00 08 66", "01 14 00 00 00", "01 80 80 80 80 80"]
)
def test_a_value_that_is_cut_or_too_long_is_refused(data: str) -> None:
    """Missing bytes and bytes behind the last field are faults, as in Kafka."""
    with pytest.raises(MalformedRecordError):
        decode_data(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, "0000", MalformedRecordError),
        ("0000", "0000", MalformedRecordError),
        ("0000 0001", "0000", UnknownRecordError),
        ("0000 0007", "0000", UnknownRecordError),
        ("0000 0005", "0001 0001 00", UnknownRecordError),
        ("0000 0005", "", MalformedRecordError),
        ("0000 0005", "0000 00", MalformedRecordError),
        ("0000 0005", "0000 0001 00 00", MalformedRecordError),
    ],
)
def test_a_control_record_that_is_none_is_refused(
    key: str | None, value: str, error: type[Exception]
) -> None:
    """Wrong keys, types, versions and lengths are faults."""
    with pytest.raises(error):
        decode_control(None if key is None else bytes.fromhex(key), bytes.fromhex(value))


def test_a_value_that_does_not_fit_is_refused() -> None:
    """A number that is too large for its field names the record."""
    with pytest.raises(UnencodableMessageError, match="PartitionChangeRecord v0"):
        encode_data(PartitionChangeRecord(partition_id=1 << 31), 0)
