"""The modules that a consumer loads."""

import subprocess
import sys

IMPORT = """
import sys
from tailrace import Consumer

Consumer(bootstrap_servers="127.0.0.1:1").close(0)
heavy = {"asyncio", "ssl", "importlib.metadata", "email", "tempfile", "numpy", "pyarrow", "cramjam"}
print(heavy & set(sys.modules) or "light")
"""


def test_a_consumer_loads_nothing_that_most_programs_do_without() -> None:
    """Each of these takes as long to import as tens of thousands of records to read."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True
    )
    assert done.stdout == "light\n"
