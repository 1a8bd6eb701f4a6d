"""Read settings from a `server.properties` file and from `NAME=VALUE` words."""

from collections.abc import Iterable

from tailrace.errors import ConfigError


def read_properties(text: str) -> dict[str, str]:
    """Names and values of a Java properties file.

    Comments (`#`, `!`), blank lines, `=` or `:` between name and value, and a backslash that
    continues a line. Unicode escapes, which Kafka's own files never use, are left as they are.
    """
    values: dict[str, str] = {}
    pending = ""
    for raw in [*text.splitlines(), ""]:
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
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
