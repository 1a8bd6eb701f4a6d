"""The generator of the message tables, on definitions made for the test."""

import json
from typing import Any

import pytest

from definitions.model import Definition, DefinitionError, parse, snake_case
from definitions.words import Words
from definitions.writer import write_module

WORDS = """
[fields]
name = "The topic."

[ask]
_text = "Ask (99): for a test."

[ask.AskRequest]
_text = "Ask."
size = "Bytes."
parts = "Its parts."

[ask.Part]
_text = "A part."
"""


def definition(*fields: dict[str, Any], name: str = "AskRequest") -> Definition:
    """A request with these fields, as Kafka's file has it."""
    told = {
        "apiKey": 99, "type": "request", "listeners": ["broker"], "name": name,
        "validVersions": "0-3", "flexibleVersions": "2+", "fields": fields,
    }  # fmt: skip
    return parse(f"// A licence.\n{json.dumps(told, indent=1)}")


def written(*definitions: Definition, words: str = WORDS) -> str:
    """The module of these definitions, without what all modules have."""
    found = Words(words)
    text = write_module("ask", definitions, found)
    found.check()
    return text


def test_a_definition_becomes_a_dataclass() -> None:
    """Names, types, versions, tags and defaults are Kafka's; the sentences are ours."""
    text = written(
        definition(
            {"name": "Name", "type": "string", "versions": "0-1", "about": "KAFKAS"},
            {"name": "Size", "type": "int64", "versions": "1+", "default": "0x7fffffff"},
            {"name": "Parts", "type": "[]Part", "versions": "2+", "taggedVersions": "2+", "tag": 0,
             "nullableVersions": "2+", "default": "null",
             "fields": [{"name": "name", "type": "string", "versions": "2+"}]},
        )
    )  # fmt: skip
    assert '    name: str = wire("string", until=1)  # The topic.\n' in text
    assert '    size: int = wire("int64", since=1, default=2_147_483_647)  # Bytes.\n' in text
    declared = "wire_array(Part, since=2, nullable_since=2, tag=0, default=None)"
    assert f"parts: tuple[Part, ...] | None = {declared}" in text
    assert "first_version, last_version, flexible_since = 0, 3, 2\n" in text
    assert text.index("class Part:") < text.index("class AskRequest:")
    assert "KAFKAS" not in text


def test_a_sentence_that_makes_its_line_too_long_is_before_it() -> None:
    """In lines of 100 columns."""
    long = "words " * 12 + "more."
    words = f'[ask]\n_text = "Ask."\n[ask.AskRequest]\nsize = "{long}"\n'
    text = written(definition({"name": "Size", "type": "int64", "versions": "0+"}), words=words)
    assert f'    # {long}\n    size: int = wire("int64")' in text


def test_words_that_are_missing_or_not_used_are_listed() -> None:
    """All of them at once, by their places in words.toml; only a module must have a sentence."""
    asked = definition({"name": "Name", "type": "string", "versions": "0+"},
                       {"name": "MaxSize", "type": "int64", "versions": "0+"})  # fmt: skip
    with pytest.raises(DefinitionError) as caught:
        written(asked, words=WORDS.replace('_text = "Ask (99): for a test."', ""))
    assert str(caught.value).splitlines()[1:] == [
        "missing: ask._text",
        "not used: ask.AskRequest.parts",
        "not used: ask.AskRequest.size",
        "not used: ask.Part._text",
    ]


def test_another_struct_of_the_same_name_has_the_message_in_front() -> None:
    """A struct that both messages have is one class; one that differs is two."""
    part = {"name": "Parts", "type": "[]Part", "versions": "0+"}
    request = definition({**part, "fields": [{"name": "Name", "type": "string", "versions": "0+"}]})
    response = definition(
        {**part, "fields": [{"name": "Name", "type": "string", "versions": "1+"}]},
        name="AskResponse",
    )
    words = WORDS.replace('size = "Bytes."', "") + (
        '[ask.AskResponse]\n_text = "Answer."\nparts = "Its parts."\n'
        '[ask.AskResponsePart]\n_text = "A part."\n'
    )
    text = written(request, response, words=words)
    assert "parts: tuple[AskResponsePart, ...] = wire_array(AskResponsePart)" in text
    assert "class Part:" in text


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"name": "A", "type": "int8", "versions": "0+", "flavour": 1}, "flavour"),
        ({"name": "A", "type": "int8", "versions": "x"}, "versions 'x'"),
        (
            {"name": "A", "type": "int8", "versions": "0+", "taggedVersions": "2+", "tag": 0},
            "tagged",
        ),
        (
            {"name": "A", "type": "string", "versions": "0+", "nullableVersions": "0-1"},
            "only in 0-1",
        ),
    ],
)
def test_what_the_tables_cannot_express_is_refused(field: dict[str, Any], why: str) -> None:
    """A new word of Kafka's ends the generator, and is not ignored."""
    with pytest.raises(DefinitionError, match=why):
        definition(field)


def test_null_without_quotes_is_no_default() -> None:
    """Kafka's generator takes it so: the default of such a struct is an empty one."""
    inner = {
        "name": "Part",
        "type": "Part",
        "versions": "0+",
        "nullableVersions": "0+",
        "fields": [],
    }
    assert definition({**inner, "default": None}).structs[-1].fields[0].default is None
    assert definition({**inner, "default": "null"}).structs[-1].fields[0].default == "null"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("topicId", "topic_id"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("IsrNodes", "isr_nodes"),
    ],
)
def test_names_are_in_snake_case(name: str, ours: str) -> None:
    """Capitals begin words; digits end none."""
    assert snake_case(name) == ours
