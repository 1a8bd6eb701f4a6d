"""Deserializers: bytes to values, by the schema that their header names.

    registry = SchemaRegistry(schema_registry_url="http://localhost:8081")
    consumer = Consumer(settings, value_deserializer=AvroDeserializer(registry))
    value = AvroDeserializer(registry)("flights", record.value)

A deserializer is called with the topic and the bytes of a key or value, by consumers too. None
stays None. An error is an `UndecodableError` for its record alone, or one of the registry, for
which the same call may go through later.

Without a registry the schema has to be given. The header is expected all the same, and its id
passed over, unless values are plain.
"""

from typing import TYPE_CHECKING, Final

from tailrace.schemas.caching import BoundedCache
from tailrace.schemas.codecs import Codec, check_packages, open_codec
from tailrace.schemas.errors import (
    RegistryRefusedError,
    SchemaError,
    UndecodableError,
)
from tailrace.schemas.framing import HEADER_SIZE, read_header
from tailrace.schemas.registry import SchemaRegistry
from tailrace.schemas.schema import ResolvedSchema, Schema, SchemaType, as_schema
from tailrace.values import dataclass

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tailrace.schemas.serializers import SchemaLike

# A writer may name another schema id in each record, and each would be compiled and kept.
CODECS_MAX: Final = 1000
"""Most schemas whose codec is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """The form in which values are stored."""

    type: SchemaType
    is_plain: bool = False
    """Whether they have no header."""
    names_records: bool = False
    """Whether a record of a union of Avro is decoded to a tuple of its full name and itself."""


class SchemaDeserializer:
    """Reads values of one type of schema; for any number of threads."""

    def __init__(
        self,
        registry: SchemaRegistry | None,
        form: ValueFormat,
        schema: ResolvedSchema | None = None,
        *,
        message: str | None = None,
        is_for_columns: bool = False,
    ) -> None:
        """With both a registry and a schema, values are read as the schema has them.

        `message` names a message of Protobuf in the schema; `is_for_columns` is as for
        `open_codec`.

        Raises:
            SchemaError: there is neither a schema nor a registry.
            MissingExtraError: packages of the extra are not installed.
        """
        needs_none = form.is_plain and form.type is SchemaType.JSON
        if schema is None and not needs_none and (registry is None or form.is_plain):
            raise SchemaError(
                f"plain values of {form.type.title} name no schema; give one"
                if form.is_plain
                else f"values of {form.type.title} need a registry or a schema; give one of them"
            )
        check_packages(form.type)
        self._registry = None if form.is_plain else registry
        self._form = form
        self._schema = schema
        self._message = message
        self._is_for_columns = is_for_columns
        self._own: Codec | None = None
        self._codecs: BoundedCache[int, Codec] = BoundedCache(CODECS_MAX)
        if schema is not None:
            # A schema at fault ends the constructor, not the first record hours later.
            self._own_codec()

    def __call__(self, topic: str, data: bytes | None) -> object:
        """The value of the bytes of a key or value; None for None.

        Raises:
            UndecodableError: the bytes are no value of their schema, or name none that there is.
            SchemaError: the schema that was given cannot be used.
            RegistryUnavailableError: no URL of the registry answered.
            RegistryRefusedError: the registry refuses this client.
        """
        try:
            return self.decode(data)
        except UndecodableError as error:
            error.topic = topic
            raise

    def deserialize(self, topic: str, data: bytes | None) -> object:
        """The same as a call; consumers call it, whose `value_deserializer` this is."""
        return self(topic, data)

    def decode(self, data: bytes | None) -> object:
        """The value, for callers that name its place themselves; raises as a call does."""
        if data is None:
            return None
        if self._form.is_plain:
            return self._own_codec().decode(data, 0)
        schema_id = read_header(data)
        try:
            codec = self._codecs.get(schema_id) or self._find(schema_id)
            return codec.decode(data, HEADER_SIZE)
        except UndecodableError as error:
            error.schema_id = schema_id
            raise

    def _find(self, schema_id: int) -> Codec:
        """The codec of the schema that a header names."""
        registry = self._registry
        if registry is None:
            return self._own_codec()
        try:
            schema = registry.schema(schema_id)
        except RegistryRefusedError as error:
            # Bytes that only look like a header name an id that nobody registered: the fault of the
            # record. A refused login (401, 403) is not, and would fail each record that follows.
            if not error.is_missing:
                raise
            raise UndecodableError("the registry has no schema of this id") from error
        # Registries number schemas of all types in one row, so an id may lead to any type.
        if schema.type is not self._form.type:
            raise UndecodableError(
                f"the schema is {schema.type.title}, and {self._form.type.title} is wanted"
            )
        # The author of the schema is at fault, also for a reference that there is not; other
        # records of the topic have other schemas.
        try:
            codec = self._open(registry.resolve(schema))
        except SchemaError as error:
            raise UndecodableError(str(error)) from error
        except RegistryRefusedError as error:
            if not error.is_missing:
                raise
            raise UndecodableError(str(error)) from error
        self._codecs.put(schema_id, codec)
        return codec

    def _open(self, schema: ResolvedSchema) -> Codec:
        """The codec of a schema of the registry, for the reader that was given."""
        return open_codec(
            schema,
            reader=self._schema,
            message=self._message,
            is_for_columns=self._is_for_columns,
            names_records=self._form.names_records,
        )

    def _own_codec(self) -> Codec:
        """The codec of the schema that was given."""
        if self._own is None:
            if self._schema is None:
                from tailrace.schemas.json_schema import JsonCodec

                self._own = JsonCodec()
            else:
                self._own = open_codec(
                    self._schema,
                    message=self._message,
                    is_plain=self._form.is_plain,
                    is_for_columns=self._is_for_columns,
                    names_records=self._form.names_records,
                )
        return self._own


class AvroDeserializer(SchemaDeserializer):
    """Values of Avro: dictionaries for records, and Python's types for logical types."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: "SchemaLike | None" = None,
        *,
        is_plain: bool = False,
        return_record_name: bool = False,
    ) -> None:
        """With a schema values are read as that has them, by Avro's rules for evolution.

        With `return_record_name` a record of a union becomes a tuple of its full name and itself,
        which says the type where several share a topic; a serializer takes such a tuple.

        Raises:
            SchemaError: the schema cannot be read, or there is none and no registry.
            MissingExtraError: fastavro is not installed.
        """
        kind = SchemaType.AVRO
        given = _resolved(registry, schema, kind)
        form = ValueFormat(type=kind, is_plain=is_plain, names_records=return_record_name)
        super().__init__(registry, form, given)


