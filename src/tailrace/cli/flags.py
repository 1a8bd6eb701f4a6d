"""Errors in the words that were typed: `--data` for the option `path` of the Spark source.

The jobs name their arguments and the options of the source, as a program gives them. A command
gives most of these by flags of its own, and all others by `--option NAME=VALUE`.

Invariant: a sentence that names no argument and no option stays as it is.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.errors import ConfigError, DirectoryError, FatalError
from tailrace.spark.options import names
from tailrace.spark.options.parse import CLIENT_OPTIONS, REGISTRY_OPTIONS

_FLAGS: Final = {
    "path": "--data",
    "kafka.bootstrap.servers": "--bootstrap",
    "subscribe": "--topic",
    "archive": "--archive",
    "target": "--to",
    "by": "--by",
    "codec": "--codec",
    "value_schema": "--schema",
    "format": "--format",
    "table_options": "--table-option",
    "offset_map": "--offset-map",
    "topics": "--rename",
    "keeps_partitions": "--keep-partitions",
}
"""Flags by the arguments of jobs and the options of the source."""

_OPTIONS: Final = {
    name.lower(): name
    for name in (*names.KNOWN, *CLIENT_OPTIONS, *REGISTRY_OPTIONS, *names.HARMLESS, *names.REFUSED)
}

_PLAIN_WORDS: Final = frozenset({"path", "paths", "columns", "mode"})
"""Options that are words of other sentences too, so they are replaced where a fault begins only."""

_IN_TEXT: Final = re.compile(
    r"(?<![\w.'/-])(?<!--option )(?:"
    + "|".join(
        re.escape(name)
        # Longest first: of alternatives the first that matches counts, and names begin with others.
        for name in sorted(_OPTIONS.values(), key=len, reverse=True)
        if name not in _PLAIN_WORDS
    )
    + r")(?![\w'/-]|\.\w)"
)

_FAULT: Final = re.compile(r"(\[[\w.]+\] )?([\w.]+(?:, [\w.]+)*): (.*)", re.DOTALL)
"""Spark's name of the error, the arguments or options that are at fault, and the rule."""

_MISSING: Final = re.compile(r"topic '([^']*)' does not exist; there are: ")


def in_flags(sentence: str) -> str:
    """A sentence of an error with the flags that give what it names."""
    fault = _FAULT.fullmatch(sentence)
    if fault is None:
        return _MISSING.sub(r"--topic \1 does not exist; there are: ", _text_in_flags(sentence))
    error_class, named, rule = fault.groups(default="")
    if named == "producer_settings":
        setting, _, rule = rule.partition(": ")
        flag = "--to" if setting == "bootstrap.servers" else f"--target-option {setting}"
        return f"{flag}: {rule}"
    is_unknown_option = rule.startswith("no such option")
    if not is_unknown_option and not all(map(_is_known, named.split(", "))):
        return _text_in_flags(sentence)
    rest, there_are, given = rule.partition("; there are ")
    if there_are and all(map(_is_known, given.split(", "))):
        given = _list_in_flags(given)
    return f"{error_class}{_list_in_flags(named)}: {_text_in_flags(rest)}{there_are}{given}"


@contextmanager
def errors_in_flags() -> Iterator[None]:
    """Make errors about arguments and options name the flags; also works as a decorator."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([in_flags(fault) for fault in error.faults]) from error
    # It and ConfigError are FatalErrors, so they come first.
    except DirectoryError as error:
        raise DirectoryError(in_flags(str(error))) from error
    except FatalError as error:
        # Its subclasses have fields that a new error would lack.
        if type(error) is not FatalError:
            raise
        raise FatalError(in_flags(str(error))) from error


def _is_known(name: str) -> bool:
    return name in _FLAGS or name.lower() in _OPTIONS


def _flag(name: str) -> str:
    # Spark takes the names of options in any case.
    return _FLAGS.get(name.lower()) or f"--option {_OPTIONS.get(name.lower(), name)}"


def _list_in_flags(named: str) -> str:
    return ", ".join(dict.fromkeys(map(_flag, named.split(", "))))


def _text_in_flags(text: str) -> str:
    return _IN_TEXT.sub(lambda found: _flag(found[0]), text)
