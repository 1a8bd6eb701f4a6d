"""Groups' records as bytes, in the versions that Apache Kafka 4.3 writes.

    OffsetCommit     v4, or v1 if the client has given the time when it expires: only v1 has a field
                     for it, and no field for the leader epoch and the topic's id
    GroupMetadata    v3
    all others       v0, their only version

All versions are read. A record of type 0, from before Kafka 0.9, is read as one of type 1.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.errors import CorruptionError
from tailrace.protocol.coordinator_records import (
    GroupRecordType,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_class,
    prepare_records,
    record_type,
    value_class,
)
from tailrace.protocol.errors import UnknownRecordError
from tailrace.protocol.fields import Record
from tailrace.protocol.records import (
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP_VERSION: Final = 3
COMMIT_VERSION: Final = 4
EXPIRING_COMMIT_VERSION: Final = 1


_WRITTEN_VERSIONS: Final[Mapping[GroupRecordType, int]] = MappingProxyType(
    {
        GroupRecordType.OFFSET_COMMIT: COMMIT_VERSION,
        GroupRecordType.GROUP_METADATA: GROUP_VERSION,
    }
)
"""The versions of values other than 0."""


def prepare_codec() -> None:
    """Make the codec of every record that is written, before the event loop needs it: 20 ms."""
    for kind in GroupRecordType:
        if kind is not GroupRecordType.LEGACY_OFFSET_COMMIT:
            prepare_records(kind, _WRITTEN_VERSIONS.get(kind, 0))


class GroupRecordCodec:
    """Between the records of `__consumer_offsets` as messages and as bytes."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value; the value is None for a tombstone.

        Raises:
            UnencodableMessageError: a value does not fit its field.
        """
        key, value = record
        return encode_key(key), None if value is None else encode_value(value, _version(value))

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record; None if its type is unknown, as are those of share and streams groups.

        Raises:
            CorruptionError: the bytes are not a record of their type, or the value is of a version
                that a newer Kafka writes.
        """
        try:
            kind = record_type(GroupRecordType, key)
        except UnknownRecordError:
            # A type that a newer Kafka writes beside ours: Kafka itself passes over such records.
            return None
        found = _current_key(decode_key(key_class(kind), key))
        if value is None:
            return CoordinatorRecord(found, None)
        try:
            return CoordinatorRecord(found, _current(decode_value(value_class(kind), value).value))
        except UnknownRecordError as error:
            # Of a known type, so without it offsets or members would be wrong (decision 33).
            raise CorruptionError(
                f"{error}: a newer Kafka has written this record, and the groups of the partition "
                "cannot be known without it"
            ) from error


def _version(value: Record) -> int:
    match value:
        case OffsetCommitValue():
            # As Kafka: only v1 has a field for the time when it expires, and no newer version has.
            return COMMIT_VERSION if value.expire_timestamp == -1 else EXPIRING_COMMIT_VERSION
        case GroupMetadataValue():
            return GROUP_VERSION
        case _:
            return 0


def _current_key(key: Record) -> Record:
    if not isinstance(key, LegacyOffsetCommitKey):
        return key
    return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)


def _current(value: Record) -> Record:
    if not isinstance(value, LegacyOffsetCommitValue):
        return value
    return OffsetCommitValue(
        offset=value.offset,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp,
    )