class JsonSchemaDeserializer(SchemaDeserializer):
    """Values of JSON, checked against the schema that they were written with."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: "SchemaLike | None" = None,
        *,
        is_plain: bool = False,
    ) -> None:
        """With a schema and a registry values are checked against the one of their id.

        Plain values without a schema are any JSON.

        Raises:
            SchemaError: the schema cannot be read, or there is none and no registry.
            MissingExtraError: jsonschema-rs is not installed.
        """
        kind = SchemaType.JSON
        given = _resolved(registry, schema, kind)
        super().__init__(registry, ValueFormat(type=kind, is_plain=is_plain), given)


class ProtobufDeserializer(SchemaDeserializer):
    """Messages of Protobuf."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: "type[Message] | SchemaLike | None" = None,
        *,
        message: str | None = None,
        is_plain: bool = False,
    ) -> None:
        """`schema` is a generated class, or a schema of which `message` names the message.

        With a generated class values become messages of it, and a registry only says whether they
        are of that type. Without a schema they become messages of classes made from the registry's.

        Raises:
            SchemaError: the schema cannot be read, or there is none and no registry.
            MissingExtraError: grpcio-tools, with protobuf, is not installed.
        """
        kind = SchemaType.PROTOBUF
        check_packages(kind)
        self._class: type[Message] | None = None
        if isinstance(schema, type):
            from tailrace.schemas.protobuf import schema_text_of

            self._class = schema
            descriptor = schema.DESCRIPTOR
            message = descriptor.full_name
            schema = Schema(type=kind, text=schema_text_of(descriptor.file))
        given = _resolved(registry, schema, kind)
        form = ValueFormat(type=kind, is_plain=is_plain)
        super().__init__(registry, form, given, message=message)

    def _own_codec(self) -> Codec:
        if self._own is None and self._class is not None:
            from tailrace.schemas.protobuf import ProtobufCodec

            self._own = ProtobufCodec(message=self._class, is_plain=self._form.is_plain)
        return super()._own_codec()

    def _open(self, schema: ResolvedSchema) -> Codec:
        if self._class is None:
            return super()._open(schema)
        from tailrace.schemas.protobuf import ProtobufCodec, ProtobufFile

        # The registry's file is compiled for its message indexes: they count messages in the
        # writer's file, whose order may differ from that of the generated class.
        file = ProtobufFile(schema)
        return ProtobufCodec(message=self._class, file=file, reader=self._class)


def _resolved(
    registry: SchemaRegistry | None, given: object, kind: SchemaType
) -> ResolvedSchema | None:
    """The schema that was given; a registry is asked only if it has references."""
    if given is None:
        return None
    schema = as_schema(given, kind)
    # Without references nothing is missing, so the constructor works while the registry is down.
    if registry is None or not schema.references:
        return ResolvedSchema(schema=schema)
    return registry.resolve(schema)
