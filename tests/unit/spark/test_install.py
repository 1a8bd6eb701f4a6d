"""Tests of what `install` ships and of what it refuses."""

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import FatalError
from tailrace.spark.install import archive_of, install

ROOT = Path(tailrace.__file__).parents[1]


def test_the_archive_has_the_sources_and_is_always_the_same() -> None:
    """All packages are whole, nothing is compiled, and the bytes are the same each time."""
    content = archive_of(ROOT)
    assert content == archive_of(ROOT)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = archive.namelist()
    assert {"pyspark_tailrace/__init__.py", "tailrace/spark/readers.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]


def test_the_archive_can_be_imported(tmp_path: Path) -> None:
    """A Python imports it that finds the package nowhere else."""
    archive = tmp_path / "tailrace.zip"
    archive.write_bytes(archive_of(ROOT))
    program = (
        "import sys; sys.path[:0] = sys.argv[1:2]; import tailrace.spark as t; print(t.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(archive)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.startswith(f"{archive}/")


def test_a_directory_without_the_sources_is_an_error(tmp_path: Path) -> None:
    """Rather than an archive with nothing in it."""
    with pytest.raises(FatalError, match="pyspark_tailrace has no sources"):
        archive_of(tmp_path)


def test_only_a_session_is_taken() -> None:
    """The error names what was given."""
    with pytest.raises(FatalError, match="takes a SparkSession, not a str"):
        install("local[2]")
