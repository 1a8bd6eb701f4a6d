"""`JsonSchemaCodec`: JSON values of one JSON Schema, by jsonschema-rs.

References lead only to the schemas that came with this one: nothing is fetched. A reference is
resolved to a whole URI, and so is the name of each schema that came along; two names that end alike
are two schemas. Patterns may backtrack, up to a limit.

Needs jsonschema-rs.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import jsonschema_rs

from tailrace.schemas.errors import SchemaError, UndecodableError, UnencodableError
from tailrace.schemas.schema import ResolvedSchema, load_json

BACKTRACKS_MAX: Final = 100_000
"""Most steps back of a pattern on one string: some milliseconds."""

_BASE: Final = "json-schema:///"
"""Base of references in a schema that has no `$id`."""

_to_json: Final = json.JSONEncoder(
    # Python writes NaN and Infinity by default, which no JSON parser elsewhere takes.
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
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
        named = {name: _parse(text) for name, text in schema.dependencies}
        self.known = KnownSchemas(parsed, named)
        """The schemas that it may refer to."""
        try:
            self._validator = jsonschema_rs.validator_for(
                parsed,
                # Its own retriever resolves a reference by `$id` or by where the schema came from,
                # now one and now the other; a registry can have both.
                registry=jsonschema_rs.Registry(self.known.others(), retriever=self.known.find),
                base_uri=_BASE,
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
        # jsonschema-rs raises a ValidationError, which is a ValueError.
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


class KnownSchemas:
    """A schema and those that came with it, by the URIs that references are resolved to."""

    def __init__(self, root: object, named: Mapping[str, object]) -> None:
        """`named` are those that came along, by the names that the references have in the text."""
        self.root = root
        self.base = _base_of(root, _BASE)
        """The URI of the schema itself."""
        by_name = {joined(self.base, name): each for name, each in named.items()}
        # A schema that came along may itself say what its URI is.
        by_id = {_base_of(each, uri): each for uri, each in by_name.items()}
        self._known = {**by_id, **by_name, self.base: root}
        # Those that came along refer to others by names that are relative to themselves.
        for base, each in (*by_id.items(), *by_name.items()):
            for name in _references_of(each) & named.keys():
                self._known.setdefault(joined(base, name), named[name])

    def others(self) -> list[tuple[str, Any]]:
        """The schemas that came along, each with every URI that leads to it."""
        return [(uri, each) for uri, each in self._known.items() if each is not self.root]

    def find(self, uri: str) -> Any:  # noqa: ANN401 - JSON
        """The schema of a URI.

        Raises:
            LookupError: none came along.
        """
        document = uri.partition("#")[0]
        if document not in self._known:
            raise LookupError(f"{uri} is none of the schema's references")
        return self._known[document]


def joined(base: str, reference: str) -> str:
    """The URI that a reference leads to from a document with this URI, without its fragment."""
    reference = reference.partition("#")[0]
    scheme, is_path, path = base.partition("://")
    if urlsplit(reference).scheme or not is_path:
        return reference
    # Python joins paths only under schemes that it knows.
    return scheme + urljoin(f"http://{path}", reference).removeprefix("http")


def _references_of(schema: object) -> set[str]:
    """The documents that a schema refers to, as its text names them."""
    found, left = set(), [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                found.add(reference.partition("#")[0])
            left += part.values()
        elif isinstance(part, list):
            left += part
    return found


def _base_of(schema: object, base: str) -> str:
    """The URI that a schema has, by its own words or else `base`."""
    if not isinstance(schema, dict):
        return base
    # Draft 4 has `id` and drafts from 6 on `$id`; in the latter `id` is a property like any other.
    is_old = "draft-04" in str(schema.get("$schema"))
    given = schema.get("id" if is_old else "$id")
    return joined(base, given) if isinstance(given, str) else base


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


def _title(parsed: object) -> str:
    title = parsed.get("title") if isinstance(parsed, dict) else None
    return title if isinstance(title, str) else ""


def _reason(error: Exception) -> str:
    """The first sentence of an error; the library's own go on with the whole value."""
    words = " ".join(str(getattr(error, "message", error)).split())[:300]
    return words or type(error).__name__
