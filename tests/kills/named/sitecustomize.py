"""Puts the command of a Python process before each line that it prints on stderr.

Python imports this module at its start, because a driver has its folder in PYTHONPATH. All the
processes of a driver share its stderr; a worker that was forked has the command of its daemon.
"""

import sys

_write = sys.stderr.write


def _write_named(text: str) -> int:
    name = " ".join(sys.orig_argv[-2:])
    lines = text.splitlines(keepends=True)
    return _write("".join(f"[{name}] {line}" if line.strip() else line for line in lines))


sys.stderr.write = _write_named  # type: ignore[method-assign]
