"""Faults that `make fuzz SANITIZE=1` has to find, planted in a module that is built likewise."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.sanitized import ROOT, build, environment

SOURCE = '''
"""Three faults."""

import cython
from cython.cimports.libc.stdlib import malloc


def start(data):
    return cython.address(data[0])


def overread(data):
    return start(data)[len(data) + 1]


def shift(count):
    return one << count


def leak():
    return malloc(1000) != cython.NULL


one = 1
'''
TYPES = """
cdef int one
cdef const unsigned char *start(const unsigned char[::1] data)
cpdef int overread(const unsigned char[::1] data)
cpdef int shift(int count)
cpdef bint leak()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module `planted.faults`, built as those of the package are."""
    root = tmp_path_factory.mktemp("planted")
    package = root / "src" / "planted"
    package.mkdir(parents=True)
    setup = (ROOT / "setup.py").read_text()
    (root / "setup.py").write_text(setup.replace('"tailrace.', '"planted.'))
    (package / "__init__.py").touch()
    (package / "faults.py").write_text(SOURCE)
    (package / "faults.pxd").write_text(TYPES)
    build(root, root / "built")
    return root / "built"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "report"),
    [
        ("overread(bytes(100))", "AddressSanitizer: heap-buffer-overflow"),
        ("shift(100)", "runtime error: shift exponent 100 is too large"),
        ("leak()", "LeakSanitizer: detected memory leaks"),
    ],
)
def test_a_planted_fault_is_reported(built: Path, call: str, report: str) -> None:
    """The process ends with an error that names the fault and the function."""
    # As a target of the fuzzer, which pytest imports together with its conftest.
    program = f"import tests.fuzz.conftest, planted.faults as faults; faults.{call}"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(built),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert report in ended.stderr
    assert call.partition("(")[0] in ended.stderr.partition(report)[2]
