"""The type of a column, and how Arrow takes its values, for a schema of each kind.

Avro:

    null, boolean, int, long         null, bool, int32, int64
    float, double                    float, double
    string, enum, uuid               string
    bytes, fixed                     binary
    decimal                          decimal128; decimal as text above 38 digits
    date                             date32
    timestamp-millis, -micros        timestamp[us, tz=UTC]
    local-timestamp-millis, -micros  timestamp[us]
    time-millis, time-micros         int32, int64: as they are stored
    array, map, record               list, map, struct
    union of null and one type       that type
    other unions, recursive records  string: JSON

JSON Schema:

    string, integer, number, boolean           string, int64, double, bool
    array with items of one schema             list
    object with properties                     struct; other properties are left out
    object with additionalProperties only      map
    a type or null, as ["string", "null"]      that type
    all else, and what contains itself         string: JSON

Protobuf, whose fields have the names of the schema:

    bool, int32 and the like, int64 and the like   bool, int32, int64
    uint32, uint64                                 int64, decimal128(20, 0)
    float, double, string, bytes                   float, double, string, binary
    enum                                           string: its name, or its number where it has none
    message, repeated, map                         struct, list, map
    google.protobuf.Timestamp                      timestamp[us, tz=UTC]
    Google's wrappers, as StringValue              the type within
    Google's other types, recursive messages       string: JSON

A field that was not set is null where the schema can tell: messages, `optional`, `oneof`.

Needs PyArrow.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from tailrace.schemas.errors import SchemaError
from tailrace.schemas.shown import as_json

if TYPE_CHECKING:
    from tailrace.schemas.json_schema import KnownSchemas

Convert: TypeAlias = Callable[[Any], Any]
Descriptor: TypeAlias = Any

FIELDS_MAX: Final = 10_000
"""Most fields of a column's type, with those within others."""


class TypePlan(NamedTuple):
    """The type of a column, or of a part of it, and how Arrow takes its values."""

    type: pa.DataType
    convert: Convert | None = None
    """Makes what Arrow takes of a decoded value that is not None; None: Arrow takes it as it is."""


