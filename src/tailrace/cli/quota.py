"""`tailrace quota`: quotas of users, client ids and addresses of any Kafka cluster (KIP-546)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import click

from tailrace.cli.arguments import aligned, assigned
from tailrace.cli.on_cluster import AS_JSON, Connection, change, emit, on_cluster
from tailrace.client.admin.quotas import (
    QuotaEntity,
    alter_client_quotas,
    describe_client_quotas,
)
from tailrace.errors import ConfigError
from tailrace.offline.show import printable

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

FORMAT: Final = "tailrace.quota/1"

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)

# The words of kafka-configs.
_KINDS: Final = {
    "user": ("user", "--user", "--user-defaults", "a user"),
    "client-id": ("client", "--client", "--client-defaults", "a client id"),
    "ip": ("ip", "--ip", "--ip-defaults", "an address"),
}

_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Let the controller check the change without making it."
)


def _with_entity(command: FunctionT) -> FunctionT:
    """Adds the options that name a user, a client id or an address."""
    made: Any = command
    for argument, flag, defaults, what in reversed(_KINDS.values()):
        made = click.option(
            defaults, f"{argument}_defaults", is_flag=True,
            help=f"The default: {what} without a quota of its own has this one.",
        )(made)  # fmt: skip
        made = click.option(flag, argument, metavar="NAME", help=f"Name of {what}.")(made)
    return cast("FunctionT", made)


@click.group()
def quota() -> None:
    """Set, list and remove quotas of users, client ids and addresses.

    Above a quota of bytes or of time nothing is refused: brokers read the connection later.
    """


@quota.command("set")
@click.argument("given", nargs=-1, required=True, callback=assigned, metavar="QUOTA=VALUE...")
@_with_entity
@_DRY_RUN
@AS_JSON
@on_cluster
def set_(
    given: Mapping[str, str],
    *,
    dry_run: bool,
    as_json: bool,
    connection: Connection,
    **names: str | bool | None,
) -> None:
    """Set quotas, all that are given or none.

    With --user and --client they are for this client id of this user.

    \b
    producer_byte_rate        bytes in a second that may be produced
    consumer_byte_rate        bytes in a second that may be fetched
    request_percentage        time of a broker's requests, 100 for one core
    controller_mutation_rate  partitions in a second, created or deleted
    connection_creation_rate  new connections in a second, of an address
    """  # noqa: D301 - click needs the character
    entity = _entity(names)
    values = {name: _number(name, text) for name, text in given.items()}
    with connection.open() as cluster:
        outcomes = change(cluster, alter_client_quotas, {entity: values}, validate_only=dry_run)
        outcomes.results()
    verb = "can have" if dry_run else "has"
    if as_json:
        emit(FORMAT, "set", {**_fields(entity), "quotas": values, "dry_run": dry_run})
    for name, value in () if as_json else values.items():
        click.echo(f"{_named(entity)} {verb} {name}={value:.15g}")


@quota.command("list")
@_with_entity
@AS_JSON
@on_cluster
def list_all(*, as_json: bool, connection: Connection, **names: str | bool | None) -> None:
    """List quotas: all, or those of a user, a client id or an address."""
    matching = dict(_parts(names))
    with connection.open() as cluster:
        found = cluster.do(describe_client_quotas, matching)
    rows = [("user", "client id", "address", "quota", "value")]
    # The default of a kind before its names.
    for entity in sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.parts]):
        if as_json:
            emit(FORMAT, "quota", {**_fields(entity), "quotas": found[entity]})
            continue
        parts = dict(entity.parts)
        user, client_id, address = (
            _shown(parts[kind]) if kind in parts else "-" for kind in ("user", "client-id", "ip")
        )
        rows += [
            (user, client_id, address, name, f"{value:.15g}")
            for name, value in sorted(found[entity].items())
        ]
    for line in () if as_json else aligned(rows, right=(4,)):
        click.echo(line)


@quota.command()
@click.argument("quotas", nargs=-1, metavar="[QUOTA]...")
@_with_entity
@_DRY_RUN
@AS_JSON
@on_cluster
def remove(
    quotas: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
    connection: Connection,
    **names: str | bool | None,
) -> None:
    """Remove quotas; without QUOTA all that the user, client id or address has."""
    entity = _entity(names)
    with connection.open() as cluster:
        found = cluster.do(describe_client_quotas, dict(entity.parts), is_strict=True)
        known = found.get(entity, {})
        missing = [name for name in quotas if name not in known]
        if missing or not known:
            what = ", ".join(map(printable, missing)) or "quota"
            raise ConfigError([f"{_named(entity)} has no {what}; tailrace quota list shows all"])
        removed = list(dict.fromkeys(quotas)) or sorted(known)
        change(
            cluster, alter_client_quotas, {entity: dict.fromkeys(removed)}, validate_only=dry_run
        ).results()
    if as_json:
        emit(FORMAT, "removed", {**_fields(entity), "quotas": removed, "dry_run": dry_run})
    else:
        verb = "can be removed from" if dry_run else "removed from"
        click.echo(f"{', '.join(removed)} {verb} {_named(entity)}")


def _parts(names: Mapping[str, str | bool | None]) -> list[tuple[str, str | None]]:
    """The kinds that are given, with their names; None is the default of a kind."""
    found: list[tuple[str, str | None]] = []
    for kind, (argument, flag, defaults, _) in _KINDS.items():
        name, is_default = names[argument], names[f"{argument}_defaults"]
        if name is not None and is_default:
            raise click.UsageError(f"give {flag} or {defaults}, not both")
        if name == "":
            raise click.UsageError(f"{flag}: the name is empty; for all others use {defaults}")
        if is_default:
            found.append((kind, None))
        elif isinstance(name, str):
            found.append((kind, name))
    return found


def _entity(names: Mapping[str, str | bool | None]) -> QuotaEntity:
    parts = _parts(names)
    if not parts:
        raise click.UsageError(
            "whose quota it is: give --user, --client or both, or --ip; or the default of one, "
            "such as --user-defaults"
        )
    return QuotaEntity.of(**{kind.replace("-", "_"): name for kind, name in parts})


def _number(name: str, text: str) -> float:
    if name not in QUOTAS:
        raise click.UsageError(f"{printable(name)} is no quota; there are {', '.join(QUOTAS)}")
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{name}: {text!r} is no number") from None


def _fields(entity: QuotaEntity) -> dict[str, object]:
    return {"entity": dict(entity.parts)}


def _named(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {_shown(name)}" for kind, name in reversed(entity.parts))


def _shown(name: str | None) -> str:
    return "<default>" if name is None else printable(name)
