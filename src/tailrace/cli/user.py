"""`tailrace user`: users of any Kafka cluster that log in by SCRAM.

Invariant: a password is in no argument, where every user of the machine could read it; it comes
from a prompt, a file or stdin, and leaves this process only salted.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import IO

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import AS_JSON, YES, Connection, change, confirm, emit, on_cluster
from tailrace.client.admin.users import (
    ITERATIONS_DEFAULT,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from tailrace.client.reader import ClusterReader
from tailrace.cluster.control.credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS
from tailrace.errors import ConfigError
from tailrace.offline.show import printable

USER_FORMAT = "tailrace.user/1"

PASSWORD_BYTES_MAX = 4096
"""Longest password that is read."""

_BY_NAME = {label: ScramMechanism(number) for number, label in MECHANISMS.items()}

_MECHANISM = click.option(
    "--mechanism", "labels", multiple=True, type=click.Choice(tuple(_BY_NAME)),
    help="Default: SCRAM-SHA-512; repeatable.",
)  # fmt: skip
_PASSWORD = click.option(
    "--password-file", type=click.File("rb"), metavar="FILE",
    help="A file with the password in its first line, - for stdin; else it is asked for.",
)  # fmt: skip
_ITERATIONS = click.option(
    "--iterations", type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT, show_default=True,
    help="Rounds of hashing, which each login costs the client.",
)  # fmt: skip


@click.group()
def user() -> None:
    """Create, list, alter and remove users that log in by SCRAM.

    The first user of a cluster that asks everybody for a login is made with its directories:
    tailrace storage format --add-scram.
    """


@user.command()
@click.argument("name")
@_MECHANISM
@_PASSWORD
@_ITERATIONS
@AS_JSON
@on_cluster
def create(
    name: str,
    *,
    labels: Sequence[str],
    password_file: IO[bytes] | None,
    iterations: int,
    as_json: bool,
    connection: Connection,
) -> None:
    """Create a user, or give it another mechanism."""
    with connection.open() as cluster:
        mechanisms = _chosen(labels)
        known = {each.mechanism for each in _credentials(cluster).get(name, ())}
        if repeated := [each.label for each in mechanisms if each in known]:
            raise ConfigError(
                [f"user {name!r} has {', '.join(repeated)} already; use tailrace user alter"]
            )
        _set(cluster, name, mechanisms, source=password_file, iterations=iterations)
    _report("created", name, mechanisms, as_json=as_json)


@user.command()
@click.argument("name")
@_MECHANISM
@_PASSWORD
@_ITERATIONS
@AS_JSON
@on_cluster
def alter(
    name: str,
    *,
    labels: Sequence[str],
    password_file: IO[bytes] | None,
    iterations: int,
    as_json: bool,
    connection: Connection,
) -> None:
    """Change a user's password; without --mechanism for all that it has.

    Connections that have logged in before stay, until connections.max.reauth.ms ends them.
    """
    with connection.open() as cluster:
        mechanisms = _known(cluster, name, labels)
        _set(cluster, name, mechanisms, source=password_file, iterations=iterations)
    _report("altered", name, mechanisms, as_json=as_json)


@user.command("list")
@AS_JSON
@on_cluster
def list_all(*, as_json: bool, connection: Connection) -> None:
    """List all users, with their mechanisms and iterations."""
    with connection.open() as cluster:
        found = _credentials(cluster)
    rows = [("user", "mechanism", "iterations")]
    for name, credentials in sorted(found.items()):
        if as_json:
            fields = {
                "user": name,
                "credentials": [
                    {"mechanism": each.mechanism.label, "iterations": each.iterations}
                    for each in credentials
                ],
            }
            emit(USER_FORMAT, "user", fields)
        rows += [
            (printable(name), each.mechanism.label, f"{each.iterations}") for each in credentials
        ]
    for line in () if as_json else aligned(rows, right=(2,)):
        click.echo(line)


@user.command()
@click.argument("name")
@_MECHANISM
@YES
@AS_JSON
@on_cluster
def remove(
    name: str, *, labels: Sequence[str], yes: bool, as_json: bool, connection: Connection
) -> None:
    """Remove a user; with --mechanism only its credentials for that.

    Connections that have logged in before stay, until connections.max.reauth.ms ends them.
    """
    with connection.open() as cluster:
        mechanisms = _known(cluster, name, labels)
        confirm(
            f"Remove {_labels(mechanisms)} of user {printable(name)}? It cannot log in by that "
            "any more.",
            yes=yes,
        )
        # One at a time: a controller refuses a user that is named twice.
        for each in mechanisms:
            change(cluster, alter_user_scram_credentials, [ScramDeletion(name, each)]).results()
    _report("removed", name, mechanisms, as_json=as_json)


def _chosen(labels: Sequence[str]) -> list[ScramMechanism]:
    return [_BY_NAME[each] for each in dict.fromkeys(labels or ["SCRAM-SHA-512"])]


def _credentials(cluster: ClusterReader) -> Mapping[str, Sequence[ScramCredential]]:
    return cluster.do(describe_user_scram_credentials).results()


def _known(cluster: ClusterReader, name: str, labels: Sequence[str]) -> list[ScramMechanism]:
    """The mechanisms of a user, or those of them that are chosen."""
    known = [each.mechanism for each in _credentials(cluster).get(name, ())]
    if not known:
        raise ConfigError([f"there is no user {name!r}; tailrace user list shows all"])
    chosen = _chosen(labels) if labels else known
    if missing := [each for each in chosen if each not in known]:
        raise ConfigError([f"user {name!r} has no {_labels(missing)}, but {_labels(known)}"])
    return chosen


def _set(
    cluster: ClusterReader,
    name: str,
    mechanisms: Sequence[ScramMechanism],
    *,
    source: IO[bytes] | None,
    iterations: int,
) -> None:
    password = _password(source, name)
    for each in mechanisms:
        upsertion = ScramUpsertion(name, each, password, iterations)
        change(cluster, alter_user_scram_credentials, [upsertion]).results()


def _password(source: IO[bytes] | None, name: str) -> bytes:
    """The password of a file, or the answer to a question.

    Raises:
        click.UsageError: it is empty or too long, or nobody can be asked.
    """
    if source is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "stdin is not a terminal, so you cannot be asked for the password; give "
                "--password-file FILE, or - for stdin"
            )
        asked: str = click.prompt(
            f"Password of {printable(name)}", hide_input=True, confirmation_prompt=True, err=True
        )
        return asked.encode()
    data = source.read(PASSWORD_BYTES_MAX + 1)
    # An editor ends the line.
    password = data.split(b"\n", 1)[0].removesuffix(b"\r")
    if not password or len(password) > PASSWORD_BYTES_MAX:
        raise click.UsageError(
            f"--password-file: the first line has {len(password)} bytes; a password has 1 to "
            f"{PASSWORD_BYTES_MAX}"
        )
    return password


def _labels(mechanisms: Sequence[ScramMechanism]) -> str:
    return " and ".join(each.label for each in mechanisms)


def _report(verb: str, name: str, mechanisms: Sequence[ScramMechanism], *, as_json: bool) -> None:
    if as_json:
        fields = {"user": name, "mechanisms": [each.label for each in mechanisms]}
        emit(USER_FORMAT, verb, fields)
    else:
        click.echo(f"{verb} user {printable(name)} with {_labels(mechanisms)}")
