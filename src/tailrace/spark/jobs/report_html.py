"""Reports as one HTML file: tables and charts that any browser shows, without a network.

Charts are SVG made of rectangles; values are tooltips, or stand in a label or table beside them.
Colours follow the reader's choice of light or dark. There are no scripts, and a policy in the file
forbids loading anything.

Every function gives a piece of HTML as `Markup`; what is not `Markup` is escaped, so a topic's name
or a key can hold anything.

Not here: what a report says. `audit_page` and `profile_page` decide that.
"""

import html
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2126; --soft: #68727d; --line: #d9dee3;
  --bar: #3b74b9; --good: #3d9a5f; --info: #8fa3b5; --unverified: #9a7fc4; --warning: #d99a22;
  --error: #cf3f3f; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e4e8ec; --soft: #96a1ac;
  --line: #343b43; --bar: #6fa5e6; --good: #57b97c; --info: #647789; --unverified: #b49be0;
  --warning: #e5b04a; --error: #ee6a6a; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; } p, .soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; min-width: 4.5rem; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; } rect { fill: var(--bar); }
.good { fill: var(--good); } .info { fill: var(--info); } .unverified { fill: var(--unverified); }
.warning { fill: var(--warning); } .error { fill: var(--error); }
text { fill: var(--soft); font: 11px system-ui, sans-serif; }
"""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

_WIDTH: Final = 1000
"""Units across a chart; it is as wide as the page."""

_LABEL_WIDTH: Final = 260


class Markup(str):
    """HTML that is safe to put into a page as it is."""

    __slots__ = ()


class Cell(NamedTuple):
    """A piece of a strip."""

    weight: float
    """Its share of the width."""
    kind: str
    """A class of the style sheet: good, info, unverified, warning, error."""
    title: str
    """What a reader sees who points at it."""


def page(title: str, subtitle: str, parts: Iterable[Markup]) -> str:
    """A whole HTML file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_text(title)}</h1><p>{_text(subtitle)}</p>{''.join(parts)}</body></html>\n"
    )


def heading(text: str, *, level: int = 2) -> Markup:
    """A heading within the page."""
    return Markup(f"<h{level}>{_text(text)}</h{level}>")


def paragraph(text: str) -> Markup:
    """A sentence or two."""
    return Markup(f"<p>{_text(text)}</p>")


def facts(named: Iterable[tuple[str, object]]) -> Markup:
    """A row of single values with their names."""
    pairs = (f"<div><dt>{_text(name)}</dt><dd>{_shown(value)}</dd></div>" for name, value in named)
    return Markup(f"<dl>{''.join(pairs)}</dl>")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, rows_max: int) -> Markup:
    """A table; numbers stand to the right. What is beyond `rows_max` is only counted."""
    rows = iter(rows)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(rows, rows_max))
    head = "".join(f"<th>{_text(each)}</th>" for each in headings)
    left = sum(1 for _ in rows)
    more = f'<p class="soft">and {count(left)} more rows</p>' if left else ""
    return Markup(
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"</div>{more}"
    )


def bars(values: Sequence[tuple[str, float, str]]) -> Markup:
    """Horizontal bars from one zero: label, length, and what is written behind each."""
    longest = max((value for _, value, _ in values), default=0) or 1
    room = _WIDTH - _LABEL_WIDTH - 160
    rows = []
    for number, (label, value, told) in enumerate(values):
        top, length = 20 * number, max(room * value / longest, 1 if value else 0)
        rows.append(
            f'<text x="{_LABEL_WIDTH - 8}" y="{top + 13}" text-anchor="end">{_text(label[:44])}'
            f'</text><rect x="{_LABEL_WIDTH}" y="{top + 3}" width="{length:.1f}" height="13">'
            f"<title>{_text(label)}: {_text(told)}</title></rect>"
            f'<text x="{_LABEL_WIDTH + length + 6:.1f}" y="{top + 13}">{_text(told)}</text>'
        )
    return _svg(20 * len(values), rows)


def columns(values: Sequence[tuple[str, float, str]], *, height: int = 120) -> Markup:
    """Vertical bars side by side, as for time: label, height, and the tooltip of each.

    The first and the last label stand below, with what the highest bar has.
    """
    largest = max((value for _, value, _ in values), default=0) or 1
    width = _WIDTH / max(len(values), 1)
    rows = []
    for number, (label, value, told) in enumerate(values):
        length = height * value / largest
        rows.append(
            f'<rect x="{width * number:.2f}" y="{height - length:.2f}" width="{width * 0.92:.2f}" '
            f'height="{length:.2f}"><title>{_text(label)}: {_text(told)}</title></rect>'
        )
    if values:
        below = height + 14
        highest = max(values, key=lambda each: each[1])[2]
        marks = [("start", 0, values[0][0]), ("middle", _WIDTH // 2, f"highest: {highest}")]
        if len(values) > 1:
            marks.append(("end", _WIDTH, values[-1][0]))
        rows += [
            f'<text x="{x}" y="{below}" text-anchor="{anchor}">{_text(text)}</text>'
            for anchor, x, text in marks
        ]
    return _svg(height + 18, rows)


def strip(cells: Sequence[Cell]) -> Markup:
    """One bar cut into coloured pieces."""
    total = sum(each.weight for each in cells) or 1
    rows, left = [], 0.0
    for each in cells:
        width = _WIDTH * each.weight / total
        inner = max(width - 1, 0.5)
        rows.append(
            f'<rect class="{_text(each.kind)}" x="{left:.2f}" y="1" width="{inner:.2f}" '
            f'height="16"><title>{_text(each.title)}</title></rect>'
        )
        left += width
    return _svg(18, rows)


def size(number: float) -> str:
    """Bytes for people: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} PiB"


def count(number: int) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,}"


def share(part: float, whole: float) -> str:
    """A percentage, or a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _svg(height: int, rows: Iterable[str]) -> Markup:
    # Scaled in width only by as much as in height, so that letters keep their form.
    return Markup(f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(rows)}</svg>')


def _cell(value: object) -> str:
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{kind}>{_shown(value)}</td>"


def _shown(value: object) -> str:
    if isinstance(value, Markup):
        return value
    return _text(count(value) if isinstance(value, int) else "-" if value is None else str(value))


def _text(text: str) -> str:
    """Escaped; control characters, which HTML may not hold, become visible."""
    clean = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return html.escape(clean)
