"""Protobuf: messages of classes made from a schema's text, or of generated ones."""

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.duration_pb2 import Duration

from tailrace.schemas import Schema, SchemaError, SchemaType, UndecodableError, UnencodableError
from tailrace.schemas.protobuf import ProtobufCodec, ProtobufFile, indexes_of, schema_text_of
from tailrace.schemas.schema import ResolvedSchema
from tests.unit.schemas.samples import PROTO_TEXT, proto_file


def codec(name: str | None = None, *, is_plain: bool = False) -> ProtobufCodec:
    """The codec of a message of the sample."""
    file = proto_file()
    return ProtobufCodec(message=file.named(name), file=file, is_plain=is_plain)


def test_a_message_comes_back() -> None:
    """A mapping or a message is written behind the indexes that say which one it is."""
    found: Any = codec("Flight")
    data = found.encode({"number": 17, "legs": [{"to": "IAH"}], "seats": {"first": 8}})
    assert data[:2] == b"\x02\x02"
    message = found.decode(b"12345" + data, 5)
    assert (message.number, message.legs[0].to, dict(message.seats)) == (17, "IAH", {"first": 8})
    assert found.encode(message) == data
    assert message.DESCRIPTOR.full_name == "air.Flight"


def test_the_first_message_is_the_default() -> None:
    """Its indexes have the short form."""
    found: Any = codec()
    assert found.name == "air.Airport"
    assert found.encode({"code": "EWR"}) == b"\0\n\x03EWR"


def test_a_message_within_another_one_has_its_indexes() -> None:
    """Each level adds one."""
    found: Any = codec("air.Flight.Leg")
    assert indexes_of(proto_file().named("Leg").DESCRIPTOR) == (1, 0)
    data = found.encode({"to": "IAH"})
    assert data[:3] == b"\x04\x02\0"
    assert found.decode(data, 0).to == "IAH"


def test_plain_messages_have_no_indexes() -> None:
    """They are those of any program that uses Protobuf."""
    found: Any = codec("Airport", is_plain=True)
    assert found.encode({"code": "EWR"}) == b"\n\x03EWR"
    assert found.decode(b"\n\x03EWR", 0).code == "EWR"


def test_imported_files_are_found_by_their_names() -> None:
    """They are those that came with the schema, and Google's."""
    text = 'syntax = "proto3"; import "a.proto"; message B { a.A a = 1; }'
    imported = 'syntax = "proto3"; package a; message A { int32 n = 1; }'
    file = proto_file(text, a_proto=imported)
    found: Any = ProtobufCodec(message=file.named("B"), file=file)
    assert found.decode(found.encode({"a": {"n": 5}}), 0).a.n == 5


def test_a_descriptor_is_a_schema_too() -> None:
    """The serializers of generated classes register one, with what it imports."""
    text = schema_text_of(proto_file().named("Flight").DESCRIPTOR.file)
    file = ProtobufFile(ResolvedSchema(schema=Schema(type=SchemaType.PROTOBUF, text=text)))
    assert file.named("Flight").DESCRIPTOR.fields_by_name["departed"].message_type.full_name == (
        "google.protobuf.Timestamp"
    )


@pytest.mark.parametrize(
    "value", [{"none": 1}, {"code": 1}, 7, Duration(seconds=1), {"code": "\ud800"}]
)
def test_a_value_that_does_not_fit_is_refused(value: Any) -> None:
    """A field that is none, another type, no message, another message, no Unicode."""
    with pytest.raises(UnencodableError):
        codec().encode(value)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x0a", b"\x02\x0e", b"\x04\x02\x08", b"\0\x0a\x05a", b"\0\x0a\x01\xff",
        b"\x02\x02" + b"\x4b" * 100_000,
    ],
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """No indexes, indexes that lead nowhere, and messages that end too early or too deep."""
    with pytest.raises(UndecodableError):
        codec().decode(data, 0)


def test_a_message_within_itself_is_bounded() -> None:
    """A hundred levels, as in all languages."""
    data = b""
    for _ in range(90):
        size = len(data)
        head = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        data = b"\x4a" + head + data
    found: Any = codec("Flight", is_plain=True)
    found.decode(data, 0)
    for _ in range(90):
        size = len(data)
        data = b"\x4a" + bytes([size & 127 | 128, size >> 7]) + data
    with pytest.raises(UndecodableError):
        found.decode(data, 0)


@pytest.mark.parametrize(
    "text",
    [
        "message {", "syntax = 'proto3'; message A { B b = 1; }", "\0", "import 'none.proto';",
        "syntax = 'proto3'; " + "message A { " * 500, "17", "Zm9v",
    ],
)  # fmt: skip
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    """The compiler's own words are in the sentence, and no path of this machine."""
    with pytest.raises(SchemaError) as caught:
        proto_file(text).named(None)
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize("name", ["../a.proto", "/etc/a.proto", "a/../../b.proto", ""])
def test_an_import_stays_in_its_directory(name: str) -> None:
    """A registry cannot have a file written anywhere else."""
    schema = Schema(type=SchemaType.PROTOBUF, text=PROTO_TEXT)
    with pytest.raises(SchemaError, match="no relative path"):
        ProtobufFile(ResolvedSchema(schema=schema, dependencies=((name, "x"),)))


def test_an_import_is_no_module_of_the_compiler() -> None:
    """A registry cannot have a program run."""
    schema = Schema(type=SchemaType.PROTOBUF, text=PROTO_TEXT)
    names = ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "sitecustomize.py", "re.py")
    dependencies = tuple((name, "raise SystemExit(3)") for name in names)
    file = ProtobufFile(ResolvedSchema(schema=schema, dependencies=dependencies))
    assert file.named("Leg").DESCRIPTOR.full_name == "air.Flight.Leg"


def test_a_message_that_the_schema_lacks_is_named() -> None:
    """The sentence has those that it has."""
    with pytest.raises(SchemaError, match=r"no message Other; there are: air.Airport"):
        proto_file().named("Other")


def test_a_descriptor_of_another_file_is_refused() -> None:
    """One that lacks what it imports."""
    broken = FileDescriptorProto(name="x.proto", dependency=["y.proto"])
    import base64

    with pytest.raises(SchemaError):
        proto_file(base64.b64encode(broken.SerializeToString()).decode())
