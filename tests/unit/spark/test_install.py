"""Tests of what `install` ships and of what it refuses."""

import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from io import BytesIO
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import FatalError
from tailrace.spark.install import archive_of, install

ROOT = Path(tailrace.__file__).parents[1]

PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
import tailrace.kernels, tailrace.spark
print(tailrace.kernels.memory.__file__, tailrace.spark.__file__)
"""


def start(*arguments: object) -> "subprocess.Popen[str]":
    """A Python that finds the package nowhere else imports it from a path."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_archive_has_the_package_and_is_always_the_same() -> None:
    """The package is whole, and the bytes are the same each time."""
    content = archive_of(ROOT)
    assert content == archive_of(ROOT)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = archive.namelist()
    kernel = f"packages/tailrace/kernels/memory{EXTENSION_SUFFIXES[0]}"
    assert {kernel, "packages/tailrace/spark/batch_reader.py", "tailrace/__init__.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]


def test_workers_import_the_archive_at_the_same_time(tmp_path: Path) -> None:
    """Each gets the whole package, compiled modules too, unpacked once beside the archive."""
    archive = tmp_path / "tailrace-1.zip"
    archive.write_bytes(archive_of(ROOT))
    workers = [start(archive) for _ in range(4)]
    answers = [worker.communicate() for worker in workers]
    packages = tmp_path / "tailrace-1" / "packages"
    kernel = packages / f"tailrace/kernels/memory{EXTENSION_SUFFIXES[0]}"
    expected = f"{kernel} {packages / 'tailrace/spark/__init__.py'}\n"
    assert answers == 4 * [(expected, "")]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "tailrace-1", archive]


def test_the_archive_of_another_machine_says_what_to_do(tmp_path: Path) -> None:
    """Modules compiled for another Python or another processor cannot be loaded."""
    archive = tmp_path / "tailrace-1.zip"
    with zipfile.ZipFile(BytesIO(archive_of(ROOT))) as ours, zipfile.ZipFile(archive, "w") as other:
        for name in ours.namelist():
            suffix = ".cpython-399-z80-cpm.so"
            other.writestr(name.replace(EXTENSION_SUFFIXES[0], suffix), ours.read(name))
    _, errors = start(archive).communicate()
    last = errors.splitlines()[-1]
    assert last.startswith("ImportError: install() has shipped a tailrace that is not compiled for")
    assert "install tailrace[spark] in the Python of the executors" in last


def test_a_directory_without_the_package_is_an_error(tmp_path: Path) -> None:
    """Rather than an archive with nothing in it."""
    with pytest.raises(FatalError, match="tailrace has no modules"):
        archive_of(tmp_path)


def test_only_a_session_is_taken() -> None:
    """The error names what was given."""
    with pytest.raises(FatalError, match="takes a SparkSession, not a str"):
        install("local[2]")
