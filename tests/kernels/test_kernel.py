"""Tests of registering, compiling and loading kernels."""

import subprocess
import sys
import threading
from typing import Any

import numba
import pytest
from numba.core import event

from tailrace import kernels
from tailrace.kernels.compiling import compile_function
from tailrace.kernels.kernel import WORTH_LOADING_RECORDS, Kernel
from tailrace.kernels.machine import open_object

FRESH = "import sys; from tailrace import kernels; import tailrace.records.checks; "


def fresh(code: str) -> str:
    """Return the output of the code in a process that has nothing imported."""
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
        """Do nothing: the start of an event has told its level."""


def test_kernels_are_compiled_at_level_1() -> None:
    """The level holds during the compilation and is put back for Numba's other users."""
    before = numba.config.OPT
    listener = Levels()
    scope: dict[str, Any] = {}
    exec(NOWHERE, scope)
    target = Kernel(scope["double"], ("bytes", "int64"))
    with event.install_listener("numba:compile", listener):
        code = compile_function(target.plain, target.parameters)
    target.switch_to(open_object(code, name="double"))
    assert target(b"abc", 4) == target.run_plain(b"abc", 4) == 11
    assert listener.seen == {1}
    assert numba.config.OPT is before


def test_machine_code_outlives_its_module() -> None:
    """A builtin keeps its name, and computes, after the modules that made it were cleared.

    An interpreter clears modules at its end, and then searches for garbage among the builtins.
    """
    code = """
import gc
from tailrace.kernels import machine
kernels.load(kernels.walk_records)
run = kernels.walk_records.run
totals = kernels.int64s(7)
for name in [name for name in vars(machine) if not name.startswith('__')]:
    del vars(machine)[name]
gc.collect()
# They take what was freed.
filled = [bytearray(b'\\xff' * size) for size in range(200) for _ in range(200)]
gc.collect()
print(run.__name__, run(b'', 0, 0, 0, totals))
"""
    assert fresh(code) == "walk_records 0"


def test_an_object_file_without_the_function_is_refused() -> None:
    """It is no builtin that jumps to address 0."""
    scope: dict[str, Any] = {}
    exec(NOWHERE, scope)
    code = compile_function(scope["double"], ("bytes", "int64"))
    with pytest.raises(LookupError, match="no function tailrace_triple"):
        open_object(code, name="triple")


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


def test_cached_kernels_are_loaded_without_numba() -> None:
    """A process that compiles nothing imports neither numpy nor Numba."""
    kernels.load(kernels.find_timestamp)
    code = """
kernels.load(kernels.find_timestamp)
print([name for name in ('numpy', 'numba') if name in sys.modules])
"""
    assert fresh(code) == "[]"


WALK = (b"", 0, 0, 0, kernels.int64s(7))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (WALK[:-1], TypeError),
        ((*WALK, 0), TypeError),
        ((None, *WALK[1:]), TypeError),
        ((b"", "0", *WALK[2:]), TypeError),
        ((b"", 1 << 63, *WALK[2:]), OverflowError),
        ((*WALK[:-1], bytes(56)), BufferError),
        ((*WALK[:-1], memoryview(bytearray(112))[::2]), BufferError),
        ((*WALK[:-1], memoryview(bytearray(57))[1:]), TypeError),
    ],
    ids=[
        "too few", "too many", "no buffer", "no int", "beyond int64", "read-only", "gaps",
        "not aligned",
    ],
)  # fmt: skip
def test_machine_code_refuses_what_it_cannot_take(
    arguments: tuple[object, ...], error: type[Exception]
) -> None:
    """A wrong argument is an exception, and the buffers that were taken before are given back."""
    buffer = bytearray(8)
    with pytest.raises(error):
        kernels.walk_records(*arguments)
    if len(arguments) == len(WALK) and arguments[0] == b"":
        with pytest.raises(error):
            kernels.walk_records(buffer, *arguments[1:])
        buffer.append(0)


def test_minus_one_is_an_argument_like_others() -> None:
    """Python's C interface uses it for errors too."""
    assert (
        kernels.walk_records(b"", 0, 0, -1, kernels.int64s(7)) == -kernels.RecordFault.RECORD_COUNT
    )
