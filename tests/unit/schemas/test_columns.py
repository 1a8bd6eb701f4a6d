"""Columns of decoded values: the types of the schema, and a null for each value at fault."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.schemas import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegistryUnavailableError,
    Schema,
    SchemaError,
    SchemaRegistry,
    SchemaType,
)
from tailrace.schemas.columns import ColumnDecoder
from tailrace.schemas.formats import FORMATS, Decoding, with_latest
from tailrace.schemas.schema import ResolvedSchema
from tailrace.testing.registry import TestRegistry
from tests.unit.schemas.samples import AVRO, FLIGHT_VALUE, JSON, PERSON_VALUE, PROTO

UTC_TIME = pa.timestamp("us", tz="UTC")


ANYTHING = True


def plain(schema: Schema, message: str | None = None) -> ColumnDecoder:
    """The decoder of plain values of a schema."""
    return ColumnDecoder(
        Decoding(
            form=FORMATS[f"plain-{schema.type.value.lower()}"],
            schema=ResolvedSchema(schema=schema),
            message=message,
        )
    )


def avro(schema: Any) -> Schema:
    """An Avro schema given as JSON."""
    return Schema(type=SchemaType.AVRO, text=json.dumps(schema))


def json_schema(schema: Any) -> Schema:
    """A JSON Schema given as JSON."""
    return Schema(type=SchemaType.JSON, text=json.dumps(schema))


def test_a_column_of_avro_has_its_types() -> None:
    """Decimals, times and dates are Arrow's; UUIDs are text."""
    decoder = plain(AVRO)
    assert decoder.type == pa.struct(
        [
            ("number", pa.int32()), ("carrier", pa.string()), ("fare", pa.decimal128(9, 2)),
            ("departed", UTC_TIME), ("day", pa.date32()), ("id", pa.string()),
            ("stops", pa.list_(pa.string())), ("seats", pa.map_(pa.string(), pa.int32())),
        ]
    )  # fmt: skip
    data = AvroSerializer(schema=AVRO)(FLIGHT_VALUE)
    column, bad = decoder.decode(pa.array([data, None], pa.binary()))
    expected = FLIGHT_VALUE | {"id": str(FLIGHT_VALUE["id"]), "seats": [("first", 8)]}
    assert (column.to_pylist(), bad) == ([expected, None], [])


def test_a_column_of_json_has_its_types() -> None:
    """A part that may be of any type is JSON as text."""
    decoder = plain(JSON)
    assert decoder.type == pa.struct(
        [
            ("name", pa.string()), ("age", pa.int64()), ("tags", pa.list_(pa.string())),
            ("home", pa.struct([("city", pa.string())])),
            ("scores", pa.map_(pa.string(), pa.float64())), ("any", pa.string()),
        ]
    )  # fmt: skip
    value = PERSON_VALUE | {"scores": {"a": 1}, "any": [1, "x"]}
    column, bad = decoder.decode(pa.array([JsonSchemaSerializer(schema=JSON)(value)], pa.binary()))
    assert column.to_pylist() == [value | {"scores": [("a", 1.0)], "any": '[1, "x"]'}]
    assert bad == []


