"""The definitions of Kafka's messages, as frozen values.

A definition is a JSON file with `//` comments: a message with its versions and its fields, which
may have fields of their own. Versions are written `0+`, `3-5`, `2` or `none`.

Not here: `about`, `ignorable`, `entityType`, `mapKey` and `zeroCopy`, which change no byte.

Invariant: what this module does not know is refused, so that no new word of Kafka's is ignored.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.errors import FatalError

NO_VERSION = 32_767
"""The first flexible version of a message that has none."""

PRIMITIVES = frozenset(
    {
        "bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid", "string", "bytes",
        "records",
    }
)  # fmt: skip

_MESSAGE_WORDS = {
    "apiKey", "type", "listeners", "name", "validVersions", "deprecatedVersions",
    "flexibleVersions", "latestVersionUnstable", "fields", "commonStructs",
}  # fmt: skip
_FIELD_WORDS = {
    "name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "fields",
    "about", "ignorable", "entityType", "mapKey", "zeroCopy",
}  # fmt: skip


class DefinitionError(FatalError):
    """A definition says something that the tables cannot express."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A range of versions."""

    first: int
    last: int | None
    """Included; None: all later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a struct."""

    name: str
    """In snake case."""
    type: str
    """A primitive or the name of a struct."""
    is_array: bool
    versions: Versions
    nullable_since: int | None
    tag: int | None
    default: str | None
    """The default in Kafka's spelling; None: the definition has none, `null`: it is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """A message, or a struct inside of one."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One message."""

    kind: str
    """`request`, `response`, `data`, `coordinator-key`, `coordinator-value` or `metadata`."""
    number: int | None
    """The API key, or the type of a record; None for data."""
    versions: Versions
    flexible_since: int
    structs: tuple[Struct, ...]
    """Each after those that it uses; the last is the message itself."""


def snake_case(name: str) -> str:
    """A name of Kafka's, in capitals or camel case, in Python's manner."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def parse(text: str) -> Definition:
    """The definition in a JSON file.

    Raises:
        DefinitionError: it has a word, a type or a combination that is not known here.
    """
    table = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    name = table["name"]
    _check_words(name, table, _MESSAGE_WORDS)
    common = {each["name"]: each for each in table.get("commonStructs", ())}
    structs: dict[str, Struct] = {}
    _add_struct(structs, common, name, field_tables=table["fields"])
    versions = _versions(table["validVersions"])
    flexible = table["flexibleVersions"]
    return Definition(
        kind=table["type"],
        number=table.get("apiKey"),
        versions=versions,
        flexible_since=NO_VERSION if flexible == "none" else _versions(flexible).first,
        structs=tuple(structs.values()),
    )


def _check_words(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise DefinitionError(f"{where} has {', '.join(unknown)}, which is not known here")


def _versions(text: str) -> Versions:
    found = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
    if found is None:
        raise DefinitionError(f"versions {text!r} are not understood")
    first, rest, last = found.groups()
    if rest == "+":
        return Versions(first=int(first), last=None)
    return Versions(first=int(first), last=int(last or first))


def _add_struct(
    structs: dict[str, Struct], common: Mapping[str, Any], name: str, *, field_tables: list[Any]
) -> None:
    """Add a struct after the structs of its fields."""
    for table in field_tables:
        kind = table["type"].removeprefix("[]")
        if kind not in PRIMITIVES and kind not in structs:
            inner = table["fields"] if "fields" in table else common[kind]["fields"]
            _add_struct(structs, common, kind, field_tables=inner)
    structs[name] = Struct(name=name, fields=tuple(_field(name, each) for each in field_tables))


def _field(owner: str, table: Mapping[str, Any]) -> Field:
    where = f"{owner}.{table['name']}"
    _check_words(where, table, _FIELD_WORDS)
    tagged = table.get("taggedVersions")
    versions = table.get("versions", tagged)
    if tagged not in (None, versions):
        raise DefinitionError(f"{where} has versions {versions} and tagged versions {tagged}")
    parsed = _versions(versions)
    nullable = table.get("nullableVersions")
    if nullable is not None and (_versions(nullable).last or parsed.last) != parsed.last:
        raise DefinitionError(f"{where} of versions {versions} is null only in {nullable}")
    default = table.get("default")
    return Field(
        name=snake_case(table["name"]),
        type=table["type"].removeprefix("[]"),
        is_array=table["type"].startswith("[]"),
        versions=parsed,
        nullable_since=None if nullable is None else _versions(nullable).first,
        tag=table.get("tag"),
        # Null without quotes is no default at all to Kafka's generator, and not the default null.
        default=None if default in (None, "") else str(default),
    )
