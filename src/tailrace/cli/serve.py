"""`tailrace serve`: a broker on this machine, until a signal stops it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tailrace.cli.arguments import say_if_heard
from tailrace.cli.environment import ENVIRONMENT, format_new, report_variables, take_levels
from tailrace.errors import (
    ConfigError,
    DirectoryError,
    ListenError,
    MissingExtraError,
    StorageError,
    TailraceError,
)

if TYPE_CHECKING:
    from tailrace.broker.process import Node


@click.command()
@click.option(
    "--data", metavar="DIR", help="Log directories (log.dirs), created if missing. Several: A,B."
)
@click.option("--listen", metavar="HOST:PORT", help="Default 127.0.0.1:9092; port 0: a free port.")
@click.option(
    "--advertise", metavar="HOST:PORT", help="Advertised listener: the address clients connect to."
)
@click.option("--node-id", type=int, help="Default 1; must match the node.id in meta.properties.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file; the other options override it.",
)
@click.option(
    "--override", metavar="NAME=VALUE", multiple=True, help="A broker setting; repeatable."
)
@ENVIRONMENT
@click.option(
    "--print-ready", is_flag=True,
    help="Print only one line to stdout, when the node is in service: `ready HOST:PORT "
    "listeners=NAME://HOST:PORT,...`.",
)  # fmt: skip
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="One line for each event, for people or as JSON (tailrace.log.format); default text.",
)
@click.option("--verbose", is_flag=True, help="Log at DEBUG: every connection and login.")
def serve(
    *,
    data: str | None,
    listen: str | None,
    advertise: str | None,
    node_id: int | None,
    config: Path | None,
    override: tuple[str, ...],
    from_environment: bool,
    print_ready: bool,
    log_format: str | None,
    verbose: bool,
) -> None:
    """Run a Kafka broker on DIR until Ctrl-C, SIGTERM or SIGHUP.

    With process.roles=controller in the settings it is the controller of a cluster instead.

    Prints `[KafkaServer id=1] started` when it accepts requests.

    \b
    Exit codes:
      0  stopped in order
      1  the settings, or any other error
      2  wrong usage, or a package is missing
      3  a directory is in use, or cannot be used
      4  an address to listen on is taken, or not of this machine
      5  the controllers are not reached, or refuse the broker
      6  it ran, and could not continue or not stop in order
    """  # noqa: D301 - click needs the character
    # Imported here: `tailrace serve --help` needs nothing of a broker (decision 24).
    from tailrace.runtime.memory import no_collections

    with no_collections():
        import asyncio
        import logging
        import os

        from tailrace.broker.config import LOG_FORMAT, broker_config
        from tailrace.broker.listeners import with_sockets
        from tailrace.broker.process import serve as serve_until_stopped
        from tailrace.config import parse_assignments, read_properties
        from tailrace.config.environment import (
            kafka_variables,
            named_with,
            with_listeners,
            with_stores,
        )
        from tailrace.runtime.log_lines import write_log
        from tailrace.runtime.network import SocketNetwork
        from tailrace.runtime.service_manager import open_service_manager
        from tailrace.runtime.system import system_runtime

    given = (
        read_properties(config.read_text(encoding="utf-8", errors="replace"))
        if config is not None
        else {}
    )
    variables = kafka_variables(os.environ)
    if from_environment:
        variables = with_stores(variables, os.environ)
        given = with_listeners({**given, **variables.settings})
    # Over the file, as --override of kafka-server-start; the flags go over both.
    given |= parse_assignments(override)
    options = {
        "log.dirs": data,
        "listeners": listen,
        "advertised.listeners": advertise,
        "node.id": None if node_id is None else str(node_id),
        LOG_FORMAT: log_format,
    }
    given |= {name: value for name, value in options.items() if value is not None}
    # Before the settings are checked, so that what is wrong with them is JSON too.
    is_json = given.get(LOG_FORMAT, "").strip() == "json"
    write_log(is_json=is_json, level=logging.DEBUG if verbose else logging.INFO)
    if from_environment:
        variables = take_levels(variables, os.environ)
    manager = open_service_manager(os.environ)
    # Host and port of each; an address of IPv6 has more.
    addresses = {name: each.getsockname()[:2] for name, each in manager.sockets.items()}
    network = SocketNetwork({addresses[name]: each for name, each in manager.sockets.items()})
    try:
        settings = broker_config(with_sockets(given, addresses))
    except ConfigError as error:
        sources = variables.sources if from_environment else {}
        named = ConfigError([named_with(sources, each) for each in error.faults])
        if is_json:
            _log_end(named)
        raise named from None

    report_variables(variables, are_taken=from_environment)

    def started(node: "Node") -> None:
        if print_ready:
            return
        directories = settings.directories if settings.is_broker else [settings.metadata_directory]
        # A reader may have gone already, as `grep -m1`, and the node serves others than it.
        say_if_heard(f"listening on {node.addresses}, data in {', '.join(directories)}")
        # Test harnesses made for Apache Kafka wait for this line, word for word.
        say_if_heard(f"[KafkaServer id={settings.node_id}] started")

    def ready(node: "Node") -> None:
        if print_ready:
            say_if_heard(f"ready {node.bootstrap_servers} listeners={node.listeners}")

    try:
        if from_environment:
            format_new(settings)
        asyncio.run(
            serve_until_stopped(
                settings,
                system_runtime(network=network),
                manager=manager,
                started=started,
                ready=ready,
            )
        )
    except TailraceError as error:
        if is_json:
            _log_end(error)
        if (code := _exit_code(error)) is None:
            raise
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(code)
    if not print_ready:
        say_if_heard(f"[KafkaServer id={settings.node_id}] shut down completed")


def _log_end(error: TailraceError) -> NoReturn:
    """End with the exit code of an error, whose faults are events of the log."""
    import logging

    code = _exit_code(error) or (2 if isinstance(error, MissingExtraError) else 1)
    faults = error.faults if isinstance(error, ConfigError) else [str(error)]
    for each in faults:
        logging.getLogger(__name__).critical("node_failed exit_code=%d reason=%s", code, each)
    sys.exit(code)


def _exit_code(error: TailraceError) -> int | None:
    """The exit code of an error that has one of its own; docs/service.md lists them."""
    from tailrace.broker.process import EXIT_NOT_IN_ORDER, NodeFailedError

    # The first of them that fits: a node that failed is a DirectoryError too.
    if isinstance(error, NodeFailedError):
        return EXIT_NOT_IN_ORDER
    if isinstance(error, DirectoryError | StorageError):
        return 3
    if isinstance(error, ListenError):
        return 4
    # Imported here: a broker that is the only node has no use for them.
    from tailrace.broker.kraft.channel import NoControllerError
    from tailrace.broker.kraft.lifecycle import RegistrationError
    from tailrace.broker.kraft.metadata_fetch import OtherClusterError

    refusals = RegistrationError | NoControllerError | OtherClusterError
    return 5 if isinstance(error, refusals) else None
