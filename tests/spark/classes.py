"""A Spark home of the tests, with an archive of the classes that Spark's JVM loads.

A JVM that maps the archive starts with half of the CPU time: it need not read, check and link
some fifteen thousand classes. `make setup` makes the archive, by a run of typical jobs. The tests
run without it too; so they do when the JVM finds that it was made by another Java or for another
class path, and ignores it. The class path has the home in it, which is thus the same for all runs.
"""

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

HOME = Path(__file__).resolve().parents[2] / f".spark-{version('pyspark')}"
"""The Spark home, in the checkout."""

ARCHIVE = HOME / "classes.jsa"

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that runs for minutes has no time for its best code; so Spark takes a third less CPU."""

DUMP_S_MAX = 300


def make_home(home: Path) -> None:
    """Make a Spark home of the installed PySpark.

    With `SPARK_HOME` Python workers import the installed PySpark, which is compiled. Otherwise they
    import it from a zip file, and each process compiles it anew for 0.7 seconds.
    """
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars"):
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(Path(found.origin).resolve().with_name(name))


def archive_options() -> str:
    """Options of a JVM of `HOME` that use the archive, and say nothing if it does not fit."""
    return f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"


def make_archive() -> None:
    """Make the archive from what the JVM loads for typical jobs."""
    make_home(HOME)
    unfinished = ARCHIVE.with_name("unfinished.jsa")
    unfinished.unlink(missing_ok=True)
    os.environ["SPARK_HOME"] = str(HOME)
    os.environ["JDK_JAVA_OPTIONS"] = JVM_OPTIONS
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds=off -Xlog:cds+dynamic=off"
    )
    with TemporaryDirectory() as folder:
        _run_typical_jobs(Path(folder))
    if unfinished.exists():
        unfinished.rename(ARCHIVE)


def _run_typical_jobs(folder: Path) -> None:
    from pyspark import SparkContext

    from tailrace.model import TopicPartition
    from tailrace.spark import session
    from tailrace.spark.jobs.archive import archive
    from tailrace.spark.jobs.verify_archive import verify_archive
    from tests.spark.directories import write_numbered

    data, lake = str(folder / "data"), str(folder / "lake")
    write_numbered(folder / "data", TopicPartition("t", 0), limit=100)
    spark = session(name="classes", master="local[2]")
    gateway = SparkContext._gateway
    assert gateway is not None
    source = {"path": data, "subscribe": "t", "startingOffsets": "earliest"}
    archive(spark, source, lake)
    verify_archive(spark, source, lake)
    stream = spark.readStream.format("tailrace").options(**source).load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/sink")
    )
    query.awaitTermination()
    rows = spark.read.parquet(f"{folder}/sink")
    assert rows.groupBy("partition").count().orderBy("partition").collect() == [(0, 100)]
    spark.stop()
    # It ends with its standard input, and writes the archive then.
    gateway.proc.stdin.close()
    gateway.proc.wait(DUMP_S_MAX)


if __name__ == "__main__":
    make_archive()
