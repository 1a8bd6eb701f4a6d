"""A Spark home of the tests, with an archive of the classes that Spark's JVM loads.

A JVM that maps the archive starts with half of the CPU time: it need not read, check and link
some fifteen thousand classes. `make setup` makes the archive, by a run of typical jobs. The tests
run without it too; so they do when the JVM finds that it was made by another Java or for another
class path, and ignores it. The class path has the home in it, which is thus the same for all runs.
"""

import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from tailrace.errors import FatalError
from tailrace.spark.home import SILENT, installed_pyspark, link_home
from tailrace.spark.prepare import write_archive

HOME = Path(__file__).resolve().parents[2] / f".spark-{version('pyspark')}"
"""The Spark home, in the checkout."""

ARCHIVE = HOME / "classes.jsa"

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that runs for minutes has no time for its best code; so Spark takes a third less CPU."""


def make_home(home: Path) -> None:
    """Make a Spark home of the installed PySpark; see `tailrace.spark.home`."""
    installed = installed_pyspark()
    assert installed is not None
    home.mkdir(exist_ok=True)
    for each in home.iterdir():
        if each.is_symlink():
            each.unlink()
    link_home(home, installed)


def archive_options() -> str:
    """Options of a JVM of `HOME` that use the archive, and say nothing if it does not fit."""
    return f"-XX:SharedArchiveFile={ARCHIVE} {SILENT}"


def make_archive() -> None:
    """Make the archive from what the JVM loads for typical jobs."""
    make_home(HOME)
    os.environ["SPARK_HOME"] = str(HOME)
    os.environ["JDK_JAVA_OPTIONS"] = JVM_OPTIONS
    # With a Java that can have none the tests run without it.
    with suppress(FatalError):
        write_archive(ARCHIVE)


if __name__ == "__main__":
    make_archive()
