"""First use is quick: a tool imports what it needs, and nothing else."""

import subprocess
import sys


def test_a_tool_for_files_imports_no_network_and_no_repair() -> None:
    """Asyncio, SSL and what repairs logs would take half of the time in which a tool starts."""
    names = subprocess.run(
        [sys.executable, "-c", "import sys, tailrace.cli.log; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    ).stdout.split()
    assert "tailrace.offline.verify" in names
    assert not {"asyncio", "ssl", "tailrace.offline.repair", "tailrace.offline.explain"} & set(
        names
    )
