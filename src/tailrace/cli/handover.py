"""`tailrace handover`: what a move between Tailrace and Apache Kafka comes to."""

import sys
from collections.abc import Sequence

import click

from tailrace.cli.arguments import data_directories
from tailrace.cli.on_cluster import AS_JSON, emit, say
from tailrace.offline.handover import (
    Controller,
    Effect,
    Handover,
    Side,
    next_steps,
    plan_handover,
    properties_text,
    server_properties,
)
from tailrace.offline.show import printable
from tailrace.offline.whole_file import whole_file
from tailrace.runtime.files import DiskFiles

FORMAT = "tailrace.handover/1"

# As for an error: a script must not go on with the move.
_EXIT_HINDERED = 1
_HEADINGS = {
    Effect.HINDERS: "prevents the move",
    Effect.KEPT: "stored but not used",
    Effect.UNDERSTOOD: "understood",
}
_SIDES = {Side.BOTH: "", Side.KAFKA: "Kafka: ", Side.TAILRACE: "Tailrace: "}


def _controllers(
    _: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[Controller, ...]:
    from tailrace.broker.kraft.settings import parse_controllers

    texts = tuple(each.strip() for each in value.split(",")) if value is not None else ()
    try:
        return tuple(Controller(*each) for each in parse_controllers(texts, ()))
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


@click.command()
@data_directories
@click.option(
    "--controllers", "joining", metavar="ID@HOST:PORT,...", callback=_controllers,
    help="Controllers of Kafka that will join that of DIR.",
)  # fmt: skip
@click.option(
    "--write", "path", metavar="FILE", type=click.Path(dir_okay=False),
    help="Write the server.properties that Kafka needs to FILE.",
)  # fmt: skip
@click.option(
    "--to", "target", type=click.Choice([Side.KAFKA.value, Side.TAILRACE.value]),
    help="The broker that takes over: the exit code is about this one alone.",
)  # fmt: skip
@AS_JSON
def handover(
    directories: list[str],
    *,
    joining: Sequence[Controller],
    path: str | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Check a move between Tailrace and Apache Kafka before it is made.

    Stop the node first. Lists what prevents the move, what one of the sides stores without using
    it, what both understand, and the settings that Kafka's server.properties needs. The directories
    are not changed.

    For the directory of a controller the settings are Tailrace's too, and the commands of the whole
    move follow: to Apache Kafka, to more controllers, and back.

    Both brokers are reported on, since each can take over what the other cannot: Tailrace recovers
    the logs of a killed Kafka.

    Exit code 0: ready to move, in both directions or as --to says. 1: something prevents it, or an
    error.
    """
    files = DiskFiles()
    found = plan_handover(files, directories)
    if joining and not (found.is_controller and found.replay.kraft_version):
        raise click.UsageError(
            f"--controllers: {found.home} is that of no controller, or of one whose settings name "
            "the voters (kraft.version 0), which others cannot join"
        )
    settings = server_properties(found, joining)
    steps = next_steps(found, joining, path=path or "server.properties")
    if as_json:
        _emit(found, settings, steps)
    else:
        for line in _lines(found, settings, steps, path=path or "server.properties"):
            click.echo(printable(line))
    if path is not None:
        # Under another name until it is whole: half of the settings would be a valid file too, and
        # Kafka would take its defaults for the rest.
        with whole_file(files, path) as output:
            output.write(properties_text(settings).encode())
        say(f"wrote {path}")
    # Last, after everything is printed and written: what prevents the move is in the list.
    if not found.is_ready if target is None else found.hindrances(Side(target)):
        sys.exit(_EXIT_HINDERED)


def _emit(found: Handover, settings: dict[str, str], steps: Sequence[str]) -> None:
    fields = {
        "role": settings["process.roles"],
        "directories": list(found.directories),
        "metadata_directory": found.home,
        "cluster_id": found.identity.cluster_id,
        "node_id": found.identity.node_id,
        "metadata_version": found.image.metadata_version,
        "release": found.release,
        "ready": found.is_ready,
        "ready_for": [
            side.value for side in (Side.KAFKA, Side.TAILRACE) if not found.hindrances(side)
        ],
    }
    emit(FORMAT, "handover", fields)
    for note in found.notes:
        fields = {"effect": note.effect.value, "side": note.side.value, "sentence": note.sentence}
        emit(FORMAT, "note", fields)
    for name, value in settings.items():
        emit(FORMAT, "setting", {"name": name, "value": value})
    for each in steps:
        emit(FORMAT, "step", {"sentence": each})


def _lines(
    found: Handover, settings: dict[str, str], steps: Sequence[str], *, path: str
) -> list[str]:
    lines = [f"node {found.identity.node_id} of cluster {found.identity.cluster_id}"]
    for effect, heading in _HEADINGS.items():
        notes = [each for each in found.notes if each.effect is effect]
        if notes:
            lines += ["", heading]
            lines += [f"  {_SIDES[each.side]}{each.sentence}" for each in notes]
    lines += ["", "settings" if found.is_controller else "server.properties of Kafka"]
    lines += [f"  {name}={value}" for name, value in settings.items()]
    if steps:
        lines += ["", "next steps", *(f"  {each}" for each in steps)]
    own = path if found.is_controller else "FILE, with the settings that the node has"
    lines.append("")
    for side, name, command in (
        (Side.TAILRACE, "Tailrace", f"tailrace serve --config {own}"),
        (Side.KAFKA, "Apache Kafka", f"kafka-server-start.sh {path}"),
    ):
        count = found.hindrances(side)
        first = f"not ready, because of {count} of the lines under `{_HEADINGS[Effect.HINDERS]}`"
        lines.append(f"{name}: {first if count else f'ready: {command}'}")
    return lines
