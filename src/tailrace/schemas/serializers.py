"""Serializers: values to bytes by a schema, with Confluent's header or plain.

    registry = SchemaRegistry(schema_registry_url="http://localhost:8081")
    producer = Producer(settings, value_serializer=AvroSerializer(registry, schema))

A producer calls `serialize` with the topic and the value, as Java's and kafka-python's do; a call
has the value alone. The topic is needed for the name of the subject only; one that is given to the
constructor names the subject of all values.
None stays None: a tombstone has no schema.

The first value of a topic asks the registry, which takes as long as its time limits say; `prepare`
does it before, so that no event loop waits.

The three classes differ in what they are given, so they share their methods by inheritance,
although this project avoids it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tailrace.schemas.caching import BoundedCache
from tailrace.schemas.codecs import Codec, check_packages, open_codec
from tailrace.schemas.errors import SchemaError
from tailrace.schemas.framing import write_header
from tailrace.schemas.registry import SchemaRegistry
from tailrace.schemas.schema import (
    ResolvedSchema,
    Schema,
    SchemaReference,
    SchemaType,
    as_schema,
)
from tailrace.schemas.subjects import subject_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

Descriptor: TypeAlias = Any
"""A descriptor of protobuf, which has no types here."""

SchemaLike: TypeAlias = Schema | str | Path | Mapping[str, object]
"""A schema as people have it: an object, its text, its file, or JSON as Python has it."""

ENTRIES_MAX: Final = 1000
"""Most topics, and most versions of schemas, that a serializer keeps."""


class SchemaSerializer:
    """Writes values with the schema of a topic; for any number of threads."""

    def __init__(
        self,
        registry: SchemaRegistry | None,
        schema: Schema | None,
        *,
        kind: SchemaType,
        topic: str | None,
        is_key: bool,
        message: str | None = None,
    ) -> None:
        # `use.latest.version` wins over a schema that was given: values are encoded with the
        # registry's.
        uses_latest = registry is not None and registry.config.uses_latest
        if schema is None and not uses_latest:
            raise SchemaError(
                f"a serializer for {kind.title} needs a schema, unless it has a registry with "
                "use.latest.version=true"
            )
        check_packages(kind)
        self._registry = registry
        self._schema = schema
        self._kind = kind
        self._topic = topic
        self._is_key = is_key
        self._message = message
        self._own: Codec | None = None
        self._by_topic: BoundedCache[str | None, tuple[bytes, Codec]] = BoundedCache(ENTRIES_MAX)
        self._by_id: BoundedCache[int, Codec] = BoundedCache(ENTRIES_MAX)

    def __call__(self, value: object) -> bytes | None:
        """The bytes of a value of the topic that the serializer was given.

        Raises:
            UnencodableError: the value does not fit the schema.
            SchemaError: the schema cannot be used, or the subject needs a topic.
            RegistryRefusedError, RegistryUnavailableError: as `SchemaRegistry.register`, `lookup`
                and `latest`.
        """
        return self.serialize(self._topic, value)

    def serialize(self, topic: str | None, value: object) -> bytes | None:
        """The bytes of a value of a topic; None for None. Raises as a call does.

        The topic of the constructor, if it has one, goes over this one.
        """
        topic = self._topic or topic
        # A record without a value deletes its key in a compacted topic; five bytes of header would
        # not.
        if value is None:
            return None
        header, codec = self._by_topic.get(topic) or self._find(topic)
        return header + codec.encode(value)

    def prepare(self, topic: str | None = None) -> None:
        """Ask the registry what the first value of a topic would ask; raises as a call does."""
        self._find(self._topic or topic)

    def _find(self, topic: str | None) -> tuple[bytes, Codec]:
        """The header of a topic's values, and the codec of what follows."""
        registry, schema = self._registry, self._schema
        if registry is None:
            found = b"", self._own_codec()
        elif registry.config.uses_latest:
            # Not kept by topic, or a new version would never be seen: the registry's cache has its
            # TTL.
            return self._latest(registry, topic)
        else:
            assert schema is not None
            # The codec comes first: a schema that cannot encode is not registered.
            codec, subject = self._own_codec(), self._subject(registry, topic)
            schema = self._with_imports(registry, schema)
            if registry.config.registers:
                schema_id = registry.register(subject, schema)
            else:
                # Confluent's clients look up as well, so the topic's owner registers what producers
                # may write.
                schema_id = registry.lookup(subject, schema).id
            found = write_header(schema_id), codec
        self._by_topic.put(topic, found)
        return found

    def _latest(self, registry: SchemaRegistry, topic: str | None) -> tuple[bytes, Codec]:
        subject = self._subject(registry, topic)
        latest = registry.latest(subject)
        if latest.schema.type is not self._kind:
            raise SchemaError(
                f"version {latest.version} of {subject} is {latest.schema.type.title}, and the "
                f"serializer is for {self._kind.title}"
            )
        # By id and not by topic: topics may share a subject, and compiling a `.proto` takes 70 ms.
        codec = self._by_id.get(latest.id)
        if codec is None:
            codec = open_codec(registry.resolve(latest.schema), message=self._message)
            self._by_id.put(latest.id, codec)
        return write_header(latest.id), codec

    def _subject(self, registry: SchemaRegistry, topic: str | None) -> str:
        config = registry.config
        return subject_of(
            config.key_strategy if self._is_key else config.value_strategy,
            topic=topic,
            record_name="" if self._schema is None else self._own_codec().name,
            is_key=self._is_key,
        )

    def _own_codec(self) -> Codec:
        """The codec of the schema that was given."""
        if self._own is None:
            assert self._schema is not None
            registry, schema = self._registry, self._schema
            self._own = open_codec(
                ResolvedSchema(schema=schema) if registry is None else registry.resolve(schema),
                message=self._message,
                is_plain=registry is None,
            )
        return self._own

    def _with_imports(self, registry: SchemaRegistry, schema: Schema) -> Schema:
        """The schema with references to what it imports, where only its own class knows these."""
        del registry
        return schema


