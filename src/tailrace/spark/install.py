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

A local session needs it too where its Python workers are not this Python, as in a program that was
started as `/path/venv/bin/python program.py`; see `environment`.

Not here: settings of a session (`session`). A cluster has its own; docs/spark.md has those that are
worth having everywhere.

Invariant: the same package gives the same archive, byte for byte, and so the same name of it.
"""

import atexit
import hashlib
import io
import shutil
import tempfile
import zipfile
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.errors import FatalError
from tailrace.spark import shipped
from tailrace.spark.environment import check_pyspark, is_local, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPILED_SUFFIX: Final = EXTENSION_SUFFIXES[0]
_SUFFIXES: Final = (".py", ".properties", ".typed", _COMPILED_SUFFIX)
_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Date of every file in the archive: the earliest that the format has."""


def install(spark: "SparkSession") -> "SparkSession":
    """Ship this package to where the session computes, and register its two formats.

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
