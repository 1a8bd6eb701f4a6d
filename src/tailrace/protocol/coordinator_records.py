"""Read and write the records of coordinators: `__consumer_offsets` and `__transaction_state`.

    key     int16 type    | fields, which are never flexible
    value   int16 version | fields; a null value is a tombstone: the key is gone

The type says which key and which value it is. What their fields are is in `records`.

Not here: what the records mean, and the batches that hold them.

Invariant: any bytes are decoded, or refused with a MalformedRecordError or an UnknownRecordError.
Bytes after the last field are ignored, as in Kafka.
"""

from enum import IntEnum
from functools import cache
from struct import Struct
from typing import Generic, NamedTuple, TypeVar, cast

from tailrace.protocol import codec
from tailrace.protocol.errors import (
    MalformedMessageError,
    MalformedRecordError,
    UnknownRecordError,
)
from tailrace.protocol.fields import Buffer, Record

R = TypeVar("R", bound=Record)
T = TypeVar("T", bound="RecordType")

_NUMBER = Struct(">h")


class RecordType(IntEnum):
    """The types of records in one internal topic."""


class GroupRecordType(RecordType):
    """The types of records in `__consumer_offsets`, without those of share and streams groups."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16


class TransactionRecordType(RecordType):
    """The types of records in `__transaction_state`."""

    TRANSACTION_LOG = 0


class Versioned(NamedTuple, Generic[R]):
    """A decoded value, and the version that it was written in."""

    version: int
    value: R


def key_class(kind: RecordType) -> type[Record]:
    """The class of the keys of a type."""
    return _class_of(kind.name, "Key")


def value_class(kind: RecordType) -> type[Record]:
    """The class of the values of a type."""
    return _class_of(kind.name, "Value")


@cache  # By name: as numbers, types of different topics are equal.
def _class_of(name: str, part: str) -> type[Record]:
    # Imported with the first record: a broker without groups never needs it.
    from tailrace.protocol import records

    title = "".join(word.capitalize() for word in name.split("_"))
    return cast("type[Record]", getattr(records, title + part))


def record_type(kinds: type[T], key: Buffer | None) -> T:
    """The type of the record with this key.

    Raises:
        UnknownRecordError: the topic has no such type here.
        MalformedRecordError: there is no key, or it has one byte.
    """
    number = _number(key or b"", "a key")
    try:
        return kinds(number)
    except ValueError:
        raise UnknownRecordError(what="key type", number=number) from None


def prepare_records(kind: RecordType, value_version: int) -> None:
    """Import a type of records, and make what encodes and decodes them, on the caller's thread."""
    codec.prepare(key_class(kind), 0)
    codec.prepare(value_class(kind), value_version)


def decode_key(message: type[R], key: Buffer) -> R:
    """A key of the class for its type.

    Raises:
        MalformedRecordError: the bytes are not such a key.
    """
    return _decode(message, 0, key)


def decode_value(message: type[R], value: Buffer) -> Versioned[R]:
    """A value of the class for its type, which is no tombstone.

    Raises:
        UnknownRecordError: of a version that is not known here.
        MalformedRecordError: the bytes are not of that version.
    """
    version = _number(value, message.__name__)
    if not message.first_version <= version <= message.last_version:
        raise UnknownRecordError(what=f"{message.__name__} version", number=version)
    return Versioned(version, _decode(message, version, value))


def encode_key(key: Record) -> bytes:
    """The bytes of a key, with its type in front.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    out = bytearray(_NUMBER.pack(key.record_type))
    codec.encode(key, 0, out)
    return bytes(out)


def encode_value(value: Record, version: int) -> bytes:
    """The bytes of a value, with its version in front.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    out = bytearray(_NUMBER.pack(version))
    codec.encode(value, version, out)
    return bytes(out)


def _number(data: Buffer, what: str) -> int:
    if len(data) < _NUMBER.size:
        raise MalformedRecordError(f"{what} has {len(data)} bytes, too few for its first number")
    return int(_NUMBER.unpack_from(data)[0])


def _decode(message: type[R], version: int, data: Buffer) -> R:
    try:
        return codec.decode(message, version, memoryview(data), position=_NUMBER.size)[0]
    except MalformedMessageError as error:
        raise MalformedRecordError(error.rule, position=error.position) from error
