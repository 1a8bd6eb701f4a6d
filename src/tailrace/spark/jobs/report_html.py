"""Reports as one HTML file: the templates filled in, for any browser and without a network.

Jinja2 escapes every value, so a topic's name or a key can hold anything. Charts are SVG within the
page. There are no scripts, and a policy in the file forbids the browser to load anything. Colours
follow the reader's choice of light or dark.

Lengths in charts are in units of an SVG picture that is `WIDTH` units wide; `templates/charts.html`
draws it.

Not here: the content of reports (`pages`).
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import count as count_from
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, *, title: str, subject: str, **values: object) -> str:
    """A whole page from a file of `templates/`.

    `subject` is what was looked at; it is below the title, with the time of this call.
    """
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = _environment().get_template(template)
    return page.render(title=title, subject=subject, created=created, **values)


def size(number: float) -> str:
    """Bytes for people: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024:
            return f"{number:.1f}".removesuffix(".0") + f" {unit}"
        number /= 1024
    return f"{number:.1f}".removesuffix(".0") + " PiB"


def count(number: float) -> str:
    """A whole number with its thousands apart."""
    return f"{round(number):,}"


def share(part: float, whole: float) -> str:
    """A percentage, or a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tailrace.spark.jobs"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": count, "shown": _shown}
    return environment


def _shown(value: object) -> object:
    """A value as a table shows it."""
    return "-" if value is None else count(value) if isinstance(value, int) else value


def _printable(value: object) -> object:
    """Control characters, which HTML may not hold, become visible."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in value)


WIDTH: Final = 1000

_TICKS_MAX: Final = 7
_BARS_START: Final = 260
"""To the left of it are the labels."""
_BARS_WIDTH: Final = WIDTH - _BARS_START - 160
"""To the right of it is room for the text after the longest bar."""
_COLUMNS_START: Final = 80
_COLUMNS_HEIGHT: Final = 120
_LABEL_HALF: Final = 40
"""Half of the widest label of a time."""

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_TIME_STEPS_MS: Final = (
    *(minutes * _MINUTE_MS for minutes in (1, 5, 15, 60, 180, 360, 720)),
    *(days * _DAY_MS for days in (1, 2, 7, 14, 28, 91, 182)),
)
_YEAR_10000_MS: Final = 253_402_300_800_000


class Quantity(NamedTuple):
    """Unit and ticks of an axis."""

    base: int
    factors: Sequence[int]
    """Ticks are one of these times a power of the base apart."""
    show: Callable[[float], str]


BYTES: Final = Quantity(1024, [1 << power for power in range(10)], size)
COUNTS: Final = Quantity(10, [1, 2, 5], count)


class Tick(NamedTuple):
    """A place on an axis."""

    at: float
    text: str


class Bar(NamedTuple):
    """A horizontal bar."""

    label: str
    length: float
    text: str


class Bars(NamedTuple):
    """Horizontal bars from one zero."""

    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    axis: str
    start: int = _BARS_START


class Column(NamedTuple):
    """A vertical bar."""

    at: float
    length: float
    text: str


class Columns(NamedTuple):
    """Vertical bars over time; ticks are heights above the axis of time."""

    columns: Sequence[Column]
    column_width: float
    ticks: Sequence[Tick]
    time_ticks: Sequence[Tick]
    axis: str
    start: int = _COLUMNS_START
    height: int = _COLUMNS_HEIGHT


class Piece(NamedTuple):
    """A segment of a log, or several neighbouring ones."""

    at: float
    length: float
    text: str
    kind: str | None
    """The worst severity of what is wrong with its files as a whole, a class of the style sheet."""


class Mark(NamedTuple):
    """A finding at its position in the log."""

    at: float
    text: str
    kind: str


class LogMap(NamedTuple):
    """A log from its first byte to its last."""

    segments: Sequence[Piece]
    marks: Sequence[Mark]
    """Later ones cover earlier ones."""
    ticks: Sequence[Tick]
    axis: str


def bars(values: Sequence[tuple[str, float, str]], *, axis: str, quantity: Quantity) -> Bars:
    """A bar for each label and value, and the text after it; `axis` says what is measured."""
    largest = max((value for _, value, _ in values), default=0) or 1
    drawn = [
        Bar(label, round(max(_BARS_WIDTH * value / largest, 1 if value else 0), 2), text)
        for label, value, text in values
    ]
    return Bars(drawn, ticks(largest, quantity, start=_BARS_START, length=_BARS_WIDTH), axis)


def columns(
    values: Sequence[int], *, start_ms: int, step_ms: int, axis: str, quantity: Quantity
) -> Columns:
    """A column for each value; the first one is of `step_ms` from `start_ms` on, and so on."""
    largest = max(values, default=0) or 1
    room = (WIDTH - _COLUMNS_START) / max(len(values), 1)
    drawn = [
        Column(
            round(_COLUMNS_START + room * number, 2),
            round(_COLUMNS_HEIGHT * value / largest, 2),
            f"{moment(start_ms + number * step_ms)}: {quantity.show(value)}",
        )
        for number, value in enumerate(values)
    ]
    return Columns(
        drawn,
        round(room * 0.92, 2),
        ticks(largest, quantity, start=0, length=_COLUMNS_HEIGHT),
        _time_ticks(start_ms, start_ms + len(values) * step_ms),
        axis,
    )


def ticks(largest: float, quantity: Quantity, *, start: float, length: float) -> list[Tick]:
    """Round values from 0 to `largest`, on an axis where these are `length` apart."""
    steps = (factor * quantity.base**power for power in count_from() for factor in quantity.factors)
    step = next(each for each in steps if each * (_TICKS_MAX - 1) >= largest)
    return [
        Tick(round(start + length * value / (largest or 1), 2), quantity.show(value))
        for value in range(0, int(largest) + 1, step)
    ]


def moment(timestamp_ms: int | None) -> str:
    """A timestamp in UTC; beyond the years that calendars have, its milliseconds."""
    if timestamp_ms is None:
        return "-"
    if timestamp_ms >= _YEAR_10000_MS:
        return f"{timestamp_ms} ms"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _time_ticks(start_ms: int, limit_ms: int) -> list[Tick]:
    """Round times of the axis of `columns`; none whose label would be cut off."""
    span = limit_ms - start_ms
    most = _TICKS_MAX * _TIME_STEPS_MS[-1]
    years = 2 * -(-span // (2 * most))
    step = next(
        (each for each in _TIME_STEPS_MS if each * _TICKS_MAX >= span), years * _TIME_STEPS_MS[-1]
    )
    shown = slice(0, 10) if step >= _DAY_MS else slice(5, 16)
    drawn = []
    for time_ms in range(-(-start_ms // step) * step, limit_ms, step):
        at = _COLUMNS_START + (WIDTH - _COLUMNS_START) * (time_ms - start_ms) / span
        if at <= WIDTH - _LABEL_HALF:
            text = moment(time_ms)
            drawn.append(Tick(round(at, 2), text if time_ms >= _YEAR_10000_MS else text[shown]))
    return drawn
