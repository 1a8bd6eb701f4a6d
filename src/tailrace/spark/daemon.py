"""Changes two calls of PySpark's daemon in a Python worker, which is a fork of it.

**Modules are looked at by the garbage collector once.** Behind each call, of a task or of the
driver, a worker runs a full collection. It would look at every object of every module again, which
takes 25 to 60 ms of CPU and never finds anything; a micro-batch into a Python sink is at least
three calls. So what is alive behind a call is frozen, if modules have been added since the last.

**A socket that Spark has closed is not reported.** Spark closes the socket of a worker whose rows
nobody needs any more, as after `show(3)`, `limit` and `take`, and of one that had no work for a
minute. The worker notices when it writes, and the daemon then prints the traceback of a
BrokenPipeError, although the query has succeeded (PySpark 4.1 and later). Errors of a data source
never come to the daemon: PySpark sends them to Spark, which raises them in the driver. So the
daemon prints only what happened to the socket itself, and bugs of PySpark.

Not here: workers that have no daemon (`spark.python.use.daemon=false`); each of them is one call.

Invariant: only what the daemon itself calls changes. Garbage of a call is collected behind it.
"""

import gc
import sys
import traceback
from collections.abc import Callable
from functools import cache
from types import ModuleType


def adapt_daemon(main: ModuleType) -> None:
    """Have a worker of PySpark's daemon freeze modules, and print nothing of closed sockets.

    `main` is the module that this process runs; if it is not the daemon, nothing changes.
    """
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        _replace(main, gc, collect=_collect)
        _replace(main, traceback, print_exc=_print_unless_closed)


def _replace(main: ModuleType, module: ModuleType, **functions: Callable[[], object]) -> None:
    # A copy, so that the module stays as it is for everybody else in the process.
    changed = ModuleType(module.__name__)
    changed.__dict__.update(vars(module), **functions)
    vars(main)[module.__name__] = changed


def _collect() -> int:
    """`gc.collect()`, as the daemon calls it behind each call."""
    found = gc.collect()
    _freeze(len(sys.modules))
    return found


@cache
def _freeze(_module_count: int) -> None:
    gc.freeze()


def _print_unless_closed() -> None:
    """`traceback.print_exc()`, as the daemon calls it."""
    if not isinstance(sys.exception(), ConnectionError):
        traceback.print_exc()
