"""The Spark home of `session`: links to the installed PySpark, and the JVM's classes."""

import os
from pathlib import Path

import pytest

from tailrace.errors import FatalError
from tailrace.spark.home import ARCHIVE, archive_options, check_java, home_of, installed_pyspark
from tailrace.spark.java import Java
from tailrace.spark.prepare import prepare

JAVA = Java(home=Path("/opt/java"), major=17, origin="PATH")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tailrace"


def java_of(folder: Path, *, major: int = 17) -> Java:
    """A Java that has an archive of its own classes."""
    archive = folder / "lib" / "server" / "classes.jsa"
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.touch()
    os.utime(archive, (1, 1))
    return Java(home=folder, major=major, origin="JAVA_HOME")


def test_a_home_has_the_jars_of_the_installed_pyspark_and_no_zip_file(cache: Path) -> None:
    """The second session finds the same, and another Java has one of its own."""
    home = home_of(JAVA, version="4.3.0")
    installed = installed_pyspark()
    assert home is not None
    assert installed is not None
    assert (home / "jars").resolve() == installed / "jars"
    assert not (home / "python").exists()
    assert home_of(JAVA, version="4.3.0") == home
    assert [*cache.iterdir()] == [home]
    other = Java(home=Path("/opt/other"), major=21, origin="PATH")
    assert home_of(other, version="4.3.0") != home


def test_there_is_no_home_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary one would be made by each session, and found by none."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert home_of(JAVA, version="4.3.0") is None


def test_the_home_of_an_environment_that_is_gone_is_removed(cache: Path) -> None:
    """Its archive would stay for ever; the homes of others stay."""
    orphan, other = cache / "spark-4.2.0-a", cache / "spark-4.2.0-b"
    for each in (orphan, other):
        each.mkdir(parents=True)
    (orphan / "jars").symlink_to(cache / "gone")
    (other / "jars").symlink_to(cache)
    assert home_of(JAVA, version="4.3.0") is not None
    assert not orphan.exists()
    assert other.exists()


def test_an_archive_is_used_while_nothing_is_newer(cache: Path, tmp_path: Path) -> None:
    """A JVM would refuse one that was made before an update of Java or of PySpark."""
    java = java_of(tmp_path / "java")
    home = cache / "spark-4.3.0-a"
    home.mkdir(parents=True)
    jars = tmp_path / "jars"
    jars.mkdir()
    os.utime(jars, (2, 2))
    (home / "jars").symlink_to(jars)
    assert archive_options(home, java) == ""
    archive = home / ARCHIVE
    archive.touch()
    os.utime(archive, (3, 3))
    assert f'"-XX:SharedArchiveFile={archive}"' in archive_options(home, java)
    os.utime(jars, (4, 4))
    assert archive_options(home, java) == ""


def test_a_java_that_can_have_no_archive_is_named(tmp_path: Path) -> None:
    """Java 24 has other options, and a Java that was cut down has no archive of its own."""
    check_java(java_of(tmp_path / "java"))
    for java in (java_of(tmp_path / "java", major=24), JAVA):
        with pytest.raises(FatalError, match=f"is Java {java.major}, of which no archive"):
            check_java(java)


def test_a_home_of_ones_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions use it, so that an archive of ours would have no effect."""
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with pytest.raises(FatalError, match="SPARK_HOME is /opt/spark, a home of your own"):
        prepare()
