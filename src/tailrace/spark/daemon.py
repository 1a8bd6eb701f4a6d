"""A daemon for Spark's Python workers that wastes less: `spark.python.daemon.module`.

    spark.python.daemon.module = tailrace.spark.daemon

Spark starts one such process for each executor, and it forks a worker for each task that runs at
the same time. It is PySpark's own daemon, with two differences in its workers:

**Old objects are looked at by the garbage collector less often.** After each task a worker of
PySpark runs a full collection. It looks at every object of every module again, which takes 25 to
90 ms of CPU and finds nothing. Here a collection looks at the objects of the task, and at all
objects when the process has grown or some tasks have passed; after every task, if the last time
something was found. Nothing is frozen (`gc.freeze`): that would keep what a function of the user
replaces for good, because nobody can freeze only modules.

**A socket that Spark has closed is not reported.** Spark closes the socket of a worker whose rows
nobody needs any more, as after `show(3)`, `limit` and `take`, and of one that had no work for a
minute. The worker notices when it writes, and PySpark's daemon then prints the traceback of a
BrokenPipeError, although the query has succeeded (PySpark 4.1 and later).

`session()` sets the setting, which also holds for the user's own functions in that session. Without
it everything works, and each task costs more. Processes that Spark runs beside the driver to plan
and commit (`pyspark.sql.worker.…`) have PySpark's daemon whatever the setting says
(`SparkEnv.createPythonWorker`), and so have workers without any (`spark.python.use.daemon=false`).

Invariant: garbage of the user's functions is found after `CALLS_MAX` tasks, or when the process has
grown by `GROWTH_BYTES_MAX`.
"""

import gc
import os
import socket
from typing import Final

from pyspark import daemon

from tailrace.runtime.memory import resident_bytes

GROWTH_BYTES_MAX: Final = 16 * 1024 * 1024
CALLS_MAX: Final = 20
"""Tasks until the next full collection: it then costs each of them less than 5 ms."""

_YOUNG: Final = 1
"""`gc.collect(1)` spares objects that have survived two collections."""

_run_once = daemon.worker


class Collector:
    """Collects garbage between tasks, in a worker."""

    __slots__ = ("_calls", "_interval", "_resident_bytes")

    def __init__(self) -> None:
        self._calls = 0  # Since the last full collection.
        self._interval = 1
        self._resident_bytes = 0  # After the last full collection.

    def collect(self) -> int:
        """Collect new objects, or all of them if that is due; returns how many were garbage."""
        found = gc.collect(_YOUNG)
        self._calls += 1
        growth_bytes = resident_bytes() - self._resident_bytes
        if self._calls >= self._interval or growth_bytes >= GROWTH_BYTES_MAX:
            found_old = gc.collect()
            # What a task leaves once, it mostly leaves again.
            self._interval = 1 if found_old else min(2 * self._interval, CALLS_MAX)
            self._calls = 0
            self._resident_bytes = resident_bytes()
            found += found_old
        return found


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - PySpark's
    """Run tasks from the socket until one fails or Spark closes it; returns the exit code.

    PySpark's `worker` runs one task, and its `manager` calls that in a loop, with a full collection
    after each. Here the loop is inside, so the manager sees one long task.
    """
    # PySpark reads this variable of Spark's in the same way.
    is_reused = bool(os.environ.get("SPARK_REUSE_WORKER"))
    collector = Collector()
    try:
        while True:
            code: int = _run_once(sock, authenticated)
            if code or not is_reused:
                return code
            # A socket is authenticated by its first task.
            authenticated = True
            collector.collect()
    except ConnectionError:
        # The manager would print it. Errors of a task never come here: PySpark sends them to Spark.
        os._exit(1)


def main() -> None:
    """Be the daemon until Spark closes our standard input."""
    # The manager takes no arguments and looks its worker up by name. This process is ours: Spark
    # started it as the daemon of its setting, and nobody else runs code in it before the fork.
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
