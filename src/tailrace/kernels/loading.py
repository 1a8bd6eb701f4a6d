"""Loads the kernels beside a running event loop: what takes long is done by another process.

Compiling takes seconds in which the interpreter lock is held for hundreds of milliseconds at a
time. The other process leaves its machine code in Numba's cache, and what is left to do here takes
half a second of short steps. (A machine where no cache can be written compiles here after all.)
"""

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
    # Should it fail, what it has not done is done here.
    subprocess.run(  # noqa: S603 - this interpreter, and the names of our own modules
        [sys.executable, "-c", script],
        check=False,
        timeout=COMPILE_S_MAX,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    load()
