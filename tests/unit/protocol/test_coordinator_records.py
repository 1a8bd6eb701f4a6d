"""The records of coordinators, from bytes written by hand after the formats' drawings."""

import re
import uuid
from pathlib import Path

import pytest

from tailrace.protocol.coordinator_records import (
    GroupRecordType,
    RecordType,
    TransactionRecordType,
    Versioned,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_class,
    record_type,
    value_class,
)
from tailrace.protocol.errors import (
    MalformedRecordError,
    UnencodableMessageError,
    UnknownRecordError,
)
from tailrace.protocol.fields import NO_UUID, Record
from tailrace.protocol.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionsSchema,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
)

TIME = 1_700_000_000_000
TIME_HEX = "0000018bcfe56800"
OFFSET_HEX = "00000000000000aa"
"""170."""
TOPIC_ID = uuid.UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4")

COMMIT_KEY = bytes.fromhex("0001 0007 72656164657273 0007 666c6967687473 00000003")
COMMITS = {
    0: f"0000 {OFFSET_HEX} 0001 6d {TIME_HEX}",
    1: f"0001 {OFFSET_HEX} 0001 6d {TIME_HEX} {TIME_HEX}",
    2: f"0002 {OFFSET_HEX} 0001 6d {TIME_HEX}",
    3: f"0003 {OFFSET_HEX} 00000007 0001 6d {TIME_HEX}",
    4: f"0004 {OFFSET_HEX} 00000007 02 6d {TIME_HEX} 01 00 10 {TOPIC_ID.hex}",
}
MEMBER = "0002 6d31 {instance} 0001 63 0002 2f68 {rebalance} 00002710 00000001 73 00000001 61"
GROUPS = {
    0: "0000 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 00000001 "
    + MEMBER.format(instance="", rebalance=""),
    1: "0001 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 00000001 "
    + MEMBER.format(instance="", rebalance="00007530"),
    2: f"0002 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 {TIME_HEX} 00000001 "
    + MEMBER.format(instance="", rebalance="00007530"),
    3: f"0003 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 {TIME_HEX} 00000001 "
    + MEMBER.format(instance="0001 69", rebalance="00007530"),
    4: f"0004 09 636f6e73756d6572 00000002 06 72616e6765 03 6d31 {TIME_HEX} 02 "
    "03 6d31 02 69 02 63 03 2f68 00007530 00002710 02 73 02 61 00 00",
}

VECTORS: list[tuple[Record, int, str]] = [
    *(
        (
            OffsetCommitValue(
                offset=170,
                leader_epoch=7 if version >= 3 else -1,
                metadata="m",
                commit_timestamp=TIME,
                expire_timestamp=TIME if version == 1 else -1,
                topic_id=TOPIC_ID if version == 4 else NO_UUID,
            ),
            version,
            data,
        )
        for version, data in COMMITS.items()
    ),
    *(
        (
            GroupMetadataValue(
                protocol_type="consumer",
                generation=2,
                protocol="range",
                leader="m1",
                current_state_timestamp=TIME if version >= 2 else -1,
                members=(
                    MemberMetadata(
                        member_id="m1",
                        group_instance_id="i" if version >= 3 else None,
                        client_id="c",
                        client_host="/h",
                        rebalance_timeout=30_000 if version >= 1 else -1,
                        session_timeout=10_000,
                        subscription=b"s",
                        assignment=b"a",
                    ),
                ),
            ),
            version,
            data,
        )
        for version, data in GROUPS.items()
    ),
    (ConsumerGroupMetadataValue(epoch=2), 0, "0000 00000002 00"),
    (
        ConsumerGroupMetadataValue(epoch=2, metadata_hash=7464127687165662588),
        0,
        "0000 00000002 01 00 08 6795e895b7aad57c",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            assigned_partitions=(
                TopicPartitions(topic_id=TOPIC_ID, partitions=(0, 5), assignment_epochs=(1, 2)),
            ),
        ),
        0,
        (
            f"0000 00000002 00000001 00 02 {TOPIC_ID.hex} 03 00000000 00000005 "
            "01 00 09 03 00000001 00000002 01 00"
        ),
    ),
    (
        TransactionLogValue(
            producer_id=7,
            producer_epoch=1,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=(PartitionsSchema(topic="t", partition_ids=(3,)),),
            transaction_last_update_timestamp_ms=TIME,
            transaction_start_timestamp_ms=TIME,
        ),
        0,
        (
            "0000 0000000000000007 0001 0000ea60 01 00000001 0001 74 00000001 00000003 "
            f"{TIME_HEX} {TIME_HEX}"
        ),
    ),
    (
        TransactionLogValue(
            producer_id=7,
            previous_producer_id=6,
            producer_epoch=1,
            transaction_timeout_ms=60_000,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=TIME,
            transaction_start_timestamp_ms=-1,
            client_transaction_version=2,
        ),
        1,
        (
            f"0001 0000000000000007 0001 0000ea60 00 00 {TIME_HEX} ffffffffffffffff "
            "02 00 08 0000000000000006 02 02 0002"
        ),
    ),
]
"""Values with their versions and their bytes."""


