"""The column of a message of Protobuf; fields have the names of the schema.

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
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tailrace.schemas.columns import FieldBudget, TypePlan
from tailrace.schemas.shown import as_json

Descriptor: TypeAlias = Any

_GOOGLE: Final = "google.protobuf."
_TIMESTAMP: Final = f"{_GOOGLE}Timestamp"
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in (
        "Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64",
    )
)  # fmt: skip
_UTC: Final = pa.timestamp("us", tz="UTC")

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP = range(1, 11)
_MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(11, 19)
"""Types of fields, as descriptor.proto numbers them."""

_UNSIGNED: Final = TypePlan(pa.decimal128(20, 0), Decimal)
_SCALARS: Final = {
    **dict.fromkeys((_INT32, _SINT32, _SFIXED32), TypePlan(pa.int32())),
    **dict.fromkeys((_INT64, _SINT64, _SFIXED64, _UINT32, _FIXED32), TypePlan(pa.int64())),
    **dict.fromkeys((_UINT64, _FIXED64), _UNSIGNED),
    _DOUBLE: TypePlan(pa.float64()),
    _FLOAT: TypePlan(pa.float32()),
    _BOOL: TypePlan(pa.bool_()),
    _STRING: TypePlan(pa.string()),
    _BYTES: TypePlan(pa.binary()),
}


def _as_text(message: object) -> str:
    return json.dumps(as_json(message), ensure_ascii=False)


def _microseconds(timestamp: Any) -> int:  # noqa: ANN401 - protobuf is untyped
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1000)


_TEXT: Final = TypePlan(pa.string(), _as_text)


def plan_protobuf(descriptor: Descriptor) -> TypePlan:
    """The column of a message.

    Raises:
        SchemaError: it has more fields than a table should.
    """
    return _message(descriptor, (), FieldBudget())


def _message(descriptor: Descriptor, above: tuple[str, ...], budget: FieldBudget) -> TypePlan:
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return TypePlan(_UTC, _microseconds)
    if name in _WRAPPERS:
        inner = _single(descriptor.fields_by_name["value"], above, budget)
        change = inner.convert
        return TypePlan(
            inner.type,
            (lambda value: value.value) if change is None else lambda value: change(value.value),
        )
    if name in above or name.startswith(_GOOGLE):
        return _TEXT
    budget.take(len(descriptor.fields) + 1)
    plans = {each.name: _field(each, (*above, name), budget) for each in descriptor.fields}
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


def _field(field: Descriptor, above: tuple[str, ...], budget: FieldBudget) -> tuple[TypePlan, bool]:
    """The plan of a field, and whether it can be told that it was not set."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        keys = _single(entry.fields_by_name["key"], above, budget)
        values = _single(entry.fields_by_name["value"], above, budget)
        to_key, to_value = _converter(keys), _converter(values)
        return (
            TypePlan(
                pa.map_(keys.type, values.type),
                lambda found: [(to_key(key), to_value(each)) for key, each in found.items()],
            ),
            False,
        )
    plan = _single(field, above, budget)
    if field.is_repeated:
        change = _converter(plan)
        return TypePlan(pa.list_(plan.type), lambda found: [change(each) for each in found]), False
    return plan, bool(field.has_presence)


def _single(field: Descriptor, above: tuple[str, ...], budget: FieldBudget) -> TypePlan:
    """The plan of one value of a field."""
    if field.type == _ENUM:
        names = {each.number: each.name for each in field.enum_type.values}
        return TypePlan(pa.string(), lambda number: names.get(number, str(number)))
    if field.type in {_MESSAGE, _GROUP}:
        return _message(field.message_type, above, budget)
    return _SCALARS[field.type]


def _converter(plan: TypePlan) -> Callable[[Any], Any]:
    return plan.convert or (lambda value: value)
