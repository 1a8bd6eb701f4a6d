"""Keeps Python workers from printing a traceback when Spark has closed their socket.

Spark closes the socket of a worker whose rows nobody needs any more, as after `show(3)`, `limit`
and `take`, and of one that had no work for a minute. The worker notices when it writes, and the
daemon of PySpark, whose child it is, then prints the traceback of a BrokenPipeError, although the
query has succeeded (PySpark 4.1 and later).

What a data source raises never comes to the daemon: PySpark sends it to Spark, which raises it in
the driver. So the daemon prints only what happened to the socket itself, and bugs of PySpark.

Not here: workers that have no daemon (`spark.python.use.daemon=false`).

Invariant: only what the daemon itself prints changes, and only for a connection that has ended.
"""

import sys
import traceback
from types import ModuleType


def hide_closed_sockets(main: ModuleType) -> None:
    """Have PySpark's daemon print nothing where Spark has closed the socket.

    `main` is the module that this process runs; if it is not the daemon, nothing changes.
    """
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        # A copy, so that `traceback` stays as it is for everybody else in the process.
        quiet = ModuleType("traceback")
        quiet.__dict__.update(vars(traceback), print_exc=_print_unless_closed)
        vars(main)["traceback"] = quiet


def _print_unless_closed() -> None:
    """`traceback.print_exc()`, as the daemon calls it."""
    if not isinstance(sys.exception(), ConnectionError):
        traceback.print_exc()
