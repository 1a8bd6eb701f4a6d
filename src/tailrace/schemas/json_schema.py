"""`JsonSchemaCodec`: JSON values of one JSON Schema, by jsonschema-rs.

References lead only to the schemas that came with this one: nothing is fetched. Patterns may
backtrack, up to a limit.

Needs jsonschema-rs.
"""

import json
from typing import Any, Final

import jsonschema_rs

from tailrace.schemas.errors import SchemaError, UndecodableError, UnencodableError
from tailrace.schemas.schema import ResolvedSchema, load_json

BACKTRACKS_MAX: Final = 100_000
"""Most steps back of a pattern on one string: some milliseconds."""

_BASE: Final = "json-schema:///"
"""Base of references in a schema that has no `$id`."""

_to_json: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


class JsonSchemaCodec:
    """Encodes values and decodes them; both checked against the schema."""

    def __init__(self, schema: ResolvedSchema) -> None:
        """Compile a schema.

        Raises:
            SchemaError: it is no JSON Schema, or refers to what did not come with it.
        """
        parsed = _parse(schema.schema.text)
        self.name = _title(parsed)
        """The schema's `title`; empty if it has none."""
        self.parsed = parsed
        """The schema as JSON."""
        known = {name: _parse(text) for name, text in schema.dependencies}
        self.known: dict[str, Any] = known
        """The schemas that it may refer to, by the names it has for them."""

        def retrieve(uri: str) -> Any:  # noqa: ANN401 - JSON
            for name, each in known.items():
                if uri == name or uri.endswith(f"/{name}"):
                    return each
            raise LookupError(f"{uri} is none of the schema's references")

        try:
            self._validator = jsonschema_rs.validator_for(
                parsed,
                retriever=retrieve,
                base_uri=None if _has_id(parsed) else _BASE,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX),
            )
        except Exception as error:
            raise SchemaError(f"this JSON Schema cannot be used: {_reason(error)}") from error

    def encode(self, value: object) -> bytes:
        """The value as JSON in UTF-8.

        Raises:
            UnencodableError: it is nothing that JSON has, or does not fit the schema.
        """
        try:
            text = _to_json(value)
            self._validator.validate(value)
            return text.encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise UnencodableError(
                f"a {type(value).__qualname__} does not fit the JSON Schema {self.name}: "
                f"{_reason(error)}"
            ) from error

    def decode(self, data: bytes, position: int) -> object:
        """The value of the JSON text from a position on.

        Raises:
            UndecodableError: it is no JSON in UTF-8, is too deep, or does not fit the schema.
        """
        try:
            value: object = load_json(data[position:].decode())
            self._validator.validate(value)
        except (ValueError, RecursionError) as error:
            raise UndecodableError(
                f"{len(data) - position} bytes are no value of the JSON Schema {self.name}: "
                f"{_reason(error)}"
            ) from error
        return value


class JsonCodec:
    """JSON of any shape, for values that come without a schema."""

    name = ""

    def encode(self, value: object) -> bytes:
        """The value as JSON in UTF-8.

        Raises:
            UnencodableError: it is nothing that JSON has.
        """
        try:
            return _to_json(value).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise UnencodableError(
                f"a {type(value).__qualname__} is no JSON: {_reason(error)}"
            ) from error

    def decode(self, data: bytes, position: int) -> object:
        """The value of the JSON text from a position on.

        Raises:
            UndecodableError: it is no JSON in UTF-8, or is too deep.
        """
        try:
            return load_json(data[position:].decode())
        except (ValueError, RecursionError) as error:
            raise UndecodableError(
                f"{len(data) - position} bytes are no JSON: {_reason(error)}"
            ) from error


def _parse(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        parsed = load_json(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"this JSON Schema is no JSON: {_reason(error)}") from error
    if not isinstance(parsed, dict | bool):
        raise SchemaError("a JSON Schema is an object, true or false")
    return parsed


def _has_id(parsed: object) -> bool:
    return isinstance(parsed, dict) and isinstance(parsed.get("$id"), str)


def _title(parsed: object) -> str:
    title = parsed.get("title") if isinstance(parsed, dict) else None
    return title if isinstance(title, str) else ""


def _reason(error: Exception) -> str:
    """The first sentence of an error; the library's own go on with the whole value."""
    words = " ".join(str(getattr(error, "message", error)).split())[:300]
    return words or type(error).__name__
