"""`setup.py` as the build backend: which compiler a build asks for, and its metadata."""

import json
import os
import re
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
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(SETUP.with_name(name), tmp_path)
    asked = subprocess.run(
        [sys.executable, "-c", "import setup; print(setup.get_requires_for_build_wheel())"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.splitlines()[-1] == required


def test_the_page_of_the_package_has_no_link_that_leads_nowhere() -> None:
    """The README's links lead into the repository, or are text where none is known."""
    script = """
import json, setup
from pathlib import Path
known = {"readme": Path("README.md").read_text(), "version": "9.8.7"}
print(json.dumps([setup.described(url=url, **known) for url in ("https://h/t", None)]))
"""
    shown = subprocess.run(
        [sys.executable, "-c", script], cwd=SETUP.parent, capture_output=True, check=True
    )
    linked, plain = json.loads(shown.stdout)
    assert "[security](https://h/t/blob/v9.8.7/docs/security.md)" in linked["long_description"]
    assert linked["project_urls"]["Changelog"] == "https://h/t/blob/v9.8.7/CHANGELOG.md"
    for page in (linked, plain):
        assert re.findall(r"\]\((?!https://)[^)]*\)", page["long_description"]) == []
    assert "with passwords, tokens or Kerberos: security." in plain["long_description"]
    assert plain["project_urls"] == {}
