"""The modules that a client loads, in an interpreter of its own."""

import subprocess
import sys

import pytest

IMPORT = """
import sys

before = set(sys.modules)
import tailrace

getattr(tailrace, sys.argv[1])(bootstrap_servers="127.0.0.1:1").close(*map(float, sys.argv[2:]))
print(*set(sys.modules) - before)
"""

HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "email", "hashlib", "importlib.metadata",
    "ipaddress", "json", "numbers", "pathlib", "ssl", "subprocess", "tempfile", "urllib.parse",
    "cramjam", "numpy", "pyarrow",
}  # fmt: skip
"""Each takes as long to import as thousands of records to send or read, asyncio with all that it
imports as a hundred thousand."""


@pytest.mark.parametrize("arguments", [("Producer", "0"), ("Consumer", "0"), ("Admin",)])
def test_a_client_loads_nothing_that_most_programs_do_without(arguments: tuple[str, ...]) -> None:
    """A client for threads, without TLS and login, imports none of the heavy modules."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *arguments], check=True, capture_output=True, text=True
    )
    loaded = set(done.stdout.split())
    assert "tailrace.client.nodes.pool" in loaded
    assert not HEAVY & loaded


def test_an_address_in_ascii_is_looked_up_without_the_tables_of_other_names() -> None:
    """Python's tables of international names take as long to import as thousands of records."""
    script = """
import sys
from tailrace.runtime.polling import PollingNetwork

cancel = PollingNetwork.open().connect("127.0.0.1", 1, print)
cancel()
print("encodings.idna" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout == "False\n"
