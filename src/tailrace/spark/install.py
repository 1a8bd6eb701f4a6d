"""`install`: the source and the sink in any session, also where no executor has this package.

    from tailrace.spark import install
    spark = install(SparkSession.builder.remote("sc://cluster:15002").getOrCreate())
    spark.read.format("tailrace")…

A cluster whose Python environment has `tailrace[spark]` installed needs none of this: Spark finds
the format by itself.

What is shipped is this package as it is installed here, with modules that are compiled for this
version of Python and this kind of machine; the executors must be of the same, and say so if they
are not. Its dependencies are not shipped: the Python of the executors must have pyarrow, as Spark's
own Arrow functions need it, and numpy, crc32c and cramjam; and the Python of the driver, or of the
Connect server, must have them too, since the source plans there.

A local session needs it too where its Python workers are not this Python: Spark starts them as
`python3` from PATH unless PYSPARK_PYTHON says otherwise. For a program that was started as
`/path/venv/bin/python program.py` that is another Python, without this package and PyArrow.

Not here: settings of a session (`session`). A cluster has its own; docs/spark.md has those that are
worth having everywhere.

Invariants: the same package gives the same archive, byte for byte, and so the same name of it. A
Python that the user has chosen, by PYSPARK_PYTHON or `spark.pyspark.python`, is kept.
"""

import atexit
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.config.settings import SECRET_PARTS
from tailrace.errors import FatalError
from tailrace.spark import shipped

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_COMPILED_SUFFIX: Final = EXTENSION_SUFFIXES[0]
_SUFFIXES: Final = (".py", ".properties", ".typed", _COMPILED_SUFFIX)
REDACTION_SETTING: Final = "spark.sql.redaction.options.regex"
_REDACTION_DEFAULT: Final = "(?i)url"
REDACTION: Final = "|".join((_REDACTION_DEFAULT, *map(re.escape, SECRET_PARTS)))
"""A pattern for options that plans hide: Spark's default, and the names of secrets.

Without it plans have a private key that is given as text (`kafka.ssl.keystore.key`), and Spark's
pages show them to everybody.
"""

