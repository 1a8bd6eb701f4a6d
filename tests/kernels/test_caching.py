"""Tests of the cache for machine code: a private folder, under a digest of its dependencies."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.kernels.caching import (
    UNUSED_S_MAX,
    make_private,
    open_cache,
    read_code,
    write_code,
)

PACKAGE = Path(tailrace.__file__).parent

LOAD = """
import sys
from tailrace.kernels.encoding import encode_headers
from tailrace.kernels.kernel import int64s, load
load(encode_headers)
output, ends, none = bytearray(20), int64s(2), int64s(0)
rows = int64s(2)
rows[1] = 1
size = encode_headers(b"k", rows, b"", none, rows, 1, output, ends)
print(bytes(output[:size]).hex(), int('numba' not in sys.modules))
"""
"""Loads a kernel whose helpers stand in another module; prints its result, then 1 if cached."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache directory without anything in it; the temporary directory is beside it."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir(mode=0o700)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache directory with the kernel of `LOAD`."""
    place = tmp_path_factory.mktemp("compiled") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NUMBA_CACHE_DIR", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(place))
        assert printed(start(LOAD)) == "02026b01 0"
    return place


@pytest.fixture
def compiled(home: Path, compiled_once: Path) -> Path:
    """`home` with the kernel of `LOAD`."""
    shutil.copytree(compiled_once, home)
    return home


def start(code: str, package: Path = PACKAGE, *, before: str = "") -> "subprocess.Popen[str]":
    """A process that runs the code with the package from this place."""
    path = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", before + code],
        env={**os.environ, **path},
        stdout=subprocess.PIPE,
        text=True,
    )


def printed(process: "subprocess.Popen[str]") -> str:
    """Return the output of a process that has ended well."""
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return output.strip()


def folder_of(package: Path) -> str:
    """The cache's folder for the package at this place."""
    code = "from tailrace.kernels.caching import open_cache; print(open_cache())"
    return printed(start(code, package))


def copy_of_the_package(place: Path, *, change: tuple[str, str] | None = None) -> Path:
    """A copy of the package, with one text in a kernel's helper replaced by another."""
    copied = place / "tailrace"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    if change is not None:
        path = copied / "kernels" / "cleaning.py"
        source = path.read_text()
        assert change[0] in source
        path.write_text(source.replace(*change))
    return copied


def test_the_cache_is_a_private_folder_of_the_user(home: Path) -> None:
    """It is made in the user's cache directory, and nobody else can write to it."""
    folder = open_cache()
    assert folder is not None
    assert folder.parent == home / "tailrace"
    assert {each.stat().st_mode & 0o777 for each in (home, folder.parent, folder)} == {0o700}
    assert open_cache() == folder


def test_numbas_own_variable_says_where(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMBA_CACHE_DIR comes before the user's cache directory."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    folder = open_cache()
    assert folder is not None
    assert folder.parent == tmp_path / "given" / "tailrace"
    assert not home.exists()


def test_a_home_that_cannot_be_written_is_passed_over(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary directory is taken then, under a name of the user's own."""
    home.write_text("a file, in which no directory can be made")
    folder = open_cache()
    assert folder is not None
    assert folder.parent == tmp_path / "tmp" / f"tailrace-{os.geteuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    assert open_cache() is None


@pytest.mark.usefixtures("home")
def test_kernels_are_compiled_without_a_cache() -> None:
    """A process that finds no place for machine code compiles for itself."""
    place = "import tempfile, os; tempfile.tempdir = os.environ['XDG_CACHE_HOME'] = '/dev/null'; "
    assert printed(start(LOAD, before=place)) == "02026b01 0"


def test_no_room_while_the_code_is_written(home: Path) -> None:
    """A process that cannot write machine code compiles for itself, and leaves no file."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    assert printed(start(LOAD, before=limit)) == "02026b01 0"
    assert [each for each in home.rglob("*") if each.is_file()] == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Machine code that somebody else may have written is never loaded."""
    foreign = Path("/usr")
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir(mode=0o700)
        os.chown(foreign, 12345, 12345)
    with pytest.raises(PermissionError):
        make_private(foreign)


def test_a_folder_that_others_may_change_is_refused(tmp_path: Path) -> None:
    """Neither the folder nor one above it may be writable for others, nor may it be a link."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for folder in (shared, shared / "inside", link):
        with pytest.raises(PermissionError):
            make_private(folder)
    shared.chmod(0o1777)
    make_private(shared / "inside")


def test_the_place_of_the_sources_makes_no_difference(compiled: Path, tmp_path: Path) -> None:
    """A second installation and one in a zip file, as Spark ships it, share the machine code."""
    folder = folder_of(PACKAGE)
    assert folder.startswith(str(compiled))
    copied = copy_of_the_package(tmp_path / "second")
    assert folder_of(copied) == folder
    zipped = shutil.make_archive(str(tmp_path / "zipped"), "zip", copied.parent)
    for package in (copied, Path(zipped) / "tailrace"):
        assert printed(start(LOAD, package)) == "02026b01 1"


@pytest.mark.usefixtures("compiled")
def test_machine_code_does_not_outlive_its_sources(tmp_path: Path) -> None:
    """A helper that changes in another module than the kernel's changes what the kernel does."""
    assert printed(start(LOAD)) == "02026b01 1"
    change = ("output[position] = byte\n    return", "output[position] = byte + 1\n    return")
    changed = copy_of_the_package(tmp_path / "changed", change=change)
    assert folder_of(changed) != folder_of(PACKAGE)
    assert printed(start(LOAD, changed)) == "03036b02 0"


def test_two_processes_at_once_leave_a_cache_that_is_whole(home: Path) -> None:
    """Each of them gets its kernel, and a third finds it compiled."""
    both = [start(LOAD), start(LOAD)]
    assert {printed(each).split()[0] for each in both} == {"02026b01"}
    assert printed(start(LOAD)) == "02026b01 1"
    assert len(list((home / "tailrace").iterdir())) == 1


def test_machine_code_that_is_damaged_is_not_read(tmp_path: Path) -> None:
    """A lost machine may leave a part of a file, and what it wrote last as zeros."""
    write_code(tmp_path, "kernel", b"machine code")
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    assert read_code(tmp_path, "kernel") == b"machine code"
    for damaged in (b"", whole[:-1], whole[:-8] + bytes(8)):
        file.write_bytes(damaged)
        assert read_code(tmp_path, "kernel") is None


def test_machine_code_that_is_damaged_is_compiled_again(compiled: Path) -> None:
    """The file is then as it was before, and the next process loads it."""
    (file,) = compiled.rglob("*.o")
    code = file.read_bytes()
    file.write_bytes(code[:-8] + bytes(8))
    assert printed(start(LOAD)) == "02026b01 0"
    assert file.read_bytes() == code
    assert printed(start(LOAD)) == "02026b01 1"


@pytest.mark.usefixtures("home")
def test_folders_that_nobody_uses_any_more_are_removed() -> None:
    """A digest goes a month after its last use; other names are not touched."""
    folder = open_cache()
    assert folder is not None
    root = folder.parent
    old = time.time() - UNUSED_S_MAX - 60
    for name in ("0" * 32, "1" * 32, "unfinished-x", "somebody's"):
        (root / name).mkdir()
        (root / name / "file").touch()
        if name != "1" * 32:
            os.utime(root / name, (old, old))
    shutil.rmtree(folder)
    assert open_cache() == folder
    assert {each.name for each in root.iterdir()} == {folder.name, "1" * 32, "somebody's"}
