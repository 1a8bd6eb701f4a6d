"""Declarations of settings (name, default, range, text) and their parser.

Names are Kafka's; our own start with `tailrace.`. Each default is only in its declaration. Values
are strings (from a properties file, a CreateTopics request, a command line), and are parsed to int,
float, bool, str or tuple of str. An unknown name is a fault, the first ones with a suggestion. All
faults of one call are reported together.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from tailrace.errors import ConfigError

Value = int | float | bool | str | tuple[str, ...]
T = TypeVar("T", int, float)

INT64_MAX = 9223372036854775807
INT32_MAX = 2147483647

SUGGESTIONS_MAX = 4
"""Most unknown names of one call that get a suggestion: a search takes up to a millisecond, and a
client can send many names."""
SUGGESTION_CHARACTERS_MAX = 64
"""Longest unknown name for which a suggestion is searched."""


_KINDS: Final[Mapping[type[Value], Literal["int", "float", "bool", "string", "list"]]] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "string",
    tuple: "list",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting."""

    name: str
    default: Value
    """Its type is that of all values."""
    text: str
    """Effect of the setting, with its unit; a sentence for the generated reference."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    is_allowed: Callable[[Value], bool] | None = None
    """A rule besides range and choices; `rule_text` says what it allows."""
    rule_text: str = ""
    broker_name: str | None = None
    """The broker setting with the default of a topic setting, if its name differs."""
    is_topic_only: bool = False
    """Whether a topic setting has no broker setting for its default."""
    is_stored_only: bool = False
    """Whether the setting is accepted and reported, but has no effect in this release."""

    @property
    def kind(self) -> Literal["int", "float", "bool", "string", "list"]:
        """Type of the setting's values, which is that of its default."""
        return _KINDS[type(self.default)]

    def parse(self, text: str) -> Value:
        """The typed value.

        Raises:
            ValueError: not of this kind, or out of range; the message is a whole sentence.
        """
        value = self._parsed(text.strip())
        if self.is_allowed is not None and not self.is_allowed(value):
            raise ValueError(
                f"{self.name}: {text.strip()[:40]!r} is not allowed; it must be {self.rule_text}"
            )
        return value

    def _parsed(self, text: str) -> Value:
        match self.kind:
            case "int":
                return self._in_range(text, int, wanted="a whole number")
            case "float":
                return self._in_range(text, float, wanted="a number")
            case "bool":
                if text.lower() not in {"true", "false"}:
                    raise ValueError(f"{self.name}: {text!r} is not one of true, false")
                return text.lower() == "true"
            case "list":
                parts = tuple(part.strip() for part in text.split(",") if part.strip())
                for part in parts:
                    self._check_choice(part)
                return parts
            case _:
                self._check_choice(text)
                return text

    def format(self, value: Value) -> str:
        """The text that `parse` reads back."""
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(value) if isinstance(value, tuple) else str(value)

    @property
    def range_text(self) -> str:
        """The allowed values, for messages and the reference."""
        if self.rule_text:
            return self.rule_text
        if self.choices:
            return ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        return "" if self.low is None else f"{self.low} or more"

    def _in_range(self, text: str, number: type[T], *, wanted: str) -> T:
        try:
            # Python accepts `1_000` and `nan`; Kafka does not.
            value = number(text if "_" not in text else "")
            if value != value:  # noqa: PLR0124
                raise ValueError(text)
        except ValueError:
            raise ValueError(f"{self.name}: {text[:40]!r} is not {wanted}") from None
        if (self.low is not None and value < self.low) or (
            self.high is not None and value > self.high
        ):
            raise ValueError(f"{self.name}: {text} is out of range ({self.range_text})")
        return value

    def _check_choice(self, text: str) -> None:
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name}: {text!r} is not one of {self.range_text}")


def parse_settings(
    declared: Iterable[Setting],
    given: Mapping[str, str],
    *,
    hints: Mapping[str, str] = MappingProxyType({}),
    others: Iterable[str] = (),
) -> dict[str, Value]:
    """Every declared setting with its given or default value, by name.

    `hints` say what to give instead of names that are known to be none. `others` are names that
    may have been meant, besides those declared.

    Raises:
        ConfigError: all unknown names and invalid values.
    """
    known = {setting.name: setting for setting in declared}
    values = {name: setting.default for name, setting in known.items()}
    faults, searched = [], 0
    for name, text in given.items():
        setting = known.get(name)
        if setting is None:
            hint = hints.get(name, "")
            if not hint and searched < SUGGESTIONS_MAX:
                searched += 1
                hint = _suggestion(name, (*known, *others))
            faults.append(f"{name}: no such setting{'; ' * bool(hint)}{hint}")
            continue
        try:
            values[name] = setting.parse(text)
        except ValueError as fault:
            faults.append(str(fault))
    if faults:
        raise ConfigError(faults)
    return values


def named_fields(config: type[Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """The fields of a dataclass that are named as settings, with their values.

    `segment.bytes` is the field `segment_bytes`. Fields with other names are left to the caller.
    """
    given = {name.replace(".", "_"): value for name, value in values.items()}
    return {each.name: given[each.name] for each in fields(config) if each.name in given}


def _suggestion(name: str, known: Iterable[str]) -> str:
    if len(name) > SUGGESTION_CHARACTERS_MAX:
        return ""
    import difflib  # Only a mistake needs it.

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def describe_settings(declared: Iterable[Setting], title: str = "setting") -> str:
    """A Markdown table of the settings, for docs/configuration.md and docs/spark.md."""
    lines = [f"| {title} | default | allowed | what it does |", "|---|---|---|---|"]
    for setting in declared:
        text = setting.text
        if setting.is_stored_only:
            text += " *(kept and reported; no effect yet)*"
        lines.append(
            f"| `{setting.name}` | {setting.format(setting.default) or '(none)'} "
            f"| {setting.range_text} | {text} |"
        )
    return "\n".join(lines) + "\n"
