"""`prepare`: the archive of classes with which the JVMs of later sessions start; see `home`."""

import os
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tailrace.errors import FatalError
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.files import DiskFiles
from tailrace.spark.home import ARCHIVE, SILENT, check_java, home_of
from tailrace.spark.install import check_pyspark
from tailrace.spark.java import find_java, java_major_max
from tailrace.spark.session import session
from tailrace.storage.checkpoints import write_partition_metadata
from tailrace.storage.names import LOG_SUFFIX, PARTITION_METADATA, segment_file_name

_RECORDS: Final = 1000
_DUMP_S_MAX: Final = 300
"""Longest time in which a JVM that ends writes its classes; 16 s is usual."""


def prepare() -> Path:
    """Write the archive for sessions of this environment, and return its path.

    Runs typical jobs in a session of its own: about a minute, and 200 MB in the user's cache. The
    process must have no session yet, and should end after this.

    Raises:
        FatalError: SPARK_HOME is set, so that sessions have a home that is not ours; there is no
            PySpark or no Java, or this Java can have no archive; nothing could be written.
    """
    if "SPARK_HOME" in os.environ:
        raise FatalError(
            f"SPARK_HOME is {os.environ['SPARK_HOME']}, a home of your own, in which nothing is "
            "changed; unset it to use the installed PySpark"
        )
    check_pyspark()
    from pyspark import __version__

    java = find_java(os.environ, major_max=java_major_max(__version__))
    check_java(java)
    home = home_of(java, version=__version__)
    if home is None:
        raise FatalError(
            "there is no Spark home to write to: PySpark has to be installed with pip, and "
            "XDG_CACHE_HOME or ~/.cache has to be writable"
        )
    os.environ["SPARK_HOME"] = str(home)
    write_archive(home / ARCHIVE)
    return home / ARCHIVE


def write_archive(archive: Path) -> None:
    """Write the classes that a JVM of the home SPARK_HOME loads for typical jobs.

    Raises:
        FatalError: the JVM has not written it.
    """
    from pyspark import SparkContext

    # In a place of its own until it is whole: a session may begin meanwhile. One name for all: what
    # a killed process leaves, the next one writes over.
    unfinished = archive.with_name("unfinished.jsa")
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{given} -XX:ArchiveClassesAtExit={unfinished} {SILENT}"
    try:
        _run_typical_jobs()
        gateway = SparkContext._gateway
        assert gateway is not None, "the session has started one"
        # The JVM ends with its standard input, and writes the archive then.
        gateway.proc.stdin.close()
        gateway.proc.wait(_DUMP_S_MAX)
        unfinished.rename(archive)
    except FileNotFoundError as error:
        raise FatalError(
            f"the JVM has not written {archive}; has this Java class data sharing, is "
            f"there room for 200 MB, and is {archive.parent / 'conf'} empty or missing?"
        ) from error
    finally:
        os.environ["SPARK_SUBMIT_OPTS"] = given
        unfinished.unlink(missing_ok=True)


def _write_log(folder: Path) -> None:
    builder = BatchBuilder()
    for number in range(_RECORDS):
        builder.append(b"%d" % (number % 10), b"%d" % number, timestamp=number)
    batch = bytearray(builder.build())
    stamp(memoryview(batch), base_offset=0, leader_epoch=0)
    folder.mkdir(parents=True)
    (folder / segment_file_name(0, LOG_SUFFIX)).write_bytes(batch)
    # Without it the archive of the jobs would warn that nothing tells its topic from another.
    write_partition_metadata(DiskFiles(), str(folder), PARTITION_METADATA, topic_id=uuid.uuid4())


def _run_typical_jobs() -> None:
    from tailrace.spark.jobs.archive import archive
    from tailrace.spark.jobs.verify_archive import verify_archive

    with TemporaryDirectory(prefix="tailrace-") as folder:
        _write_log(Path(folder, "data", "t-0"))
        source = {"path": f"{folder}/data", "subscribe": "t", "startingOffsets": "earliest"}
        spark = session(name="tailrace prepare", master="local[2]")
        spark.read.format("tailrace").options(**source).load().createOrReplaceTempView("log")
        spark.sql("SELECT key, count(*), max(timestamp) FROM log GROUP BY key ORDER BY 2").collect()
        archive(spark, source, f"{folder}/lake")
        verify_archive(spark, source, f"{folder}/lake")
        stream = spark.readStream.format("tailrace").options(**source).load()
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/sink")
        )
        query.awaitTermination()
        count = spark.read.parquet(f"{folder}/sink").count()
        assert count == _RECORDS, count
        spark.stop()
