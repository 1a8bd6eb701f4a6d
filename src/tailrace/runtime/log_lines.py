r"""Log lines of a process: one event, one line, as text for people or as JSON.

    2026-11-30T06:16:00.123Z INFO tailrace.broker.start broker_started node=1 listen=127.0.0.1:9092

    {"time": "2026-11-30T06:16:00.123Z", "level": "INFO", "logger": "tailrace.broker.start",
     "event": "broker_started", "node": 1, "listen": "127.0.0.1:9092"}

A module logs an event and its fields by a format, `logger.info("broker_started node=%d", 1)`. Their
names are read in the format and never in values, which clients may choose. So each program that
has tailrace in it, with whatever handler of its own, gets a readable line from the same call.

Invariant: a value cannot end its line, nor look like another field: in text it is quoted as in JSON
where it is empty, has a space, a quote or `=`, or a character that is not printable. A traceback is
a field.

Not here: which lines are counted instead of written (`limited_lines`).
"""

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple

from tailrace.runtime.clock import iso_time

TRACE: Final = 5
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": TRACE, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING,
    "ERROR": logging.ERROR, "FATAL": logging.CRITICAL,
}  # fmt: skip
"""Python's level for each of Kafka's, rising."""

FORMATS: Final = ("text", "json")

OTHER_EVENT: Final = "library_message"
"""The event of a line of another library, whose text is the field `message`."""

_PACKAGE: Final = "tailrace"
_KEY: Final = re.compile(r"(?:^|\s)([a-z][a-z0-9_]*)=")
_SPECIFIER: Final = re.compile(r"%(?:%|[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?([a-zA-Z]))")
_PLAIN: Final = re.compile(r'[^\s="]+')


def level_name(level: int) -> str:
    """Kafka's name of a level: the highest that is not above it."""
    found = "TRACE"
    for name, number in LEVELS.items():
        if number <= level:
            found = name
    return found


class _Field(NamedTuple):
    """A field of a format, and the arguments that it takes."""

    name: str
    text: str
    """The format of its value."""
    taken: int
    """The number of its arguments."""
    conversion: str
    """The letter of its conversion, if that is all of the text; else empty."""


class _Format(NamedTuple):
    event: _Field
    fields: tuple[_Field, ...]
    taken: int


@lru_cache(maxsize=1024)
def _read(text: str) -> _Format:
    keys = [*_KEY.finditer(text)]
    starts = [each.start() for each in keys]
    event = _field("event", text[: starts[0]] if keys else text)
    fields = tuple(
        _field(each[1], text[each.end() : end])
        for each, end in zip(keys, [*starts, len(text)][1:], strict=True)
    )
    return _Format(event, fields, sum(each.taken for each in (event, *fields)))


def _field(name: str, text: str) -> _Field:
    text = text.strip()
    specifiers = [each for each in _SPECIFIER.finditer(text) if each[3]]
    count = sum(1 + each.group(0).count("*") for each in specifiers)
    is_whole = len(specifiers) == 1 and specifiers[0].group(0) == text
    return _Field(name, text, count, specifiers[0][3] if is_whole else "")


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The event of a record and its fields, by name, as JSON has them."""
    try:
        found = dict(_fields(record))
    # What a value prints is code of its class. The line says so, and is not lost.
    except Exception as error:  # noqa: BLE001
        found = {"event": OTHER_EVENT, "message": f"{record.msg} ({error!r})"}
    if record.exc_info and record.exc_info[1] is not None:
        found["traceback"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    if record.stack_info:
        found["stack"] = record.stack_info
    return found


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    arguments = record.args
    if record.name.partition(".")[0] != _PACKAGE:
        yield from (("event", OTHER_EVENT), ("message", record.getMessage()))
        return
    form = _read(str(record.msg))
    # A line of ours that is none of events and fields, as the warnings for readers of a notebook.
    if not isinstance(arguments, tuple) or form.taken != len(arguments) or " " in form.event.text:
        yield from (("event", OTHER_EVENT), ("message", record.getMessage()))
        return
    position = 0
    for each in (form.event, *form.fields):
        values = arguments[position : position + each.taken]
        position += each.taken
        yield each.name, _value(each, values)


def _value(field: _Field, values: tuple[object, ...]) -> object:
    match field.conversion:
        case "s" if field.text == "%s":
            return _typed(values[0])
        # It is for handlers that do not quote.
        case "r" if isinstance(values[-1], str):
            return (field.text[:-1] + "s") % values
        case "" | "s" | "r":
            return field.text % values
        case _:
            text = field.text % values
            number = float(text)
            if not isfinite(number):
                return text
            return int(text) if text.lstrip("+-").isdigit() else number


def _typed(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    # Not numbers with names, such as those of an enumeration.
    return value if value is None or type(value) in {bool, int} else str(value)


class LineFormatter(logging.Formatter):
    """Formats a record as one line."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields = fields_of(record)
        head = {
            "time": iso_time(int(record.created * 1000)),
            "level": level_name(record.levelno),
            "logger": record.name,
        }
        if self._is_json:
            return _json({**head, **fields})
        event = fields.pop("event")
        words = [*head.values(), str(event)]
        return " ".join([*words, *(f"{name}={_text(value)}" for name, value in fields.items())])


def _text(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.isprintable() else _json(value)
    return _json(value)


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Else it may have what ends a line for some reader, or changes the direction of its text.
    return text if text.isprintable() else json.dumps(value)


def write_log(*, is_json: bool, level: int) -> None:
    """Write the log of this process to stderr from now on.

    With warnings, and with errors that nobody handles, which Python writes as some twenty lines.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(is_json=is_json))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(capture=True)
    sys.excepthook = lambda _, error, __: _log_end(error)
    threading.excepthook = lambda ended: _log_end(ended.exc_value)
    sys.unraisablehook = lambda ended: _log_end(ended.exc_value)


def _log_end(error: BaseException | None) -> None:
    logging.getLogger(__name__).error("error_not_handled", exc_info=error)
