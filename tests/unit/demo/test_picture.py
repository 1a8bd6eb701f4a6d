"""The picture is a picture."""

from pathlib import Path

from matplotlib.image import imread

from tailrace.demo.check import truth
from tailrace.demo.flights import Tables
from tailrace.demo.picture import draw_delays


def test_a_picture_is_drawn(tables: Tables, tmp_path: Path) -> None:
    """A PNG of the wanted size comes out, and it is not blank."""
    path = tmp_path / "delays.png"
    draw_delays(truth(tables), airline_names=tables.airline_names, path=path)
    pixels = imread(path)
    assert pixels.shape[:2] == (912, 1560)
    assert pixels.std() > 0.05


def test_a_table_of_rare_flights_is_drawn(tables: Tables, tmp_path: Path) -> None:
    """A table without any cell to colour still gives a picture."""
    table = truth(tables)
    path = tmp_path / "delays.png"
    draw_delays(table[table["departed"] < 5], airline_names={}, path=path)
    assert path.stat().st_size > 0
