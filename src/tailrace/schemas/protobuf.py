"""`ProtobufCodec`: messages of one `.proto` file, by Google's protobuf.

Values are messages: of a class that `protoc` generated, or of one that is made here from the
schema. The bytes of a value begin with the place of its message in the file (`framing`), unless
they are plain.

Needs protobuf, and grpcio-tools for schemas that are a `.proto` text.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tailrace.schemas.errors import SchemaError, UndecodableError, UnencodableError
from tailrace.schemas.framing import read_indexes, write_indexes
from tailrace.schemas.schema import Dependencies, ResolvedSchema

Descriptor: TypeAlias = Any
MessageClass: TypeAlias = type[Message]

_GOOGLE: Final = "google/protobuf/"
"""The folder of the files that every compiler has."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/=\s]+")


class ProtobufFile:
    """The messages of a schema: a `.proto` file and the files that it imports."""

    def __init__(self, schema: ResolvedSchema) -> None:
        """Compile a schema.

        Raises:
            SchemaError: it is no Protobuf schema, or a file that it imports is missing.
        """
        files = _files_of(schema.schema.text, schema.dependencies)
        # A pool for each schema: in the default one two versions of a message, or two topics'
        # messages of the same name, would be refused as a conflict.
        pool = DescriptorPool()
        try:
            for each in files:
                pool.AddSerializedFile(each.SerializeToString())
            self._file: Descriptor = pool.FindFileByName(files[-1].name)
        except (TypeError, KeyError, ValueError) as error:
            raise SchemaError(f"this Protobuf schema cannot be used: {error}") from error
        self._by_indexes: dict[tuple[int, ...], MessageClass] = {}

    def at(self, indexes: Sequence[int]) -> MessageClass:
        """The class of the message at a place.

        Raises:
            LookupError: the file has no message there.
        """
        indexes = tuple(indexes)
        found = self._by_indexes.get(indexes)
        if found is None:
            # In the order of the text, in which the indexes count.
            messages = list(self._file.message_types_by_name.values())
            descriptor = None
            for index in indexes:
                descriptor = messages[index]
                messages = list(descriptor.nested_types)
            found = self._by_indexes[indexes] = message_class(descriptor)
        return found

    def named(self, name: str | None) -> MessageClass:
        """The class of a message by its name, or of the first one of the file.

        Raises:
            SchemaError: the file has no such message.
        """
        found = list(_messages(self._file.message_types_by_name.values()))
        for each in found:
            if name is None or name in {each.full_name, each.name}:
                return message_class(each)
        there = ", ".join(each.full_name for each in found[:10]) or "none"
        raise SchemaError(f"the Protobuf schema has no message {name or ''}; there are: {there}")


class ProtobufCodec:
    """Encodes messages of one class; decodes those of a file, or all as one class."""

    def __init__(
        self,
        *,
        message: MessageClass,
        file: ProtobufFile | None = None,
        is_plain: bool = False,
        reader: MessageClass | None = None,
    ) -> None:
        """`file` has the message that a value's indexes name; without it each is a `message`.

        With `reader` values are read as that class, and have to be of a message of its name.
        """
        self.name: str = message.DESCRIPTOR.full_name
        """The full name of the message."""
        self._message = message
        self._file = file
        self._is_plain = is_plain
        self._reader = reader
        self._indexes = b"" if is_plain else write_indexes(indexes_of(message.DESCRIPTOR))

    def encode(self, value: object) -> bytes:
        """The bytes of a message, or of a mapping with its fields.

        Raises:
            UnencodableError: it is a message of another type, or has fields that this one lacks.
        """
        try:
            match value:
                case Mapping():
                    message = self._message()
                    json_format.ParseDict(dict(value), message)
                case Message() if value.DESCRIPTOR.full_name == self.name:
                    message = value
                case Message():
                    raise UnencodableError(
                        f"a message {value.DESCRIPTOR.full_name} is no {self.name}"
                    )
                case _:
                    raise UnencodableError(
                        f"a {type(value).__qualname__} is no message; give a {self.name}, or a "
                        "mapping with its fields"
                    )
            data: bytes = message.SerializeToString()
            return self._indexes + data
        except (
            json_format.ParseError,
            EncodeError,
            ValueError,
            TypeError,
            RecursionError,
        ) as error:
            if isinstance(error, UnencodableError):
                raise
            raise UnencodableError(
                f"a {type(value).__qualname__} does not fit the message {self.name}: {error}"
            ) from error

    def decode(self, data: bytes, position: int) -> Message:
        """The message in the bytes from a position on.

        Raises:
            UndecodableError: there is none, or it is of another type than is wanted.
        """
        kind = self._message
        if not self._is_plain:
            indexes, position = read_indexes(data, position)
            if self._file is not None:
                try:
                    kind = self._file.at(indexes)
                except LookupError:
                    raise UndecodableError(
                        f"message indexes {list(indexes)} lead to no message of the schema"
                    ) from None
        if self._reader is not None:
            if kind.DESCRIPTOR.full_name != self._reader.DESCRIPTOR.full_name:
                raise UndecodableError(
                    f"the message is a {kind.DESCRIPTOR.full_name}, and a "
                    f"{self._reader.DESCRIPTOR.full_name} is wanted"
                )
            kind = self._reader
        try:
            return kind.FromString(data[position:])
        except (DecodeError, ValueError, RecursionError) as error:
            raise UndecodableError(
                f"{len(data) - position} bytes are no message {kind.DESCRIPTOR.full_name}: {error}"
            ) from error


