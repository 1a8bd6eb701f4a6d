"""`tailrace serve`: a broker on this machine, until a signal stops it."""

from pathlib import Path

import click

from tailrace.cli.arguments import say_if_heard
from tailrace.cli.environment import ENVIRONMENT, format_new, report_variables
from tailrace.errors import ConfigError


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
@click.option("--verbose", is_flag=True, help="Log every connection.")
def serve(
    *,
    data: str | None,
    listen: str | None,
    advertise: str | None,
    node_id: int | None,
    config: Path | None,
    override: tuple[str, ...],
    from_environment: bool,
    verbose: bool,
) -> None:
    """Run a Kafka broker on DIR until Ctrl-C, SIGTERM or SIGHUP.

    With process.roles=controller in the settings it is the controller of a cluster instead.

    Prints `[KafkaServer id=1] started` when it accepts requests.
    """
    # Imported here: `tailrace serve --help` needs nothing of a broker (decision 24).
    import asyncio
    import logging
    import os

    from tailrace.broker.config import broker_config
    from tailrace.broker.process import serve as serve_until_stopped
    from tailrace.config import parse_assignments, read_properties
    from tailrace.config.environment import kafka_variables, named_with, with_listeners
    from tailrace.runtime.system import system_runtime

    given = (
        read_properties(config.read_text(encoding="utf-8", errors="replace"))
        if config is not None
        else {}
    )
    variables = kafka_variables(os.environ)
    if from_environment:
        given = with_listeners({**given, **variables.settings})
    # Over the file, as --override of kafka-server-start; the flags go over both.
    given |= parse_assignments(override)
    options = {
        "log.dirs": data,
        "listeners": listen,
        "advertised.listeners": advertise,
        "node.id": None if node_id is None else str(node_id),
    }
    given |= {name: value for name, value in options.items() if value is not None}
    try:
        settings = broker_config(given)
    except ConfigError as error:
        sources = variables.sources if from_environment else {}
        raise ConfigError([named_with(sources, each) for each in error.faults]) from None
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )

    report_variables(variables, are_taken=from_environment)
    if from_environment:
        format_new(settings)

    def started(address: str) -> None:
        directories = settings.directories if settings.is_broker else [settings.metadata_directory]
        click.echo(f"listening on {address}, data in {', '.join(directories)}")
        # Test harnesses made for Apache Kafka wait for this line, word for word.
        click.echo(f"[KafkaServer id={settings.node_id}] started")

    asyncio.run(serve_until_stopped(settings, system_runtime(), started))
    say_if_heard(f"[KafkaServer id={settings.node_id}] shut down completed")