def test_a_column_of_protobuf_has_its_types() -> None:
    """A field that was not set is null where that can be told, and its default elsewhere."""
    decoder = plain(PROTO, "Flight")
    assert decoder.type == pa.struct(
        [
            ("number", pa.int32()), ("carrier", pa.string()), ("state", pa.string()),
            ("departed", UTC_TIME), ("legs", pa.list_(pa.struct([("to", pa.string())]))),
            ("seats", pa.map_(pa.string(), pa.int64())), ("big", pa.decimal128(20, 0)),
            ("note", pa.string()), ("next", pa.string()), ("raw", pa.binary()),
        ]
    )  # fmt: skip
    value = {
        "number": 17, "state": "FLOWN", "departed": "2013-01-01T05:17:00.5Z", "note": "x",
        "legs": [{"to": "IAH"}], "seats": {"first": 8}, "big": 2**64 - 1, "next": {"number": 18},
    }  # fmt: skip
    data = ProtobufSerializer(schema=PROTO, message="Flight")(value)
    column, bad = decoder.decode(pa.array([data, b""], pa.binary()))
    assert bad == []
    first, empty = column.to_pylist()
    assert first == {
        "number": 17, "carrier": None, "state": "FLOWN", "raw": b"", "note": "x",
        "departed": datetime(2013, 1, 1, 5, 17, 0, 500_000, tzinfo=UTC), "legs": [{"to": "IAH"}],
        "seats": [("first", 8)], "big": Decimal(2**64 - 1), "next": '{"number": 18}',
    }  # fmt: skip
    assert (empty["number"], empty["departed"], empty["state"]) == (0, None, "UNKNOWN")


@pytest.mark.parametrize(
    ("schema", "kind", "value"),
    [
        (avro("string"), pa.string(), "x"),
        (avro(["null", "long"]), pa.int64(), 5),
        (avro(["int", "string"]), pa.string(), "5"),
        (avro({"type": "array", "items": ["null", "int"]}), pa.list_(pa.int32()), [1, None]),
        (avro({"type": "int", "logicalType": "time-millis"}), pa.int32(), 7),
        (avro({"type": "fixed", "name": "F", "size": 2}), pa.binary(), b"ab"),
        (avro({"type": "enum", "name": "E", "symbols": ["A"]}), pa.string(), "A"),
        (avro({"type": "bytes", "logicalType": "decimal", "precision": 40}), pa.string(), "7"),
        (json_schema({"type": "integer"}), pa.int64(), 5),
        (json_schema({"oneOf": [{"type": "null"}, {"type": "number"}]}), pa.float64(), 1.5),
        (json_schema({"oneOf": [{"type": "string"}, {"type": "number"}]}), pa.string(), "1.5"),
        (json_schema({"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}),
         pa.string(), "x"),
        (json_schema({"$ref": "#/definitions/none~1here"}), None, None),
        (json_schema(ANYTHING), pa.string(), "true"),
    ],
)  # fmt: skip
def test_single_types_have_their_columns(schema: Schema, kind: Any, value: Any) -> None:
    """Also those that are no record."""
    if kind is None:
        with pytest.raises(SchemaError):
            plain(schema)
        return
    decoder = plain(schema)
    assert decoder.type == kind
    stored = {"5": 5, "7": Decimal(7), "1.5": 1.5, "true": True}.get(value, value) if (
        kind == pa.string()
    ) else value  # fmt: skip
    serializer = AvroSerializer if schema.type is SchemaType.AVRO else JsonSchemaSerializer
    data = serializer(schema=schema)(stored)
    column, bad = decoder.decode(pa.array([data], pa.binary()))
    assert (column.to_pylist(), bad) == ([value], [])


def test_records_within_themselves_are_json() -> None:
    """From the second level on."""
    node = {
        "type": "record", "name": "N",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "N"]}],
    }  # fmt: skip
    decoder = plain(avro(node))
    assert decoder.type == pa.struct([("n", pa.int32()), ("next", pa.string())])
    data = AvroSerializer(schema=avro(node))({"n": 1, "next": {"n": 2, "next": None}})
    column, _ = decoder.decode(pa.array([data], pa.binary()))
    assert column.to_pylist() == [{"n": 1, "next": '{"n": 2, "next": null}'}]
    tree = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    assert plain(json_schema(tree)).type == pa.struct([("a", pa.string())])


def test_a_value_at_fault_is_null_and_its_neighbours_stay() -> None:
    """Bytes that are no value, and a value that is too large for its column."""
    decoder = plain(json_schema({"type": "integer"}))
    column, bad = decoder.decode(pa.array([b"1", b"x", None, b"9" * 30, b"2.0"], pa.binary()))
    assert column.to_pylist() == [1, None, None, None, 2]
    assert [each.row for each in bad] == [1, 3]
    assert "no value of the JSON Schema" in bad[0].reason
    assert "no place in its column" in bad[1].reason


