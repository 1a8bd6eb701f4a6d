"""Control records: the markers that brokers write between the records of producers.

A control batch has the control bit, one record, and no codec. What the record says:

    key    int16 version (0) | int16 type
    value  of ABORT and COMMIT, the end of a transaction:
           int16 version (0) | int32 epoch of the coordinator that wrote it

The values of the other types belong to Kafka's own metadata topic, and are not read here.

Invariant: a version newer than 0 only adds fields behind those drawn, so it is read as version 0
(KIP-98); a type nobody has defined yet is `UNKNOWN`, which a reader passes over.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from tailrace.records.checks import CorruptRecordError

_KEY: Final = Struct(">hh")
_END_OF_TRANSACTION: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """What a control record is about; the number is in its key."""

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
    """Of the transaction coordinator that wrote it; an older one than the last is a zombie's."""

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


def read_control_type(key: bytes | None) -> ControlType:
    """The type in the key of a control record; `UNKNOWN` for one that is not defined yet.

    Raises:
        CorruptRecordError: there is no key, it is too short, or its version is negative.
    """
    _, number = _unpack(_KEY, key, "key of a control record")
    return _TYPES.get(number, ControlType.UNKNOWN)


def read_end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """The marker that a control record of a transactional batch is.

    Raises:
        CorruptRecordError: the type is neither ABORT nor COMMIT, the key or the value is missing or
            too short, or a version is negative.
    """
    kind = read_control_type(key)
    if kind not in _ENDS:
        raise CorruptRecordError(f"a control record of type {kind.name} ends no transaction")
    _, coordinator_epoch = _unpack(_END_OF_TRANSACTION, value, "value of a transaction marker")
    return EndTransactionMarker(type=kind, coordinator_epoch=coordinator_epoch)


def _unpack(struct: Struct, data: bytes | None, name: str) -> tuple[int, int]:
    """The version and the field of the smallest version."""
    if data is None or len(data) < struct.size:
        found = "is null" if data is None else f"has {len(data)} bytes"
        raise CorruptRecordError(f"the {name} {found}, not {struct.size} or more")
    version, field = struct.unpack_from(data)
    if version < 0:
        raise CorruptRecordError(f"the {name} has version {version}")
    return version, field