class FieldBudget:
    """Counts the fields of a type, which a schema that repeats its parts can multiply."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def take(self, count: int) -> None:
        """Count some fields.

        Raises:
            SchemaError: there are too many.
        """
        self._left -= count
        if self._left < 0:
            raise SchemaError(f"the type of the column has more than {FIELDS_MAX} fields")


def struct_of(fields: dict[str, TypePlan], get: Callable[[Any, str], Any]) -> TypePlan:
    """The plan of an object with these fields; `get` gives a field of a value, or None."""
    kind = pa.struct([(name, plan.type) for name, plan in fields.items()])
    converts = [(name, plan.convert) for name, plan in fields.items()]

    def convert(value: Any) -> dict[str, Any]:  # noqa: ANN401
        row = {}
        for name, change in converts:
            each = get(value, name)
            row[name] = each if change is None or each is None else change(each)
        return row

    return TypePlan(kind, convert)


def list_of(items: TypePlan) -> TypePlan:
    """The plan of a list."""
    change = items.convert
    if change is None:
        return TypePlan(pa.list_(items.type))
    return TypePlan(
        pa.list_(items.type),
        lambda value: [None if each is None else change(each) for each in value],
    )


def map_of(values: TypePlan) -> TypePlan:
    """The plan of a mapping with texts as keys."""
    change = values.convert
    if change is None:
        return TypePlan(pa.map_(pa.string(), values.type), lambda value: list(value.items()))
    return TypePlan(
        pa.map_(pa.string(), values.type),
        lambda value: [
            (name, None if each is None else change(each)) for name, each in value.items()
        ],
    )


def as_text(value: object) -> str:
    """A value as JSON."""
    return json.dumps(as_json(value), ensure_ascii=False)


def _as_json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_TEXT: Final = TypePlan(pa.string(), as_text)
_JSON_TEXT: Final = TypePlan(pa.string(), _as_json_text)
# Spark has microseconds, so those of milliseconds get them as well.
_UTC: Final = pa.timestamp("us", tz="UTC")

# Avro

_AVRO_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_AVRO_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
# Most digits of a decimal in Spark and of decimal128 in Arrow.
_DECIMAL_DIGITS_MAX: Final = 38


def plan_avro(schema: object, named: Mapping[str, Any]) -> TypePlan:
    """The column of a schema that fastavro has parsed.

    Raises:
        SchemaError: it has more fields than a table should.
    """
    return _plan_avro(schema, named, above=(), budget=FieldBudget())


def _plan_avro(
    schema: object, named: Mapping[str, Any], *, above: tuple[str, ...], budget: FieldBudget
) -> TypePlan:
    match schema:
        case str() if schema in _AVRO_PRIMITIVES:
            return TypePlan(_AVRO_PRIMITIVES[schema])
        # Neither Arrow nor Spark has types that contain themselves.
        case str() if schema in above:
            return _TEXT
        case str():
            return _plan_avro(named[schema], named, above=above, budget=budget)
        case list():
            branches = [each for each in schema if each != "null"]
            if not branches:
                return TypePlan(pa.null())
            return (
                _plan_avro(branches[0], named, above=above, budget=budget)
                if len(branches) == 1
                else _TEXT
            )
        case {"type": "record" | "error", "name": str(name)} if name in above:
            return _TEXT
        case {"type": "record" | "error", "name": str(name), "fields": fields}:
            budget.take(len(fields) + 1)
            plans = {
                str(each["name"]): _plan_avro(
                    each["type"], named, above=(*above, name), budget=budget
                )
                for each in fields
            }
            return struct_of(plans, dict.get)
        case {"type": "array", "items": items}:
            return list_of(_plan_avro(items, named, above=above, budget=budget))
        case {"type": "map", "values": values}:
            return map_of(_plan_avro(values, named, above=above, budget=budget))
        case {
            "type": "bytes" | "fixed",
            "logicalType": "decimal",
            "precision": int(precision),
            **more,
        }:
            if precision > _DECIMAL_DIGITS_MAX:
                return TypePlan(pa.string(), str)
            return TypePlan(pa.decimal128(precision, int(str(more.get("scale", 0)))))
        case {"type": str(kind), "logicalType": str(logical)} if (kind, logical) in _AVRO_LOGICAL:
            return TypePlan(_AVRO_LOGICAL[kind, logical])
        case {"type": "enum"}:
            return TypePlan(pa.string())
        case {"type": "fixed"}:
            return TypePlan(pa.binary())
        case {"type": inner}:
            return _plan_avro(inner, named, above=above, budget=budget)
        case _:
            raise SchemaError(f"the schema has an unknown type: {str(schema)[:80]!r}")


# JSON Schema


# From draft 6 on a number without a fraction is an integer, so 1.0 is valid.
def _as_integer(value: object) -> object:
    """JSON Schema takes 1.0 for an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


_JSON_PRIMITIVES: Final = {
    "string": TypePlan(pa.string()),
    "integer": TypePlan(pa.int64(), _as_integer),
    "number": TypePlan(pa.float64(), float),
    "boolean": TypePlan(pa.bool_()),
    "null": TypePlan(pa.null()),
}
# Branches may say another type, or narrow it; a column has one type for all of them.
_JSON_MIXED: Final = ("oneOf", "anyOf", "allOf", "not", "if", "patternProperties", "prefixItems")
"""Keywords under which the type is not the one beside them."""


class _Place(NamedTuple):
    """The document that a part of a schema is in, where its references begin."""

    uri: str
    root: object


def plan_json(schemas: "KnownSchemas") -> TypePlan:
    """The column of a schema.

    Raises:
        SchemaError: it has more fields than a table should.
    """
    root = schemas.root
    return _JsonPlanner(schemas).plan(root, _Place(schemas.base, root), ())


