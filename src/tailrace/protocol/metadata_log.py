"""Read and write the records of Kafka's metadata log, `__cluster_metadata`, and of its snapshots.

    data      value: uvarint 1 | uvarint type | uvarint version | fields        no key
    control   key:   int16 0 | int16 type      value: int16 version | fields

All values are flexible. The fields are in `metadata_records`.

Not here: what the records mean, and the batches that hold them.

Invariant: any bytes are decoded, or refused with a MalformedRecordError or an UnknownRecordError.
As in Kafka, bytes after the last field are refused, and tagged fields that are not known are
ignored. A version that is not known is refused, where Kafka reads it as its newest.
"""

from enum import IntEnum
from functools import cache, lru_cache
from struct import Struct
from typing import Final, NamedTuple, cast

from tailrace.protocol import codec
from tailrace.protocol.errors import (
    MalformedMessageError,
    MalformedRecordError,
    UnknownRecordError,
)
from tailrace.protocol.fields import Buffer, Message, Record
from tailrace.protocol.primitives import read_uvarint, write_uvarint
from tailrace.records.control import ControlType

_FRAME_VERSION: Final = 1
_NUMBERS: Final = 3
"""Bytes of frame, type and version, at the beginning of a value."""
_CONTROL_KEY: Final = Struct(">hh")
_VERSION: Final = Struct(">h")


class MetadataRecordType(IntEnum):
    """The types of data records."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28


CONTROL_TYPES: Final = (
    ControlType.LEADER_CHANGE, ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER,
    ControlType.KRAFT_VERSION, ControlType.VOTERS,
)  # fmt: skip
"""The types of control records in a metadata log and its snapshots."""


class VersionedRecord(NamedTuple):
    """A decoded record, and the version that it was written in."""

    version: int
    record: Message


@cache
def data_class(kind: MetadataRecordType) -> type[Record]:
    """The class of the data records of a type."""
    # Imported with the first record: tools that read no metadata log import this module too.
    from tailrace.protocol import metadata_records

    for found in vars(metadata_records).values():
        if getattr(found, "record_type", None) == kind:
            return cast("type[Record]", found)
    raise AssertionError(f"{kind.name} has no class")


@cache
def control_class(kind: ControlType) -> type[Message]:
    """The class of the values of a type of control records."""
    from tailrace.protocol import metadata_records as records

    return {
        ControlType.LEADER_CHANGE: records.LeaderChangeMessage,
        ControlType.SNAPSHOT_HEADER: records.SnapshotHeaderRecord,
        ControlType.SNAPSHOT_FOOTER: records.SnapshotFooterRecord,
        ControlType.KRAFT_VERSION: records.KRaftVersionRecord,
        ControlType.VOTERS: records.VotersRecord,
    }[kind]


def decode_data(value: Buffer | None) -> VersionedRecord:
    """The data record with this value.

    Raises:
        UnknownRecordError: a frame, a type, or a version of the type, that is not known here.
        MalformedRecordError: the bytes are not such a record, or there are none.
    """
    view = memoryview(value or b"")
    try:
        frame, number, version = view[:_NUMBERS]
        position = _NUMBERS
        # Each is a byte, in all that Kafka has.
        if (frame | number | version) > 0x7F:
            frame, position = read_uvarint(view, 0)
            number, position = read_uvarint(view, position)
            version, position = read_uvarint(view, position)
    except (IndexError, ValueError):
        raise MalformedRecordError(f"a value of {len(view)} bytes ends in its numbers") from None
    except MalformedMessageError as error:
        raise MalformedRecordError(error.rule, position=error.position) from error
    # Kafka has written 1 since 3.0, and reads nothing else; only the preview in 2.8 wrote 0.
    if frame != _FRAME_VERSION:
        raise UnknownRecordError(what="frame version", number=frame)
    found = _class_of(number)
    if found is None:
        raise UnknownRecordError(what="type", number=number)
    return _decode(found, version, view, position=position)


@lru_cache(maxsize=len(MetadataRecordType))
def _class_of(number: int) -> type[Record] | None:
    """The class of the data records with this number; None: there is no such type."""
    try:
        return data_class(MetadataRecordType(number))
    except ValueError:
        return None


def encode_data(record: Record, version: int) -> bytes:
    """The value of a data record.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    out = bytearray(_numbers(record.record_type, version))
    codec.encode(record, version, out)
    return bytes(out)


@cache
def _numbers(record_type: int, version: int) -> bytes:
    """The beginning of a record's value."""
    out = bytearray()
    for number in (_FRAME_VERSION, record_type, version):
        write_uvarint(out, number)
    return bytes(out)


def decode_control(key: Buffer | None, value: Buffer | None) -> VersionedRecord:
    """The control record with this key and value.

    Raises:
        UnknownRecordError: a type, or a version of the type, that is not known here.
        MalformedRecordError: the bytes are not such a record.
    """
    if len(key or b"") != _CONTROL_KEY.size:
        raise MalformedRecordError(
            f"the key of a control record has {len(key or b'')} bytes, not 4"
        )
    number = _CONTROL_KEY.unpack(key or b"")[1]
    kind = ControlType(number) if number in CONTROL_TYPES else None
    if kind is None:
        raise UnknownRecordError(what="control record type", number=number)
    view = memoryview(value or b"")
    if len(view) < _VERSION.size:
        raise MalformedRecordError(f"{kind.name} has {len(view)} bytes, too few for its version")
    return _decode(control_class(kind), _VERSION.unpack_from(view)[0], view, position=0)


def encode_control(kind: ControlType, value: Message, version: int) -> tuple[bytes, bytes]:
    """The key and the value of a control record; the version is its first field too.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    out = bytearray()
    codec.encode(value, version, out)
    return _CONTROL_KEY.pack(0, kind), bytes(out)


def _decode(
    message: type[Message], version: int, view: memoryview, *, position: int
) -> VersionedRecord:
    if not message.first_version <= version <= message.last_version:
        raise UnknownRecordError(what=f"{message.__name__} version", number=version)
    try:
        record, end = codec.decode(message, version, view, position=position)
    except MalformedMessageError as error:
        raise MalformedRecordError(error.rule, position=error.position) from error
    if end != len(view):
        raise MalformedRecordError(
            f"{message.__name__} has {len(view) - end} bytes after its last field", position=end
        )
    return VersionedRecord(version, record)
