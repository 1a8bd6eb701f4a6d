"""Declarations of settings (name, default, range, text) and their parser.

A setting is declared once, as a field of the dataclass that holds its value:

    node_id: int = setting("node.id", default=1, low=0, text="Number of this broker.")
    is_durable: bool = setting(
        "durability", default="os", convert=lambda text: text == "sync", text="What acks=all means."
    )

`settings_of` gives the declarations of a class, from which parser, messages and documents follow;
`field_values` gives the values of its fields.

Names are Kafka's; our own start with `tailrace.`. Values are strings (from a properties file, a
CreateTopics request, a command line), and are parsed to int, float, bool, str or tuple of str. An
unknown name is a fault, the first ones with a suggestion. All faults of one call are reported
together.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from tailrace.errors import ConfigError
from tailrace.values import dataclass, field, fields

Value = int | float | bool | str | tuple[str, ...]
Number = TypeVar("Number", int, float)
V = TypeVar("V", bound=Value)
T = TypeVar("T")
K = TypeVar("K")

INT64_MAX = 9223372036854775807
INT32_MAX = 2147483647

SUGGESTIONS_MAX = 4
"""Most unknown names of one call that get a suggestion: a search takes up to a millisecond, and a
client can send many names."""
SUGGESTION_CHARACTERS_MAX = 64
"""Longest unknown name for which a suggestion is searched."""

HIDDEN: Final = "***"
"""Shown instead of a secret, without quotes."""
SECRET_PARTS: Final = ("jaas", "keystore.key", "passphrase", "password", "secret")
"""Parts of the names of secrets; see `is_secret_name`."""


_KINDS: Final[Mapping[type[Value], Literal["int", "float", "bool", "string", "list"]]] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "string",
    tuple: "list",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
    is_secret: bool = False
    """Whether its value is shown nowhere: in no answer, no error and no log line."""

    @property
    def kind(self) -> Literal["int", "float", "bool", "string", "list"]:
        """Type of the setting's values, which is that of its default."""
        return _KINDS[type(self.default)]

    def parse(self, text: str) -> Value:
        """The typed value.

        Raises:
            ValueError: not of this kind, or out of range; the message is a whole sentence.
        """
        # Kafka trims values too.
        text = text.strip()
        value = self._parsed(text)
        if self.is_allowed is not None and not self.is_allowed(value):
            raise ValueError(
                f"{self.name}: {self.shown(text)} is not allowed; it must be {self.rule_text}"
            )
        return value

    def shown(self, text: str) -> str:
        """A value for messages, or what is shown instead of a secret."""
        return HIDDEN if self.is_secret else repr(text[:40])

    def _parsed(self, text: str) -> Value:
        match self.kind:
            case "int":
                return self._in_range(text, int, wanted="a whole number")
            case "float":
                return self._in_range(text, float, wanted="a number")
            case "bool":
                # As Kafka's ConfigDef: any case, and no other word. A "yes" that is read as false
                # would be a trap.
                if text.lower() not in {"true", "false"}:
                    raise ValueError(f"{self.name}: {self.shown(text)} is not one of true, false")
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
        # Before the others: a bool is an int in Python, and `True` is no value of Kafka's.
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

    def _in_range(self, text: str, number: type[Number], *, wanted: str) -> Number:
        try:
            # Python accepts `1_000` and `nan`; Kafka does not.
            value = number(text if "_" not in text else "")
            # NaN is neither below nor above any limit, so it would pass the range.
            if value != value:  # noqa: PLR0124
                raise ValueError(text)
        except ValueError:
            raise ValueError(f"{self.name}: {self.shown(text)} is not {wanted}") from None
        if (self.low is not None and value < self.low) or (
            self.high is not None and value > self.high
        ):
            raise ValueError(f"{self.name}: {text} is out of range ({self.range_text})")
        return value

    def _check_choice(self, text: str) -> None:
        # Case matters, as it does in Kafka's ValidString.
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name}: {self.shown(text)} is not one of {self.range_text}")


_METADATA: Final = "setting"


def is_secret_name(name: str) -> bool:
    """Whether a setting of which only the name is known has to be taken for a secret.

    It may be mistyped, of a single listener, or of another release. What is declared says it by
    `is_secret`.
    """
    return any(part in name.lower() for part in SECRET_PARTS)


class Rules(TypedDict, total=False):
    """The parts of a `Setting` that most settings do without."""

    low: float
    high: float
    choices: tuple[str, ...]
    is_allowed: Callable[[Value], bool]
    rule_text: str
    broker_name: str
    is_topic_only: bool
    is_stored_only: bool
    is_secret: bool


_Declared = tuple[tuple[Setting, ...], Callable[..., Any] | None]
"""The settings of a field, and what makes its value from theirs; None: `field_values` does not."""


