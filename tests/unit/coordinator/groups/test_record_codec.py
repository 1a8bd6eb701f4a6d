"""The bytes of groups' records: what Apache Kafka 4.3 writes, and all that it reads."""

import uuid

import pytest

from tailrace.coordinator.groups.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    group_record,
    group_tombstone,
)
from tailrace.coordinator.groups.offsets import CommittedOffset, offset_record, offset_tombstone
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.errors import CorruptionError
from tailrace.model import TopicPartition
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

CODEC = GroupRecordCodec()
TIME = 1_700_000_000_000
TIME_HEX = "0000018bcfe56800"
TOPIC_ID = uuid.UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4")
FLIGHTS = TopicPartition("flights", 3)
KEY_HEX = "0001 0007 72656164657273 0007 666c6967687473 00000003"


def committed(*, expire_ms: int = -1, topic_id: uuid.UUID = NO_UUID) -> CommittedOffset:
    """Offset 170, committed at `TIME`."""
    return CommittedOffset(
        offset=170,
        leader_epoch=7,
        metadata="m",
        commit_ms=TIME,
        expire_ms=expire_ms,
        topic_id=topic_id,
        record_offset=0,
    )


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (
            committed(topic_id=TOPIC_ID),
            f"0004 00000000000000aa 00000007 02 6d {TIME_HEX} 01 00 10 {TOPIC_ID.hex}",
        ),
        (committed(), f"0004 00000000000000aa 00000007 02 6d {TIME_HEX} 00"),
        (
            committed(expire_ms=TIME, topic_id=TOPIC_ID),
            f"0001 00000000000000aa 0001 6d {TIME_HEX} {TIME_HEX}",
        ),
    ],
)
def test_a_commit_is_written_as_kafka_writes_it(offset: CommittedOffset, data: str) -> None:
    """Version 4, with the topic's id if it is known, or 1 if the client limits its time."""
    key, value = CODEC.encode(offset_record("readers", FLIGHTS, offset))
    assert key == bytes.fromhex(KEY_HEX)
    assert value == bytes.fromhex(data)


def test_a_group_is_written_as_kafka_writes_it() -> None:
    """Version 3, with Java's slash in front of the client's address."""
    group = ClassicGroup("g", TIME, generation=2, protocol="range", state=ClassicState.STABLE)
    member = ClassicMember(
        member_id="m1",
        instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=30_000,
        session_timeout_ms=10_000,
        protocols=(("range", b"s"),),
        assignment=b"a",
    )
    group.add(member, "consumer")
    key, value = CODEC.encode(group_record(group))
    assert key.hex() == "0002" + "000167"
    assert value == bytes.fromhex(
        f"0003 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 {TIME_HEX} 00000001 "
        "0002 6d31 0001 69 0001 63 0002 2f68 00007530 00002710 00000001 73 00000001 61"
    )


@pytest.mark.parametrize(
    "record", [offset_tombstone("readers", FLIGHTS), group_tombstone("readers")]
)
def test_a_tombstone_has_a_key_and_no_value(record: CoordinatorRecord) -> None:
    """It is read as it was written."""
    key, value = CODEC.encode(record)
    assert value is None
    assert CODEC.decode(key, value) == record


@pytest.mark.parametrize(
    ("data", "leader_epoch", "expire_ms", "topic_id"),
    [
        (f"0000 00000000000000aa 0001 6d {TIME_HEX}", -1, -1, NO_UUID),
        (f"0001 00000000000000aa 0001 6d {TIME_HEX} {TIME_HEX}", -1, TIME, NO_UUID),
        (f"0002 00000000000000aa 0001 6d {TIME_HEX}", -1, -1, NO_UUID),
        (f"0003 00000000000000aa 00000007 0001 6d {TIME_HEX}", 7, -1, NO_UUID),
        (
            f"0004 00000000000000aa 00000007 02 6d {TIME_HEX} 01 00 10 {TOPIC_ID.hex}",
            7,
            -1,
            TOPIC_ID,
        ),
    ],
)
def test_commits_of_all_versions_are_read(
    data: str, leader_epoch: int, expire_ms: int, topic_id: uuid.UUID
) -> None:
    """A field that the version does not have gets the value for not known."""
    assert CODEC.decode(bytes.fromhex(KEY_HEX), bytes.fromhex(data)) == CoordinatorRecord(
        OffsetCommitKey(group="readers", topic="flights", partition=3),
        OffsetCommitValue(
            offset=170,
            leader_epoch=leader_epoch,
            metadata="m",
            commit_timestamp=TIME,
            expire_timestamp=expire_ms,
            topic_id=topic_id,
        ),
    )


def test_a_commit_from_before_kafka_0_9_is_read_as_one_of_today() -> None:
    """Its key has type 0, and its tombstone deletes what type 1 has committed too."""
    key = bytes.fromhex(KEY_HEX.replace("0001", "0000", 1))
    today = OffsetCommitKey(group="readers", topic="flights", partition=3)
    data = bytes.fromhex(f"0000 00000000000000aa 0001 6d {TIME_HEX}")
    assert CODEC.decode(key, data) == CoordinatorRecord(
        today, OffsetCommitValue(offset=170, metadata="m", commit_timestamp=TIME)
    )
    assert CODEC.decode(key, None) == CoordinatorRecord(today, None)


def test_records_of_consumer_groups_are_read_and_written() -> None:
    """The types of KIP-848 have one version, 0."""
    record = CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=2)
    )
    key, value = CODEC.encode(record)
    assert (key.hex(), (value or b"").hex()) == ("0003000167", "00000000000200")
    assert CODEC.decode(key, value) == record


@pytest.mark.parametrize("kind", [9, 10, 17, 23, 99, -1])
def test_a_type_that_is_not_known_is_none(kind: int) -> None:
    """Share groups, streams groups and newer brokers write such records here too."""
    assert CODEC.decode(kind.to_bytes(2, "big", signed=True) + b"rest", b"value") is None


def test_a_version_that_is_not_known_is_told_as_such() -> None:
    """The state cannot be known without the record, so it is not passed over."""
    key, _ = CODEC.encode(group_tombstone("g"))
    with pytest.raises(CorruptionError, match="GroupMetadataValue version 5 is not known: a newer"):
        CODEC.decode(key, bytes.fromhex("0005 0000"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b""),
        (bytes.fromhex("0002 0009 67"), None),
        (bytes.fromhex("0002 0001 67"), b"\x00"),
        (bytes.fromhex("0002 0001 67"), bytes.fromhex("0003 0008 63")),
        (bytes.fromhex("0001 0001 67 0001 74 00000000"), bytes.fromhex("0004 00")),
    ],
)
def test_bytes_that_are_no_record_are_refused(key: bytes, value: bytes | None) -> None:
    """An error of corruption, to which the shard adds the offset."""
    with pytest.raises(CorruptionError):
        CODEC.decode(key, value)


def test_what_is_behind_the_last_field_is_passed_over() -> None:
    """Apache Kafka writes the same bytes."""
    key, _ = CODEC.encode(group_tombstone("g"))
    assert CODEC.decode(key + b"more", None) == CoordinatorRecord(GroupMetadataKey(group="g"), None)
