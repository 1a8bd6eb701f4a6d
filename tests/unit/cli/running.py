"""Runs `tailrace` as it is typed, in this process."""

import json
from typing import Any

from click.testing import CliRunner, Result

from tailrace.cli import commands


def run(*arguments: object, given: bytes | None = None) -> Result:
    """A command's outcome; `given` is its standard input, which is no terminal."""
    return CliRunner().invoke(commands, [*map(str, arguments)], input=given)


def lines(*arguments: object, given: bytes | None = None) -> list[str]:
    """Lines of standard output of a command that succeeds."""
    result = run(*arguments, given=given)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout.splitlines()


def objects(*arguments: object) -> list[dict[str, Any]]:
    """The JSON objects that a command prints, also with another exit code than 0."""
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def said(*arguments: object, given: bytes | None = None) -> str:
    """The sentence of a command that fails: of its exception, or of its usage error."""
    result = run(*arguments, given=given)
    assert result.exit_code != 0, result.output
    if isinstance(result.exception, SystemExit):
        return result.stderr.splitlines()[-1]
    return str(result.exception)
