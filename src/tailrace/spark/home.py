"""A Spark home with which the JVM and the Python workers of a session start faster.

    CACHE/spark-4.3.0-1a2b3c4d/
        bin, conf, jars   links to those of the installed PySpark
        classes.jsa       the JVM's classes, read and linked; written by `prepare`

Most of what the first query of a session costs is not the query. Each of Spark's five Python
processes imports PySpark from the zip file of the home, and so compiles it, for 0.6 seconds of CPU;
a home without that file has them import the installed PySpark, which is compiled. And the JVM
reads, checks and links fifteen thousand classes, which an archive of them saves (JEP 350). Its
first JVM takes longer, and 16 s more at its end: so no session writes it on its own (decision 97).

What is *not* here: the settings of a session; see `session`.

Invariant: a home is used with the PySpark and the Java that it was made for. Any file of it may be
missing or unfinished: a JVM checks the archive's header, which is written last.
"""

import hashlib
import os
import shutil
import site
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tailrace.errors import FatalError
from tailrace.spark.java import MAJOR_MIN, Java, user_cache

_LINKED: Final = ("bin", "conf", "jars")
ARCHIVE: Final = "classes.jsa"
_BASE_ARCHIVE: Final = "lib/server/classes.jsa"
"""The archive that a larger one builds on; a Java that was cut down with jlink has none."""
SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is no error: the JVM reads the classes as before."""
_MAJORS: Final = range(MAJOR_MIN, 24)
"""The Javas that know these names of logs."""


def home_of(java: Java, *, version: str) -> Path | None:
    """The Spark home of the installed PySpark, which has this version; made if it is not there.

    None: PySpark is not installed as by pip, or where only this process imports it from; or the
    user's cache cannot be written.
    """
    installed = installed_pyspark()
    places = [*site.getsitepackages(), site.getusersitepackages()]
    places += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    cache = user_cache(os.environ)
    if installed is None or cache is None:
        return None
    if installed.parent not in [Path(each).resolve() for each in places]:
        return None
    digest = hashlib.sha256(os.fsencode(f"{installed}\0{java.home}")).hexdigest()[:16]
    home = cache / f"spark-{version}-{digest}"
    if home.is_dir():
        return home
    _remove_orphans(cache)
    try:
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as folder:
            made = Path(folder, "home")
            made.mkdir()
            link_home(made, installed)
            made.rename(home)
    except OSError:
        # Another process was faster, or there is no room: then without it.
        return home if home.is_dir() else None
    return home


def installed_pyspark() -> Path | None:
    """The directory of the PySpark that this Python imports; None: it has no Spark in it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    installed = Path(found.origin).resolve().parent
    return installed if (installed / "jars").is_dir() else None


def link_home(home: Path, installed: Path) -> None:
    """Make an empty directory a Spark home of `installed`."""
    for name in _LINKED:
        (home / name).symlink_to(installed / name)


def archive_options(home: Path, java: Java) -> str:
    """Options of a JVM that use the archive of its classes, if there is one for this Java."""
    archive = home / ARCHIVE
    try:
        # The time of an update, after which the JVM would refuse what was made before it.
        newest = max(each.stat().st_mtime for each in (java.home / _BASE_ARCHIVE, home / "jars"))
        is_usable = archive.stat().st_mtime > newest
    except OSError:
        return ""
    return f'"-XX:SharedArchiveFile={archive}" {SILENT}' if is_usable else ""


def check_java(java: Java) -> None:
    """Check that this Java can have an archive of classes.

    Raises:
        FatalError: it is too new, or was cut down with jlink.
    """
    if java.major not in _MAJORS or not (java.home / _BASE_ARCHIVE).is_file():
        raise FatalError(
            f"{java.home} ({java.origin}) is Java {java.major}, of which no archive of classes can "
            f"be made: that takes Java {_MAJORS[0]} to {_MAJORS[-1]} with {_BASE_ARCHIVE}, as "
            "distributions have it; set JAVA_HOME to one"
        )


def _remove_orphans(cache: Path) -> None:
    """Remove the homes of environments that are gone: an archive has 200 MB."""
    for home in cache.glob("spark-*"):
        if not (home / "jars").is_dir():
            shutil.rmtree(home, ignore_errors=True)
