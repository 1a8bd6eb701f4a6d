"""Loads a producer's compiled kernels, once plain code has cost as much as loading them does.

Not here: the measurement of that cost, for the whole process (`tailrace.kernels.kernel`).
"""

import threading
from typing import Final

from tailrace import kernels
from tailrace.kernels.encoding import ENCODING

LOAD_ROWS: Final = 60_000
"""Rows of one `send_many` whose plain code costs about half of what loading the kernels costs."""

_loading = threading.Lock()
"""Taken once, by the first call that finds loading worth while."""


def is_worth_waiting(row_count: int) -> bool:
    """Whether so many rows in one call are worth waiting until the kernels are loaded."""
    return row_count >= LOAD_ROWS and not kernels.is_loaded(*ENCODING)


def load_beside() -> None:
    """Starts a thread that loads the kernels, if that is worth while by now; returns at once."""
    if kernels.worth_loading(*ENCODING) and _loading.acquire(blocking=False):
        threading.Thread(
            target=kernels.load, args=ENCODING, name="tailrace-kernels", daemon=True
        ).start()
