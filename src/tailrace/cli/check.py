"""`tailrace check`: the machine looked at as an operator would, before a node runs there."""

import os
import sys
from pathlib import Path

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.environment import ENVIRONMENT
from tailrace.cli.on_cluster import AS_JSON, emit
from tailrace.config import properties
from tailrace.config.environment import kafka_variables, with_listeners, with_stores
from tailrace.offline.show import printable

FORMAT = "tailrace.check/1"


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file, with the directories and listeners of the node.",
)
@click.option("--data", metavar="DIR", help="Log directories (log.dirs). Several: A,B.")
@ENVIRONMENT
@AS_JSON
def check(*, file: Path | None, data: str | None, from_environment: bool, as_json: bool) -> None:
    """Look at this machine, and say what to change before a node runs on it.

    Limits of descriptors, threads, memory and cores, swap, clock, ports, and each log directory:
    its owner, its file system and its room. Run it as the user of the node. Exit code 1 if a node
    would not start, or could not keep its records; warnings are no failure. Settings are checked by
    `tailrace config validate`.
    """
    from tailrace.broker.config import broker_config
    from tailrace.broker.machine_checks import checks, listened, secret_files
    from tailrace.runtime.machine import read_machine

    texts = {}
    if file is not None:
        text = file.read_text(encoding="utf-8", errors="replace")
        texts = {each.name: each.value for each in properties(text)}
    if from_environment:
        variables = with_stores(kafka_variables(os.environ), os.environ)
        texts = with_listeners({**texts, **variables.settings})
    if data is not None:
        texts["log.dirs"] = data
    is_given = any(each in texts for each in ("log.dirs", "log.dir"))
    config = broker_config(texts if is_given else {**texts, "log.dirs": os.curdir})
    own = config.directories if config.is_broker else ()
    directories = (*own, config.metadata_directory) if is_given else ()
    machine = read_machine(
        directories=directories,
        addresses=listened(config),
        secrets=secret_files(texts, None if file is None else str(file)),
    )
    found = list(checks(machine, config))
    if as_json:
        for each in found:
            emit(FORMAT, "check", each._asdict())
    else:
        rows = [
            (
                each.level,
                each.name,
                f"{each.text}; next: {each.advice}" if each.advice else each.text,
            )
            for each in found
        ]
        for line in aligned(rows, right=()):
            click.echo(printable(line))
    sys.exit(int(any(each.level == "fail" for each in found)))
