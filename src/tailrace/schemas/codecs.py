"""`Codec`: encodes and decodes the values of one schema; opened for any type of schema.

The libraries of the extras `avro`, `json` and `protobuf` are imported when a codec is opened.
"""

from typing import Protocol, assert_never

from tailrace.runtime.extras import check_extra
from tailrace.schemas.schema import ResolvedSchema, SchemaType


class Codec(Protocol):
    """Values of one schema."""

    name: str
    """The full name of the record; empty if the schema has none."""

    def encode(self, value: object) -> bytes:
        """The bytes of a value, after the header of the wire format.

        Raises:
            UnencodableError: the value does not fit the schema.
        """
        ...

    def decode(self, data: bytes, position: int) -> object:
        """The value in the bytes from a position on.

        Raises:
            UndecodableError: there is none.
        """
        ...


_EXTRAS = {
    SchemaType.AVRO: ("avro", ("fastavro",)),
    SchemaType.JSON: ("json", ("jsonschema_rs",)),
    SchemaType.PROTOBUF: ("protobuf", ("grpc_tools",)),
}
"""The extra of each type of schema, and its packages beside those that all have."""


def check_packages(kind: SchemaType) -> None:
    """Check for the packages that a type of schema needs.

    Raises:
        MissingExtraError: one is not installed; with the command that installs all.
    """
    extra, packages = _EXTRAS[kind]
    check_extra(extra, kind.title, packages=packages)


def open_codec(
    schema: ResolvedSchema,
    *,
    reader: ResolvedSchema | None = None,
    message: str | None = None,
    is_plain: bool = False,
    is_for_columns: bool = False,
    names_records: bool = False,
) -> Codec:
    """The codec of a schema and those that it uses.

    With `reader` values are decoded as that schema has them; `message` names a message of Protobuf
    in it, or in the schema itself. Plain values of Protobuf have no message indexes. For columns
    logical types of Avro that Arrow cannot take from Python stay what they are stored as.
    `names_records` is as for `AvroCodec`.

    Raises:
        SchemaError: a schema cannot be used.
        MissingExtraError: the packages of the extra are not installed.
    """
    kind = schema.schema.type
    check_packages(kind)
    match kind:
        case SchemaType.AVRO:
            # fastavro and jsonschema-rs take 30 ms each to import, so a type of schema brings only
            # its own.
            from tailrace.schemas.avro import STORED_IN_COLUMNS, AvroCodec, ParsedAvro

            left = STORED_IN_COLUMNS if is_for_columns else frozenset[str]()
            wanted = None if reader is None else ParsedAvro(reader, without_logical=left)
            writer = ParsedAvro(schema, without_logical=left)
            return AvroCodec(writer, wanted, names_records=names_records)
        case SchemaType.JSON:
            from tailrace.schemas.json_schema import JsonSchemaCodec

            return JsonSchemaCodec(schema)
        case SchemaType.PROTOBUF:
            from tailrace.schemas.protobuf import ProtobufCodec, ProtobufFile

            file = ProtobufFile(schema)
            if reader is None:
                return ProtobufCodec(
                    message=file.named(message),
                    file=None if message is not None and is_plain else file,
                    is_plain=is_plain,
                )
            return ProtobufCodec(
                message=file.named(None), file=file, reader=ProtobufFile(reader).named(message)
            )
        case _:
            assert_never(kind)
