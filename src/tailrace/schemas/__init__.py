"""Schemas: Avro, JSON Schema and Protobuf, with a registry or with files, in Confluent's format.

Needs the extra `avro`, `json` or `protobuf`, or `schemas` for all three; their packages are
imported when they are used.
"""

from tailrace.schemas.config import RegistryConfig, SubjectStrategy
from tailrace.schemas.deserializers import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    SchemaDeserializer,
    ValueFormat,
)
from tailrace.schemas.errors import (
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaError,
    UndecodableError,
    UnencodableError,
)
from tailrace.schemas.registry import Compatibility, SchemaRegistry
from tailrace.schemas.schema import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaType,
    read_schema_file,
)
from tailrace.schemas.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaSerializer,
)

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "Compatibility",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "RegistryConfig",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "Schema",
    "SchemaDeserializer",
    "SchemaError",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaSerializer",
    "SchemaType",
    "SubjectStrategy",
    "UndecodableError",
    "UnencodableError",
    "ValueFormat",
    "read_schema_file",
]
