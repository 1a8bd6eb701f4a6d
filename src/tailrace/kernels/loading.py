"""Loads the kernels beside a running event loop: what takes long is done by another process.

Compiling takes seconds in which the interpreter lock is held for hundreds of milliseconds at a
time. The other process leaves its machine code in Numba's cache, and what is left to do here takes
half a second of short steps. (A machine where no cache can be written compiles here after all.)
"""

import contextlib
import subprocess
import sys

from tailrace.kernels.kernel import is_loaded, load, registered_modules

COMPILE_S_MAX = 120
"""How long the other process may take: twenty times what it does on a laptop."""


def load_beside() -> None:
    """As `kernels.load`, for a thread of a process that has other things to do.

    Raises:
        ImportError: numba or numpy is not installed.
    """
    if is_loaded():
        return
    names = sorted(registered_modules())
    script = f"import {', '.join(names)}; from tailrace.kernels.kernel import load; load()"
    # If it cannot be started, fails or takes too long, then `load` compiles what is missing.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(  # noqa: S603 - this interpreter, and the names of our own modules
            # -P: no module is imported from the working directory, whoever can write there.
            [sys.executable, "-P", "-c", script],
            check=False,
            timeout=COMPILE_S_MAX,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    load()
