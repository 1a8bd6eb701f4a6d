"""Kernels are loaded whatever becomes of the process that compiles them."""

import subprocess
import sys
from pathlib import Path

import pytest

LOAD = """
import sys
import tailrace.kernels.records
from tailrace.kernels import loading
from tailrace.kernels.kernel import is_loaded
{before}
loading.load_beside()
assert is_loaded()
"""


def load_in(directory: Path, before: str = "") -> None:
    """Load the kernels in a new process that works in a directory."""
    subprocess.run(
        [sys.executable, "-P", "-c", LOAD.format(before=before)],
        cwd=directory,
        check=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "before",
    [
        "sys.executable = '/nowhere/python'",
        "loading.COMPILE_S_MAX = 0.001",
    ],
    ids=["it cannot be started", "it takes too long"],
)
def test_kernels_are_loaded_without_the_other_process(before: str, tmp_path: Path) -> None:
    """If the other process does not load the kernels, the process that asked loads them itself."""
    load_in(tmp_path, before)


def test_a_module_in_the_working_directory_is_not_executed(tmp_path: Path) -> None:
    """A file numba.py may lie where a broker is started, and belong to somebody else."""
    (tmp_path / "numba.py").write_text("open('executed', 'w')")
    load_in(tmp_path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the mapped files of a process")
def test_llvm_is_opened_before_it_is_imported(tmp_path: Path) -> None:
    """The import would hold the interpreter lock for as long as a large library takes to open."""
    is_open_before_import = """
opened = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "llvmlite.binding":
            opened.append("libllvmlite" in open("/proc/self/maps").read())

sys.meta_path.insert(0, Finder())
import atexit
@atexit.register
def check():
    import os
    if opened != [True]:
        os._exit(3)
"""
    load_in(tmp_path, is_open_before_import)


REFUSED = """
import sysconfig
from tailrace import kernels
from tailrace.kernels import machine
from tailrace.kernels.encoding import append_record, encode_headers
from tailrace.kernels.rows import put_records
{before}
kernels.load(append_record, encode_headers, put_records)
print(append_record.is_compiled, encode_headers.is_compiled, put_records.is_compiled)
"""


@pytest.mark.parametrize(
    ("before", "compiled"),
    [
        ("", "True True True"),
        ("sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED'", "False True False"),
        # The field before the items of a list is its type.
        ("machine._LIST_ITEMS_POSITION = 8", "True True False"),
        ("machine._TUPLE_ITEMS_POSITION = 32", "True True False"),
    ],
    ids=["as it is", "no lock", "another layout of lists", "tuples of Python 3.14"],
)
def test_kernels_that_an_interpreter_cannot_run_stay_plain(before: str, compiled: str) -> None:
    """Without an interpreter lock, or with lists made otherwise, plain code goes on serving."""
    code = REFUSED.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == compiled
