"""Schemas and values of each type, for tests."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from tailrace.schemas import Schema, SchemaType
from tailrace.schemas.protobuf import ProtobufFile
from tailrace.schemas.schema import ResolvedSchema

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "carrier", "type": ["null", "string"], "default": None},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                  "scale": 2}},
        {"name": "departed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
        {"name": "seats", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
AVRO = Schema(type=SchemaType.AVRO, text=json.dumps(FLIGHT))
FLIGHT_VALUE: dict[str, Any] = {
    "number": 17,
    "carrier": "UA",
    "fare": Decimal("129.90"),
    "departed": datetime(2013, 1, 1, 5, 17, 0, 123_000, tzinfo=UTC),
    "day": date(2013, 1, 1),
    "id": UUID(int=7),
    "stops": ["EWR", "IAH"],
    "seats": {"first": 8},
}

PERSON: dict[str, Any] = {
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "age": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "home": {"type": "object", "properties": {"city": {"type": "string"}}},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": {},
    },
    "required": ["name"],
    "additionalProperties": False,
}
JSON = Schema(type=SchemaType.JSON, text=json.dumps(PERSON))
PERSON_VALUE: dict[str, Any] = {"name": "Ann", "age": 7, "tags": ["a"], "home": {"city": "Köln"}}

PROTO_TEXT = """
syntax = "proto3";
package air;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message Airport { string code = 1; }
message Flight {
  enum State { UNKNOWN = 0; FLOWN = 1; }
  message Leg { string to = 1; }
  int32 number = 1;
  optional string carrier = 2;
  State state = 3;
  google.protobuf.Timestamp departed = 4;
  repeated Leg legs = 5;
  map<string, int64> seats = 6;
  uint64 big = 7;
  google.protobuf.StringValue note = 8;
  Flight next = 9;
  bytes raw = 10;
}
"""
PROTO = Schema(type=SchemaType.PROTOBUF, text=PROTO_TEXT)


def proto_file(text: str = PROTO_TEXT, **dependencies: str) -> ProtobufFile:
    """A compiled schema; imported files by name, with `_` for a dot."""
    found = tuple((name.replace("_", "."), each) for name, each in dependencies.items())
    schema = Schema(type=SchemaType.PROTOBUF, text=text)
    return ProtobufFile(ResolvedSchema(schema=schema, dependencies=found))


def write_schemas(directory: Path) -> dict[str, Path]:
    """Files of the three schemas, by their suffix."""
    found = {}
    for schema, suffix in ((AVRO, "avsc"), (JSON, "json"), (PROTO, "proto")):
        found[suffix] = directory / f"schema.{suffix}"
        found[suffix].write_text(schema.text)
    return found
