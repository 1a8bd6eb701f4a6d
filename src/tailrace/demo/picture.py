"""The aggregate as one picture: a heat map of departure delays by carrier and hour.

Drawn straight to a file, without a display. What is *not* here: any number that is not in the
table given.

Invariant: a cell of too few flights to mean anything gets no colour. It is hatched, and the
legend says so; only hours before the first coloured one are left out.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

FLIGHTS_MIN = 30
"""Below this many departures in the year, one late plane would colour the cell."""

MINUTES_MAX = 45
"""End of the colour scale: few cells are above it, and they show their number."""

HATCHED: dict[str, Any] = {
    "facecolor": "#eeeeee", "edgecolor": "#aaaaaa", "hatch": "////", "linewidth": 0,
}  # fmt: skip
"""The look of a cell of too few flights."""


def draw_delays(table: pd.DataFrame, *, airline_names: dict[str, str], path: Path) -> None:
    """Write the heat map of `mean_dep_delay` in `table` as a PNG to `path`."""
    usable = table[table["departed"] >= FLIGHTS_MIN]
    by_flights = table.groupby("carrier")["flights"].sum().sort_values(ascending=False)
    carriers = by_flights.index.tolist()
    hours = list(range(int(table["hour"].min()), int(table["hour"].max()) + 1))
    hours = [hour for hour in hours if hour >= min(usable["hour"], default=0)]
    cells = usable.pivot(index="carrier", columns="hour", values="mean_dep_delay")
    # `pivot` leaves out airlines and hours without a usable cell; they stay in the picture.
    cells = cells.reindex(index=carriers, columns=hours)

    # Not pyplot, which keeps figures alive and looks for a display.
    figure = Figure(figsize=(13, 7.6), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(
        cells.to_numpy(), aspect="auto", cmap="RdYlBu_r", vmin=-10, vmax=MINUTES_MAX
    )
    _annotate(axes, cells=cells)
    _hatch(axes, table=table, carriers=carriers, hours=hours)
    axes.set_xticks(range(len(hours)), [f"{hour}" for hour in hours])
    labels = [
        f"{airline_names.get(code, code)}  ({by_flights[code]:,})".replace(" Inc.", "")
        for code in carriers
    ]
    axes.set_yticks(range(len(carriers)), labels)
    axes.set_xticks([number - 0.5 for number in range(len(hours))], minor=True)
    axes.set_yticks([number - 0.5 for number in range(len(carriers))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("Hour of the scheduled departure, New York time", labelpad=8)
    axes.set_ylabel("Airline (flights in the year)")
    axes.set_title(
        f"Delays grow through the day: {by_flights.sum():,} flights from New York, 2013",
        loc="left",
        fontsize=15,
        fontweight="bold",
        pad=14,
    )
    bar = figure.colorbar(image, ax=axes, extend="max", pad=0.015, aspect=35)
    bar.set_label("Mean departure delay in minutes (below 0: early)")
    bar.outline.set_visible(False)
    axes.legend(
        [Patch(**HATCHED)],
        [f"fewer than {FLIGHTS_MIN} departures"],
        loc="upper right",
        bbox_to_anchor=(1, -0.04),
        frameon=False,
    )
    canvas.print_png(str(path))


def _annotate(axes: Axes, *, cells: pd.DataFrame) -> None:
    """Write the minutes into each cell that has some."""
    for row, values in enumerate(cells.to_numpy().tolist()):
        for column, minutes in enumerate(values):
            if not pd.isna(minutes):
                # Both ends of the colours are dark, the middle is pale.
                is_dark = minutes > 0.8 * MINUTES_MAX or minutes < -6
                color = "white" if is_dark else "#333333"
                text = f"{round(minutes)}"
                axes.text(column, row, text, ha="center", va="center", fontsize=9, color=color)


def _hatch(axes: Axes, *, table: pd.DataFrame, carriers: list[str], hours: list[int]) -> None:
    """Mark the cells that have flights, but too few of them."""
    few = table[(table["departed"] < FLIGHTS_MIN) & table["hour"].isin(hours)]
    for carrier, hour in zip(few["carrier"], few["hour"], strict=True):
        corner = (hours.index(hour) - 0.5, carriers.index(carrier) - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, **HATCHED))