def schema_text_of(descriptor: Descriptor) -> str:
    """A file as registries take it besides text: base64 of its descriptor."""
    proto = FileDescriptorProto()
    descriptor.CopyToProto(proto)
    return base64.b64encode(proto.SerializeToString()).decode()


def message_class(descriptor: Descriptor) -> MessageClass:
    """The class of a message."""
    found: MessageClass = GetMessageClass(descriptor)
    return found


def imports_of(file: Descriptor) -> list[Descriptor]:
    """The files that a file imports, without Google's own, which every compiler has."""
    return [each for each in file.dependencies if not each.name.startswith(_GOOGLE)]


def indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    """The place of a message in its file: an index for each level, the outermost first."""
    indexes = []
    while descriptor is not None:
        above = descriptor.containing_type
        beside = (
            descriptor.file.message_types_by_name.values() if above is None else above.nested_types
        )
        indexes.append([each.name for each in beside].index(descriptor.name))
        descriptor = above
    return tuple(reversed(indexes))


def _messages(descriptors: Any) -> Iterator[Descriptor]:  # noqa: ANN401 - protobuf is untyped
    left = list(descriptors)
    while left:
        each = left.pop(0)
        # protoc makes a message of each map's entries, which nobody asks for by name.
        if not each.GetOptions().map_entry:
            yield each
        left += each.nested_types


def _files_of(text: str, dependencies: Dependencies) -> list[FileDescriptorProto]:
    """All files of a schema, each after those that it imports."""
    own = _from_base64(text)
    # Confluent's Python client registers a generated class as base64 of its descriptor and Java's
    # as text: a registry can have both.
    if own is None:
        from tailrace.schemas.protoc import compile_proto

        texts = []
        for name, each in dependencies:
            if _from_base64(each) is not None:
                raise SchemaError(
                    f"the Protobuf schema imports {name!r}, which is kept as a descriptor; its own "
                    "text has to be one too"
                )
            texts.append((name, each))
        return compile_proto(text, tuple(texts))
    found: dict[str, FileDescriptorProto] = {}
    for name, each in dependencies:
        file = _from_base64(each)
        parts = [file] if file is not None else _files_of(each, dependencies)
        parts[-1].name = name
        for part in parts:
            _add(part, found)
    if own.name in found:
        # A schema has no name in a registry, so this one may be that of an import.
        own.name = f"own/{own.name}"
    _add(own, found)
    return list(found.values())


def _add(file: FileDescriptorProto, found: dict[str, FileDescriptorProto]) -> None:
    """Put a file after those of Google that it imports."""
    for name in file.dependency:
        if name.startswith(_GOOGLE) and name not in found:
            for part in _standard(name):
                found.setdefault(part.name, part)
    found.setdefault(file.name, file)


def _from_base64(text: str) -> FileDescriptorProto | None:
    if not _BASE64.fullmatch(text):
        return None
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    # A short word can pass for base64, so it has to be a descriptor with a name as well.
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.name else None


def _standard(name: str) -> list[FileDescriptorProto]:
    """A file of Google's own, after those that it imports."""
    from tailrace.schemas.protoc import compile_proto

    # The last file is the text itself.
    return compile_proto(f'syntax = "proto3"; import "{name}";', ())[:-1]