@pytest.mark.parametrize(("value", "version", "data"), VECTORS)
def test_a_value_has_these_bytes(value: Record, version: int, data: str) -> None:
    """Each version is written as Kafka writes it, and read again with the version."""
    assert encode_value(value, version).hex() == bytes.fromhex(data).hex()
    assert decode_value(type(value), bytes.fromhex(data)) == Versioned(version, value)


def member(metadata: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    """A member of a group, all other fields empty."""
    return ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, server_assignor=None, classic_member_metadata=metadata
    )


@pytest.mark.parametrize(
    ("metadata", "tags"),
    [
        (None, "01 00 01 00"),
        (ClassicMemberMetadata(), "00"),
        (
            ClassicMemberMetadata(
                session_timeout_ms=10_000,
                supported_protocols=(ClassicProtocol(name="range", metadata=b"s"),),
            ),
            "01 00 10 01 00002710 02 06 72616e6765 02 73 00 00",
        ),
    ],
)
def test_a_member_of_the_consumer_protocol_has_a_null_in_its_tags(
    metadata: ClassicMemberMetadata | None, tags: str
) -> None:
    """The default is an empty struct, so null is written, and a struct begins with 1."""
    fields = "0000 00 00 01 01 01 01 ffffffff 00"
    data = bytes.fromhex(fields + tags)
    assert encode_value(member(metadata), 0) == data
    assert decode_value(ConsumerGroupMemberMetadataValue, data).value == member(metadata)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (OffsetCommitKey(group="readers", topic="flights", partition=3), COMMIT_KEY.hex()),
        (GroupMetadataKey(group="g1"), "0002 0002 6731"),
        (ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), "0005 0001 67 0001 6d"),
        (TransactionLogKey(transactional_id="t"), "0000 0001 74"),
    ],
)
def test_a_key_has_its_type_in_front(key: Record, data: str) -> None:
    """It is written with the type, and read behind it."""
    assert encode_key(key) == bytes.fromhex(data)
    assert decode_key(type(key), bytes.fromhex(data)) == key


@pytest.mark.parametrize(
    "kind", [*GroupRecordType, *TransactionRecordType], ids=lambda each: each.name
)
def test_each_type_has_a_key_and_a_value(kind: RecordType) -> None:
    """Both classes are there, under its name and with its number."""
    names = [each.__name__ for each in (key_class(kind), value_class(kind))]
    assert names == [f"{kind.name.title().replace('_', '')}{part}" for part in ("Key", "Value")]
    assert (key_class(kind).record_type, value_class(kind).record_type) == (kind, kind)
    assert record_type(type(kind), encode_key(key_class(kind)())) is kind


