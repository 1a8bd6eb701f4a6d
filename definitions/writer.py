"""Definitions and their words as a module of dataclasses, before Ruff has formatted it.

A field is one line. Its sentence is a comment at the end of the line, or before the line if that
would be too long.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from definitions.model import NO_VERSION, Definition, DefinitionError, Field, Struct
from definitions.words import Words

LINE_MAX = 100
_INDENT = "    "

_COMMENT = (
    "# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml."
)
_TYPES = {"bool": "bool", "float64": "float", "uuid": "UUID", "string": "str", "bytes": "bytes"}
_INTEGERS = {"int8", "int16", "uint16", "int32", "int64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """A struct of a module, under our name."""

    name: str
    words_name: str
    """Its name in words.toml."""
    struct: Struct
    definition: Definition
    names: dict[str, str]
    """Our names for the structs of that message."""

    @property
    def is_message(self) -> bool:
        return self.struct is self.definition.structs[-1]


def write_module(section: str, definitions: Sequence[Definition], words: Words) -> str:
    """The text of a module.

    Raises:
        DefinitionError: a default is not understood.
    """
    classes = _classes(section, definitions, words)
    head = f"{_docstring(words.of_module(section))}\n\n{_COMMENT}\n\n{_imports(classes)}"
    return "\n\n\n".join(
        [head, *("\n".join(_class_lines(section, each, words)) for each in classes)]
    )


def _classes(section: str, definitions: Sequence[Definition], words: Words) -> list[_Class]:
    classes: dict[str, _Class] = {}
    for definition in definitions:
        names: dict[str, str] = {}
        for struct in definition.structs:
            words_name = struct.name
            name = words.name(section, words_name)
            known = classes.get(name)
            if known is not None and not _is_same(known, struct, names):
                # Another struct of the response than of the request.
                name = words_name = definition.structs[-1].name + struct.name
            names[struct.name] = name
            if name not in classes:
                classes[name] = _Class(
                    name=name, words_name=words_name, struct=struct, definition=definition,
                    names=names,
                )  # fmt: skip
    return list(classes.values())


def _is_same(known: _Class, struct: Struct, names: Mapping[str, str]) -> bool:
    """Whether a struct has the fields of a class, and their structs are the same classes."""
    inner = [field.type for field in struct.fields if field.type in names]
    return known.struct == struct and all(known.names[each] == names[each] for each in inner)


def _imports(classes: Sequence[_Class]) -> str:
    fields = [field for each in classes for field in each.struct.fields]
    lines = []
    if any(field.type == "uuid" for field in fields):
        lines += ["from uuid import UUID", ""]
    names = {"wire_array" if field.is_array else "wire" for field in fields}
    names |= {
        _records_type(each)
        for each in classes
        for field in each.struct.fields
        if field.type == "records"
    }
    if any(each.is_message and each.definition.flexible_since == NO_VERSION for each in classes):
        names.add("NO_VERSION")
    if names:
        lines.append(f"from tailrace.protocol.fields import {', '.join(sorted(names))}")
    lines.append("from tailrace.values import dataclass")
    return "\n".join(lines)


def _class_lines(section: str, each: _Class, words: Words) -> Iterator[str]:
    yield "@dataclass(frozen=True, slots=True, kw_only=True)"
    yield f"class {each.name}:"
    text = words.of_struct(section, each.words_name)
    if text:
        yield textwrap.indent(_docstring(text), _INDENT)
        yield ""
    if each.is_message:
        yield _versions_line(each.definition)
    for field in each.struct.fields:
        line = f"{_INDENT}{field.name}: {_annotation(each, field)} = {_declaration(each, field)}"
        text = words.of_field(section, each.words_name, field.name)
        if not text:
            yield line
        elif len(whole := f"{line}  # {text}") <= LINE_MAX:
            yield whole
        else:
            comment = f"{_INDENT}# "
            yield textwrap.fill(
                text,
                width=LINE_MAX,
                initial_indent=comment,
                subsequent_indent=comment,
                break_on_hyphens=False,
            )
            yield line


def _docstring(text: str) -> str:
    return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'


def _versions_line(definition: Definition) -> str:
    names = "first_version, last_version, flexible_since"
    versions = definition.versions
    flexible = definition.flexible_since
    values = f"{versions.first}, {versions.last}, "
    values += "NO_VERSION" if flexible == NO_VERSION else str(flexible)
    if definition.kind.startswith("coordinator") or definition.kind == "metadata":
        return f"{_INDENT}record_type, {names} = {definition.number}, {values}"
    return f"{_INDENT}{names} = {values}"


def _annotation(each: _Class, field: Field) -> str:
    found = _TYPES.get(field.type) or each.names.get(field.type) or "int"
    if field.type == "records":
        found = _records_type(each)
    if field.is_array:
        found = f"tuple[{found}, ...]"
    return f"{found} | None" if field.nullable_since is not None else found


def _records_type(each: _Class) -> str:
    """Only those of a response may be in a file."""
    return "Records" if each.definition.kind == "response" else "Buffer"


def _declaration(each: _Class, field: Field) -> str:
    name = each.names.get(field.type)
    arguments = [name or f'"{field.type}"']
    if field.versions.first:
        arguments.append(f"since={field.versions.first}")
    last = field.versions.last
    if last is not None and last != each.definition.versions.last:
        arguments.append(f"until={last}")
    if field.nullable_since is not None:
        arguments.append(f"nullable_since={field.nullable_since}")
    if field.tag is not None:
        arguments.append(f"tag={field.tag}")
    default = _default(each, field)
    if default is not None:
        arguments.append(f"default={default}")
    return f"{'wire_array' if field.is_array else 'wire'}({', '.join(arguments)})"


def _default(each: _Class, field: Field) -> str | None:
    """The default as Python writes it; None for the one that the wire type has by itself."""
    default = field.default
    if default is None or (default == "null" and field.type == "records"):
        return None
    if default == "null" and field.nullable_since is not None:
        return "None"
    if field.is_array or field.type not in {*_INTEGERS, "bool", "float64"}:
        raise DefinitionError(f"{each.name}.{field.name} has the default {default!r}")
    if field.type == "bool":
        return "True" if default.lower() == "true" else None
    value = float(default) if field.type == "float64" else int(default, 0)
    return f"{value:_}" if value else None
