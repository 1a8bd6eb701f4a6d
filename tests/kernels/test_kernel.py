"""How kernels are registered, compiled and switched over."""

import subprocess
import sys
import threading
from typing import Any

import numba
import numpy as np
from numba.core import event

from tailrace import kernels
from tailrace.kernels.compiling import compile_function
from tailrace.kernels.kernel import WORTH_LOADING_RECORDS, Kernel

FRESH = "import sys; from tailrace import kernels; import tailrace.records.checks; "


def fresh(code: str) -> str:
    """What the code prints in a process that has nothing imported."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH + code], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_importing_stays_light() -> None:
    """Neither importing the kernels nor running them in plain Python imports numpy or numba."""
    code = """
kernels.walk_records(b'', 0, 0, 0, kernels.int64s(7))
print([name for name in ('numpy', 'numba') if name in sys.modules])
"""
    assert fresh(code) == "[]"


def test_loading_is_worth_it_after_enough_plain_records() -> None:
    """The account counts records that bytes can hold, not those that a count claims."""
    code = f"""
data = bytes(7 * 1000)
claim = 2**31 - 1
totals = kernels.int64s(7)
print(kernels.worth_loading(), end=' ')
for _ in range({WORTH_LOADING_RECORDS} // 1000 - 1):
    kernels.walk_records(data, 0, 7000, claim, totals)
print(kernels.plain_records(), kernels.worth_loading(), end=' ')
kernels.walk_records(data, 0, 7000, claim, totals)
print(kernels.worth_loading())
"""
    assert fresh(code) == f"False {WORTH_LOADING_RECORDS - 1000} False True"


def test_loading_twice_at_once_is_loading_once() -> None:
    """Threads that load together all return with every kernel compiled."""
    threads = [threading.Thread(target=kernels.load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kernels.is_loaded()
    assert not kernels.worth_loading()


NOWHERE = """
def double(data, count):
    return 2 * count + len(data)
"""


class Levels(event.Listener):  # type: ignore[misc]
    """Notes Numba's optimisation level whenever it compiles."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def on_start(self, event: object) -> None:  # noqa: ARG002
        self.seen.add(int(numba.config.OPT))

    def on_end(self, event: object) -> None:
        """Nothing to note."""


def test_kernels_are_compiled_at_level_1() -> None:
    """The level holds during the compilation and is put back for Numba's other users.

    The function has no source file, so that there is no cache.
    """
    before = numba.config.OPT
    listener = Levels()
    scope: dict[str, Any] = {}
    exec(NOWHERE, scope)
    target = Kernel(scope["double"], ("bytes", "int64"))
    with event.install_listener("numba:compile", listener):
        target.switch_to(compile_function(target.plain, target.parameters, None), np)
    assert target(b"abc", 4) == target.run_plain(b"abc", 4) == 11
    assert listener.seen == {1}
    assert numba.config.OPT is before


def test_only_the_kernels_that_are_named_are_compiled() -> None:
    """Others go on in plain Python, and are loaded by a later call."""
    code = """
kernels.load(kernels.find_timestamp)
both = kernels.find_timestamp, kernels.walk_records
print([each.is_compiled for each in both], kernels.is_loaded(both[0]), kernels.is_loaded(*both))
"""
    assert fresh(code) == "[True, False] True False"


def test_a_helper_is_compiled_once() -> None:
    """Kernels share the code of their helpers, whatever integers their calls have in them."""
    code = """
from numba.core import event
class Names(event.Listener):
    def on_start(self, event):
        names.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass
names = []
import os, tempfile
with tempfile.TemporaryDirectory() as place, event.install_listener("numba:compile", Names()):
    os.environ["NUMBA_CACHE_DIR"] = place
    kernels.load(kernels.find_timestamp, kernels.list_refused)
print(len(names) - len(set(names)), "read_record" in names)
"""
    assert fresh(code) == "0 True"


def test_every_kernel_has_one_compiled_signature() -> None:
    """Numba's cache races between processes where a function has several (numba issue 4807)."""
    for kernel in (
        kernels.walk_records,
        kernels.decode_records,
        kernels.decode_headers,
        kernels.find_timestamp,
        kernels.list_refused,
    ):
        assert kernel.is_compiled
        assert len(kernel.compiled.signatures) == 1
