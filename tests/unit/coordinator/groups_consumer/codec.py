"""Records of `__consumer_offsets` as bytes and back, for the shards of these tests."""

from struct import Struct
from typing import Any

from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol import records
from tailrace.protocol.codec import decode, encode

NUMBER = Struct(">h")
CLASSES: dict[int, tuple[Any, Any, int]] = {
    1: (records.OffsetCommitKey, records.OffsetCommitValue, 4),
    2: (records.GroupMetadataKey, records.GroupMetadataValue, 3),
    3: (records.ConsumerGroupMetadataKey, records.ConsumerGroupMetadataValue, 0),
    4: (records.ConsumerGroupPartitionMetadataKey, records.ConsumerGroupPartitionMetadataValue, 0),
    5: (records.ConsumerGroupMemberMetadataKey, records.ConsumerGroupMemberMetadataValue, 0),
    6: (
        records.ConsumerGroupTargetAssignmentMetadataKey,
        records.ConsumerGroupTargetAssignmentMetadataValue,
        0,
    ),
    7: (
        records.ConsumerGroupTargetAssignmentMemberKey,
        records.ConsumerGroupTargetAssignmentMemberValue,
        0,
    ),
    8: (
        records.ConsumerGroupCurrentMemberAssignmentKey,
        records.ConsumerGroupCurrentMemberAssignmentValue,
        0,
    ),
    16: (
        records.ConsumerGroupRegularExpressionKey,
        records.ConsumerGroupRegularExpressionValue,
        0,
    ),
}
"""By record type: key, value, and the version in which Kafka 4.3 writes the value."""


def type_of(record: CoordinatorRecord) -> int:
    """The type of a record; negative for a tombstone."""
    key: Any = record.key
    number: int = key.record_type
    return number if record.value is not None else -number


class GroupCodec:
    """The bytes of records."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value."""
        number = abs(type_of(record))
        key = bytearray(NUMBER.pack(number))
        encode(record.key, 0, key)
        if record.value is None:
            return bytes(key), None
        version = CLASSES[number][2]
        value = bytearray(NUMBER.pack(version))
        encode(record.value, version, value)
        return bytes(key), bytes(value)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record; None if its type is unknown."""
        [number] = NUMBER.unpack_from(key)
        if number not in CLASSES:
            return None
        key_class, value_class, _ = CLASSES[number]
        message, _ = decode(key_class, 0, memoryview(key), position=NUMBER.size)
        if value is None:
            return CoordinatorRecord(message, None)
        [version] = NUMBER.unpack_from(value)
        body, _ = decode(value_class, version, memoryview(value), position=NUMBER.size)
        return CoordinatorRecord(message, body)
