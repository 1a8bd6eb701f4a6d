"""`tailrace acl`: access control lists of any Kafka cluster, with the words of kafka-acls."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import AS_JSON, YES, Connection, change, confirm, emit, on_cluster
from tailrace.client.admin.acls import create_acls, delete_acls, describe_acls
from tailrace.offline.show import printable
from tailrace.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    title,
)
from tailrace.values import replace

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

Given = Any
"""The value of an option: texts, or whether it is there."""

FORMAT: Final = "tailrace.acl/1"

_OPERATIONS: Final = {
    title(each).lower(): each for each in AclOperation if each not in (0, AclOperation.ANY)
}
_HEAD: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
_ANY_HOST: Final = "*"


_RESOURCES: Final = {
    "topic": ("--topic", AclResource.TOPIC, "A topic, `*` for all; repeatable."),
    "group": ("--group", AclResource.GROUP, "A group, `*` for all; repeatable."),
    "transactional_id": (
        "--transactional-id", AclResource.TRANSACTIONAL_ID, "A transactional id; repeatable.",
    ),
    "user_principal": (
        "--user-principal", AclResource.USER, "A user, for delegation tokens of that user.",
    ),
}  # fmt: skip


def _with_resources(command: FunctionT) -> FunctionT:
    """Adds the options that name resources."""
    made: Any = click.option("--cluster", is_flag=True, help="The cluster itself.")(command)
    for argument, (flag, _, text) in reversed(_RESOURCES.items()):
        made = click.option(flag, argument, multiple=True, metavar="NAME", help=text)(made)
    return cast("FunctionT", made)


def _with_principals(command: FunctionT) -> FunctionT:
    """Adds the options that say who may or may not do it, from where."""
    made: Any = command
    for word in ("deny", "allow"):
        made = click.option(
            f"--{word}-host", f"{word}_hosts", multiple=True, metavar="ADDRESS",
            help=f"Only from this address; repeatable. Without it --{word}-principal is for all.",
        )(made)  # fmt: skip
        verb = "may" if word == "allow" else "may not"
        made = click.option(
            f"--{word}-principal", f"{word}_principals", multiple=True, metavar="TYPE:NAME",
            help=f"Who {verb} do it, such as User:alice; User:* for everybody; repeatable.",
        )(made)  # fmt: skip
    return cast("FunctionT", made)


def _parsed_operations(
    _: click.Context, __: click.Parameter, given: Sequence[str]
) -> list[AclOperation]:
    """Operations, as Kafka's tools or its protocol write them."""
    found: list[AclOperation] = []
    for text in given:
        operation = _OPERATIONS.get(text.replace("_", "").lower())
        if operation is None:
            known = ", ".join(title(each) for each in _OPERATIONS.values())
            raise click.UsageError(f"--operation: {text!r} is no operation; there are {known}")
        found.append(operation)
    return found


_OPERATION = click.option(
    "--operation", "operations", multiple=True, callback=_parsed_operations, metavar="NAME",
    help="An operation, such as Read, Write, Describe or AlterConfigs; repeatable. Without it all.",
)  # fmt: skip


def _pattern(*words: str) -> Callable[[FunctionT], FunctionT]:
    return click.option(
        "--resource-pattern-type", "pattern", type=click.Choice(words), default=words[0],
        show_default=True,
        help="Names as they are, or as the beginning of names."
        if words[0] == "literal"
        else "Entries with exactly these names, or (match) all that apply to them.",
    )  # fmt: skip


@click.group()
def acl() -> None:
    """Add, list and remove access control lists.

    Brokers with an authorizer hold each request against them. A broker without one refuses the
    command.
    """