class _JsonPlanner:
    def __init__(self, schemas: "KnownSchemas") -> None:
        # Not at the top: it needs a package that only columns of JSON Schema do.
        from tailrace.schemas.json_schema import joined

        self._joined = joined
        self._schemas = schemas
        self._budget = FieldBudget()

    def plan(self, schema: object, place: _Place, above: tuple[int, ...]) -> TypePlan:
        """The plan of a schema; `above` are the identities of those that it is within."""
        schema, place, above = self._followed(schema, place, above)
        if not isinstance(schema, dict) or id(schema) in above:
            return _JSON_TEXT
        within = (*above, id(schema))
        kind = self._kind(schema)
        if kind in _JSON_PRIMITIVES:
            return _JSON_PRIMITIVES[kind]
        if kind == "array" and isinstance(schema.get("items"), dict):
            return list_of(self.plan(schema["items"], place, within))
        properties = schema.get("properties")
        if kind == "object" and isinstance(properties, dict) and properties:
            self._budget.take(len(properties) + 1)
            return struct_of(
                {name: self.plan(each, place, within) for name, each in properties.items()},
                _property,
            )
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return map_of(self.plan(schema["additionalProperties"], place, within))
        return _JSON_TEXT

    def _followed(
        self, schema: object, place: _Place, above: tuple[int, ...]
    ) -> tuple[object, _Place, tuple[int, ...]]:
        """The schema that a reference leads to, and its place."""
        while isinstance(schema, dict):
            own = schema.get("$id")
            # In drafts 6 and 7 an `$id` of a fragment alone is an anchor, and moves no base.
            if isinstance(own, str) and not own.startswith("#"):
                place = _Place(self._joined(place.uri, own), schema)
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            if id(schema) in above:
                return None, place, above
            above = (*above, id(schema))
            document, _, pointer = reference.partition("#")
            if document:
                uri = self._joined(place.uri, document)
                try:
                    place = _Place(uri, self._schemas.find(uri))
                except LookupError:
                    # A part of a document may have a URI of its own, which is not looked for.
                    return None, place, above
            schema = _pointed(place.root, unquote(pointer))
        return schema, place, above

    def _kind(self, schema: Mapping[str, Any]) -> str:
        """The type that all values but null have; empty if there are several."""
        if any(each in schema for each in _JSON_MIXED):
            return self._nullable_kind(schema)
        kind = schema.get("type")
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            kind = others[0] if len(others) == 1 else ""
        return kind if isinstance(kind, str) else ""

    def _nullable_kind(self, schema: Mapping[str, Any]) -> str:
        """The type of `oneOf` null and one primitive type, as generators write it."""
        for keyword in ("oneOf", "anyOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and len(schema.keys() & set(_JSON_MIXED)) == 1:
                kinds = [each.get("type") for each in branches if isinstance(each, dict)]
                others = [each for each in kinds if each != "null"]
                if len(kinds) == len(branches) == len(others) + 1 and others[0:1] != [None]:
                    found = others[0] if len(others) == 1 else ""
                    return found if isinstance(found, str) and found in _JSON_PRIMITIVES else ""
        return ""


def _property(value: object, name: str) -> object:
    # Without a `type` a schema takes values that are no objects.
    if not isinstance(value, dict):
        raise TypeError(f"{json.dumps(value)[:80]} is no object with a field {name}")
    return value.get(name)


def _pointed(schema: object, pointer: str) -> object:
    """The part that a JSON pointer leads to; None where it leads nowhere, or is an anchor."""
    if pointer and not pointer.startswith("/"):
        return None
    for part in pointer.split("/")[1:]:
        # In this order, by RFC 6901: the other way round "~01", which is "~1", would become "/".
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, dict):
            return None
        schema = schema.get(name)
    return schema


# Protobuf

_GOOGLE: Final = "google.protobuf."
_TIMESTAMP: Final = f"{_GOOGLE}Timestamp"
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in (
        "Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64",
    )
)  # fmt: skip

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP = range(1, 11)
_MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(11, 19)
"""Types of fields, as descriptor.proto numbers them."""

