"""The picture of the cluster's demonstration: who led what, and what was acknowledged.

    a row for each partition, in the colour of its leader; pale while that broker is dead
    bars: records acknowledged in each quarter of a second; a line: records read by the group

Invariant: each number in it was measured; there is no drawing library, and any browser shows it.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from tailrace.values import dataclass

COLOURS: Final = {1: "#3f77b4", 2: "#e09f3e", 3: "#4f9d69", -1: "#ffffff"}
"""Colours of the leaders by broker id."""
BUCKET_S: Final = 0.25
_TIMES_MAX: Final = 3
"""End of the scale of rates, in times of the usual one."""
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _GAP, _BARS = 1000, 96, 24, 84, 24, 84, 150
_FONT: Final = 'font-family="system-ui, sans-serif"'


class Happened(NamedTuple):
    """Something that was done to the cluster, or seen of it."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of the demonstration; all times are seconds since its begin."""

    seconds: float
    acknowledged: Sequence[tuple[float, float]]
    """When each record was acknowledged, and how long after it was sent."""
    read: Sequence[float]
    """When the group read each record."""
    leaders: Sequence[tuple[float, tuple[int, ...]]]
    """The leaders of all partitions, from each time when they changed; -1: none."""
    happened: Sequence[Happened]
    """The first is the death of a broker, the third its return."""
    killed: int
    """The broker that was killed."""

    @property
    def longest_wait_s(self) -> float:
        """The longest time from a send to the acknowledgement."""
        return max((wait for _, wait in self.acknowledged), default=0.0)


def draw(measured: Measured) -> str:
    """The picture as the text of a page, whose one element is an SVG."""
    rows = len(measured.leaders[0][1]) if measured.leaders else 0
    bars_top = _TOP + rows * _ROW + _GAP
    height = bars_top + _BARS + 60
    parts = [
        '<!doctype html><meta charset="utf-8"><title>A broker dies under load</title>',
        f'<svg viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(
            _LEFT,
            34,
            f"{len(measured.acknowledged):,} records acknowledged while a broker died: none "
            "missing, none twice",
            size=19,
            weight="bold",
        ),
        _text(
            _LEFT,
            58,
            f"Longest wait for an acknowledgement {measured.longest_wait_s:.1f} s. "
            "Rows: leaders of the partitions; pale: the leader is dead",
        ),
        *_leaders(measured, rows),
        *_legend(_TOP + rows * _ROW + 22),
        *_rates(measured, bars_top),
        *_events(measured, bars_top + _BARS),
        *_axis(measured, bars_top + _BARS),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(at_s: float, measured: Measured) -> float:
    return _LEFT + at_s / measured.seconds * (_WIDTH - _LEFT - _RIGHT)


def _text(
    x: float, y: float, text: str, *, size: int = 14, weight: str = "normal", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="#222222">{escape(text)}</text>'
    )


def _leaders(measured: Measured, rows: int) -> Iterator[str]:
    for row in range(rows):
        y = _TOP + row * _ROW
        yield _text(_LEFT - 8, y + 16, f"orders-{row}", anchor="end")
        for span in _spans(measured, row):
            leader = span[2]
            for left, right, is_dead in _by_life(measured, span):
                width = _x(right, measured) - _x(left, measured)
                yield (
                    f'<rect x="{_x(left, measured):.1f}" y="{y + 1}" width="{width:.1f}" '
                    f'height="{_ROW - 3}" fill="{COLOURS.get(leader, "#888888")}" '
                    f'opacity="{0.25 if is_dead else 1}"/>'
                )


def _spans(measured: Measured, row: int) -> Iterator[tuple[float, float, int]]:
    """From when to when a partition had each leader."""
    changes = [(at, leaders[row]) for at, leaders in measured.leaders]
    ends = [at for at, _ in changes[1:]] + [measured.seconds]
    for (begin, leader), end in zip(changes, ends, strict=True):
        yield begin, end, leader


def _by_life(
    measured: Measured, span: tuple[float, float, int]
) -> Iterator[tuple[float, float, bool]]:
    """The parts of a span in which the leader is alive, or dead."""
    begin, end, leader = span
    if leader != measured.killed or not measured.happened:
        yield begin, end, False
        return
    # The cluster names a dead leader until its session has ended.
    died = measured.happened[0].at_s
    came = measured.happened[2].at_s if len(measured.happened) > 2 else measured.seconds
    marks = sorted({begin, end, *(each for each in (died, came) if begin < each < end)})
    for left, right in pairwise(marks):
        yield left, right, died <= left < came


def _legend(y: float) -> Iterator[str]:
    for number, x in zip((1, 2, 3), (_LEFT, _LEFT + 100, _LEFT + 200), strict=True):
        yield f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{COLOURS[number]}"/>'
        yield _text(x + 18, y, f"broker {number}")


def _rates(measured: Measured, top: float) -> Iterator[str]:
    buckets = int(measured.seconds / BUCKET_S) + 1
    acknowledged, read = [0] * buckets, [0] * buckets
    for at, _ in measured.acknowledged:
        acknowledged[int(at / BUCKET_S)] += 1
    for at in measured.read:
        read[int(at / BUCKET_S)] += 1
    # What has waited for a leader comes at once, and would leave nothing to see of the rest.
    usual = median([each for each in acknowledged if each] or [1])
    highest = max(1, min(max(*acknowledged, *read), int(_TIMES_MAX * usual)))
    acknowledged, read = ([min(each, highest) for each in line] for line in (acknowledged, read))
    title = "Records a second: acknowledged (bars), read by the group (line); peaks are cut"
    yield _text(_LEFT, top - 12, title)
    for number, count in enumerate(acknowledged):
        left, size = _x(number * BUCKET_S, measured), count / highest * _BARS
        width = _x((number + 1) * BUCKET_S, measured) - left - 1
        yield (
            f'<rect x="{left:.1f}" y="{top + _BARS - size:.1f}" width="{max(width, 0.5):.1f}" '
            f'height="{size:.1f}" fill="#9db4c8"/>'
        )
    points = " ".join(
        f"{_x((number + 0.5) * BUCKET_S, measured):.1f},{top + _BARS - count / highest * _BARS:.1f}"
        for number, count in enumerate(read)
    )
    yield f'<polyline points="{points}" fill="none" stroke="#7a2f5d" stroke-width="1.5"/>'
    yield _text(_LEFT - 8, top + 10, f"{int(highest / BUCKET_S):,}", anchor="end")
    yield _text(_LEFT - 8, top + _BARS, "0", anchor="end")


def _events(measured: Measured, bottom: float) -> Iterator[str]:
    for number, each in enumerate(measured.happened):
        x = _x(each.at_s, measured)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{bottom}" stroke="#222222" '
            'stroke-dasharray="3 3"/>'
        )
        # In two heights: those that follow at once would cover each other.
        y = bottom - _BARS - 46 + 18 * (number % 2)
        yield _text(x + 5, y, f"{each.text}, {each.at_s:.1f} s", size=13)


def _axis(measured: Measured, bottom: float) -> Iterator[str]:
    for second in range(0, int(measured.seconds) + 1, 5):
        yield _text(_x(second, measured), bottom + 20, f"{second} s", anchor="middle", size=12)