def test_values_of_all_versions_are_read_as_the_latest(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """The registry is asked once for each id, and unknown ids are faults of their values."""

    def record(*fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": "F", "fields": fields})

    number, gate = {"name": "n", "type": "int"}, {"name": "g", "type": "string", "default": "?"}
    old = AvroSerializer(registry, record(number), topic="a")({"n": 1})
    new = AvroSerializer(registry, record(number, gate), topic="a")({"n": 2, "g": "B"})
    decoding = with_latest(
        Decoding(form=FORMATS["avro"], registry={"schema.registry.url": double.url}), "a-value"
    )
    decoder = ColumnDecoder(decoding)
    asked = len(double.requests)
    column, bad = decoder.decode(pa.array([old, new, old, b"\0\0\0\0\x63x"] * 50, pa.binary()))
    assert column.to_pylist()[:4] == [
        {"n": 1, "g": "?"}, {"n": 2, "g": "B"}, {"n": 1, "g": "?"}, None,
    ]  # fmt: skip
    assert len(bad) == 50
    assert len(double.requests) == asked + 3


def test_a_registry_that_is_away_stops_the_column(double: TestRegistry) -> None:
    """A null would hide values that are sound."""
    double.add("a-value", '"int"')
    settings = {"schema.registry.url": double.url, "max.retries": "0"}
    decoder = ColumnDecoder(
        with_latest(Decoding(form=FORMATS["avro"], registry=settings), "a-value")
    )
    double.answers = [(500, {})]
    with pytest.raises(RegistryUnavailableError):
        decoder.decode(pa.array([b"\0\0\0\0\1\2"], pa.binary()))


def test_a_type_that_multiplies_is_bounded() -> None:
    """A schema of a few lines cannot make a table of a million columns."""
    levels: list[Any] = [{"type": "record", "name": "L0", "fields": [{"name": "x", "type": "int"}]}]
    for number in range(1, 20):
        fields = [{"name": name, "type": f"L{number - 1}"} for name in ("x", "y")]
        levels.append({"type": "record", "name": f"L{number}", "fields": fields})
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(levels)]
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        plain(avro({"type": "record", "name": "R", "fields": fields}))


def test_references_of_json_lead_to_their_own_schemas() -> None:
    """A pointer counts in the schema that has it, and of names that end alike the right one."""
    known = {
        "a.json": {"$ref": "#/definitions/t", "definitions": {"t": {"type": "string"}}},
        "b/a.json": {"type": "integer"},
        "b/c.json": {"type": "object", "properties": {"x": {"$ref": "a.json"}}},
    }
    root = {
        "type": "object",
        "properties": {
            "a": {"$ref": "a.json"}, "b": {"$ref": "b/a.json"}, "c": {"$ref": "b/c.json"},
        },
        "definitions": {"t": {"type": "boolean"}},
    }  # fmt: skip
    dependencies = tuple((name, json.dumps(each)) for name, each in known.items())
    resolved = ResolvedSchema(schema=json_schema(root), dependencies=dependencies)
    found = ColumnDecoder(Decoding(form=FORMATS["plain-json"], schema=resolved)).type
    inner = pa.struct([("x", pa.int64())])
    assert found == pa.struct([("a", pa.string()), ("b", pa.int64()), ("c", inner)])


def test_an_anchor_of_json_is_text() -> None:
    """It names a part of the schema and not the whole, and is not looked for."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#part"}, "b": {"type": "integer"}},
        "$defs": {"p": {"$anchor": "part", "type": "number"}},
    }
    found = plain(json_schema(schema)).type
    assert found == pa.struct([("a", pa.string()), ("b", pa.int64())])
