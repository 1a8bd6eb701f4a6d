"""The notebook of `examples/`, run as a person would run it, but without Jupyter.

Its cells hold their own asserts; here they are run in order, in a process of their own, since the
notebook starts and stops a Spark session. As in Jupyter, what a cell ends with is shown.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "flights.ipynb"

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


@pytest.mark.slow
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


def test_the_notebook_is_kept_without_outputs() -> None:
    """The notebook in the tree has no outputs, so that its changes can be reviewed."""
    for cell in code_cells():
        assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]
