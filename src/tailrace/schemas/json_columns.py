"""The column of a JSON Schema.

    string, integer, number, boolean           string, int64, double, bool
    array with items of one schema             list
    object with properties                     struct; other properties are left out
    object with additionalProperties only      map
    a type or null, as ["string", "null"]      that type
    all else, and what contains itself         string: JSON

Needs PyArrow.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from tailrace.schemas.columns import FieldBudget, TypePlan, list_of, map_of, struct_of
from tailrace.schemas.json_schema import KnownSchemas, joined


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _as_integer(value: object) -> object:
    """JSON Schema takes 1.0 for an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


_TEXT: Final = TypePlan(pa.string(), _as_text)
_PRIMITIVES: Final = {
    "string": TypePlan(pa.string()),
    "integer": TypePlan(pa.int64(), _as_integer),
    "number": TypePlan(pa.float64(), float),
    "boolean": TypePlan(pa.bool_()),
    "null": TypePlan(pa.null()),
}
_MIXED: Final = ("oneOf", "anyOf", "allOf", "not", "if", "patternProperties", "prefixItems")
"""Keywords under which the type is not the one that stands beside them."""


class _Place(NamedTuple):
    """The document that a part of a schema is in, where its references begin."""

    uri: str
    root: object


def plan_json(schemas: KnownSchemas) -> TypePlan:
    """The column of a schema.

    Raises:
        SchemaError: it has more fields than a table should.
    """
    root = schemas.root
    return _Planner(schemas).plan(root, _Place(schemas.base, root), ())


class _Planner:
    def __init__(self, schemas: KnownSchemas) -> None:
        self._schemas = schemas
        self._budget = FieldBudget()

    def plan(self, schema: object, place: _Place, above: tuple[int, ...]) -> TypePlan:
        """The plan of a schema; `above` are the identities of those that it is within."""
        schema, place, above = self._followed(schema, place, above)
        if not isinstance(schema, dict) or id(schema) in above:
            return _TEXT
        within = (*above, id(schema))
        kind = self._kind(schema)
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        if kind == "array" and isinstance(schema.get("items"), dict):
            return list_of(self.plan(schema["items"], place, within))
        properties = schema.get("properties")
        if kind == "object" and isinstance(properties, dict) and properties:
            self._budget.take(len(properties) + 1)
            return struct_of(
                {name: self.plan(each, place, within) for name, each in properties.items()},
                _field,
            )
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return map_of(self.plan(schema["additionalProperties"], place, within))
        return _TEXT

    def _followed(
        self, schema: object, place: _Place, above: tuple[int, ...]
    ) -> tuple[object, _Place, tuple[int, ...]]:
        """The schema that a reference leads to, and its place."""
        while isinstance(schema, dict):
            own = schema.get("$id")
            if isinstance(own, str) and not own.startswith("#"):
                place = _Place(joined(place.uri, own), schema)
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            if id(schema) in above:
                return None, place, above
            above = (*above, id(schema))
            document, _, pointer = reference.partition("#")
            if document:
                uri = joined(place.uri, document)
                try:
                    place = _Place(uri, self._schemas.find(uri))
                except LookupError:
                    # A part of a document may have a URI of its own, which is not looked for.
                    return None, place, above
            schema = _pointed(place.root, unquote(pointer))
        return schema, place, above

    def _kind(self, schema: Mapping[str, Any]) -> str:
        """The type that all values but null have; empty if there are several."""
        if any(each in schema for each in _MIXED):
            return self._nullable_kind(schema)
        kind = schema.get("type")
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            kind = others[0] if len(others) == 1 else ""
        return kind if isinstance(kind, str) else ""

    def _nullable_kind(self, schema: Mapping[str, Any]) -> str:
        """The type of `oneOf` null and one primitive type, as generators write it."""
        for keyword in ("oneOf", "anyOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and len(schema.keys() & set(_MIXED)) == 1:
                kinds = [each.get("type") for each in branches if isinstance(each, dict)]
                others = [each for each in kinds if each != "null"]
                if len(kinds) == len(branches) == len(others) + 1 and others[0:1] != [None]:
                    found = others[0] if len(others) == 1 else ""
                    return found if isinstance(found, str) and found in _PRIMITIVES else ""
        return ""


def _field(value: object, name: str) -> object:
    # Without a `type` a schema takes values that are no objects.
    if not isinstance(value, dict):
        raise TypeError(f"{json.dumps(value)[:80]} is no object with a field {name}")
    return value.get(name)


def _pointed(schema: object, pointer: str) -> object:
    """The part that a JSON pointer leads to; None where it leads nowhere, or is an anchor."""
    if pointer and not pointer.startswith("/"):
        return None
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, dict):
            return None
        schema = schema.get(name)
    return schema
