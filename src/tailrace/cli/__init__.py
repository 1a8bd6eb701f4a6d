"""The `tailrace` command; one module per noun.

Errors that Tailrace raises on purpose are one line on stderr and exit code 1, never a traceback.
"""

import sys

import click

from tailrace import __version__
from tailrace.cli.demo import demo
from tailrace.cli.log import log
from tailrace.cli.serve import serve
from tailrace.errors import ConfigError, TailraceError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def commands() -> None:
    """Kafka's log in Python: a broker, its files, and topics as Spark DataFrames."""


commands.add_command(serve)
commands.add_command(demo)
commands.add_command(log)


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        commands(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"tailrace: {fault}", err=True)
        sys.exit(1)
    except TailraceError as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(1)
