"""Declarations of the fields of messages: wire type, versions, tag and default.

A message is declared as a dataclass, each field once and in wire order. `make messages` writes the
declarations from Apache Kafka's definitions (decision 31):

    topic_id: UUID = wire("uuid", since=10)
    partitions: tuple[Partition, ...] = wire_array(Partition, nullable_since=4)
    current_leader: Leader = wire(Leader, since=10, tag=0, default=Leader())

A class is the superset of all of its versions. A field that a version does not have keeps its
default when that version is decoded, and is left out when it is encoded.

`codec` turns these declarations into functions.

Invariant: every field has a default, so a message of any version can be written with the
fields of that version alone.
"""

from typing import Any, ClassVar, Literal, Protocol, cast
from uuid import UUID

from tailrace.runtime.files import FileSlice
from tailrace.values import dataclass, field, fields, replace

Primitive = Literal[
    "bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid", "string", "bytes",
    "records",
]  # fmt: skip
"""The primitive wire types.

`bytes` and `records` look alike on the wire. `bytes` are decoded as a copy, which may be kept;
`records` as a view of the frame, and they may be encoded from a file.
"""

Buffer = bytes | bytearray | memoryview
"""Bytes in memory; decoders return `records` as a memoryview of the frame."""

Records = Buffer | FileSlice
"""The values of a `records` field; bytes of a file are read when they are sent."""

NO_VERSION = 32_767
"""`flexible_since` of a message that is flexible in no version: the largest number of one."""

NO_UUID = UUID(int=0)
"""The encoding of no id."""

_DEFAULTS: dict[Primitive, object] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": NO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}


def received_records(records: Records | None) -> memoryview:
    """The value of a `records` field that came over the wire, which is always in memory."""
    return memoryview(cast("Buffer", records or b""))


class Message(Protocol):
    """A request, a response or a record: a dataclass of `wire` fields, and its versions."""

    first_version: int
    """First version that Kafka has."""
    last_version: int
    """Last version that Kafka has, included."""
    flexible_since: int
    """First version with compact lengths and tagged fields (KIP-482)."""
    __dataclass_fields__: ClassVar[dict[str, Any]]


class Record(Message, Protocol):
    """The key or the value of a coordinator's record."""

    record_type: int
    """The number in front of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """One field of a message, as declared."""

    name: str = ""
    """The attribute's name: Kafka's name in snake case."""
    type: Primitive | type
    """A primitive, or the dataclass of the element."""
    is_array: bool
    """Whether the field holds a tuple of `type`."""
    since: int
    """First version that has the field."""
    until: int | None
    """Last version that has the field; None: all later ones."""
    nullable_since: int | None
    """First version in which the value may be None."""
    tag: int | None
    """Number of a tagged field; None for all others."""
    default: object
    """The value of the field in versions without it, or if the tag is absent."""

    def is_in(self, version: int) -> bool:
        """Whether this version of the message has the field."""
        return self.since <= version and (self.until is None or version <= self.until)

    @property
    def is_struct(self) -> bool:
        """Whether the value is a dataclass of its own, and no array of them."""
        return not self.is_array and isinstance(self.type, type)

    def is_nullable(self, version: int) -> bool:
        """Whether None is a value of the field in this version."""
        return self.nullable_since is not None and self.nullable_since <= version


def wire(
    kind: Primitive | type,
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: object = ...,
) -> Any:  # noqa: ANN401 - as dataclasses.field: the annotation of the field is its type
    """A dataclass field of wire type `kind`, in the versions `since` to `until`."""
    if default is ...:
        default = _DEFAULTS[kind] if isinstance(kind, str) else kind()
    return _declare(
        WireField(
            type=kind,
            is_array=False,
            since=since,
            until=until,
            nullable_since=nullable_since,
            tag=tag,
            default=default,
        )
    )


def wire_array(
    kind: Primitive | type,
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: tuple[()] | None = (),
) -> Any:  # noqa: ANN401 - as dataclasses.field: the annotation of the field is its type
    """A dataclass field of wire type array of `kind`; its value is a tuple."""
    return _declare(
        WireField(
            type=kind,
            is_array=True,
            since=since,
            until=until,
            nullable_since=nullable_since,
            tag=tag,
            default=default,
        )
    )


def _declare(declared: WireField) -> object:
    return field(default=declared.default, metadata={"wire": declared})


def wire_fields(message: type) -> tuple[WireField, ...]:
    """All fields of a message class or of a class nested in one, in wire order."""
    return tuple(replace(each.metadata["wire"], name=each.name) for each in fields(message))


def fields_in(message: type, version: int) -> tuple[WireField, ...]:
    """The fields of this version in wire order, without the tagged ones."""
    return tuple(f for f in wire_fields(message) if f.is_in(version) and f.tag is None)


def tagged_fields_in(message: type, version: int) -> tuple[WireField, ...]:
    """The tagged fields of this version, by ascending tag."""
    tagged = [(f.tag, f) for f in wire_fields(message) if f.is_in(version) and f.tag is not None]
    return tuple(field for _, field in sorted(tagged, key=lambda pair: pair[0]))