# Spark has no unsigned types: 32 bits go into a long, 64 bits into a decimal of 20 digits.
_UNSIGNED: Final = TypePlan(pa.decimal128(20, 0), Decimal)
_PROTOBUF_SCALARS: Final = {
    **dict.fromkeys((_INT32, _SINT32, _SFIXED32), TypePlan(pa.int32())),
    **dict.fromkeys((_INT64, _SINT64, _SFIXED64, _UINT32, _FIXED32), TypePlan(pa.int64())),
    **dict.fromkeys((_UINT64, _FIXED64), _UNSIGNED),
    _DOUBLE: TypePlan(pa.float64()),
    _FLOAT: TypePlan(pa.float32()),
    _BOOL: TypePlan(pa.bool_()),
    _STRING: TypePlan(pa.string()),
    _BYTES: TypePlan(pa.binary()),
}


def _microseconds(timestamp: Any) -> int:  # noqa: ANN401 - protobuf is untyped
    # Nanoseconds count forward before 1970 too, so this rounds down for every time.
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1000)


def plan_protobuf(descriptor: Descriptor) -> TypePlan:
    """The column of a message.

    Raises:
        SchemaError: it has more fields than a table should.
    """
    return _plan_message(descriptor, (), FieldBudget())


def _plan_message(descriptor: Descriptor, above: tuple[str, ...], budget: FieldBudget) -> TypePlan:
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return TypePlan(_UTC, _microseconds)
    if name in _WRAPPERS:
        inner = _plan_single(descriptor.fields_by_name["value"], above, budget)
        change = inner.convert
        return TypePlan(
            inner.type,
            # A wrapper exists to tell null from 0: whether the message is there says which.
            (lambda value: value.value) if change is None else lambda value: change(value.value),
        )
    if name in above or name.startswith(_GOOGLE):
        return _TEXT
    budget.take(len(descriptor.fields) + 1)
    plans = {each.name: _plan_field(each, (*above, name), budget) for each in descriptor.fields}
    kind = pa.struct([(field, plan.type) for field, (plan, _) in plans.items()])

    def convert(message: Any) -> dict[str, Any]:  # noqa: ANN401
        row: dict[str, Any] = {}
        for field, (plan, has_presence) in plans.items():
            if has_presence and not message.HasField(field):
                row[field] = None
                continue
            each = getattr(message, field)
            row[field] = each if plan.convert is None else plan.convert(each)
        return row

    return TypePlan(kind, convert)


def _plan_field(
    field: Descriptor, above: tuple[str, ...], budget: FieldBudget
) -> tuple[TypePlan, bool]:
    """The plan of a field, and whether a field that was not set is known as such."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        keys = _plan_single(entry.fields_by_name["key"], above, budget)
        values = _plan_single(entry.fields_by_name["value"], above, budget)
        to_key, to_value = _converter(keys), _converter(values)
        return (
            TypePlan(
                pa.map_(keys.type, values.type),
                lambda found: [(to_key(key), to_value(each)) for key, each in found.items()],
            ),
            False,
        )
    plan = _plan_single(field, above, budget)
    if field.is_repeated:
        change = _converter(plan)
        return TypePlan(pa.list_(plan.type), lambda found: [change(each) for each in found]), False
    return plan, bool(field.has_presence)


def _plan_single(field: Descriptor, above: tuple[str, ...], budget: FieldBudget) -> TypePlan:
    """The plan of one value of a field."""
    if field.type == _ENUM:
        # Enums of proto3 are open: a number that a newer schema added is kept by readers.
        names = {each.number: each.name for each in field.enum_type.values}
        return TypePlan(pa.string(), lambda number: names.get(number, str(number)))
    # A group of proto2 differs from a message in its bytes alone.
    if field.type in {_MESSAGE, _GROUP}:
        return _plan_message(field.message_type, above, budget)
    return _PROTOBUF_SCALARS[field.type]


def _converter(plan: TypePlan) -> Callable[[Any], Any]:
    return plan.convert or (lambda value: value)