_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Date of every file in the archive: the earliest that the format has."""


def install(spark: "SparkSession") -> "SparkSession":
    """Ship this package to where the session computes, and register its two formats.

    Plans hide secret options from then on, unless the session has a rule of its own for that.

    The session may be a classic one with the executors of a cluster, or one of Spark Connect. A
    local session gets no package: its workers become this Python, unless the user chose another
    one, and so find it. A second call with the same session changes nothing. Returns the session.

    Raises:
        FatalError: PySpark is older than 4.0; what is given is not a running session; the Python
            that the user chose for the workers of a local session cannot import this package.
    """
    kind = type(spark)
    if kind.__name__ != "SparkSession" or not kind.__module__.startswith("pyspark.sql."):
        raise FatalError(f"install takes a SparkSession, not a {kind.__name__}")
    if kind.__module__.startswith("pyspark.sql.connect."):
        if spark.is_stopped:
            raise FatalError("the session is stopped; make a new one and install into that")
        spark.addArtifacts(str(_archive()), pyfile=True)
    else:
        _ship(spark)
    check_pyspark()
    # Spark asks the class for its name, so PySpark's modules are needed from here on.
    from tailrace.spark.metadata.source import MetadataDataSource
    from tailrace.spark.pyspark_versions import register_source
    from tailrace.spark.source import TailraceDataSource

    register_source(spark, TailraceDataSource)
    register_source(spark, MetadataDataSource)
    # Spark Connect knows no default of a setting that nobody has set.
    if spark.conf.get(REDACTION_SETTING, _REDACTION_DEFAULT) == _REDACTION_DEFAULT:
        spark.conf.set(REDACTION_SETTING, REDACTION)
    return spark


def _ship(spark: "SparkSession") -> None:
    context = spark.sparkContext
    # A private name, as PySpark has no public one for a context that is stopped.
    if context._jsc is None:
        raise FatalError("the session is stopped; make a new one and install into that")
    if is_local(context.master):
        use_this_python(context)
        return
    archive = _archive()
    # A second call must not ship the package again: executors would unpack it once more.
    if not any(address.endswith(f"/{archive.name}") for address in context.listFiles):
        context.addPyFile(str(archive))


def archive_of(root: Path) -> bytes:
    """A zip of the package in `root`, with a module that unpacks it where it is imported.

    Raises:
        FatalError: the package is not there, or not compiled for this Python.
    """
    paths = sorted(path for path in (root / "tailrace").rglob("*") if path.name.endswith(_SUFFIXES))
    if not any(path.name.endswith(_COMPILED_SUFFIX) for path in paths):
        raise FatalError(f"{root / 'tailrace'} has no modules *{_COMPILED_SUFFIX} to be shipped")
    members = {f"{shipped.PACKAGES}/{path.relative_to(root).as_posix()}": path for path in paths}
    members["tailrace/__init__.py"] = Path(shipped.__file__)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, path in members.items():
            # Without times and owners the same package gives the same bytes, and so the same name.
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return content.getvalue()


@cache
def _archive() -> Path:
    """The archive as a file, from which Spark serves it until this process ends."""
    content = archive_of(Path(__file__).parents[2])
    directory = tempfile.mkdtemp(prefix="tailrace-install-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory) / f"tailrace-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    path.write_bytes(content)
    return path


PYSPARK_OLDEST: Final = (4, 0)
"""The first version with data sources in Python."""

PYSPARK_NEWEST: Final = (4, 3)
"""The newest version that the tests run with."""

PYSPARK_RANGE: Final = "4.0 to 4.3"
"""From the oldest to the newest, as the messages and the documentation say it."""

_INSTALL: Final = "pip install 'pyspark>=4.0,<4.4'"

PROBE_SECONDS_MAX: Final = 30
"""A Python that has not imported the package by then counts as one that cannot."""


def check_pyspark() -> None:
    """Raise if there is no PySpark, or one without data sources in Python.

    Warns of a version that is newer than `PYSPARK_NEWEST`, once in a process.

    Raises:
        FatalError: the message says which version is there and what to install.
    """
    try:
        from pyspark import __version__ as version
    except ImportError as error:
        raise FatalError("PySpark is not installed. Run: pip install 'tailrace[spark]'") from error
    check_pyspark_version(version)


def check_pyspark_version(version: str) -> None:
    """Raise if a version of PySpark has no data sources in Python; warn if it is not tested.

    Raises:
        FatalError: it is older than 4.0.
    """
    given = tuple(int(number) for number in version.split(".")[:2])
    if given < PYSPARK_OLDEST:
        raise FatalError(
            f"tailrace needs PySpark {PYSPARK_RANGE}, and this is PySpark {version}. "
            f"Run: {_INSTALL}"
        )
    if given > PYSPARK_NEWEST:
        warnings.warn(
            f"tailrace is tested with PySpark {PYSPARK_RANGE}, and this is PySpark {version}, "
            f"which may work. If it does not, run: {_INSTALL}",
            stacklevel=2,
        )


def use_this_python(context: "SparkContext") -> None:
    """Have the workers of a running local session be this Python, unless the user chose another.

    It holds for all functions and data sources that the session gets from now on.

    Raises:
        FatalError: the Python that the user chose cannot import this package.
    """
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen or chosen == sys.executable:
        # PySpark reads it for each function that it sends; the environment counts only before the
        # start.
        context.pythonExec = sys.executable
    elif not can_import_package(chosen):
        raise FatalError(
            f"Spark starts its Python workers with {chosen}, which cannot import tailrace; "
            f"set PYSPARK_PYTHON={sys.executable} before the session starts"
        )


def is_local(master: str) -> bool:
    """Whether a master runs all tasks in the process of the driver's JVM."""
    return master == "local" or master.startswith("local[")


def can_import_package(python: str) -> bool:
    """Whether a Python has this package and PyArrow."""
    try:
        # The user's own Python, without a shell.
        answer = subprocess.run(  # noqa: S603
            [python, "-c", "import pyarrow, tailrace.kernels"],
            capture_output=True,
            check=False,
            timeout=PROBE_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0