@acl.command()
@_with_principals
@_OPERATION
@_with_resources
@_pattern("literal", "prefixed")
@click.option(
    "--producer",
    is_flag=True,
    help="All that a producer needs: Write, Describe and Create on the topics, Write and Describe "
    "on the transactional ids.",
)
@click.option(
    "--consumer",
    is_flag=True,
    help="All that a consumer needs: Read and Describe on the topics, Read on the groups.",
)
@click.option(
    "--idempotent",
    is_flag=True,
    help="With --producer: IdempotentWrite on the cluster (Kafka < 3).",
)
@AS_JSON
@on_cluster
def add(
    *,
    operations: Sequence[AclOperation],
    pattern: str,
    producer: bool,
    consumer: bool,
    idempotent: bool,
    as_json: bool,
    connection: Connection,
    **given: Given,
) -> None:
    """Add entries; those that are there stay as they are.

    An entry is for each principal, host, operation and resource of the command. Any that denies
    wins over those that allow.
    """
    resources = list(_named(given))
    rights: list[tuple[AclResource, str, AclOperation]]
    if producer or consumer:
        rights = list(
            _of_clients(given, producer=producer, consumer=consumer, idempotent=idempotent)
        )
        if operations:
            raise click.UsageError("--operation: --producer and --consumer have their own")
    else:
        rights = [
            (resource, name, operation)
            for resource, name in resources
            for operation in operations or (AclOperation.ALL,)
        ]
        _check_operations(rights)
    who = list(_principals(given))
    if not rights or not who:
        raise click.UsageError(
            "give at least one of --allow-principal and --deny-principal, and a resource: --topic, "
            "--group, --cluster, --transactional-id or --user-principal"
        )
    bindings = [
        AclBinding(
            resource=resource,
            name=name,
            principal=principal,
            operation=operation,
            permission=permission,
            host=host,
            # The cluster has one name.
            pattern=(
                PatternType.LITERAL
                if resource is AclResource.CLUSTER
                else PatternType[pattern.upper()]
            ),
        )
        for permission, principal, host in who
        for resource, name, operation in rights
    ]
    with connection.open() as cluster:
        change(cluster, create_acls, bindings).results()
    _print(bindings, kind="added", as_json=as_json)


@acl.command("list")
@_with_resources
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="TYPE:NAME",
    help="Only entries of this principal; repeatable.",
)
@_pattern("any", "match", "literal", "prefixed")
@AS_JSON
@on_cluster
def list_all(
    *,
    principals: Sequence[str],
    pattern: str,
    as_json: bool,
    connection: Connection,
    **given: Given,
) -> None:
    """List entries: all, or those of resources and principals."""
    filters = _filters(_named(given), pattern, principals)
    found: dict[AclBinding, None] = {}
    with connection.open() as cluster:
        for each in filters:
            found |= dict.fromkeys(cluster.do(describe_acls, each))
    _print(found, kind="acl", as_json=as_json)


@acl.command()
@_with_principals
@_OPERATION
@_with_resources
@_pattern("any", "match", "literal", "prefixed")
@YES
@AS_JSON
@on_cluster
def remove(
    *,
    operations: Sequence[AclOperation],
    pattern: str,
    yes: bool,
    as_json: bool,
    connection: Connection,
    **given: Given,
) -> None:
    """Remove the entries that match; without principals and operations, all of the resources."""
    resources = list(_named(given))
    who = list(_principals(given))
    if not resources and not who:
        raise click.UsageError("give a resource, a principal, or both")
    filters = [
        replace(each, operation=operation)
        for each in _filters(resources, pattern, ())
        for operation in operations or (AclOperation.ANY,)
    ]
    if who:
        hosts = {*given["allow_hosts"], *given["deny_hosts"]}
        filters = [
            replace(
                each,
                permission=permission,
                principal=principal,
                host=host if hosts else None,
            )
            for each in filters
            for permission, principal, host in who
        ]
    with connection.open() as cluster:
        found: dict[AclBinding, None] = {}
        for each in filters:
            found |= dict.fromkeys(cluster.do(describe_acls, each))
        if not found:
            raise click.ClickException("no entry matches")
        if not yes and not as_json:
            _print(found, kind="acl", as_json=False)
        confirm(f"Remove {len(found)} {'entry' if len(found) == 1 else 'entries'}?", yes=yes)
        removed: dict[AclBinding, None] = {}
        for outcome in change(cluster, delete_acls, filters).results().values():
            removed |= outcome.results()
    _print(removed, kind="removed", as_json=as_json)


