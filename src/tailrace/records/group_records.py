"""Decode the records of `__consumer_offsets`: committed offsets, and groups with their members.

    key    int16 type, which decides the rest of the key and the kind of value
           0, 1   group string | topic string | partition int32          an offset commit
           2      group string                                           a classic group
           3 ...  groups of the newer protocols, not read here

    value  int16 version
      of an offset commit
           0, 2   offset int64 | metadata string | commit time int64
           1      as 0, then expire time int64
           3      offset int64 | leader epoch int32 | metadata string | commit time int64
           4      as 3, compact, and tagged fields: 0 is the topic id
      of a group, 0 to 3, and 4 compact with tagged fields in each structure
           protocol type string | generation int32 | protocol string | leader string
           | (2 and later) time of the state int64 | members array of
                 member id string | (3 and later) instance id string | client id string
                 | client host string | (1 and later) rebalance timeout int32
                 | session timeout int32 | subscription bytes | assignment bytes

A string is an int16 size and UTF-8, -1 for null; an array and bytes have an int32 count. In a
compact version each of these is a varint of the size plus one, 0 for null. Tagged fields are a
varint count, then for each a varint tag, a varint size, and its bytes. A null value is a tombstone:
the key is gone. Times are milliseconds since 1970. docs/formats/group-records.md has examples.

Not here: which commits count where transactions are open or aborted, which batches and offsets the
records stand in, and writing.

Invariant: any bytes are decoded, or refused with one of the two errors below. Bytes behind the last
field are passed over, as in Kafka.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tailrace.errors import CorruptionError, FatalError

T = TypeVar("T")

OFFSET_COMMIT_TYPES: Final = (0, 1)
"""Type 0 is of brokers before 0.9; a reader takes both for the same key."""
GROUP_TYPE: Final = 2

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

_VERSION_MAX: Final = 4
_COMPACT_SINCE: Final = 4
_TOPIC_ID_TAG: Final = 0


class CorruptGroupRecordError(CorruptionError):
    """A key or value that ends too early, or has text that is no UTF-8."""


class UnknownGroupRecordError(FatalError, ValueError):
    """A key of a type, or a value of a version, that is not read here."""

    def __init__(self, *, what: str, number: int) -> None:
        self.what = what
        """`key type`, `offset commit version` or `group version`."""
        self.number = number
        super().__init__(f"{what} {number} is not known")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """Key of an offset commit: the group and the partition that it commits for."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """Key of a group's record."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """A committed position."""

    version: int
    offset: int
    """Offset of the next record that the group wants."""
    leader_epoch: int | None
    """Leader epoch of the last record consumed; None before version 3, -1 if it is unknown."""
    metadata: str | None
    """Whatever the client has added."""
    commit_timestamp: int
    """Milliseconds."""
    expire_timestamp: int | None
    """Milliseconds; None in all versions but 1, -1 for the broker's retention."""
    topic_id: uuid.UUID | None
    """Id of the topic; None before version 4, and if the record has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    """`group.instance.id` of a static member (KIP-345)."""
    client_id: str | None
    client_host: str | None
    rebalance_timeout_ms: int | None
    """Timeout of a rebalance; None in version 0."""
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A classic group as of its last rebalance."""

    version: int
    protocol_type: str | None
    """`consumer` for groups of consumers; empty for one without members so far."""
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int | None
    """Milliseconds; None before version 2."""
    members: tuple[GroupMember, ...]