def test_a_commit_without_a_topic_id_has_no_tag() -> None:
    """Transactional commits have none, and empty metadata stands for none."""
    value = bytes.fromhex(f"0004 {OFFSET_HEX} ffffffff 01 {TIME_HEX} 00")
    commit = decode_value(OffsetCommitValue, value).value
    assert (commit.metadata, commit.topic_id, commit.leader_epoch) == ("", NO_UUID, -1)
    assert encode_value(commit, 4) == value


def test_unknown_tagged_fields_are_passed_over() -> None:
    """A newer broker may add some under the same version."""
    value = bytes.fromhex(f"0004 {OFFSET_HEX} 00000007 02 6d {TIME_HEX} 01 05 03 010203")
    assert decode_value(OffsetCommitValue, value).value.offset == 170


def test_unknown_types_and_versions_have_an_error_of_their_own() -> None:
    """It says what is not known, so that a reader can count it and go on."""
    with pytest.raises(UnknownRecordError, match="key type 9 is not known"):
        record_type(GroupRecordType, bytes.fromhex("0009 0001 67"))
    for version in ("0005", "ffff"):
        with pytest.raises(UnknownRecordError, match=r"OffsetCommitValue version (5|-1) is not"):
            decode_value(OffsetCommitValue, bytes.fromhex(version))


def test_the_examples_of_the_page_are_read_as_it_says() -> None:
    """docs/formats/group-records.md has a key, and commits of two versions."""
    page = Path(__file__).parents[3] / "docs" / "formats" / "group-records.md"
    found = re.findall(r"^((?:[0-9a-f]+ )+) +(key|commit \d): ", page.read_text(), re.MULTILINE)
    examples = {name: bytes.fromhex(data) for data, name in found}
    assert examples.keys() == {"key", "commit 3", "commit 4"}
    assert examples["key"] == COMMIT_KEY
    for number in (3, 4):
        version, commit = decode_value(OffsetCommitValue, examples[f"commit {number}"])
        assert (version, commit.offset, commit.leader_epoch) == (number, 170, 7)
        assert (commit.metadata, commit.commit_timestamp) == ("m", TIME)


def test_no_prefix_of_a_record_is_read() -> None:
    """A key or value that lacks its last bytes raises an error, however many they are."""
    for size in range(len(COMMIT_KEY)):
        with pytest.raises(MalformedRecordError):
            decode_key(OffsetCommitKey, COMMIT_KEY[:size])
    with pytest.raises(MalformedRecordError):
        record_type(GroupRecordType, COMMIT_KEY[:1])
    for value, _, data in VECTORS:
        whole = bytes.fromhex(data)
        for size in range(len(whole)):
            with pytest.raises(MalformedRecordError):
                decode_value(type(value), whole[:size])


@pytest.mark.parametrize(
    "value",
    [
        f"0003 {OFFSET_HEX} 00000007 0002 fffe {TIME_HEX}",
        f"0003 {OFFSET_HEX} 00000007 ffff {TIME_HEX}",
        f"0004 {OFFSET_HEX} 00000007 ffffffffffff {TIME_HEX} 00",
        f"0004 {OFFSET_HEX} 00000007 02 6d {TIME_HEX} 01 00 02 0102",
    ],
)
def test_text_that_is_none_and_sizes_that_do_not_fit_are_refused(value: str) -> None:
    """Text that is no UTF-8 or null, a varint without an end, and a topic id of two bytes."""
    with pytest.raises(MalformedRecordError):
        decode_value(OffsetCommitValue, bytes.fromhex(value))


def test_a_value_that_does_not_fit_is_not_written() -> None:
    """A null where Kafka has none is an error of ours."""
    with pytest.raises(UnencodableMessageError, match="OffsetCommitValue v3"):
        encode_value(OffsetCommitValue(metadata=None), 3)  # type: ignore[arg-type]
