"""The column of an Avro schema.

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

Needs PyArrow.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from tailrace.schemas.columns import FieldBudget, TypePlan, list_of, map_of, struct_of
from tailrace.schemas.errors import SchemaError
from tailrace.schemas.shown import as_json

_UTC: Final = pa.timestamp("us", tz="UTC")
_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_DECIMAL_DIGITS_MAX: Final = 38


def plan_avro(schema: object, named: Mapping[str, Any]) -> TypePlan:
    """The column of a schema that fastavro has parsed.

    Raises:
        SchemaError: it has more fields than a table should.
    """
    return _plan(schema, named, above=(), budget=FieldBudget())


def as_text(value: object) -> str:
    """A value as JSON."""
    return json.dumps(as_json(value), ensure_ascii=False)


_TEXT: Final = TypePlan(pa.string(), as_text)


def _plan(
    schema: object, named: Mapping[str, Any], *, above: tuple[str, ...], budget: FieldBudget
) -> TypePlan:
    match schema:
        case str() if schema in _PRIMITIVES:
            return TypePlan(_PRIMITIVES[schema])
        case str() if schema in above:
            return _TEXT
        case str():
            return _plan(named[schema], named, above=above, budget=budget)
        case list():
            branches = [each for each in schema if each != "null"]
            if not branches:
                return TypePlan(pa.null())
            return (
                _plan(branches[0], named, above=above, budget=budget)
                if len(branches) == 1
                else _TEXT
            )
        case {"type": "record" | "error", "name": str(name)} if name in above:
            return _TEXT
        case {"type": "record" | "error", "name": str(name), "fields": fields}:
            budget.take(len(fields) + 1)
            plans = {
                str(each["name"]): _plan(each["type"], named, above=(*above, name), budget=budget)
                for each in fields
            }
            return struct_of(plans, dict.get)
        case {"type": "array", "items": items}:
            return list_of(_plan(items, named, above=above, budget=budget))
        case {"type": "map", "values": values}:
            return map_of(_plan(values, named, above=above, budget=budget))
        case {
            "type": "bytes" | "fixed",
            "logicalType": "decimal",
            "precision": int(precision),
            **more,
        }:
            if precision > _DECIMAL_DIGITS_MAX:
                return TypePlan(pa.string(), str)
            return TypePlan(pa.decimal128(precision, int(str(more.get("scale", 0)))))
        case {"type": str(kind), "logicalType": str(logical)} if (kind, logical) in _LOGICAL:
            return TypePlan(_LOGICAL[kind, logical])
        case {"type": "enum"}:
            return TypePlan(pa.string())
        case {"type": "fixed"}:
            return TypePlan(pa.binary())
        case {"type": inner}:
            return _plan(inner, named, above=above, budget=budget)
        case _:
            raise SchemaError(f"the schema has a type that is none: {str(schema)[:80]!r}")
