"""A local Spark session set up well for one machine.

What is *not* here: anything a cluster needs. There, build the session as usual; the format
`tailrace` works in any session whose Python has this package, and in others after `install`.

Invariant: a setting passed by the caller wins over ours, and nothing is written to the working
directory.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tailrace.runtime.extras import check_extra
from tailrace.spark.home import archive_options, home_of
from tailrace.spark.install import (
    REDACTION,
    REDACTION_SETTING,
    can_import_package,
    check_pyspark,
    install,
    is_local,
)
from tailrace.spark.java import find_java, java_major_max

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON_SETTING = "spark.python.daemon.module"

SETTINGS = {
    # Workers that run no full collection after each task, which takes 25 to 90 ms of CPU.
    DAEMON_SETTING: "tailrace.spark.daemon",
    # Without it each task with Python waits 40 ms for a delayed acknowledgement (Spark 4.1+).
    "spark.python.unix.domain.socket.enabled": "true",
    # Rows of a batch that Spark hands to Python; larger ones take the sink a sixth less CPU.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Plans and Spark's pages would show private keys that are options.
    REDACTION_SETTING: REDACTION,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # 200, Spark's default, is meant for clusters: most of the time would go into empty tasks.
    "spark.sql.shuffle.partitions": "8",
    # A laptop's host name may resolve to an address that is gone after changing networks.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Settings of `session` by Spark's names, where the caller gives no other value.

Besides these, the JVM logs errors only.
"""


def session(
    *,
    name: str = "tailrace",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A running local session: quiet, in UTC, with the Python that runs this code.

    Sets JAVA_HOME to a Java that can run Spark, and PYSPARK_PYTHON to `sys.executable` unless it is
    set. Where SPARK_HOME is not set, the JVM has a home in the user's cache (XDG_CACHE_HOME), with
    which the first query is faster. If the process has a session already, that one is returned,
    with `settings` applied as far as Spark can change them and with the format registered as by
    `install`.

    Raises:
        FatalError: there is no Java that this PySpark runs on, no PySpark, or one older than 4.0.

    Example:
        >>> spark = session(settings={"spark.driver.memory": "4g"})
        >>> spark.read.format("tailrace").option("path", "demo-data").load()
    """
    check_extra("spark", "a Spark session")
    check_pyspark()
    from pyspark import SparkContext, __version__
    from pyspark.sql import SparkSession

    # Workers start as `python3` from PATH otherwise, which is not this virtual environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    # A private name, since no public one says it: `getActiveSession` knows only the session of this
    # thread, and a JVM that another thread has started keeps its Java.
    has_jvm = SparkContext._gateway is not None
    home = None
    if not has_jvm:
        # PySpark's launcher reads these variables from our environment and takes no arguments for
        # them. They also hold for what else this process starts, as if the user had set them.
        java = find_java(os.environ, major_max=java_major_max(__version__))
        os.environ["JAVA_HOME"] = str(java.home)
        if "SPARK_HOME" not in os.environ and _has_our_pyspark(master, settings or {}):
            home = home_of(java, version=__version__)
            if home is not None:
                options = f"{options} {archive_options(home, java)}"
    chosen = {**SETTINGS, "spark.driver.extraJavaOptions": options, **(settings or {})}
    if DAEMON_SETTING not in (settings or {}) and not _has_our_daemon(master):
        del chosen[DAEMON_SETTING]
    # Spark would make `spark-warehouse` in the working directory.
    if "spark.sql.warehouse.dir" not in chosen:
        chosen["spark.sql.warehouse.dir"] = _temporary_warehouse()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _launched_from(home), _deferred_interrupt(), warnings.catch_warnings():
        # PySpark looks for pandas when it starts, and warns of every major version after 2.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        spark = builder.getOrCreate()
    return install(spark) if has_jvm else spark


def _has_our_daemon(master: str) -> bool:
    """Whether the workers' Python can run a module of ours before Spark has shipped any."""
    # What `install` ships to a cluster is imported by tasks, and the daemon starts before them.
    python = os.environ["PYSPARK_PYTHON"]
    return is_local(master) and (python == sys.executable or can_import_package(python))


def _has_our_pyspark(master: str, settings: Mapping[str, str]) -> bool:
    """Whether the workers' Python is this one, which has PySpark installed."""
    own = os.environ["PYSPARK_PYTHON"] == sys.executable
    return is_local(master) and own and "spark.pyspark.python" not in settings


@contextmanager
def _launched_from(home: Path | None) -> Iterator[None]:
    """Have the JVM that starts in the block a home, and no other program that starts later."""
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


@contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Have Ctrl-C wait until the block is over; pressed twice, it does not wait."""
    # PySpark that is interrupted while its JVM starts removes the directory through which the two
    # would meet, and the JVM is left running for ever. A started JVM ends with this process. Python
    # has no other way to hold a signal back in the main thread: `pthread_sigmask` would be
    # inherited by the JVM, which then could not be interrupted at all.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed = []

    def note(number: int, _frame: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed:
            raise KeyboardInterrupt


def _temporary_warehouse() -> str:
    """A directory for managed tables that goes away with this process."""
    directory = tempfile.mkdtemp(prefix="tailrace-warehouse-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
