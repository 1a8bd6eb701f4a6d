"""Confluent's own serializers for Python, as a program: values by schemas of a registry.

    write URL < SCHEMAS             prints the bytes of a value of each type, as JSON with hex
    read URL < {"avro": HEX, ...}   prints the values of such bytes, as JSON

It runs in an environment of its own, with the versions in confluent-schemas.txt.
"""

import json
import sys
import tempfile
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format
from grpc_tools import protoc

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
AVRO = """{"type": "record", "name": "Flight", "fields": [
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
AVROS = {"avro": AVRO, "null": AVRO, "types": TYPES}
JSON = """{"title": "Person", "type": "object", "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}"""

JSONS = ("json", "unicode", "alike")

ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "number", "type": "int"}]}"""
INVOICE = """{"type": "record", "name": "Invoice", "namespace": "shop", "fields": [
    {"name": "order", "type": "shop.Order"}, {"name": "paid", "type": "boolean"}]}"""
ROOTS = {
    "union": '["shop.Order", "shop.Invoice"]',
    "array": '{"type": "array", "items": "shop.Invoice"}',
}
"""Roots of Avro that name the types of references; Confluent's own fail at a bare name."""
ALIKE = """{"title": "Person", "type": "object", "properties": {
    "home": {"$ref": "address.json"}, "work": {"$ref": "common/address.json"}}}"""
"""Two references of JSON Schema whose names end alike."""


def referring(registry: SchemaRegistryClient) -> dict[str, Schema]:
    """Register what the schemas with references use, and return these by name."""
    order = SchemaReference("shop.Order", "order", 1)
    invoice = SchemaReference("shop.Invoice", "invoice", 1)
    home = SchemaReference("address.json", "home", 1)
    work = SchemaReference("common/address.json", "work", 1)
    registry.register_schema("order", Schema(ORDER, "AVRO"))
    registry.register_schema("invoice", Schema(INVOICE, "AVRO", [order]))
    registry.register_schema("home", Schema('{"type": "string"}', "JSON"))
    registry.register_schema("work", Schema('{"type": "integer"}', "JSON"))
    found = {name: Schema(text, "AVRO", [order, invoice]) for name, text in ROOTS.items()}
    return found | {"alike": Schema(ALIKE, "JSON", [home, work])}


def main() -> None:
    """Write or read one value of each type."""
    command, url = sys.argv[1:]
    given = json.load(sys.stdin)
    registry = SchemaRegistryClient({"url": url})
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "flight_schema.proto").write_text(PROTO)
        protoc.main(
            ["protoc", f"-I{directory}", f"-I{Path(protoc.__file__).parent / '_proto'}",
             f"--python_out={directory}", f"{directory}/flight_schema.proto"]
        )  # fmt: skip
        sys.path.insert(0, directory)
        import flight_schema_pb2
    messages = {"protobuf": flight_schema_pb2.Flight, "nested": flight_schema_pb2.Flight.Leg}
    options = {"use.deprecated.format": False}
    told, referred = {}, referring(registry)
    for name, each in given.items():
        context = SerializationContext(f"theirs-{name}", MessageField.VALUE)
        if command == "write":
            if name in AVROS:
                row = each
                if AVROS[name] is AVRO:
                    row = each | {
                        "departed": datetime.fromisoformat(each["departed"]),
                        "fare": Decimal(each["fare"]),
                    }
                data = AvroSerializer(registry, AVROS[name])(row, context)
            elif name in ROOTS:
                data = AvroSerializer(registry, referred[name])(each, context)
            elif name in JSONS:
                data = JSONSerializer(referred.get(name, JSON), registry)(each, context)
            else:
                kind = messages[name]
                message = json_format.ParseDict(each, kind())
                data = ProtobufSerializer(kind, registry, options)(message, context)
            told[name] = data.hex()
        else:
            data = bytes.fromhex(each)
            if name in AVROS:
                value = AvroDeserializer(registry)(data, context)
                if AVROS[name] is AVRO:
                    value = value | {
                        "departed": value["departed"].isoformat(),
                        "fare": str(value["fare"]),
                    }
            elif name in ROOTS:
                value = AvroDeserializer(registry)(data, context)
            elif name in JSONS:
                schema = referred.get(name, JSON)
                value = JSONDeserializer(schema, schema_registry_client=registry)(data, context)
            else:
                message = ProtobufDeserializer(messages[name], options)(data, context)
                value = json_format.MessageToDict(message)
            told[name] = value
    print(json.dumps(told))


if __name__ == "__main__":
    main()
