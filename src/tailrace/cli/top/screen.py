"""The screen of `tailrace top`: what it shows, and what a key changes in it. Pure.

    table -> arrange -> rows in order -> draw -> lines of cells
    key, state, rows -> press -> the next state

Not here: terminals, which paint the lines and read the keys (`terminal`).
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple
from unicodedata import combining, east_asian_width

from tailrace.cli.top.tables import Column, Kind, Mood, Overview, Row, Table, Value, shown
from tailrace.offline.show import printable
from tailrace.values import dataclass, field, replace

VIEWS: Final = ("topics", "groups", "brokers", "requests")
OPENS: Final = {"topics": "partitions", "groups": "offsets", "brokers": "facts"}
"""The view that Enter opens from a row."""

INTERVALS_S: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
TYPED_MAX: Final = 100

_FIRST_SORTS: Final = {
    "topics": "records_per_s", "groups": "lag", "brokers": "broker", "requests": "requests_per_s",
    "partitions": "partition", "offsets": "lag",
}  # fmt: skip
_GAP: Final = "  "
_HEAD_LINES: Final = 5
_FOOT_LINES: Final = 1

HELP: Final = """\
  1 2 3 4, Tab        topics, groups, brokers, requests by API
  arrows, PgUp, PgDn  choose a row (also k j, Ctrl-B Ctrl-F); Home End: first, last (also g G)
  left, right         move to columns that have no room
  Enter               open a topic, group or broker
  Esc                 back; also ends a filter
  s >  <              sort by the next or the previous column
  r                   reverse the order
  /                   show rows with this text alone
  space               pause, and continue
  + -                 refresh less or more often
  h ?                 this help
  q                   quit (also Ctrl-C)

  records/s   records that topics get, or that groups commit
  lag/s       change of a lag; of groups over the last 10 to 20 seconds
  caught up   time until the lag is zero, if it continues to change so
  bytes/s     change of the size on disk of leaders' logs; falls when old records are deleted
  size        bytes on disk, of all replicas
  -           not known: nobody has answered, or a rate needs another moment"""


class Style(Enum):
    """The look of a cell."""

    PLAIN = "plain"
    TITLE = "title"
    DIM = "dim"
    HEADER = "header"
    CHOSEN = "chosen"
    WARN = "warn"
    BAD = "bad"


class Cell(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = Style.PLAIN


class Size(NamedTuple):
    """A terminal's."""

    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """The choices in one view, which it keeps while others are shown."""

    sort: str = ""
    """The key of the column; empty: as the table has them."""
    is_reversed: bool = False
    """Numbers fall and texts rise, unless reversed."""
    key: str | None = None
    """The chosen row, which stays chosen where it moves to."""
    index: int = 0
    """Its place, for when it is gone."""
    top: int = 0
    """The first row on the screen."""
    first_column: int = 1
    """The first column after that of the names, which stays."""
    filter: str = ""


