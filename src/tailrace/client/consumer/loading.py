"""Loads the kernels that decode records, once a consumer has decoded enough in plain Python.

Not here: the kernels themselves, and how they are compiled and kept (`tailrace.kernels`).
"""

import threading
from typing import Final

from tailrace import kernels
from tailrace.kernels.loading import load_beside as load_kernels_beside

LOAD_ROWS: Final = 20_000
"""Records after which plain code has cost about what opening the compiled kernels costs."""

_loading = threading.Lock()
"""Taken once, by the first call that finds loading worth while."""
_decoded = [0]


def note_decoded(rows: int) -> None:
    """Count records that a consumer of this process has decoded."""
    _decoded[0] += rows


def load_beside() -> None:
    """Start a thread that loads the kernels, if that is worth while by now; returns at once."""
    if (
        _decoded[0] >= LOAD_ROWS
        and not kernels.is_loaded(*kernels.CONSUMING)
        and _loading.acquire(blocking=False)
    ):
        threading.Thread(
            target=load_kernels_beside,
            args=kernels.CONSUMING,
            name="tailrace-kernels",
            daemon=True,
        ).start()