class AvroSerializer(SchemaSerializer):
    """Values of an Avro schema: dictionaries for records, and Python's types for logical types."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: SchemaLike | None = None,
        *,
        topic: str | None = None,
        is_key: bool = False,
    ) -> None:
        """Without a registry values are plain: they have no header.

        Raises:
            SchemaError: the schema cannot be read, or there is none and none can be looked up.
            MissingExtraError: fastavro is not installed.
        """
        kind = SchemaType.AVRO
        given = None if schema is None else as_schema(schema, kind)
        super().__init__(registry, given, kind=kind, topic=topic, is_key=is_key)


class JsonSchemaSerializer(SchemaSerializer):
    """Values of a JSON Schema: what Python's `json` makes of JSON."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: SchemaLike | None = None,
        *,
        topic: str | None = None,
        is_key: bool = False,
    ) -> None:
        """Without a registry values are plain: they have no header.

        Raises:
            SchemaError: the schema cannot be read, or there is none and none can be looked up.
            MissingExtraError: jsonschema-rs is not installed.
        """
        kind = SchemaType.JSON
        given = None if schema is None else as_schema(schema, kind)
        super().__init__(registry, given, kind=kind, topic=topic, is_key=is_key)


class ProtobufSerializer(SchemaSerializer):
    """Messages of Protobuf, or mappings with their fields."""

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: "type[Message] | SchemaLike | None" = None,
        *,
        message: str | None = None,
        topic: str | None = None,
        is_key: bool = False,
    ) -> None:
        """`schema` is a generated class, or a schema of which `message` names the message.

        Without `message` it is the first one. The files that a generated class imports are
        registered too, each under its own name as the subject; those of Google are not. Without a
        registry values are plain: they have neither header nor message indexes.

        Raises:
            SchemaError: the schema cannot be read, or there is none and none can be looked up.
            MissingExtraError: grpcio-tools, with protobuf, is not installed.
        """
        kind = SchemaType.PROTOBUF
        check_packages(kind)
        self._descriptor: Descriptor = None
        if isinstance(schema, type):
            from tailrace.schemas.protobuf import schema_text_of

            self._descriptor = schema.DESCRIPTOR
            message = self._descriptor.full_name
            schema = Schema(type=kind, text=schema_text_of(self._descriptor.file))
        given = None if schema is None else as_schema(schema, kind)
        super().__init__(registry, given, kind=kind, topic=topic, is_key=is_key, message=message)

    def _own_codec(self) -> Codec:
        if self._own is None and self._descriptor is not None:
            from tailrace.schemas.protobuf import ProtobufCodec, message_class

            self._own = ProtobufCodec(
                message=message_class(self._descriptor), is_plain=self._registry is None
            )
        return super()._own_codec()

    def _with_imports(self, registry: SchemaRegistry, schema: Schema) -> Schema:
        if self._descriptor is None or schema.references:
            return schema
        return _register_imports(registry, self._descriptor.file)


def _register_imports(registry: SchemaRegistry, file: Descriptor) -> Schema:
    """The schema of a file of a generated class, whose imports have been registered."""
    from tailrace.schemas.protobuf import imports_of, schema_text_of

    references = []
    for each in imports_of(file):
        # Imports first: a registry refuses a schema whose references it does not have.
        schema = _register_imports(registry, each)
        if registry.config.registers:
            registry.register(each.name, schema)
        # A reference names a version, and `register` answers with an id alone.
        version = registry.lookup(each.name, schema).version
        references.append(SchemaReference(name=each.name, subject=each.name, version=version))
    return Schema(type=SchemaType.PROTOBUF, text=schema_text_of(file), references=tuple(references))