class Mode(Enum):
    """The meaning of keys."""

    ROWS = "rows"
    TYPING = "typing"
    HELP = "help"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The choices that keys have made."""

    view: str = "topics"
    about: str = ""
    """The topic, group or broker that is open; empty: none."""
    views: Mapping[str, ViewState] = field(default_factory=dict)
    mode: Mode = Mode.ROWS
    typed: str = ""
    is_paused: bool = False
    interval_s: float = 2.0
    is_over: bool = False

    @property
    def shown(self) -> str:
        """The name of the table on the screen."""
        return OPENS[self.view] if self.about else self.view

    @property
    def now(self) -> ViewState:
        """The choices in the view on the screen."""
        return self.views.get(self.shown) or ViewState(sort=_FIRST_SORTS.get(self.shown, ""))

    def having(self, now: ViewState) -> "State":
        """The same with other choices in this view."""
        return replace(self, views={**self.views, self.shown: now})


def table_of(state: State, overview: Overview) -> Table:
    """The table that is on the screen, with the rows in their order."""
    return arrange(overview.table(state.shown, state.about), state.now)


def arrange(table: Table, view: ViewState) -> Table:
    """The rows that the filter lets through, in the order of a column; without empty columns."""
    wanted = view.filter.casefold()
    rows = [
        row
        for row in table.rows
        if not wanted or any(isinstance(v, str) and wanted in v.casefold() for v in row.values)
    ]
    places = [n for n, column in enumerate(table.columns) if column.key == view.sort]
    for place in places:
        known = [row for row in rows if row.values[place] is not None]
        known.sort(
            key=lambda row: _order(row.values[place]),
            reverse=table.columns[place].rises == view.is_reversed,
        )
        rows = known + [row for row in rows if row.values[place] is None]
    # What only brokers with metrics tell is no column elsewhere.
    used = [
        n
        for n, column in enumerate(table.columns)
        if not n
        or not rows
        or column.key == view.sort
        or any(r.values[n] is not None for r in rows)
    ]
    if len(used) < len(table.columns):
        rows = [row._replace(values=tuple(row.values[n] for n in used)) for row in rows]
    return table._replace(columns=tuple(table.columns[n] for n in used), rows=tuple(rows))


def _order(value: Value) -> tuple[float, str]:
    return (0.0, value.casefold()) if isinstance(value, str) else (float(value or 0), "")


def place_of(view: ViewState, rows: Sequence[Row]) -> int:
    """The index of the chosen row."""
    for index, row in enumerate(rows):
        if row.key == view.key:
            return index
    return max(min(view.index, len(rows) - 1), 0)


def height_of(size: Size) -> int:
    """Rows that have room."""
    return max(size.height - _HEAD_LINES - _FOOT_LINES, 1)


_MOVES: Final = {"up": -1, "k": -1, "down": 1, "j": 1}
_PAGES: Final = {"pgup": -1, "ctrl-b": -1, "pgdn": 1, "ctrl-f": 1}


def press(state: State, key: str, table: Table, *, size: Size) -> State:
    """The state after a key; `table` is that of `table_of`, and `key` a character or a name."""
    if state.mode is Mode.HELP:
        return replace(state, mode=Mode.ROWS, is_over=key == "q")
    if state.mode is Mode.TYPING:
        return _typed(state, key)
    view, rows, height = state.now, table.rows, height_of(size)
    place = place_of(view, rows)
    match key:
        case "q" | "Q":
            return replace(state, is_over=True)
        case "h" | "?" | "f1":
            return replace(state, mode=Mode.HELP)
        case "1" | "2" | "3" | "4":
            return replace(state, view=VIEWS[int(key) - 1], about="")
        case "tab" | "shift-tab":
            step = 1 if key == "tab" else -1
            at = (VIEWS.index(state.view) + step) % len(VIEWS)
            return replace(state, view=VIEWS[at], about="")
        case "enter" if rows and not state.about and state.view in OPENS:
            opened = replace(_chosen(state, rows, place, height=height), about=rows[place].key)
            # A new view of the table: the choices of another topic are not of this one.
            return opened.having(
                replace(opened.now, key=None, index=0, top=0, filter="", first_column=1)
            )
        case "esc" | "backspace" if view.filter:
            return state.having(replace(view, filter=""))
        case "esc" | "backspace":
            return replace(state, about="")
        case "/":
            return replace(state, mode=Mode.TYPING, typed=view.filter)
        case " ":
            return replace(state, is_paused=not state.is_paused)
        case "+" | "=" | "-":
            return replace(state, interval_s=_next_interval(state.interval_s, is_up=key != "-"))
        case "r":
            return state.having(replace(view, is_reversed=not view.is_reversed))
        case "s" | ">" | "<":
            return state.having(_sorted_by_next(view, table.columns, -1 if key == "<" else 1))
        case "left" | "right":
            step = 1 if key == "right" else -1
            last = max(len(table.columns) - 1, 1)
            return state.having(
                replace(view, first_column=min(max(view.first_column + step, 1), last))
            )
        case "home" | "g":
            return _chosen(state, rows, 0, height=height)
        case "end" | "G":
            return _chosen(state, rows, len(rows) - 1, height=height)
    step = _MOVES.get(key, _PAGES.get(key, 0) * height)
    return _chosen(state, rows, place + step, height=height) if step else state


def _typed(state: State, key: str) -> State:
    """The state after a key of a filter that is being typed; rows follow each one."""
    match key:
        case "enter":
            return replace(state, mode=Mode.ROWS)
        case "esc":
            return replace(state, mode=Mode.ROWS).having(replace(state.now, filter=""))
        case "backspace":
            typed = state.typed[:-1]
        case "ctrl-u":
            typed = ""
        case _ if len(key) == 1 and key.isprintable():
            typed = (state.typed + key)[:TYPED_MAX]
        case _:
            return state
    return replace(state, typed=typed).having(replace(state.now, filter=typed, top=0))


def _chosen(state: State, rows: Sequence[Row], place: int, *, height: int) -> State:
    if not rows:
        return state
    place = max(min(place, len(rows) - 1), 0)
    view = replace(state.now, key=rows[place].key, index=place)
    return state.having(replace(view, top=_scrolled(view.top, place, len(rows), height=height)))


def _scrolled(top: int, place: int, count: int, *, height: int) -> int:
    """The first row on the screen, so that the chosen one is there, and no room is left empty."""
    top = min(max(top, place - height + 1), place)
    return max(min(top, count - height), 0)


def _next_interval(interval_s: float, *, is_up: bool) -> float:
    if is_up:
        return next((each for each in INTERVALS_S if each > interval_s), interval_s)
    return next((each for each in reversed(INTERVALS_S) if each < interval_s), interval_s)


def _sorted_by_next(view: ViewState, columns: Sequence[Column], step: int) -> ViewState:
    keys = [each.key for each in columns]
    at = (keys.index(view.sort) if view.sort in keys else -1 if step > 0 else 0) + step
    return replace(view, sort=keys[at % len(keys)], is_reversed=False)


def draw(
    state: State, overview: Overview | None, *, size: Size, trouble: str = "", age_s: float = 0.0
) -> list[list[Cell]]:
    """The lines of the screen; none is wider than `size`, and there are no more than it has.

    `trouble` is why the last refresh has failed, and `age_s` how old the shown one is.
    """
    lines = list(_head(state, overview, trouble=trouble, age_s=age_s))
    if state.mode is Mode.HELP:
        lines += [[Cell(line)] for line in HELP.splitlines()]
    elif overview is not None:
        lines += _rows(state, table_of(state, overview), size=size)
    lines = lines[: max(size.height - _FOOT_LINES, 0)]
    lines += [[] for _ in range(size.height - _FOOT_LINES - len(lines))]
    lines.append(_foot(state))
    return [_cut(line, size.width) for line in lines[: size.height]]


def _head(
    state: State, overview: Overview | None, *, trouble: str, age_s: float
) -> Iterator[list[Cell]]:
    paused = "  PAUSED" if state.is_paused else f"  every {state.interval_s:g} s"
    if overview is None:
        yield [Cell("tailrace top", Style.TITLE), Cell(paused)]
        yield [Cell(trouble or "asks the cluster ...", Style.BAD if trouble else Style.PLAIN)]
        return
    now = overview.now
    age = f", {age_s:.0f} s old" if age_s >= max(2 * state.interval_s, 5) else ""
    yield [
        Cell("tailrace top", Style.TITLE),
        Cell(f"  cluster {now.cluster_id or '-'}{paused}, took {now.took_s:.1f} s{age}"),
    ]
    yield list(_summary(overview))
    yield _trouble(now.silent, now.notes, trouble)
    yield list(_tabs(state))


def _summary(overview: Overview) -> Iterator[Cell]:
    now, parts = overview.now, overview.partitions
    rates = [each.rate for each in parts if each.rate is not None]
    short, lost = sum(p.is_short for p in parts), sum(p.at.leader < 0 for p in parts)
    yield Cell(_counted(len(now.brokers), "broker"))
    if now.silent:
        yield Cell(f" ({len(now.silent)} silent)", Style.BAD)
    yield Cell(f", {_counted(len(now.topics), 'topic')}, {_counted(len(parts), 'partition')}")
    if lost:
        yield Cell(f", {lost} without leader", Style.BAD)
    if short:
        yield Cell(f", {short} under-replicated", Style.WARN)
    if now.moving:
        yield Cell(f", {len(now.moving)} moving")
    rate = shown(Kind.RATE, sum(rates) if rates else None)
    lag = overview.lags()
    yield Cell(f", {rate} records/s, {_counted(len(now.groups), 'group')}")
    if lag is not None:
        yield Cell(f" with a lag of {shown(Kind.COUNT, lag)}")


def _counted(count: int, what: str) -> str:
    return f"{shown(Kind.COUNT, count)} {what}{'s' * (count != 1)}"


def _trouble(silent: Mapping[int, str], notes: Sequence[str], trouble: str) -> list[Cell]:
    if trouble:
        return [Cell(printable(trouble), Style.BAD)]
    said = [f"broker {number} does not answer: {reason}" for number, reason in silent.items()]
    if said:
        return [Cell(printable("; ".join(said)), Style.BAD)]
    return [Cell(printable("; ".join(notes)), Style.DIM)]


def _tabs(state: State) -> Iterator[Cell]:
    for number, name in enumerate(VIEWS, 1):
        is_here = name == state.view
        yield Cell(f" {number} {name} ", Style.CHOSEN if is_here else Style.DIM)
        yield Cell(" ")
    if state.about:
        what = "broker " * (state.view == "brokers")
        yield Cell(f"> {what}{printable(state.about)} ", Style.TITLE)
    if state.now.filter:
        yield Cell(f"  filter: {printable(state.now.filter)}", Style.WARN)


def _rows(state: State, table: Table, *, size: Size) -> Iterator[list[Cell]]:
    view, height = state.now, height_of(size)
    place = place_of(view, table.rows)
    top = _scrolled(view.top, place, len(table.rows), height=height)
    seen = table.rows[top : top + height]
    texts = table.texts(seen)
    # The names stay; of the other columns the first ones may be moved out of sight.
    first = min(view.first_column, max(len(table.columns) - 1, 1))
    numbers = [0, *range(first, len(table.columns))]
    titles = [_title(column, view) for column in table.columns]
    widths = [
        max([width_of(titles[n]), *(width_of(row[n]) for row in texts)])
        for n in range(len(table.columns))
    ]
    # A long name leaves room for the numbers.
    widths[0] = min(widths[0], max(size.width // 2, 10))

    def line(cells: Sequence[str]) -> str:
        return _GAP.join(
            fit(cells[n], widths[n], is_right=table.columns[n].is_right) for n in numbers
        )

    yield [Cell(fit(line(titles), size.width), Style.HEADER)]
    if not table.rows:
        why = f"no row has {view.filter!r}" if view.filter else table.empty
        yield [Cell(printable(why), Style.DIM)]
    moods = {Mood.FINE: Style.PLAIN, Mood.WARN: Style.WARN, Mood.BAD: Style.BAD}
    for index, (row, cells) in enumerate(zip(seen, texts, strict=True), top):
        style = Style.CHOSEN if index == place else moods[row.mood]
        yield [Cell(fit(line(cells), size.width), style)]


def _title(column: Column, view: ViewState) -> str:
    if column.key != view.sort:
        return column.title
    return f"{column.title} {'^' if column.rises != view.is_reversed else 'v'}"


def _foot(state: State) -> list[Cell]:
    if state.mode is Mode.TYPING:
        return [Cell(f"/{printable(state.typed)}_", Style.TITLE), Cell("  Enter: keep  Esc: none")]
    if state.mode is Mode.HELP:
        return [Cell("any key: back", Style.DIM)]
    back = "Esc back  " if state.about else "Enter open  " if state.view in OPENS else ""
    return [
        Cell(f"q quit  h help  {back}s sort  r reverse  / filter  space pause  + - interval",
             Style.DIM)
    ]  # fmt: skip


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fit(text: str, width: int, *, is_right: bool = False) -> str:
    """The text in exactly this many columns; the end of one that is too long becomes ~."""
    excess = width_of(text) - width
    if excess > 0:
        kept, room = [], width - 1
        for character in text:
            room -= _width(character)
            if room < 0:
                break
            kept.append(character)
        text = "".join(kept) + "~" * (width > 0)
        excess = width_of(text) - width
    padding = " " * -excess
    return padding + text if is_right else text + padding


def _cut(line: Sequence[Cell], width: int) -> list[Cell]:
    """The cells that have room, the last one cut."""
    found = []
    for text, style in line:
        if width <= 0:
            break
        needed = width_of(text)
        found.append(Cell(text if needed <= width else fit(text, width), style))
        width -= needed
    return found
