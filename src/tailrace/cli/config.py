"""`tailrace config`: files of settings checked without starting anything."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.environment import ENVIRONMENT
from tailrace.cli.on_cluster import AS_JSON, emit
from tailrace.client.config import BrokerAddress
from tailrace.config import properties
from tailrace.config.environment import kafka_variables, with_listeners, with_stores
from tailrace.offline.show import printable

if TYPE_CHECKING:
    from tailrace.broker.checking import Checked, Finding
    from tailrace.broker.config import BrokerConfig
    from tailrace.broker.listeners import Listener

FORMAT = "tailrace.config/1"


@click.group()
def config() -> None:
    """Check files of settings without starting a broker."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@ENVIRONMENT
@AS_JSON
def validate(file: Path, *, from_environment: bool, as_json: bool) -> None:
    """Say all that is wrong with a server.properties, and what it means here and in Kafka.

    Exit code 1 if a broker would not start with it. Directories and ports are not looked at.
    """
    from tailrace.broker.checking import Given, checked

    text = file.read_text(encoding="utf-8", errors="replace")
    given = [Given(each.name, each.value, f"line {each.line}") for each in properties(text)]
    if from_environment:
        variables = with_stores(kafka_variables(os.environ), os.environ)
        given += [
            Given(name, value, variables.sources[name])
            for name, value in variables.settings.items()
        ]
        texts = {each.name: each.text for each in given}
        derived = with_listeners(texts)
        if derived != texts:
            given.append(Given("listeners", derived["listeners"], "advertised.listeners"))
    found = checked(given)
    if as_json:
        for each in found.findings:
            emit(FORMAT, "finding", each._asdict())
        if found.config is not None:
            emit(FORMAT, "meaning", _meaning(found.config, found))
    else:
        for line in _lines(file, found):
            click.echo(printable(line))
    sys.exit(int(found.config is None))


def _meaning(config: "BrokerConfig", found: "Checked") -> dict[str, Any]:
    return {
        "node_id": config.node_id,
        "process_roles": list(config.process_roles),
        "listeners": [_listener(each) for each in config.listeners],
        "controller_listener": (
            None if config.controller_listener is None else _listener(config.controller_listener)
        ),
        "log_dirs": list(config.directories),
        "metadata_log_dir": config.metadata_directory,
        "settings": dict(found.changed),
    }


def _lines(file: Path, found: "Checked") -> Iterator[str]:
    levels = [each.level for each in found.findings]
    counts = f"errors: {levels.count('error')}, warnings: {levels.count('warning')}"
    yield f"{file}: {counts}"
    rows = [_row(each) for each in found.findings if each.level != "kafka"]
    yield from aligned(rows, right=())
    config = found.config
    if config is not None:
        yield "here"
        shown = [
            ("  node", f"{config.node_id}, {','.join(config.process_roles)}"),
            *(("  listener", _listener(each)) for each in config.listeners),
        ]
        if config.controller_listener is not None:
            shown.append(("  controller listener", _listener(config.controller_listener)))
        shown += [("  log directory", each) for each in config.directories]
        shown.append(("  metadata log", config.metadata_directory))
        shown += [("  not the default", f"{name}={text}") for name, text in found.changed.items()]
        yield from aligned(shown, right=())
    others = [_row(each)[1:] for each in found.findings if each.level == "kafka"]
    if others:
        yield "in Kafka"
        yield from aligned([(f"  {row[0]}", *row[1:]) for row in others], right=())


def _row(found: "Finding") -> tuple[str, str, str]:
    text = f"{found.name}: {found.text}" if found.name else found.text
    return found.level, found.place or "-", text


def _listener(listener: "Listener") -> str:
    text = f"{listener.name}://{BrokerAddress(listener.host, listener.port)}"
    if listener.advertised is None:
        return text
    host, port = listener.advertised
    # Without a host it is the name of the machine that runs the broker.
    return f"{text}, advertised as {BrokerAddress(host or '(this machine)', port)}"
