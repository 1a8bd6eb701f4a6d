"""Decides whether loading kernels pays, and loads them beside a running event loop.

Beside an event loop another process compiles: that takes seconds in which the interpreter lock is
held for hundreds of milliseconds at a time. The process leaves its machine code in the cache, and
what is left to do here takes a tenth of a second. (A machine where no cache can be written
compiles here after all.)
"""

import contextlib
import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tailrace.kernels.kernel import Kernel, is_loaded, load, registered

CACHED_KERNEL_RECORDS = 50_000
"""Records per core from which compiled kernels pay: plain Python decodes a hundred thousand in a
second, and opening LLVM and the kernels takes a tenth of one."""

UNCACHED_KERNEL_RECORDS = 200_000
"""The same where they have to be compiled first, which takes two seconds."""

COMPILE_S_MAX = 120
"""Longest time that the other process may take: twenty times what it takes on a laptop."""

_GIVE_WAY = "import os; os.nice(10)"
_IMPORT_LOAD = "from tailrace.kernels.kernel import load"


def load_beside(*wanted: Kernel) -> None:
    """Load kernels as `kernels.load` does, but compile missing ones in another process.

    So other threads of this process can work meanwhile.

    Raises:
        ImportError: numba is not installed.
    """
    if is_loaded(*wanted):
        return
    _open_llvm()
    if not is_cached(*wanted):
        _compile_elsewhere(registered(*wanted))
    load(*wanted)


def is_cached(*wanted: Kernel) -> bool:
    """Whether these kernels (or all that are imported) need not be compiled any more.

    It does not import Numba, and takes 0.1 seconds the first time.

    Raises:
        ImportError: numba is not installed.
    """
    from tailrace.kernels.caching import has_code_of

    return has_code_of(each.plain.__name__ for each in registered(*wanted))


def records_worth_kernels(*wanted: Kernel) -> int:
    """Return the record count from which it is faster to load these kernels before decoding.

    Raises:
        ImportError: numba is not installed.
    """
    return CACHED_KERNEL_RECORDS if is_cached(*wanted) else UNCACHED_KERNEL_RECORDS


def _open_llvm() -> None:
    """Opens the 100 MB of LLVM ahead of `import`, which would hold the interpreter lock meanwhile.

    That takes 15 to 60 ms. A function that is called through ctypes does not hold the lock.
    """
    package = find_spec("llvmlite")
    if package is None or package.origin is None or "llvmlite" in sys.modules:
        return
    with contextlib.suppress(AttributeError):  # Not every system has `dlopen` among its symbols.
        dlopen = ctypes.CDLL(None).dlopen
        dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        for path in Path(package.origin).parent.glob("binding/libllvmlite.*"):
            dlopen(os.fsencode(path), os.RTLD_NOW)


def _compile_elsewhere(wanted: list[Kernel]) -> None:
    names = [(each.plain.__module__, each.plain.__name__) for each in wanted]
    imports = "".join(f"from {module} import {name}; " for module, name in names)
    loads = f"load({', '.join(name for _, name in names)})"
    # If it cannot be started, fails or takes too long, then `load` compiles what is missing.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(  # noqa: S603 - this interpreter, and the names of our own modules
            # -P: no module is imported from the working directory, which others may write to.
            [sys.executable, "-P", "-c", f"{_GIVE_WAY}; {imports}{_IMPORT_LOAD}; {loads}"],
            check=False,
            timeout=COMPILE_S_MAX,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
