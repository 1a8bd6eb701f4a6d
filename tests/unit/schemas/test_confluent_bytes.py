"""Values in the bytes that Confluent's serializers for Python (2.16.1) have written of them.

`compat.schemas` has the same written and read by Confluent's own packages; here are the results, so
that each change of ours is held against them.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import json_format

from tailrace.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)

FLIGHT = """{"type": "record", "name": "Flight", "fields": [
    {"name": "number", "type": "int"},
    {"name": "departed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "fare", "type":
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "carrier", "type": ["null", "string"], "default": null}]}"""

TYPES = """{"type": "record", "name": "All", "namespace": "air", "fields": [
    {"name": "text", "type": "string"},
    {"name": "flag", "type": "boolean"},
    {"name": "number", "type": "double"},
    {"name": "long", "type": "long"},
    {"name": "class", "type": {"type": "enum", "name": "Class", "symbols": ["FIRST", "LAST"]}},
    {"name": "list", "type": {"type": "array", "items": "int"}},
    {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
    {"name": "leg", "type": ["null", {"type": "record", "name": "Leg", "fields": [
        {"name": "to", "type": "string"}, {"name": "next", "type": ["null", "Leg"]}]}]}]}"""

PERSON = """{"title": "Person", "type": "object", "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}"""

PROTO = """
syntax = "proto3";
package air;
import "google/protobuf/timestamp.proto";
message Airport { string code = 1; }
message Flight {
  message Leg { string to = 1; google.protobuf.Timestamp at = 2; }
  int32 number = 1;
  Leg leg = 2;
}
"""

FLIGHT_VALUE: dict[str, Any] = {
    "number": 17, "departed": datetime(2013, 1, 1, 5, 17, 0, 123000, UTC),
    "fare": Decimal("129.90"), "carrier": "UA",
}  # fmt: skip
TYPES_VALUE: dict[str, Any] = {
    "text": "Zürich ✈", "flag": True, "number": 0.1, "long": -(1 << 60), "class": "LAST",
    "list": [3, -1, 1 << 30], "map": {"a": None, "ü": 5},
    "leg": {"to": "IAH", "next": {"to": "EWR", "next": None}},
}  # fmt: skip
UNICODE_VALUE = {"name": 'Zoë "✈" \u2028', "age": -1, "more": {"list": [1.5, True, None]}}
LEG_VALUE = {"to": "IAH", "at": "2013-01-01T05:17:00Z"}

HEADER = bytes.fromhex("0000000001")
"""The magic byte, and the id of the first schema of a registry."""


@pytest.mark.parametrize(
    ("schema", "value", "written"),
    [
        (FLIGHT, FLIGHT_VALUE, "22b6c5d4c8fe4e0432be02045541"),
        (FLIGHT, FLIGHT_VALUE | {"carrier": None}, "22b6c5d4c8fe4e0432be00"),
        (
            TYPES,
            TYPES_VALUE,
            (
                "165ac3bc7269636820e29c88019a9999999999b93fffffffffffffffff1f0206060180808080080004"
                "02610004c3bc020a000206494148020645575200"
            ),
        ),
    ],
    ids=["record", "null", "types"],
)
def test_avro(registry: SchemaRegistry, schema: str, value: Any, written: str) -> None:
    """Records, unions, logical types, collections, and a record within itself."""
    data = AvroSerializer(registry, schema).serialize("t", value)
    assert data == HEADER + bytes.fromhex(written)
    assert AvroDeserializer(registry)("t", data) == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"name": "Ann", "age": 7}, "7b226e616d65223a22416e6e222c22616765223a377d"),
        (
            UNICODE_VALUE,
            (
                "7b226e616d65223a225a6fc3ab205c22e29c885c2220e280a8222c22616765223a2d312c226d6f7265"
                "223a7b226c697374223a5b312e352c747275652c6e756c6c5d7d7d"
            ),
        ),
    ],
    ids=["ascii", "unicode"],
)
def test_json(registry: SchemaRegistry, value: Any, written: str) -> None:
    """Without spaces, and with characters beyond ASCII as they are."""
    data = JsonSchemaSerializer(registry, PERSON).serialize("t", value)
    assert data == HEADER + bytes.fromhex(written)
    assert JsonSchemaDeserializer(registry)("t", data) == value


@pytest.mark.parametrize(
    ("message", "value", "written"),
    [
        (
            "air.Flight",
            {"number": 17, "leg": LEG_VALUE},
            "02020811120d0a03494148120608cce2898705",
        ),
        ("air.Flight.Leg", LEG_VALUE, "0402000a03494148120608cce2898705"),
    ],
    ids=["second", "nested"],
)
def test_protobuf(registry: SchemaRegistry, message: str, value: Any, written: str) -> None:
    """The path to the message in its file comes first: its length, and the indexes."""
    data = ProtobufSerializer(registry, PROTO, message=message).serialize("t", value)
    assert data == HEADER + bytes.fromhex(written)
    found: Any = ProtobufDeserializer(registry)("t", data)
    assert json_format.MessageToDict(found) == value
