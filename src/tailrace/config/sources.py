"""Read settings from a `server.properties` file, `NAME=VALUE` words, and mappings."""

from collections.abc import Iterable, Mapping
from os import PathLike

from tailrace.errors import ConfigError, kind_of


def read_properties(text: str) -> dict[str, str]:
    """Names and values of a Java properties file.

    Comments (`#`, `!`), blank lines, `=` or `:` between name and value, and a backslash that
    continues a line. Unicode escapes, which Kafka's own files never use, are left as they are.
    """
    values: dict[str, str] = {}
    pending = ""
    # An empty line at the end, for a last line that is continued.
    for raw in [*text.splitlines(), ""]:
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        # The first of both marks: a value may contain the other, as in a URL.
        ends = [position for mark in "=:" if (position := line.find(mark)) >= 0]
        end = min(ends, default=len(line))
        values[line[:end].strip()] = line[end + 1 :].strip()
    return values


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
                texts[name.replace("_", ".")] = _text(value)
            except TypeError as error:
                faults.append(f"{name.replace('_', '.')} {error}")
    if faults:
        raise ConfigError(faults)
    return texts


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
