"""Changes two calls of PySpark's daemon in a Python worker, which is a fork of it.

**Old objects are looked at by the garbage collector less often.** Behind each call, of a task or of
the driver, a worker runs a full collection. It would look at every object of every module again,
which takes 25 to 90 ms of CPU and finds nothing; a micro-batch into a Python sink is three calls or
more. So collections look at the objects of the call, and at all objects when the process has grown
or some calls have passed; behind every call, if the last time something was found. Nothing is
frozen (`gc.freeze`): that would keep what a function of the user replaces for good, because nobody
can freeze only modules.

**A socket that Spark has closed is not reported.** Spark closes the socket of a worker whose rows
nobody needs any more, as after `show(3)`, `limit` and `take`, and of one that had no work for a
minute. The worker notices when it writes, and the daemon then prints the traceback of a
BrokenPipeError, although the query has succeeded (PySpark 4.1 and later). Errors of a data source
never come to the daemon: PySpark sends them to Spark, which raises them in the driver. So the
daemon prints only what happened to the socket itself, and bugs of PySpark.

Not here: workers that have no daemon (`spark.python.use.daemon=false`); each of them is one call.

Invariants: only what the daemon itself calls changes. Garbage of the user's functions is found
after `CALLS_MAX` calls, or when the process has grown by `GROWTH_BYTES_MAX`.
"""

import gc
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Final

from tailrace.runtime.memory import resident_bytes

GROWTH_BYTES_MAX: Final = 16 * 1024 * 1024
CALLS_MAX: Final = 20
"""Calls until the next full collection: it then costs each of them less than 5 ms."""

_YOUNG: Final = 1
"""`gc.collect(1)` spares objects that have survived two collections."""


def adapt_daemon(main: ModuleType) -> None:
    """Have a worker of PySpark's daemon collect less, and print nothing of closed sockets.

    `main` is the module that this process runs; if it is not the daemon, nothing changes.
    """
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        _replace(main, gc, collect=_Collector().collect)
        _replace(main, traceback, print_exc=_print_unless_closed)


def _replace(main: ModuleType, module: ModuleType, **functions: Callable[[], object]) -> None:
    # A copy, so that the module stays as it is for everybody else in the process.
    changed = ModuleType(module.__name__)
    changed.__dict__.update(vars(module), **functions)
    vars(main)[module.__name__] = changed


class _Collector:
    __slots__ = ("_calls", "_interval", "_resident_bytes")

    def __init__(self) -> None:
        self._calls = 0  # Since the last full collection.
        self._interval = 1
        self._resident_bytes = 0  # Behind the last full collection.

    def collect(self) -> int:
        """`gc.collect()`, as the daemon calls it behind each call."""
        found = gc.collect(_YOUNG)
        self._calls += 1
        growth_bytes = resident_bytes() - self._resident_bytes
        if self._calls >= self._interval or growth_bytes >= GROWTH_BYTES_MAX:
            found_old = gc.collect()
            # What a call leaves once, it mostly leaves again.
            self._interval = 1 if found_old else min(2 * self._interval, CALLS_MAX)
            self._calls = 0
            self._resident_bytes = resident_bytes()
            found += found_old
        return found


def _print_unless_closed() -> None:
    """`traceback.print_exc()`, as the daemon calls it."""
    if not isinstance(sys.exception(), ConnectionError):
        traceback.print_exc()
