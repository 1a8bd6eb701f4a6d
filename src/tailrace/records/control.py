"""Control records: the markers that brokers write between the records of producers.

A control batch has the control bit, one record, and no codec. What the record says:

    key    int16 version (0) | int16 type
    value  of ABORT and COMMIT, the end of a transaction:
           int16 version (0) | int32 epoch of the coordinator that wrote it
           of LEADER_CHANGE, the first record of a leader of the metadata topic:
           int16 version (0) | int32 leader id | voters | granting voters | 0
           voters: count + 1, then for each  int32 id | 0
           Counts are unsigned varints, each 0 says that no tagged fields follow. Version 1 has 16
           bytes more behind the id of a voter, the id of its log directory.

A marker belongs to the producer and the transaction of its batch; a leader change to no producer.
The values of the other types belong to Kafka's own metadata topic, and are not read here.

Invariant: a newer version of a key or a marker only adds fields after those drawn, so it is read as
version 0 (KIP-98). A type that is not defined yet is read as `UNKNOWN`, which readers skip.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.checks import CorruptRecordError

_KEY: Final = Struct(">hh")
_END_OF_TRANSACTION: Final = Struct(">hi")
_LEADER_CHANGE: Final = Struct(">hi")
_INT32: Final = Struct(">i")
_VERSION: Final = 0
_NO_TAGS: Final = b"\x00"
_DIRECTORY_ID_SIZE: Final = 16


class ControlType(IntEnum):
    """Type of a control record; the number is in its key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES: Final = {kind.value: kind for kind in ControlType}
_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """The record that ends a producer's transaction in a partition."""

    type: ControlType
    """ABORT or COMMIT."""
    coordinator_epoch: int
    """Epoch of the transaction coordinator that wrote the marker. If it is smaller than that of an
    earlier marker, the marker comes from a coordinator that has been replaced."""

    def __post_init__(self) -> None:
        assert self.type in _ENDS, f"{self.type.name} does not end a transaction"

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _KEY.pack(_VERSION, self.type)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _END_OF_TRANSACTION.pack(_VERSION, self.coordinator_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """The record with which a new leader of the metadata topic begins its epoch."""

    leader_id: int
    voters: tuple[int, ...] = ()
    """Ids of the voters."""
    granting_voters: tuple[int, ...] = ()
    """Ids of the voters that voted for the leader."""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _KEY.pack(_VERSION, ControlType.LEADER_CHANGE)

    @property
    def value(self) -> bytes:
        """The record's value."""
        lists = (_written_voters(self.voters), _written_voters(self.granting_voters))
        return b"".join((_LEADER_CHANGE.pack(_VERSION, self.leader_id), *lists, _NO_TAGS))


def build_end_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp: int,
) -> bytearray:
    """The batch that ends a producer's transaction in a partition; a leader stamps and appends it.

    `timestamp` is in milliseconds.
    """
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    marker = EndTransactionMarker(type=kind, coordinator_epoch=coordinator_epoch)
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    builder.append(marker.key, marker.value, timestamp=timestamp)
    return bytearray(builder.build())


def build_leader_change(
    change: LeaderChange, *, base_offset: int, leader_epoch: int, timestamp: int
) -> bytearray:
    """The batch with which a leader begins its epoch, stamped; `timestamp` is in milliseconds."""
    assert leader_epoch >= 0, "a leader has an epoch"
    builder = BatchBuilder(is_control=True)
    builder.append(change.key, change.value, timestamp=timestamp)
    batch = bytearray(builder.build())
    stamp(memoryview(batch), base_offset=base_offset, leader_epoch=leader_epoch)
    return batch


def read_control_type(key: bytes | None) -> ControlType:
    """The type in the key of a control record; `UNKNOWN` for one that is not defined yet.

    Raises:
        CorruptRecordError: there is no key, it is too short, or its version is negative.
    """
    _, number = _unpack(_KEY, key, "key of a control record")
    return _TYPES.get(number, ControlType.UNKNOWN)


def read_end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """The marker in the key and the value of a control record.

    Raises:
        CorruptRecordError: the type is neither ABORT nor COMMIT, the key or the value is missing or
            too short, or a version is negative.
    """
    kind = read_control_type(key)
    if kind not in _ENDS:
        raise CorruptRecordError(f"a control record of type {kind.name} ends no transaction")
    _, coordinator_epoch = _unpack(_END_OF_TRANSACTION, value, "value of a transaction marker")
    return EndTransactionMarker(type=kind, coordinator_epoch=coordinator_epoch)


def end_transaction_marker_or_none(batch: Batch) -> EndTransactionMarker | None:
    """The marker in a control batch; None if compaction has emptied it, or it ends no transaction.

    Raises:
        CorruptRecordError: the record breaks a rule of the format, or is a marker that cannot be
            read.
        CorruptCompressionError, UnsupportedCodecError: as `builder.records_of`.
    """
    if batch.record_count == 0:
        return None
    record = next(records_of(batch))
    if read_control_type(record.key) not in _ENDS:
        return None
    return read_end_transaction_marker(record.key, record.value)


def read_leader_change(key: bytes | None, value: bytes | None) -> LeaderChange:
    """Decode a control record of type LEADER_CHANGE.

    Raises:
        CorruptRecordError: the type is another, the value is missing or ends too soon, or its
            version is neither 0 nor 1.
    """
    kind = read_control_type(key)
    if kind is not ControlType.LEADER_CHANGE:
        raise CorruptRecordError(f"a control record of type {kind.name} is no leader change")
    version, leader_id = _unpack(_LEADER_CHANGE, value, "value of a leader change")
    if version > 1:
        raise CorruptRecordError(f"the value of a leader change has version {version}")
    assert value is not None
    skipped = version * _DIRECTORY_ID_SIZE
    voters, position = _read_voters(value, _LEADER_CHANGE.size, skipped)
    granting_voters, _ = _read_voters(value, position, skipped)
    return LeaderChange(leader_id=leader_id, voters=voters, granting_voters=granting_voters)


def _written_voters(voters: tuple[int, ...]) -> bytes:
    count, size = len(voters) + 1, bytearray()
    while count > 127:
        size.append(count & 127 | 128)
        count >>= 7
    size.append(count)
    return bytes(size) + b"".join(_INT32.pack(voter) + _NO_TAGS for voter in voters)


def _read_voters(value: bytes, position: int, skipped: int) -> tuple[tuple[int, ...], int]:
    """The ids of a list and where it ends; `skipped` bytes stand behind each id."""
    count = shift = 0
    voters: list[int] = []
    try:
        while value[position] > 127:
            count |= (value[position] & 127) << shift
            shift += 7
            position += 1
        count |= value[position] << shift
        position += 1
        for _ in range(count - 1):
            end = position + _INT32.size + skipped
            if value[end]:
                raise CorruptRecordError(f"a voter has {value[end]} tagged fields, not 0")
            voters += _INT32.unpack_from(value, position)
            position = end + 1
    except IndexError as error:
        raise CorruptRecordError(
            f"the value of a leader change ends after {len(value)} bytes"
        ) from error
    return tuple(voters), position


def _unpack(struct: Struct, data: bytes | None, name: str) -> tuple[int, int]:
    """The version and the field of the smallest version."""
    if data is None or len(data) < struct.size:
        found = "is null" if data is None else f"has {len(data)} bytes"
        raise CorruptRecordError(f"the {name} {found}, not {struct.size} or more")
    version, field = struct.unpack_from(data)
    if version < 0:
        raise CorruptRecordError(f"the {name} has version {version}")
    return version, field
