"""Formats by name, schema files, and the extra that all of it needs."""

import subprocess
import sys
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace.cli.decoding import FORMATS as CLI_FORMATS
from tailrace.schemas import SchemaError, SchemaType, read_schema_file
from tailrace.schemas.formats import FORMATS, plan_decoding
from tailrace.schemas.schema import TEXT_BYTES_MAX
from tailrace.schemas.shown import ShownDecoder, as_json
from tests.unit.schemas.samples import write_schemas

URL = {"schema.registry.url": "http://localhost:1"}


def test_commands_have_the_formats_that_there_are() -> None:
    """Their list is written out, so that other commands import nothing of this."""
    assert tuple(FORMATS) == CLI_FORMATS


def test_a_file_says_its_type_by_its_suffix(tmp_path: Path) -> None:
    """And has to be a schema of a size that people write."""
    for path in write_schemas(tmp_path).values():
        assert read_schema_file(path).text == path.read_text()
    other = tmp_path / "a.txt"
    with pytest.raises(SchemaError, match=r"has to be one of .avsc, .json, .proto"):
        read_schema_file(other)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_schema_file(tmp_path / "none.avsc")
    large = tmp_path / "large.avsc"
    large.write_bytes(b" " * (TEXT_BYTES_MAX + 1))
    with pytest.raises(SchemaError, match="more than 4194304 bytes"):
        read_schema_file(large)


def test_a_message_is_named_behind_its_file(tmp_path: Path) -> None:
    """With a colon between them."""
    path = write_schemas(tmp_path)["proto"]
    found = plan_decoding(FORMATS["protobuf"], registry=None, schema_file=f"{path}:Flight")
    assert found.message == "Flight"
    assert plan_decoding(FORMATS["protobuf"], registry=None, schema_file=str(path)).message is None


@pytest.mark.parametrize(
    ("form", "registry", "file", "reason"),
    [
        ("avro", None, None, "avro needs a schema registry or a schema file"),
        ("plain-avro", URL, None, "plain-avro needs a schema file"),
        ("avro", None, "proto", "the schema is Protobuf, and the format is avro"),
    ],
)
def test_what_a_format_lacks_is_told(
    tmp_path: Path, form: str, registry: Any, file: str | None, reason: str
) -> None:
    """Before anything is read."""
    path = None if file is None else str(write_schemas(tmp_path)[file])
    with pytest.raises(SchemaError, match=reason):
        plan_decoding(FORMATS[form], registry=registry, schema_file=path)


def test_json_has_a_form_for_all_values() -> None:
    """Numbers that JSON lacks are text, and bytes as everywhere."""
    value = {
        "n": [1, True, None, 1.5, float("inf")],
        "d": Decimal("1.50"),
        "t": datetime(2013, 1, 1, tzinfo=UTC),
        "at": time(1, 2),
        "u": UUID(int=1),
        "b": (b"text", b"\xff"),
        "s": "\ud800",
        "\udfff": 1,
    }
    assert as_json(value) == {
        "n": [1, True, None, 1.5, "inf"],
        "d": "1.50",
        "t": "2013-01-01T00:00:00+00:00",
        "at": "01:02:00",
        "u": "00000000-0000-0000-0000-000000000001",
        "b": ["text", {"hex": "ff"}],
        "s": "?",
        "?": 1,
    }


def test_faults_are_counted_and_told() -> None:
    """Keys that are not decoded are left to the caller."""
    decoder = ShownDecoder(
        key=None,
        value=plan_decoding(FORMATS["plain-json"], registry=None, schema_file=None).deserializer(),
    )
    assert decoder.key(b"k") is None
    for data in (b"[1]", b"{", None):
        decoder.value(data)
    assert decoder.fault_count == 1
    found = decoder.value(b"{")
    assert found is not None
    assert "are no JSON" in str(found.fault)


MISSING = """
import sys
for name in ("fastavro", "grpc_tools", "jsonschema_rs", "urllib3"):
    sys.modules[name] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: (
    None if sys.modules.get(name, 0) is None else found(name, *more)
)
from tailrace.errors import MissingExtraError
from tailrace.schemas import *
registry = SchemaRegistry(schema_registry_url="http://localhost:1")
for call in (
    lambda: AvroSerializer(registry, '"int"'),
    lambda: JsonSchemaDeserializer(registry),
    lambda: ProtobufDeserializer(registry),
    lambda: registry.subjects(),
):
    try:
        call()
    except MissingExtraError as error:
        print(error)
"""


def test_a_missing_extra_is_one_sentence_with_the_command() -> None:
    """For each type of schema, and for the registry."""
    done = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        f"{what} needs {package}: pip install 'tailrace[{extra}]'"
        for what, package, extra in (
            ("Avro", "fastavro", "avro"),
            ("JSON Schema", "jsonschema_rs", "json"),
            ("Protobuf", "grpc_tools", "protobuf"),
            ("a schema registry", "urllib3", "schemas"),
        )
    ]  # fmt: skip


def test_importing_the_room_imports_none_of_its_libraries() -> None:
    """They are imported when they are used."""
    program = (
        "import sys, tailrace.schemas, tailrace.cli.consume;"
        "print({'fastavro', 'jsonschema_rs', 'urllib3', 'google.protobuf', 'pyarrow'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
    assert SchemaType.AVRO.title == "Avro"
