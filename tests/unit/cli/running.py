"""Runs `tailrace` as it is typed, in this process, and holds its JSON against the documentation."""

import json
import re
import subprocess
import sys
from functools import cache
from typing import Any

from click.testing import CliRunner, Result

from tailrace.cli import commands
from tests.references import DOCS


def run(*arguments: object, given: bytes | None = None) -> Result:
    """A command's outcome; `given` is its standard input, which is no terminal."""
    return CliRunner().invoke(commands, [*map(str, arguments)], input=given)


def lines(*arguments: object, given: bytes | None = None) -> list[str]:
    """Lines of standard output of a command that succeeds."""
    result = run(*arguments, given=given)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout.splitlines()


def closed_run(
    stream: str, *arguments: object, given: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """The outcome of a process that begins with a stream closed, as `>&-` closes it in a shell."""
    words = ["sh", "-c", f'"$@" {stream}', "sh", sys.executable, "-m", "tailrace"]
    return subprocess.run(
        [*words, *map(str, arguments)], input=given, check=False, capture_output=True, text=True
    )


def objects(*arguments: object) -> list[dict[str, Any]]:
    """The JSON objects that a command prints, also with another exit code than 0.

    They have exactly the fields that docs/cluster-commands.md lists.
    """
    found = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    command = " ".join(map(str, arguments[:2]))
    for each in found:
        fields = each.keys() - {"format", "type"}
        assert fields == documented()[each["format"], each["type"], command], each
    return found


@cache
def documented() -> dict[tuple[str, str, str], set[str]]:
    """The fields of each object by format, type and command."""
    rows = re.findall(
        r"^\| `(tailrace\.\w+/\d+)` \| `([\w-]+)` \| `([\w -]+)` \| (.*) \|$",
        (DOCS / "cluster-commands.md").read_text(),
        re.MULTILINE,
    )
    return {tuple(row[:3]): set(re.findall(r"`(\w+)`", row[3])) for row in rows}


def said(*arguments: object, given: bytes | None = None) -> str:
    """The sentence of a command that fails: of its exception, or of its usage error."""
    result = run(*arguments, given=given)
    assert result.exit_code != 0, result.output
    if isinstance(result.exception, SystemExit):
        return result.stderr.splitlines()[-1]
    return str(result.exception)
