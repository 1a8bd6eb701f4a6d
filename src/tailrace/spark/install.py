"""`install`: the source and the sink in any session, also where no executor has this package.

    from tailrace.spark import install
    spark = install(SparkSession.builder.remote("sc://cluster:15002").getOrCreate())
    spark.read.format("tailrace")…

A cluster whose Python environment has `tailrace[spark]` installed needs none of this: Spark finds
the format by itself.

What is shipped is this package, which is pure Python. What it stands on cannot be shipped so: the
Python of the executors must have pyarrow, as Spark's own Arrow functions need it, and numpy,
numba, crc32c and cramjam, in wheels of their machine; and the Python of the driver, or of the
Connect server, must have them too, since the source plans there.

A local session needs it too where its Python workers are not this Python, as in a program that was
started as `/path/venv/bin/python program.py`; see `environment`.

Not here: settings of a session (`session`). A cluster has its own. Two settings of `session` are
worth having everywhere: `spark.python.unix.domain.socket.enabled` and
`spark.sql.execution.arrow.maxRecordsPerBatch`.

Invariant: the same sources give the same archive, byte for byte, and so the same name of it.
"""

import atexit
import hashlib
import io
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.errors import FatalError
from tailrace.spark.environment import check_pyspark, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("pyspark_tailrace", "pyspark_tailrace_metadata", "tailrace")
"""The top-level packages of this distribution, which are shipped."""

_SOURCE_SUFFIXES: Final = (".py", ".properties", ".typed")
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
    if context._jsc is None:
        raise FatalError("the session is stopped; make a new one and install into that")
    if context.master == "local" or context.master.startswith("local["):
        use_this_python(context)
        return
    archive = _archive()
    if not any(address.endswith(f"/{archive.name}") for address in context.listFiles):
        context.addPyFile(str(archive))


def archive_of(root: Path) -> bytes:
    """A zip of the sources of `PACKAGES`, which stand in `root`; nothing compiled goes with them.

    Raises:
        FatalError: a package is not there, as where this one was imported from a zip itself.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            paths = sorted(
                path for path in (root / package).rglob("*") if path.suffix in _SOURCE_SUFFIXES
            )
            if not paths:
                raise FatalError(f"{root / package} has no sources that could be shipped")
            for path in paths:
                entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), _DATE)
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