def _named(given: Mapping[str, Any]) -> Iterator[tuple[AclResource, str]]:
    """The resources that the options name."""
    for argument, (_, resource, _) in _RESOURCES.items():
        for name in given[argument]:
            yield resource, name
    if given["cluster"]:
        yield AclResource.CLUSTER, CLUSTER_NAME


def _principals(given: Mapping[str, Any]) -> Iterator[tuple[Permission, str, str]]:
    """Permission, principal and host of each entry."""
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals, hosts = given[f"{word}_principals"], given[f"{word}_hosts"]
        if hosts and not principals:
            raise click.UsageError(f"--{word}-host: give --{word}-principal too")
        for principal in principals:
            if ":" not in principal:
                raise click.UsageError(
                    f"--{word}-principal: {principal!r} has no type; write User:{principal}"
                )
            for host in hosts or (_ANY_HOST,):
                yield permission, principal, host


def _of_clients(
    given: Mapping[str, Any], *, producer: bool, consumer: bool, idempotent: bool
) -> Iterator[tuple[AclResource, str, AclOperation]]:
    """The rights of producers and consumers, as kafka-acls has them."""
    operation = AclOperation
    if not given["topic"] or (consumer and not given["group"]):
        needs = "--topic and --group" if consumer else "--topic"
        raise click.UsageError(f"{'--consumer' if consumer else '--producer'}: give {needs}")
    of_topics: dict[AclOperation, None] = {}
    if producer:
        of_topics |= dict.fromkeys((operation.WRITE, operation.DESCRIBE, operation.CREATE))
    if consumer:
        of_topics |= dict.fromkeys((operation.READ, operation.DESCRIBE))
    for name in given["topic"]:
        for each in of_topics:
            yield AclResource.TOPIC, name, each
    for name in given["group"] if consumer else ():
        yield AclResource.GROUP, name, operation.READ
    for name in given["transactional_id"] if producer else ():
        yield AclResource.TRANSACTIONAL_ID, name, operation.WRITE
        yield AclResource.TRANSACTIONAL_ID, name, operation.DESCRIBE
    if producer and idempotent:
        yield AclResource.CLUSTER, CLUSTER_NAME, operation.IDEMPOTENT_WRITE


def _check_operations(rights: Sequence[tuple[AclResource, str, AclOperation]]) -> None:
    for resource, _, operation in rights:
        if operation is not AclOperation.ALL and operation not in OPERATIONS[resource]:
            known = ", ".join(title(each) for each in OPERATIONS[resource])
            raise click.UsageError(
                f"--operation: {title(operation)} is none of a {_words(resource)}; there are "
                f"{known} and All"
            )


def _filters(
    resources: Iterable[tuple[AclResource, str]], pattern: str, principals: Sequence[str]
) -> list[AclFilter]:
    kind = PatternType[pattern.upper()]
    found = [
        AclFilter(
            resource=resource,
            name=name,
            pattern=PatternType.ANY if resource is AclResource.CLUSTER else kind,
        )
        for resource, name in resources
    ] or [AclFilter(pattern=kind)]
    if not principals:
        return found
    return [replace(each, principal=principal) for each in found for principal in principals]


def _words(resource: AclResource) -> str:
    return resource.name.lower().replace("_", " ")


def _order(each: AclBinding) -> tuple[object, ...]:
    return (
        each.resource, each.name, each.pattern, each.principal, each.permission, each.host,
        each.operation,
    )  # fmt: skip


def _print(bindings: Iterable[AclBinding], *, kind: str, as_json: bool) -> None:
    rows = [_HEAD]
    for each in sorted(bindings, key=_order):
        if as_json:
            fields = {
                "resource": _words(each.resource),
                "name": each.name,
                "pattern": each.pattern.name.lower(),
                "principal": each.principal,
                "host": each.host,
                "operation": title(each.operation),
                "permission": each.permission.name.lower(),
            }
            emit(FORMAT, kind, fields)
            continue
        rows.append(
            (
                _words(each.resource), printable(each.name), each.pattern.name.lower(),
                printable(each.principal), each.host, title(each.operation),
                each.permission.name.lower(),
            )
        )  # fmt: skip
    for line in () if as_json else aligned(rows, right=()):
        click.echo(line)
