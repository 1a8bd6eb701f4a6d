"""Read settings from a `server.properties` file, `NAME=VALUE` words, and mappings."""

import re
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Final, NamedTuple

from tailrace.errors import ConfigError, kind_of


class Property(NamedTuple):
    """A setting of a properties file."""

    name: str
    value: str
    line: int
    """The number of the line that it begins on, from 1."""


_END_OF_LINE: Final = re.compile(r"\r\n|\r|\n")
_NAME_AND_VALUE: Final = re.compile(
    r"((?:\\.|[^\\:=\ \t\f])*)[\ \t\f]*[:=]?[\ \t\f]*(.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def properties(text: str) -> Iterator[Property]:
    """The settings of a Java properties file, in their order (`java.util.Properties.load`).

    Comments (`#`, `!`), blank lines, `=`, `:` or spaces between name and value, a backslash that
    continues a line, and escapes with a backslash. Spaces at the end of a value are left out, as
    Kafka does with those of its settings.
    """
    pending, first = "", 0
    for number, raw in enumerate([*_END_OF_LINE.split(text), ""], 1):
        line = raw.lstrip(" \t\f")
        # Also after a line of a single backslash, as in Java.
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        # Two backslashes are one that was meant.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        found = _NAME_AND_VALUE.fullmatch(pending + line)
        # It matches every text that does not end in a single backslash.
        assert found is not None
        yield Property(_unescaped(found[1]), _unescaped(found[2]).rstrip(), first)
        pending = ""


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        escaped: str = found[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _CONTROLS.get(escaped, escaped)

    if "\\" not in text:
        return text
    # Two escapes may be the halves of one character, and a half alone cannot be written anywhere.
    halves = _ESCAPE.sub(character, text).encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "replace")


def read_properties(text: str) -> dict[str, str]:
    """Names and values of a Java properties file; see `properties`. The last of a name counts."""
    return {each.name: each.value for each in properties(text)}


def parse_assignments(words: Iterable[str]) -> dict[str, str]:
    """Names and values of words like `log.segment.bytes=1048576`.

    Raises:
        ConfigError: all words without `=`.
    """
    values, faults = {}, []
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            values[name.strip()] = value.strip()
        else:
            faults.append(f"{word!r} is not NAME=VALUE")
    if faults:
        raise ConfigError(faults)
    return values


def settings_texts(settings: object, more: Mapping[str, object] | None = None) -> dict[str, str]:
    """Settings as in a properties file: dotted names, and texts; without those that are None.

    Names may have underscores instead of dots. Values may be strings or Python's own: numbers,
    booleans, paths, and lists of these. `more` goes over `settings`, as keyword arguments do.

    Raises:
        TypeError: `settings` is no mapping.
        ConfigError: a name is no text, or a value of a type that no setting has; all of them.
    """
    if not isinstance(settings, Mapping | None):
        raise TypeError(
            f"settings is {kind_of(settings)}; it has to be a mapping of names to values, "
            'such as {"bootstrap.servers": "localhost:9092"} or {"num.partitions": 3}'
        )
    texts, faults = {}, []
    for name, value in {**(settings or {}), **(more or {})}.items():
        if not isinstance(name, str):
            faults.append(f"{name!r} is {kind_of(name)}; a name of a setting is a str")
        elif value is not None:
            try:
                texts[dotted_name(name)] = _text(value)
            except TypeError as error:
                faults.append(f"{dotted_name(name)} {error}")
    if faults:
        raise ConfigError(faults)
    return texts


def dotted_name(name: str) -> str:
    """A setting's name with dots; that of a listener is kept, as `sasl_ssl` in its prefix."""
    return name if name.startswith("listener.name.") else name.replace("_", ".")


def _text(value: object) -> str:
    # First, because a bool is an int.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, str | int | float | PathLike) or _is_number(value):
        return str(value)
    advice = ""
    if isinstance(value, bytes):
        advice = "; decode() makes a str of it"
    elif isinstance(value, Mapping):
        advice = "; a mapping of settings is the argument settings"
    raise TypeError(
        f"is {kind_of(value)}; a setting is a str, a number, a bool, or a list of these" + advice
    )


def _is_number(value: object) -> bool:
    """Whether it is a number of another package, such as NumPy."""
    from numbers import Real  # Most settings are Python's own numbers, and need no other class.

    return isinstance(value, Real)
