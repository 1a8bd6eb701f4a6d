"""`setup.py` as the build backend: which compiler a build asks for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "setup.py"


@pytest.mark.parametrize(
    ("variables", "required"),
    [({"PATH": "/nowhere"}, "['ziglang']"), ({"CC": sys.executable}, "[]")],
    ids=["without a compiler", "with the compiler that CC names"],
)
def test_a_compiler_is_required_where_there_is_none(
    tmp_path: Path, variables: dict[str, str], required: str
) -> None:
    """Nothing has to be downloaded where one is installed."""
    shutil.copy(SETUP, tmp_path)
    asked = subprocess.run(
        [sys.executable, "-c", "import setup; print(setup.get_requires_for_build_wheel())"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.splitlines()[-1] == required
