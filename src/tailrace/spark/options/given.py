"""`GivenOptions`: Spark's strings read one by one, with every fault remembered.

Not here: what an option means (`parse`).

Invariant: a value that cannot be read becomes a fault and a harmless default, so that the reader
continues and all faults of one call are reported together.
"""

import difflib
import json
import re
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tailrace.config import Setting, parse_settings
from tailrace.spark.options.values import OPTIONS

_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?")

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of the units that Spark's time strings have; without a unit they are
milliseconds."""


class GivenOptions:
    """The options of one `load()`, by name in any case."""

    def __init__(self, given: Mapping[str, str], declared: Iterable[Setting] = OPTIONS) -> None:
        self.texts = {name.lower(): value for name, value in given.items()}
        """Values as they were given, by the name in lower case."""
        self.faults: list[str] = []
        self.values = parse_settings(
            declared,
            {
                # Spark compares words such as `earliest` in any case.
                each.name: text.lower() if each.choices else text
                for each in declared
                # An empty text counts as not given; an empty number stays, and becomes a fault.
                if (text := self.text(each.name)) is not None
                and (text.strip() or each.kind == "int")
            },
            faults=self.faults,
        )
        """The parsed value of each declared option, or its default."""

    def fault(self, name: str, rule: str) -> None:
        self.faults.append(f"{name}: {rule}")

    def text(self, name: str) -> str | None:
        return self.texts.get(name.lower())

    def named(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if self.text(name) is not None]

    def words(self, name: str) -> tuple[str, ...]:
        """A list like `a,b`, each word once; empty if it was not given."""
        text = self.text(name)
        if text is None:
            return ()
        words = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if not all(words):
            self.fault(name, f"{text!r} is not a list like a,b")
        return words

    def number(self, name: str) -> int:
        return int(str(self.values[name]))

    def number_or_none(self, name: str) -> int | None:
        return None if self.text(name) is None else self.number(name)

    def duration_ms(self, name: str) -> int:
        """A time such as `15m`, `10s` or `500ms`, in milliseconds."""
        text = str(self.values[name])
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None:
            self.fault(name, f"{text!r} is not a time like 15m, 10s or 500ms")
            return 0
        return int(found[1]) * _UNIT_MS[found[2] or "ms"]

    def json_object(self, name: str, example: str) -> dict[str, Any]:
        """A JSON object; `example` shows what it should look like."""
        text = self.text(name) or ""
        try:
            parsed = json.loads(text, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            return parsed
        self.fault(name, f"{text!r} is not JSON like {example}")
        return {}

    def corruption_report(self) -> str | None:
        """The directory for what `onCorruption=skip` leaves out; None: damage is an error."""
        report = self.text("corruptionReport")
        if self.values["onCorruption"] == "fail":
            if report is not None:
                self.fault("corruptionReport", "it is written only with onCorruption=skip")
            return None
        if not report:
            self.fault("corruptionReport", "onCorruption=skip needs a directory for what it skips")
        return report


def name_faults(
    given: Iterable[str],
    known: Iterable[str],
    *,
    harmless: Container[str] = frozenset(),
    refused: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """A sentence for each name that is no option; `given` and `refused` are in lower case."""
    by_lower = {name.lower(): name for name in known}
    faults = []
    for name in given:
        if name in by_lower or name in harmless:
            continue
        if name in refused:
            faults.append(f"{name}: {refused[name]}")
        else:
            # Most unknown options are misspelled ones of Spark's.
            close = difflib.get_close_matches(name, by_lower, n=1)
            hint = f"; did you mean {by_lower[close[0]]}?" if close else ""
            faults.append(f"{name}: no such option{hint}")
    return faults


def is_count(value: object) -> bool:
    """Whether JSON gave a whole number that an offset, a timestamp or a partition may be."""
    # Not isinstance: JSON's true is an int in Python.
    return type(value) is int and 0 <= value < 1 << 63


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as JSON has it; a name that is there twice would lose one of its values."""
    found = dict(pairs)
    # Python's JSON keeps the last value of a name, and the user would not learn of the first.
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