class _Fields:
    """Takes fields from the front of some bytes."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self.is_compact = False

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def string(self) -> str:
        found = self.string_or_none()
        if found is None:
            raise self._corrupt("a string is null")
        return found

    def string_or_none(self) -> str | None:
        size = self._varint() - 1 if self.is_compact else self.int16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self._corrupt(f"a string of {size} bytes is not UTF-8") from error

    def octets(self) -> bytes:
        return self._take(max(self._size(), 0))

    def array(self, read: Callable[[], T]) -> tuple[T, ...]:
        count = self._size()
        left = len(self._data) - self._position
        if count > left:
            raise self._corrupt(f"{count} elements are declared and {left} bytes are left")
        return tuple(read() for _ in range(count))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields by number, none in versions that are not compact."""
        if not self.is_compact:
            return {}
        count = self._varint()
        found = {}
        for _ in range(count):
            tag = self._varint()
            found[tag] = self._take(self._varint())
        return found

    def _size(self) -> int:
        return self._varint() - 1 if self.is_compact else self.int32()

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise self._corrupt("a varint of more than 5 bytes")

    def _take(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if len(data) < size:
            raise self._corrupt(f"{size} bytes are declared and {len(data)} are left")
        self._position += size
        return data

    def _corrupt(self, rule: str) -> CorruptGroupRecordError:
        return CorruptGroupRecordError(f"{self._what}: {rule}")


def decode_key(key: bytes | None) -> OffsetCommitKey | GroupKey:
    """Decode the key of a record.

    Raises:
        UnknownGroupRecordError: the key is of a type that is not read here.
        CorruptGroupRecordError: there is no key, or it is not of its format.
    """
    fields = _Fields(b"" if key is None else key, "key")
    number = fields.int16()
    found: OffsetCommitKey | GroupKey
    if number in OFFSET_COMMIT_TYPES:
        found = OffsetCommitKey(
            group=fields.string(), topic=fields.string(), partition=fields.int32()
        )
    elif number == GROUP_TYPE:
        found = GroupKey(group=fields.string())
    else:
        raise UnknownGroupRecordError(what="key type", number=number)
    return found


def decode_offset_commit(value: bytes) -> OffsetCommit:
    """The value of a record with an `OffsetCommitKey`, which is no tombstone.

    Raises:
        UnknownGroupRecordError: of a version that is not read here.
        CorruptGroupRecordError: the bytes are not of that version.
    """
    fields, version = _versioned(value, "offset commit")
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else None
    metadata = fields.string_or_none()
    commit_timestamp = fields.int64()
    expire_timestamp = fields.int64() if version == 1 else None
    topic_id = fields.tags().get(_TOPIC_ID_TAG)
    if topic_id is not None and len(topic_id) != 16:
        raise CorruptGroupRecordError(f"offset commit: a topic id of {len(topic_id)} bytes, not 16")
    return OffsetCommit(
        version=version,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=None if topic_id is None else uuid.UUID(bytes=topic_id),
    )


def decode_group(value: bytes) -> GroupMetadata:
    """The value of a record with a `GroupKey`, which is no tombstone.

    Raises:
        UnknownGroupRecordError: of a version that is not read here.
        CorruptGroupRecordError: the bytes are not of that version.
    """
    fields, version = _versioned(value, "group")

    def member() -> GroupMember:
        found = GroupMember(
            member_id=fields.string(),
            instance_id=fields.string_or_none() if version >= 3 else None,
            client_id=fields.string_or_none(),
            client_host=fields.string_or_none(),
            rebalance_timeout_ms=fields.int32() if version >= 1 else None,
            session_timeout_ms=fields.int32(),
            subscription=fields.octets(),
            assignment=fields.octets(),
        )
        fields.tags()
        return found

    return GroupMetadata(
        version=version,
        protocol_type=fields.string_or_none(),
        generation=fields.int32(),
        protocol=fields.string_or_none(),
        leader=fields.string_or_none(),
        state_timestamp=fields.int64() if version >= 2 else None,
        members=fields.array(member),
    )


def _versioned(value: bytes, what: str) -> tuple[_Fields, int]:
    """The fields behind the version, and the version."""
    fields = _Fields(value, what)
    version = fields.int16()
    if not 0 <= version <= _VERSION_MAX:
        raise UnknownGroupRecordError(what=f"{what} version", number=version)
    fields.is_compact = version >= _COMPACT_SINCE
    return fields, version
