"""`Schema`: the text of a schema and its type; from a registry, a file, or a string.

Invariant: a text that passed `check_size` has at most `TEXT_BYTES_MAX` bytes, and JSON at most
`DEPTH_MAX` levels, so that no parser runs out of stack.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from tailrace.schemas.errors import SchemaError
from tailrace.values import dataclass

TEXT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest schema; registries refuse far smaller ones (Confluent's 1 MB)."""

DEPTH_MAX: Final = 128
"""Most brackets within each other, in a schema and in a JSON value."""

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS: Final = re.compile(r"[^\[\]{}]+")


class SchemaType(Enum):
    """The type of a schema, as registries name it."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"

    @property
    def title(self) -> str:
        """Its name in a sentence."""
        return {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}[self.value]


_SUFFIXES: Final = {
    ".avsc": SchemaType.AVRO,
    ".json": SchemaType.JSON,
    ".proto": SchemaType.PROTOBUF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReference:
    """Another schema that a schema uses, by the name it has there."""

    name: str
    """In the text: a full name in Avro, a URI in JSON Schema, an imported file in Protobuf."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema that has no id yet."""

    type: SchemaType
    text: str
    """Avro and JSON Schema as JSON; Protobuf as a `.proto` file, or base64 of its descriptor."""
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version of a subject in a registry."""

    subject: str
    version: int
    id: int
    schema: Schema


Dependencies = tuple[tuple[str, str], ...]
"""Names and texts of the schemas that a schema uses, each after those that it uses itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSchema:
    """A schema and everything that it uses, which is all that a codec needs."""

    schema: Schema
    dependencies: Dependencies = ()


def read_schema_file(path: str | Path) -> Schema:
    """The schema in a file; its suffix says the type: `.avsc`, `.json` or `.proto`.

    Raises:
        SchemaError: the file cannot be read, is no UTF-8, is too large, or has another suffix.
    """
    path = Path(path)
    kind = _SUFFIXES.get(path.suffix)
    if kind is None:
        raise SchemaError(
            f"{path}: the suffix says no type of schema; it has to be one of "
            + ", ".join(_SUFFIXES)
        )
    try:
        with path.open("rb") as file:
            # One byte more than may be there is enough for `check_size` to refuse, also of
            # `/dev/zero`.
            text = file.read(TEXT_BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: the schema cannot be read: {error}") from error
    check_size(text)
    return Schema(type=kind, text=text)


def as_schema(given: object, kind: SchemaType) -> Schema:
    """A schema as people give it: a `Schema`, a path, a text, or JSON as Python has it.

    Raises:
        SchemaError: it is of another type, or the file cannot be read.
        TypeError: it is none of these.
    """
    match given:
        case Schema():
            found = given
        case Path():
            found = read_schema_file(given)
        case str():
            found = Schema(type=kind, text=given)
        case Mapping() | list():
            found = Schema(type=kind, text=json.dumps(given))
        case _:
            raise TypeError(
                f"schema is a {type(given).__qualname__}; give a text, a Path or a Schema"
            )
    if found.type is not kind:
        raise SchemaError(f"the schema is {found.type.title}, and {kind.title} is needed")
    check_size(found.text)
    return found


def check_size(text: str) -> None:
    """Check the size of a schema.

    Raises:
        SchemaError: it has more than `TEXT_BYTES_MAX` bytes.
    """
    # The first comparison spares an encoded copy of a text that is far too large. A lone surrogate,
    # which JSON can say by an escape, has no UTF-8, hence `replace`.
    if len(text) > TEXT_BYTES_MAX or len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise SchemaError(f"the schema has more than {TEXT_BYTES_MAX} bytes")


def load_json(text: str) -> object:
    """The object of a JSON text.

    Raises:
        ValueError: it is no JSON, has more than `DEPTH_MAX` levels, or a number that JSON lacks.
    """
    # As many levels as opening brackets at most, so nearly all texts need no second look.
    if text.count("{") + text.count("[") > DEPTH_MAX:
        _check_depth(text)
    # Python takes NaN and Infinity, which no other parser of JSON does.
    return json.loads(text, parse_constant=_no_constant)


def _check_depth(text: str) -> None:
    depth = 0
    # Brackets within strings open nothing, so strings are removed before.
    for bracket in _NOT_BRACKETS.sub("", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > DEPTH_MAX:
            raise ValueError(f"there are more than {DEPTH_MAX} levels of brackets")


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")
