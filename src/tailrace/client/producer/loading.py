"""Loads the compiled kernels once running pure Python has cost as much time as loading them.

Not here: the measurement of that cost, for the whole process (`tailrace.kernels.kernel`).
"""

import threading
from typing import Final

from tailrace import kernels

LOAD_ROWS: Final = 60_000
"""Rows of one `send_many` that take pure Python about half as long as loading the kernels."""

_loading = threading.Lock()
"""Acquired once, by the first caller that starts the loading."""


def is_worth_waiting(row_count: int) -> bool:
    """Return whether a call with so many rows should wait until the kernels are loaded."""
    return row_count >= LOAD_ROWS and not kernels.is_loaded()


def load_beside() -> None:
    """Start a thread that loads the kernels, if that pays off by now; returns at once."""
    if kernels.worth_loading() and _loading.acquire(blocking=False):
        threading.Thread(target=kernels.load, name="tailrace-kernels", daemon=True).start()
