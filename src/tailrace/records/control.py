"""Control records: the markers that brokers write between the records of producers.

A control batch has the control bit and no codec; one of a transaction has one record:

    key    int16 version (0) | int16 type
    value  of ABORT and COMMIT, the end of a transaction:
           int16 version (0) | int32 epoch of the coordinator that wrote it

A marker belongs to the producer and the transaction of its batch. The other types belong to Kafka's
metadata log; `protocol.metadata_log` reads their values.

Invariant: a newer version of a key or a marker only adds fields after those drawn, so it is read as
version 0 (KIP-98). A type that is not defined yet is read as `UNKNOWN`, which readers skip.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

from tailrace.records.batch import Batch
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.checks import CorruptRecordError
from tailrace.values import dataclass

_KEY: Final = Struct(">hh")
_END_OF_TRANSACTION: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """Type of a control record; the number is in its key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    VOTERS = 6


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


def read_control_type(key: bytes | None) -> ControlType:
    """The type in the key of a control record; `UNKNOWN` for one that is not defined yet.

    Raises:
        CorruptRecordError: there is no key, it is too short, or its version is negative.
    """
    _, number = _unpack(_KEY, key, "key of a control record")
    # Kafka's clients skip what they do not know too, or a new broker would stop old readers.
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
    # Compaction keeps the emptied batch of a marker for its producer's epoch, which fences.
    if batch.record_count == 0:
        return None
    # A batch of the metadata log may have several records; those that end a transaction have one.
    record = next(records_of(batch))
    if read_control_type(record.key) not in _ENDS:
        return None
    return read_end_transaction_marker(record.key, record.value)


def _unpack(struct: Struct, data: bytes | None, name: str) -> tuple[int, int]:
    """The version and the field of the smallest version."""
    # Not `!=`: as in Kafka, newer versions may add fields and remove none.
    if data is None or len(data) < struct.size:
        found = "is null" if data is None else f"has {len(data)} bytes"
        raise CorruptRecordError(f"the {name} {found}, not {struct.size} or more")
    version, field = struct.unpack_from(data)
    if version < 0:
        raise CorruptRecordError(f"the {name} has version {version}")
    return version, field
