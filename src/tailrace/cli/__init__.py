"""The `tailrace` command; one module per noun, imported when it is called for.

Errors that Tailrace raises on purpose are one line on stderr and exit code 1, never a traceback; a
command that is used wrongly, or lacks a package, has exit code 2.
"""

import errno
import importlib
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

import click

from tailrace import __version__
from tailrace.errors import ConfigError, MissingExtraError, TailraceError

# Help lines are here and not with the commands, since `tailrace --help` would have to import all of
# them for it (decision 24).
SUBCOMMANDS = {
    "acl": "Add, list and remove access control lists of a Kafka cluster.",
    "broker": "Show and change settings of brokers, and their log directories.",
    "check": "Look at this machine, and say what to change for a node.",
    "cluster": "Show, start or move a cluster; read a metadata log's files.",
    "config": "Check files of settings without starting a broker.",
    "consume": "Print records of a topic of any Kafka cluster.",
    "demo": "Send a year of flights through a broker into Spark.",
    "features": "Show, upgrade and downgrade feature levels of a Kafka cluster.",
    "group": "List, describe, reset and delete consumer groups.",
    "handover": "Check a move of data between Tailrace and Apache Kafka.",
    "log": "Read, verify and repair log directories without a broker.",
    "pipeline": "Run Spark jobs over whole topics, such as archive and audit.",
    "produce": "Send lines as records to any Kafka cluster.",
    "quota": "Set, list and remove quotas of users, client ids and addresses.",
    "serve": "Run a Kafka broker on DIR until Ctrl-C, SIGTERM or SIGHUP.",
    "service": "Print units with which systemd runs a node.",
    "storage": "Format log directories, and show the ids in them.",
    "top": "Watch rates, lag, partitions and brokers of a Kafka cluster.",
    "topic": "Create, list, describe, alter and delete topics of a cluster.",
    "transaction": "List and describe transactions, and abort hanging ones.",
    "user": "Create, list, alter and remove users that log in by SCRAM.",
}
"""Help lines by command. Each command is a function in the module of this package of its name."""

_WRITES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writes: a device, a share of it, or a file is full."""

_STDERR: Final = 2


class _Nouns(click.Group):
    """Imports no command but the one that is called: a broker has no use for the tools' code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        # Click itself says then that there is no such command.
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"tailrace.cli.{cmd_name}"), cmd_name
        )
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def commands() -> None:
    """Kafka's log in Python: a broker, its files, and topics as Spark DataFrames."""
    # For commands that say how long they took: with the imports of what they need.
    click.get_current_context().meta["began"] = time.monotonic()


def main() -> None:
    """Run the command line; the entry point of the package.

    SIGTERM and SIGHUP are for each command what Ctrl-C is, so that it stops what it has started,
    leaves its group, and says what was not done.
    """
    # Imported here: `tailrace --help` needs no other room (decision 24).
    from tailrace.runtime.interrupts import stop_signals
    from tailrace.runtime.memory import claim_process

    claim_process()
    _replace_closed_streams()
    ended_by = signal.SIGINT

    def end(number: int, _: FrameType | None) -> None:
        nonlocal ended_by
        ended_by = signal.Signals(number)
        # When a terminal goes, the kernel and the shell send it both; a second Ctrl-C would not
        # wait for the command's end.
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
        # A shell ignores SIGINT for what it runs in the background.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        # Not an exception here: a command may have a handler that waits for a step to be whole.
        signal.raise_signal(signal.SIGINT)

    for each in stop_signals():
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, end)
    try:
        # In its standalone mode Click ends the process itself, with code 1 after Ctrl-C.
        commands(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        # The terminal may be what has gone.
        with suppress(OSError):
            click.echo("stopped", err=True)
        # As shells report a process that the signal ended.
        sys.exit(128 + ended_by)
    # Before TailraceError, of which it is one: each fault gets a line of its own.
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"tailrace: {fault}", err=True)
        sys.exit(1)
    except MissingExtraError as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(2)
    except TailraceError as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(1)
    # After the errors above, some of which are OSErrors too: a path of the command line that the
    # system refuses, where no code knows more about it.
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if error.errno in _WRITES:
            _end_unwritten(reason)
        if error.filename is None:
            raise
        click.echo(
            f"tailrace: {error.filename}: {reason}; check the path and who may use it", err=True
        )
        sys.exit(1)


def _replace_closed_streams() -> None:
    """Take a stdin or stderr that the caller has closed, as by `<&-` or `2>&-`, for /dev/null."""
    # Otherwise a socket would get the number, and what a child process prints. Stdout has no other
    # stream: Click prints nothing then, and what prints records refuses.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _end_unwritten(reason: str) -> NoReturn:
    """End after a write that a device has refused, most likely of the output."""
    from tailrace.cli.arguments import drop_output

    click.echo(
        f"tailrace: {reason}: the output is not whole; make room where it goes, and repeat the "
        "command",
        err=True,
    )
    # What stdout has buffered has no place to go.
    drop_output()
    sys.exit(1)
