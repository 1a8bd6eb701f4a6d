"""The leak check of `make fuzz SANITIZE=1`, which `tests/fuzz/sanitized.py` starts."""

import atexit
import ctypes
import os

program = ctypes.CDLL(None)
if hasattr(program, "__lsan_do_leak_check"):
    # Before Python takes its modules apart: it does not free all that was only reached from them.
    atexit.register(program.__lsan_do_leak_check)
    # Programs that a target starts do so.
    os.environ["ASAN_OPTIONS"] += ":detect_leaks=0"
