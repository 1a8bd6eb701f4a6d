"""JSON Schema by jsonschema-rs: what fits comes back, and all else is refused."""

import contextlib
import json
import time
from typing import Any

import pytest

from tailrace.schemas import Schema, SchemaError, SchemaType, UndecodableError, UnencodableError
from tailrace.schemas.json_schema import JsonCodec, JsonSchemaCodec
from tailrace.schemas.schema import DEPTH_MAX, ResolvedSchema
from tests.unit.schemas.samples import JSON, PERSON_VALUE

ANYTHING = True


def codec(schema: Any, **used: Any) -> JsonSchemaCodec:
    """The codec of a schema given as JSON; those it uses by name, with `_` for a dot."""
    text = schema.text if isinstance(schema, Schema) else json.dumps(schema)
    known = tuple((name.replace("_", "."), json.dumps(each)) for name, each in used.items())
    return JsonSchemaCodec(
        ResolvedSchema(schema=Schema(type=SchemaType.JSON, text=text), dependencies=known)
    )


def test_a_value_comes_back() -> None:
    """In UTF-8, without spaces."""
    found = codec(JSON)
    assert found.name == "Person"
    data = found.encode(PERSON_VALUE)
    assert '"city":"Köln"'.encode() in data
    assert found.decode(b"12345" + data, 5) == PERSON_VALUE


@pytest.mark.parametrize(
    "value", [{"name": "ann"}, {}, {"name": "Ann", "age": "7"}, {"name": "A", "b": 1}, 3]
)
def test_a_value_that_does_not_fit_is_refused_both_ways(value: Any) -> None:
    """When it is written, and when somebody else has written it."""
    with pytest.raises(UnencodableError, match="does not fit the JSON Schema Person"):
        codec(JSON).encode(value)
    with pytest.raises(UndecodableError, match="are no value of the JSON Schema Person"):
        codec(JSON).decode(json.dumps(value).encode(), 0)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", {"a": object()}])
def test_a_value_that_json_lacks_is_refused(value: Any) -> None:
    """Also where the schema takes anything."""
    with pytest.raises(UnencodableError):
        codec(ANYTHING).encode(value)
    with pytest.raises(UnencodableError):
        JsonCodec().encode(value)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b"NaN", b"1" * 5000, b"[" * 100_000, b"[" * 200 + b"]" * 200],
)
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    """Also what would be too deep for a stack."""
    for found in (codec(ANYTHING), JsonCodec()):
        with pytest.raises(UndecodableError):
            found.decode(data, 0)


def test_brackets_in_texts_are_no_depth() -> None:
    """Only those that nest are counted."""
    value = ["[" * 1000, {"a": ['\\"' + "{" * 1000]}, *([[]] * 1000)]
    found = codec(ANYTHING)
    assert found.decode(found.encode(value), 0) == value


def test_references_are_those_that_came_with_the_schema() -> None:
    """By the name that the reference has; nothing is fetched."""
    found = codec({"$ref": "city.json"}, city_json={"type": "string"})
    assert found.decode(b'"a"', 0) == "a"
    with pytest.raises(UndecodableError):
        found.decode(b"1", 0)
    for outside in ("other.json", "http://localhost:1/a.json", "file:///etc/hostname"):
        with pytest.raises(SchemaError, match="cannot be used"):
            codec({"$ref": outside}, city_json={"type": "string"})


def test_a_pattern_that_backtracks_is_bounded() -> None:
    """It ends with a refusal, after some milliseconds and not after years."""
    found = codec({"type": "string", "pattern": "^(a|a|b+)+(?=c)$"})
    start = time.process_time()
    with pytest.raises(UndecodableError):
        found.decode(b'"' + b"ab" * 200 + b'"', 0)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
         "$ref": "#/$defs/a"},
    ],
)  # fmt: skip
def test_a_schema_that_leads_to_itself_ends(schema: Any) -> None:
    """It is refused, or refuses its values, or takes them; the process goes on."""
    with contextlib.suppress(SchemaError, UndecodableError):
        codec(schema).decode(b"1", 0)
    assert codec(ANYTHING).decode(b"1", 0) == 1


def test_a_value_as_deep_as_a_recursive_schema_allows_comes_back() -> None:
    """Up to the limit of levels."""
    found = codec({"items": {"$ref": "#"}, "type": "array"})
    data = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert found.decode(data, 0) == json.loads(data)


@pytest.mark.parametrize(
    "text",
    ["", "17", "[]", '{"type": "nothing"}', '{"pattern": "("}', '{"properties": 3}', "[" * 100_000],
)
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    """Whatever it lacks, the error is ours."""
    with pytest.raises(SchemaError):
        codec(Schema(type=SchemaType.JSON, text=text))


def referring(root: Any, **known: Any) -> JsonSchemaCodec:
    """The codec of a schema with references, by names in which `__` is a slash and `_` a dot."""
    return codec(root, **{name.replace("__", "/"): each for name, each in known.items()})


_HOST = "json-schema"
DRAFT_4 = f"http://{_HOST}.org/draft-04/schema#"
TEXT, NUMBER = {"type": "string"}, {"type": "number"}


@pytest.mark.parametrize("is_turned", [False, True])
def test_names_that_end_alike_are_two_schemas(is_turned: bool) -> None:  # noqa: FBT001
    """Whichever of them the registry lists first."""
    named = {"address_json": TEXT, "common__address_json": NUMBER}
    if is_turned:
        named = dict(reversed(named.items()))
    found = referring(
        {"prefixItems": [{"$ref": "address.json"}, {"$ref": "common/address.json"}]}, **named
    )
    assert found.decode(b'["a", 1]', 0) == ["a", 1]
    with pytest.raises(UndecodableError):
        found.decode(b'[1, "a"]', 0)


def test_a_name_that_merely_ends_like_a_reference_is_not_taken() -> None:
    """A schema that did not come along is missed, and another does not take its place."""
    with pytest.raises(SchemaError, match=r"'common/address\.json' is not present"):
        referring({"$ref": "common/address.json"}, address_json=TEXT)


@pytest.mark.parametrize(
    ("root", "known"),
    [
        ({"$id": "http://example.com/s/root.json", "$ref": "a.json"}, {"a_json": TEXT}),
        ({"$id": "http://example.com/s/root.json", "$ref": "http://example.com/s/a.json"},
         {"a_json": TEXT}),
        ({"$ref": "http://example.com/a"}, {"any": {"$id": "http://example.com/a", **TEXT}}),
        ({"$ref": "c/b.json"}, {"c__b_json": {"$ref": "a.json"}, "a_json": TEXT}),
        ({"$ref": "c/b.json"},
         {"c__b_json": {"$ref": "a.json"}, "c__a_json": TEXT, "a_json": NUMBER}),
        ({"$ref": "b.json"},
         {"b_json": {"$id": "http://example.com/b/b.json", "$ref": "a.json"}, "a_json": TEXT}),
        ({"$schema": DRAFT_4, "id": "http://example.com/r.json",
          "allOf": [{"$ref": "a.json"}]}, {"a_json": TEXT}),
        ({"$ref": "a.json#/definitions/t"}, {"a_json": {"definitions": {"t": TEXT}}}),
    ],
)  # fmt: skip
def test_references_are_resolved_to_whole_uris(root: Any, known: dict[str, Any]) -> None:
    """By the URI of the schema that has them, which it says itself or gets from its name."""
    found = referring(root, **known)
    assert found.decode(b'"a"', 0) == "a"
    with pytest.raises(UndecodableError):
        found.decode(b"1", 0)
