"""When a producer has the compiled kernels loaded: when plain code has cost as much as they do.

Not here: the account of that, which all kernels of a process share (`tailrace.kernels.kernel`).
"""

import threading
from typing import Final

from tailrace import kernels

LOAD_ROWS: Final = 60_000
"""Rows of one `send_many` in plain code that cost about half of what loading the kernels does."""

_loading = threading.Lock()
"""Taken once, by the first who finds that loading is worth while."""


def is_worth_waiting(row_count: int) -> bool:
    """Whether so many rows in one call are worth waiting until the kernels are loaded."""
    return row_count >= LOAD_ROWS and not kernels.is_loaded()


def load_beside() -> None:
    """Have the kernels loaded by a thread, if that is worth while by now; returns at once."""
    if kernels.worth_loading() and _loading.acquire(blocking=False):
        threading.Thread(target=kernels.load, name="tailrace-kernels", daemon=True).start()
