"""The notebook of `examples/`, run as a person would run it, but without Jupyter.

Its cells hold their own asserts; here they are run in order, in a process of their own, since the
notebook starts and stops a Spark session. As in Jupyter, what a cell ends with is shown.
"""

import getpass
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "flights.ipynb"

MACHINE = re.compile(
    rf"/(?:tmp|home|root|Users|var|usr|opt|work|private)/|[/@]{re.escape(getpass.getuser())}\b|"
    r"site-packages|tailrace-notebook-|Traceback|Warning|\bWARN\b"
)
"""Text that belongs to one machine, or that tells of an error."""

RUN = """
import ast, json, sys

def show(result):
    show.pages += getattr(result, "_repr_html_", str)().count("<iframe srcdoc=")

show.pages = 0
names = {"__name__": "__main__", "show": show}
for cell in json.loads(open(sys.argv[1], encoding="utf-8").read())["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"])).body
    if isinstance(body[-1], ast.Expr):
        call = ast.Call(ast.Name("show", ast.Load()), [body[-1].value], [])
        body[-1] = ast.Expr(call)
    module = ast.fix_missing_locations(ast.Module(body, []))
    exec(compile(module, f"cell {cell['id']}", "exec"), names)
print(show.pages, "pages")
"""


def code_cells() -> list[dict[str, Any]]:
    """The cells that are run."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_notebook_runs_as_it_says_and_cleans_up(tmp_path: Path) -> None:
    """No assert of it fails, both reports are shown, and no file is left behind."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK)],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("\n")[-2] == "2 pages"
    assert list(tmp_path.iterdir()) == []


def test_the_notebook_is_kept_with_its_outputs() -> None:
    """Every cell was run, in order; tables, both reports and the picture are there, and small."""
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = json.dumps([cell["outputs"] for cell in cells])
    assert outputs.count("<iframe srcdoc=") == 2
    assert outputs.count("<table ") > 5
    assert outputs.count('"image/png"') == 1
    assert NOTEBOOK.stat().st_size < 300_000


def test_the_outputs_tell_nothing_of_the_machine() -> None:
    """No traceback, no warning, no log of Spark, no path and no user's name."""
    for cell in code_cells():
        for output in cell["outputs"]:
            assert output["output_type"] != "error", cell["id"]
            assert output.get("name") != "stderr", cell["id"]
            text = json.dumps({**output, "data": {**output.get("data", {}), "image/png": ""}})
            told = MACHINE.search(text)
            assert told is None, f"{cell['id']}: {told}"