@overload
def setting(name: str, *, default: V, text: str, **rules: Unpack[Rules]) -> V: ...
@overload
def setting(
    name: str, *, default: V, text: str, convert: Callable[[V], T], **rules: Unpack[Rules]
) -> T: ...
def setting(
    name: str,
    *,
    default: Value,
    text: str,
    convert: Callable[[Any], Any] | None = None,
    **rules: Unpack[Rules],
) -> Any:
    """A dataclass field with the value of the setting that is declared here; see `Setting`.

    `convert` makes the field's value from the setting's, for every value that the rules allow.
    """
    # Name, limits, default and document in one place: the parser, the reference and the API that
    # describes settings all read them from the field.
    declared = Setting(name=name, default=default, text=text, **rules)
    return field(
        default=default if convert is None else convert(default),
        metadata={_METADATA: ((declared,), convert or _same)},
    )


def settings_by_key(declared: Mapping[K, Setting]) -> Mapping[K, Any]:
    """A dataclass field with the values of settings that follow from another table, by its keys."""

    def by_key(*values: Value) -> dict[K, Value]:
        return dict(zip(declared, values, strict=True))

    return field(
        default_factory=lambda: by_key(*(each.default for each in declared.values())),
        metadata={_METADATA: (tuple(declared.values()), by_key)},
    )


def settings_together(*declared: Setting, **options: Any) -> Any:  # noqa: ANN401 - as field
    """A dataclass field whose value follows from several settings; `options` are those of a field.

    `field_values` leaves it out, because only its caller knows what they mean together.
    """
    return field(metadata={_METADATA: (declared, None)}, **options)


def _same(value: V) -> V:
    return value


@cache
def _declarations(config: type) -> tuple[tuple[str, _Declared], ...]:
    return tuple(
        (each.name, each.metadata[_METADATA])
        for each in fields(config)
        if _METADATA in each.metadata
    )


def settings_of(config: type) -> tuple[Setting, ...]:
    """The settings that the fields of a dataclass declare, in their order."""
    return tuple(each for _, (settings, _) in _declarations(config) for each in settings)


def field_values(config: type, values: Mapping[str, Value]) -> dict[str, Any]:
    """The fields of a dataclass that declare settings, with their values.

    `values` has a value for each of the settings, by its name; others are passed over. Fields of
    `settings_together` are left to the caller.
    """
    return {
        name: convert(*(values[each.name] for each in settings))
        for name, (settings, convert) in _declarations(config)
        if convert is not None
    }


def shown_fields(config: object) -> str:
    """`field=value` of the fields that declare settings and are not empty, without secrets.

    For the `repr` of such an object, which appears in logs and tracebacks.
    """
    parts = []
    kind: type = type(config)
    for name, (settings, _) in _declarations(kind):
        value = getattr(config, name)
        if value not in ("", (), None):
            # A value of several settings is an object that hides its own secrets.
            is_hidden = len(settings) == 1 and settings[0].is_secret
            parts.append(f"{name}={HIDDEN if is_hidden else repr(value)}")
    return ", ".join(parts)


def parse_settings(
    declared: Iterable[Setting],
    given: Mapping[str, str],
    *,
    hints: Mapping[str, str] = MappingProxyType({}),
    others: Callable[[], Iterable[str]] = tuple,
    faults: list[str] | None = None,
    suggestions_max: int = SUGGESTIONS_MAX,
) -> dict[str, Value]:
    """Every declared setting with its given or default value, by name.

    `hints` say what to give instead of names that are known to be none. `others` gives names
    that may have been meant, besides those declared. Unknown names and invalid values are added to
    `faults`, if that is given, and the settings then have their defaults.

    Raises:
        ConfigError: all unknown names and invalid values, without `faults`.
    """
    known = {each.name: each for each in declared}
    values = {name: each.default for name, each in known.items()}
    found, searched = [], 0
    for name, text in given.items():
        known_setting = known.get(name)
        if known_setting is None:
            # A known mistake has a better answer than the most similar name.
            hint = hints.get(name, "")
            # Each search compares with all names, so a file of nonsense gets only some.
            if not hint and searched < suggestions_max:
                searched += 1
                hint = suggestion(name, (*known, *others()))
            found.append(f"{name}: no such setting{'; ' * bool(hint)}{hint}")
            continue
        # All faults together: nobody wants to find them one start after the other.
        try:
            values[name] = known_setting.parse(text)
        except ValueError as fault:
            found.append(str(fault))
    if faults is not None:
        faults += found
    elif found:
        raise ConfigError(found)
    return values


def suggestion(name: str, known: Iterable[str]) -> str:
    """The question whether a similar name was meant; empty if there is none."""
    if len(name) > SUGGESTION_CHARACTERS_MAX:
        return ""
    import difflib  # Only a mistake needs it.

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def describe_settings(declared: Iterable[Setting], title: str = "setting") -> str:
    """A Markdown table of the settings, for docs/configuration.md and docs/spark.md."""
    lines = [f"| {title} | default | allowed | what it does |", "|---|---|---|---|"]
    for each in declared:
        text = each.text
        if each.is_stored_only:
            text += " *(kept and reported; no effect yet)*"
        if each.is_secret:
            text += " *(secret: shown nowhere)*"
        lines.append(
            f"| `{each.name}` | {each.format(each.default) or '(none)'} "
            f"| {each.range_text} | {text} |"
        )
    return "\n".join(lines) + "\n"
