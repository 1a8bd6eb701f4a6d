"""Fuzz targets of the `schemas` room: the wire format, the decoders, schemas, and answers."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.schemas import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegistryRefusedError,
    Schema,
    SchemaError,
    SchemaType,
    UndecodableError,
)
from tailrace.schemas.avro import AvroCodec, ParsedAvro
from tailrace.schemas.columns import ColumnDecoder, plan_type
from tailrace.schemas.formats import FORMATS, Decoding
from tailrace.schemas.framing import read_header, read_indexes, write_header, write_indexes
from tailrace.schemas.json_schema import JsonSchemaCodec
from tailrace.schemas.registry import schema_of_answer
from tailrace.schemas.schema import ResolvedSchema
from tests.fuzz.engine import FuzzTarget
from tests.unit.schemas.samples import AVRO, FLIGHT_VALUE, JSON, PERSON_VALUE, PROTO

NODE = {
    "type": "record", "name": "N",
    "fields": [{"name": "n", "type": "double"}, {"name": "next", "type": ["null", "N"]},
               {"name": "all", "type": {"type": "array", "items": {"type": "map", "values": "N"}}}],
}  # fmt: skip
NODE_SCHEMA = Schema(type=SchemaType.AVRO, text=json.dumps(NODE))
LEAF: dict[str, Any] = {"n": 1.5, "next": None, "all": []}
NODE_VALUE = {"n": 1.0, "next": LEAF, "all": [{"a": LEAF, "b": LEAF}, {}]}


def framed(data: bytes) -> object:
    """Header and indexes."""
    return read_header(data), read_indexes(data, 5)


def decoding(schema: Schema, message: str | None = None) -> Decoding:
    """Plain values of a schema."""
    return Decoding(
        form=FORMATS[f"plain-{schema.type.value.lower()}"],
        schema=ResolvedSchema(schema=schema),
        message=message,
    )


def column_of(schema: Schema, message: str | None = None) -> Callable[[bytes], object]:
    """Decode a value between two others, which come back whatever it is."""
    found: list[ColumnDecoder] = []

    def run(data: bytes) -> object:
        if not found:
            found.append(ColumnDecoder(decoding(schema, message)))
        column, bad = found[0].decode(pa.array([None, data, None], pa.binary()))
        column.validate(full=True)
        assert column.null_count == 3 or not bad
        return column

    return run


def value_of(schema: Schema, message: str | None = None) -> Callable[[bytes], object]:
    """Decode a value as Python has it."""
    found: list[Any] = []

    def run(data: bytes) -> object:
        if not found:
            found.append(decoding(schema, message).deserializer())
        return found[0].decode(data)

    return run


def avro_schema(data: bytes) -> object:
    """A schema, its column, and a value of it."""
    text = data.decode(errors="replace")
    schema = ResolvedSchema(schema=Schema(type=SchemaType.AVRO, text=text))
    codec = AvroCodec(ParsedAvro(schema))
    plan_type(Decoding(form=FORMATS["plain-avro"], schema=schema))
    return codec.decode(bytes(40), 0)


def json_schema(data: bytes) -> object:
    """A schema, its column, and a value of it."""
    text = data.decode(errors="replace")
    schema = ResolvedSchema(schema=Schema(type=SchemaType.JSON, text=text))
    codec = JsonSchemaCodec(schema)
    plan_type(Decoding(form=FORMATS["plain-json"], schema=schema))
    return codec.decode(b'{"name": "Ann", "tags": ["a"]}', 0)


def proto_schema(data: bytes) -> object:
    """A `.proto` text."""
    text = data.decode(errors="replace")
    schema = ResolvedSchema(schema=Schema(type=SchemaType.PROTOBUF, text=text))
    return plan_type(Decoding(form=FORMATS["plain-protobuf"], schema=schema))


def answer(data: bytes) -> object:
    """The registry's answer with a schema."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SchemaError("no JSON") from error
    return schema_of_answer(parsed) if isinstance(parsed, dict) else None


def encoded(serializer: Any, value: object) -> bytes:
    """The bytes of a value."""
    data = serializer(value)
    assert isinstance(data, bytes)
    return data


AVRO_SEEDS = (encoded(AvroSerializer(schema=AVRO), FLIGHT_VALUE),)
NODE_SEEDS = (encoded(AvroSerializer(schema=NODE_SCHEMA), NODE_VALUE), b"\0" * 8 + b"\2" * 4000)
JSON_SEEDS = (encoded(JsonSchemaSerializer(schema=JSON), PERSON_VALUE),)
REFERENCE = {"name": "a", "subject": "b", "version": 1}
ANSWER = {"schema": AVRO.text, "schemaType": "AVRO", "id": 1, "references": [REFERENCE]}

_FLIGHT = {"number": 17, "legs": [{"to": "IAH"}], "seats": {"first": 8}, "next": {"number": 2}}
PROTO_SEEDS = (encoded(ProtobufSerializer(schema=PROTO, message="Flight"), _FLIGHT),)

TARGETS = (
    FuzzTarget(
        name="schemas: header",
        seeds=(write_header(17) + write_indexes((1, 0)), write_header(1) + b"\0x"),
        run=framed,
        refusals=(UndecodableError,),
    ),
    *(
        FuzzTarget(name=f"schemas: {name}", seeds=seeds, run=run, refusals=(UndecodableError,),
                   share=0.5)
        for name, seeds, run in (
            ("avro value", AVRO_SEEDS, value_of(AVRO)),
            ("avro value within itself", NODE_SEEDS, value_of(NODE_SCHEMA)),
            ("json value", JSON_SEEDS, value_of(JSON)),
            ("protobuf value", PROTO_SEEDS, value_of(PROTO, "Flight")),
            ("avro column", AVRO_SEEDS, column_of(AVRO)),
            ("avro column within itself", NODE_SEEDS, column_of(NODE_SCHEMA)),
            ("json column", JSON_SEEDS, column_of(JSON)),
            ("protobuf column", PROTO_SEEDS, column_of(PROTO, "Flight")),
        )
    ),
    FuzzTarget(
        name="schemas: avro schema",
        seeds=(AVRO.text.encode(), NODE_SCHEMA.text.encode()),
        run=avro_schema,
        refusals=(SchemaError, UndecodableError),
        share=0.2,
    ),
    FuzzTarget(
        name="schemas: json schema",
        seeds=(JSON.text.encode(), b'{"items": {"$ref": "#"}, "anyOf": [true, {"type": "null"}]}'),
        run=json_schema,
        refusals=(SchemaError, UndecodableError),
        share=0.2,
    ),
    FuzzTarget(
        name="schemas: protobuf schema",
        seeds=(PROTO.text.encode(),),
        run=proto_schema,
        refusals=(SchemaError,),
        # A process for each.
        share=0.002,
    ),
    FuzzTarget(
        name="schemas: answer of a registry",
        seeds=(json.dumps(ANSWER).encode(),),
        run=answer,
        refusals=(SchemaError, RegistryRefusedError),
    ),
)  # fmt: skip
